"""Trainings that start from the weights of another policy."""

import dataclasses
import shutil
import sys

import pytest
import torch

from hitmac import train
from hitmac.agents.learned.checkpoint import load_policy, tensors_of
from hitmac.agents.pretrained import pretrained_folder
from hitmac.agents.training.config import JOBS, check, check_on, with_defaults
from hitmac.agents.training.train import CRITIC, build, take_weights
from hitmac.envs import load_scenario

FLAGS = ["--num-envs", "2", "--rollout-steps", "2", "--batch-size", "2", "--episode-steps", "10", "--episodes", "2"]
FLAGS += ["--curve-points", "0"]


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["train.py", *map(str, arguments), *FLAGS])
    train.main()


@pytest.mark.parametrize("scene", ["hit-mac", "hit-mac-2x3", "random"])
@pytest.mark.parametrize(("job", "start"), [
    ("coverage", "flat"), ("coverage", "any-size"), ("coverage", "single-frame"), ("coverage-ppo", "flat"),
    ("coverage", "beliefs"), ("coordinator", "hit-mac"), ("executor", "hit-mac/executor"),
])  # fmt: skip
def test_a_training_starts_from_the_weights_features_and_network_of_another(job, start, scene):
    name = (
        str(pretrained_folder(start.split("/")[0]) / start.partition("/")[2]) if "/" in start else f"pretrained:{start}"
    )
    algorithm = "ppo" if job == "coverage-ppo" else "imitation"
    options = dataclasses.replace(with_defaults(JOBS[job], algorithm, start=name), num_envs=2, batch_size=2)
    scenario = load_scenario(scene)
    if start == "beliefs":
        scenario, options = scenario.replace(knowledge="shared"), dataclasses.replace(options, teacher="belief-planner")
    check(options)
    check_on(options, scenario)
    model, _, _ = build(options, scenario)
    started, config = load_policy(pretrained_folder(start.split("/")[0]) / start.partition("/")[2])
    for policy in (model.policy, getattr(model, "learned", model.policy)):
        take_weights(policy, name)
        own = tensors_of(policy)
        for tensor, value in tensors_of(started).items():
            assert torch.equal(own[tensor], value), tensor
    assert options.features == config.features


def test_the_critic_of_another_kind_stays_fresh():
    """Where the policy to start from has the paper's."""
    options = dataclasses.replace(
        with_defaults(JOBS["coordinator"], "ppo", start="pretrained:hit-mac"), num_envs=2, critic="value_head"
    )
    model, _, _ = build(options, load_scenario("hit-mac"))
    fresh = {name: tensor.clone() for name, tensor in tensors_of(model.policy).items()}
    take_weights(model.policy, "pretrained:hit-mac")
    same = {name for name, tensor in tensors_of(model.policy).items() if torch.equal(tensor, fresh[name])}
    assert {name for name in fresh if name.startswith(CRITIC)} <= same
    assert not any(name.endswith("K.weight") for name in same if not name.startswith(CRITIC))


@pytest.mark.slow
def test_a_run_goes_on_from_a_run_of_another_scene(monkeypatch, tmp_path, capsys):
    run(monkeypatch, "coverage", "--start", "pretrained:flat", "--learning-rate", "1e-9", "--total-steps", 8,
        "--run-dir", tmp_path / "one")  # fmt: skip
    before, _ = load_policy(pretrained_folder("flat"))
    after, config = load_policy(tmp_path / "one")
    assert config.scenario.num_sensors == 4
    for name, tensor in tensors_of(before).items():
        torch.testing.assert_close(tensors_of(after)[name], tensor, atol=1e-6, rtol=0)
    run(monkeypatch, "coverage-ppo", "--start", tmp_path / "one", "--scenario", "hit-mac-2x3", "--total-steps", 8,
        "--run-dir", tmp_path / "two")  # fmt: skip
    shutil.rmtree(tmp_path / "one")  # is not needed any more
    run(monkeypatch, "coverage-ppo", "--run-dir", tmp_path / "two", "--resume", "--total-steps", 16)
    assert load_policy(tmp_path / "two")[1].scenario.num_sensors == 2
    assert "16 steps" in capsys.readouterr().out


FLAT = ["coverage", "--start", "pretrained:flat"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["coverage", "--start", "pretrained:flatt"], "unknown pretrained policy 'flatt'"),
    (["coverage", "--start", "nowhere"], "nowhere is not a checkpoint"),
    (["executor", *FLAT[1:]], "--start is pretrained:flat, a policy for Coverage; it must be one for Executor"),
    ([*FLAT, "--weight-dim", "32"], "--weight-dim is 32; that of pretrained:flat is 64"),
    ([*FLAT, "--features", "frame"], "--features is"),
    ([*FLAT, "--scenario", "obstacles"], "decides on turn; on the scenario 'obstacles' it must decide on turn, zoom"),
    ([*FLAT, "--scenario", "volleyball-4"], "on the scenario 'volleyball-4' it must decide on turn, move"),
])  # fmt: skip
def test_a_start_that_does_not_fit_is_refused_in_one_line(monkeypatch, tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments, "--run-dir", tmp_path / "run")
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
