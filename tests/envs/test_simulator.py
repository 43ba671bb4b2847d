"""Batches of scenes: equal to single scenes, continued from states, in arrays of any form."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.baselines.planner import plan
from hitmac.envs import Simulator, load_scenario
from hitmac.envs.kernels import physics
from hitmac.envs.observation import Observer
from tests.envs.kernels.test_rails import SITE


def states_equal(one, other, scenes=slice(None)):
    return all(np.array_equal(one[name][scenes], other[name]) for name in one)


@pytest.mark.parametrize(
    "scenario",
    [
        load_scenario("hit-mac"),
        load_scenario("football-6").replace(failure_rate=0.05, recovery_rate=0.5),  # rails
        SITE.replace(sensor_headings=()),  # pan limits
    ],
    ids=["hit-mac", "rails", "pan limits"],
)
def test_a_batch_is_its_single_scenes_and_copies_have_its_future(scenario):
    """Bit for bit, on any number of threads, with resets of some scenes."""
    batch = Simulator(scenario, 300, seed=40, num_threads=2)
    singles = {b: Simulator(scenario, 1, seed=40 + b) for b in (0, 7, 299)}
    everyone = [batch]
    rng = np.random.default_rng(3)
    for step in range(40):
        action = rng.integers(0, 3, (300, len(scenario.decisions) * scenario.num_sensors))
        for simulator in everyone:
            simulator.step(action)
        for b, single in singles.items():
            single.step(action[b : b + 1])
        if step in (12, 25):
            mask = np.arange(300) % 7 == 0
            for simulator in everyone:
                simulator.reset(mask=mask)
            for b in np.flatnonzero(mask):
                if b in singles:
                    singles[b].reset()
        if step == 18:
            late = Simulator(scenario, 300, seed=9, num_threads=1)
            late.set_state(batch.get_state())
            everyone += [late, batch.clone(), pickle.loads(pickle.dumps(batch))]
            saved = batch.get_state()
    state = batch.get_state()
    assert not states_equal(state, saved)
    assert all(states_equal(state, other.get_state()) for other in everyone)
    for b, single in singles.items():
        assert states_equal(state, single.get_state(), slice(b, b + 1))


def test_the_same_seed_gives_the_same_scene_and_another_seed_another():
    assert states_equal(Simulator(seed=5).get_state(), Simulator(seed=5).get_state())
    one, other = Simulator(seed=5), Simulator(seed=6)
    assert not np.array_equal(one.state.target_position, other.state.target_position)
    assert not np.array_equal(one.state.sensor_position, other.state.sensor_position)
    before = one.state.target_position.copy()
    one.reset()  # without a seed: continues its stream
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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_envs": 0}, "num_envs is 0"),
        ({"num_envs": 2.0}, "num_envs is 2.0"),
        ({"num_threads": 0}, "num_threads is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"num_envs": 2, "seed": [1, 2, 3]}, "got 3 seeds for 2 scenes"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(ValueError, match=says):
        Simulator(**options)


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


def test_junk_in_the_state_never_leads_outside_its_arrays():
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
        compiled.append((len(physics.sub_step.signatures), len(plan.signatures)))
    assert compiled[0] == compiled[1]
    np.testing.assert_array_equal(*decided)
    np.testing.assert_array_equal(scenes[0].state.target_position, scenes[1].state.target_position)
