"""Who can be evaluated, which runs are refused, and how a result says what its intervals are over."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from hitmac.agents import AttentionPolicy, PolicyConfig, save_policy
from hitmac.agents.evaluate import evaluate, evaluate_executors
from hitmac.agents.evaluate.command import main
from hitmac.agents.evaluate.figures import save_bars, save_pareto
from hitmac.agents.evaluate.tables import markdown, table
from hitmac.agents.learned.checkpoint import build_policy, copy_executor
from hitmac.agents.registry import Agent, load_agent, load_executor
from hitmac.envs import DEFAULT_FEATURES, load_scenario
from hitmac.envs.tasks import CoordinatorTask
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

ROOT = Path(__file__).parents[3]
HIT_MAC = load_scenario("hit-mac")
SHORT = {"episodes": 3, "max_episode_steps": 4, "progress": False}


def saved(folder, seed=0, task="Coverage"):
    torch.manual_seed(seed)
    config = PolicyConfig(
        policy={"weight_dim": 8}, features=DEFAULT_FEATURES, scenario=HIT_MAC, training_seeds=(2**40, 2**40), task=task
    )
    save_policy(folder, build_policy(config, HIT_MAC), config)
    return folder


class Mine:
    """Turns every sensor to the left; says which features it needs."""

    features = ("distance",)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert observation["pairs"].shape[-1] == 1
        return np.ones(observation["mask"].shape[:-1], int), None


class Learned(Mine):
    trained = True


# --- who can be evaluated ---


def test_names_paths_and_objects_are_evaluated(tmp_path):
    run = saved(tmp_path / "run")
    spelled = str(tmp_path / "run" / ".." / "run")
    agents = ["planner", "assign-all:still", run, spelled, Mine(), load_agent("still", HIT_MAC)]
    result = evaluate(agents, "hit-mac", **SHORT)
    assert list(result["agents"]) == ["planner", "assign-all:still", str(run), spelled, "Mine", "still"]
    trainings = {name: found["trainings"] for name, found in result["agents"].items()}
    assert trainings == {"planner": 0, "assign-all:still": 0, str(run): 1, spelled: 1, "Mine": 0, "still": 0}
    for alone in ("planner", run, Mine(), load_agent("still", HIT_MAC)):
        assert len(evaluate(alone, "hit-mac-2x3", **SHORT)["agents"]) == 1
    with pytest.raises(TypeError, match=r"agent is 3; it must be a name, a directory, an Agent or an object"):
        evaluate([3], "hit-mac", **SHORT)
    with pytest.raises(ValueError, match="agents is empty"):
        evaluate([], "hit-mac", **SHORT)


def test_a_model_of_stable_baselines3_is_an_agent_that_has_learned():
    model = PPO(AttentionPolicy, DirectionalSensorVecEnv("Coverage", 2), n_steps=8, batch_size=8, device="cpu")
    (found,) = evaluate(model, "hit-mac", **SHORT)["agents"].values()
    assert found["trainings"] == 1


def test_executors_by_name_path_and_object(tmp_path):
    run = saved(tmp_path / "run", task="Executor")

    class Turner:
        features, padding = ("distance", "bearing"), "attended"

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            assert observation["pairs"].shape[1:] == (5, 2)
            return np.ones(len(observation["mask"]), int), None

    executors = {
        "scripted": "scripted",
        "run": run,
        "path": str(run),
        "mine": Turner(),
        "level": load_executor(run, HIT_MAC),
    }
    result = evaluate_executors(executors, "hit-mac-executor", **SHORT)["agents"]
    assert {name: one["trainings"] for name, one in result.items()} == {
        "scripted": 0, "run": 1, "path": 1, "mine": 0, "level": 1
    }  # fmt: skip
    assert result["run"] == result["path"] == result["level"]
    assert result["mine"]["rotation"]["mean"] == 1
    for wrong, error, says in (
        ({}, ValueError, "executors is empty"), ({"none": []}, ValueError, "executors is empty"),
        ({"a": "nobody"}, ValueError, "unknown executor 'nobody'"),
        ({"a": Turner}, TypeError, "a level of a hierarchy is <class .*Turner'>"),
    ):  # fmt: skip
        with pytest.raises(error, match=says):
            evaluate_executors(wrong, **SHORT)
    with pytest.raises(TypeError, match=r"agent is <class .*Turner'>; it must be"):
        evaluate(Turner, **SHORT)
    with pytest.raises(ValueError, match="overlap with the seeds 1099511627776 to 1099511627776 that run was trained"):
        evaluate_executors({"run": run}, **SHORT | {"seed": 2**40 - 1})
    agent = load_agent("assign-all", "hit-mac", executor=Turner())
    assert agent.features == ("distance", "bearing")


@pytest.mark.parametrize("executor", ["still", "random", "level", "object"])
def test_an_executor_of_the_coordinators_task_says_what_it_is_shown(executor, tmp_path):
    class Turner:
        features, padding = ("distance",), "masked"

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            assert observation["pairs"].shape[-1] == 1
            return np.ones(len(observation["mask"]), int), None

    if executor == "level":
        found = load_executor(saved(tmp_path / "run", task="Executor"), HIT_MAC)
    else:
        found = Turner() if executor == "object" else load_executor(executor, HIT_MAC)
    task = CoordinatorTask("hit-mac", 3, 0, executor=found)
    assert task.executor_observer.features == found.features
    assert task.padding == found.padding
    before = task.simulator.state.heading.copy()
    for _ in range(3):
        task.step(np.ones((3, 20), int))
    turned = np.abs((task.simulator.state.heading - before + 180) % 360 - 180) / 5
    if executor == "object":
        assert (turned == 30).all()
    if executor == "random":  # other numbers at every sub-step, and not one direction thirty times
        assert (turned < 25).all()


@pytest.mark.slow
def test_an_agent_of_ones_own_on_the_command_line(tmp_path):
    (tmp_path / "my_agents_here.py").write_text(
        "import numpy as np\n"
        "class Left:\n"
        "    features = ('distance',)\n"
        "    def __init__(self, scenario):\n"
        "        self.sensors = scenario.num_sensors\n"
        "    def predict(self, observation, state=None, episode_start=None, deterministic=False):\n"
        "        return np.ones((len(observation['pairs']), self.sensors), int), None\n"
    )
    saved(tmp_path / "12:30")
    agents = "my_agents_here:Left,assign-all:still,./12:30,left=my_agents_here:Left"
    command = [
        sys.executable,
        "-m",
        "hitmac",
        "evaluate",
        "--agents",
        agents,
        "--episodes",
        "2",
        "--max-episode-steps",
        "3",
    ]
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "all.json"), "--scenario", "12:30"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "all.json").read_text())
    assert set(result["agents"]) == {"my_agents_here:Left", "assign-all:still", "./12:30", "left"}
    assert result["agents"]["left"]["rotation"]["mean"] == 1
    made = result["provenance"]
    assert made["versions"]["torch"] == torch.__version__
    assert " ".join(["-m", "hitmac", "evaluate", "--agents", agents]) in made["command"]
    assert made["command"].endswith("--json all.json --scenario 12:30")
    assert str(tmp_path) not in json.dumps(made)


# --- runs that are the same ---


@pytest.mark.parametrize(
    ("agents", "says"),
    [
        ("planner,greedy,planner", "agents has planner twice; leave one out"),
        ("ours=a+b+a", "agents has a twice in ours; leave one out"),
        ("ours=a+./a", "two trainings of ours, a and ./a, are the same run; leave one out"),
        ("ours=a+copy", "two trainings of ours, a and copy, are the same run"),
        ("ours=a/checkpoint+b+a", "two trainings of ours, a/checkpoint and a, are the same run"),
        ("ours=c:still+c", None),  # the same coordinator with another executor
        ("ours=a+planner", "2 agents are named ours, and 1 of them were not trained"),
        ("ours=planner+greedy", "2 agents are named ours, and 2 of them were not trained"),
        ("assign-all:e,all=assign-all:e+assign-all:./e", "two trainings of all, assign-all:e and assign-all:./e, are"),
        ("ours=a+b,a,again=a", None),
    ],
)
def test_the_same_run_is_no_second_training(agents, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("a", "b")):
        saved(Path(name) / "checkpoint", number)
    saved(Path("copy"))
    saved(Path("e"), task="Executor")
    saved(Path("c"), task="Coordinator")
    copy_executor("e", "c")
    command = ["--agents", agents, "--episodes", "2", "--max-episode-steps", "2"]
    if says is None:
        main(command)
        return
    with pytest.raises(SystemExit):
        main(command)
    assert says in capsys.readouterr().err


def test_objects_that_are_the_same_are_no_second_training():
    for agents in (["planner", "planner"], [Mine(), Mine()]):
        with pytest.raises(ValueError, match=r"2 agents are named \w+, and 2 of them were not trained"):
            evaluate(agents, **SHORT)
    one = Agent("one", Learned(), Learned.features, trained=True)
    with pytest.raises(ValueError, match="two trainings of one, first and one, are the same run"):
        evaluate([one._replace(run="first"), one], **SHORT)
    two = evaluate([one, one._replace(policy=Learned())], **SHORT)["agents"]["one"]
    assert (two["trainings"], two["interval"]) == (2, "episodes and trainings")


# --- what intervals are over, and what references are ---


def trained(name, number):
    return [Agent(name, Learned(), Learned.features, run=f"{name}-{k}", trained=True) for k in range(number)]


def test_agents_of_one_training_seed_stand_apart(tmp_path):
    result = evaluate([*trained("three", 3), *trained("one", 1), "planner"], **SHORT)
    assert {name: (each["trainings"], each["interval"]) for name, each in result["agents"].items()} == {
        "three": (3, "episodes and trainings"), "one": (1, "episodes"), "planner": (0, "episodes")
    }  # fmt: skip
    lines = table(result).splitlines()
    (note,) = (
        number for number, line in enumerate(lines) if line.startswith("one training seed: the interval is over")
    )
    assert lines[note + 1].startswith("one ")
    assert not any(line.startswith("one ") for line in lines[:note])
    assert any(line.startswith("three (3 seeds) ") for line in lines[:note])
    assert any(line.startswith("planner  ") for line in lines[:note])
    first, second = markdown(result).split("One training seed: the interval is over episodes only; another training")
    assert "| one (1 seed) |" not in first
    assert "| one (1 seed) |" in second
    assert second.count("| agent |") == 1
    assert "| planner |" in first
    seen = figure_texts(save_bars, result, tmp_path), figure_texts(save_pareto, result, tmp_path)
    for texts in seen:
        assert {"one (1 seed)", "three (3 seeds)", "planner"} <= texts
        assert any("95 % intervals, with 1 seed over episodes only" in text for text in texts)
    without = evaluate(["planner", *trained("three", 3)], **SHORT)
    assert "one training seed" not in table(without).lower() + markdown(without).lower()
    assert not any("over episodes only" in text for text in figure_texts(save_bars, without, tmp_path))
    alone = evaluate(trained("one", 1), **SHORT)
    assert markdown(alone).count("| agent |") == 1


def figure_texts(save, result, folder):
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    found = set()

    class Spy(Figure):
        def savefig(self, *arguments, **options):
            found.update(text.get_text() for text in self.findobj(Text))
            super().savefig(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure", Spy)
        save(folder / "figure.png", result)
    return found


@pytest.mark.slow
def test_references_are_named_for_what_they_are(tmp_path):
    result = evaluate("still", bounds=True, **SHORT)
    kinds = {name: each.get("bound") for name, each in result["agents"].items()}
    assert kinds == {"still": None, "free turning": "upper bound", "clairvoyant": "lower estimate"}
    assert "| clairvoyant (lower estimate) |" in markdown(result)
    assert "| free turning (upper bound) |" in markdown(result)
    shown = table(result)
    assert "clairvoyant *" in shown
    assert "* clairvoyant: lower estimate, computed with the future known." in shown
    assert "* free turning: upper bound, computed with the future known." in shown
    assert max(map(len, shown.splitlines())) <= 80
    texts = figure_texts(save_bars, result, tmp_path)
    assert {"clairvoyant (lower estimate)", "free turning (upper bound)"} <= texts
    assert not any("clairvoyant" in text and "bound" in text for text in texts)


def test_the_option_adds_the_bounds(tmp_path):
    path = tmp_path / "all.json"
    main(["--agents", "still", "--episodes", "2", "--max-episode-steps", "3", "--bounds", "--json", str(path)])
    assert set(json.loads(path.read_text())["agents"]) == {"still", "free turning", "clairvoyant"}
