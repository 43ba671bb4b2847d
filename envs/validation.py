"""Ranges of options and parameters, declared once, in the type annotation of a dataclass field.

``gamma: Annotated[float, Range(0, 1)]`` checks the value (:func:`invalid_fields`) and describes the range
(:func:`allowed`) in error messages, command-line help and documentation.
"""

import ast
import dataclasses
import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np

_LONGEST = 200  # characters of a value in a message
_MOST_NAMES = 10  # in a message
_MOST_ROWS = 2**31 - 1

IMPORT_HINT = "; one of your own is known once its module is imported, by --import MODULE or in Python"
"""End of the message for an unknown name that a module of the user may define."""


class CombinedError(ValueError, TypeError):
    """Several errors of one input, such as a file; the message has a line for each."""

    def __init__(self, message: str, errors: Sequence[Exception] = ()) -> None:
        super().__init__(message)
        self.errors = tuple(errors)


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
    """Raise the errors, if any: a single one as it is, several as one :class:`CombinedError`."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        lines = "".join(f"\n  {error}" for error in errors)
        raise CombinedError(f"{len(errors)} errors:{lines}", errors)


def shortly(value: object, show: Callable[[Any], str] = repr) -> str:
    """Return a value as text for a message: on one line, and shortened."""
    text = re.sub(r"\s*\n\s*", " ", show(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the hint `` (did you mean X?)`` for the known name closest to `name`, or ``""`` if none is close."""
    close = difflib.get_close_matches(str(name)[:_LONGEST], list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def in_short(names: Collection[object], known: Collection[str] = ()) -> str:
    """Return the first names, each with its hint from :func:`did_you_mean`, and the number of the others."""
    first = [f"{shortly(name, str)}{did_you_mean(name, known)}" for name in islice(names, _MOST_NAMES)]
    more = len(names) - len(first)
    return f"{', '.join(first)}{f' and {more} more' if more else ''}"


def known_unless_meant(unknown: Collection[object], known: Collection[str]) -> str:
    """Return :func:`in_short` of unknown names, and the many `known` ones unless each has a hint."""
    hinted = all(did_you_mean(name, known) for name in islice(unknown, _MOST_NAMES))
    return in_short(unknown, known) + ("" if hinted else f": known are {', '.join(known)}")


def as_array(name: str, value: Any) -> np.ndarray:
    """Return `value` as an array; raise ValueError, with `name`, for nested lists of different lengths."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} is {shortly(value)}; it must be an array, with rows of the same length") from None


def as_options(value: Any) -> dict[str, Any]:
    """Return the options of a reset, none for None; raise ValueError for anything but a dictionary."""
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"options are {shortly(value)}; they must be a dictionary")
    return dict(value or {})


def is_among(value: Any, names: Collection[str]) -> bool:
    """Return True if `value` is one of the names, False for anything but a string."""
    return isinstance(value, str) and value in names


def is_whole(value: Any) -> bool:
    """Return True for a whole number, of Python or numpy, other than a bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def whole_number(name: str, value: int, least: int, most: int | None = None) -> int:
    """Return `value`; raise ValueError unless it is a whole number from `least` to `most`."""
    allowed = Range(least, most)
    if not is_whole(value) or value not in allowed:
        raise ValueError(f"{name} is {shortly(value)}; it must be a whole number, {allowed}")
    return int(value)


def positive(name: str, value: int) -> int:
    """Return `value`; raise ValueError unless it is a whole number, 1 or more, that an array can have."""
    if is_whole(value) and value > _MOST_ROWS:
        raise ValueError(f"{name} is {shortly(value)}; it must be at most {_MOST_ROWS}")
    return whole_number(name, value, 1)


def plain(value: Any) -> Any:
    """Return `value` with tuples, also nested ones, as lists."""
    return [plain(one) for one in value] if isinstance(value, tuple) else value


@dataclasses.dataclass(frozen=True)
class Range:
    """Interval of numbers, closed at its high end, and at its low end unless `open_low`.

    On a list, it is the range of each number.
    """

    low: float
    high: float | None = None
    """None: no upper limit."""
    unit: str = ""
    open_low: bool = False

    def __contains__(self, number: float) -> bool:
        enough = self.low < number if self.open_low else self.low <= number
        return enough and (self.high is None or number <= self.high)

    def __str__(self) -> str:
        if self.open_low:
            words = f"over {self.low}" + ("" if self.high is None else f" and at most {self.high}")
        else:
            words = f"{self.low} or more" if self.high is None else f"{self.low} to {self.high}"
        return f"{words} {self.unit}".rstrip()


over = functools.partial(Range, open_low=True)
"""Range of numbers over its low end."""


@dataclasses.dataclass(frozen=True, eq=False)  # hashed by identity, since a table has no hash
class Choice:
    """Choice of one of several names: the keys of a table, or a tuple."""

    names: Collection[str]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __str__(self) -> str:
        return " or ".join(self.names) if len(self.names) == 2 else f"one of {', '.join(self.names)}"


class Row(tuple[str, ...]):
    """Names of the numbers of a tuple, such as ``Row(("x", "y", "radius"))``."""

    def __str__(self) -> str:
        return f"[{', '.join(self)}]"


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Positive = Annotated[float, over(0)]
NotNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1)]


