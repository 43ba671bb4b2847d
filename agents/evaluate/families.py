"""Families of agents in a figure: agents of one name with different options, such as ``planner:turn_cost=0.5``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hitmac.agents.evaluate.labels import Value
from hitmac.agents.names import family_of


def family_lines(points: Mapping[str, tuple[Value, Value]]) -> dict[str, np.ndarray]:
    """Return the points (k, 2) of every family of several agents, rotation and coverage, by rising rotation.

    The key is the name of a member, whose colour is the family's.
    """
    members: dict[str, dict[str, tuple[float, float]]] = {}
    for name, (x, y) in points.items():
        members.setdefault(family_of(name)[0], {})[name] = x.mean, y.mean
    return {next(iter(family)): np.array(sorted(family.values())) for family in members.values() if len(family) > 1}


def short_names(agents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return what to write at each agent's point: of a family, only the best member's name is written in full.

    Of the others with an option it is the value of that option, or all their options.
    """
    best: dict[str, str] = {}
    for name, result in agents.items():
        family, options = family_of(name)
        if options and (family not in best or _coverage(result) > _coverage(agents[best[family]])):
            best[family] = name
    short = {}
    for name in agents:
        family, options = family_of(name)
        alone = options.partition("=")[2] if options.count("=") == 1 else options
        short[name] = alone if options and name != best[family] else name
    return short


def _coverage(result: Mapping[str, Any]) -> float:
    mean = (result.get("coverage") or {}).get("mean")
    return -np.inf if mean is None else mean
