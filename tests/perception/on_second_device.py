"""Networks, policies and trainings on a second device, in a process of their own."""

import copy

import pytest
import torch
from torch import nn

from hitmac import perception, train
from hitmac.agents import load_agent
from hitmac.agents.evaluate import evaluate
from hitmac.agents.learned.checkpoint import checked_device, read_tensors
from tests.perception.second_device import SECOND

PAIRS, MASK = torch.randn(3, 4, 5, 8), (torch.rand(3, 4, 5) < 0.6).to(torch.int8)


def test_the_device_is_an_accelerator_that_mixes_with_nothing():
    assert checked_device("auto").type == checked_device("second").type == SECOND.type
    with pytest.raises(RuntimeError):
        torch.ones(3, device=SECOND) + torch.ones(3)
    with pytest.raises(ValueError, match="device is cuda; on this machine it must be auto or one of cpu, second:0"):
        checked_device("cuda")
    with pytest.raises(ValueError, match="mask is on cpu, pairs on second:0; both must be on one device"):
        perception.AgentTargetEncoder(8, 16).to(SECOND)(PAIRS.to(SECOND), MASK)


@pytest.mark.parametrize("attend_over", ["agents", "targets", "pairs", "axes"])
def test_the_encoder_and_the_critic_give_the_same(attend_over):
    nets = nn.ModuleList(
        [perception.AgentTargetEncoder(8, 16, attend_over=attend_over, num_frequencies=2), perception.AMCCritic(16)]
    )
    found = []
    for device in (PAIRS.device, SECOND):
        encoder, critic = copy.deepcopy(nets).to(device)
        features = encoder(PAIRS.to(device), MASK.to(device))
        value = critic(features.per_agent)
        assert value.device == device
        (value.sum() + features.global_feature.sum()).backward()
        found.append([*features, value, *(one.grad for net in (encoder, critic) for one in net.parameters())])
    for here, there in zip(*found, strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-3, atol=1e-3)


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
        "coordinator --total-steps 16 --rollout-steps 2 --episode-steps 4 --batch-size 4",
    ],
)
def test_trainings_give_the_same(tmp_path, job, monkeypatch):
    for name in ("save_film", "save_pictures", "save_curve"):
        monkeypatch.setattr(f"hitmac.agents.training.report.{name}", lambda *arguments, **options: None)
    networks = []
    for device in ("cpu", "second"):
        small = "--num-envs 4 --weight-dim 8 --curve-points 0 --episodes 2"
        train.run_command([*job.split(), *small.split(), "--device", device, "--run-dir", str(tmp_path / device)])
        networks.append(read_tensors(tmp_path / device / "checkpoint" / "policy.safetensors"))
    # Adam divides by the gradient's size: where that is near 0, a rounding error changes a weight by the learning rate.
    differences = [(networks[1][name] - tensor).abs().flatten() for name, tensor in networks[0].items()]
    assert torch.cat(differences).median() < 1e-4
