"""Observations of the nearest targets: which agents are shown them, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hitmac.envs.deployment import check_nearness
from hitmac.envs.scenario import Scenario

OPTIONS = {"nearest": int, "radius": float, "neighbours": int}
"""Options of :class:`hitmac.envs.observation.Observer` for them, with their types."""

LARGE = 2**14
"""Pairs of a scene from which on agents that can be shown the nearest targets only, are."""


def is_large(scenario: Scenario) -> bool:
    """Return True if the scenario has :data:`LARGE` pairs or more: agents should be shown the nearest targets only."""
    return scenario.num_sensors * scenario.num_targets >= LARGE


def farthest_reach(scenario: Scenario) -> float:
    """Return the largest sensing range, in the scenario's units."""
    return float(scenario.of_each_sensor("sensing_range").max())


def checked(nearness: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given, without those that are None; raise ValueError if one is not allowed."""
    if unknown := set(nearness) - set(OPTIONS):
        raise ValueError(f"unknown option {min(unknown)!r}: known are {', '.join(OPTIONS)}")
    given = dict(zip(OPTIONS, check_nearness(*(nearness.get(name) for name in OPTIONS)), strict=True))
    return {name: value for name, value in given.items() if value is not None}


def rescaled(nearness: Mapping[str, Any], trained: Scenario, scenario: Scenario) -> dict[str, Any]:
    """Return options for `scenario`, where the radius is as far by the feature `distance` as in `trained`."""
    if "radius" not in nearness:
        return dict(nearness)
    return {**nearness, "radius": nearness["radius"] * scenario.distance_scale / trained.distance_scale}


def split_options(name: str) -> tuple[str, dict[str, Any]]:
    """Return an agent's name without options of its observation, such as ``:nearest=16:radius=40``, and the options.

    Raises:
        ValueError: one that is not allowed, or is given twice.
    """
    kept, found = [], {}
    for part in name.split(":"):
        option, equals, text = part.partition("=")
        if not equals or option not in OPTIONS:
            kept.append(part)
            continue
        if option in found:
            raise ValueError(f"{option} in {name} is given twice")
        try:
            found[option] = OPTIONS[option](text)
        except ValueError:
            raise ValueError(f"{option} in {name} is {text!r}; it must be a number") from None
    return ":".join(kept), checked(found)


def refuse_lists(observation: Mapping[str, np.ndarray], who: str) -> None:
    """Raise ValueError if an observation lists the nearest targets, for an agent that needs all."""
    if "targets" in observation:
        raise ValueError(
            f"the observation lists the nearest targets of each sensor; {who} needs those of all targets, without the "
            "option nearest"
        )
