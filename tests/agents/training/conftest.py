import signal
import sys

import pytest

from hitmac import train
from hitmac.agents.training import report, sweep
from hitmac.agents.training.learner import RolloutCallback
from tests.agents.training import brief


@pytest.fixture(autouse=True)
def _not_ignored():
    """Signals end a program also where the tests run under nohup, which ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Runs train.py in this process and an empty directory; returns the number of steps of the scenes.

    A signal may come at a step, which counts from 1. A run is evaluated, in 20 sub-steps and with few baselines, or
    also reported, with pictures and a film, only if asked.
    """
    monkeypatch.chdir(tmp_path)

    def run(*arguments, at=None, number=signal.SIGINT, evaluated=False, reported=False):
        calls, on_step = [], RolloutCallback._on_step

        def step(callback):
            calls.append(1)
            if len(calls) == at:
                signal.raise_signal(number)
            return on_step(callback)

        with monkeypatch.context() as patch:
            patch.setattr(RolloutCallback, "_on_step", step)
            patch.setattr(sys, "argv", ["train.py", *map(str, arguments)])
            for name, value in (brief.SHORT_EPISODES | ({} if reported else brief.FEW_FILES)).items():
                patch.setattr(report, name, value)
            if not (evaluated or reported):
                patch.setattr(sweep, "report", lambda *arguments, **options: None)
                patch.setattr(sweep, "evaluate_trainings", lambda *arguments: None)
            train.main()
        return len(calls)

    return run


@pytest.fixture
def refused(here, error_of, monkeypatch):
    """Runs a command that is refused before anything is trained; returns the line."""

    def run(*arguments):
        with monkeypatch.context() as patch:
            for name in ("train_run", "train_group"):
                patch.setattr(train, name, lambda *given: pytest.fail("it trains"))
            return error_of(lambda given: here(*given), *arguments)

    return run


@pytest.fixture
def failed(here, capsys):
    """Runs a training that fails, and returns its one line."""

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            here(*arguments)
        assert end.value.code == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
        assert line.startswith("train.py: error: ")
        assert line.endswith("; the last checkpoint is kept")
        return line

    return run
