"""The planner on beliefs: by hand, by what it may know, and against the planner without a memory."""

import numpy as np
import pytest

from hitmac.agents import load_agent, scripted_agent
from hitmac.agents.baselines.planner import BeliefPlannerAgent
from hitmac.envs import Scenario, load_scenario
from hitmac.envs.scenario import KNOWLEDGE, presets
from hitmac.envs.tasks import CoverageTask

ONE = Scenario(num_sensors=1, num_targets=1, walk="still", extra_move_every=0, knowledge="own")
SMALL = {"horizon": 20, "particles": 32, "samples": 8}


def play(agent, scenario, steps, scenes=1, seed=0, **places):
    """Play; yield the task and the actions after every sub-step."""
    task = CoverageTask(scenario, scenes, seed, features=agent.features)
    task.reset(seed=seed, options=places)
    state, start = None, np.ones(scenes, bool)
    for _ in range(steps):
        actions, state = agent.predict(task.observe(), state, start)
        start = np.zeros(scenes, bool)
        task.step(actions)
        yield task, actions, state


def test_it_turns_back_to_where_it_saw_a_target():
    """The target is seen only at the start; then the sensor is turned away by hand."""
    agent = BeliefPlannerAgent(ONE)
    task = CoverageTask(ONE, 1, 0, features=agent.features)
    task.reset(options={"sensor_position": [(0, 0)], "heading": [0], "target_position": [(500, 0)]})
    _, state = agent.predict(task.observe())
    task.step(np.zeros((1, 1), int))  # sensors that are placed before the first step have seen nothing
    _, state = agent.predict(task.observe(), state)
    for heading, turn in ((100, 2), (-100, 1), (20, 0)):
        task.simulator.place(heading=[heading])
        task.step(np.zeros((1, 1), int))
        actions, _ = agent.predict(task.observe(), state)
        assert actions.tolist() == [[turn]]


@pytest.mark.slow
def test_it_finds_what_was_never_seen():
    scenario = ONE.replace(target_area=(-600, 600, -600, 600))
    found = np.zeros(60, bool)
    for task, actions, _ in play(BeliefPlannerAgent(scenario), scenario, 72, 60, sensor_position=[(0, 0)]):
        found |= np.isfinite(task.simulator.known.known_age[:, 0, 0])
        assert found.all() or (actions[~found] != 0).any()
    within = np.linalg.norm(task.simulator.state.target_position[:, 0], axis=-1) < 800
    assert found[within].all()  # a whole turn takes 72 sub-steps


@pytest.mark.parametrize("knowledge", ["neighbours", "own"])
def test_no_sensor_uses_what_another_one_knows(knowledge):
    scenario = load_scenario("hit-mac").replace(knowledge=knowledge, message_loss_rate=0.3)
    agent = BeliefPlannerAgent(scenario, **SMALL)
    rng = np.random.default_rng(0)
    for task, _, state in play(agent, scenario, 12, 20):
        shown = task.observe()
        expected = agent.plan(shown["pairs"], shown["mask"] != 0, state)[0]
        changed = {key: array.copy() for key, array in shown.items()}
        of_targets = slice(0, 6)  # the other features are the sensor's position and heading, which all know
        changed["pairs"][:, 1:, :, of_targets] = rng.uniform(-0.5, 0.5, changed["pairs"][:, 1:, :, of_targets].shape)
        changed["mask"][:, 1:] = rng.integers(0, 2, changed["mask"][:, 1:].shape)
        values = agent.plan(changed["pairs"], changed["mask"] != 0, state)[0]
        np.testing.assert_array_equal(values[:, 0], expected[:, 0])
    assert (values[:, 1:] != expected[:, 1:]).any()


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_batches_and_threads_change_nothing_and_seeds_do(knowledge, monkeypatch):
    scenario = load_scenario("random").replace(knowledge=knowledge)
    runs = {}
    for seed, threads in ((1, 1), (1, 2), (2, 1)):
        monkeypatch.setattr("hitmac.agents.baselines.planner.cores", lambda threads=threads: threads)
        agent = BeliefPlannerAgent(scenario, seed, **SMALL)
        runs[seed, threads] = [(actions, state) for _, actions, state in play(agent, scenario, 15, 20, 5)]
    (_, one), (_, two) = runs[1, 1][-1], runs[1, 2][-1]
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)
    assert any((first != other).any() for (first, _), (other, _) in zip(runs[1, 1], runs[2, 1], strict=True))
    agent = BeliefPlannerAgent(scenario, 1, **SMALL)
    for (together, _), (_, alone, _) in zip(runs[1, 1], play(agent, scenario, 15, 1, 12), strict=True):
        np.testing.assert_array_equal(together[7], alone[0])


