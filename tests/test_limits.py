"""Limits and signals: a training ends soon wherever it is and goes on as if never interrupted; programs end cleanly."""

import importlib
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from hitmac import train
from hitmac.agents.learned.checkpoint import load_policy
from hitmac.agents.training import config as sizes
from hitmac.agents.training import train as callback
from hitmac.agents.training import train as stopping
from hitmac.agents.training.hit_mac import HitMacOptions
from hitmac.agents.training.jobs import JOBS, with_defaults
from hitmac.agents.training.resume import Progress
from hitmac.agents.training.run_directory import check_memory
from hitmac.agents.training.train import TrainingProgress, stop_on_signal
from hitmac.envs import load_scenario, presets
from hitmac.signals import end_on_signal

SMALL = ["--num-envs", 8, "--rollout-steps", 8, "--batch-size", 8, "--weight-dim", 8, "--episode-steps", 20]
SMALL += ["--curve-points", 0, "--save-every", 0]
LEARNERS = {
    "imitation": ["coverage"],
    "recurrent": ["coverage", "--memory", "recurrent", "--knowledge", "shared"],
    "ppo": ["coverage-ppo"],
    "a2c": ["coverage-ppo", "--algorithm", "a2c"],
    "executor": ["executor"],
    "coordinator": ["coordinator"],
}
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
SIGNALS = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]  # nohup ignores one


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Trains in this process, in an empty directory, without the report, and returns the calls that look at the time.

    A signal may come at one of them: before a step, or before a gradient step.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "report", lambda *arguments: None)
    monkeypatch.setattr(stopping, "_detach_output", lambda: None)

    def run(*arguments, at=None, number=signal.SIGINT):
        calls, check_time = [], TrainingProgress.check_time

        def check(progress):
            calls.append(1)
            if len(calls) == at:
                signal.raise_signal(number)
            check_time(progress)

        with monkeypatch.context() as patch:
            patch.setattr(TrainingProgress, "check_time", check)
            patch.setattr(sys, "argv", ["train.py", *map(str, arguments)])
            train.main()
        return len(calls)

    return run


def state(run):
    """Return the state of a training, without the clock."""
    found = safetensors.numpy.load_file(Path(run, "checkpoint", "training.safetensors"))
    del found["progress/seconds"]
    found["progress/curve"] = found["progress/curve"][:, [0, 2, 3, 4]]
    return {name: array[:1] if name.startswith("phases/") else array for name, array in found.items()}


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_training_stopped_within_an_update_goes_on_as_if_never_interrupted(learner, here, monkeypatch, capsys):
    asked = [*LEARNERS[learner], *SMALL, "--total-steps", 4 * 64]
    if learner == "executor":
        asked[-1] = 4 * 64 * 4
    calls = here(*asked, "--run-dir", "whole")
    monkeypatch.setattr(callback, "GRACE", 0.0)
    here(*asked, "--run-dir", "stopped", at=3)
    assert not Path("stopped/checkpoint/training.safetensors").exists()  # nothing to go on from
    load_policy("stopped")
    job = asked[0]
    here(job, "--run-dir", "stopped", "--resume", at=calls // 2, number=signal.SIGTERM)
    assert "this update would take too long; back to the last checkpoint" in capsys.readouterr().out
    steps = state("whole")["progress/steps"].item()
    assert 0 < state("stopped")["progress/steps"].item() < steps
    here(job, "--run-dir", "stopped", "--resume", at=calls // 3, number=SIGNALS[-1])
    here(job, "--run-dir", "stopped", "--resume")
    assert same(state("whole"), state("stopped"))


def test_time_ends_an_update_too(here, monkeypatch, capsys):
    monkeypatch.setattr(callback, "GRACE", 0.0)
    limit = ["--minutes", 0.004, "--epochs", 10**12]  # an update without end
    here("coverage-ppo", "--run-dir", "run", *SMALL, *limit)
    shown = capsys.readouterr().out
    assert "stopped; go on with" not in shown
    load_policy("run")
    assert state("run")["progress/steps"].item() > 0
    here("coverage-ppo", "--run-dir", "run", "--resume", "--minutes", 0.008)


def test_a_curve_that_is_computed_is_left_at_a_signal():
    with stop_on_signal() as stop:
        done = []
        stop.leaves(lambda: done.append(1))
        stop.leaves(lambda: (signal.raise_signal(signal.SIGINT), done.append(2)))
        assert (done, stop.number) == ([1], signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):  # the second one
            stop.leaves(lambda: signal.raise_signal(signal.SIGINT))


def test_a_signal_that_is_ignored_stays_so():
    if hasattr(signal, "SIGHUP"):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with end_on_signal("x"), stop_on_signal() as stop:
                signal.raise_signal(signal.SIGHUP)
            assert not stop.is_set()
        finally:
            signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    ("program", "inside", "arguments"),
    [
        ("agents.evaluate.__main__", "evaluate", ["--agents", "still", "--json", "out.json"]),
        ("agents.watch", "save_replay", ["still", "--to", "out.html"]),
        ("agents.export.folder", "export_agent", ["pretrained:flat", "--to", "out.onnx"]),
        ("agents.reproduce", "reproduce", ["--row", "still"]),
        ("agents.show_attention", "moments", ["pretrained:flat", "--to", "out.png"]),
        ("train", "prepare", []),
        ("train", "engine_of", [*SMALL, "--run-dir", "run"]),
    ],
)
def test_a_signal_ends_a_program_in_one_line_with_its_number(
    program, inside, arguments, number, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"hitmac.{program}")
    monkeypatch.setattr(module, inside, lambda *given, **options: signal.raise_signal(number))
    monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
    handlers = [signal.getsignal(one) for one in SIGNALS]
    with pytest.raises(SystemExit) as end:
        module.main()
    assert end.value.code == 128 + number
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert ": aborted" in line
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".", "out"))]
    assert [signal.getsignal(one) for one in SIGNALS] == handlers


