"""The planner on rails, and what a policy learns from it."""

import numpy as np
import pytest

from hitmac.agents import scripted_agent
from hitmac.agents.baselines.planner import PlannerAgent
from hitmac.agents.policy import padded_actions
from hitmac.agents.training.imitation import TurnLabels
from hitmac.envs import DEFAULT_FEATURES, Scenario, load_scenario
from hitmac.envs.tasks import CoverageTask
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

RAIL = [(-1000, 0), (1000, 0)]
ONE = Scenario(
    num_sensors=1, num_targets=1, walk="still", extra_move_every=0, rails=[RAIL], rail_step=20, placement="rails",
)  # fmt: skip
COURT = load_scenario("basketball-4").replace(knowledge="full")


def play(scenario, steps, envs=1, seed=0, agent=None, **places):
    """Return the actions (T, B, d n) and the coverage (T, B) of the planner."""
    agent = agent or PlannerAgent(scenario, horizon=30, samples=1)
    task = CoverageTask(scenario, envs, seed, features=agent.features)
    task.simulator.place(**places)
    state, start, actions, coverage = None, np.ones(envs, bool), [], []
    for _ in range(steps):
        action, state = agent.predict(task.observe(), state, start)
        task.step(action)
        start = np.zeros(envs, bool)
        actions.append(action)
        coverage.append(task.simulator.coverage)
    return np.array(actions), np.array(coverage)


@pytest.mark.parametrize(("target", "heading", "move"), [(895, 0, 1), (-895, 180, 2), (700, 0, 0)])
def test_a_sensor_moves_until_a_target_is_in_range_and_stays(target, heading, move):
    actions, coverage = play(ONE, 8, along=[1000], heading=[heading], target_position=[(target, 0)])
    assert (actions[:, 0, 0] == 0).all()  # no turn
    assert actions[:, 0, 1].tolist() == ([move] * 5 + [0] * 3 if move else [0] * 8)
    assert coverage[:, 0].tolist() == ([0] * 4 + [1] * 4 if move else [1] * 8)


def test_a_sensor_moves_round_a_corner():
    scene = ONE.replace(rails=[[(0, -500), (0, 0), (1000, 0)]], rail_step=10)
    # Out of range from the corner, on the left of a sensor that moves up to it: turn right there, into the second part.
    actions, coverage = play(scene, 12, along=[480], heading=[0], target_position=[(870, 0)])
    assert actions[0, 0].tolist() == [0, 1]
    assert coverage[-1, 0] == 1


def test_fixed_places_are_planned_for_as_without_rails():
    places = [(-800, 300), (0, -400), (500, 500), (1000, 0)]
    scene = load_scenario("hit-mac").replace(whole_numbers=False)
    fixed = scene.replace(rails=[[place] for place in places], placement="rails")
    start = {"heading": [0, 90, 180, 270], "target_position": np.linspace(-1000, 1000, 10).reshape(5, 2)}
    with_rails, covered = play(fixed, 20, **start)
    without, _ = play(scene, 20, sensor_position=places, **start)
    assert not with_rails[..., 4:].any()
    # Goals are random; the streams differ by the draws of the placement until the first new goal, so compare the start.
    np.testing.assert_array_equal(with_rails[0, :, :4], without[0])
    assert covered.mean() > 0.2


class InPlace(PlannerAgent):
    """The planner without rails."""

    def predict(self, *arguments, **options):
        turns, state = super().predict(*arguments, **options)
        return padded_actions(turns, ("turn",), COURT.decisions), state


def test_moving_covers_more_of_a_court():
    fixed = COURT.replace(rails=(), rail_starts=(), placement="random")
    agents = PlannerAgent(COURT, horizon=30, samples=1), InPlace(fixed, horizon=30, samples=1)
    moving, in_place = (play(COURT, 60, 6, 9_200_000_000, agent)[1].mean() for agent in agents)
    assert moving > in_place + 0.05
    assert moving > 0.6


def test_decisions_are_completed_by_name():
    actions = np.array([[1, 2, 0, 1]])
    np.testing.assert_array_equal(
        padded_actions(actions, ("turn", "move"), ("turn", "zoom", "move")), [[1, 2, 0, 0, 0, 1]]
    )
    np.testing.assert_array_equal(padded_actions(actions, ("turn", "zoom"), ("turn", "move")), [[1, 2, 0, 0]])
    np.testing.assert_array_equal(padded_actions(actions[:, :2], ("turn",), ("turn", "move")), [[1, 2, 0, 0]])


@pytest.mark.parametrize("name", ["still", "nearest", "greedy"])
def test_other_rules_keep_their_places(name):
    agent = scripted_agent(name, COURT)
    actions, _ = play(COURT, 3, agent=agent)
    assert actions.shape == (3, 1, 8)
    assert not actions[..., 4:].any()


@pytest.mark.parametrize("zoom", [(), (60, 120)])
def test_labels_are_the_values_of_turns_and_moves(zoom):
    scenario = COURT.replace(zoom=zoom)
    env = DirectionalSensorVecEnv("Coverage", 3, scenario, 7, features=DEFAULT_FEATURES)
    labels = TurnLabels(PlannerAgent(scenario, horizon=20, samples=1), env, 0.2)
    env.reset()
    seen, starts = labels.observe(), np.ones(3, bool)
    given = labels.label(seen, starts)
    assert given.shape == (3, 4, 6)
    expected, _ = labels.teacher.predict(seen, None, starts)
    np.testing.assert_array_equal(labels.best(given), expected)
    assert expected.shape == (3, 12 if zoom else 8)
    assert expected[:, -4:].any()
