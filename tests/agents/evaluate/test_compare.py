"""Evaluations are functions of their arguments; agents by name, path and object; metrics by hand."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from hitmac.agents import AttentionPolicy
from hitmac.agents.evaluate import evaluate, evaluate_executors
from hitmac.agents.evaluate.compare import Episodes, _Bar
from hitmac.agents.evaluate.tables import table
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.names import load_agent, load_executor
from hitmac.agents.planning.levels import AssignAll, ScriptedExecutor
from hitmac.agents.registry import Agent
from hitmac.agents.tracking.tracks import Estimate
from hitmac.envs import Scenario, load_scenario
from hitmac.envs.tasks import CoverageTask, ExecutorTask
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from tests.agents.evaluate.made import HIT_MAC, SHORT, Left, saved, trainings


def episodes(agent, scenario, **options):
    options = {"episodes": 4, "max_episode_steps": 13, "progress": False} | options
    (found,) = evaluate([agent], scenario, **options)["agents"].values()
    return found["per_episode"]


NAMELESS = HIT_MAC.replace(
    knowledge="shared", identities=False, position_noise=10.0, missed_detections=0.1, false_detections=0.05
)


# Every agent and executor in every preset: tests/agents/test_matrix.py.
@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        ("random", "hit-mac"), ("planner", "random"), ("assign-randomly:random", "obstacles"), ("nearest", "random"),
        *((name, NAMELESS) for name in ("planner", "nearest", "pretrained:beliefs", "assign-in-range")),
    ],
)  # fmt: skip
def test_an_evaluation_depends_on_nothing_but_its_arguments(name, scenario, monkeypatch):
    scenario = load_scenario(scenario)
    agent = load_agent(name, scenario)
    first = episodes(agent, scenario)
    assert ({"gospa", "missed", "false", "localisation", "switches"} < first.keys()) != scenario.identities
    np.random.seed(1)  # noqa: NPY002 - the global generators must not matter
    torch.manual_seed(1)
    monkeypatch.setattr("hitmac.agents.evaluate.compare.SCENES_AT_ONCE", 3)
    assert episodes(agent, scenario) == first  # in other batches, by an agent that was used before
    assert episodes(load_agent(name, scenario), scenario, episodes=1, seed=2) == {
        metric: values[2:3] for metric, values in first.items()
    }


class Aside:
    """Tracks one of two targets, 30 off, first under the label 5 and then 6, and a false one under 7."""

    label = 5

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.place = self.simulator.state.target_position[0, 0] + (30.0, 0.0)
        return np.zeros((1, 1), int), None

    def estimate(self, state, within):
        self.label += 1
        places = np.array([[[self.place, (-1e6, 0.0)]]])
        return Estimate(places, np.zeros((1, 1, 2, 2, 2)), np.array([[[self.label - 1, 7]]]))


def test_tracks_are_compared_with_the_targets_of_their_moment(monkeypatch):
    """Those at the beginning of a sub-step, at which they were estimated."""
    scenario = Scenario(num_sensors=1, num_targets=2, walk="bounce", identities=False, knowledge="shared")
    start = Episodes.__init__

    def started(episodes, agent, *arguments):
        start(episodes, agent, *arguments)
        agent.policy.simulator = episodes.task.simulator

    monkeypatch.setattr(Episodes, "__init__", started)
    found = episodes(Agent("aside", Aside(), ("detections",)), scenario, episodes=1, max_episode_steps=2)
    expected = {"gospa": [pytest.approx(np.sqrt(900 + 2 * 3200))], "missed": [1], "false": [1], "switches": [1]}
    expected |= {"localisation": [pytest.approx(30)]}
    assert {name: found[name] for name in expected} == expected


def test_agents_by_name_path_and_object(tmp_path):
    run = saved(tmp_path / "run")
    agents = ["assign-all:still", run, Left(), load_agent("still", HIT_MAC), *trainings("three", 3)]
    found = evaluate(agents, "hit-mac", **SHORT)["agents"]
    assert {name: (result["trainings"], result["interval"]) for name, result in found.items()} == {
        "assign-all:still": (0, "episodes"), str(run): (1, "episodes"), "Left": (0, "episodes"),
        "still": (0, "episodes"), "three": (3, "episodes and trainings"),
    }  # fmt: skip
    assert found["Left"]["rotation"]["mean"] == 1
    model = PPO(AttentionPolicy, DirectionalSensorVecEnv("Coverage", 2), n_steps=8, batch_size=8, device="cpu")
    for alone, number in (("still", 0), (run, 1), (Left(), 0), (load_agent("still", HIT_MAC), 0), (model, 1)):
        (result,) = evaluate(alone, "hit-mac", **SHORT)["agents"].values()
        assert result["trainings"] == number


def test_executors_by_name_path_and_object(tmp_path):
    run = saved(tmp_path / "run", task="Executor")
    executors = {"scripted": "scripted", "run": run, "mine": Left(), "level": load_executor(run, HIT_MAC)}
    found = evaluate_executors(executors, "hit-mac-executor", **SHORT)["agents"]
    assert [result["trainings"] for result in found.values()] == [0, 1, 0, 1]
    assert found["run"] == found["level"]
    assert found["mine"]["rotation"]["mean"] == 1
    with pytest.raises(ValueError, match="overlap with the seeds 1099511627776 to 1099511627785 that run was trained"):
        evaluate_executors({"run": run}, **SHORT | {"seed": 2**40 - 1})


class Seven(Left):
    """Decides what is no action."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.full(observation["mask"].shape[:-1], 7), None


