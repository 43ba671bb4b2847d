"""State of a batch of scenes for the kernels, and the parameters of their scenario, as plain arrays.

Kernels take :class:`KernelState`: few arrays, which make calls cheap, with the scenes along the last axis, so that the
compiler can vectorise the innermost loops. :class:`State` is the same memory for users: every quantity by name, scenes
along the first axis.
"""

from typing import Any, NamedTuple

import numpy as np

from hitmac.envs.features import (  # noqa: F401 (the rows of a sensor are read as those of the others)
    ALONG,
    COS_HALF_PAN,
    COS_HALF_VIEW,
    COS_TURN,
    DIRECTION_X,
    DIRECTION_Y,
    FIELD_OF_VIEW,
    HEADING,
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
    TURN,
    VIEW_AREA,
    Motor,
    X,
    Y,
)  # fmt: skip
from hitmac.envs.kernels.threads import maker


class Streets(NamedTuple):
    """Streets of a city: a lattice of lines."""

    x: np.ndarray  # (columns + 1,) middle lines of the streets that run along y
    y: np.ndarray  # (rows + 1,) middle lines of the streets that run along x
    kept: bool  # the targets keep to the streets


class Cells(NamedTuple):
    """Division of the arena into equal cells, row by row."""

    columns: int
    rows: int
    width: float  # of a cell
    height: float
    per_x: float  # 1 / width
    per_y: float
    half_width: float
    half_height: float


class Places(NamedTuple):
    """Things sorted by cell: those of cell c are ``start[b, c]`` to ``start[b, c + 1] - 1``."""

    start: np.ndarray  # (B, C + 2) int32
    number: np.ndarray  # (B, count) int32, ascending in a cell
    x: np.ndarray  # (B, count)
    y: np.ndarray  # (B, count)


class Grid(NamedTuple):
    """Index of a large scene by place, so that sensors look only nearby.

    The targets that each sensor sees are listed up to S; of more, only the number is stored.
    """

    cells: Cells
    targets: Places  # present targets
    discs: Places  # by centre
    wall_start: np.ndarray  # (C + 1,) int32; walls lie in every cell that their bounding box touches
    wall: np.ndarray  # (w',) int32
    seen: np.ndarray  # (B, n, S) int32
    num_seen: np.ndarray  # (B, n) int32
    seer: np.ndarray  # (B, m) int32: first sensor that sees the target; -1: none


KEY, DRAWS, DRAWS_BEFORE = range(3)  # rows of a random stream; BEFORE: before the targets' last move
TIME, NUM_SENSORS, NUM_TARGETS, NUM_COVERED, TURNED, TIME_BEFORE = range(6)  # rows of a scene
RADIUS = 2  # row of a disc after X and Y, with which every position begins
VELOCITY_X, VELOCITY_Y = 2, 3  # rows after X and Y of a target, and of what is known or reported of it
MOTION = 4  # number of these rows
# Further rows of a target; LAST is its position at its last move, OLDER at the move before.
GOAL_X, GOAL_Y, LAST_X, LAST_Y, OLDER_X, OLDER_Y, COURSE, SPEED, MOVES, VALUE = range(4, 14)
AGE = 4  # further row of the knowledge of a target, sub-steps; inf: never seen
# Columns of a corner of a rail after X and Y: its distance along the rail, and the unit vector to the next corner.
CORNER_ALONG, TO_NEXT_X, TO_NEXT_Y = range(2, 5)


class Paths(NamedTuple):
    """Positions that the targets of a batch follow instead of walking.

    The scenes are along the first axis.
    """

    track_position: np.ndarray  # (B, K, m, 2) positions after each sub-step or move; NaN: absent
    track_length: np.ndarray  # (B,) int64: number of positions that the scene follows; 0: its targets walk
    track_moves: np.ndarray  # (B,) int64: number of positions followed so far
    track_extra: np.ndarray  # (B,) bool: the positions follow each move, extra moves included


class Recordings(NamedTuple):
    """Recordings of the scenario, resampled to sub-steps; an episode follows one of F files from one of its rows.

    The rows of all files are concatenated.
    """

    place: np.ndarray  # (R, m, 2); NaN: the target is absent
    first: np.ndarray  # (F,) int64 first row of each file
    last: np.ndarray  # (F,) int64 last row of each file
    row: np.ndarray  # (B,) int64 current row of the scene
    end: np.ndarray  # (B,) int64 last row of the scene's file


class Knowledge(NamedTuple):
    """Knowledge of the targets, in the layout of the kernels.

    It has r rows: one for each sensor, or a single one shared by all. Sets of sensors are bits of W words: sensor i is
    bit i % 64 of word i // 64. S is the delay of messages in sub-steps.
    """

    known: np.ndarray  # (r, m, 5, B)
    seeing: np.ndarray  # (r, m, B) int16
    left: np.ndarray  # (r, m, B) bool
    noticed: np.ndarray  # (n, m, B) bool
    reported: np.ndarray  # (S, m, W, B) uint64
    report: np.ndarray  # (S, n, m, 4, B)
    # Undefined between two calls:
    seers: np.ndarray  # (m, W, B) uint64: sensors whose reports of the target arrive
    heard: np.ndarray  # (n, W, B) uint64: sensors whose messages reach the sensor


