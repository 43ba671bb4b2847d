"""Agents by name, with options in their names, by path, and from custom code."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from hitmac.agents import PolicyConfig, save_policy
from hitmac.agents.baselines.planner import FastPlannerAgent
from hitmac.agents.evaluate.command import main
from hitmac.agents.evaluate.figures import colours_of
from hitmac.agents.learned.checkpoint import build_policy, copy_executor
from hitmac.agents.registry import load_agent, load_executor, load_run, named_agents, split_options
from hitmac.envs import DEFAULT_FEATURES, PAPER_FEATURES, load_scenario

HIT_MAC = load_scenario("hit-mac")


def saved(folder, task="Coverage"):
    torch.manual_seed(1)
    seeds = 2**40, 2**40 + 9
    config = PolicyConfig(
        policy={"weight_dim": 8}, features=DEFAULT_FEATURES, scenario=HIT_MAC, training_seeds=seeds, task=task
    )
    save_policy(folder, build_policy(config, HIT_MAC), config)
    return folder


class Left:
    """Turns every sensor to the left."""

    features = ("distance",)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert observation["pairs"].shape[-1] == len(self.features)
        return np.ones(observation["mask"].shape[:-1], int), None


# Names of each form: a scripted agent, a coordinator, an executor, MODULE:CLASS, released files, none.
@pytest.mark.parametrize(
    "name", ["planner", "assign-all", "assign-all:scripted", "json:dumps", "released:x:y", "12:30"]
)
def test_a_path_is_a_path_whatever_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(Path(name))
    saved(Path("executors") / name, "Executor")
    saved(Path("coordinators") / name / "checkpoint", "Coordinator")
    copy_executor(f"executors/{name}", Path("coordinators") / name / "checkpoint")
    for path in (Path(name), f"./{name}", f"{tmp_path}/{name}"):
        agent = load_agent(path, HIT_MAC)
        assert (agent.name, agent.trained) == (str(path), True)
        assert agent.training_seeds == ((2**40, 2**40 + 9),)
    run = load_run(Path(name), "hit-mac", name="trained")
    assert (run.name, run.training_seeds) == ("trained", agent.training_seeds)
    os.chdir("executors")
    for path in (Path(name), f"./{name}"):
        assert load_executor(path, HIT_MAC).training_seeds == agent.training_seeds
        given = load_agent("assign-in-range", HIT_MAC, executor=path)
        assert (given.name, given.trained, given.training_seeds) == ("assign-in-range", True, agent.training_seeds)
    os.chdir("../coordinators")
    assert len(load_agent(Path(name), HIT_MAC).training_seeds) == 2
    assert load_executor(Path(name), HIT_MAC).padding == "masked"
    for other in ("scripted", f"../executors/{name}", f"{tmp_path}/executors/{name}"):
        assert len(load_agent(f"./{name}:{other}", HIT_MAC).training_seeds) == (1 if other == "scripted" else 2)
        assert load_agent(f"assign-all:{other}", HIT_MAC).trained == (other != "scripted")


def test_a_name_is_a_path_only_if_it_is_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(Path("runs/12:30"))
    saved(Path("planner"))
    assert load_agent("runs/12:30", HIT_MAC).trained
    assert not load_agent("planner", HIT_MAC).trained
    with pytest.raises(FileNotFoundError, match="runs is not a checkpoint"):
        load_agent(Path("runs"), HIT_MAC)
    saved(Path("runs/x"), "Coordinator")
    with pytest.raises(ValueError, match="unknown executor 'nobody'"):
        load_agent("runs/x:nobody", HIT_MAC)


def test_an_object_with_predict_is_an_agent():
    agent = load_agent(Left(), "hit-mac")
    assert (agent.name, agent.features, agent.trained) == ("Left", ("distance",), False)
    assert load_agent(agent, "hit-mac") is agent
    plain = type("Plain", (), {"predict": Left.predict})()
    assert load_agent(plain, "hit-mac").features == DEFAULT_FEATURES
    level = load_executor(plain, "hit-mac")
    assert (level.features, level.padding, level.training_seeds) == (PAPER_FEATURES, "attended", ())
    assert load_executor(level, "hit-mac") == level
    with pytest.raises(TypeError, match="agent is 3; it must be"):
        load_agent(3, "hit-mac")
    with pytest.raises(TypeError, match="a level of a hierarchy is 3; it must be"):
        load_executor(3, "hit-mac")
    with pytest.raises(ValueError, match="executor is given"):
        load_agent(Left(), "hit-mac", executor="still")


# Options in names.


def test_options_reach_the_constructor():
    agent = load_agent("planner:turn_cost=0.5:horizon=30", HIT_MAC)
    assert (agent.name, agent.policy.turn_cost, agent.policy.horizon) == ("planner:turn_cost=0.5:horizon=30", 0.5, 30)
    fast = load_agent("planner-fast:turn_cost=2", HIT_MAC).policy  # by the constructor of its base
    assert isinstance(fast, FastPlannerAgent)
    assert (fast.turn_cost, fast.horizon, fast.samples) == (2.0, 45, 1)
    assert load_agent("random:seed=7", HIT_MAC).policy.seed == 7


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("genius", ValueError, "unknown agent 'genius'.*: known are random, still"),
        ("planer", ValueError, r"unknown agent 'planer' \(did you mean planner\?\)"),
        ("12:30", ValueError, "unknown agent '12:30'"),
        ("planner:turncost=1", ValueError, r"unknown option 'turncost' .*\(did you mean turn_cost\?\): known are"),
        ("still:turn_cost=1", ValueError, "unknown option 'turn_cost'"),
        ("planner:turn_cost=much", TypeError, "turn_cost is 'much'"),
        ("planner:turn_cost=", ValueError, "turn_cost in planner:turn_cost= is given without a value"),
        ("planner:horizon=3:horizon=4", ValueError, "horizon in planner:horizon=3:horizon=4 is given twice"),
        ("assign-all:nearest=3", ValueError, "assign-all:nearest=3 is given nearest"),
    ],
)
def test_names_that_are_refused(name, error, says):
    with pytest.raises(error, match=says):
        load_agent(name, HIT_MAC)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("planner:turn_cost=0.5/1,still", ["planner:turn_cost=0.5", "planner:turn_cost=1", "still"]),
        ("planner:horizon=4/5:samples=2", ["planner:horizon=4:samples=2", "planner:horizon=5:samples=2"]),
        ("slow=planner:turn_cost=2:horizon=9", ["slow"]),
        ("a=b=planner:horizon=9", ["a=b"]),
        ("planner:turn_cost=0.5=still", ["planner:turn_cost=0.5"]),  # a name in the form of a family's
    ],
)
def test_names_with_options_among_groups(names, expected):
    assert [agent.name for agent in named_agents(names, HIT_MAC)] == expected


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("planner:horizon=4/4", "agents has planner:horizon=4 twice"),
        ("still+random", "joins several trainings without a name; write NAME="),
        (",", "agents is ','; give one or more"),
    ],
)
def test_lists_of_names_that_are_refused(names, says):
    with pytest.raises(ValueError, match=says):
        named_agents(names, HIT_MAC)


def test_families_by_hand():
    assert split_options("planner:turn_cost=0.5:horizon=3") == ("planner", "turn_cost=0.5:horizon=3")
    assert split_options("assign-all:runs/x") == ("assign-all:runs/x", "")
    colours = colours_of({"planner": {}, "planner:turn_cost=1": {}, "q:c=1": {}, "r": {}, "q:c=2": {}})
    assert colours["planner"] == colours["planner:turn_cost=1"]
    assert colours["q:c=1"] == colours["q:c=2"] != colours["r"]


# Custom code.

MODULE = """
import numpy as np

