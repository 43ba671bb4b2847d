"""Ranges of parameters, declared once, in the type annotation of a dataclass field.

``gamma: Annotated[float, Range(0, 1)]`` checks the value (:func:`invalid_fields`), and says what is allowed
(:func:`allowed`) in error messages, in the help of a command line and in the documentation.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

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
        if self.high is None:
            words = f"over {self.low}" if self.open_low else f"{self.low} or more"
        else:
            words = f"over {self.low} and at most {self.high}" if self.open_low else f"{self.low} to {self.high}"
        return f"{words} {self.unit}".rstrip()


def over(low: float, high: float | None = None, unit: str = "") -> Range:
    """Return the range of numbers over `low`, and at most `high`."""
    return Range(low, high, unit, open_low=True)


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
    """Return the annotated types of a dataclass's fields, by name.

    A field that a subclass declares again without a range, for another default, keeps the range of its base.
    """
    types: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        for name, hint in get_type_hints(base, include_extras=True).items():
            if name not in types or _parts(hint)[0] is not None:
                types[name] = hint
    return {field.name: types[field.name] for field in dataclasses.fields(kind)}


def allowed(hint: Any) -> str:
    """Return the values that an annotated type allows, in words; ``""`` if it declares no range.

    None, where the type allows it, is left to the field's documentation.
    """
    limit, kinds, _ = _parts(hint)
    if limit is not None:
        return str(limit)
    rows = [allowed(get_args(kind)[0]) for kind in kinds if _is_list(kind)]
    return f"list of {rows[0]}" if rows and rows[0] else ""


def convert(name: str, hint: Any, value: Any, show: Callable[[Any], str] = repr) -> Any:
    """Return `value` in the annotated type, tuples for lists and Python's numbers for NumPy's.

    Types other than numbers, bools, strings and tuples of numbers are not checked.

    Args:
        name: what the messages call the value.
        hint: a type, such as ``Annotated[float, Range(0, 1)] | None``.
        value: the value to check.
        show: how the messages write the value.

    Raises:
        TypeError: the value is of another type, or no finite number.
        ValueError: the value is out of its range.
    """
    return _Check(name, show).convert(hint, value, None, "is")


def invalid_fields(
    values: Any, label: Callable[[str], str] = str, show: Callable[[Any], str] = repr
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Check all fields of a dataclass by their annotations.

    Args:
        values: an instance.
        label: what the messages call a field, given its name.
        show: how the messages write a value.

    Returns:
        The converted values of the valid fields, and the errors of the others, by name.
    """
    converted: dict[str, Any] = {}
    errors: dict[str, Exception] = {}
    for name, hint in field_types(values.__class__).items():
        try:
            converted[name] = convert(label(name), hint, getattr(values, name), show)
        except (TypeError, ValueError) as error:
            errors[name] = error
    return converted, errors


def from_known(make: Callable[..., Any], kind: type, parameters: Mapping[str, Any]) -> Any:
    """Call `make` with the scenario's parameters `kind`, a dataclass; unknown names and wrong values are one error."""
    known = [field.name for field in dataclasses.fields(kind)]
    errors: list[Exception] = []
    if not isinstance(parameters, Mapping):
        raise TypeError(f"scenario is {shortly(parameters)}; it must be a mapping of parameters")
    if unknown := [name for name in parameters if name not in known]:
        names = in_short(unknown, known)
        errors.append(ValueError(f"unknown scenario parameter {names}: known are {', '.join(known)}"))
    with collect(errors):
        made = make(**{name: value for name, value in parameters.items() if name in known})
    raise_together(errors)
    return made


def positive(name: str, value: int) -> int:
    """Return `value`; raise ValueError unless it is a whole number, 1 or more."""
    if not is_whole(value) or not 1 <= value < 2**63:
        end = ", under 2^63" if is_whole(value) and value > 0 else ""
        raise ValueError(f"{name} is {shortly(value)}; it must be a whole number, 1 or more{end}")
    return int(value)


