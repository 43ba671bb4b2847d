"""The runner of an exported folder, without torch and without this package."""

import json
import subprocess
import sys

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.export.folder import CARD
from hitmac.envs import Simulator, load_scenario
from hitmac.envs.observation import FEATURE_SETS, Observer
from tests.agents.export.made import agent_of, copied, exported, runner

ALONE = """
import importlib.abc, runpy, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numba", "gymnasium", "hitmac", "envs", "agents", "perception"):
            raise ModuleNotFoundError(f"{name} is refused")

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
runpy.run_path(sys.argv[1] + "/run.py", run_name="__main__")
"""


def test_the_runner_needs_neither_torch_nor_this_package(flat):
    assert {path.name for path in flat.iterdir()} == {"observe.py", "policy.json", "policy.onnx", "run.py"}
    command = [sys.executable, "-P", "-c", ALONE, str(flat)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=flat, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 20
    assert lines[0].startswith("0 turn [")


def test_the_runner_decides_as_the_agent_does_in_an_episode(flat, monkeypatch):
    scenario = load_scenario("hit-mac").replace(extra_move_every=0)
    agent, run = load_agent("pretrained:flat", scenario), runner(flat, monkeypatch)
    own, simulator, observer = run.Agent(), Simulator(scenario, 1, 3), Observer(scenario, agent.features)
    different = 0
    for _ in range(40):
        expected, _ = agent.policy.predict(observer.observe(simulator), deterministic=True)
        state = simulator.state
        actions = own.decide(
            state.target_position[0], sensor_position=state.sensor_position[0], heading=state.heading[0]
        )
        different += (actions[0] != expected[0]).sum()
        simulator.step(expected)
    assert different <= 1  # a tie
    for targets in ([], np.zeros((0, 2))):
        nobody = run.Agent().decide(targets, sensor_position=np.zeros((3, 2)), heading=np.zeros(3))
        assert nobody.shape == (1, 3)


@pytest.mark.slow
def test_the_runner_lists_the_nearest_as_in_training(tmp_path, monkeypatch):
    scenario, nearness = load_scenario("hit-mac-6x9"), {"nearest": 4, "radius": 1500.0, "neighbours": 3}
    agent = agent_of(scenario, features=FEATURE_SETS["frame"], nearness=nearness, attend_over="agents")
    exported(agent, tmp_path / "made", scenario)
    card = json.loads((tmp_path / "made" / CARD).read_text())["networks"][0]
    assert card["inputs"] == ["pairs", "mask", "targets", "neighbours"]
    assert card["nearness"] == nearness
    own, simulator = runner(tmp_path / "made", monkeypatch).Agent(), Simulator(scenario, 1, 0)
    observer = Observer(scenario, agent.features, **nearness)
    for _ in range(20):
        state, shown = simulator.state, observer.observe(simulator)
        expected, _ = agent.policy.predict(shown, deterministic=True)
        actions = own.decide(
            state.target_position[0], sensor_position=state.sensor_position[0], heading=state.heading[0]
        )
        np.testing.assert_array_equal(actions[0], expected[0])
        simulator.step(expected)
    assert (shown["mask"].sum(-1) == 4).any()


def test_an_assignment_holds_for_ten_sub_steps_and_idle_sensors_hold_or_turn(both_levels, tmp_path, monkeypatch):
    rng, assigned, turns = np.random.default_rng(0), [], []
    for folder in (both_levels, copied(both_levels, tmp_path / "random", idle="random")):
        own = runner(folder, monkeypatch).Agent()
        for _ in range(30):
            measured = {"sensor_position": rng.uniform(-900, 900, (4, 2)), "heading": rng.uniform(-180, 180, 4)}
            turns.append(own.decide(rng.uniform(-900, 900, (5, 2)), **measured)[0])
            assigned.append(own.kept["assigned"][0].copy())
    assert [k for k in range(1, 30) if (assigned[k] != assigned[k - 1]).any()] == [10, 20]
    idle, turns = ~np.array(assigned).any(-1), np.array(turns)
    assert not turns[:30][idle[:30]].any()
    assert turns[30:][idle[30:]].any()
