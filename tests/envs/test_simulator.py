"""The batch: equal to single scenes, on any number of threads; states that go on the same."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.baselines.planner import plan
from hitmac.envs import Scenario, Simulator
from hitmac.envs.kernels import physics as simulate
from hitmac.envs.observation import Observer


def states_equal(one, other, scenes=slice(None)):
    return all(np.array_equal(one[name][scenes], other[name]) for name in one)


def actions(steps, batch, n=4):
    return np.random.default_rng(3).integers(0, 3, (steps, batch, n))


def test_a_batch_is_its_single_scenes_bit_for_bit():
    batch = Simulator("hit-mac", 5, seed=40, num_threads=2)
    singles = [Simulator("hit-mac", 1, seed=40 + b) for b in range(5)]
    for step, action in enumerate(actions(60, 5)):
        batch.step(action)
        for b, single in enumerate(singles):
            single.step(action[b : b + 1])
        if step in (20, 45):  # resets at different times in different scenes
            mask = np.arange(5) % 2 == step % 2
            batch.reset(mask=mask)
            for b in np.flatnonzero(mask):
                singles[b].reset()
    for b, single in enumerate(singles):
        assert states_equal(batch.get_state(), single.get_state(), slice(b, b + 1))


def test_the_number_of_threads_changes_nothing():
    simulators = [Simulator("hit-mac", 300, seed=1, num_threads=threads) for threads in (1, 2, 3)]
    for action in actions(40, 300):
        for simulator in simulators:
            simulator.step(action)
    first = simulators[0].get_state()
    assert all(states_equal(first, simulator.get_state()) for simulator in simulators[1:])


def test_the_same_seed_gives_the_same_scene_and_another_seed_another():
    assert states_equal(Simulator(seed=5).get_state(), Simulator(seed=5).get_state())
    one, other = Simulator(seed=5), Simulator(seed=6)
    assert not np.array_equal(one.state.target_position, other.state.target_position)
    assert not np.array_equal(one.state.sensor_position, other.state.sensor_position)
    before = one.state.target_position.copy()
    one.reset()  # without a seed: on in the same stream
    assert not np.array_equal(before, one.state.target_position)
    one.reset(seed=5)
    assert np.array_equal(before, one.state.target_position)


def test_a_mask_leaves_the_others_alone():
    simulator = Simulator("hit-mac", 3, 0)
    before = simulator.get_state()
    simulator.step(np.ones((3, 4), np.int64), np.array([True, False, True]))
    after = simulator.get_state()
    for name in before:
        assert np.array_equal(before[name][1], after[name][1])
    assert after["time"].tolist() == [1, 0, 1]


def test_clones_and_states_go_on_the_same():
    simulator = Simulator("hit-mac", 3, 0)
    simulator.step(np.ones((3, 4), np.int64))
    clone, saved = simulator.clone(), simulator.get_state()
    run = actions(30, 3)
    for action in run:
        simulator.step(action)
    assert not states_equal(simulator.get_state(), saved)
    for action in run:
        clone.step(action)
    assert states_equal(simulator.get_state(), clone.get_state())


def test_long_walks_stay_finite_and_inside():
    simulator = Simulator("hit-mac-6x9", 64, 0)
    for action in actions(500, 64, 6):
        simulator.step(action)
        assert np.abs(simulator.state.target_position).max() <= 1250
        assert ((simulator.coverage >= 0) & (simulator.coverage <= 1)).all()
        displacement = np.linalg.norm(simulator.state.velocity, axis=-1)
        assert displacement.max() <= simulator.scenario.top_speed
    assert all(np.isfinite(array).all() for array in simulator.state if array.dtype == np.float64)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_envs": 0}, "num_envs is 0; it must be a whole number, 1 or more"),
        ({"num_envs": 2.0}, "num_envs is 2.0"),
        ({"num_threads": 0}, "num_threads is 0"),
        ({"seed": -1}, "seed is -1; it must be a whole number from 0"),
        ({"num_envs": 2, "seed": [1, 2, 3]}, "got 3 seeds for 2 scenes"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(ValueError, match=says):
        Simulator(**options)


def test_bad_states_change_nothing():
    simulator = Simulator(seed=0)
    before = simulator.get_state()
    with pytest.raises(ValueError, match="a state must have the names"):
        simulator.set_state({"heading": np.zeros((1, 4))})
    with pytest.raises(ValueError, match=r"'heading' has shape \(1, 3\)"):
        simulator.set_state(before | {"key": np.ones(1, np.uint64), "heading": np.zeros((1, 3))})
    with pytest.raises(ValueError, match="heading holds nan"):
        simulator.place(heading=[0, 0, 0, np.nan])
    with pytest.raises(ValueError, match=r"the arena is \+-1250"):
        simulator.place(heading=[1, 1, 1, 1], target_position=np.full((5, 2), 1300))
    with pytest.raises(ValueError, match="sensor_position has shape"):
        simulator.place(sensor_position=np.zeros((3, 2)))
    assert states_equal(before, simulator.get_state())


@pytest.mark.parametrize("whole_numbers", [True, False])
def test_moves_that_are_all_too_long_for_the_arena_end_at_its_border(whole_numbers):
    """The first was an endless loop; rounded places of a small arena are inside it."""
    fast = {"whole_numbers": whole_numbers, "placement": "random", "sensing_range": 1.0, "disc_radius": (0.1, 0.2)}
    small = Scenario(arena=(1.0, 0.8), target_area=(-1, 1, -0.5, 0.5), time_step=1.0, **fast)
    simulator = Simulator(small, 20, seed=0)
    for _ in range(30):
        assert (np.abs(simulator.state.target_position) <= small.extent).all()
        simulator.step(np.zeros((20, small.num_sensors), np.int64))
    assert np.isfinite(simulator.state.target_position).all()


@pytest.mark.parametrize("placement", ["areas", "grid", "random"])
def test_rounded_places_of_sensors_are_inside_the_arena(placement):
    area = (-0.7, 0.7, -0.8, -0.6)
    small = Scenario(
        num_sensors=1, arena=(1.0, 0.8), whole_numbers=True, placement=placement, sensor_areas=[area], grid=3,
        spacing=0, sensing_range=1.0, target_area=area, disc_radius=(0.1, 0.2),
    )  # fmt: skip
    simulator = Simulator(small, 200, seed=0)
    assert (np.abs(simulator.state.sensor_position) <= small.extent).all()


JUNK = """
import numpy as np
from hitmac.envs import FEATURES, Simulator, load_scenario
from hitmac.envs.observation import Observer

