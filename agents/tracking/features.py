"""Features of beliefs, for policies that learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from hitmac.agents.policy import copied_state
from hitmac.agents.tracking.beliefs import AHEAD, SECTORS, SUMMARY, Beliefs, BeliefState, Scene, describe_all
from hitmac.envs import observation
from hitmac.envs.kernels.state import DRAWS, KEY, TIME
from hitmac.envs.kernels.threads import Threads, cores
from hitmac.envs.observation import Observer
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator

BELIEFS = ("beliefs",)
"""Name, in place of names of features, of those of beliefs; see :class:`BeliefFeatures`."""

PARTICLES = 96
"""Particles of a target."""

_MOST = 100.0  # bound of every feature


class BeliefFeatures:
    """Features of every pair of a sensor and a target, of the particles that say where the target may be.

    ============ ======================================================================================================
    0, 1         sine and cosine of the bearing of the mean position
    2            its distance / distance_scale
    3, 4         share of the particles within the sensor's range, and in its view
    5            sum, over the other sensors, of the shares in their views
    6, 7         radial and tangential mean velocity / top speed
    8            standard deviation of the positions / distance_scale
    9, 10        sub-steps since the target was last seen / 100, at most 10, also if never; 1 if it is seen now
    11 ...       shares within range in 18 sectors of the bearing, from behind counter-clockwise: now, and in 20 and 40
                 sub-steps if every particle goes straight on to its goal
    ============ ======================================================================================================

    A pair is valid if the sensor works and the target may be there, also where nobody has seen it yet.

    Args:
        scenario: the scenario.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.beliefs = scenario, Beliefs(scenario, PARTICLES)
        n, m, d = scenario.num_sensors, scenario.num_targets, SUMMARY + len(AHEAD) * SECTORS
        self.space = spaces.Dict(
            pairs=spaces.Box(-_MOST, _MOST, (n, m, d), np.float32), mask=spaces.MultiBinary((n, m))
        )
        every = scenario.extra_move_interval
        self._pace = scenario.time_step * (1.0 + (1.0 / every if every else 0.0))

    def describe(self, scene: Scene) -> dict[str, np.ndarray]:
        """Return ``pairs`` (R, n, m, d) and ``mask`` (R, n, m) of what R rows of knowledge believe."""
        rows, (n, m, d) = len(scene.known), self.space["pairs"].shape  # type: ignore[misc]
        pairs = np.empty((rows, n, m, d), np.float32)
        Threads(rows, cores(), block=8).run(
            describe_all, self.beliefs.rules, self._pace, self.scenario.distance_scale, self.scenario.top_speed,
            scene.belief, scene.known, scene.views, scene.there, pairs,
        )  # fmt: skip
        works = scene.views[..., 5] > 0.0
        return {"pairs": pairs, "mask": (works[:, :, None] & scene.there[:, None]).astype(np.int8)}


class BeliefObserver:
    """Observer that keeps beliefs, in place of :class:`hitmac.envs.observation.Observer` in a task of sub-steps.

    It must observe every sub-step. All sensors must share what they know.

    Args:
        scenario: the scenario; its `knowledge` is ``"shared"`` or ``"full"``.

    Attributes:
        features: :data:`BELIEFS`.
        space: see :class:`BeliefFeatures`.

    Raises:
        ValueError: sensors do not share what they know.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._features = BeliefFeatures(scenario)
        if self._features.beliefs.alone:
            raise ValueError(f"knowledge is {scenario.knowledge!r}; to learn on beliefs it must be full or shared")
        self.features, self.space = BELIEFS, self._features.space
        self._observer = Observer(scenario, Beliefs.features)
        self._state: BeliefState | None = None
        self._moment = np.zeros((3, 0), np.int64)  # (3, B) key, draws and time of the scenes at the last call
        self._last: dict[str, np.ndarray] = {}

    def observe(self, simulator: Simulator) -> dict[str, np.ndarray]:
        """Return the observation of every scene: new arrays ``pairs`` (B, n, m, d) and ``mask`` (B, n, m).

        A scene that has not moved since the last call is observed once.
        """
        b, rows = simulator.num_envs, simulator.rows
        moment = np.stack((*rows.stream[[KEY, DRAWS], :b].view(np.int64), rows.scene[TIME, :b]))
        if self._moment.shape != moment.shape:
            self._state = None
        moved = np.ones(b, np.bool_)
        on = np.zeros(b, np.bool_)
        if self._state is not None:
            moved = (moment != self._moment).any(0)
            on = (moment[0] == self._moment[0]) & (moment[2] == self._moment[2] + 1)
        if moved.any():
            shown = self._observer.observe(simulator)
            scene, new = self._features.beliefs.take_in(shown["pairs"], shown["mask"] != 0, self._state, ~on)
            last = self._features.describe(scene)
            if self._state is not None:
                now, before = (*new, *last.values()), (*self._state, *self._last.values())
                for array, old in zip(now, before, strict=True):
                    array[~moved] = old[~moved]
            self._state, self._last, self._moment = new, last, moment
        return {name: array.copy() for name, array in self._last.items()}

    def get_state(self) -> dict[str, np.ndarray]:
        """Return copies of all arrays that the next observation depends on."""
        assert self._state is not None
        return {name: array.copy() for name, array in (self._state._asdict() | self._last).items()} | {
            "moment": self._moment.copy()
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from arrays of :meth:`get_state`."""
        moment = state["moment"]
        if moment.ndim != 2 or len(moment) != 3 or moment.dtype != np.int64:
            raise ValueError(
                f"state moment is {moment.dtype} of shape {moment.shape}; it must be int64 of shape (3, B)"
            )
        b, (n, m, d) = moment.shape[1], self.space["pairs"].shape  # type: ignore[misc]
        own = self._features.beliefs.copied(tuple(state[name] for name in BeliefState._fields), b)
        fresh = np.zeros((b, n, m, d), np.float32), np.zeros((b, n, m), np.int8)
        pairs, mask = copied_state((state["pairs"], state["mask"]), fresh)
        self._state, self._last, self._moment = own, {"pairs": pairs, "mask": mask}, moment.copy()


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """Return `features` as :func:`hitmac.envs.observation.check_features` does; :data:`BELIEFS` are features too."""
    return BELIEFS if tuple(features) == BELIEFS else observation.check_features(features)


def observed(features: tuple[str, ...]) -> tuple[str, ...] | Callable[[Scenario], Any]:
    """Return `features` in the form that a task takes: names, or the observer of a scenario."""
    return BeliefObserver if features == BELIEFS else features


def space_of(scenario: Scenario, features: tuple[str, ...], **nearness: Any) -> spaces.Dict:
    """Return the space of an observation of `features`; `nearness` are options of the observer."""
    return BeliefFeatures(scenario).space if features == BELIEFS else Observer(scenario, features, **nearness).space
