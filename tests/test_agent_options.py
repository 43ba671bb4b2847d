"""Scripted agents with options in their names, several values of one, and the line that joins them in a figure."""

import matplotlib.image
import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.baselines.planner import FastPlannerAgent
from hitmac.agents.evaluate.command import main
from hitmac.agents.evaluate.compare import named_agents
from hitmac.agents.evaluate.figures import Value, colours_of, family_lines, short_names
from hitmac.agents.registry import family_of
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
        ("planner:horizon=2.5", TypeError, "horizon is 2.5; it must be a whole number"),
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


def points(**places):
    return {name: (Value(x, x, x), Value(y, y, y)) for name, (x, y) in places.items()}


def test_families_by_hand():
    assert family_of("planner:turn_cost=0.5:horizon=3") == ("planner", "turn_cost=0.5:horizon=3")
    assert family_of("assign-all:runs/x") == ("assign-all:runs/x", "")
    places = {"p:c=1": (0.1, 0.7), "still": (0.0, 0.3), "p:c=0": (0.3, 0.8), "p": (0.2, 0.75), "q:c=1": (0.5, 0.5)}
    lines = family_lines(points(**places))
    assert {name: line.tolist() for name, line in lines.items()} == {"p:c=1": [[0.1, 0.7], [0.2, 0.75], [0.3, 0.8]]}
    results = {name: {"coverage": {"mean": y}} for name, (_, y) in places.items()}
    shown = short_names(results | {"p:c=2:d=3": {"coverage": {"mean": 0.1}}, "p:c=9": {}})
    assert list(shown.values()) == ["1", "still", "p:c=0", "p", "q:c=1", "c=2:d=3", "9"]
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
