"""Trainings with several seeds: each is an ordinary run, all are evaluated together, and a broken group goes on."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from hitmac import train
from hitmac.agents import load_agent
from hitmac.agents.evaluate.command import main as evaluate_main
from hitmac.agents.registry import named_agents
from hitmac.agents.training import report
from hitmac.agents.training.config import CoverageOptions, HitMacOptions
from hitmac.agents.training.sweep import is_finished, trainings
from hitmac.agents.training.train import RolloutCallback
from hitmac.envs import load_scenario

TINY = ["--total-steps", 64, "--num-envs", 8, "--rollout-steps", 4, "--batch-size", 16, "--weight-dim", 8]
TINY += ["--processes", 1, "--episodes", 2, "--episode-steps", 20, "--curve-points", 0]
HIT_MAC = load_scenario("hit-mac")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Runs train.py in this process, in an empty directory, without films; counts the steps of training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "save_film", lambda *arguments, **options: None)

    def run(*arguments, interrupt_at=None):
        steps = []
        original = RolloutCallback._on_step

        def step(callback):
            steps.append(1)
            if len(steps) == interrupt_at:
                raise KeyboardInterrupt
            return original(callback)

        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["train.py", *map(str, arguments)])
            patch.setattr(RolloutCallback, "_on_step", step)
            if interrupt_at is None:
                train.main()
            else:
                with pytest.raises(SystemExit):
                    train.main()
        return len(steps)

    return run


def tensors(folder):
    return safetensors.numpy.load_file(Path(folder) / "checkpoint" / "policy.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_several_seeds_are_ordinary_runs_evaluated_together(here, capsys):
    here("--run-dir", "all", "--seed", 4, "--seeds", 2, *TINY)
    assert "all/seed-5:" in capsys.readouterr().out
    here("--run-dir", "alone", "--seed", 5, *TINY)
    assert same(tensors("all/seed-5"), tensors("alone"))
    assert not same(tensors("all/seed-4"), tensors("alone"))
    found = json.loads(Path("all/evaluation.json").read_text())["agents"]
    assert found["trained"]["trainings"] == 2
    assert found["trained"]["interval"] == "episodes and trainings"
    assert found["trained"]["runs"] == ["seed 4", "seed 5"]
    assert [found[name]["trainings"] for name in ("random", "planner")] == [0, 0]
    per_run = [json.loads(Path(f"all/seed-{seed}/evaluation.json").read_text())["agents"]["trained"] for seed in (4, 5)]
    of_runs = [value for one in per_run for value in one["per_episode"]["coverage"]]
    assert found["trained"]["per_episode"]["coverage"] == of_runs
    assert "trained (2 seeds)" in Path("all/evaluation.md").read_text()

    # The directory of both is one agent with two trainings.
    for spec, name in (("all", "all"), ("ours=all", "ours"), ("ours=all/seed-4+all/seed-5", "ours")):
        both = named_agents(spec, HIT_MAC)
        assert [(one.name, one.run) for one in both] == [(name, f"all/seed-{seed}") for seed in (4, 5)]
    evaluate_main(["--agents", "all,still", "--episodes", "2", "--max-episode-steps", "5", "--json", "again.json"])
    assert json.loads(Path("again.json").read_text())["agents"]["all"]["trainings"] == 2
    with pytest.raises(ValueError, match=r"all holds 2 trainings; name one of them, such as all/seed-4"):
        load_agent("all", HIT_MAC)


@pytest.mark.slow
def test_a_broken_group_goes_on_and_trains_nothing_twice(here, capsys):
    here("--run-dir", "whole", "--seeds", 2, *TINY)
    here("--run-dir", "broken", "--seeds", 2, *TINY, interrupt_at=8 + 2)  # a training is 8 steps: in the second one
    assert not Path("broken/evaluation.json").exists()
    first = Path("broken/seed-0/evaluation.json").stat().st_mtime_ns
    capsys.readouterr()
    assert here("--run-dir", "broken", "--resume", "--processes", 1) == 8
    assert "done already" in capsys.readouterr().out
    assert Path("broken/seed-0/evaluation.json").stat().st_mtime_ns == first
    for seed in (0, 1):
        assert same(tensors(f"broken/seed-{seed}"), tensors(f"whole/seed-{seed}"))
    results = [json.loads(Path(name, "evaluation.json").read_text())["agents"] for name in ("whole", "broken")]
    assert results[0]["trained"]["coverage"] == results[1]["trained"]["coverage"]
    more = ["--total-steps", 128, "--processes", 1]
    assert here("--run-dir", "broken", "--resume", *more) == 16  # all go on to a higher limit
    with pytest.raises(SystemExit):
        here("--run-dir", "broken", "--resume", "--seeds", 3)
    assert "--seeds is 3, but the run in broken has 2; it cannot be changed" in capsys.readouterr().err


@pytest.mark.slow
def test_both_levels_and_their_executors_with_several_seeds(here):
    small = ["--executor-steps", 256, "--coordinator-steps", 16, "--num-envs", 8, "--weight-dim", 8]
    small += ["--processes", 1, "--episodes", 2]
    here("hit-mac", "--run-dir", "all", "--seeds", 2, *small)
    found = json.loads(Path("all/evaluation.json").read_text())["agents"]
    assert {name: one["trainings"] for name, one in found.items() if one["trainings"]} == {
        "trained": 2, "assign-all": 2, "assign-in-range": 2, "assign-randomly": 2, "assign-planned": 2
    }  # fmt: skip
    assert here("hit-mac", "--run-dir", "all", "--resume", "--processes", 1) == 0
    assert [one.run for one in named_agents("x=assign-all:all", HIT_MAC)] == [
        f"assign-all:all/seed-{seed}" for seed in (0, 1)
    ]
    assert [one.run for one in named_agents("all:scripted", HIT_MAC)] == [
        f"all/seed-{seed}:scripted" for seed in (0, 1)
    ]


@pytest.mark.slow
def test_levels_alone_with_several_seeds(here):
    here("executor", "--run-dir", "executors", "--seeds", 2, *TINY)
    found = json.loads(Path("executors/evaluation.json").read_text())["agents"]
    assert {name: one["trainings"] for name, one in found.items()} == {
        "trained": 2, "scripted": 0, "planner": 0, "random": 0, "still": 0
    }  # fmt: skip
    assert len(found["trained"]["per_episode"]["reward"]) == 4
    one = ["--executor", "executors/seed-0"]
    here("coordinator", "--run-dir", "coordinators", "--seeds", 2, *one, *TINY)
    found = json.loads(Path("coordinators/evaluation.json").read_text())["agents"]
    assert (found["trained"]["trainings"], found["assign-all"]["trainings"]) == (2, 1)  # they share their executor
    shutil.rmtree("executors")
    Path("coordinators").rename("moved")
    shutil.rmtree("moved/seed-1")
    more = ["--run-dir", "moved", "--resume", "--processes", 1]
    assert here("coordinator", *more) > 0  # with the group's own copy of the executor


def test_a_training_is_finished_when_it_reached_a_limit_and_was_evaluated(here):
    here("--run-dir", "run", *TINY)
    options = CoverageOptions(run_dir=Path("run"), total_steps=64)
    assert is_finished(options)
    assert not is_finished(CoverageOptions(run_dir=Path("run"), total_steps=65))
    assert not is_finished(CoverageOptions(run_dir=Path("run"), minutes=9.0))
    assert not is_finished(CoverageOptions(run_dir=Path("absent"), total_steps=64))
    Path("run/evaluation.json").unlink()
    assert not is_finished(options)
    group = [one for _, one in trainings(HitMacOptions(seed=7, seeds=2), Path("x"))]
    seeds = [(one.seed, one.seeds, one.run_dir.name) for one in group]
    assert seeds == [(7, 1, "seed-7"), (8, 1, "seed-8")]
