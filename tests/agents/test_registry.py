"""Agents by name, by path, from code of one's own; and what a result says of its making."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from hitmac.agents import PolicyConfig, save_policy, scripted_agent
from hitmac.agents.command_line import _command, _commit, provenance
from hitmac.agents.hierarchy import HierarchicalAgent
from hitmac.agents.learned.checkpoint import build_policy, copy_executor
from hitmac.agents.registry import load_agent, load_executor, load_run
from hitmac.envs import DEFAULT_FEATURES, PAPER_FEATURES, load_scenario
from hitmac.envs.kernels.threads import cores
from hitmac.envs.tasks import CoverageTask

HIT_MAC = load_scenario("hit-mac")


def saved(folder, task="Coverage", seed=1, **policy):
    torch.manual_seed(seed)
    config = PolicyConfig(
        policy={"weight_dim": 8, **policy},
        features=DEFAULT_FEATURES,
        scenario=HIT_MAC,
        training_seeds=(2**40, 2**40 + 9),
        task=task,
    )
    save_policy(folder, build_policy(config, HIT_MAC), config)
    return folder


class Left:
    """Turns every sensor to the left."""

    features = ("distance",)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert observation["pairs"].shape[-1] == len(self.features)
        return np.ones(observation["mask"].shape[:-1], int), None


ODD = [
    "planner",
    "random",
    "assign-all",
    "scripted",
    "12:30",
    "a:b:c",
    "assign-all:scripted",
    "released:x:y",
    "json:dumps",
]


@pytest.mark.parametrize("name", ODD)
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
        filmed = load_agent("assign-in-range", HIT_MAC, executor=path)
        assert (filmed.name, filmed.trained, filmed.training_seeds) == ("assign-in-range", True, agent.training_seeds)
    assert load_executor(Path(name), HIT_MAC).training_seeds == agent.training_seeds
    os.chdir("../coordinators")
    whole = load_agent(Path(name), HIT_MAC)
    assert len(whole.training_seeds) == 2
    assert load_executor(Path(name), HIT_MAC).padding == "masked"
    for other in ("scripted", f"../executors/{name}", f"{tmp_path}/executors/{name}"):
        assert len(load_agent(f"./{name}:{other}", HIT_MAC).training_seeds) == (1 if other == "scripted" else 2)
        assert load_agent(f"assign-all:{other}", HIT_MAC).trained == (other != "scripted")


def test_an_unusual_name_that_nothing_else_has_is_a_path_without_a_dot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(Path("runs/12:30"))
    assert load_agent("runs/12:30", HIT_MAC).trained
    assert not load_agent("planner", HIT_MAC).trained
    with pytest.raises(ValueError, match="unknown agent '12:30'"):
        load_agent("12:30", HIT_MAC)
    with pytest.raises(FileNotFoundError, match="planner is not a checkpoint"):
        load_agent(Path("planner"), HIT_MAC)
    saved(Path("runs/x"), "Coordinator")
    with pytest.raises(ValueError, match="unknown executor 'nobody'"):
        load_agent("runs/x:nobody", HIT_MAC)


def test_scenarios_by_name_everywhere():
    shown = CoverageTask("hit-mac-2x3", 1, 0, features=DEFAULT_FEATURES).observe()
    assert scripted_agent("still", "hit-mac-2x3").predict(shown)[0].shape == (1, 2)
    assert load_agent("planner", "hit-mac").features
    assert load_executor("scripted", "hit-mac").padding == "masked"
    with pytest.raises(ValueError, match="unknown scenario 'moon'"):
        load_agent("planner", "moon")


def test_an_object_with_predict_is_an_agent():
    agent = load_agent(Left(), "hit-mac")
    assert (agent.name, agent.features, agent.trained) == ("Left", ("distance",), False)
    assert load_agent(agent, "hit-mac") is agent
    plain = type("Plain", (), {"predict": Left.predict})()
    assert load_agent(plain, "hit-mac").features == DEFAULT_FEATURES
    level = load_executor(plain, "hit-mac")
    assert (level.features, level.padding, level.training_seeds) == (PAPER_FEATURES, "attended", ())
    assert load_executor(level, "hit-mac") == level
    with pytest.raises(TypeError, match=r"agent is 3; it must be a name, a directory, an Agent or an object"):
        load_agent(3, "hit-mac")
    with pytest.raises(TypeError, match="a level of a hierarchy is 3; it must be"):
        load_executor(3, "hit-mac")
    with pytest.raises(ValueError, match="only the name or the directory of a coordinator takes one"):
        load_agent(Left(), "hit-mac", executor="still")


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
    return Scene.__new__(Scene)

ready = Base()
number = 3
class Mute:
    pass
"""


