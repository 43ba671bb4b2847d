"""Short forms of `make fuzz` and `make soak`, and names that no tool has."""

import pytest

from hitmac.envs import TASKS, load_scenario
from tools import faults, fuzz, soak, versions


def test_fuzz_accepts_clear_refusals_only():
    for part in ("tracks", "lines", "visca answer", "site files"):
        fuzz.fuzz(part, 20)
    with pytest.raises(fuzz.UnclearError):
        fuzz.checked(lambda: int("x" * 20))


def test_soak_finds_a_reward_that_is_not_finite(monkeypatch):
    case = soak.Case("hit-mac", TASKS["Coverage"], load_scenario("hit-mac"), {})
    soak.soak(case, 2_000)
    monkeypatch.setattr(TASKS["Coverage"], "step", lambda self, action: action * float("nan"))
    with pytest.raises(AssertionError, match="a reward is"):
        soak.soak(case, 3_000)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (fuzz, "encodr", "unknown part encodr (did you mean encoder?)"),
        (faults, "coverge", "unknown job coverge (did you mean coverage?)"),
        (soak, "footbal footbll", "no case begins with 'footbll': known are "),
        (versions, "--kinds lowst", "--kinds is lowst; unknown is lowst: known are lowest, newest"),
        (soak, "--million -1", "--million is -1.0; it must be greater than 0"),
        (faults, "--trials 0", "--trials is 0; it must be at least 1"),
        (versions, "--pin torch", "--pin is torch; it must be NAME==VERSION"),
        (versions, "--pythons python0,false", "--pythons is python0,false; none of them runs"),
    ],
)
def test_a_tool_that_would_check_nothing_says_so(tool, arguments, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [tool.__name__, *arguments.split()])
    with pytest.raises(SystemExit) as end:
        tool.main()
    assert end.value.code == 2
    assert message in capsys.readouterr().err