@functools.cache
def field_types(kind: Any) -> dict[str, Any]:
    """Return the annotated types of a dataclass's fields; a field redeclared without a range inherits its range."""
    types: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        for name, hint in get_type_hints(base, include_extras=True).items():
            if name not in types or _parts(hint)[0] is not None:
                types[name] = hint
    return {field.name: types[field.name] for field in dataclasses.fields(kind)}


@functools.lru_cache(maxsize=1024)
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Return the limit of an annotated type, its kinds without None, and True if None is allowed."""
    limit = None
    if get_origin(hint) is Annotated:
        limit = next((one for one in hint.__metadata__ if isinstance(one, Range | Choice | Row)), None)
        hint = hint.__origin__
    kinds: tuple[Any, ...] = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    optional, kinds = NoneType in kinds, tuple(kind for kind in kinds if kind is not NoneType)
    if len(kinds) == 1 and get_origin(kinds[0]) is Annotated:
        own, kinds, _ = _parts(kinds[0])
        limit = limit or own
    return limit, kinds, optional


def allowed(hint: Any) -> str:
    """Describe the values that an annotated type allows, except None; ``""`` if it declares no range."""
    limit, kinds, _ = _parts(hint)
    if limit is not None:
        return str(limit)
    rows = next((allowed(get_args(kind)[0]) for kind in kinds if get_origin(kind) is tuple), "")
    return rows and f"list of {rows}"


def convert(
    name: str, hint: Any, value: Any, show: Callable[[Any], str] = repr, *, limit: Any = None, verb: str = "is"
) -> Any:
    """Return `value` in an annotated type, such as ``Annotated[float, Range(0, 1)] | None``.

    Lists become tuples, and NumPy's numbers Python's. Types other than numbers, bools, strings and tuples of these
    are not checked. Messages contain the `name` and ``show(value)``; `limit` applies to a type without its own.
    Raises ``TypeError`` for another type or a number that is not finite, ``ValueError`` for a value out of its range.
    """
    own, kinds, optional = _parts(hint)
    limit = own or limit
    if value is None and optional:
        return None

    def wrong(error: type[Exception], words: str) -> Exception:
        return error(f"{name} {verb} {shortly(value, show)}; it must be {words}")

    several = isinstance(value, list | tuple | np.ndarray) and getattr(value, "ndim", 1) > 0
    kind = next((kind for kind in kinds if several == (get_origin(kind) is tuple)), kinds[0])
    if get_origin(kind) is tuple:
        row, one = isinstance(limit, Row), get_args(kind)[0]
        if not several or (row and len(value) != len(limit)):
            raise wrong(
                TypeError,
                str(limit) if row else f"a list of {allowed(one) or ('strings' if one is str else 'numbers')}",
            )
        return tuple(convert(name, one, each, show, limit=None if row else limit, verb="holds") for each in value)
    words = "" if limit is None else str(limit)
    if kind is bool:
        if not isinstance(value, bool | np.bool_):
            raise wrong(TypeError, "true or false")
        return bool(value)
    if kind is str and not isinstance(value, str):
        raise wrong(TypeError, words or "a string")
    if kind in (int, float):
        number = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
        real = isinstance(number, int | float) and not isinstance(number, bool) and abs(number) <= sys.float_info.max
        if not real or (kind is int and number != int(number)):
            raise wrong(TypeError, ", ".join(filter(None, (f"a {'whole' if kind is int else 'finite'} number", words))))
        value = kind(number)
        if kind is int and not -(2**63) <= value < 2**63:  # int64, of the kernels
            raise wrong(ValueError, ", ".join(filter(None, (words, "below 2^63"))))
    if limit is not None and value not in limit:
        raise wrong(ValueError, words + (did_you_mean(value, limit.names) if isinstance(limit, Choice) else ""))
    return value


def invalid_fields(
    values: Any, label: Callable[[str], str] = str, show: Callable[[Any], str] = repr
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Return the converted values of a dataclass instance's valid fields and the errors of the others, by name.

    In messages, `label` gives a field's name and `show` its value.
    """
    converted: dict[str, Any] = {}
    errors: dict[str, Exception] = {}
    for name, hint in field_types(values.__class__).items():
        try:
            converted[name] = convert(label(name), hint, getattr(values, name), show)
        except (TypeError, ValueError) as error:
            errors[name] = error
    return converted, errors


