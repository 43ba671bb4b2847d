"""Warnings in the report of a training."""

import dataclasses
import sys

import pytest
import torch

from hitmac import train
from hitmac.agents.training.config import JOBS, with_defaults
from hitmac.agents.training.report import diagnostics
from hitmac.agents.training.train import build, entropy_share
from hitmac.envs import load_scenario


def evaluation(metric="coverage", rotation=0.2, **means):
    return {"agents": {name: {metric: {"mean": mean}, "rotation": {"mean": rotation}} for name, mean in means.items()}}


def test_a_good_policy_gets_none():
    assert list(diagnostics(evaluation(trained=0.8, random=0.4, still=0.3, planner=0.9), "coverage", 0.3)) == []
    assert list(diagnostics(evaluation(trained=0.8), "coverage", None)) == []


def test_no_better_than_a_baseline():
    found = evaluation(trained=0.5, random=0.4, nearest=0.5, greedy=0.62, planner=0.9)
    (line,) = diagnostics(found, "coverage", None)
    assert line == "Warning: trained is no better than nearest (0.500), greedy (0.620): its coverage is 0.500."
    (line,) = diagnostics(evaluation("reward", trained=-0.1, scripted=0.7), "reward", None)
    assert line == "Warning: trained is no better than scripted (0.700): its reward is -0.100."


def test_a_policy_that_spins():
    (line,) = diagnostics(evaluation(trained=0.5, still=0.1, rotation=0.97), "coverage", None)
    assert line == "Warning: trained turns its sensors nearly always (rotation 0.97); --turn-cost makes it dear."


def test_entropy_gone():
    (line,) = diagnostics(evaluation(trained=0.5), "coverage", 0.0041)
    assert line.startswith("Warning: trained has stopped exploring: its entropy is 0.4 % of the highest")


def test_another_name():
    (line,) = diagnostics(evaluation(trained=0.9, wide=0.1, random=0.4), "coverage", None, name="wide")
    assert line.startswith("Warning: wide is no better than random")


@pytest.mark.parametrize(("job", "algorithm", "logits"), [
    ("coverage-ppo", "ppo", True), ("executor", "ppo", True), ("coordinator", "a2c", True),
    ("coverage", "imitation", False),
])  # fmt: skip
def test_the_entropy_of_each_kind_of_policy(job, algorithm, logits):
    options = with_defaults(JOBS[job], algorithm)
    options = dataclasses.replace(options, num_envs=4, rollout_steps=2, batch_size=8, weight_dim=8, algorithm=algorithm)
    model, _, _ = build(options, load_scenario("hit-mac"))
    if not logits:
        assert entropy_share(model) is None
        return
    model.learn(8)
    assert 0.5 < entropy_share(model) <= 1.0 + 1e-6
    with torch.no_grad():
        for weight in model.policy.action_net.parameters():
            weight.mul_(1e5)
    assert entropy_share(model) < 0.2


def test_the_report_warns(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("hitmac.agents.training.report.save_film", lambda *arguments, **options: None)
    small = [
        "--num-envs",
        "8",
        "--rollout-steps",
        "4",
        "--batch-size",
        "16",
        "--weight-dim",
        "8",
        "--total-steps",
        "32",
    ]
    small += ["--episodes", "2", "--episode-steps", "20", "--curve-points", "0"]
    small += ["--run-dir", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["train.py", "coverage-ppo", *small])
    train.main()
    warned = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Warning: ")]
    assert warned, "32 steps teach nothing"
    assert all(line in (tmp_path / "run" / "evaluation.md").read_text() for line in warned)
