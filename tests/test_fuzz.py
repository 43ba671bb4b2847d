"""Short forms of ``make fuzz`` and ``make soak``."""

import shlex
import shutil

import numpy as np
import pytest

from hitmac.envs import TASKS, load_scenario
from tests import fuzz_kernels
from tests.fuzz import PARTS, UnclearError, checked, fuzz
from tests.fuzz import main as fuzz_main
from tests.soak import Case, cases, soak


@pytest.mark.parametrize("part", PARTS)
def test_any_input_is_taken_or_refused_clearly(part, monkeypatch):
    monkeypatch.setattr(fuzz_kernels, "ALL_KERNELS", False)
    fuzz(part, 20)


def test_errors_of_libraries_and_empty_messages_are_not_clear():
    def fail():
        raise ValueError("short")

    for call in (lambda: np.zeros(2) + np.zeros(3), lambda: int("x" * 20), fail):
        with pytest.raises(UnclearError):
            checked(call)
    with pytest.raises(ZeroDivisionError):
        checked(lambda: 1 / 0)
    checked(lambda: load_scenario("hit-mac").replace(arena=-1))


def test_a_part_that_fails_prints_a_command_that_fails_again(monkeypatch, capsys):
    asked = ["scenario file", "--inputs", "7", "--seed", "3", "--plain"]
    monkeypatch.setattr("sys.argv", ["fuzz", *asked])
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    assert fuzz_main() == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert shlex.split(last) == ["again:", "python", "-m", "tests.fuzz", *asked]


@pytest.mark.parametrize("name", TASKS)
def test_a_short_run_of_every_task(name, monkeypatch):
    task = TASKS[name]
    case = Case(name, task, load_scenario(task.spec.scenario), {})
    soak(case, 30_000)
    rewards = task.step

    def spoilt(self, action):
        return rewards(self, action) * np.nan

    monkeypatch.setattr(task, "step", spoilt)
    with pytest.raises(AssertionError, match="a reward is"):
        soak(case, 3_000)


def test_the_long_runs_have_all_presets_and_kinds_of_knowledge(tmp_path):
    every = list(cases(tmp_path, 2))
    assert len({case.name for case in every}) == len(every) > 20
    assert {case.scenario.knowledge for case in every} == {"full", "shared", "neighbours", "own"}
    assert {case.scenario.placement for case in every} >= {"areas", "grid", "random", "rails", "crossings"}
    assert any(case.scenario.tracks for case in every)
