"""The simulator: the state of a batch of scenes, and what moves it on. No spaces, rewards or auto-reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import prange

from envs import physics
from envs.compiled import kernel
from envs.physics import Tracks
from envs.random import stream_keys
from envs.scenario import Scenario, load_scenario

# Below this many scenes per thread, waking a second thread costs more than it saves.
SCENES_PER_THREAD = 128

PLACES = ("sensor_position", "heading", "target_position", "target_tracks")
"""What a reset, or :meth:`Simulator.place`, can be told to put somewhere."""


@kernel(nogil=True)
def _begin(state, p, chosen):
    for b in range(chosen.shape[0]):
        if chosen[b]:
            physics.begin(state, p, b)
            physics.see(state, p, b)


@kernel(nogil=True)
def _sub_step(state, p, tracks, action, chosen, low, high):
    if tracks is None:
        for b in range(low, high):
            if chosen[b]:
                physics.sub_step(state, p, b, action, physics.extra_move_due(state, p, b))
    else:
        for b in range(low, high):
            if chosen[b]:
                physics.tracked_sub_step(state, p, tracks, b, action, physics.extra_move_due(state, p, b))


@kernel(parallel=True)
def _sub_step_threads(state, p, tracks, action, chosen, bounds):
    for chunk in prange(bounds.shape[0] - 1):
        _sub_step(state, p, tracks, action, chosen, bounds[chunk], bounds[chunk + 1])


@kernel(nogil=True)
def _look(state, p):
    for b in range(state.key.shape[0]):
        for i in range(state.heading.shape[1]):
            physics.point(state, b, i, state.heading[b, i])
        physics.see(state, p, b)


class Simulator:
    """A batch of independent scenes of one scenario.

    Scene i is the same, bit for bit, in a batch of any size and on any number of threads: all its random
    numbers come from a stream of its own, which its seed chooses. A reset without a new seed goes on in
    that stream.

    Args:
        scenario: a :class:`Scenario`, a preset's name or a YAML file's path.
        num_envs: B, how many scenes; 1 or more.
        seed: scene i gets the seed ``seed + i``; a sequence gives each its own; None draws from the system.
        num_threads: threads to compute with; None takes as many as there are cores, one for small batches.

    Attributes:
        state: the :class:`~envs.physics.State`, the live arrays (read them; copy what you keep).
        tracks: the :class:`~envs.physics.Tracks` that scenes follow; None if none does.

    Raises:
        ValueError: num_envs or num_threads under 1, a negative seed, seeds that are not num_envs many.
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
        self.parameters = physics.parameters(self.scenario)
        self.state = physics.allocate(self.scenario, self.num_envs)
        self.tracks: Tracks | None = None
        self.bounds = chunk_bounds(self.num_envs, num_threads)  # (threads + 1,)
        self._everyone = np.ones(self.num_envs, np.bool_)
        self.reset(seed=random_seed() if seed is None else seed)

    @property
    def num_threads(self) -> int:
        """On how many threads a step is computed."""
        return len(self.bounds) - 1

    @property
    def coverage(self) -> np.ndarray:
        """(B,) share of the targets that at least one sensor sees."""
        return self.state.num_covered / self.scenario.num_targets

    @property
    def track_ended(self) -> np.ndarray:
        """(B,) bool: the scene follows recorded tracks and has come to their end."""
        if self.tracks is None:
            return np.zeros(self.num_envs, np.bool_)
        return (self.tracks.track_length > 0) & (self.tracks.track_moves >= self.tracks.track_length)

    @property
    def rotation(self) -> np.ndarray:
        """(B,) share of the sensors that turned in the last sub-step."""
        return self.state.turned / self.scenario.num_sensors

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        mask: np.ndarray | None = None,
        options: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Start a new episode in the scenes of `mask` (B,), or in all; with a `seed`, in new random streams.

        `options` are those of :meth:`place`, by name: where the sensors and targets stand instead.
        """
        checked = self._checked(options or {})
        chosen = self._everyone if mask is None else mask
        if self.tracks is not None:
            self.tracks.track_length[chosen] = 0
            if not self.tracks.track_length.any():
                self.tracks = None
        if seed is not None:
            self.state.key[chosen] = stream_keys(scene_seeds(seed, self.num_envs))[chosen]
            self.state.draws[chosen] = 0
        _begin(self.state, self.parameters, chosen)
        self._put(checked, chosen)

    def step(self, action: np.ndarray, mask: np.ndarray | None = None) -> None:
        """One sub-step of the scenes of `mask` (B,), or of all: the sensors turn, the targets move.

        Args:
            action: (B, n) whole numbers, 0 stay, 1 left (counter-clockwise), 2 right. They are not checked
                here: any other number counts as stay.
            mask: (B,) bool, the scenes to move on.
        """
        self.run(_sub_step, _sub_step_threads, action, self._everyone if mask is None else mask)

    def run(self, kernel: Callable, kernel_threads: Callable, *arguments: Any) -> None:
        """Call a kernel for all scenes, on one thread or on several.

        On one it is ``kernel(state, parameters, tracks, *arguments, low, high)``, on several
        ``kernel_threads(state, parameters, tracks, *arguments, bounds)``.
        """
        if self.num_threads == 1:
            kernel(self.state, self.parameters, self.tracks, *arguments, 0, self.num_envs)
        else:
            kernel_threads(self.state, self.parameters, self.tracks, *arguments, self.bounds)

    def place(self, *, mask: np.ndarray | None = None, **places: np.ndarray) -> None:
        """Put sensors and targets where the caller wants them; what is not given stays where it is.

        Args:
            mask: (B,) bool, in which scenes; None: in all.
            **places: any of

                - ``sensor_position`` (B, n, 2), or (n, 2) for all scenes alike;
                - ``heading`` (B, n) or (n,), degrees counter-clockwise from +x;
                - ``target_position`` (B, m, 2) or (m, 2), inside the arena;
                - ``target_tracks`` (B, K, m, 2) or (K, m, 2), inside the arena: where the targets stand
                  after their 1st, 2nd, ... move (from real cameras or another simulator); they follow them.

        Raises:
            ValueError: an unknown name, a wrong shape, a number that is not finite, or a target outside the
                arena; nothing is changed then.
        """
        self._put(self._checked(places), self._everyone if mask is None else mask)

    def _checked(self, places: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The places as arrays with the scene axis first, or a ValueError."""
        checked = {}
        for name, value in places.items():
            if name not in PLACES:
                raise ValueError(f"unknown place {name!r}: known are {', '.join(PLACES)}")
            array = np.asarray(value, np.float64)
            shape = getattr(self.state, name.replace("tracks", "position")).shape
            if name == "target_tracks":  # of any length
                shape = (shape[0], array.shape[-3] if array.ndim >= 3 else 1, *shape[1:])
            if array.shape not in (shape, shape[1:]) or 0 in array.shape:
                raise ValueError(f"{name} has shape {array.shape}; it must be {shape} or {shape[1:]}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} holds {array[~np.isfinite(array)][0]}; every number must be finite")
            if name.startswith("target") and np.abs(array).max() > self.scenario.arena:
                outside = array.flat[np.abs(array).argmax()]
                raise ValueError(f"{name} holds {outside:g}; targets stay within +-{self.scenario.arena:g}")
            checked[name] = np.broadcast_to(array, shape)
        return checked

    def _put(self, checked: Mapping[str, np.ndarray], chosen: np.ndarray) -> None:
        for name, array in checked.items():
            if name == "target_tracks":
                self._follow(array, chosen)
            else:
                getattr(self.state, name)[chosen] = array[chosen]
            if name == "target_position":
                self.state.places[chosen] = np.inf
                self.state.velocity[chosen] = 0.0
        if checked:
            _look(self.state, self.parameters)

    def _follow(self, positions: np.ndarray, chosen: np.ndarray) -> None:
        """Let the chosen scenes follow `positions` (B, K, m, 2), and the others what they follow already."""
        b, length, m, _ = positions.shape
        old = self.tracks or _no_tracks(b, m)
        kept = old.track_position[:, : int(old.track_length.max())]
        merged = np.zeros((b, max(length, kept.shape[1]), m, 2))
        merged[:, : kept.shape[1]] = kept
        merged[chosen, :length] = positions[chosen]
        old.track_length[chosen] = length
        old.track_moves[chosen] = 0
        self.tracks = Tracks(merged, old.track_length, old.track_moves)

    def get_state(self) -> dict[str, np.ndarray]:
        """A copy of the whole state, by name: :class:`~envs.physics.State` and :class:`~envs.physics.Tracks`."""
        tracks = self.tracks or _no_tracks(self.num_envs, self.scenario.num_targets)
        return {name: array.copy() for name, array in (self.state._asdict() | tracks._asdict()).items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from `state`, as :meth:`get_state` gave it (from this simulator or one of the same sizes).

        Raises ``ValueError`` for a missing or unknown name or a wrong shape; nothing is changed then.
        """
        own = self.state._asdict() | _no_tracks(self.num_envs, self.scenario.num_targets)._asdict()
        if set(state) != set(own):
            raise ValueError(f"a state has the names {', '.join(own)}; got {', '.join(map(str, state))}")
        for name, array in own.items():
            given, shape = np.shape(state[name]), array.shape
            if name == "track_position" and len(given) == 4:  # of any length
                shape = (shape[0], given[1], *shape[2:])
            if given != shape:
                raise ValueError(f"state {name!r} has shape {given}; it must be {shape}")
        for name, array in self.state._asdict().items():
            array[...] = state[name]
        tracks = Tracks(*(np.array(state[name]) for name in Tracks._fields))
        self.tracks = tracks if tracks.track_length.any() else None

    def clone(self) -> Simulator:
        """An independent simulator in the same state, which goes on the same."""
        copy = Simulator(self.scenario, self.num_envs, seed=0, num_threads=self.num_threads)
        copy.set_state(self.get_state())
        return copy


def _no_tracks(num_envs: int, num_targets: int) -> Tracks:
    return Tracks(np.zeros((num_envs, 0, num_targets, 2)), np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64))


def chunk_bounds(num_envs: int, num_threads: int | None) -> np.ndarray:
    """Where to cut `num_envs` scenes for the threads: (threads + 1,) rising from 0 to num_envs."""
    if num_threads is None:
        num_threads = min(numba.config.NUMBA_NUM_THREADS, num_envs // SCENES_PER_THREAD) or 1  # type: ignore[attr-defined]
    num_threads = min(positive("num_threads", num_threads), num_envs)
    return np.arange(num_threads + 1, dtype=np.int64) * num_envs // num_threads


def scene_seeds(seed: int | Sequence[int], num_envs: int) -> np.ndarray:
    """(B,) uint64, one seed for each scene: ``seed + i``, or the i-th of a sequence."""
    seeds = [seed + i for i in range(num_envs)] if isinstance(seed, int | np.integer) else list(seed)
    if len(seeds) != num_envs:
        raise ValueError(f"got {len(seeds)} seeds for {num_envs} scenes; give one each, or a single number")
    for one in seeds:
        if isinstance(one, bool) or not isinstance(one, int | np.integer) or not 0 <= one < 2**63:
            raise ValueError(f"seed is {one!r}; it must be a whole number from 0 to 2^63 - 1")
    return np.array(seeds, np.uint64)


def random_seed() -> int:
    """A seed from the operating system's entropy."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) >> 2


def positive(name: str, value: int) -> int:
    """`value` if it is a whole number over 0, else a ValueError that says so."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number, 1 or more")
    return int(value)
