"""Multi-target trackers on the same detections: GOSPA and processor time of a scan, against Stone Soup.

Cameras are turned by a belief planner that knows the identities; the trackers get the detections alone. Stone Soup's
components run sensor by sensor, and associate only the tracks in view of the sensor, so that no track is missed where
nobody looks. Its constants were chosen on other seeds: the best of a grid for each tracker and noise.
"""

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

SCENES, STEPS, SEED = 10, 100, 0
C, P = 100.0, 2.0
"""Cut-off distance and power of GOSPA."""

CASES = (
    {"position_noise": 10.0, "missed_detections": 0.1, "false_detections": 0.02},
    {"position_noise": 50.0, "missed_detections": 0.3, "false_detections": 0.1},
)


class Scan(NamedTuple):
    """Observation of all scenes, and the truth."""

    detections: np.ndarray  # (B, n, d, 5)
    mask: np.ndarray  # (B, n, d)
    sensors: np.ndarray  # (B, n, 7)
    truth: np.ndarray  # (B, m, 2)


def play(case: dict[str, float], seed: int, scenes: int = SCENES) -> tuple[Any, list[Scan]]:
    """Return the scenario and its scans."""
    from hitmac import envs
    from hitmac.agents import scripted_agent
    from hitmac.envs.observation import Observer
    from hitmac.envs.parts.detections import DetectionObserver

    scenario = envs.load_scenario("hit-mac").replace(knowledge="shared", identities=False, **case)
    named = scenario.replace(identities=True, false_detections=0.0)
    agent = scripted_agent("belief-planner-fastest", named)
    simulator, shown = envs.Simulator(named, scenes, seed), Observer(named, agent.features)
    observer, state, scans = DetectionObserver(scenario), None, []
    for _ in range(STEPS):
        scans.append(Scan(**observer.observe(simulator), truth=simulator.state.target_position.copy()))
        actions, state = agent.predict(shown.observe(simulator), state)
        simulator.step(actions)
    return scenario, scans


def own(scenario: Any, scans: list[Scan]) -> Iterator[np.ndarray]:
    """Yield the estimates (B, k, 2) of :class:`~hitmac.agents.tracking.tracks.Tracks`, NaN for none, by scan."""
    from hitmac.agents.tracking.tracks import Tracks

    tracker, state = Tracks(scenario, forecast=False), None
    for scan in scans:
        _, state = tracker.update(*scan[:3], state)
        found = tracker.estimate(state, within=C)
        yield np.where(found.label[..., None] > 0, found.place, np.nan)[:, 0]


def _in_view(sensor: np.ndarray, place: np.ndarray) -> bool:
    x, y, sin, cos, half, reach = sensor[:6]
    dx, dy = place[0] - x, place[1] - y
    away = np.hypot(dx, dy)
    return away <= reach and cos * dx + sin * dy > np.cos(np.radians(half)) * away


def soup(
    scenario: Any, scans: list[Scan], *, joint: bool, power: float, keep: float, points: int
) -> Iterator[np.ndarray]:
    """Yield the estimates of Stone Soup's JPDA (`joint`) or global nearest neighbour, as :func:`own` does.

    `power` is that of the acceleration; tracks end `keep` scans after their last detection, and begin with `points`.
    """
    from stonesoup.dataassociator.neighbour import GNNWith2DAssignment
    from stonesoup.dataassociator.probability import JPDA
    from stonesoup.deleter.time import UpdateTimeDeleter
    from stonesoup.functions import gm_reduce_single
    from stonesoup.hypothesiser.distance import DistanceHypothesiser
    from stonesoup.hypothesiser.probability import PDAHypothesiser
    from stonesoup.initiator.simple import MultiMeasurementInitiator
    from stonesoup.measures import Mahalanobis
    from stonesoup.models.measurement.linear import LinearGaussian
    from stonesoup.models.transition.linear import CombinedLinearGaussianTransitionModel, ConstantVelocity
    from stonesoup.predictor.kalman import KalmanPredictor
    from stonesoup.types.array import StateVectors
    from stonesoup.types.detection import Detection
    from stonesoup.types.state import GaussianState
    from stonesoup.types.update import GaussianStateUpdate
    from stonesoup.updater.kalman import KalmanUpdater

    began, step = datetime(2000, 1, 1), timedelta(seconds=scenario.time_step)
    model = CombinedLinearGaussianTransitionModel([ConstantVelocity(power), ConstantVelocity(power)])
    measured = LinearGaussian(4, [0, 2], np.diag([scenario.position_noise**2] * 2))
    predictor, updater = KalmanPredictor(model), KalmanUpdater(measured)
    nearest = DistanceHypothesiser(predictor, updater, Mahalanobis(), missed_distance=4)
    area = np.radians(scenario.field_of_view) / 2 * scenario.sensing_range**2
    likely = PDAHypothesiser(
        predictor, updater, scenario.false_detections / area, 1.0 - scenario.missed_detections, 0.9999
    )
    speed = 0.5 * (scenario.min_speed + scenario.max_speed) * (1.0 + 0.5 * scenario.speed_noise) / np.sqrt(2.0)
    prior = GaussianState([[0], [0], [0], [0]], np.diag([0.0, speed**2, 0.0, speed**2]), began)
    scenes: list[tuple[Any, Any, Any, set[Any]]] = []
    for _ in range(len(scans[0].truth)):
        deleter = UpdateTimeDeleter(keep * step)
        initiator = MultiMeasurementInitiator(
            prior, UpdateTimeDeleter(2 * step), GNNWith2DAssignment(nearest), updater, measured, points
        )
        scenes.append((JPDA(likely) if joint else GNNWith2DAssignment(nearest), initiator, deleter, set()))
    for t, scan in enumerate(scans):
        now, places = began + t * step, []
        for b, (associator, initiator, deleter, tracks) in enumerate(scenes):
            for i, sensor in enumerate(scan.sensors[b]):
                listed = {
                    Detection(np.array(one[:2], float)[:, None], now, measurement_model=measured)
                    for one in scan.detections[b, i][scan.mask[b, i] != 0]
                }
                ahead = {track: predictor.predict(track, now).state_vector for track in tracks}
                seen = {track for track, place in ahead.items() if _in_view(sensor, (place[0, 0], place[2, 0]))}
                used = set()
                for track, found in associator.associate(seen, listed, now).items() if seen else ():
                    if not joint:
                        if found:
                            track.append(updater.update(found))
                            used.add(found.measurement)
                        continue
                    states = [updater.update(one) if one else one.prediction for one in found]
                    used |= {one.measurement for one in found if one and one.probability > 0.1}
                    weights = np.array([one.probability for one in found], float)
                    mean, covariance = gm_reduce_single(
                        StateVectors([one.state_vector for one in states]), np.stack([one.covar for one in states], 2),
                        weights,
                    )  # fmt: skip
                    if any(one and one.probability > 0.1 for one in found):
                        track.append(GaussianStateUpdate(mean, covariance, found, now))
                tracks |= initiator.initiate(listed - used, now)
            tracks -= deleter.delete_tracks(tracks, timestamp=now)
            ahead = {track: predictor.predict(track, now).state_vector for track in tracks}
            places.append(np.array([(place[0, 0], place[2, 0]) for place in ahead.values()], float).reshape(-1, 2))
        most = max(1, *map(len, places))
        yield np.array([np.vstack((one, np.full((most - len(one), 2), np.nan))) for one in places])