def test_the_memory_is_that_of_the_episode():
    scenario = load_scenario("hit-mac").replace(knowledge="shared")
    agent = BeliefPlannerAgent(scenario, **SMALL)
    *_, (task, _, state) = play(agent, scenario, 15, 6)
    before, shown = [array.copy() for array in state], task.observe()
    start = np.array([True, False] * 3)
    _, after = agent.predict(shown, state, start)
    for one, other in zip(before, state, strict=True):
        np.testing.assert_array_equal(one, other)  # a state can be used again
    fresh, on = agent.predict(shown, None)[1], agent.predict(shown, state)[1]
    for one, new, old in zip(after, fresh, on, strict=True):
        np.testing.assert_array_equal(one[::2], new[::2])
        np.testing.assert_array_equal(one[1::2], old[1::2])


@pytest.mark.slow
@pytest.mark.parametrize("knowledge", KNOWLEDGE)
@pytest.mark.parametrize("scene", [name for name in presets() if name not in ("large", "city")])
def test_every_scene_can_be_played(scene, knowledge):
    scenario = load_scenario(scene).replace(knowledge=knowledge, message_delay=1, failure_rate=0.1, recovery_rate=0.3)
    scenario = scenario.replace(leave_rate=0.05, return_rate=0.1, missed_detections=0.1, position_noise=10)
    for task, actions, _ in play(BeliefPlannerAgent(scenario, **SMALL), scenario, 8, 3):
        assert task.action_space.contains(actions[0])


def test_it_covers_more_than_without_a_memory():
    scenario = load_scenario("hit-mac").replace(knowledge="shared")
    covered = {}
    for name in ("planner-fast", "belief-planner", "belief-planner-fast"):
        agent = scripted_agent(name, scenario)
        run = play(agent, scenario, 300, 16, 9_200_000_000)
        covered[name] = np.mean([task.simulator.coverage.mean() for task, *_ in run])
    assert covered["belief-planner"] > covered["planner-fast"] + 0.08
    assert covered["belief-planner"] > 0.76
    assert covered["belief-planner-fast"] > covered["planner-fast"] + 0.06


def test_the_fast_one_hands_its_options_on():
    fast = load_agent("belief-planner-fast:turn_cost=2:particles=30", "hit-mac").policy
    assert (fast.turn_cost, fast.horizon, fast.samples) == (2.0, 40, 6)
    with pytest.raises(ValueError, match="particles is 5; it must be at least samples, 6"):
        scripted_agent("belief-planner-fast", "hit-mac", particles=5)


@pytest.mark.parametrize(
    ("option", "value"), [("horizon", 0), ("samples", 65), ("samples", 200), ("restarts", -1), ("discount", 0)]
)
def test_options_out_of_range_are_named(option, value):
    with pytest.raises(ValueError, match=f"{option} is {value}"):
        BeliefPlannerAgent(ONE, **{option: value})


@pytest.mark.slow
@pytest.mark.parametrize("knowledge", ["full", "own"])
@pytest.mark.parametrize(("target", "heading", "move"), [(895, 0, 1), (-895, 180, 2), (700, 0, 0)])
def test_a_sensor_moves_along_its_rail_until_a_target_is_in_range_and_stays(target, heading, move, knowledge):
    """With its own knowledge, it has seen the target before it was set back along the rail."""
    scene = ONE.replace(knowledge=knowledge, rails=[[(-1000, 0), (1000, 0)]], rail_step=20, placement="rails")
    agent = BeliefPlannerAgent(scene)
    task = CoverageTask(scene, 1, 0, features=agent.features)
    ahead = 200 if target > 0 else -200
    task.reset(options={"along": [1000 + ahead], "heading": [heading], "target_position": [(target, 0)]})
    _, state = agent.predict(task.observe(), None, np.ones(1, bool))
    task.step(np.zeros((1, 2), int))
    task.simulator.place(along=[1000])
    moves = []
    for _ in range(8):
        action, state = agent.predict(task.observe(), state, np.zeros(1, bool))
        task.step(action)
        moves.append(action[0].tolist())
    assert moves == ([[0, move]] * 5 + [[0, 0]] * 3 if move else [[0, 0]] * 8)


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_every_knowledge_moves_cameras_on_rails(knowledge):
    scenario = load_scenario("volleyball-4").replace(knowledge=knowledge)
    agent = BeliefPlannerAgent(scenario, **SMALL)
    coverage = [task.simulator.coverage.mean() for task, _, _ in play(agent, scenario, 60, 8)]
    still = CoverageTask(scenario, 8, 0)
    still.reset(seed=0)
    moved = [state for _, _, state in play(agent, scenario, 3, 2)][-1].ways
    assert moved.shape == (2, 4 if knowledge in ("neighbours", "own") else 1, 4)
    assert np.mean(coverage[30:]) > 2 * still.simulator.coverage.mean()
