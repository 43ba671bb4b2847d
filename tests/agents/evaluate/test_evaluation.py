"""Evaluations by hand: coverage, rewards of decisions and of executors, and what a film shows."""

import numpy as np
import pytest

from hitmac.agents.baselines.levels import AssignAll, ScriptedExecutor
from hitmac.agents.evaluate import evaluate, evaluate_executors
from hitmac.agents.evaluate.command import main
from hitmac.agents.evaluate.film import save_film
from hitmac.agents.evaluate.tables import markdown, table
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.registry import Agent, load_agent, load_executor
from hitmac.envs import load_scenario
from hitmac.envs.render import Picture
from hitmac.envs.tasks import CoverageTask, ExecutorTask

HIT_MAC = load_scenario("hit-mac")


class Turner:
    """Turns sensor 0 at every sub-step and no other."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        assert (state is None) == bool(episode_start.all())
        return np.tile([1, 0, 0, 0], (len(observation["pairs"]), 1)), (np.zeros(1),)


def test_evaluation_by_hand():
    agents = [Agent("turner", Turner(), ("bearing",)), load_agent("still", HIT_MAC)]
    result = evaluate(agents, HIT_MAC, episodes=5, seed=30, max_episode_steps=20, progress=False)
    assert (result["scenario"], result["episodes"], result["seeds"]) == ("hit-mac", 5, [30, 34])
    for name, action in (("turner", [1, 0, 0, 0]), ("still", [0, 0, 0, 0])):
        for episode in range(5):
            task = CoverageTask(HIT_MAC, 1, 30 + episode)
            coverage = []
            for _ in range(20):
                task.step(np.array([action]))
                coverage.append(task.simulator.coverage[0])
            assert result["agents"][name]["per_episode"]["coverage"][episode] == pytest.approx(np.mean(coverage))
    turner, still = result["agents"]["turner"], result["agents"]["still"]
    assert turner["rotation"] == {"mean": 0.25, "std": 0.0, "ci95": [0.25, 0.25], "iqm": 0.25, "iqm_ci95": [0.25, 0.25]}
    assert turner["average_gain"]["mean"] == pytest.approx(4 * turner["coverage"]["mean"])
    assert set(still["average_gain"].values()) == {None}
    assert turner["improvement"] is None
    assert 0 <= still["improvement"][1] <= still["improvement"][0] <= still["improvement"][2] <= 1
    low, high = turner["coverage"]["ci95"]
    assert low < turner["coverage"]["mean"] < high
    lines = table(result).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("still") for line in lines)
    assert "| - |" in markdown(result)  # it has no gain


def test_the_decision_reward_counts_what_is_assigned():
    """It is that of the coordinator's task: -0.1 while no sensor sees a target that is assigned to it."""
    nothing = type("Nothing", (AssignAll,), {"act": lambda self, p, k: np.zeros((len(k), k[0].size), np.int8)})
    executor = LevelPolicy(ScriptedExecutor(), ScriptedExecutor.features)
    idle, full = (
        HierarchicalAgent(HIT_MAC, LevelPolicy(coordinator, ("distance",)), executor, idle="hold")
        for coordinator in (nothing(), AssignAll())
    )
    agents = [Agent("idle", idle, idle.features), Agent("full", full, full.features), load_agent("still", HIT_MAC)]
    result = evaluate(agents, HIT_MAC, episodes=6, seed=7, max_episode_steps=10, progress=False)["agents"]
    assert result["idle"]["decision_reward"]["mean"] == pytest.approx(-0.1)
    still = result["still"]["per_episode"]
    assert result["idle"]["per_episode"]["coverage"] == still["coverage"]
    task = CoverageTask(HIT_MAC, 6, 7)
    reward, seen, present = np.zeros(6), np.zeros((6, 5)), 10
    for _ in range(10):
        task.step(np.zeros((6, 4), np.int64))
        now = task.simulator.coverage
        reward += np.where(now > 0, now, -0.1) / 10
        seen += task.simulator.state.covered
    np.testing.assert_allclose(still["decision_reward"], reward)
    np.testing.assert_allclose(still["least_covered"], seen.min(-1) / present)
    whole = result["full"]["per_episode"]
    assert all(r <= c + 1e-12 for r, c in zip(whole["decision_reward"], whole["coverage"], strict=True))


def test_executors_are_evaluated_on_their_own_task():
    result = evaluate_executors(
        {"still": load_executor("still", HIT_MAC)}, episodes=4, seed=3, max_episode_steps=12, progress=False
    )["agents"]["still"]
    task = ExecutorTask(num_envs=4, seed=3, goals_every=1)
    reward = np.mean([task.step(np.zeros((4, 4), np.int64)) for _ in range(12)], 0)
    np.testing.assert_allclose(result["per_episode"]["reward"], reward)
    assert result["rotation"]["mean"] == 0


def test_a_film_shows_what_is_assigned(tmp_path, monkeypatch):
    drawn = []
    draw = Picture.draw

    def spy(self, simulator, b, caption, assigned):
        drawn.append(assigned)
        return draw(self, simulator, b, caption, assigned)

    monkeypatch.setattr(Picture, "draw", spy)
    for name in ("assign-in-range", "nearest"):
        save_film(tmp_path / "film.gif", load_agent(name, HIT_MAC), HIT_MAC, seed=0, sub_steps=2, every=1, size=64)
    in_range = CoverageTask("hit-mac", 1, 0, features=["in_range"]).observe()["pairs"][0, ..., 0]
    np.testing.assert_array_equal(drawn[0], in_range)
    assert drawn[2:] == [None, None]


def test_wrong_command_lines_get_one_line(capsys):
    for arguments, message in (
        (["--scenario", "moon"], "unknown scenario 'moon': known are basketball-4"),
        (
            ["--scenario", "hit-mac,hit-mac-4x5"],
            "two scenarios are named hit-mac with 4 sensors and 5 targets; give each",
        ),
        (["--agents", ""], "agents is ''; give one or more"),
        (["--episodes", "0"], "episodes is 0; it must be a whole number, 1 or more"),
        (["--seed", "-1"], "seed is -1; it must be a whole number from 0"),
        (["--episodes", "few"], "'few'"),
        (["--colour", "red"], "--colour"),
    ):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2
        shown = capsys.readouterr().err
        assert message in shown
        assert shown.startswith("hitmac evaluate: error: ")
        assert len(shown.strip().splitlines()) == 1
