"""Error messages: hints for misspelt names, and several errors in one message."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np

_LONGEST = 200  # characters of a value in a message
_MOST_NAMES = 10  # in a message


class CombinedError(ValueError, TypeError):
    """Several errors of one input, such as a file; the message has a line for each."""

    def __init__(self, message: str, errors: Sequence[Exception] = ()) -> None:
        super().__init__(message)
        self.errors = tuple(errors)


def as_array(name: str, value: Any) -> np.ndarray:
    """Return `value` as an array; raise ValueError, with `name`, for nested lists of different lengths."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} is {shortly(value)}; it must be an array, with rows of the same length") from None


def as_options(value: Any) -> dict[str, Any]:
    """Return the options of a reset, none for None; raise ValueError for anything but a dictionary."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"options are {shortly(value)}; they must be a dictionary")
    return dict(value)


def is_among(value: Any, names: Collection[str]) -> bool:
    """Return True if `value` is one of the names, False for what is no string at all."""
    return isinstance(value, str) and value in names


def shortly(value: object) -> str:
    """Return the beginning of ``repr(value)``, on one line, for a message."""
    return shortened(re.sub(r"\s*\n\s*", " ", repr(value)))


def shortened(text: str) -> str:
    """Return the beginning of a text, and its length if that is not all."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the hint `` (did you mean X?)`` for the known name closest to `name`, or ``""`` if none is close."""
    close = difflib.get_close_matches(str(name)[:_LONGEST], list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def in_short(names: Collection[object], known: Collection[str] = ()) -> str:
    """Return the first names, each with its hint of :func:`did_you_mean`, and how many more there are."""
    first = [f"{shortened(str(name))}{did_you_mean(name, known)}" for name in islice(names, _MOST_NAMES)]
    more = len(names) - len(first)
    return f"{', '.join(first)}{f' and {more} more' if more else ''}"


@contextmanager
def collect(errors: list[Exception]) -> Iterator[None]:
    """Append every ValueError and TypeError of the block to `errors`, instead of raising it."""
    try:
        yield
    except CombinedError as combined:
        errors += combined.errors or (combined,)
    except (ValueError, TypeError) as error:
        errors.append(error)


def raise_together(errors: Sequence[Exception]) -> None:
    """Raise the errors, if there are any: a single one as it is, several as one :class:`CombinedError`."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        lines = "".join(f"\n  {error}" for error in errors)
        raise CombinedError(f"{len(errors)} errors:{lines}", errors)