class Rails(NamedTuple):
    """Rails of the sensors, the same in all scenes: R = 1, shared by all sensors, or R = n."""

    corner: np.ndarray  # (R, V, 5); missing corners are at distance inf
    length: np.ndarray  # (R,)
    closed: np.ndarray  # (R,) bool
    start: np.ndarray  # (S,) start distances along the rails; empty: anywhere


class Poses(NamedTuple):
    """Positions, start headings and pan limits of the sensors, the same in all scenes."""

    position: np.ndarray  # (n, 2), or (0, 2) without fixed positions
    heading: np.ndarray  # (n,) degrees, or (0,) without fixed start headings
    pan_limit: np.ndarray  # (n, 2) degrees, lowest and highest heading; -inf and inf: none
    # Undefined between two sub-steps:
    at_limit: np.ndarray  # (n, B) bool: the sensor would have turned beyond its limit


class Values(NamedTuple):
    """Values of targets by number and by place."""

    target: np.ndarray  # (m + 1,) value of each target outside all zones; then their mean
    corner: np.ndarray  # (C, 2) corners of all zones
    first: np.ndarray  # (Z + 1,) int64: first corner of each zone
    zone: np.ndarray  # (Z,) factor of each zone; of several, the last counts


class Motors(NamedTuple):
    """Motors that turn the sensors; rates are in degrees per second, positive counter-clockwise."""

    command: np.ndarray  # (D + 1, n, B) commanded rates; that of sub-step t is at t % (D + 1), for a delay of D
    law: Motor
    # Undefined between two sub-steps:
    moved: np.ndarray  # (n, B) bool: the heading changed


class KernelState(NamedTuple):
    """State of a batch of B scenes with up to n sensors, m targets and k discs, in the layout of the kernels."""

    stream: np.ndarray  # (3, B) uint64
    scene: np.ndarray  # (6, B) int64
    coverage: np.ndarray  # (B,)
    sensor: np.ndarray  # (n, 23, B)
    working: np.ndarray  # (n, B) bool
    target: np.ndarray  # (m, 14, B)
    present: np.ndarray  # (m, B) bool
    disc: np.ndarray  # (k, 3, B)
    visible: np.ndarray  # (n, m, B) bool
    covered: np.ndarray  # (m, B) bool
    # Undefined between two calls:
    scratch_mask: np.ndarray  # (B,) bool
    scratch: np.ndarray  # (11, B)
    # Fixed by the scenario, for all scenes:
    areas: np.ndarray  # (a, 4) areas of the sensors
    walls: np.ndarray  # (w, 4)
    parameters: np.ndarray  # (1,) of PARAMETERS
    paths: Paths | None = None  # None: all targets walk
    knowledge: Knowledge | None = None  # None: all is known, or targets have no identities
    rails: Rails | None = None  # None: no sensor moves
    recordings: Recordings | None = None  # None: the scenario has none
    poses: Poses | None = None  # None: no sensor has a position, a start heading or pan limits of its own
    streets: Streets | None = None  # None: neither sensors nor targets keep to streets
    grid: Grid | None = None  # None: every sensor looks at every target
    values: Values | None = None  # None: all targets have the value 1, and one sensor covers them
    motors: Motors | None = None  # None: turns are at once
    cargo: Any = None  # Cargo of hitmac.envs.kernels.duel; None: no game
    game: Any = None  # Game of hitmac.envs.kernels.duel
    no_game: tuple[()] | None = ()  # None in a game


OBSERVED = (
    "stream", "scene", "sensor", "working", "target", "present", "disc", "visible", "scratch_mask", "scratch", "walls",
    "knowledge", "values",
)  # fmt: skip
"""Arrays that observers read; every array costs time in every call of a kernel."""

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


class Known(NamedTuple):
    """Knowledge of the targets in a batch of B scenes.

    It has r rows: one for each sensor, or 1 if all share their detections. Reports take S sub-steps to arrive.
    """

    known_position: np.ndarray  # (B, r, m, 2) last known position
    known_velocity: np.ndarray  # (B, r, m, 2) velocity there, units per second
    known_age: np.ndarray  # (B, r, m) sub-steps since then; inf: never seen
    known_seeing: np.ndarray  # (B, r, m) int16: sensors that report the target, the sensor itself included
    known_left: np.ndarray  # (B, r, m) bool: the target was seen leaving and has not been seen since
    noticed: np.ndarray  # (B, n, m) bool: sensor i detects target j
    reported: np.ndarray  # (B, S, m, W) uint64: sensors that have reported each target, as bits
    report: np.ndarray  # (B, S, n, m, 4) position and velocity in the reports


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
    """Return views of the same memory as a `kind`: every quantity by name, with the scenes along the first axis."""

    def view(name: str) -> np.ndarray:
        array, rows = (name, None) if hasattr(arrays, name) else _PLACES[name]
        whole = getattr(arrays, array)
        return np.moveaxis(whole if rows is None else whole[..., rows, :], -1, 0)[:num_envs]

    return kind(**{name: view(name) for name in kind._fields})
