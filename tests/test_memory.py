"""What a training needs, said before anything is made, and what killed ones leave."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hitmac import train
from hitmac.agents.training import run_directory as memory
from hitmac.agents.training.hit_mac import HitMacOptions
from hitmac.agents.training.jobs import JOBS, with_defaults
from hitmac.agents.training.run_directory import check_memory, memory_needed, total_memory
from hitmac.envs import load_scenario, presets
from hitmac.envs.files import delete_left_over

HIT_MAC = load_scenario("hit-mac")


@pytest.mark.parametrize("scenario", sorted(set(presets()) - {"city"}))  # a training there shows the nearest targets
@pytest.mark.parametrize("job", sorted(JOBS))
def test_the_defaults_fit_into_four_gigabytes(job, scenario, monkeypatch):
    monkeypatch.setattr(memory, "total_memory", lambda: 4 * 2**30)
    for algorithm in ("ppo", "imitation"):
        check_memory(with_defaults(JOBS[job], algorithm), load_scenario(scenario))


def test_the_estimate_grows_with_what_it_names():
    options = with_defaults(JOBS["coverage"], "imitation")
    needed = memory_needed(options, HIT_MAC)
    for change, what in (
        ({"rollout_steps": 2 * options.rollout_steps}, "rollouts"),
        ({"num_envs": 2 * options.num_envs}, "rollouts"),
        ({"weight_dim": 2 * options.weight_dim}, "networks"),
        ({"num_blocks": 2 * options.num_blocks}, "networks"),
        ({"batch_size": 2 * options.batch_size}, "gradient steps"),
    ):
        now = memory_needed(dataclasses.replace(options, **change), HIT_MAC)
        assert all(now[name] > needed[name] for name in needed if name.startswith(what)), change
        assert all(now[name] >= needed[name] for name in needed)


def test_a_machine_has_memory():
    if total_memory() is not None:
        assert 2**28 < total_memory() < 2**50


@pytest.mark.parametrize(("job", "option", "value"), [
    ("coverage", "--weight-dim", "1000000000"),
    ("coverage", "--embed-layers", "100000000000"),
    ("coverage", "--num-blocks", "100000000000"),
    ("coverage", "--rollout-steps", "1000000000000"),
    ("coordinator", "--rollout-steps", "1000000000000"),
    ("executor", "--weight-dim", "1000000000"),
    ("hit-mac", "--weight-dim", "1000000000"),
])  # fmt: skip
def test_too_much_is_one_line_and_leaves_nothing(job, option, value, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", job, option, value, "--run-dir", "x"])
    with pytest.raises(SystemExit) as end:
        train.main()
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "GiB of memory or more" in error
    assert option in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_levels_are_checked_each():
    huge = dataclasses.replace(with_defaults(HitMacOptions, "ppo"), weight_dim=10**9)
    assert all(sum(memory_needed(level, HIT_MAC).values()) > 2**60 for level in huge.level_jobs(Path()))


def test_what_killed_processes_left_is_deleted(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "checkpoint").mkdir()
    left = [
        f".training.{ended.pid}.safetensors",
        f"checkpoint/.policy.{ended.pid}.safetensors",
        f".config.{ended.pid}.yaml",
    ]
    kept = [f".training.{os.getpid()}.safetensors", ".hidden", ".a.b", "training.123.safetensors", "config.yaml"]
    for name in left + kept:
        (tmp_path / name).touch()
    delete_left_over(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)
