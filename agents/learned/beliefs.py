"""Policies on beliefs about the targets, on tracks, and on each sensor's own knowledge."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hitmac.agents.learned.recurrent import OF_SENSOR, RECURRENT_FEATURES
from hitmac.agents.policy import Observation, Policy, Starts, State, started
from hitmac.agents.tracking.beliefs import BeliefState
from hitmac.agents.tracking.features import BELIEFS, features_of, update
from hitmac.agents.tracking.tracks import Estimate, Tracks, TracksState
from hitmac.envs.scenario import Scenario


class BeliefPolicyState(NamedTuple):
    """State of a :class:`BeliefPolicy`."""

    beliefs: BeliefState | TracksState
    policy: State  # a row for each row of knowledge


class BeliefPolicy:
    """Policy on observations that applies a policy on beliefs or tracks, which are in its state.

    The features are those of :class:`~hitmac.agents.tracking.features.BeliefFeatures`, or in a scenario without
    identities those of :class:`~hitmac.agents.tracking.features.TrackFeatures`. With the knowledge ``"neighbours"`` or
    ``"own"`` every sensor acts only on its own beliefs or tracks.
    """

    def __init__(self, policy: Policy, scenario: Scenario, features: Sequence[str] = BELIEFS) -> None:
        self.policy, self._features = policy, features_of(scenario, features)
        self.features, self._rows = self._features.beliefs.features, self._features.beliefs.rows

    def start(self, seeds: Sequence[int] | np.ndarray) -> BeliefPolicyState:
        """Return the initial state for scenes with these seeds (B,)."""
        return BeliefPolicyState(None, started(self.policy, np.repeat(seeds, self._rows)))  # type: ignore[arg-type]

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, BeliefPolicyState]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies."""
        beliefs, own = (None, None) if state is None else state
        scene, beliefs = update(self._features.beliefs, observation, beliefs, episode_start)
        starts = None if episode_start is None else np.repeat(episode_start, self._rows)
        carried = {} if own is None else {"state": own, "episode_start": starts}
        actions, own = self.policy.predict(self._features.describe(scene), deterministic=deterministic, **carried)
        n = self._features.scenario.num_sensors
        taken = self._features.beliefs.of_sensors(actions.reshape(len(actions), -1, n).swapaxes(1, 2))
        return taken.swapaxes(1, 2).reshape(len(taken), -1), BeliefPolicyState(beliefs, own)  # (B, n, turns and zooms)

    def estimate(self, state: BeliefPolicyState, **options: float) -> Estimate:
        """Return the tracks; see :meth:`~hitmac.agents.tracking.Tracks.estimate`."""
        assert isinstance(self._features.beliefs, Tracks)
        assert isinstance(state.beliefs, TracksState)
        return self._features.beliefs.estimate(state.beliefs, **options)


class OwnKnowledge:
    """Recurrent policy for the knowledge ``"neighbours"`` and ``"own"``: every sensor runs it on its own knowledge.

    Each sensor describes the whole scene in :data:`~hitmac.agents.learned.recurrent.RECURRENT_FEATURES`: the targets
    that it sees, or whose positions it receives without delay, relative to every sensor; all sensors' positions and
    headings are common knowledge. It decides only its own turn, so that no action depends on another sensor's
    knowledge. The description assumes that other sensors see everything in their views, also behind obstacles, and
    that lenses keep their fields of view.
    """

    def __init__(self, policy: Policy, scenario: Scenario) -> None:
        self.policy, self._scenario = policy, scenario
        view = scenario.of_each_sensor("field_of_view")
        self._half_view_cosine = np.where(view < 360.0, np.cos(np.radians(0.5 * view)), -2.0)[:, None]  # (n, 1)
        self._range_squared = scenario.of_each_sensor("sensing_range")[:, None] ** 2

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies; each array of the state is (B, n, ...)."""
        pairs = self.describe(observation["pairs"])
        b, n, _, m, _ = pairs.shape
        own = None if state is None else tuple(array.reshape(b * n, *array.shape[2:]) for array in state)
        starts = None if episode_start is None else np.repeat(episode_start, n)
        scenes = {"pairs": pairs.reshape(b * n, n, m, -1), "mask": np.ones((b * n, n, m), np.int8)}
        actions, new = self.policy.predict(scenes, own, starts, deterministic)
        assert new is not None
        numbers = np.arange(actions.shape[-1])  # of a sensor's first decision, then of its second
        taken = actions.reshape(b, n, -1)[:, numbers % n, numbers]
        return taken, tuple(array.reshape(b, n, *array.shape[1:]) for array in new)

    def describe(self, pairs: np.ndarray) -> np.ndarray:
        """Return the features (B, n, n, m, d) of all pairs as described by each sensor, on the second axis."""
        scenario = self._scenario
        shown = dict(zip(RECURRENT_FEATURES, np.moveaxis(pairs.astype(np.float64), -1, 0), strict=True))  # (B, n, m)
        half_width, half_height = scenario.extent
        x, y = half_width * shown["sensor_x"], half_height * shown["sensor_y"]
        cos, sin = shown["heading_cos"], shown["heading_sin"]
        east, north = _turned(shown["bearing_cos"], shown["bearing_sin"], cos, sin)
        away = scenario.distance_scale * shown["distance"]
        velocity = _turned(shown["radial_velocity"], shown["tangential_velocity"], east, north)
        # Axes from here: scene, describing sensor, described sensor, target.
        of, by = (slice(None), None), (slice(None), slice(None), None)
        dx, dy = (x + away * east)[by] - x[of], (y + away * north)[by] - y[of]
        distance = np.hypot(dx, dy)
        away = np.where(distance > 0, distance, 1.0)
        east, north = np.where(distance > 0, dx / away, 1.0), dy / away
        ahead, aside = _turned(east, north, cos[of], -sin[of])
        radial, tangential = _turned(velocity[0][by], velocity[1][by], east, -north)
        seen = (shown["seen_now"][by] != 0) & (cos**2 + sin**2 > 0.5)[of]  # by a sensor that works
        in_range = distance**2 <= self._range_squared
        visible = in_range & (ahead > self._half_view_cosine) & seen
        own = np.arange(scenario.num_sensors)
        visible[:, own, own] = shown["visible"] != 0
        others = visible.sum(2, keepdims=True) - visible
        described = np.empty((*seen.shape, len(RECURRENT_FEATURES)), np.float32)
        features = (  # in the order of RECURRENT_FEATURES
            aside, ahead, distance / scenario.distance_scale, in_range, visible, others, radial, tangential, seen,
        )  # fmt: skip
        for number, feature in enumerate(features):
            described[..., number] = feature * seen
        described[..., OF_SENSOR:] = pairs[..., OF_SENSOR:][of]
        return described


def _turned(x: np.ndarray, y: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors rotated counter-clockwise by the angles with these cosines and sines."""
    return cos * x - sin * y, sin * x + cos * y
