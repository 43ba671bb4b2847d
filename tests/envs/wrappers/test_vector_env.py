"""Gymnasium vector environments: equal to gymnasium's own vector of single environments."""

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hitmac.envs.tasks import CoverageTask
from hitmac.envs.wrappers.vector_env import DirectionalSensorVectorEnv
from tests.envs.scenes import UNNAMED

ID = "dsn/Coverage-v0"
DISABLED = AutoresetMode.DISABLED
CASES = [(ID, mode, None) for mode in AutoresetMode]
CASES += [("dsn/Executor-v0", AutoresetMode.SAME_STEP, None), ("dsn/Coordinator-v0", AutoresetMode.NEXT_STEP, None)]
CASES += [(ID, AutoresetMode.SAME_STEP, UNNAMED), ("dsn/Transport-v0", AutoresetMode.NEXT_STEP, "mate-2v4-0")]


@pytest.mark.parametrize(("env_id", "mode", "scenario"), CASES)
def test_the_native_vector_is_gymnasiums_vector_of_singles(env_id, mode, scenario):
    """Every return value equals that of gymnasium's SyncVectorEnv, across several ends of episodes."""
    native = gymnasium.make_vec(env_id, num_envs=3, max_episode_steps=5, autoreset_mode=mode, scenario=scenario)
    make = [lambda: gymnasium.make(env_id, max_episode_steps=5, scenario=scenario)]
    reference = SyncVectorEnv(make * 3, autoreset_mode=mode)
    native.action_space.seed(0)
    same(native.reset(seed=11), reference.reset(seed=11))
    ended = np.zeros(3, bool)
    for step in range(23):
        if mode is DISABLED and ended.any():
            same(native.reset(options={"reset_mask": ended}), reference.reset(options={"reset_mask": ended.copy()}))
        action = native.action_space.sample()
        ours, theirs = native.step(action), reference.step(action)
        same(ours, theirs)
        ended = ours[3] | (np.arange(3) == 0) & (step == 1)  # from there on the scenes end at different times
    assert native.metadata["autoreset_mode"] is mode


def same(ours, theirs, mask=slice(None)):
    """Equal in value where the masks of their infos are true; ours may hold more scenes."""
    if isinstance(theirs, dict):
        for key, value in theirs.items():
            if not key.startswith("_"):
                same(ours[key], value, theirs.get(f"_{key}", slice(None)))
    elif isinstance(theirs, tuple):
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    elif theirs.dtype == object:
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_equal(a, b)
    else:
        np.testing.assert_array_equal(ours[mask], theirs[mask])


def test_returned_arrays_are_new_and_options_place_some_scenes():
    vector = gymnasium.make_vec(ID, num_envs=3, max_episode_steps=7)
    returned = [vector.reset(seed=0)]
    copies = [copy.deepcopy(returned[0])]
    for step in range(1, 8):
        returned.append(vector.step(np.ones((3, 4), int)))
        copies.append(copy.deepcopy(returned[-1]))
        assert returned[-1][3].tolist() == [step == 7] * 3
    np.testing.assert_equal(returned, copies)
    assert vector.np_random_seed == 0
    vector.reset(seed=0, options={"heading": [[1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 7, 8]]})
    vector.reset(options={"heading": [9] * 4, "reset_mask": np.array([False, True, True])})
    assert vector.task.simulator.state.heading.tolist() == [[1, 2, 3, 4], [9] * 4, [9] * 4]


class Live(CoverageTask):
    """Task whose reward is an array of the simulator."""

    def step(self, *args, **options):
        super().step(*args, **options)
        return self.simulator.state.coverage


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_reward_is_that_of_its_step_also_where_the_task_keeps_the_array(mode):
    vector = DirectionalSensorVectorEnv(Live, 64, max_episode_steps=3, autoreset_mode=mode)
    vector.reset(seed=0)
    for step in range(1, 6):
        _, reward, _, truncated, info = vector.step(np.ones((64, 4), int))
        last = info["final_info"] if truncated.any() and mode == "SameStep" else info
        begins = mode == "NextStep" and step == 4
        np.testing.assert_array_equal(reward, 0.0 * reward if begins else last["coverage"])
        assert last["coverage"].any()


def test_wrong_use_is_refused():
    for wrong in ("Never", None, np.ones(2), ["team"]):
        with pytest.raises((TypeError, ValueError), match=r"autoreset_mode is .*; it must be one of NextStep"):
            DirectionalSensorVectorEnv("Coverage", num_envs=2, autoreset_mode=wrong)
    vector = gymnasium.make_vec(ID, num_envs=2, max_episode_steps=1, autoreset_mode="Disabled")
    vector.reset(seed=0)
    with pytest.raises(ValueError, match=r"reset_mask is .*; it must be a bool array"):
        vector.reset(options={"reset_mask": [True, False]})
    vector.step(np.zeros((2, 4), int))
    for scene in (0, 1):
        with pytest.raises(RuntimeError, match=f"scene {scene} has ended"):
            vector.step(np.zeros((2, 4), int))
        vector.reset(options={"reset_mask": np.arange(2) == scene})
    vector.step(np.zeros((2, 4), int))
