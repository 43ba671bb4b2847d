"""Sensors with places, start headings and pan limits of their own, by hand and for every agent."""

import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from hitmac import envs
from hitmac.agents.evaluate import evaluate
from hitmac.agents.registry import SCRIPTED, load_agent, scripted_agent
from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.kernels.rails import outside, within
from hitmac.envs.scenario import KNOWLEDGE
from hitmac.envs.tasks import TASKS, CoverageTask, ExecutorTask

LEFT, RIGHT = 1, 2
SITE = Scenario(
    name="site", arena=(20, 10), num_sensors=3, num_targets=4, placement="fixed",
    sensor_positions=[(-20, -10), (20, -10), (0, 10)], sensing_range=(25, 30, 12), field_of_view=(60, 50, 120),
    turn_angle=(5, 3, 10), sensor_headings=[45, 135, -90], pan_limits=[(0, 90), (90, 180), (-180, 180)],
    min_speed=1, max_speed=2, extra_move_every=0,
)  # fmt: skip


def turned(simulator, *actions):
    simulator.step(np.tile(actions, (simulator.num_envs, 1)))
    return simulator.state.heading[0].tolist(), int(simulator.state.turned[0])


def test_sensors_stand_and_look_where_the_scenario_says():
    simulator = Simulator(SITE, 3, 0)
    for _ in range(2):
        for scene in range(3):
            np.testing.assert_array_equal(simulator.state.sensor_position[scene], SITE.sensor_positions)
            np.testing.assert_array_equal(simulator.state.heading[scene], [45, 135, -90])
            np.testing.assert_allclose(simulator.state.range_squared[scene], [625, 900, 144])
        simulator.reset()


def test_a_turn_beyond_a_limit_is_a_stay_that_costs_nothing():
    simulator = Simulator(SITE.replace(sensor_headings=(83, 90, 0)), 2, 0)
    assert turned(simulator, LEFT, RIGHT, LEFT) == ([88, 90, 10], 2)
    direction = simulator.state.direction.copy()
    assert turned(simulator, LEFT, RIGHT, 0) == ([88, 90, 10], 0)  # 93 and 87 are beyond
    np.testing.assert_array_equal(simulator.state.direction, direction)
    assert turned(simulator, RIGHT, LEFT, RIGHT) == ([83, 93, 0], 3)
    assert simulator.rotation.tolist() == [1, 1]


def test_a_turn_that_ends_at_a_limit_is_made_in_spite_of_rounding():
    scene = SITE.replace(turn_angle=0.1, sensor_headings=(0, 90, 0), pan_limits=[(0, 0.3), (89.7, 90), (-180, 180)])
    simulator = Simulator(scene, 1, 0)
    for _ in range(3):
        assert turned(simulator, LEFT, RIGHT, 0)[1] == 2
    assert turned(simulator, LEFT, RIGHT, 0)[1] == 0


def test_a_stopped_turn_costs_no_reward():
    scene = SITE.replace(sensor_headings=(88, 90, 0))
    coverage = CoverageTask(scene, 1, 0, turn_cost=0.3)
    reward = coverage.step(np.array([[LEFT, RIGHT, 0]]))
    np.testing.assert_allclose(reward, coverage.simulator.coverage)
    stopped, moved = (ExecutorTask(scene, 1, 0, turn_cost=0.25) for _ in range(2))
    stopped.step(np.array([[LEFT, RIGHT, 0]]))
    moved.step(np.array([[0, 0, 0]]))
    np.testing.assert_array_equal(stopped.sensor_rewards(), moved.sensor_rewards())


def test_headings_start_within_the_limits():
    free = SITE.replace(sensor_headings=(), pan_limits=[(170, 190), (-3.5, 4.25), (-180, 180)])
    for whole in (True, False):
        heading = Simulator(free.replace(whole_numbers=whole), 500, 0).state.heading
        assert 170 <= heading[:, 0].min() < 172
        assert 188 < heading[:, 0].max() <= 190
        assert -3.5 <= heading[:, 1].min() < heading[:, 1].max() <= 4.25
        assert heading[:, 2].min() < -170
    facing = Simulator(free.replace(start_heading="target"), 500, 0).state
    offset = facing.target_position[:, 0] - facing.sensor_position[:, 0]
    bearing = np.degrees(np.arctan2(offset[:, 1], offset[:, 0]))  # of targets in front: -90 to 90, so at an end
    np.testing.assert_allclose(facing.heading[:, 0], np.where(bearing > 0, 170, 190))
    assert SITE.replace(sensor_headings=(-315, 495, 270)).sensor_headings[0] == -315
    np.testing.assert_array_equal(Simulator(SITE.replace(sensor_headings=(-315, 495, 270)), 1, 0).state.heading[0],
                                  [45, 135, 270])  # fmt: skip


def test_headings_that_are_placed_are_within_the_limits():
    simulator = Simulator(SITE, 1, 0)
    simulator.place(heading=[360, -200, 900])
    np.testing.assert_array_equal(simulator.state.heading[0], [0, 160, 900])
    with pytest.raises(ValueError, match=r"heading holds 91; it must be within the pan_limits 0 to 90"):
        simulator.place(heading=[91, 160, 0])
    state = simulator.get_state()
    state["heading"][0, 1] = 89
    with pytest.raises(ValueError, match="state 'heading' holds 89; it must be within the pan_limits"):
        simulator.set_state(state)


def test_the_same_direction_within_limits():
    limit = np.array([(170.0, 190.0), (-np.inf, np.inf), (0.0, 0.0)])
    headings = within(np.array([[-170.0, 1000.0, 720.0], [10.0, -5.0, 90.0]]), limit)
    np.testing.assert_array_equal(headings, [[190, 1000, 0], [10, -5, 90]])
    np.testing.assert_array_equal(outside(headings, limit), [[False] * 3, [True, False, True]])


