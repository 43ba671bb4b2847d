"""The loop over updates: signals and limits."""

import signal

from hitmac.agents.learned.checkpoint import load_policy
from hitmac.agents.training import learner
from tests.agents.training.runs import SMALL, differences, state, steps_of


def test_a_signal_ends_the_training_after_the_update_and_resume_continues_it(here, capfd):
    asked = ["coverage", *SMALL, "--total-steps", 4 * 16]
    steps = here(*asked, "--run-dir", "whole")
    assert here(*asked, "--run-dir", "stopped", at=2) == steps // 4
    out = capfd.readouterr().out
    assert "stopping after this update" in out
    assert "steps, exploring: coverage " in out
    assert "train.py coverage --run-dir stopped --resume" in out
    load_policy("stopped")
    assert here("coverage", "--run-dir", "stopped", "--resume", at=2, number=signal.SIGTERM) == steps // 4
    here("coverage", "--run-dir", "stopped", "--resume")
    assert differences(state("whole"), state("stopped")) == []


def test_the_time_limit_ends_a_rollout_too(here, monkeypatch):
    monkeypatch.setattr(learner, "OVERDUE", 0.0)
    here("coverage", "--run-dir", "run", *SMALL, "--minutes", 0.005, "--rollout-steps", 10**9)
    load_policy("run")
    assert steps_of("run") > 0
