"""Short forms of `make fuzz` and `make soak`."""

import pytest

from hitmac.envs import TASKS, load_scenario
from tools import fuzz, soak


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
