"""Simulator: the state of a batch of scenes and its dynamics, without spaces, rewards or auto-reset."""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.envs.allocation import allocate, check_state, checked_places
from hitmac.envs.base.state import NO_PARTS, OBSERVED, KernelState, State, scenes_first
from hitmac.envs.base.streams import stream_keys
from hitmac.envs.base.threads import divide
from hitmac.envs.kernels import step
from hitmac.envs.parts.game import Game
from hitmac.envs.parts.knowledge import Known
from hitmac.envs.parts.motors import COMMANDED, misread_headings
from hitmac.envs.parts.recordings import PATHS, Paths, no_paths, with_paths
from hitmac.envs.parts.walks import targets_may_leave
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.validation import as_array, as_options, did_you_mean, is_whole, positive, shortly


def scene_seeds(seed: int | Sequence[int], num_envs: int) -> np.ndarray:
    """Return the seed of each scene, (B,) uint64: ``seed + i``, or the i-th of a sequence."""
    if as_array("seed", seed).ndim == 0:
        seeds = [checked_seed(seed) + i for i in range(num_envs)]  # type: ignore[arg-type]
    else:
        seeds = [checked_seed(one) for one in seed]  # type: ignore[union-attr]
    if len(seeds) != num_envs:
        raise ValueError(f"got {len(seeds)} seeds for {num_envs} scenes; give one each, or a single number")
    return np.array(seeds, np.uint64)


def checked_seed(seed: int, name: str = "seed") -> int:
    """Return `seed`; raise ValueError, with `name`, unless it is a whole number from 0 to 2^63 - 1."""
    if not is_whole(seed) or not 0 <= seed < 2**63:
        raise ValueError(f"{name} is {shortly(seed)}; it must be a whole number from 0 to 2^63 - 1")
    return int(seed)


PLACES = ("sensor_position", "along", "heading", "target_position", *PATHS)
"""Names of the positions and headings accepted by a reset and by :meth:`Simulator.place`."""


