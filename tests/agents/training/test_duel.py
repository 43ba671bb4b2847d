"""Self-play: alternating responses, their population, and a run that is continued."""

import json
from pathlib import Path

import numpy as np
import pytest

from hitmac.agents.names import load_opponent, members_of
from hitmac.agents.training import duel
from tests.agents.training.runs import differences, state, steps_of

TINY = ["--scenario", "mate-2v4-0", "--num-envs", 2, "--weight-dim", 4, "--episodes", 2, "--total-steps", 256]


@pytest.fixture
def play(here, monkeypatch):
    monkeypatch.setattr(duel, "WHOLE", 20)  # steps of an episode of a match
    return lambda *options, **more: here("duel", *options, **more)


@pytest.mark.slow
def test_a_run_that_is_stopped_in_any_training_continues_as_if_never_stopped(play):
    steps = play("--run-dir", "whole", *TINY, "--iterations", 1)
    whole = json.loads(Path("whole/population.json").read_text())
    play("--run-dir", "parts", *TINY, "--iterations", 1, at=1)  # in the training of the targets
    assert not Path("parts/population.json").exists()
    play("--run-dir", "parts", "--resume", at=steps - 40)  # in that of the sensors
    assert list(json.loads(Path("parts/population.json").read_text())["targets"]) == ["greedy", "targets-1"]
    play("--run-dir", "parts", "--resume")
    assert json.loads(Path("parts/population.json").read_text()) == whole
    for run in ("targets-1", "sensors-1"):
        assert steps_of(f"whole/{run}") >= 256
        assert differences(state(f"whole/{run}"), state(f"parts/{run}")) == []
    assert members_of("whole", "sensors") == {"mate:greedy": 0.5, "whole/sensors-1": 0.5}
    assert len(load_opponent("whole", "mate-2v4-0", "targets").players) == 2
    assert np.shape(whole["coverage"]["per_episode"]) == (2, 2, 2)
    assert Path("whole/matrix.png").is_file()
