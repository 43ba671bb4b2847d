"""Small agents, checkpoints and evaluations for these tests."""

import numpy as np

from hitmac.agents import save_policy
from hitmac.agents.registry import Agent
from hitmac.envs import load_scenario
from tests.agents.untrained import untrained

HIT_MAC = load_scenario("hit-mac")
SHORT = {"episodes": 3, "max_episode_steps": 4, "progress": False}
NOTHING = {"mean": None, "std": None, "ci95": None, "iqm": None}


class Left:
    """Agent, or executor, that turns every sensor to the left."""

    features, padding = ("distance",), "attended"

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert observation["pairs"].shape[-1] == len(self.features)
        return np.ones(observation["mask"].shape[:-1], int), None


class Learned(Left):
    trained = True


def trainings(name, number):
    """Agents of one name with different trainings."""
    return [Agent(name, Learned(), Learned.features, run=f"{name}-{k}", trained=True) for k in range(number)]


def saved(folder, seed=0, task="Coverage"):
    """Write the checkpoint of an untrained policy; return its folder."""
    save_policy(folder, *untrained("hit-mac", task, seed=seed))
    return folder


def entry(mean, half=0.01):
    """Statistics of a metric."""
    return {"mean": mean, "std": 0.1, "ci95": [mean - half, mean + half], "iqm": mean}


def evaluation(places, bounds=(), scale=1.0, **trainings):
    """Evaluation with the given coverage and rotation of every agent, without the values of single episodes."""
    results = {
        name: {
            "coverage": entry(scale * coverage),
            "decision_reward": entry(scale * coverage - 0.02),
            "rotation": NOTHING if rotation is None else entry(rotation, 0.01 if rotation else 0.0),
            "average_gain": entry(coverage / rotation) if rotation else NOTHING,
            "least_covered": entry(coverage / 2),
            "inference_ms": 0.5,
            "over_time": (coverage - 0.2 * np.exp(-np.arange(20.0))).tolist(),
            "trainings": trainings.get(name, 0),
            "interval": "episodes",
        }
        | ({"bound": "upper bound"} if name in bounds else {})
        for name, (coverage, rotation) in places.items()
    }
    return {"scenario": "hit-mac", "episodes": 200, "seeds": [0, 199], "sub_steps": 1000, "agents": results}
