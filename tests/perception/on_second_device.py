"""Networks, policies and trainings on a second device, in a process of their own."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hitmac import perception, train
from hitmac.agents import load_agent
from hitmac.agents.evaluate import evaluate
from hitmac.agents.learned.checkpoint import checked_device, read_tensors
from hitmac.agents.learned.policy import AttentionPolicy
from tests.perception.second_device import SECOND


def space(d=8):
    return spaces.Dict(pairs=spaces.Box(-1, 1, (4, 5, d), np.float32), mask=spaces.MultiBinary((4, 5)))


def scenes(*, masked, d=8):
    mask = torch.rand(3, 4, 5) < (0.6 if masked else 1.1)
    return {"pairs": torch.randn(3, 4, 5, d), "mask": mask.to(torch.int8)}


def moved(tensors):
    return {name: tensor.to(SECOND) for name, tensor in tensors.items()}


def close(one, other):
    for here, there in zip(one, other, strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-3, atol=1e-3)


def test_the_device_is_an_accelerator_that_mixes_with_nothing():
    assert checked_device("auto").type == checked_device("second").type == SECOND.type
    with pytest.raises(RuntimeError):
        torch.ones(3, device=SECOND) + torch.ones(3)
    with pytest.raises(ValueError, match="device is cuda; on this machine it must be auto or one of cpu, second:0"):
        checked_device("cuda")
    net, seen = perception.AgentTargetEncoder(8, 16).to(SECOND), scenes(masked=True)
    with pytest.raises(ValueError, match="mask is on cpu, x on second:0; both must be on one device"):
        net(seen["pairs"].to(SECOND), seen["mask"])


@pytest.mark.parametrize("attend_over", ["agents", "targets", "pairs", "axes"])
def test_the_encoder_and_the_critic_give_the_same(attend_over):
    net = perception.AgentTargetEncoder(8, 16, attend_over=attend_over, num_frequencies=2)
    critic = perception.AMCCritic(16)
    others, seen = (copy.deepcopy(net).to(SECOND), copy.deepcopy(critic).to(SECOND)), scenes(masked=True)
    found = []
    for encoder, valued, given in ((net, critic, seen), (*others, moved(seen))):
        features = encoder(**given)
        value = valued(features.per_agent)
        assert value.device == given["pairs"].device
        (value.sum() + features.global_feature.sum()).backward()
        gradients = [one.grad for module in (encoder, valued) for one in module.parameters() if one.grad is not None]
        found.append([*features, value, *gradients])
    close(*found)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("actions", "options"),
    [
        (spaces.MultiDiscrete([3] * 8), {"attend_over": "axes", "num_blocks": 2}),
        (spaces.MultiBinary(20), {"credit": "difference_rewards"}),
    ],
)
def test_policies_act_the_same(actions, options, masked):
    policy = AttentionPolicy(space(), actions, lambda _: 1e-3, weight_dim=16, **options)
    other, seen = copy.deepcopy(policy).to(SECOND), scenes(masked=masked)
    chosen = policy.get_distribution(seen).mode()
    close(policy.evaluate_actions(seen, chosen), other.evaluate_actions(moved(seen), chosen.to(SECOND)))
    observation = {name: tensor.numpy() for name, tensor in seen.items()}
    predicted = (one.predict(observation, deterministic=True)[0] for one in (policy, other))
    np.testing.assert_array_equal(*predicted)


def test_agents_are_loaded_and_evaluated_on_the_default_device():
    with checked_device("second"):
        agent = load_agent("pretrained:hit-mac", "hit-mac")
    assert {one.device.type for one in agent.policy.coordinator.policy.parameters()} == {"second"}
    here, there = (
        evaluate([one], "hit-mac", episodes=2, max_episode_steps=20)["agents"]["pretrained:hit-mac"]["coverage"]
        for one in ("pretrained:hit-mac", agent)
    )
    assert here == there


@pytest.mark.parametrize(
    "job",
    [
        "coverage --memory recurrent --knowledge shared --total-steps 24 --rollout-steps 3 --episode-steps 10",
        "coverage-ppo --total-steps 24 --rollout-steps 6 --batch-size 8 --episode-steps 10",
        "coordinator --total-steps 16 --rollout-steps 2 --episode-steps 4 --batch-size 4",
    ],
)
def test_trainings_give_the_same(tmp_path, job):
    networks = []
    for device in ("cpu", "second"):
        small = "--num-envs 4 --weight-dim 8 --curve-points 0 --episodes 2"
        train.run_command([*job.split(), *small.split(), "--device", device, "--run-dir", str(tmp_path / device)])
        networks.append(read_tensors(tmp_path / device / "checkpoint" / "policy.safetensors"))
    # Adam divides by the gradient's size: where that is near 0, a rounding error changes a weight by the learning rate.
    differences = [(networks[1][name] - tensor).abs().flatten() for name, tensor in networks[0].items()]
    assert torch.cat(differences).median() < 1e-4