def test_scene_i_of_a_batch_is_the_single_one_and_a_copy_has_its_future():
    batch = Simulator(SITE.replace(sensor_headings=()), 5, 7, num_threads=2)
    single = Simulator(SITE.replace(sensor_headings=()), 1, 9)
    actions = np.random.default_rng(0).integers(0, 3, (30, 5, 3))
    copies = [batch.clone(), pickle.loads(pickle.dumps(batch))]
    for action in actions:
        for one in (batch, *copies):
            one.step(action)
        single.step(action[2:3])
    for name, value in batch.get_state().items():
        np.testing.assert_array_equal(value[2:3], single.get_state()[name], err_msg=name)
        for one in copies:
            np.testing.assert_array_equal(value, one.get_state()[name], err_msg=name)


def test_limits_that_are_never_met_change_nothing():
    scene = load_scenario("hit-mac")
    for free in (scene.replace(pan_limits=[(-180, 180)]), scene.replace(pan_limits=[(-9e9, 9e9)])):
        one, two = Simulator(scene, 20, 0), Simulator(free, 20, 0)
        for action in np.random.default_rng(1).integers(0, 3, (30, 20, 4)):
            one.step(action)
            two.step(action)
        for name, value in one.get_state().items():
            np.testing.assert_array_equal(value, two.get_state()[name], err_msg=name)


def test_yaml_there_and_back(tmp_path):
    SITE.save(tmp_path / "site.yaml")
    assert load_scenario(tmp_path / "site.yaml") == SITE
    assert hash(load_scenario(tmp_path / "site.yaml")) == hash(SITE)


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
@pytest.mark.parametrize("task", TASKS)
def test_every_task_with_every_knowledge(task, knowledge):
    env = gymnasium.make(TASKS[task].spec.id, scenario=SITE.replace(knowledge=knowledge))
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=3)
    for _ in range(5):
        env.step(env.action_space.sample())
    heading = env.unwrapped.task.simulator.state.heading[0]
    assert 0 <= heading[0] <= 90 <= heading[1] <= 180


@pytest.mark.parametrize("name", [name for name in SCRIPTED if name != "exact"])
def test_every_agent_plays(name):
    result = evaluate(name, SITE, episodes=2, max_episode_steps=10, progress=False)
    assert 0 <= result["agents"][name]["coverage"]["mean"] <= 1


@pytest.mark.parametrize(("name", "knowledge"), [("planner", "full"), ("belief-planner", "shared")])
def test_planners_go_the_long_way_round_a_limit(name, knowledge):
    """From 300 degrees, the upper limit, a target at 30 degrees is near to the left, and reached to the right only."""
    scene = Scenario(
        num_sensors=1, num_targets=1, placement="fixed", sensor_positions=[(0, 0)], sensor_headings=[300],
        pan_limits=[(0, 300)], field_of_view=80, turn_angle=10, walk="still", knowledge=knowledge, extra_move_every=0,
    )  # fmt: skip
    policy = scripted_agent(name, scene, turn_cost=0.01)
    task, state, headings = CoverageTask(scene, 1, 0, features=policy.features), None, []
    task.reset(options={"target_position": [(100, 58)]})
    for step in range(60):
        action, state = policy.predict(task.observe(), state, np.array([step == 0]), deterministic=True)
        task.step(action)
        headings.append(task.simulator.state.heading[0, 0])
    assert task.simulator.coverage[0] == 1.0, headings
    assert min(headings) < 75
    assert max(headings) <= 300


def test_a_planner_with_limits_beats_one_that_does_not_know_them():
    """A target may pass behind the sensor, which then has to turn the long way round."""
    scene = Scenario(
        arena=20, num_sensors=1, num_targets=2, placement="fixed", sensor_positions=[(0, 0)], pan_limits=[(-150, 150)],
        sensing_range=20, field_of_view=50, turn_angle=10, walk="bounce", wander=20,
    )  # fmt: skip
    free = scene.replace(pan_limits=())
    own = evaluate(["planner"], scene, episodes=60, max_episode_steps=100, progress=False)["agents"]["planner"]
    agent = load_agent("planner", free)
    blind = evaluate([agent], scene, episodes=60, max_episode_steps=100, progress=False)["agents"]["planner"]
    gain = np.array(own["per_episode"]["coverage"]) - blind["per_episode"]["coverage"]
    assert gain.mean() > 2 * gain.std() / np.sqrt(len(gain))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sensor_positions": [(0, 0)] * 2}, r"sensor_positions is .*; it must be \[x, y\] of each of the 3 sensors"),
        ({"sensor_positions": [(0, 0), (0, 0), (0, 11)]}, r"11.*; it must be .* inside the arena of \+-20 x \+-10"),
        ({"placement": "grid"}, "placement is 'grid'; it must be fixed if and only if sensor_positions are given"),
        ({"sensor_positions": ()}, "placement is 'fixed'; it must be fixed if and only if sensor_positions are given"),
        ({"sensor_headings": (91, 100, 0)}, r"sensor_headings is \[91.0, .*; it must be within pan_limits"),
        ({"sensor_headings": (90, 100)}, "sensor_headings .* one for each of the 3 sensors"),
        ({"pan_limits": [(0, 90), (0, 180)]}, r"pan_limits is .*; it must be empty, or \[low, high\]"),
        ({"pan_limits": [(90, 0)]}, r"pan_limits is \[\[90.0, 0.0\]\]; it must be empty, or \[low, high\] with low at"),
    ],
)
def test_what_does_not_fit_is_named(changes, says):
    with pytest.raises(ValueError, match=says):
        SITE.replace(**changes)


def test_the_installed_names():
    assert "fixed" in envs.Scenario.__doc__