CHOSEN: dict[tuple[bool, float], dict[str, float]] = {
    (False, 10.0): {"power": 1600.0, "keep": 20.0, "points": 3},
    (True, 10.0): {"power": 1600.0, "keep": 20.0, "points": 3},
    (False, 50.0): {"power": 800.0, "keep": 5.0, "points": 3},
    (True, 50.0): {"power": 400.0, "keep": 5.0, "points": 3},
}
"""Constants of Stone Soup's trackers, by `joint` and noise."""


def score(run: Callable[[], Iterator[np.ndarray]], scans: list[Scan]) -> tuple[float, ...]:
    """Return the mean GOSPA, its parts per scan in targets or units, and the seconds of processor time of a scan."""
    from hitmac.agents.evaluate.tracking import gospa

    began = time.process_time()
    estimates = list(run())
    seconds = (time.process_time() - began) / (len(scans) * len(scans[0].truth))
    parts = [gospa(scan.truth, estimate, C, P) for scan, estimate in zip(scans, estimates, strict=True)]
    total, near, missed, false = (np.mean([part[k] for part in parts]) for k in range(4))
    return float(total), float(np.sqrt(near)), float(2 * missed / C**P), float(2 * false / C**P), seconds


def tracking() -> None:
    """Print a table of all trackers, each on the same detections, and the rate in a large batch."""
    print(
        f"\ntracking: hit-mac, shared, {SCENES} scenes of {STEPS} scans from seed {SEED}; GOSPA with c {C:g}, p {P:g}"
    )
    print(f"  {'noise':>5} {'tracker':<16} {'GOSPA':>6} {'localised':>9} {'missed':>6} {'false':>6} {'ms/scan':>8}")
    for case in CASES:
        scenario, scans = play(case, SEED)
        runs: dict[str, Callable[[], Iterator[np.ndarray]]] = {"hitmac": lambda s=scenario, a=scans: own(s, a)}
        for joint, name in ((False, "Stone Soup GNN"), (True, "Stone Soup JPDA")):
            chosen = CHOSEN[joint, scenario.position_noise]
            runs[name] = lambda s=scenario, a=scans, j=joint, c=chosen: soup(s, a, joint=j, **c)
        list(runs["hitmac"]())  # the kernels are loaded
        for name, run in runs.items():
            *parts, seconds = score(run, scans)
            words = " ".join(f"{part:>{width}.2f}" for part, width in zip(parts, (6, 9, 6, 6), strict=True))
            print(f"  {scenario.position_noise:>5g} {name:<16} {words} {1e3 * seconds:>8.3f}", flush=True)
    scenario, scans = play(CASES[0], SEED, 256)
    began, rates = time.process_time(), []
    for _ in own(scenario, scans):
        rates.append(256 / (time.process_time() - began))
        began = time.process_time()
    print(f"  {np.median(rates[10:]):,.0f} scenes x scans per second of processor time, 256 scenes")
