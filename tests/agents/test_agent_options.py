"""Scripted agents with options in their names, several values of one, and the line that joins them in a figure."""

import matplotlib.image
import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.baselines.planner import FastPlannerAgent
from hitmac.agents.evaluate.command import main
from hitmac.agents.evaluate.figures import colours_of
from hitmac.agents.registry import named_agents, split_options
from hitmac.envs import load_scenario

HIT_MAC = load_scenario("hit-mac")


def test_options_reach_the_constructor():
    agent = load_agent("planner:turn_cost=0.5:horizon=30", HIT_MAC)
    assert (agent.name, agent.policy.turn_cost, agent.policy.horizon) == ("planner:turn_cost=0.5:horizon=30", 0.5, 30)
    fast = load_agent("planner-fast:turn_cost=2", HIT_MAC).policy  # its constructor hands its options on
    assert isinstance(fast, FastPlannerAgent)
    assert (fast.turn_cost, fast.horizon, fast.samples) == (2.0, 45, 1)
    assert load_agent("random:seed=7", HIT_MAC).policy.seed == 7


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("planner:turncost=1", ValueError, r"unknown option 'turncost' .*\(did you mean turn_cost\?\): known are"),
        ("planner:turn_cost=-1", ValueError, "turn_cost is -1"),
        ("planner:turn_cost=much", TypeError, "turn_cost is 'much'; it must be a finite number"),
        ("planner:horizon=2.5", ValueError, "horizon is 2.5; it must be a whole number"),
        ("planner:horizon=0", ValueError, "horizon is 0"),
        ("planner:turn_cost=", ValueError, "turn_cost in planner:turn_cost= is given without a value"),
        ("planner:horizon=3:horizon=4", ValueError, "horizon in planner:horizon=3:horizon=4 is given twice"),
        ("still:turn_cost=1", ValueError, "unknown option 'turn_cost'"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(name, error, says):
    with pytest.raises(error, match=says):
        load_agent(name, HIT_MAC)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("planner:turn_cost=0.5", ["planner:turn_cost=0.5"]),
        ("planner:turn_cost=0.5/1,still", ["planner:turn_cost=0.5", "planner:turn_cost=1", "still"]),
        ("slow=planner:turn_cost=2:horizon=9", ["slow"]),
        ("a=b=planner:horizon=9", ["a=b"]),
        ("planner:horizon=4/5:samples=2", ["planner:horizon=4:samples=2", "planner:horizon=5:samples=2"]),
        ("policy:turn_cost=0.5=still", ["policy:turn_cost=0.5"]),  # a name in the form of a family's
        ("planner:turn_cost=0.5=still", ["planner:turn_cost=0.5"]),
    ],
)
def test_names_with_options_among_groups(names, expected):
    assert [agent.name for agent in named_agents(names, HIT_MAC)] == expected


def test_the_same_options_twice_are_refused():
    with pytest.raises(ValueError, match="agents has planner:horizon=4 twice"):
        named_agents("planner:horizon=4/4", HIT_MAC)


def test_families_by_hand():
    assert split_options("planner:turn_cost=0.5:horizon=3") == ("planner", "turn_cost=0.5:horizon=3")
    assert split_options("assign-all:runs/x") == ("assign-all:runs/x", "")
    colours = colours_of({"planner": {}, "planner:turn_cost=1": {}, "q:c=1": {}, "r": {}, "q:c=2": {}})
    assert colours["planner"] == colours["planner:turn_cost=1"]
    assert colours["q:c=1"] == colours["q:c=2"] != colours["r"]


def test_the_front_is_one_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ["--episodes", "2", "--max-episode-steps", "20"]
    main(["--agents", "planner-fast:turn_cost=0.2/1/3:horizon=9,still", "--front", "front.png", *few])
    picture = matplotlib.image.imread("front.png")[..., :3]
    green = np.array([0x8F, 0xC6, 0x6B]) / 255  # of the fast planner
    assert (np.abs(picture - green).max(-1) < 0.02).sum() > 20
    assert [path.name for path in tmp_path.iterdir()] == ["front.png"]
    for wrong, says in ((["--front", "front.gif"], "its name must end in .png"),
                        (["--front", "f.png", "--sizes", "2x2,2x3"], "--front takes a single scenario")):  # fmt: skip
        with pytest.raises(SystemExit):
            main(["--agents", "still", *few, *wrong])
        assert says in capsys.readouterr().err
