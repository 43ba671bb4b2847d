"""TorchRL environments: equal to the vector environments."""

import gymnasium
import numpy as np
import pytest
import torch

from hitmac import envs
from tests.envs.scenes import BY_RATE, UNNAMED

torchrl_utils = pytest.importorskip("torchrl.envs.utils")


@pytest.fixture
def make():
    from hitmac.envs.wrappers.torchrl_env import DirectionalSensorTorchRLEnv

    return DirectionalSensorTorchRLEnv


CASES = [*((task, None) for task in envs.TASKS), ("Coverage", UNNAMED), ("Coverage", BY_RATE)]


@pytest.mark.parametrize(("task", "scenario"), CASES)
def test_it_is_the_vector_environment(make, task, scenario):
    """Equal observations, rewards and ends over three episodes; scene 1 starts its second one early."""
    scenes = make(task, 3, scenario, max_episode_steps=5)
    torchrl_utils.check_env_specs(scenes)
    assert scenes.action_spec.rand().shape == (3, *scenes.task.action_space.shape)
    options = {"max_episode_steps": 5, "autoreset_mode": "Disabled", "scenario": scenario}
    vector = gymnasium.make_vec(f"dsn/{task}-v0", num_envs=3, **options)
    scenes.set_seed(7)
    now, (seen, _) = scenes.reset(), vector.reset(seed=7)
    rng = np.random.default_rng(0)
    for step in range(12):
        for key in seen:
            np.testing.assert_array_equal(now[key], seen[key])
        action = rng.integers(0, 2, (3, *vector.single_action_space.shape)).astype(vector.single_action_space.dtype)
        after = scenes.step(now.set("action", torch.as_tensor(action)))["next"]
        seen, reward, _, ended, info = vector.step(action)
        np.testing.assert_allclose(after["reward"][:, 0], reward, rtol=1e-6)
        np.testing.assert_allclose(after["coverage"][:, 0], info["coverage"], rtol=1e-6)
        assert after["truncated"][:, 0].tolist() == after["done"][:, 0].tolist() == ended.tolist()
        assert not after["terminated"].any()
        again = ended | (np.arange(3) == 1) & (step == 2)
        now = torchrl_utils.step_mdp(now.set("next", after))
        if again.any():
            now = scenes.reset(now.set("_reset", torch.as_tensor(again)[:, None]))
            seen, _ = vector.reset(options={"reset_mask": again})


def test_a_rollout_continues_after_the_end_of_an_episode(make):
    ends = make("Coverage", 2, max_episode_steps=4).rollout(9, break_when_any_done=False)["next", "done"]
    assert ends[..., 0].tolist() == [[step in (3, 7) for step in range(9)]] * 2


def test_a_seed_is_used_once(make):
    scenes, first = make("Coverage", 2), []
    for _ in range(2):
        scenes.set_seed(1)
        first.append(scenes.reset()["pairs"])
    assert torch.equal(*first)
    assert not torch.equal(scenes.reset()["pairs"], first[0])
    scenes.reset(options={"heading": np.tile([0.0, 1.0, 2.0, 3.0], (2, 1))})
    assert scenes.task.simulator.state.heading.tolist() == [[0, 1, 2, 3]] * 2
    assert torch.equal(scenes.reset(seed=1)["pairs"], first[0])


GROUPED = {
    "hit-mac": {},
    "continuous": {"continuous": True},
    "zooms, absent and failing sensors": {
        "scenario": {"zoom": (30, 120), "min_sensors": 1, "failure_rate": 0.1, "recovery_rate": 0.1}
    },
}


@pytest.mark.parametrize("case", GROUPED.values(), ids=GROUPED)
def test_the_sensors_are_one_group(make, case):
    """The same scenes as before, in the keys of multi-agent learners."""
    from hitmac.envs.wrappers.torchrl_env import GroupedTorchRLEnv

    options = dict(case)
    scenario = envs.load_scenario("hit-mac").replace(**options.pop("scenario", {}))
    grouped = GroupedTorchRLEnv("Coverage", 3, scenario, max_episode_steps=20, **options)
    plain = make("Coverage", 3, scenario, max_episode_steps=20)
    torchrl_utils.check_env_specs(grouped)
    count, rng = len(scenario.decisions), np.random.default_rng(0)
    for one in (grouped, plain):
        one.set_seed(5)
    now, same = grouped.reset(), plain.reset()
    for _ in range(15):
        pairs, mask = same["pairs"], same["mask"].float()[..., None]
        expected = torch.cat((pairs * mask, mask), -1)
        assert torch.equal(now["sensors", "observation"], expected.flatten(-2))
        assert torch.equal(now["state"], expected.flatten(1))
        chosen = rng.integers(0, 3, (3, 4, count))
        if options:  # right is -1
            action = torch.as_tensor(np.where(chosen == 2, -1, chosen) + rng.uniform(-0.4, 0.4, chosen.shape)).float()
            action = action.clamp(-1, 1)
        else:
            action = torch.as_tensor(chosen @ 3 ** np.arange(count))
        assert (("sensors", "action_mask") in now.keys(True)) == bool(scenario.varies)
        if scenario.varies:
            allowed = now["sensors", "action_mask"]
            assert allowed[..., 0].all()
            assert torch.equal(allowed[..., 1:].any(-1), torch.as_tensor(plain.task.acting))
        now = grouped.step(now.set(("sensors", "action"), action))["next"]
        same = plain.step(same.set("action", torch.as_tensor(chosen.swapaxes(1, 2).reshape(3, -1))))["next"]
        assert torch.equal(now["sensors", "reward"], same["reward"][:, None].expand(3, 4, 1))
        assert torch.equal(now["sensors", "info", "coverage"], same["coverage"][:, None].expand(3, 4, 1))
    turned = torch.as_tensor(plain.task.simulator.rotation).float()
    assert torch.equal(now["sensors", "info", "rotation"][:, 0, 0], turned)


@pytest.mark.parametrize("case", [("Coordinator", None), ("Coverage", UNNAMED), ("Coverage", BY_RATE)])
def test_what_is_no_group_of_turning_sensors_is_refused(case):
    from hitmac.envs.wrappers.torchrl_env import GroupedTorchRLEnv

    with pytest.raises(ValueError, match=r"the sensors of a group observe pairs and mask, and choose turns"):
        GroupedTorchRLEnv(case[0], 2, case[1])
