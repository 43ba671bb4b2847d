"""Policies on beliefs about the targets, on tracks, and on each sensor's own knowledge."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from hitmac.agents.learned.recurrent import OF_SENSOR, RECURRENT_FEATURES
from hitmac.agents.policy import Observation, Policy, Starts, State, started
from hitmac.agents.tracking.beliefs import BeliefState
from hitmac.agents.tracking.features import BELIEFS, features_of, update
from hitmac.agents.tracking.tracks import Estimate, Tracks, TracksState
from hitmac.envs import features
from hitmac.envs.scenario import Scenario


class BeliefPolicyState(NamedTuple):
    """State of a :class:`BeliefPolicy`."""

    beliefs: BeliefState | TracksState | None  # None before the first call
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
        return BeliefPolicyState(None, started(self.policy, np.repeat(seeds, self._rows)))

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, BeliefPolicyState]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies."""
        beliefs, own = (None, None) if state is None else state
        scene, beliefs = update(self._features.beliefs, observation, beliefs, episode_start)
        starts = None if episode_start is None else np.repeat(episode_start, self._rows)
        carried = {} if own is None else {"state": own, "episode_start": starts}
        actions, own = self.policy.predict(self._features.describe(scene), deterministic=deterministic, **carried)
        taken = self._features.beliefs.of_sensors(actions.reshape(len(actions), -1))
        return taken, BeliefPolicyState(beliefs, own)

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
        self._cos_half_view = features.cos_half_view(scenario.of_each_sensor("field_of_view"))[:, None]  # (n, 1)
        self._range_squared = scenario.of_each_sensor("sensing_range")[:, None] ** 2
        self._scales = SimpleNamespace(**{name: scale(scenario) for name, scale in features.SCALES.items()})

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
        shown = dict(zip(RECURRENT_FEATURES, np.moveaxis(pairs.astype(np.float64), -1, 0), strict=True))  # (B, n, m)
        half_width, half_height = self._scenario.extent
        x, y = half_width * shown["sensor_x"], half_height * shown["sensor_y"]
        cos, sin = shown["heading_cos"], shown["heading_sin"]
        east, north = _turned(shown["bearing_cos"], shown["bearing_sin"], cos, sin)
        away, top_speed = self._scenario.distance_scale * shown["distance"], self._scenario.top_speed
        velocity = _turned(top_speed * shown["radial_velocity"], top_speed * shown["tangential_velocity"], east, north)
        # Axes from here: scene, describing sensor, described sensor, target.
        of, by = (slice(None), None), (slice(None), slice(None), None)
        dx, dy = (x + away * east)[by] - x[of], (y + away * north)[by] - y[of]
        distance = np.sqrt(dx * dx + dy * dy)
        with np.errstate(divide="ignore", invalid="ignore"):
            east, north = features.unit(dx, dy, distance)
        seen = (shown["seen_now"][by] != 0) & (cos**2 + sin**2 > 0.5)[of]  # by a sensor that works
        view = cos[of], sin[of], self._range_squared, self._cos_half_view
        visible = seen & features.in_view(*view, dx, dy)
        own = np.arange(len(self._range_squared))
        visible[:, own, own] = shown["visible"] != 0
        rows = (features.DIRECTION_X, features.DIRECTION_Y, features.RANGE_SQUARED)
        pair = SimpleNamespace(
            sensor={(row, ...): values for row, values in zip(rows, view, strict=False)},
            dx=dx, dy=dy, distance=distance, east=east, north=north,
            velocity_x=velocity[0][by], velocity_y=velocity[1][by],
            noticed=visible, seeing=visible.sum(2, keepdims=True), age=np.where(seen, 0.0, 1.0),
        )  # fmt: skip
        described = np.empty((*seen.shape, len(RECURRENT_FEATURES)), np.float32)
        for number, name in enumerate(RECURRENT_FEATURES[:OF_SENSOR]):
            described[..., number] = features.FEATURES[name].formula(pair, self._scales, ...) * seen
        described[..., OF_SENSOR:] = pairs[..., OF_SENSOR:][of]
        return described


def _turned(x: np.ndarray, y: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors rotated counter-clockwise by the angles with these cosines and sines."""
    return cos * x - sin * y, sin * x + cos * y