def whole_number(name: str, value: int, least: int, most: int) -> int:
    """Return `value`; raise ValueError unless it is a whole number from `least` to `most`."""
    if not is_whole(value) or not least <= value <= most:
        raise ValueError(f"{name} is {shortly(value)}; it must be a whole number, {least} to {most}")
    return int(value)


def is_whole(value: Any) -> bool:
    """Return True for a whole number, of Python or numpy, other than a bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Return `value` with tuples, also nested ones, as lists."""
    return [plain(one) for one in value] if isinstance(value, tuple) else value


@functools.cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Return the limit of an annotated type, its kinds without None, and whether None is allowed."""
    limits, optional = [], False
    if get_origin(hint) is Annotated:
        limits += [limit for limit in hint.__metadata__ if isinstance(limit, Range | Choice | Row)]
        hint = hint.__origin__
    kinds: tuple[Any, ...] = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if NoneType in kinds:
        kinds, optional = tuple(kind for kind in kinds if kind is not NoneType), True
    if len(kinds) == 1 and get_origin(kinds[0]) is Annotated:
        limit, kinds, _ = _parts(kinds[0])
        limits.append(limit)
    return next(iter(limits), None), kinds, optional


def _is_list(kind: Any) -> bool:
    """Return whether a type is a tuple of any length of numbers or rows."""
    return get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis and get_args(kind)[0] is not str


@dataclasses.dataclass(frozen=True)
class _Check:
    name: str
    show: Callable[[Any], str]

    def convert(self, hint: Any, value: Any, limit: Any, verb: str) -> Any:
        own, kinds, optional = _parts(hint)
        limit = limit if own is None else own
        if value is None and optional:
            return None
        several = isinstance(value, list | tuple | np.ndarray) and getattr(value, "ndim", 1) > 0
        kind = next((kind for kind in kinds if several == (get_origin(kind) is tuple)), kinds[0])
        if _is_list(kind):
            one = get_args(kind)[0]
            if not several:
                raise self.wrong(TypeError, verb, value, f"a list of {allowed(one) or 'numbers'}")
            return tuple(self.convert(one, row, limit, "holds") for row in value)
        if isinstance(limit, Row):
            if not several or len(value) != len(limit):
                raise self.wrong(TypeError, verb, value, str(limit))
            return tuple(self.convert(float, number, None, "holds") for number in value)
        return self.single(kind, value, limit, verb)

    def single(self, kind: Any, value: Any, limit: Any, verb: str) -> Any:
        if kind is bool:
            if not isinstance(value, bool | np.bool_):
                raise self.wrong(TypeError, verb, value, "true or false")
            return bool(value)
        if kind is str:
            if not isinstance(value, str):
                raise self.wrong(TypeError, verb, value, "a string" if limit is None else str(limit))
        elif kind in (int, float):
            value = self.number(kind, value, limit, verb)
        if limit is not None and value not in limit:
            hint = did_you_mean(value, limit.names) if isinstance(limit, Choice) else ""
            raise self.wrong(ValueError, verb, value, f"{limit}{hint}")
        return value

    def number(self, kind: Any, value: Any, limit: Any, verb: str) -> Any:
        words = "a whole number" if kind is int else "a finite number"
        words = words if limit is None else f"{words}, {limit}"
        number = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise self.wrong(TypeError, verb, value, words)
        if not abs(number) <= sys.float_info.max or (kind is int and number != int(number)):
            raise self.wrong(TypeError, verb, value, words)
        if kind is int and abs(number) >= 2**63:
            raise self.wrong(ValueError, verb, value, f"{words}, under 2^63")
        return kind(number)

    def wrong(self, error: type[Exception], verb: str, value: Any, words: str) -> Exception:
        text = shortened(self.show(value))
        return error(f"{self.name} {verb} {text}; it must be {words}")


HIT_MAC_ARENA = 1250.0
"""Half the side of HiT-MAC's arena, in which the defaults are HiT-MAC's."""

_VALUE = "in HiT-MAC's arena"


class _LeftOut:
    def __repr__(self) -> str:
        return "in proportion to the arena"


_LEFT_OUT = _LeftOut()


def scaled(value: Any) -> Any:
    """Return a dataclass field with a default in proportion to the arena.

    Left out, it is `value` times the shorter half side of the arena / :data:`HIT_MAC_ARENA`, in areas
    (x low, x high, y low, y high) each axis by its own half side. True is true in HiT-MAC's arena only.
    """
    return dataclasses.field(default=_LEFT_OUT, metadata={_VALUE: value})


def is_scaled(field: dataclasses.Field) -> bool:
    """Return whether the default of a field grows with the arena."""
    return _VALUE in field.metadata


def default_of(field: dataclasses.Field) -> Any:
    """Return the default of a field, one that grows with the arena as it is in HiT-MAC's."""
    return field.metadata.get(_VALUE, field.default)


