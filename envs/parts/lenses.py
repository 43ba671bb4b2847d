"""Lenses that zoom: a narrower view of the same area reaches farther. Compiled by numba."""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from hitmac.envs import validation
from hitmac.envs.base import state as at
from hitmac.envs.base.compile import inlined
from hitmac.envs.base.formulas import cos_half_view, range_squared
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import Decision
from hitmac.envs.validation import Positive, over

KEEP, NARROWER, WIDER = 0, 1, 2  # actions of a zooming lens
DECISION = Decision(
    "zoom", "zoom", "lenses zoom", ("keep the field of view", "narrower by zoom_step", "wider by zoom_step")
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of the lenses."""

    zoom: Annotated[tuple[float, ...], over(0, 360, "degrees")] = ()
    """Narrowest and widest field of view of zooming lenses; empty: lenses do not zoom. The area of the view
    stays constant, so that a narrower view reaches farther."""
    zoom_step: Positive = 10.0
    """Change of the field of view in one sub-step of zooming, degrees."""

    def _rules_of_lenses(self: Any) -> validation.Rules:
        zooms = len(self.zoom) == 2 and self.zoom[0] <= self.zoom[1]
        words = "the narrowest and the widest field of view"
        yield "zoom", zooms or not self.zoom, f"empty, or {words}, at most 360 degrees"
        yield "zoom", zooms or not self.is_game, f"{words} with warehouses"
        if zooms:
            (narrowest, widest), view = self.zoom, self.field_of_view
            fits = narrowest <= np.min(view) and np.max(view) <= widest
            yield "field_of_view", fits, f"within zoom ({narrowest:g} to {widest:g} degrees)"


class Lens(NamedTuple):
    """Lenses of a scenario, for planners."""

    step: float  # degrees, of a zoom
    narrowest: float
    widest: float


def make_lens(scenario: Any) -> Lens:
    """Return the lenses of a scenario."""
    narrowest, widest = map(float, scenario.zoom or (0.0, 360.0))
    return Lens(float(scenario.zoom_step), narrowest, widest)


def squared_ranges(scenario: Any, view: Any) -> np.ndarray:
    """Return the squared ranges (..., n) of lenses with fields of view (..., n); range^2 * view is constant."""
    return scenario.of_each_sensor("sensing_range") ** 2 * (scenario.of_each_sensor("field_of_view") / view)


@inlined
def set_field_of_view(state, b, i, field_of_view):
    """Set the field of view of sensor i of scene b, degrees, and the range that follows from it."""
    state.sensor[i, at.FIELD_OF_VIEW, b] = field_of_view
    state.sensor[i, at.RANGE_SQUARED, b] = range_squared(state.sensor[i, at.VIEW_AREA, b], field_of_view)
    state.sensor[i, at.COS_HALF_VIEW, b] = cos_half_view(field_of_view)


@inlined
def zoom(state, p, action, first, last):
    """Narrow or widen the view of every working sensor i by `action[b, n + i]`, if the action has zooms."""
    n = state.sensor.shape[0]
    if p.zoom_step > 0.0 and action.shape[1] > n:
        for b in range(first, last):
            for i in range(n):
                if state.working[i, b] and action[b, n + i] != KEEP:
                    step = -p.zoom_step if action[b, n + i] == NARROWER else p.zoom_step
                    view = min(max(state.sensor[i, at.FIELD_OF_VIEW, b] + step, p.narrowest), p.widest)
                    set_field_of_view(state, b, i, view)


@inlined
def view_ahead(lens, action, times, squared, view):
    """Return the squared range and half the field of view that `times` zooms make of `squared` and `view`, for plans.

    The area of a view, ``range^2 * view``, is constant.
    """
    step = lens.step * (int(action == WIDER) - int(action == NARROWER))
    then = min(max(view + step * times, lens.narrowest), lens.widest) if step != 0.0 else view
    return (squared * view / then if then != view else squared), 0.5 * then