@pytest.mark.parametrize(
    ("function", "agents", "error", "message"),
    [
        (evaluate, [3], TypeError, "agent is 3; it must be a name, a directory, an Agent or an object"),
        (evaluate, [], ValueError, "agents is empty"),
        (evaluate, [Left(), Seven()], ValueError, r"Seven: action holds 7; it must be 0 \(stay\), 1 \(left\) or 2"),
        (evaluate, ["planner", "planner"], ValueError, "2 agents are named planner, and 2 of them were not trained"),
        (evaluate_executors, {"none": []}, ValueError, "executors is empty"),
        (evaluate_executors, {"a": Left}, TypeError, "a level of a hierarchy is <class .*Left'>"),
    ],
)
def test_wrong_agents_are_refused(function, agents, error, message):
    with pytest.raises(error, match=message):
        function(agents, **SHORT)


class FirstTurns:
    """Turns sensor 0 at every sub-step and no other."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        assert (state is None) == bool(episode_start.all())
        return np.tile([1, 0, 0, 0], (len(observation["pairs"]), 1)), (np.zeros(1),)


def played(scenario, number, seed, sub_steps, action=(0, 0, 0, 0)):
    """Simulator of scenes with these actions, after each sub-step."""
    task = CoverageTask(scenario, number, seed)
    for _ in range(sub_steps):
        task.step(np.tile(action, (number, 1)))
        yield task.simulator


def test_evaluation_by_hand():
    agents = [Agent("turner", FirstTurns(), ("bearing",)), load_agent("still", HIT_MAC)]
    result = evaluate(agents, HIT_MAC, episodes=5, seed=30, max_episode_steps=20, progress=False)
    about = {"scenario": "hit-mac", "sub_steps": 20, "episodes": 5, "seeds": [30, 34], "recordings": None, "empty": 0}
    assert {name: result[name] for name in about} == about
    for name, action in (("turner", [1, 0, 0, 0]), ("still", [0, 0, 0, 0])):
        coverage = np.mean([now.coverage for now in played(HIT_MAC, 5, 30, 20, action)], 0)
        np.testing.assert_allclose(result["agents"][name]["per_episode"]["coverage"], coverage)
    turner, still = result["agents"]["turner"], result["agents"]["still"]
    assert turner["rotation"] == {"mean": 0.25, "std": 0.0, "ci95": [0.25, 0.25], "iqm": 0.25}
    assert turner["average_gain"]["mean"] == pytest.approx(4 * turner["coverage"]["mean"])
    assert set(still["average_gain"].values()) == {None}
    assert turner["improvement"] is None


def test_the_decision_reward_counts_what_is_assigned():
    """It is that of the coordinator's task: -0.1 while no sensor sees a target that is assigned to it."""
    nothing = type("Nothing", (AssignAll,), {"act": lambda self, p, k: np.zeros((len(k), k[0].size), np.int8)})
    executor = LevelPolicy(ScriptedExecutor(), ScriptedExecutor.features)
    idle = HierarchicalAgent(HIT_MAC, LevelPolicy(nothing(), ("distance",)), executor, idle="hold")
    scenario = HIT_MAC.replace(field_of_view=240.0, sensing_range=1500.0)
    agents = [Agent("idle", idle, idle.features), load_agent("still", scenario)]
    result = evaluate(agents, scenario, episodes=6, seed=7, max_episode_steps=10, progress=False)["agents"]
    assert result["idle"]["decision_reward"]["mean"] == pytest.approx(-0.1)
    still = result["still"]["per_episode"]
    assert result["idle"]["per_episode"]["coverage"] == still["coverage"]
    reward, seen = np.zeros(6), np.zeros((6, 5))
    for now in played(scenario, 6, 7, 10):
        reward += np.where(now.coverage > 0, now.coverage, -0.1) / 10
        seen += now.state.covered
    np.testing.assert_allclose(still["decision_reward"], reward)
    np.testing.assert_allclose(still["least_covered"], seen.min(-1) / 10)
    assert 0 < (seen.min(-1) > 0).sum() < 6


