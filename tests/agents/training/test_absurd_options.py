"""Absurd values of every number among the options of every job: one line that names the option, and nothing made."""

import dataclasses
import re
import sys

import pytest

from hitmac import train
from hitmac.agents.training.config import JOBS, HitMacOptions, check, with_defaults
from hitmac.agents.training.sweep import check_group
from hitmac.envs import load_scenario
from hitmac.envs.validation import field_types

HIT_MAC = load_scenario("hit-mac")
KINDS = {**JOBS, HitMacOptions.job: HitMacOptions}
NUMBERS = [
    (job, name, number)
    for job, kind in KINDS.items()
    for name, hint in field_types(kind).items()
    if (number := re.search(r"\b(int|float)\b", str(hint)))
]


def refusal(options):
    """Return what a training with these options is refused with before anything is made; "" if it is not."""
    try:
        check(options)
        check_group(options)
    except (ValueError, TypeError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("job", "name", "number"), NUMBERS, ids=[f"{job}-{name}" for job, name, _ in NUMBERS])
def test_an_absurd_number_is_refused_in_one_line(job, name, number):
    whole = number[0] == "int"
    values = [-1, float("nan")] if whole else [float("inf"), float("-inf"), float("nan"), -1.0]
    for algorithm in ("ppo", "imitation"):
        options = with_defaults(KINDS[job], algorithm)
        assert refusal(options) == ""
        for value in values:
            said = refusal(dataclasses.replace(options, **{name: value}))
            assert f"--{name.replace('_', '-')}" in said, value
            assert "\n" not in said
            assert len(said) < 700


@pytest.mark.parametrize(
    "arguments",
    [
        ("coverage", "--total-steps", "0"),
        ("coverage", "--rollout-steps", "1e12"),
        ("coverage", "--weight-dim", "-64"),
        ("coverage", "--seeds", "0"),
    ],
)
def test_the_command_line_says_so_and_makes_nothing(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments, "--run-dir", "x"])
    with pytest.raises(SystemExit) as end:
        train.main()
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert arguments[1] in line
    assert len(line) < 1000
    assert not list(tmp_path.iterdir())
