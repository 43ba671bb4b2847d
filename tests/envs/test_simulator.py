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
from tests.envs.kernels.test_knowledge import HARD
from tests.envs.kernels.test_rails import SITE


def states_equal(one, other, scenes=slice(None)):
    return all(np.array_equal(one[name][scenes], other[name]) for name in one)


@pytest.mark.parametrize(
    "scenario",
    [
        load_scenario("hit-mac"),
        load_scenario("football-6").replace(failure_rate=0.05, recovery_rate=0.5),  # rails
        SITE.replace(sensor_headings=()),  # pan limits
        HARD.replace(knowledge="neighbours"),
    ],
    ids=["hit-mac", "rails", "pan limits", "knowledge"],
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


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s: s.reset(seed=[1, -2]), "seed is -2"),
        (lambda s: s.reset(seed=1, options={"heading": [1, 2, 3, 4, 5]}), r"heading has shape \(5,\); it must be"),
        *(
            (lambda s, given=given: s.reset(options=given), "they must be a dictionary")
            for given in ([1], 7, np.ones(2))
        ),
        *((lambda s, one=one: s.place(heading=[one] * 4), "it must be numbers") for one in ("1", 1j, True, None)),
        (lambda s: s.place(target_tracks=np.zeros((3, 4, 2))), "target_tracks has shape"),
        (lambda s: s.place(target_tracks=np.zeros((0, 5, 2))), "target_tracks has shape"),
        (lambda s: s.place(target_tracks=np.full((3, 5, 2), np.inf)), "target_tracks holds inf; .* must be finite"),
        (lambda s: s.reset(mask=np.ones(3, bool)), r"it must be a bool array of shape \(2,\)"),
        (lambda s: s.reset(mask=[True, False]), "mask is .True, False.; it must be a bool array"),
        (lambda s: s.step(np.zeros((2, 5), int)), r"of shape \(2, 5\); it must be whole numbers of shape \(2, 4\)"),
        (lambda s: s.step(np.zeros((2, 4))), "action is float64"),
        (lambda s: s.step(np.zeros((2, 4), int), np.ones(2, int)), "it must be a bool array"),
    ],
)
def test_a_refused_call_changes_nothing(call, says):
    simulator = Simulator("hit-mac", 2, 0)
    before = simulator.get_state()
    with pytest.raises(ValueError, match=says):
        call(simulator)
    assert states_equal(before, simulator.get_state())


@pytest.mark.parametrize("seed", [True, np.True_, 1.5, "7", -1, 2**63, [True, 1], [1.0, 2.0], 1j])
def test_seeds_are_whole_numbers(seed):
    simulator = Simulator("hit-mac", 2, np.uint8(255))
    assert simulator.state.key[1] == Simulator("hit-mac", 1, 256).state.key[0]
    for call in (lambda: simulator.reset(seed=seed), lambda: Simulator("hit-mac", 2, seed)):
        with pytest.raises(ValueError, match="it must be a whole number from 0"):
            call()
