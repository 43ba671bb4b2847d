"""Policies exported as ONNX, on tracks of real detections."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hitmac.agents.export.folder import CARD
from hitmac.agents.policy import Observation, Starts, State
from hitmac.agents.registry import Agent
from hitmac.agents.tracking import Tracks
from hitmac.agents.tracking.features import update
from hitmac.agents.tracking.tracks import Estimate
from hitmac.envs.scenario import Scenario


class _State(NamedTuple):
    beliefs: Any  # the tracks
    runner: Any


class ExportedPolicy:
    """Policy of named targets from a folder of ``hitmac export``, run by onnxruntime.

    Its targets are the tracks that exist with a probability of 1/2 or more, under their labels.

    Raises ValueError for a policy of another number of sensors, ModuleNotFoundError without onnxruntime.
    """

    features = ("detections",)

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        try:
            from hitmac.agents.export import run
        except ModuleNotFoundError:
            raise ModuleNotFoundError(f"{folder} needs onnxruntime: pip install 'hitmac[export]'") from None
        self._begin, self._tracks = lambda: run.Agent(folder), Tracks(scenario, forecast=False)
        if (n := self._begin().site["num_sensors"]) != scenario.num_sensors:
            raise ValueError(f"{folder} is a policy of {n} sensors; the site has {scenario.num_sensors}")

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, State]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies, for one scene."""
        tracks, runner = (None, self._begin()) if state is None else state
        _, tracks = update(self._tracks, observation, tracks, episode_start)
        found = self._tracks.estimate(tracks)
        shown = found.label[0, 0] > 0
        labels, sensors = found.label[0, 0, shown].tolist(), observation["sensors"][0].astype(np.float64)
        heading = np.where(sensors.any(-1), np.degrees(np.arctan2(sensors[:, 2], sensors[:, 3])), np.nan)
        left = runner.memory.rows.keys() - set(labels)
        places = {"sensor_position": sensors[:, :2], "heading": heading}
        return runner.decide(found.place[0, 0, shown], labels, left, **places)[:1], _State(tracks, runner)

    def estimate(self, state: Any, **options: float) -> Estimate:
        """Return the tracks; see :meth:`~hitmac.agents.tracking.Tracks.estimate`."""
        return self._tracks.estimate(state.beliefs, **options)


def exported_agent(name: str, scenario: Scenario) -> Agent | None:
    """Return the agent of an exported folder; None for any other name."""
    if not (Path(name) / CARD).is_file():
        return None
    policy = ExportedPolicy(Path(name), scenario)
    return Agent(name, policy, policy.features)