scenario = load_scenario("mixed").replace(failure_rate=0.1, recovery_rate=0.1, leave_rate=0.1, return_rate=0.1)
observer, rng = Observer(scenario, tuple(FEATURES)), np.random.default_rng(0)
for name in Simulator(scenario, 1, 0).state._fields:
    simulator = Simulator(scenario, 8, 0)
    array = getattr(simulator.state, name)
    for junk in (np.nan, np.inf, -np.inf, 1e300, -1e9, 2**40, -(2**62)):
        if array.dtype == np.float64:
            array[...] = junk
        elif array.dtype != bool and np.isfinite(junk) and abs(junk) < 2**63:
            array[...] = np.array(int(junk)).astype(array.dtype)
        simulator.step(rng.integers(0, 3, (8, scenario.num_sensors * len(scenario.decisions))))
        observer.observe(simulator)
"""


def test_what_is_written_into_the_state_never_leads_outside_its_arrays():
    """In a process of its own, which would end."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", JUNK], cwd=Path(__file__).parents[2], check=True, timeout=600)


@pytest.mark.parametrize(
    "form",
    {
        "strided": lambda array: np.repeat(array, 2, -1)[..., ::2],
        "read only": lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
        "of another order": np.asfortranarray,
        "of another byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    }.items(),
    ids=lambda form: form[0],
)
def test_arrays_of_any_form_use_the_same_kernels(form):
    scenes, make = [Simulator("hit-mac", 3, 0) for _ in range(2)], form[1]
    actions, mask = np.random.default_rng(0).integers(0, 3, (3, 4)), np.array([True, False, True])
    planners = [load_agent("planner-fast", "hit-mac").policy for _ in range(2)]
    observed = Observer(scenes[0].scenario, planners[0].features).observe(scenes[0])
    decided, compiled = [], []
    for scene, planner, change in zip(scenes, planners, (np.array, make), strict=True):
        scene.step(change(actions), change(mask))
        decided.append(planner.predict({name: change(array) for name, array in observed.items()})[0])
        compiled.append((len(simulate.sub_step.signatures), len(plan.signatures)))
    assert compiled[0] == compiled[1]
    np.testing.assert_array_equal(*decided)
    np.testing.assert_array_equal(scenes[0].state.target_position, scenes[1].state.target_position)