class Base:
    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.ones(observation["mask"].shape[:-1], int), None

class Alone(Base):
    features = ("bearing",)

class Scene(Base):
    def __init__(self, scenario, gain=1.0):
        self.sensors = scenario.num_sensors

class Other(Base):
    trained = True

def make():
    return Base()

ready = Base()
number = 3
"""


def test_policies_are_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies_of_mine").mkdir()
    (tmp_path / "policies_of_mine" / "__init__.py").write_text(MODULE)
    (tmp_path / "policies_of_mine" / "inner.py").write_text(MODULE)
    (tmp_path / "policies_broken.py").write_text("import an_absent_module\n")
    assert load_agent("policies_of_mine:Alone", "hit-mac").features == ("bearing",)
    assert load_agent("policies_of_mine.inner:Scene", "hit-mac-6x9").policy.sensors == 6
    assert load_agent("policies_of_mine:Other", "hit-mac").trained
    for name in ("make", "ready"):
        assert load_agent(f"policies_of_mine:{name}", "hit-mac").features == DEFAULT_FEATURES
    assert "bearing" in load_agent("assign-all:policies_of_mine:Alone", "hit-mac").features
    for name, says in [
        ("policies_of_mine:Nobody", "the module policies_of_mine has no Nobody"),
        ("policies_of_mine.nowhere:Alone", "no module policies_of_mine.nowhere in the current directory"),
        ("policies_of_mine:number", r"is 3, which has no predict\(\)"),
    ]:
        with pytest.raises(ValueError, match=says):
            load_agent(name, "hit-mac")
    with pytest.raises(ModuleNotFoundError, match="an_absent_module"):
        load_agent("policies_broken:Alone", "hit-mac")
    saved(Path("policies_of_mine"), "Coordinator")  # a run beside the code of a package
    assert load_agent("policies_of_mine:scripted", "hit-mac").training_seeds
    assert load_agent("policies_of_mine:Alone", "hit-mac").features == ("bearing",)


def test_the_front_of_several_values_is_one_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ["--episodes", "2", "--max-episode-steps", "20"]
    main(["--agents", "planner-fast:turn_cost=0.2/1/3:horizon=9,still", "--front", "front.png", *few])
    assert [path.name for path in tmp_path.iterdir()] == ["front.png"]
    for wrong, says in ((["f.gif"], "its name must end in .png"), (["f.png", "--sizes", "2x2,2x3"], "--front takes a")):
        with pytest.raises(SystemExit):
            main(["--agents", "still", *few, "--front", *wrong])
        assert says in capsys.readouterr().err