def test_the_outlook_follows_the_nearer_limit():
    class Model:
        num_timesteps = 1000

    def outlook(max_seconds, max_steps):
        progress = TrainingProgress(Progress(10.0), max_seconds=max_seconds, max_steps=max_steps, stop=stopping.Stop())
        progress.model = Model
        return progress.outlook(500, 2.0)

    assert outlook(310.0, None) == "at this speed about 76,000 steps in 5.2 minutes of training"
    assert outlook(None, 76_000) == "at this speed about 5.0 minutes more of training until 76,000 steps"
    assert outlook(310.0, 3_500) == "at this speed about 10 seconds more of training until 3,500 steps"
    assert outlook(20.0, 76_000) == "at this speed about 3,500 steps in 20 seconds of training"
    assert outlook(5.0, None) == "at this speed about 1,000 steps in 10 seconds of training"


@pytest.mark.parametrize("job", sorted(JOBS))
@pytest.mark.parametrize("algorithm", ["ppo", "imitation", "a2c"])
def test_sizes_suit_the_scene(job, algorithm, monkeypatch):
    monkeypatch.setattr("hitmac.agents.training.run_directory.total_memory", lambda: 4 * 2**30)
    options = with_defaults(JOBS[job], algorithm)
    most = sizes.PAIRS[algorithm]
    for name in ("hit-mac", "hit-mac-6x9", f"large-5x{most // 5}"):
        assert sizes.scaled(options, load_scenario(name)) == options
    for name in (*presets(), "large-20x30"):
        scenario = load_scenario(name)
        scaled = sizes.scaled(options, scenario)
        pairs = scenario.num_sensors * scenario.num_targets
        of_row = 4 * scenario.num_targets if options.task.spec.role == "executor" else pairs
        assert 8 <= scaled.num_envs <= max(8, options.num_envs * min(1, most / pairs)), name
        assert 8 <= scaled.batch_size <= max(8, options.batch_size * min(1, most / of_row)), name
        if algorithm != "a2c":
            check_memory(scaled, scenario)


def test_sizes_that_are_given_win(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    found = []
    monkeypatch.setattr(train, "train_run", lambda options, scenario, run_dir: found.append(options))
    for given in ([], ["--batch-size", "48"], ["--num-envs", "256"]):
        train.run_job(JOBS["coverage"], ["--scenario", "large", "--run-dir", f"x{len(found)}", *given])
    assert [(one.num_envs, one.batch_size, one.rollout_steps) for one in found] == [
        (16, 8, 4), (16, 48, 4), (256, 8, 4)
    ]  # fmt: skip
    train.run_job(HitMacOptions, ["--scenario", "large", "--run-dir", "both"])
    executor, coordinator = found[-1].level_jobs(Path("both"), load_scenario("large"))
    assert (found[-1].num_envs, executor.num_envs, coordinator.num_envs, coordinator.batch_size) == (8, 8, 8, 8)
