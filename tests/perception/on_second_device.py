"""Networks, losses and trainings on a second device, in a process of their own."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

import train
from hitmac import perception
from hitmac.agents import load_agent
from hitmac.agents.evaluate import evaluate
from hitmac.agents.learned.checkpoint import checked_device, read_tensors
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.learned.recurrent import RECURRENT_FEATURES, RecurrentPolicy
from tests.perception.second_device import SECOND

SMALL = ("--num-envs", "4", "--weight-dim", "8", "--curve-points", "0", "--episodes", "2", "--episode-steps", "20")


def space(n: int = 4, m: int = 5, d: int = 8) -> spaces.Dict:
    return spaces.Dict(pairs=spaces.Box(-1, 1, (n, m, d), np.float32), mask=spaces.MultiBinary((n, m)))


def scenes(*, all_there: bool, d: int = 8) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    there = torch.ones(3, 4, 5) if all_there else torch.rand(3, 4, 5) < 0.6
    return {"pairs": torch.randn(3, 4, 5, d), "mask": there.to(torch.int8)}


def moved(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.to(SECOND) for name, tensor in tensors.items()}


def assert_same_gradients(net: torch.nn.Module, other: torch.nn.Module) -> None:
    found = 0
    for here, there in zip(net.parameters(), other.parameters(), strict=True):
        assert (here.grad is None) == (there.grad is None)
        if there.grad is not None and here.grad is not None:
            assert there.grad.device == SECOND
            torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-3, atol=1e-4)
            found += 1
    assert found


def test_the_device_is_an_accelerator_that_mixes_with_nothing():
    assert checked_device("auto").type == checked_device("second").type == SECOND.type
    with pytest.raises(RuntimeError):
        torch.ones(3, device=SECOND) + torch.ones(3)
    with pytest.raises(ValueError, match="device is cuda; on this machine it must be auto or one of cpu, second:0"):
        checked_device("cuda")


@pytest.mark.parametrize("all_there", [True, False])
@pytest.mark.parametrize("attend_over", ["agents", "targets", "pairs", "axes"])
def test_the_encoder_gives_the_same(attend_over, all_there):
    net = perception.AgentTargetEncoder(8, 16, attend_over=attend_over, num_frequencies=2)
    other = copy.deepcopy(net).to(SECOND)
    seen = scenes(all_there=all_there)
    here, there = net(**seen), other(**moved(seen))
    for feature, same in zip(here, there, strict=True):
        assert same.device == SECOND
        torch.testing.assert_close(same.cpu(), feature, rtol=1e-4, atol=1e-4)
    here.global_feature.sum().backward()
    there.global_feature.sum().backward()
    assert_same_gradients(net, other)


def test_a_mask_elsewhere_is_refused():
    net = perception.AgentTargetEncoder(8, 16).to(SECOND)
    seen = scenes(all_there=False)
    with pytest.raises(ValueError, match="mask is on cpu, x on second:0; both must be on one device"):
        net(seen["pairs"].to(SECOND), seen["mask"])


@pytest.mark.parametrize("kind", ["amc", "no_prefix"])
def test_the_critic_gives_the_same(kind):
    critic, tokens = perception.AMCCritic(16, kind=kind), torch.randn(3, 20, 16)
    value = copy.deepcopy(critic).to(SECOND)(tokens.to(SECOND))
    torch.testing.assert_close(value.cpu(), critic(tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("all_there", [True, False])
@pytest.mark.parametrize(
    ("actions", "options"),
    [
        (spaces.MultiDiscrete([3] * 4), {}),
        (spaces.MultiDiscrete([3] * 8), {"attend_over": "axes", "num_blocks": 2}),
        (spaces.MultiBinary(20), {}),
        (spaces.MultiBinary(20), {"credit": "difference_rewards"}),
    ],
)
def test_policies_act_the_same(actions, options, all_there):
    policy = AttentionPolicy(space(), actions, lambda _: 1e-3, weight_dim=16, **options)
    other = copy.deepcopy(policy).to(SECOND)
    seen = scenes(all_there=all_there)
    chosen = policy.get_distribution(seen).mode()
    for here, there in zip(
        policy.evaluate_actions(seen, chosen), other.evaluate_actions(moved(seen), chosen.to(SECOND)), strict=True
    ):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-3, atol=1e-3)
    observation = {name: tensor.numpy() for name, tensor in seen.items()}
    for here, there in zip(
        policy.predict(observation, deterministic=True), other.predict(observation, deterministic=True), strict=True
    ):
        np.testing.assert_array_equal(there, here)


def test_a_recurrent_policy_acts_the_same():
    d = len(RECURRENT_FEATURES)
    policy = RecurrentPolicy(space(d=d), spaces.MultiDiscrete([3] * 4), lambda _: 1e-3, weight_dim=16)
    other, state, same = copy.deepcopy(policy).to(SECOND), None, None
    for _ in range(3):
        observation = {name: tensor.numpy() for name, tensor in scenes(all_there=True, d=d).items()}
        here, state = policy.predict(observation, state, np.zeros(3, np.bool_), deterministic=True)
        there, same = other.predict(observation, same, np.zeros(3, np.bool_), deterministic=True)
        np.testing.assert_array_equal(there, here)
        np.testing.assert_allclose(same[0], state[0], rtol=1e-4, atol=1e-4)


def test_agents_are_loaded_and_evaluated_on_the_default_device():
    with checked_device("second"):
        agent = load_agent("pretrained:hit-mac", "hit-mac")
    metrics = [
        evaluate([one], "hit-mac", episodes=2, max_episode_steps=20)["agents"]["pretrained:hit-mac"]["coverage"]
        for one in (agent, "pretrained:hit-mac")
    ]
    assert {one.device.type for one in agent.policy.coordinator.policy.parameters()} == {"second"}
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize(
    "job",
    [
        ("coverage", "--total-steps", "24", "--rollout-steps", "3"),
        ("coverage", "--memory", "recurrent", "--knowledge", "shared", "--total-steps", "48", "--rollout-steps", "3"),
        ("coverage-ppo", "--total-steps", "48", "--rollout-steps", "6", "--batch-size", "8"),
        ("coordinator", "--total-steps", "16", "--rollout-steps", "2", "--episode-steps", "4", "--batch-size", "4"),
    ],
)
def test_trainings_give_the_same(tmp_path, job):
    networks = []
    for device in ("cpu", "second"):
        options = [*job, *(SMALL if job[0] != "coordinator" else SMALL[:-2])]
        train.run_command([*options, "--device", device, "--run-dir", str(tmp_path / device)])
        networks.append(read_tensors(tmp_path / device / "checkpoint" / "policy.safetensors"))
    # Adam divides by the gradient's size: where that is near 0, a rounding error changes a weight by the learning rate.
    differences = [(networks[1][name] - tensor).abs().flatten() for name, tensor in networks[0].items()]
    assert torch.cat(differences).median() < 1e-4
