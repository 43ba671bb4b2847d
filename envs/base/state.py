"""State of a batch of scenes for the kernels, and the parameters of their scenario, as plain arrays.

Kernels take :class:`KernelState`: few arrays, which make calls cheap, with the scenes along the last axis, so that the
compiler can vectorise the innermost loops. :class:`State` is the same memory for users: every quantity by name, scenes
along the first axis.
"""

from typing import Any, NamedTuple

import numpy as np

from hitmac.envs.base.compile import maker
from hitmac.envs.features import (  # noqa: F401 (the rows of a sensor are read as those of the others)
    ALONG,
    COS_HALF_PAN,
    COS_HALF_VIEW,
    COS_TURN,
    DIRECTION_X,
    DIRECTION_Y,
    FIELD_OF_VIEW,
    HEADING,
    NEAR_SQUARED,
    NUM_ROWS,
    PAN_X,
    PAN_Y,
    PENDING,
    RAIL_LENGTH,
    RAIL_X,
    RAIL_Y,
    RANGE_SQUARED,
    RATE,
    SIN_HALF_PAN,
    SIN_TURN,
    START_VIEW,
    TILT,
    TURN,
    VIEW_AREA,
    X,
    Y,
)  # fmt: skip

KEY, DRAWS, DRAWS_BEFORE = range(3)  # rows of a random stream; BEFORE: before the targets' last move
TIME, NUM_SENSORS, NUM_TARGETS, NUM_COVERED, TURNED, TIME_BEFORE = range(6)  # rows of a scene
RADIUS = 2  # row of a disc after X and Y, with which every position begins
VELOCITY_X, VELOCITY_Y = 2, 3  # rows after X and Y of a target, and of what is known or reported of it
MOTION = 4  # number of these rows
# Further rows of a target; LAST is its position at its last move, OLDER at the move before.
GOAL_X, GOAL_Y, LAST_X, LAST_Y, OLDER_X, OLDER_Y, COURSE, SPEED, MOVES, VALUE = range(4, 14)
AGE = 4  # further row of the knowledge of a target, sub-steps; inf: never seen


class KernelState(NamedTuple):
    """State of a batch of B scenes with up to n sensors, m targets and k discs, in the layout of the kernels."""

    stream: np.ndarray  # (3, B) uint64
    scene: np.ndarray  # (6, B) int64
    coverage: np.ndarray  # (B,)
    sensor: np.ndarray  # (n, 23, B), or with tilts (n, 25, B)
    working: np.ndarray  # (n, B) bool
    target: np.ndarray  # (m, 14, B)
    present: np.ndarray  # (m, B) bool
    disc: np.ndarray  # (k, 3, B)
    visible: np.ndarray  # (n, m, B) bool
    covered: np.ndarray  # (m, B) bool
    rotated: np.ndarray  # (n, B) bool: the sensor turned or tilted in the last sub-step; not part of State
    # Undefined between two calls:
    scratch_mask: np.ndarray  # (B,) bool
    scratch: np.ndarray  # (10, B)
    # Fixed by the scenario, for all scenes:
    areas: np.ndarray  # (a, 4) areas of the sensors
    walls: np.ndarray  # (w, 4)
    parameters: np.ndarray  # (1,) of PARAMETERS
    paths: Any = None  # Paths of parts.recordings; None: all targets walk
    knowledge: Any = None  # Knowledge of parts.knowledge; None: all is known, or targets have no identities
    rails: Any = None  # Rails of parts.rails; None: no sensor moves
    recordings: Any = None  # Recordings of parts.recordings; None: the scenario has none
    poses: Any = None  # Poses of parts.sensors; None: no own positions, start headings or pan limits
    streets: Any = None  # Streets of parts.streets; None: neither sensors nor targets keep to streets
    grid: Any = None  # Grid of base.nearest; None: every sensor looks at every target
    values: Any = None  # Values of parts.values; None: all targets have the value 1, and one sensor covers them
    motors: Any = None  # Motors of parts.motors; None: turns are at once
    tilts: Any = None  # Tilts of parts.tilt; None: sensors do not tilt
    cargo: Any = None  # Cargo of parts.cargo; None: no game
    game: Any = None  # Terms of parts.cargo
    no_game: tuple[()] | None = ()  # None in a game


