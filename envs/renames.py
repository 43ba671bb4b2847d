"""Earlier names of parameters and options, which files written by earlier versions still hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PARAMETERS = {"turn": "turn_angle"}
"""Present names of scenario parameters, by earlier name."""

OPTION_VALUES = {"idle": {"holds": "hold"}}
"""Present values of options, by option and earlier value."""


def current_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return scenario parameters under their present names.

    Raises:
        TypeError: `parameters` is not a mapping.
        ValueError: a parameter is given under both names.
    """
    if not isinstance(parameters, Mapping):
        raise TypeError(f"scenario is {parameters!r}; it must be a mapping of parameters")
    for earlier, name in PARAMETERS.items():
        if earlier in parameters and name in parameters:
            raise ValueError(f"{earlier} is the earlier name of {name}; give only {name}")
    return {PARAMETERS.get(name, name): value for name, value in parameters.items()}


def current_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a task or a job with their present values; raise TypeError unless they are a mapping."""
    if not isinstance(options, Mapping):
        raise TypeError(f"options is {options!r}; it must be a mapping of options")
    return {
        name: OPTION_VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value
        for name, value in options.items()
    }
