"""Agents by name, with options in their names, by path, and from custom code."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hitmac.agents.evaluate import evaluate
from hitmac.agents.evaluate.command import main
from hitmac.agents.evaluate.figures import colours_of
from hitmac.agents.learned.checkpoint import copy_executor
from hitmac.agents.names import FORMS, load_agent, load_executor, named_agents, parse, split_options
from hitmac.agents.registry import load_run
from hitmac.envs import DEFAULT_FEATURES, OBSERVERS, PAPER_FEATURES
from hitmac.envs.observation import Observer
from tests.agents.evaluate.made import HIT_MAC, Left, saved
from tests.envs.scenes import MOTORS


# Names of each form: a scripted agent, a coordinator, an executor, MODULE:CLASS, released files, none.
@pytest.mark.parametrize(
    "name", ["planner", "assign-all", "assign-all:scripted", "json:dumps", "released:x:y", "12:30"]
)
def test_a_path_is_a_path_whatever_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(Path(name))
    saved(Path("executors") / name, task="Executor")
    saved(Path("coordinators") / name / "checkpoint", task="Coordinator")
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
    saved(Path("runs/x"), task="Coordinator")
    with pytest.raises(ValueError, match="unknown executor 'nobody'"):
        load_agent("runs/x:nobody", HIT_MAC)


def test_what_an_agent_says_of_its_features_is_what_it_observes(monkeypatch):
    """A name of one, a set or an observer, a list, an observer; with motors by default the features of motors."""

    class Own:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            self.shapes = {name: array.shape[1:] for name, array in observation.items()}
            return np.zeros((len(observation["mask"]), 4), int), state

    class Two:
        def __init__(self, scenario):
            self._observer = Observer(scenario, ("visible", "distance"))
            self.space, self.features = self._observer.space, self._observer.features

        def observe(self, simulator):
            return self._observer.observe(simulator)

    monkeypatch.setitem(OBSERVERS, "two", Two)
    for features, count in (
        ("visible", 1), ("site", 17), (["bearing", "in_range"], 2), (Two, 2), ("two", 2), (None, 8),
    ):  # fmt: skip
        policy = Own()
        policy.features = features
        evaluate([policy], "hit-mac", episodes=1, max_episode_steps=2, progress=False)
        assert policy.shapes["pairs"][-1] == count
    policy.features = 7
    with pytest.raises(ValueError, match="unknown feature 7"):
        load_agent(policy, "hit-mac")
    policy.features = torch.nn.Linear(2, 2)  # of a network, something else
    assert load_agent(policy, "hit-mac").features == DEFAULT_FEATURES
    del policy.features
    evaluate([policy], MOTORS, episodes=1, max_episode_steps=2, progress=False)
    assert policy.shapes["pairs"][-1] == 10


def test_an_object_with_predict_is_an_agent():
    agent, plain = load_agent(Left(), HIT_MAC), type("Plain", (), {"predict": Left.predict})()
    assert (agent.name, agent.features, agent.trained) == ("Left", ("distance",), False)
    assert load_agent(agent, HIT_MAC) is agent
    assert load_agent(plain, HIT_MAC).features == DEFAULT_FEATURES
    level = load_executor(plain, HIT_MAC)
    assert (level.features, level.padding, level.training_seeds) == (PAPER_FEATURES, "attended", ())
    assert load_executor(level, HIT_MAC) == level
    with pytest.raises(TypeError, match="agent is 3; it must be"):
        load_agent(3, HIT_MAC)
    with pytest.raises(TypeError, match="a level of a hierarchy is 3; it must be"):
        load_executor(3, HIT_MAC)
    with pytest.raises(ValueError, match="executor is given"):
        load_agent(Left(), HIT_MAC, executor="still")


def test_a_rule_of_mate_is_an_agent_of_duels():
    """Evaluated like any other, on the same games in any batch; it draws from them."""
    options = {"episodes": 3, "max_episode_steps": 20, "progress": False}
    rules = ("mate:random", "mate:greedy")
    whole = evaluate(rules, "mate-2v4-0", **options)["agents"]
    one = evaluate(rules, "mate-2v4-0", **options | {"episodes": 1, "seed": 2})["agents"]
    for rule in rules:
        assert one[rule]["per_episode"]["coverage"] == whole[rule]["per_episode"]["coverage"][2:]
    assert whole["mate:random"]["per_episode"] != whole["mate:greedy"]["per_episode"]
    with pytest.raises(
        ValueError, match="mate:greedy requires a scenario with warehouses, such as mate-4v8-9; got hit-mac"
    ):
        load_agent("mate:greedy", HIT_MAC)
    with pytest.raises(ValueError, match="unknown rule 'nearest' of the sensors"):
        load_agent("mate:nearest", "mate-2v4-0")
    with pytest.raises(ValueError, match="mate:naive acts on a simulated duel; it takes no observations"):
        load_agent("mate:naive", "mate-2v4-0").policy.predict({})


# Options and lists.


def test_options_reach_the_constructor():
    agent = load_agent("planner:turn_cost=0.5:horizon=30", HIT_MAC)
    assert (agent.name, agent.policy.turn_cost, agent.policy.horizon) == ("planner:turn_cost=0.5:horizon=30", 0.5, 30)
    fast = load_agent("planner-fast:turn_cost=2", HIT_MAC).policy  # by the constructor of its base
    assert (fast.turn_cost, fast.horizon, fast.samples) == (2.0, 45, 4)
    assert load_agent("random:seed=7", HIT_MAC).policy.seed == 7


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("planner:turn_cost=0.5/1, still", ["planner:turn_cost=0.5", "planner:turn_cost=1", "still"]),
        (("still,", "random", "nearest,greedy"), ["still", "random", "nearest", "greedy"]),
        ("planner:horizon=4/5:samples=2", ["planner:horizon=4:samples=2", "planner:horizon=5:samples=2"]),
        ("slow=planner:turn_cost=2:horizon=9", ["slow"]),
        ("a=b=planner:horizon=9", ["a=b"]),
        ("planner:turn_cost=0.5=still", ["planner:turn_cost=0.5"]),  # a name in the form of a family's
    ],
)
def test_lists_of_names(names, expected):
    assert [agent.name for agent in named_agents(names, HIT_MAC)] == expected


@pytest.mark.parametrize(
    ("names", "error", "says"),
    [
        ("genius", ValueError, "unknown agent 'genius'.*: known are random, still"),
        ("planer", ValueError, r"unknown agent 'planer' \(did you mean planner\?\)"),
        ("12:30", ValueError, "unknown agent '12:30'"),
        ("evader", ValueError, r"unknown agent 'evader' \(it names a team of targets\): known are"),
        ("runs/none", FileNotFoundError, "no such directory: runs/none"),
        ("ours=still+./planner", FileNotFoundError, "no such directory: ./planner"),
        ("assign-all:runs/none", FileNotFoundError, "no such directory: runs/none"),
        ("planner:turncost=1", ValueError, r"unknown option 'turncost' .*\(did you mean turn_cost\?\): known are"),
        ("still:turn_cost=1", ValueError, "unknown option 'turn_cost'"),
        ("planner:turn_cost=much", TypeError, "turn_cost is 'much'"),
        ("planner:turn_cost=", ValueError, "turn_cost in planner:turn_cost= is given without a value"),
        ("planner:horizon=3:horizon=4", ValueError, "horizon in planner:horizon=3:horizon=4 is given twice"),
        ("assign-all:nearest=3", ValueError, "nearest=3 has the option nearest, which agents with a coordinator"),
        ("pretrained:flat:nearest=0", ValueError, "nearest is 0; it must be a whole number, 1 or more"),
        ("planner:radius=3", ValueError, "radius is 3; it requires nearest"),
        ("planner:horizon=4/4", ValueError, "agents has planner:horizon=4 twice"),
        ("still+random", ValueError, "joins several trainings without a name; write NAME="),
        (", ", ValueError, "agents is ', '; give one or more"),
        ("mine:Nobody", ValueError, "the module mine has no Nobody"),
        ("mine.nowhere:Base", ValueError, "no module mine.nowhere in the current directory"),
        ("mine:number", ValueError, r"is 3, which has no predict\(\)"),
        ("mine:Scene:sed=1", ValueError, r"unknown option 'sed' .*mean seed\?\): known are seed, gain, name, on, any"),
        ("mine:ready:seed=1", ValueError, "unknown option 'seed' in mine:ready:seed=1: it takes none"),
        ("mine:Scene:seed=0.5", TypeError, "seed in mine:Scene:seed=0.5 is 0.5; it must be a whole number"),
        ("mine:Scene:gain=high", TypeError, "gain in .* is 'high'; it must be a finite number"),
        ("mine:Scene:on=1", TypeError, "on in .* is '1'; it must be true or false"),
    ],
)
def test_names_that_are_refused(names, error, says, code):
    with pytest.raises(error, match=says):
        named_agents(names, HIT_MAC)


def test_a_directory_may_be_named_as_an_option_or_a_sum(tmp_path):
    saved(tmp_path / "lr=0.001+x")
    (agent,) = named_agents(str(tmp_path / "lr=0.001+x"), HIT_MAC)
    assert agent.trained


def test_lists_of_the_nearest_are_part_of_the_name():
    agents = named_agents("pretrained:any-size:nearest=2:radius=900,planner:turn_cost=0.5:nearest=4/5", HIT_MAC)
    assert [agent.name for agent in agents] == [
        "pretrained:any-size:nearest=2:radius=900",
        *("planner:turn_cost=0.5:nearest=4", "planner:turn_cost=0.5:nearest=5"),
    ]  # fmt: skip
    assert dict(agents[0].nearness) == {"nearest": 2, "radius": 900.0}
    assert (dict(agents[-1].nearness), agents[-1].policy.turn_cost) == ({"nearest": 5}, 0.5)
    with pytest.raises(ValueError, match="nearest=2 has the option nearest, which is not supported without"):
        load_agent("pretrained:any-size:nearest=2", HIT_MAC.replace(identities=False))


@pytest.mark.parametrize("kind", FORMS)
def test_an_unknown_name_lists_all_forms(kind):
    with pytest.raises(ValueError, match=f"unknown {kind} 'nobody'") as error:
        parse("nobody", kind)
    assert all(form.words in str(error.value) for form in FORMS[kind])


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
    features = ("bearing",)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.ones(observation["mask"].shape[:-1], int), None

class Scene(Base):
    def __init__(self, scenario, seed: int = 0, *, gain: float | None = None, name: str = "", on: bool = False, any=1):
        self.options = scenario.num_sensors, seed, gain, name, on, any

class Learned(Base):
    trained = True

class Array(Base):
    def predict(self, *arguments, **options):
        return super().predict(*arguments, **options)[0]

def make(scenario):
    return Base()

ready = Base()
number = 3
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Makes the current directory one with the package `mine`."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text(MODULE)
    (tmp_path / "mine" / "inner.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import an_absent_module\n")


def test_policies_are_imported(code):
    assert load_agent("mine.inner:Scene", "hit-mac-6x9").policy.options == (6, 0, None, "", False, 1)
    for name in ("Base", "make", "ready"):
        assert load_agent(f"mine:{name}", HIT_MAC).features == ("bearing",)
    assert "bearing" in load_agent("assign-all:mine:Base", HIT_MAC).features
    assert load_agent("mine:Learned", HIT_MAC).trained
    with pytest.raises(ModuleNotFoundError, match="an_absent_module"):
        load_agent("broken:Base", HIT_MAC)
    saved(Path("mine"), task="Coordinator")  # a run beside the code of a package
    assert load_agent("mine:scripted", HIT_MAC).training_seeds
    assert load_agent("mine:Base", HIT_MAC).features == ("bearing",)


def test_policies_take_options_of_their_signature(code):
    agents = named_agents("mine:Scene:seed=1/2,x=memoryless:mine:Scene:gain=2:name=7:on=true:any=a/b", HIT_MAC)
    assert [agent.name for agent in agents] == ["mine:Scene:seed=1", "mine:Scene:seed=2", "x"]
    assert agents[1].policy.options == (4, 2, None, "", False, 1)
    options = agents[2].policy.policy.options
    assert options == (4, 0, 2.0, "7", True, "a/b")
    assert isinstance(options[2], float)
    level = load_agent("assign-all:mine:Scene:seed=5", HIT_MAC).policy.executor
    assert level.policy.options[1] == 5


def test_several_trainings_of_custom_code_are_a_row(code):
    agents = named_agents("ours=mine:Scene:seed=0+mine:Scene:seed=1,mine:Array", HIT_MAC)
    few = {"episodes": 2, "max_episode_steps": 20, "progress": False}
    found = evaluate(agents[:2], HIT_MAC, **few)["agents"]["ours"]
    assert (found["trainings"], found["runs"]) == (2, ["mine:Scene:seed=0", "mine:Scene:seed=1"])
    with pytest.raises(TypeError, match=r"predict\(\) of mine:Array returned ndarray; it must return the tuple"):
        evaluate(agents[2], HIT_MAC, **few)


def test_the_front_of_several_values_is_one_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agents = "planner-fast:turn_cost=0.2/1/3:horizon=9,still"
    main([agents, "--front", "front.png", "--episodes", "2", "--max-episode-steps", "20"])
    assert [path.name for path in tmp_path.iterdir()] == ["front.png"]
