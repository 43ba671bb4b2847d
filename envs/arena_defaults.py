"""Defaults that grow with the arena: lengths, speeds and areas that a scenario leaves out."""

from __future__ import annotations

import dataclasses
from typing import Any

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