OBSERVED = (
    "stream", "scene", "sensor", "working", "target", "present", "disc", "visible", "scratch_mask", "scratch", "walls",
    "knowledge", "values",
)  # fmt: skip
"""Arrays that observers read; every array costs time in every call of a kernel."""

NO_PARTS: dict[str, Any] = dict.fromkeys(KernelState._field_defaults)
"""Changes to a state for kernels that need no optional part, which are then compiled only once."""

core_of: Any = maker(KernelState, [name for name in KernelState._fields if name not in KernelState._field_defaults])
"""Return the state without its optional parts.

Kernels are compiled separately for every combination of optional parts. Functions that take the core, and only the
parts that they need, are compiled once for many of them. Kernels do not call this themselves: they would count the
references to every array.
"""


class State(NamedTuple):
    """State of a batch of B scenes with up to n sensors, m targets and k discs."""

    key: np.ndarray  # (B,) uint64: random stream of the scene
    draws: np.ndarray  # (B,) uint64: numbers drawn from the stream so far
    draws_before: np.ndarray  # (B,) uint64: numbers drawn before the last move of the targets
    time: np.ndarray  # (B,) int64: sub-steps since the reset
    time_before: np.ndarray  # (B,) int64: time at the last move of the targets; -1: they have not moved yet
    num_sensors: np.ndarray  # (B,) int64: sensors of this episode, the first ones
    num_targets: np.ndarray  # (B,) int64: targets of this episode, the first ones
    sensor_position: np.ndarray  # (B, n, 2)
    heading: np.ndarray  # (B, n) degrees, not wrapped
    field_of_view: np.ndarray  # (B, n) degrees
    along: np.ndarray  # (B, n) distance of the sensor along its rail, from the rail's first corner; 0 without a rail
    rate: np.ndarray  # (B, n) degrees per second, of the sensor's motor; 0 without motors
    pending_turn: np.ndarray  # (B, n) degrees that the sensor still turns if no further rate is commanded
    working: np.ndarray  # (B, n) bool: the sensor is part of the episode and has not failed
    target_position: np.ndarray  # (B, m, 2)
    velocity: np.ndarray  # (B, m, 2) displacement in the last move, per second; 0 after a reset
    goal: np.ndarray  # (B, m, 2)
    places: np.ndarray  # (B, m, 4) positions of the target at its last move (x, y) and at the move before; inf: none
    course: np.ndarray  # (B, m) radians: direction of a target without goals
    speed: np.ndarray  # (B, m) units per second
    moves: np.ndarray  # (B, m) moves since the last new goal
    present: np.ndarray  # (B, m) bool: the target is part of the episode and has not left
    disc: np.ndarray  # (B, k, 3) obstacles: x, y, radius
    # Derived from the rest, and stored because they are read often:
    direction: np.ndarray  # (B, n, 2) unit vector of the heading
    range_squared: np.ndarray  # (B, n)
    cos_half_view: np.ndarray  # (B, n)
    rail_direction: np.ndarray  # (B, n, 2) unit vector of the rail at the sensor, towards growing distance; or 0
    visible: np.ndarray  # (B, n, m) bool: sensor i sees target j
    covered: np.ndarray  # (B, m) bool: at least `seen_by` sensors see target j
    value: np.ndarray  # (B, m) value of the target where it is
    num_covered: np.ndarray  # (B,) int64: number of covered targets
    coverage: np.ndarray  # (B,) share of the present targets, by value, that are covered; 1 where none has a value
    turned: np.ndarray  # (B,) int64: sensors that turned in the last sub-step
    # None where sensors do not tilt:
    tilt: Any = None  # (B, n) degrees below the horizon
    near_squared: Any = None  # (B, n) squared distance of the near edge of the view; `range_squared` is the far edge's


