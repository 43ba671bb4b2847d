"""Formulas of :mod:`hitmac.envs.features`, compiled by numba for kernels, where numbers take the place of arrays."""

import math
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from hitmac.envs import features
from hitmac.envs.base.compile import inlined, maker, one_of


@inlined
def choose(condition, yes, no):
    """Return `yes` where the condition holds, else `no`."""
    return yes if condition else no


@inlined
def half_turns(y, x):
    """Return ``atan2(y, x) / pi`` in [-1, 1), to 1e-8, by a polynomial that the compiler can vectorise.

    The polynomial for atan on [0, 1] is 4.4.49 of Abramowitz and Stegun, Handbook of Mathematical Functions (1964).
    """
    across, along = abs(y), abs(x)
    longer = max(across, along)
    ratio = min(across, along) / longer if longer > 0.0 else 0.0
    s = ratio * ratio
    angle = ratio * (
        1.0
        + s * (-0.3333314528 + s * (0.1999355085 + s * (-0.1420889944 + s * (0.1065626393
        + s * (-0.0752896400 + s * (0.0429096138 + s * (-0.0161657367 + s * 0.0028662257)))))))
    )  # fmt: skip
    angle = 0.5 * math.pi - angle if across > along else angle
    angle = math.pi - angle if x < 0.0 else angle
    turns = angle / math.pi
    return turns if (y >= 0.0) & (turns < 1.0) else -turns


@inlined
def row_or_0(sensor, row, b):
    """Return a row of a sensor, 0 if it has no such row."""
    return sensor[row, b] if sensor.shape[0] > row else 0.0


_SCOPE: dict[str, Any] = vars(features) | {
    "half_turns": half_turns, "choose": choose, "least": min, "most": max, "sqrt": math.sqrt, "cos": math.cos,
    "tan": math.tan, "row_or_0": row_or_0,
    "radians": math.radians, "floor": math.floor, "copysign": math.copysign,
}  # fmt: skip
"""Globals of the compiled formulas, which call each other."""


def _compiled(formula: Any) -> Any:
    """Return a formula compiled for kernels."""
    return inlined(FunctionType(formula.__code__, _SCOPE, formula.__name__, formula.__defaults__))


for _name, _formula in vars(features).items():
    if isinstance(_formula, FunctionType) and _name not in ("half_turns", "row_or_0"):
        _SCOPE[_name] = _compiled(_formula)

wrapped, unit, in_view, meets_side = (_SCOPE[name] for name in ("wrapped", "unit", "in_view", "meets_side"))
range_squared, cos_half_view = _SCOPE["range_squared"], _SCOPE["cos_half_view"]
disc_blocks, wall_blocks, floor_edges, value_of = (
    _SCOPE[name] for name in ("disc_blocks", "wall_blocks", "floor_edges", "value_of")
)
follow_command, coasted = _SCOPE["follow_command"], _SCOPE["coasted"]


_OPTIONS = {
    "position_noise": float,
    "missed_detections": float,
    "noisy_velocity": bool,  # a velocity is observed, and with errors
    "line_of_sight": bool,  # a feature needs it
    "all_there": bool,  # no pair is masked
}
_FIELDS = dict.fromkeys(features.SCALES, float) | _OPTIONS
Scales: Any = NamedTuple("Scales", list(_FIELDS.items()))  # type: ignore[misc]
"""Scales of the features, and errors and needs of an observation, from the scenario."""

SCALES = np.dtype(list(_FIELDS.items()), align=True)
"""Record of :class:`Scales`: an array of one is a kernel's argument, since fewer arguments make a call faster."""


_scalars = maker(Scales, Scales._fields)


@inlined
def scales_of(scales):
    """Return the scales of an array of one record as scalars, which make loops faster."""
    return _scalars(scales[0])


write_feature = one_of(
    [_compiled(feature.formula) for feature in features.FEATURES.values()],
    "write(out, pair, scales, first, last)",
    "for b in range(first, last): out[b] = {}(pair, scales, b)",
)
"""Write a feature, by its index in the table, of a pair in the scenes `first` to `last` - 1."""
