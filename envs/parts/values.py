"""Values of the targets, by number and by zone, and the coverage by value. Compiled by numba."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from hitmac.envs import validation
from hitmac.envs.base import state as at
from hitmac.envs.base.compile import compiled
from hitmac.envs.base.formulas import value_of
from hitmac.envs.base.state import X, Y
from hitmac.envs.features import Values
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import Corner, Shape
from hitmac.envs.validation import Count, Range


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of the values."""

    zones: tuple[tuple[Corner, ...], ...] = ()
    """Polygons, each a list of corners, in which a target counts as often in the coverage as `zone_values` says; of
    several the last in the list. A point on the border is inside."""
    zone_values: Annotated[tuple[float, ...], Range(0, 1_000_000)] = ()
    """Value of each zone; outside, it is 1."""
    target_values: Annotated[tuple[float, ...], Range(0, 1_000_000)] = ()
    """Value of each target, multiplied by that of its zone; empty: 1."""
    seen_by: Count = 1
    """k, the number of sensors that must see a target to cover it, up to num_sensors."""

    def _rules_of_values(self: Any) -> validation.Rules:
        zones, values, n, m = self.zones, self.target_values, self.num_sensors, self.num_targets
        yield "zones", all(len(zone) >= 3 for zone in zones), "lists of at least 3 corners [x, y]"
        yield "zones", all(map(self._holds, zones)), self._inside
        yield "zone_values", len(self.zone_values) == len(zones), f"one for each of the {len(zones)} zones"
        yield "target_values", len(values) in (0, m), f"empty, or one for each of the {m} targets"
        yield "target_values", not values or max(values) > 0, "over 0 for at least one target"
        named = self.identities and not self.tracks
        yield "target_values", named or not values, "empty without identities or with tracks"
        yield "seen_by", self.seen_by <= n, f"1 to num_sensors ({n})"

    @property
    def has_values(self: Any) -> bool:
        """True with zones or values of targets."""
        return bool(self.zones or self.target_values)

    @property
    def highest_value(self: Any) -> float:
        """Highest value that a target can have."""
        return max(self.target_values, default=1.0) * max((1.0, *self.zone_values))


def make_values(scenario: Any) -> Values | None:
    """Return the values of a scenario in the form of the kernels; None if all are 1 and one sensor covers a target."""
    if not scenario.has_values and scenario.seen_by == 1:
        return None
    own = np.array(scenario.target_values or (1.0,) * scenario.num_targets)
    corners = np.array([corner for zone in scenario.zones for corner in zone], np.float64).reshape(-1, 2)
    first = np.cumsum([0, *map(len, scenario.zones)])
    return Values(np.append(own, own.mean()), corners, first, np.array(scenario.zone_values, np.float64))


def allocate(scenario: Any, num_envs: int, padded: int) -> dict[str, Any]:
    """Return the arrays of this part, see :mod:`hitmac.envs.parts`."""
    return {"values": make_values(scenario)}


def shapes(scenario: Any) -> list[Shape]:
    """Return the zones."""
    return [Shape("polygon", 0, zone, fill=(214, 160, 20, 40)) for zone in scenario.zones]


@compiled
def weigh(state, p, values, first, last):
    """Compute the values of the targets, which ones are covered, and the coverage by value, after all sensors see."""
    if values is not None:
        for b in range(first, last):
            covered, present, number = 0.0, 0.0, 0
            for j in range(state.target.shape[0]):
                seeing = 0
                if state.covered[j, b]:  # by at least one sensor
                    for i in range(state.sensor.shape[0]):
                        seeing += state.visible[i, j, b]
                state.covered[j, b] = seeing >= p.seen_by
                value = value_of(values, j, state.target[j, X, b], state.target[j, Y, b])
                state.target[j, at.VALUE, b] = value
                number += state.covered[j, b]
                covered += value * state.covered[j, b]
                present += value * state.present[j, b]
            state.scene[at.NUM_COVERED, b] = number
            state.coverage[b] = covered / present if present > 0.0 else 1.0