_KINDS = {
    float: (
        "half_width half_height narrowest widest zoom_step rail_step failure_rate recovery_rate spacing wander "
        "time_step min_speed max_speed speed_noise goal_radius stuck_distance leave_rate return_rate position_noise "
        "missed_detections communication_range message_loss_rate"
    ),
    int: (
        "min_sensors min_targets placement grid walk goal_patience extra_move_every episode_steps fixed_discs hops "
        "seen_by"
    ),
    bool: "whole_numbers start_facing_target departures",
}
PARAMETERS = np.dtype(
    [(name, kind) for kind, names in _KINDS.items() for name in names.split()]
    + [("target_area", float, 4), ("disc_radius", float, 2)],
    align=True,
)
"""Record of the remaining parameters of the scenario that the kernels need.

`placement` and `walk` are indices of their tables, and `wander` is in radians. A `zoom_step` of 0 means no zoom lenses,
0 `hops` no messages; with `departures`, targets may leave.
"""


_PLACES: dict[str, tuple[str, Any]] = {
    "key": ("stream", KEY),
    "draws": ("stream", DRAWS),
    "draws_before": ("stream", DRAWS_BEFORE),
    "time": ("scene", TIME),
    "time_before": ("scene", TIME_BEFORE),
    "num_sensors": ("scene", NUM_SENSORS),
    "num_targets": ("scene", NUM_TARGETS),
    "num_covered": ("scene", NUM_COVERED),
    "turned": ("scene", TURNED),
    "sensor_position": ("sensor", slice(X, Y + 1)),
    "heading": ("sensor", HEADING),
    "field_of_view": ("sensor", FIELD_OF_VIEW),
    "along": ("sensor", ALONG),
    "rate": ("sensor", RATE),
    "pending_turn": ("sensor", PENDING),
    "direction": ("sensor", slice(DIRECTION_X, DIRECTION_Y + 1)),
    "range_squared": ("sensor", RANGE_SQUARED),
    "cos_half_view": ("sensor", COS_HALF_VIEW),
    "tilt": ("sensor", TILT),
    "near_squared": ("sensor", NEAR_SQUARED),
    "rail_direction": ("sensor", slice(RAIL_X, RAIL_Y + 1)),
    "target_position": ("target", slice(X, Y + 1)),
    "velocity": ("target", slice(VELOCITY_X, VELOCITY_Y + 1)),
    "goal": ("target", slice(GOAL_X, GOAL_Y + 1)),
    "places": ("target", slice(LAST_X, OLDER_Y + 1)),
    "course": ("target", COURSE),
    "speed": ("target", SPEED),
    "moves": ("target", MOVES),
    "value": ("target", VALUE),
    "known_position": ("known", slice(X, Y + 1)),
    "known_velocity": ("known", slice(VELOCITY_X, VELOCITY_Y + 1)),
    "known_age": ("known", AGE),
    "known_seeing": ("seeing", None),
    "known_left": ("left", None),
}
"""Array of the kernels' layout, and rows in it, of the quantities for users that are no array of the same name."""


def scenes_first(kind: Any, arrays: Any, num_envs: int) -> Any:
    """Return views of the same memory as a `kind`: every quantity by name, with the scenes along the first axis.

    A quantity whose row the arrays do not have is None.
    """

    def view(name: str) -> np.ndarray | None:
        array, rows = (name, None) if hasattr(arrays, name) else _PLACES[name]
        whole = getattr(arrays, array)
        if isinstance(rows, int) and rows >= whole.shape[-2]:
            return None
        return np.moveaxis(whole if rows is None else whole[..., rows, :], -1, 0)[:num_envs]

    return kind(**{name: view(name) for name in kind._fields})