def test_policies_are_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies_of_mine").mkdir()
    (tmp_path / "policies_of_mine" / "__init__.py").write_text(MODULE)
    (tmp_path / "policies_of_mine" / "inner.py").write_text(MODULE)
    (tmp_path / "policies_broken.py").write_text("import a_module_that_is_not_there\n")
    assert load_agent("policies_of_mine:Alone", "hit-mac").features == ("bearing",)
    assert load_agent("policies_of_mine.inner:Scene", "hit-mac-6x9").policy.sensors == 6
    other = load_agent("policies_of_mine:Other", "hit-mac")
    assert (other.name, other.trained) == ("policies_of_mine:Other", True)
    assert load_agent("policies_of_mine:make", "hit-mac").features == DEFAULT_FEATURES
    assert load_agent("policies_of_mine:ready", "hit-mac").policy
    pair = load_agent("assign-all:policies_of_mine:Alone", "hit-mac")
    assert isinstance(pair.policy, HierarchicalAgent)
    assert "bearing" in pair.features
    for name, says in [
        ("policies_of_mine:Nobody", "the module policies_of_mine has no Nobody"),
        ("policies_of_mine.nowhere:Alone", "there is no module policies_of_mine.nowhere here"),
        ("policies_nowhere:Alone", "there is no module policies_nowhere here"),
        ("policies_of_mine:Mute", r"which has no predict\(\)"),
        ("policies_of_mine:number", r"is 3, which has no predict\(\); it must be a class or an object with it"),
    ]:
        with pytest.raises(ValueError, match=says):
            load_agent(name, "hit-mac")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        load_agent("policies_broken:Alone", "hit-mac")
    saved(Path("policies_of_mine"), "Coordinator")  # a run beside the code of a package
    assert load_agent("policies_of_mine:scripted", "hit-mac").training_seeds
    assert load_agent("policies_of_mine:Alone", "hit-mac").features == ("bearing",)


# --- provenance ---


def test_a_result_says_what_made_it():
    made = provenance()
    assert json.loads(json.dumps(made)) == made
    assert made["versions"]["torch"] == torch.__version__
    assert set(made["versions"]) == {"python", "hitmac", "torch", "numpy", "numba", "stable-baselines3", "gymnasium"}
    assert made["threads"] == {"torch": torch.get_num_threads(), "simulator": cores(), "cores": os.cpu_count()}
    assert set(made) == {"versions", "commit", "modified", "threads", "platform", "processor", "command"}


def test_the_command_says_nothing_of_the_machine():
    here = Path("/home/someone/work")
    arguments = ["/usr/bin/python3.12", "-m", "agents.evaluate", "--agents", "/home/someone/work/runs/a,/data/b", "x/y"]
    assert _command(arguments, here) == "python3.12 -m agents.evaluate --agents runs/a,b x/y"
    assert _command(["python", "a=/data/x/1+/home/someone/work/y", "--json=/tmp/z"], here) == "python a=1+y --json=z"
    assert _command([], here) == ""


def git(*arguments, cwd):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True)


def test_the_commit_is_that_of_the_own_checkout(tmp_path, monkeypatch):
    assert _commit(tmp_path) == (None, None)
    git("init", cwd=tmp_path)
    assert _commit(tmp_path) == (None, None)  # without a commit
    (tmp_path / "file").write_text("1")
    git("add", "file", cwd=tmp_path)
    git("commit", "-m", "one", cwd=tmp_path)
    commit, modified = _commit(tmp_path)
    assert (len(commit), modified) == (40, False)
    (tmp_path / "other").write_text("untracked")
    assert _commit(tmp_path) == (commit, False)
    (tmp_path / "file").write_text("2")
    assert _commit(tmp_path) == (commit, True)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    (tmp_path / "installed").mkdir()
    assert _commit(tmp_path / "installed") == (None, None)  # in another's checkout
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _commit(tmp_path) == (None, None)  # without git
