"""The bound within reach, of sensors on rails; the other bounds are tested with the exact agent."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hitmac.agents import scripted_agent
from hitmac.agents.evaluate.bounds import bounds_of, compute_bound
from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.tasks import CoverageTask
from tests.envs.scenes import scenarios

SQUARE = [(-400, -400), (400, -400), (400, 400), (-400, 400), (-400, -400)]
ONE = Scenario(
    num_sensors=1, num_targets=1, rails=[SQUARE], rail_step=150, placement="rails", sensing_range=450, field_of_view=50,
    turn_angle=35, extra_move_every=0, time_step=0.5, whole_numbers=False,
)  # fmt: skip


@pytest.mark.parametrize("rail_step", [150, 700, 2500])
@pytest.mark.parametrize("rails", [[SQUARE], [SQUARE[:3]], [SQUARE[:1]]])
def test_one_target_is_within_reach_if_any_sequence_of_actions_covers_it(rails, rail_step):
    sub_steps, differ = 3, set()
    actions = np.array(list(itertools.product(range(3), repeat=2 * sub_steps))).reshape(-1, sub_steps, 2)
    scene = ONE.replace(rails=rails, rail_step=rail_step)
    for seed in range(12):
        simulator = Simulator(scene, len(actions), [seed] * len(actions), num_threads=1)
        best = []
        for t in range(sub_steps):
            simulator.step(actions[:, t])
            best.append(simulator.coverage.max())
        assert compute_bound("within reach", scene, [seed], sub_steps)[0][0].tolist() == best
        differ.add(tuple(best))
    assert len(differ) > 2


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    scenario=scenarios().filter(lambda one: one.rails and not one.zoom and one.walk != "evade"), seed=st.integers(0, 99)
)
def test_no_agent_covers_more(scenario, seed):
    sub_steps = 10
    most = compute_bound("within reach", scenario, [seed], sub_steps)[0].mean(0)
    agent = scripted_agent("planner-fast", scenario)
    task = CoverageTask(scenario, 1, [seed], features=agent.features)
    for t in range(sub_steps):
        task.step(agent.predict(task.observe())[0])
        assert task.simulator.coverage[0] <= most[t] + 1e-12


def test_scenes_with_rails_have_this_bound_and_others_two():
    assert bounds_of(load_scenario("volleyball-4")) == ("within reach",)
    assert bounds_of(load_scenario("hit-mac")) == ("free turning", "clairvoyant")
