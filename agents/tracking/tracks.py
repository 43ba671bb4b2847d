"""Multi-target tracker: tracks of targets from detections without identities.

A track is a potential target: a label that never changes, a probability of existence, and a state. While a track is
detected, its state is a mixture of two normal distributions of position and velocity, one for each mode of an
interacting multiple model; after some sub-steps without a detection, it is the particles that move as the targets do.
Targets that were never detected are an intensity: weighted particles whose sum is their expected number.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from hitmac.agents.policy import Starts, State, check_finite
from hitmac.agents.tracking.association import LEAST, exchange_all, scatter_all, track_all
from hitmac.agents.tracking.beliefs import AGE, Estimator, Rules, Scene
from hitmac.agents.tracking.recorded import NewPieces
from hitmac.agents.tracking.sight import certain_view
from hitmac.agents.tracking.track_states import LOST, make_model
from hitmac.agents.tracking.walk_model import walk_model
from hitmac.envs.parts.detections import DetectionObserver
from hitmac.envs.scenario import Scenario

COLUMNS = ("x", "y", "sin", "cos", "half_view", "range", "along", "rate", "pending")
"""Columns of the sensors in an observation of detections, the last two with motors only."""

_ERRORS = 8.0  # standard deviations, of both axes together, that a detection may be outside the arena
_ROUNDED = 1e-4  # standard deviation of the rounding of detections, in half the shorter side of the arena


class TracksState(NamedTuple):
    """At most k tracks in B scenes, each with g rows of knowledge: one shared by all sensors, or one for each.

    A slot without existence is free.
    """

    body: np.ndarray  # (B, g, k + 1, d, P) rows of the particles of the tracks and of unseen targets, see walk_model
    weight: np.ndarray  # (B, g, k + 1, P), whose sum is the existence of a track, or the expected number of the unseen
    course: np.ndarray  # (B, g, k + 1, 8), unused
    stream: np.ndarray  # (B, g, 2) uint64
    mean: np.ndarray  # (B, g, k, 2, 4) x, y and velocity in each mode
    covariance: np.ndarray  # (B, g, k, 2, 4, 4)
    mode: np.ndarray  # (B, g, k, 2) probabilities of the modes
    existence: np.ndarray  # (B, g, k)
    age: np.ndarray  # (B, g, k) int64: sub-steps since the last detection
    label: np.ndarray  # (B, g, k) int64, from 1
    labels: np.ndarray  # (B, g) int64: labels given so far
    known: np.ndarray  # (B, g, k, 5) position and velocity at the last detection, sub-steps since then
    time: np.ndarray  # (B,) int64: calls since the episode began


class Estimate(NamedTuple):
    """Tracks in B scenes, for g rows of knowledge."""

    place: np.ndarray  # (B, g, k, 2) means
    covariance: np.ndarray  # (B, g, k, 2, 2)
    label: np.ndarray  # (B, g, k), 0 for none


def _checks(scenario: Scenario, detections: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    """Yield what each of the detections (..., 5) must fulfil, as a mask (...), and in words."""
    finite = np.isfinite(detections).all(-1)
    x, y, xx, xy, yy = np.moveaxis(np.where(finite[..., None], detections, 0.0), -1, 0)
    (width, height), error = scenario.extent, _ERRORS * np.sqrt(np.abs(xx + yy))
    yield finite, "every number must be finite"
    valid = (xx >= 0.0) & (yy >= 0.0) & (xy * xy <= xx * yy * (1.0 + 1e-5) + 1e-9)
    yield valid, "xx, xy and yy must be a covariance: none negative, and xy^2 at most xx yy"
    inside = (np.abs(x) <= width * (1.0 + 1e-6) + error) & (np.abs(y) <= height * (1.0 + 1e-6) + error)
    yield inside, f"it must be inside the arena of {scenario.arena_words}, but for its error"


def detection_faults(scenario: Scenario, detections: np.ndarray) -> list[str]:
    """Return why each of the detections (k, 5) is invalid; "" for a valid one."""
    faults = [""] * len(detections)
    for fits, words in _checks(scenario, detections):
        faults = [fault or ("" if good else words) for fault, good in zip(faults, fits.tolist(), strict=True)]
    return faults


def _moments(points: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (..., 2) and the covariance (..., 2, 2) of points (..., P, 2) with the weights (..., P, 1)."""
    mean = (points * share).sum(-2)
    apart = points - mean[..., None, :]
    return mean, (apart * share).swapaxes(-1, -2) @ apart


