"""Limits and signals: a training ends soon wherever it is and goes on as if never interrupted; programs end cleanly."""

import importlib
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from hitmac import train
from hitmac.__main__ import COMMANDS, main
from hitmac.agents.learned.checkpoint import load_policy
from hitmac.agents.training import config as sizes
from hitmac.agents.training import train as loop
from hitmac.agents.training.config import JOBS, levels, with_defaults
from hitmac.agents.training.train import RolloutCallback, stop_on_signal
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
    """Trains in this process, in an empty directory, without the report, and returns the number of steps.

    A signal may come at one of them.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "report", lambda *arguments: None)

    def run(*arguments, at=None, number=signal.SIGINT):
        calls, on_step = [], RolloutCallback._on_step

        def step(callback):
            calls.append(1)
            if len(calls) == at:
                signal.raise_signal(number)
            return on_step(callback)

        with monkeypatch.context() as patch:
            patch.setattr(RolloutCallback, "_on_step", step)
            patch.setattr(sys, "argv", ["train.py", *map(str, arguments)])
            train.main()
        return len(calls)

    return run


def state(run):
    """Return the state of a training, without the clock."""
    found = safetensors.numpy.load_file(Path(run, "checkpoint", "training.safetensors"))
    del found["progress/seconds"]
    found["progress/curve"] = found["progress/curve"][:, [0, 2, 3, 4]]
    return found


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_training_stopped_within_an_update_goes_on_as_if_never_interrupted(learner, here):
    """The update is finished, whichever signal comes."""
    asked = [*LEARNERS[learner], *SMALL, "--total-steps", 4 * 64]
    if learner == "executor":
        asked[-1] = 4 * 64 * 4
    steps = here(*asked, "--run-dir", "whole")
    assert here(*asked, "--run-dir", "stopped", at=3) == steps // 4
    load_policy("stopped")
    assert here(asked[0], "--run-dir", "stopped", "--resume", at=3, number=signal.SIGTERM) == steps // 4
    here(asked[0], "--run-dir", "stopped", "--resume")
    assert same(state("whole"), state("stopped"))


def test_time_ends_a_rollout_too(here, monkeypatch, capsys):
    monkeypatch.setattr(loop, "OVERDUE", 0.0)
    limit = ["--minutes", 0.01, "--rollout-steps", 10**9]  # a rollout without end
    here("coverage", "--run-dir", "run", *SMALL, *limit)
    assert "stopped; go on with" not in capsys.readouterr().out
    load_policy("run")
    assert state("run")["progress/steps"].item() > 0
    here("coverage", "--run-dir", "run", "--resume", "--minutes", 0.02)


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
    ("command", "inside", "arguments"),
    [
        ("evaluate", "evaluate", ["--agents", "still", "--json", "out.json"]),
        ("watch", "save_replay", ["still", "--to", "out.html"]),
        ("export", "export_agent", ["pretrained:flat", "--to", "out.onnx"]),
        ("reproduce", "reproduce", ["--row", "still"]),
        ("attention", "moments", ["pretrained:flat", "--to", "out.png"]),
        ("train", "resolve", []),
        ("train", "train", [*SMALL, "--run-dir", "run"]),
    ],
)
def test_a_signal_ends_a_command_in_one_line_with_its_number(
    command, inside, arguments, number, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(COMMANDS[command][0])
    monkeypatch.setattr(module, inside, lambda *given, **options: signal.raise_signal(number))
    monkeypatch.setattr(sys, "argv", ["hitmac", command, *map(str, arguments)])
    handlers = [signal.getsignal(one) for one in SIGNALS]
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 128 + number
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert ": aborted" in line
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".", "out"))]
    assert [signal.getsignal(one) for one in SIGNALS] == handlers


@pytest.mark.parametrize("job", sorted(JOBS))
@pytest.mark.parametrize("algorithm", ["ppo", "imitation", "a2c"])
def test_sizes_suit_the_scene(job, algorithm):
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


def test_sizes_that_are_given_win(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    found = []
    monkeypatch.setattr(train, "train_run", lambda options, scenario: found.append(options))
    for given in ([], ["--batch-size", "48"], ["--num-envs", "256"]):
        train.run_command(["coverage", "--scenario", "large", "--run-dir", f"x{len(found)}", *given])
    assert [(one.num_envs, one.batch_size, one.rollout_steps) for one in found] == [
        (16, 8, 4), (16, 48, 4), (256, 8, 4)
    ]  # fmt: skip
    train.run_command(["hit-mac", "--scenario", "large", "--run-dir", "both"])
    executor, coordinator = levels(found[-1], Path("both"), load_scenario("large"))
    assert (found[-1].num_envs, executor.num_envs, coordinator.num_envs, coordinator.batch_size) == (8, 8, 8, 8)