def left_out(values: Any) -> dict[str, Any]:
    """Return the defaults, as they are in HiT-MAC's arena, of the scaled fields that were left out, by name."""
    return {
        field.name: default_of(field)
        for field in dataclasses.fields(values)
        if is_scaled(field) and getattr(values, field.name) is _LEFT_OUT
    }


def in_arena(defaults: dict[str, Any], half_width: float, half_height: float) -> dict[str, Any]:
    """Return the defaults of :func:`left_out` for an arena."""
    return {name: _grown(value, half_width, half_height) for name, value in defaults.items()}


def _grown(value: Any, half_width: float, half_height: float) -> Any:
    if isinstance(value, bool):
        return value and half_width == half_height == HIT_MAC_ARENA
    if not isinstance(value, tuple):
        return value * min(half_width, half_height) / HIT_MAC_ARENA
    if len(value) == 4 and not isinstance(value[0], tuple):
        halves = half_width, half_width, half_height, half_height
        return tuple(
            min(max(side * half / HIT_MAC_ARENA, -half), half) for side, half in zip(value, halves, strict=True)
        )
    return tuple(_grown(one, half_width, half_height) for one in value)


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstring of every field of a dataclass, one line each; a subclass inherits those of its bases.

    A field without one has ``""``, and so do all fields where the source code is not installed.
    """
    docs = dict.fromkeys(field_types(kind), "")
    for base in reversed(kind.__mro__):
        for field, text in _own_docs(base):
            docs[field] = text
    return {name: docs[name] for name in field_types(kind)}


def help_texts(kind: type) -> dict[str, str]:
    """Return the help of every field: its docstring, and what is allowed."""
    hints = field_types(kind)
    return {
        name: f"{text} Allowed: {allowed(hints[name])}.".strip() if allowed(hints[name]) else text
        for name, text in field_docs(kind).items()
    }


def parameter_table(kind: type) -> str:
    """Return a Markdown table of the fields of a dataclass: name, default, what is allowed, meaning."""
    docs, hints = field_docs(kind), field_types(kind)
    rows = [
        f"| `{field.name}` | {_default(field)} | {allowed(hints[field.name])} | {docs[field.name]} |"
        for field in dataclasses.fields(kind)
    ]
    return "\n".join(("| parameter | default | allowed | meaning |", "|---|---|---|---|", *rows))


def _own_docs(kind: type) -> list[tuple[str, str]]:
    """Return the fields that a class documents itself, with the docstring below each."""
    if kind is object:
        return []
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # built in, or installed without its source
        return []
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return [
        (field.target.id, " ".join(below.value.value.split()))
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    ]


def _default(field: dataclasses.Field) -> str:
    """Return the default of a field in a table."""
    default = default_of(field)
    if not is_scaled(field):
        return _shown(default)
    if default is True:
        return f"true if arena is {HIT_MAC_ARENA:g}"
    return f"{_shown(default)} * arena / {HIT_MAC_ARENA:g}"


def _shown(default: Any) -> str:
    """Return a default as a file holds it."""
    if isinstance(default, tuple):
        return f"[{', '.join(map(_shown, default))}]"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
