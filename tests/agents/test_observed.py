"""Observations of other shapes than a policy decides on: one line that says what it needs."""

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.baselines.levels import COORDINATORS, EXECUTORS, scripted_level
from hitmac.agents.registry import SCRIPTED
from hitmac.envs import load_scenario
from hitmac.envs.tasks import CoverageTask

SCENE = load_scenario("hit-mac")
LEVELS = {**COORDINATORS, **{f"executor {name}": kind for name, kind in EXECUTORS.items()}}
POLICIES = [*SCRIPTED, *LEVELS]
CHANGES = {
    "no batch": lambda array: array[0],
    "one axis more": lambda array: array[None],
    "no targets": lambda array: array[..., :0, :] if array.dtype == np.float32 else array[..., :0],
}


def policy_of(name):
    if name in SCRIPTED:
        return load_agent(name, SCENE).policy
    return scripted_level(LEVELS[name], SCENE)


def observation(policy, name):
    """An observation of two scenes, of rows for an executor."""
    shown = CoverageTask(SCENE, 2, 0, features=policy.features).observe()
    rows = name.startswith("executor")
    return {part: array.reshape(-1, *array.shape[2:]) if rows else array for part, array in shown.items()}


@pytest.mark.parametrize("name", POLICIES)
def test_it_decides_on_scenes_or_rows_and_on_none(name):
    policy = policy_of(name)
    shown = observation(policy, name)
    decided, _ = policy.predict(shown)
    assert len(decided) == len(shown["mask"])
    if name not in COORDINATORS:
        assert len(policy.predict({part: array[:0] for part, array in shown.items()})[0]) == 0


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", POLICIES)
def test_another_shape_is_refused(name, change):
    policy = policy_of(name)
    shown = {part: CHANGES[change](array) for part, array in observation(policy, name).items()}
    with pytest.raises(ValueError, match=r"mask has shape .*; it must be \((scenes|rows)") as raised:
        policy.predict(shown)
    assert ("give mask[None] and pairs[None]" in str(raised.value)) == (change == "no batch")


@pytest.mark.parametrize("wrong", [{}, None, np.zeros(3), {"pairs": np.zeros(3)}, (1, 2)])
@pytest.mark.parametrize("name", POLICIES)
def test_what_is_no_observation_is_refused(name, wrong):
    with pytest.raises(ValueError, match=r"the observation is .*; it must be a dict of pairs and mask"):
        policy_of(name).predict(wrong)


@pytest.mark.parametrize("name", ["nearest", "greedy", "exact", "belief-planner"])
def test_a_policy_of_sensors_has_their_number(name):
    policy = policy_of(name)
    shown = {part: array[:, :-1] for part, array in observation(policy, name).items()}
    with pytest.raises(ValueError, match=r"mask has shape \(2, 3, 5\); it must be \(scenes, 4 sensors"):
        policy.predict(shown)
