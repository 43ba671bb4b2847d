"""Coordinators and executors that decide by rule: by hand, and as the simulator's own."""

import numpy as np
import pytest

from hitmac.agents.planning import levels
from hitmac.agents.planning.planner import PlannerAgent
from hitmac.envs import Scenario
from hitmac.envs.tasks import CoordinatorTask, CoverageTask
from hitmac.envs.tasks.base import flatten_sensors
from hitmac.envs.tasks.executor import mask_unassigned


def test_coordinators_by_hand():
    shown = CoverageTask("hit-mac", 500, 0, features=("in_range",)).observe()
    shown["mask"][0] = 0
    assert levels.AssignAll().predict(shown)[0].all()
    near = levels.AssignInRange().predict(shown)[0].reshape(500, 4, 5)
    np.testing.assert_array_equal(near, (shown["pairs"][..., 0] != 0) & (shown["mask"] != 0))
    assert 0.48 < levels.AssignRandomly(seed=1).predict(shown)[0].mean() < 0.52


@pytest.mark.slow
def test_planned_assignments_are_what_a_sensor_alone_covers():
    scenario = Scenario(num_sensors=2, num_targets=3, walk="still", extra_move_every=0)
    task = CoverageTask(scenario, 1, 0, features=PlannerAgent.features)
    places = {"sensor_position": [(0, 0), (1000, 0)], "heading": [0, 180]}
    task.simulator.place(**places, target_position=[(500, -10), (1010, 790), (-1000, 0)])
    # Both see the first target, until sensor 1 has turned nine times, towards the second, which it sees after ten.
    # Nobody reaches the third.
    shown, agent, none = task.observe(), PlannerAgent(scenario), [0, 0, 0]
    for window, shares in ((8, [none, none]), (9, [[1, 0, 0], none]), (10, [[1, 0, 0], [0, 1, 0]])):
        assert agent.shares(shown["pairs"], shown["mask"] != 0, window)[0].tolist() == shares
    assert levels.AssignPlanned(scenario).predict(shown)[0].tolist() == [[1, 0, 0, 0, 1, 0]]
    # If two must see a target, both are needed; a target without a value is assigned to nobody.
    for changes, shares in (({"seen_by": 2}, [[1, 0, 0]] * 2), ({"target_values": (0, 1, 1)}, [none, [0, 1, 0]])):
        valued = PlannerAgent(scenario.replace(**changes))
        assert valued.shares(shown["pairs"], shown["mask"] != 0, 10)[0].tolist() == shares
    shown["mask"][0, 0] = 0
    assert not levels.AssignPlanned(scenario).predict(shown)[0][0, :3].any()


def test_the_planning_executor_plans_for_every_sensor_alone():
    scenario = Scenario(num_sensors=2, num_targets=2, walk="still", extra_move_every=0, field_of_view=(60, 90))
    task = CoverageTask(scenario, 3, 0, features=PlannerAgent.features)
    places = {"sensor_position": [(0, 0), (10, 0)], "heading": [0, 0]}
    # The first target is in view of both, the second on the left; sensor 0 needs one turn more to see both.
    task.simulator.place(**places, target_position=[(500, 0), (300, 400)])
    goals = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]], [[1, 1], [0, 0]]], bool)
    rows = flatten_sensors(mask_unassigned(task.observe(), goals, "masked"))
    executor = levels.PlannerExecutor(scenario)
    assert executor.predict(rows)[0].tolist() == [0, 1, 1, 0, 1, 0]
    assert executor.plan(rows["pairs"], rows["mask"] != 0)[0].shape == (6, 3)


def test_the_scripted_executor_turns_as_the_coordinators_task_does():
    executor = {
        "executor": levels.ScriptedExecutor(),
        "executor_features": levels.ScriptedExecutor.features,
        "padding": "masked",
    }
    task, other = (CoordinatorTask("hit-mac", 40, 0, decision=1, idle="hold", **own) for own in ({}, executor))
    rng = np.random.default_rng(0)
    for _ in range(20):
        assignment = rng.integers(0, 2, (40, 20))
        for one in (task, other):
            one.step(assignment)
    equal = (task.simulator.state.heading == other.simulator.state.heading).mean()
    assert equal > 0.97  # a bearing may lie on a whole turn
    assert task.simulator.state.heading.std() > 10