def test_sub_steps_without_targets_are_no_observation_of_coverage():
    scenario = HIT_MAC.replace(leave_rate=0.5, return_rate=0.05, field_of_view=240.0, sensing_range=1500.0)
    options = {"episodes": 6, "seed": 2, "max_episode_steps": 10, "progress": False}
    found = evaluate("still", scenario, bounds=True, **options)
    covered, present = np.swapaxes([(now.state.covered.sum(1), now.state.present.sum(1))
                                    for now in played(scenario, 6, 2, 10)], 0, 1)  # fmt: skip
    there = present > 0  # (T, E)
    assert 0.2 < found["empty"] < 0.8
    assert found["empty"] == pytest.approx(1 - there.mean())
    assert f"no targets {100 * found['empty']:.1f} % of the time" in table(found)
    share, still = covered / present.clip(1), found["agents"]["still"]
    np.testing.assert_allclose(still["per_episode"]["coverage"], share.sum(0) / there.sum(0))
    np.testing.assert_allclose(still["over_time"], share.sum(1) / there.sum(1))
    assert [result.get("bound") for result in found["agents"].values()] == [None, "upper bound", "lower estimate"]
    free = found["agents"]["free turning"]
    assert (
        still["coverage"]["mean"] <= free["coverage"]["mean"] == pytest.approx(np.mean(free["per_episode"]["coverage"]))
    )
    executor = evaluate_executors({"still": "still"}, scenario, **options)
    assert executor["agents"]["still"]["per_episode"]["coverage"] == pytest.approx(still["per_episode"]["coverage"])
    gone = evaluate(["still", "nearest"], scenario.replace(leave_rate=1, return_rate=0), **options)
    assert gone["agents"]["still"]["coverage"]["mean"] is None
    assert "no targets 100.0 % of the time" in table(gone)


def test_parts_of_recordings_are_clusters(tmp_path):
    for name, places in (("a", [(0, 300), (30, 400)]), ("b", [(0, -900), (30, 900)])):
        rows = [f"{time},{j},{x},{100 * j}" for j in range(5) for time, x in places]
        (tmp_path / f"{name}.csv").write_text("\n".join(["time,id,x,y", *rows]))
    tracks = [str(tmp_path / f"{name}.csv") for name in "ab"]
    site = HIT_MAC.replace(placement="fixed", sensor_positions=[(0, 500), (0, -500), (500, 0), (-500, 0)])
    for files, several in ((tracks, True), (tracks[:1], False)):
        found = evaluate(["still", "nearest"], site.replace(tracks=files), **SHORT | {"episodes": 12})
        assert found["recordings"] == len(files)
        result = found["agents"]["nearest"]
        assert result["interval"] == "recordings"
        assert (result["coverage"]["ci95"] is not None) == (result["improvement"][1] is not None) == several
    assert "12 episodes of 1 recording, without intervals, seeds 0 to 11" in table(found)


def test_executors_are_evaluated_on_their_own_task():
    found = evaluate_executors({"still": "still"}, episodes=4, seed=3, max_episode_steps=12, progress=False)
    task = ExecutorTask(num_envs=4, seed=3, goals_every=1)
    reward = np.mean([task.step(np.zeros((4, 4), np.int64)) for _ in range(12)], 0)
    np.testing.assert_allclose(found["agents"]["still"]["per_episode"]["reward"], reward)
    short = evaluate_executors({"still": "still"}, HIT_MAC.replace(episode_steps=2), **SHORT)
    assert short["sub_steps"] == 2  # the length of the scenario's episodes


@pytest.mark.parametrize("output", [None, SimpleNamespace(write=str, flush=int)])
def test_the_output_may_be_absent_or_no_file(output, monkeypatch):
    monkeypatch.setattr(sys, "stderr", output)
    _Bar(1, "step", progress=True).begin("still")


def test_the_bar_says_compiling_until_the_first_step_is_done(capsys):
    evaluate(["still", "nearest"], HIT_MAC, **SHORT | {"progress": True})
    output, shown = capsys.readouterr()
    assert not output  # which may be redirected to a file for the tables
    assert shown.index("compiling still") < shown.index("compiling nearest") < shown.index("evaluating nearest")