class Simulator:
    """Batch of independent scenes of one scenario.

    Scene i is the same, bit for bit, in a batch of any size and on any number of threads: all its random numbers come
    from its own stream, selected by its seed. A reset without a new seed continues that stream.

    Args:
        scenario: a :class:`Scenario`, a preset's name or a YAML file's path.
        num_envs: B, number of scenes; 1 or more.
        seed: scene i gets the seed ``seed + i``, or the i-th of a sequence; None: a seed from the operating system.
        num_threads: number of threads, 1 or more; None: the number of cores, and 1 for small batches.

    Attributes:
        state: the :class:`~hitmac.envs.base.state.State`, the live arrays with the scenes along the first axis:
            ``heading`` (B, n), ``target_position`` (B, m, 2), ... Steps overwrite them. Values written to them are not
            checked, in contrast to :meth:`place` and :meth:`set_state`: NaN or numbers out of range lead to wrong
            results, never to access outside the arrays or to endless steps.
        known: the :class:`~hitmac.envs.parts.knowledge.Known`, the knowledge of the sensors in the same form; None in a
            scenario with full knowledge or without identities.
        rows: the :class:`~hitmac.envs.base.state.KernelState`, the same arrays in the layout of the kernels, with
            the scenes along the last axis.
        num_threads: number of threads that compute a step.
        game: the :class:`~hitmac.envs.Game` of a scenario with warehouses, else None.
        large: sensors look only nearby (see :data:`hitmac.envs.allocation.GRID_FROM`), and threads share the sensors of
            a scene. The results are the same, bit for bit.
        absences: False if all sensors and targets are always present, which makes observations faster.

    Raises:
        ValueError: `num_envs` or `num_threads` under 1, a negative seed, or a number of seeds other than `num_envs`.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path = "hit-mac",
        num_envs: int = 1,
        seed: int | Sequence[int] | None = None,
        *,
        num_threads: int | None = None,
    ) -> None:
        self.scenario = load_scenario(scenario)
        self.num_envs = positive("num_envs", num_envs)
        self.rows = allocate(self.scenario, self.num_envs)
        self._rows_of: dict[Callable, KernelState] = {}  # for single kernels
        unread: dict[str, Any] = {name: None for name in KernelState._fields if name not in OBSERVED}
        self._observed = self.rows._replace(**unread)
        self.state: State = scenes_first(State, self.rows, self.num_envs)
        knowledge = self.rows.knowledge
        self.known: Known | None = None if knowledge is None else scenes_first(Known, knowledge, self.num_envs)
        motors = self.rows.motors
        commands = None if motors is None else np.moveaxis(motors.command, -1, 0)[: self.num_envs]
        self._commands = commands  # (B, D + 1, n)
        self.large = self.rows.grid is not None
        n, m = self.scenario.num_sensors, self.scenario.num_targets
        given = None if num_threads is None else positive("num_threads", num_threads)
        self.num_threads, self.threads, self.sensor_threads = divide(self.num_envs, n, m, given, self.large)
        self.absences = self.scenario.varies
        self._everyone = np.ones(self.num_envs, np.bool_)
        shapes: list[tuple[int, ...]] = [(self.num_envs, n), (self.num_envs, len(self.scenario.decisions) * n)]
        self._action_shapes = dict.fromkeys(shapes)
        self.game: Any = Game(self) if self.scenario.is_game else None
        own = n * (2 if self.rows.tilts else 1)
        self._real_shape = (self.num_envs, n, 2) if self.game else (self.num_envs, own) if motors else None
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) >> 2
        self.reset(seed=seed)

    @property
    def coverage(self) -> np.ndarray:
        """(B,) share of the present targets, by value, that `seen_by` sensors see; 1 where none has a value."""
        return self.state.coverage.copy()

    @property
    def observed(self) -> KernelState:
        """Part of `rows` that observers read, for which their kernels are compiled once, with the observed headings."""
        if not self.scenario.heading_noise:
            return self._observed
        sensor = self._observed.sensor.copy()
        self.run(misread_headings, self.scenario.heading_noise, sensor, rows=self._observed._replace(**NO_PARTS))
        return self._observed._replace(sensor=sensor)

    @property
    def observed_coverage(self) -> np.ndarray:
        """(B,) :attr:`coverage`, NaN where no target with a value is present."""
        return np.where((self.state.present & (self.state.value > 0.0)).any(1), self.state.coverage, np.nan)

    @property
    def recording(self) -> np.ndarray | None:
        """(B,) number of the file of the scenario's `tracks` that each scene follows; None without files."""
        recordings = self.rows.recordings
        return None if recordings is None else np.searchsorted(recordings.first, recordings.row, "right") - 1

    @property
    def track_ended(self) -> np.ndarray:
        """(B,) bool: the scene follows recorded tracks and has reached their end."""
        paths, recordings = self.rows.paths, self.rows.recordings
        ended = np.zeros(self.num_envs, np.bool_) if recordings is None else recordings.row >= recordings.end
        if paths is not None:
            ended = np.where(paths.track_length > 0, paths.track_moves >= paths.track_length, ended)
        return ended

    @property
    def rotation(self) -> np.ndarray:
        """(B,) share of the sensors that turned in the last sub-step."""
        return self.state.turned / self.state.num_sensors

    @property
    def rotated(self) -> np.ndarray:
        """(B, n) bool: the sensor turned or tilted in the last sub-step."""
        return self.rows.rotated.T[: self.num_envs]

    @property
    def valid_pairs(self) -> np.ndarray:
        """(B, n, m) bool: sensor i and target j are part of the episode, the sensor works, the target is present."""
        return self.state.working[:, :, None] & self.state.present[:, None, :]

    @property
    def acting(self) -> np.ndarray:
        """(B, n) bool: the sensor works and knows a present target."""
        return self.state.working & self.known_targets.any(-1)

    @property
    def known_targets(self) -> np.ndarray:
        """(B, r, m) bool: targets present, or with partial knowledge seen before and not known to have left."""
        if self.known is None:
            return self.state.present[:, None]
        return np.isfinite(self.known.known_age) & ~self.known.known_left

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        mask: np.ndarray | None = None,
        options: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Start a new episode in the scenes of `mask` (B,), or in all; with a `seed`, in new random streams.

        `options`, arguments of :meth:`place` by name, replace the random positions and headings.
        """
        checked, chosen = self._checked(as_options(options)), self.chosen(mask)
        if seed is not None:
            self.state.key[chosen] = stream_keys(scene_seeds(seed, self.num_envs))[chosen]
            self.state.draws[chosen] = 0
        if self.rows.paths is not None:
            self.rows.paths.track_length[chosen] = 0
            self._set_paths(self.rows.paths)
        if self._commands is not None:
            self._commands[chosen] = 0.0
        self._run_alone(step.begin, chosen)
        self._derive(chosen)
        self._put(checked, chosen)

    def _run_alone(self, kernel: Callable, *arguments: Any) -> None:
        """Run a kernel of the step with the parts that it needs alone."""
        self.run(kernel, *arguments, rows=self._rows_for(kernel))

    def _rows_for(self, kernel: Callable) -> KernelState:
        """Return the rows without the parts that a kernel of the step does not need."""
        if kernel not in self._rows_of:
            needs = {name: getattr(self.rows, name) for name in (*step.PARTS_OF[kernel], "no_game")}
            self._rows_of[kernel] = self.rows._replace(**NO_PARTS | needs)
        return self._rows_of[kernel]

    def _derive(self, chosen: np.ndarray) -> None:
        """Compute the derived state after a start or a change of places."""
        self._run_alone(step.settle, chosen)
        self._run_alone(step.look, chosen)
        if self.rows.values is not None:
            self._run_alone(step.count, chosen)
        if self.rows.knowledge is not None:
            self._run_alone(step.recall, chosen)

    def step(self, action: np.ndarray, mask: np.ndarray | None = None, target_action: np.ndarray | None = None) -> None:
        """Advance the scenes of `mask` (B,), or all, by one sub-step: the sensors turn and move, the targets move.

        Args:
            action: (B, n) whole numbers, 0 stay, 1 left (counter-clockwise), 2 right; or (B, d n), the d decisions
                of :attr:`Scenario.decisions` one after another, with the meanings in
                ``hitmac.envs.scenario.DECISIONS``. Any other number counts as 0. With motors also (B, n)
                floating-point shares in [-1, 1] of their highest rate, and with `tilt_limits` (B, 2 n), the others of
                `tilt_step`, down over 0; in a game also (B, n, 2) floating-point degrees by which the sensors turn and
                zoom (over 0: left, and wider), limited to `turn_angle` and `zoom_step`.
            mask: (B,) bool, the scenes to advance.
            target_action: in a game, (B, m, 2) displacements of the targets, scaled to the longest step where longer;
                None: those of the scenario's `walk`.

        Raises:
            ValueError: an action or a mask of another shape or type, or a number that is not finite; the state is then
                unchanged.
        """
        action, chosen = as_array("action", action), self.chosen(mask)
        real = action.dtype.kind == "f" and action.shape == self._real_shape
        if not real and (action.shape not in self._action_shapes or action.dtype.kind not in "iu"):
            kinds, shapes = "whole numbers", [*self._action_shapes]
            if self._real_shape:
                kinds = f"floating-point {'degrees' if self.game else 'rates'} or {kinds}"
                shapes.append(self._real_shape)
            raise ValueError(
                f"action is {action.dtype} of shape {action.shape}; it must be {kinds} of shape "
                f"{' or '.join(map(str, shapes))}"
            )
        if real and not np.isfinite(action[chosen]).all():
            raise ValueError(f"action holds a number that is not finite: {shortly(action[chosen])}")
        if target_action is not None:
            if self.game is None:
                raise ValueError("target_action is given; without warehouses the targets move by themselves")
            target_action = self.game.checked(target_action, chosen)
        action = action if real else np.array(action, np.int64, order="C")  # one kernel for arrays of all kinds
        self.advance(self.command(action, chosen), chosen, target_action)

    def command(self, action: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Command the motors, if a valid action of :meth:`step` has rates; return the action for :meth:`advance`."""
        if self.game is not None:
            return self.game.degrees(action)
        if action.dtype.kind != "f":
            return action
        assert self._commands is not None
        scenes, n, tilts = np.flatnonzero(chosen), self.scenario.num_sensors, self.rows.tilts
        slot = self.state.time[scenes] % self._commands.shape[1]
        self._commands[scenes, slot] = action[scenes, :n] * self.scenario.rates[1]
        if tilts is None:
            return np.full(action.shape, COMMANDED)
        tilts.share[:, scenes] = action[scenes, n:].clip(-1.0, 1.0).T
        decisions = np.zeros((self.num_envs, len(self.scenario.decisions), n), np.int64)
        decisions[:, (0, tilts.decision)] = COMMANDED
        return decisions.reshape(self.num_envs, -1)

    def advance(self, action: np.ndarray, chosen: np.ndarray, target_action: np.ndarray | None = None) -> None:
        """Advance the `chosen` scenes by one sub-step, with an action of :meth:`command`; see :meth:`step`."""
        if self.game is not None:
            moves = self.game.walk(chosen) if target_action is None else target_action
            actions = (np.require(one, np.float64, ["C", "A", "W"]) for one in (action, moves))
            self.run(step.sub_step, *actions, chosen)
        elif self.large:
            self._run_alone(step.move, action, chosen)
            self.sensor_threads.run(step.look_near, tuple(self._rows_for(step.look_near)), chosen)
            self._run_alone(step.end, chosen)
        else:
            self.run(step.sub_step, action, None, chosen)

    def run(self, kernel: Callable, *arguments: Any, rows: KernelState | None = None) -> None:
        """Call ``kernel(tuple(rows), *arguments, share)`` for all scenes; see :mod:`hitmac.envs.base.threads`."""
        self.threads.run(kernel, tuple(self.rows if rows is None else rows), *arguments)

    def place(self, *, mask: np.ndarray | None = None, **places: np.ndarray) -> None:
        """Set positions and headings of sensors and targets; all others stay unchanged.

        Args:
            mask: (B,) bool, the scenes to change; None: all.
            **places: any of

                - ``sensor_position`` (B, n, 2), or (n, 2) for all scenes, inside the arena, without rails;
                - ``along`` (B, n) or (n,), distances along the rails from their first corners;
                - ``heading`` (B, n) or (n,), degrees counter-clockwise from +x;
                - ``target_position`` (B, m, 2) or (m, 2), inside the arena; NaN: the target is absent;
                - ``target_tracks`` (B, K, m, 2) or (K, m, 2), inside the arena: positions of the targets after the
                  1st, 2nd, ... sub-step (from real cameras or another simulator), which they follow instead of walking,
                  without extra moves; NaN: the target is absent;
                - ``target_moves``, the same after their 1st, 2nd, ... move, extra moves of the scenario included.

        Raises:
            ValueError: an unknown name, a wrong shape, a number that is not finite, a position outside the arena or a
                heading beyond its limits; the state is then unchanged.
        """
        self._put(self._checked(places), self.chosen(mask))

    def chosen(self, mask: np.ndarray | None, name: str = "mask") -> np.ndarray:
        """Return the mask (B,), or one of all scenes for None; raise ValueError, with `name`, for any other value."""
        if mask is None:
            return self._everyone
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise ValueError(f"{name} is {shortly(mask)}; it must be a bool array of shape ({self.num_envs},)")
        return np.require(mask, requirements=["C", "W"])

    def _checked(self, places: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the places as arrays with the scene axis first, or raise ValueError."""
        checked = {}
        for name, value in places.items():
            if name not in PLACES:
                raise ValueError(f"unknown place {name!r}{did_you_mean(name, PLACES)}: known are {', '.join(PLACES)}")
            array = as_array(name, value)
            if array.dtype.kind not in "iuf":
                raise ValueError(f"{name} is {shortly(value)}; it must be numbers")
            array = array.astype(np.float64)
            shape = getattr(self.state, "target_position" if name in PATHS else name).shape
            if name in PATHS:  # of any length
                shape = (shape[0], array.shape[-3] if array.ndim >= 3 else 1, *shape[1:])
            if array.shape not in (shape, shape[1:]) or 0 in array.shape:
                raise ValueError(f"{name} has shape {array.shape}; it must be {shape} or {shape[1:]}")
            checked[name] = np.broadcast_to(checked_places(name, array, self.scenario, self.rows), shape)
        return checked

    def _put(self, checked: Mapping[str, np.ndarray], chosen: np.ndarray) -> None:
        for name, array in checked.items():
            finite = np.isfinite(array)
            self.absences |= not finite.all()
            if name in PATHS:
                self._set_paths(with_paths(self._paths, array, chosen, extra=name == "target_moves"))
            else:
                own = getattr(self.state, name)
                own[chosen] = np.where(finite, array, own)[chosen]
            if name == "target_position":
                self.state.present[chosen] &= finite[chosen].all(-1)
                self.state.places[chosen] = np.inf
                self.state.velocity[chosen] = 0.0
                self.state.time_before[chosen] = -1
        if checked:
            self._derive(chosen)

    @property
    def _paths(self) -> Paths:
        return self.rows.paths or no_paths(self.num_envs, self.scenario.num_targets)

    def _set_paths(self, paths: Paths) -> None:
        """Set the paths of the state; without scenes that follow them, remove them."""
        followed = bool(paths.track_length.any())
        self.rows = self.rows._replace(paths=paths if followed else None)
        self._rows_of.clear()
        self.rows.parameters["departures"] = followed or targets_may_leave(self.scenario)

    def get_state(self) -> dict[str, np.ndarray]:
        """Return a copy of the whole state, by the names of its arrays in :mod:`hitmac.envs.base.state`."""
        return {name: array.copy() for name, array in self._whole_state().items()}

    def _whole_state(self) -> dict[str, np.ndarray]:
        known = {} if self.known is None else self.known._asdict()
        played = self.rows.recordings
        rows = {} if played is None else {"recording_row": played.row, "recording_end": played.end}
        commands = {} if self._commands is None else {"commands": self._commands}
        game = {} if self.game is None else self.game.arrays()
        state = {name: array for name, array in self.state._asdict().items() if array is not None}
        state["rotated"] = self.rotated
        return state | known | self._paths._asdict() | rows | commands | game

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a state of :meth:`get_state` (of this simulator or one of the same sizes).

        Raises ``ValueError`` for a missing or unknown name, a wrong shape or type, or a number out of its range; the
        state is then unchanged.
        """
        own = self._whole_state()
        state = {name: as_array(f"state {name!r}", array) for name, array in state.items()}
        check_state(state, own, self.rows, self.scenario)
        for name, array in own.items():
            if name not in Paths._fields:
                array[...] = state[name]
        self._set_paths(Paths(**{name: np.array(state[name]) for name in Paths._fields}))
        if (grid := self.rows.grid) is not None:
            seen = self.state.visible
            grid.num_seen[:] = grid.seen.shape[2] + 1  # the seen targets are not listed
            grid.seer[:] = np.where(seen.any(1), seen.argmax(1), -1)
        self.absences |= not state["present"].all() or bool(np.isnan(state["track_position"]).any())

    def clone(self) -> "Simulator":
        """Return an independent simulator in the same state, which continues identically."""
        return copy.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by constructor arguments and state: `state` and `rows` share memory."""
        made = functools.partial(type(self), self.scenario, self.num_envs, 0, num_threads=self.num_threads)
        return made, (), self.get_state()

    __setstate__ = set_state