class Tracks(Estimator):
    """Multi-target tracker: from detections without identities to tracks, with the interface of ``Beliefs``.

    Detections have errors of known covariance, miss targets, and include false ones. A track j has a probability of
    existence r, and two normal distributions of (x, v), for a quiet and a turning target, whose velocities change at
    random at the beginning of a sub-step: an interacting multiple model (Bar-Shalom, Li, Kirubarajan, "Estimation with
    Applications to Tracking and Navigation", 2001, section 11.6). One sensor after the other, with the probability p
    that it detects the track (0 out of view and behind obstacles) and the densities g of its detections::

        assignment   the largest sum of log(r p g / ((1 - r p) (f + b))) over pairs inside the gate: the global nearest
                     neighbour (Blackman, Popoli, "Design and Analysis of Modern Tracking Systems", 1999, chapter 6)
        detected     r' = r L / (1 - r + r L),  L = 1 - p + p g / (f + b), then the Kalman filter
        missed       r' = r (1 - p) / (1 - r p)
        new          a detection without a track begins one with r = b / (f + b)

    f is the density of false detections, their mean number over the area in view, b that of detections of unseen
    targets: p times the intensity of the particles of targets that were never detected (Musicki, Evans, Stankovic,
    "Integrated probabilistic data association", IEEE TAC 1994; Williams, "Marginal multi-Bernoulli filters", IEEE TAES
    2015). After 5 sub-steps without a detection, the particles of the planner replace the normal distributions: they
    move as the targets do, and every view without the target reduces their weights. A track ends below the existence
    0.01. Since tracks also end by mistake, new unseen targets are expected anywhere, 0.002 of all in a sub-step; with
    recorded motion they arrive as recorded.

    With the knowledge ``"own"`` or ``"neighbours"`` every sensor has its own tracks. Neighbours send those that they
    detect at that moment, over one link and without delay, whatever the scenario's `hops` and `message_delay`; messages
    are lost at random. The receiver treats them as detections, and fuses them by covariance intersection (Julier,
    Uhlmann, "A non-divergent estimation algorithm in the presence of unknown correlations", ACC 1997).

    Args:
        scenario: the scenario; of the targets, their walk is assumed to be known, but not how many are present.
        particles: P, particles of a track; 1 or more.
        seed: seed of the particles, which is the same in all scenes.
        forecast: give particles to all tracks, as planners need; False: only to those that are lost, which is faster.

    Attributes:
        rules: the scenario, for kernels.
        most: k, most tracks: twice the targets of the scenario.
        unseen: expected number of targets at first, none of which has a track: those of the scenario, and with recorded
            motion their mean number.
    """

    features: tuple[str, ...] = DetectionObserver.features

    def __init__(self, scenario: Scenario, particles: int = 64, seed: int = 0, *, forecast: bool = True) -> None:
        super().__init__(scenario, particles, seed)
        self.forecast, self.most = forecast, 2 * scenario.num_targets
        noise = float(np.max(scenario.position_errors))
        self.rules = Rules(walk_model(scenario), scenario.extra_move_interval, max(noise, 1e-3), False, True)
        self.model = make_model(scenario, self.rules.walk, self.pieces, float(scenario.num_targets))
        self.unseen, k = self.model.expected, self.most
        self._shapes = self._particles_of(self.rules.walk, k + 1) | {
            "mean": (k, 2, 4), "covariance": (k, 2, 4, 4), "mode": (k, 2), "existence": (k,), "age": (k,),
            "label": (k,), "labels": (), "known": (k, 5),
        }  # fmt: skip

    def update(
        self,
        detections: np.ndarray,
        mask: np.ndarray,
        sensors: np.ndarray,
        state: State = None,
        episode_start: Starts = None,
        looked: np.ndarray | None = None,
    ) -> tuple[Scene, TracksState]:
        """Return the tracks after an observation, needed at every sub-step, and the state, which share their arrays.

        The tracks of the :class:`~hitmac.agents.tracking.beliefs.Scene` take the place of targets; the weights of the
        particles of a track sum to its existence.

        Args:
            detections: (B, n, d, 5) x, y and the covariance xx, xy, yy of their errors.
            mask: (B, n, d) bool, the valid detections.
            sensors: (B, n, 7) x, y, sine and cosine of the heading, half the field of view in degrees, range, and the
                place on the rail / its length; with motors (B, n, 9), also the rate and the pending turn in degrees;
                with tilts two more, the tilt in degrees and the distance of the near edge; all 0 for a sensor that does
                not work. The place and the rate are ignored, without a planner all three.
            state: state returned by the last call; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins; their tracks are forgotten.
            looked: (B, n) bool, the sensors that have looked since the last call; that the others detect nothing is no
                evidence, and they exchange no tracks. None: all.

        Raises:
            ValueError: another shape, or an invalid detection, which the message names.
        """
        detections, mask, sensors = self.checked(detections, mask, sensors)
        detections[..., 2::2] += (_ROUNDED * min(self.scenario.extent)) ** 2
        names = COLUMNS if not self.scenario.tilt_limits else (*COLUMNS[: sensors.shape[-1] - 2], "tilt", "near")
        of = dict(zip(names, np.moveaxis(sensors, -1, 0), strict=False))
        g, k, p, rows = self.rows, self.most, self.particles, len(mask) * self.rows
        frame = self._begin(TracksState, self._shapes, np.zeros((rows, 0, 3)), state, episode_start)
        new, own, run = frame.new, frame.rows, frame.run
        new.existence[frame.starts], new.labels[frame.starts] = 0.0, 0
        new.known[frame.starts, ..., AGE] = np.inf
        clear = np.zeros((1, self.scenario.num_sensors, 0), np.float32)
        if not self.model.everywhere:
            clear = self._sight.clear(of["x"], of["y"])
        present, nothing = np.zeros((rows, k), np.bool_), np.zeros(mask.shape[:2])
        scene = self._scene(
            frame, own.known, self._views(of), clear, present, lens=2.0 * of["half_view"], along=of["along"],
            pending=of.get("pending", nothing), tilt=of.get("tilt", nothing),
        )  # fmt: skip
        scanned = scene
        if looked is not None:
            scanned = scene._replace(views=np.where(np.repeat(looked, g, 0)[..., None], scene.views, 0.0))
        run(track_all, self.rules, self.model, own, scanned, detections, mask, self.pieces)
        if self.scenario.knowledge == "neighbours":
            estimate = self.estimate(new)
            covariance = estimate.covariance[..., (0, 0, 1), (0, 1, 1)]
            told, sent = np.concatenate((estimate.place, covariance), -1), (estimate.label > 0) & (new.age == 0)
            link = self.scenario.communication_range**2, self.scenario.message_loss_rate
            run(exchange_all, self.rules, self.model, link, own, scanned, told, sent)
        pieces = NewPieces(self.pieces, np.zeros((rows, 0, p), np.int64), np.zeros((rows, 0)))
        if self._finder is not None:
            mean = np.take_along_axis(own.mean, own.mode.argmax(-1)[..., None, None], 2)[:, :, 0]
            found = (own.existence > 0.0) & (own.age < LOST) & (self.forecast | (own.age == LOST - 1))
            pieces = NewPieces(self.pieces, self._finder.nearest(mean, found, p), np.zeros((rows, k)))
        run(scatter_all, self.rules, own, scene, self.forecast, pieces, self._draws)
        self._end(frame)
        return scene, new

    def estimate(self, state: TracksState, least: float = 0.5, within: float = math.inf) -> Estimate:
        """Return the tracks whose target exists, less than `within` from its mean, with probability `least` or more."""
        lost = state.age[..., None] >= LOST
        share = state.weight[:, :, :-1] / np.maximum(state.existence, LEAST)[..., None]
        places, share = state.body[:, :, :-1, :2].swapaxes(-1, -2), np.where(share > 0.0, share, 0.0)[..., None]
        mean, covariance = _moments(state.mean[..., :2], state.mode[..., None])
        covariance += (state.covariance[..., :2, :2] * state.mode[..., None, None]).sum(-3)
        places = np.where(share > 0.0, places, 0.0)
        far, spread = _moments(places, share)
        place, covariance = np.where(lost, far, mean), np.where(lost[..., None], spread, covariance)
        near = -np.expm1(-(within**2) / np.maximum(np.trace(covariance, axis1=-2, axis2=-1), 1e-9))  # of a normal one
        nearby = (share[..., 0] * (np.linalg.norm(places - far[..., None, :], axis=-1) < within)).sum(-1)
        located = state.existence * np.where(lost[..., 0], nearby, near)
        return Estimate(place, covariance, np.where(located >= least, state.label, 0))

    def checked(self, detections: Any, mask: Any, sensors: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the arrays of an observation as float64 and bool; raise ValueError as :meth:`update` does."""
        n = self.scenario.num_sensors
        detections, mask, sensors = np.asarray(detections), np.asarray(mask), np.asarray(sensors)
        tilts = 2 * bool(self.scenario.tilt_limits)
        columns = tilts + (9 if sensors.shape[-1:] == (9 + tilts,) else 7)
        shapes = (*mask.shape, 5), (*mask.shape[:1], n, columns)
        if mask.ndim != 3 or mask.shape[1] != n or (detections.shape, sensors.shape) != shapes:
            raise ValueError(
                f"detections, mask and sensors have shapes {detections.shape}, {mask.shape} and {sensors.shape}; they "
                f"must be (B, {n}, d, 5), (B, {n}, d) and (B, {n}, {columns})"
            )
        detections, mask = np.array(detections, np.float64), np.ascontiguousarray(mask != 0)
        for fits, words in _checks(self.scenario, detections):
            if (wrong := mask & ~fits).any():
                b, i, k = np.argwhere(wrong)[0].tolist()
                numbers = ", ".join(f"{number:g}" for number in detections[b, i, k])
                raise ValueError(f"detection {k} of sensor {i} in scene {b} is ({numbers}); {words}")
        check_finite("sensors", sensors)
        return detections, mask, np.ascontiguousarray(sensors, np.float64)

    def _views(self, of: dict[str, np.ndarray]) -> np.ndarray:
        """Return the views (R, n, 7 or 8) of the sensors with these columns (B, n)."""
        half = 0.5 * certain_view(2.0 * of["half_view"], self.scenario)
        half_cosine = np.where(of["half_view"] < 180.0, np.cos(np.radians(half)), -2.0)
        chance = (1.0 - np.mean(self.scenario.miss_rates)) * (of["range"] > 0.0)
        near = [of["near"] ** 2] if "near" in of else []
        views = np.stack((of["x"], of["y"], of["cos"], of["sin"], half_cosine, of["range"] ** 2, chance, *near), -1)
        return np.repeat(views, self.rows, 0)