Rules = Iterator[tuple[str, Any, str]]
"""What methods ``_rules_of_...`` of a dataclass yield, below the fields that they involve: the name of a field, whether
its value fits the others, and the allowed values."""


def broken_rules(values: Any) -> Iterator[tuple[str, str]]:
    """Yield the name of each field that breaks a rule of its class or its bases, with the allowed values in words."""
    for base in reversed(type(values).__mro__):
        for method in [name for name in vars(base) if name.startswith("_rules_of_")]:
            yield from ((name, words) for name, fits, words in getattr(values, method)() if not fits)


class Checked:
    """Base of a dataclass that converts its settings; an invalid one raises ``ValueError`` or ``TypeError``."""

    def __post_init__(self) -> None:
        converted, errors = invalid_fields(self)
        raise_together(list(errors.values()))
        vars(self).update(converted)
        for name, words in broken_rules(self):
            raise ValueError(f"{name} is {shortly(plain(getattr(self, name)))}; it must be {words}")


@functools.cache
def _classes(module: str) -> dict[str, Any]:
    """Return the definitions of a module's classes, by name; none if it is built in or installed without its source."""
    try:
        source = inspect.getsource(sys.modules.get(module))  # type: ignore[arg-type]
    except (OSError, TypeError):
        return {}
    return {one.name: one for one in ast.parse(source).body if isinstance(one, ast.ClassDef)}


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstring of every field of a dataclass, also inherited, in one line; ``""`` without one."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        definition = _classes(base.__module__).get(base.__qualname__)
        for field, below in pairwise(definition.body if definition else ()):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
            if isinstance(field, ast.AnnAssign) and isinstance(text, str):
                docs[ast.unparse(field.target)] = " ".join(text.split())
    return {name: docs.get(name, "") for name in field_types(kind)}


def help_texts(kind: type) -> dict[str, str]:
    """Return the help of every field: its docstring and allowed values."""
    hints = field_types(kind)
    return {
        name: f"{text} Allowed: {allowed(hints[name])}.".strip() if allowed(hints[name]) else text
        for name, text in field_docs(kind).items()
    }
