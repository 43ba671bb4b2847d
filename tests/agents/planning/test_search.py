"""Search for plans: against all sequences of turns, played in the simulator."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents.planning.planner import BeliefPlannerAgent, PlannerAgent
from hitmac.envs import Scenario
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks import CoverageTask

HORIZON = 5
BOUNCE = Scenario(
    num_sensors=1, arena=3000, sensor_areas=[(0, 0, 0, 0)], target_area=(-900, 900, -900, 900), walk="bounce",
    extra_move_every=0, time_step=1, speed_noise=0, min_speed=1, max_speed=150, whole_numbers=False,
)  # fmt: skip


def enumerated(scenario, seed, before, cost, discount, zoom=0):
    """Values of the three first turns: of the best sequence of turns that begins with each, after a zoom."""
    turns = np.array(list(itertools.product(range(3), repeat=HORIZON)))
    simulator = Simulator(scenario, len(turns), [seed] * len(turns))
    for _ in range(before):
        simulator.step(np.zeros((len(turns), len(scenario.decisions)), int))
    state, value = simulator.state, np.zeros(len(turns))
    for h in range(HORIZON):
        zooms = np.full((len(turns), len(scenario.decisions) - 1), zoom if h == 0 else 0)
        simulator.step(np.column_stack((turns[:, h], zooms)))
        worth = (state.covered * state.value).sum(-1) / state.value.mean(-1)  # in mean values of a target
        value += discount**h * worth - cost * (turns[:, h] != 0)
    return [value[turns[:, 0] == turn].max() for turn in range(3)]


@pytest.mark.parametrize("kind", [PlannerAgent, BeliefPlannerAgent])
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    turn=st.sampled_from([5.0, 7.0, 36.0, 45.0, 80.0, 180.0]),
    view=st.sampled_from([3.0, 20.0, 90.0, 200.0, 360.0]),
    cost=st.sampled_from([0.0, 0.1, 1.0]),
    extra=st.sampled_from([0, 3]),
    before=st.integers(1, 7),
    values=st.sampled_from([(), (1, 2, 0, 5)]),
)
def test_values_are_those_of_the_best_sequences(kind, seed, turn, view, cost, extra, before, values):
    scenario = BOUNCE.replace(
        num_targets=4, extra_move_every=extra, turn_angle=turn, field_of_view=view, target_values=values
    )
    agent = kind(scenario, horizon=HORIZON, samples=3, turn_cost=cost, discount=0.9)
    task, state, start = CoverageTask(scenario, 1, seed, features=agent.features), None, np.ones(1, bool)
    for _ in range(before):
        _, state = agent.predict(task.observe(), state, start)
        task.step(np.zeros((1, 1), int))
        start = np.zeros(1, bool)
    shown = task.observe()
    values = agent.plan(shown["pairs"], shown["mask"] != 0, state, start)[0][0, 0]
    expected = np.array(enumerated(scenario, seed, before, cost, 0.9))
    if HORIZON * turn <= 180:
        assert values == pytest.approx(expected, abs=1e-4)
    assert (values <= expected + 1e-4).all()  # a plan does not turn by more than half a circle


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    view=st.sampled_from([30.0, 90.0, 120.0]),
    step=st.sampled_from([5.0, 40.0]),
    low=st.sampled_from([-400.0, -10.0]),
)
def test_values_of_a_lens_are_those_of_the_best_sequences_after_its_step(seed, view, step, low):
    """The lens is at its narrowest, between or at its widest; the pan limits may be near."""
    scenario = BOUNCE.replace(
        num_targets=6, turn_angle=20, field_of_view=view, zoom=(30, 120), zoom_step=step, pan_limits=[(low, low + 300)]
    )
    agent = BeliefPlannerAgent(scenario, horizon=HORIZON, samples=3, turn_cost=0.1, discount=0.9)
    task = CoverageTask(scenario, 1, seed, features=agent.features)
    task.step(np.zeros((1, 2), int))
    shown = task.observe()
    values = agent.plan(shown["pairs"], shown["mask"] != 0)[0][0]
    expected = [max(enumerated(scenario, seed, 1, 0.1, 0.9, zoom)) for zoom in range(3)]
    assert values.shape == (2, 3)
    assert values[1] == pytest.approx(expected, abs=1e-4)
    assert values[0].max() == pytest.approx(max(expected), abs=1e-4)
