"""Batches of scenes: equal to single scenes, continued from states, in arrays of any form."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.planning.search import search_all
from hitmac.envs import Simulator, load_scenario
from hitmac.envs.kernels.step import sub_step
from hitmac.envs.observation import Observer
from tests.envs.kernels.test_knowledge import HARD
from tests.envs.kernels.test_rails import SITE
from tests.envs.scenes import MOTORS


def states_equal(one, other, scenes=slice(None)):
    return all(np.array_equal(one[name][scenes], other[name]) for name in one)


@pytest.mark.parametrize(
    "scenario",
    [
        load_scenario("hit-mac"),
        load_scenario("football-6").replace(failure_rate=0.05, recovery_rate=0.5),  # rails
        SITE.replace(sensor_headings=()),  # pan limits
        HARD.replace(knowledge="neighbours"),
        MOTORS,
        load_scenario("mate-4v8-9"),
        load_scenario("tilting"),
    ],
    ids=["hit-mac", "rails", "pan limits", "knowledge", "motors", "game", "tilts"],
)
def test_a_batch_is_its_single_scenes_and_copies_have_its_future(scenario):
    """Bit for bit, on any number of threads, with resets of some scenes."""
    batch = Simulator(scenario, 300, seed=40, num_threads=2)
    everyone = [(batch, slice(None)), *((Simulator(scenario, 1, seed=40 + b), slice(b, b + 1)) for b in (0, 7, 299))]
    rng = np.random.default_rng(3)
    for step in range(40):
        action = rng.integers(0, 3, (300, len(scenario.decisions) * scenario.num_sensors))
        moves = rng.uniform(-20, 20, (300, 8, 2)) if scenario.is_game and step % 2 else None
        mask = np.arange(300) % 7 == 0
        for simulator, scenes in everyone:
            simulator.step(action[scenes], target_action=None if moves is None else moves[scenes])
            if step in (12, 25):
                simulator.reset(mask=mask[scenes])
        if step == 18:
            late, saved = Simulator(scenario, 300, seed=9, num_threads=1), batch.get_state()
            late.set_state(saved)
            everyone += [(copy, slice(None)) for copy in (late, batch.clone(), pickle.loads(pickle.dumps(batch)))]
    state = batch.get_state()
    assert not states_equal(state, saved)
    assert not scenario.is_game or any((state[name] != saved[name]).any() for name in state if "cargo" in name)
    assert all(states_equal(state, simulator.get_state(), scenes) for simulator, scenes in everyone)
    assert (state["rotated"].sum(1) == state["turned"]).all()


def test_the_same_seed_gives_the_same_scene_and_another_seed_another():
    one, same, other = (Simulator(seed=seed) for seed in (5, 5, 6))
    assert states_equal(one.get_state(), same.get_state())
    before = one.state.target_position.copy()
    assert not np.array_equal(before, other.state.target_position)
    one.reset()  # without a seed: continues its stream
    assert not np.array_equal(before, one.state.target_position)
    one.reset(seed=5)
    assert np.array_equal(before, one.state.target_position)
    assert Simulator("hit-mac", 2, np.uint8(255)).state.key[1] == Simulator("hit-mac", 1, 256).state.key[0]


JUNK = """
import numpy as np
from hitmac.envs import FEATURES, Simulator, load_scenario
from hitmac.envs.observation import Observer

rates = dict(failure_rate=0.1, recovery_rate=0.1, leave_rate=0.1, return_rate=0.1)
tilts = dict(tilt_limits=((5, 75),), tilt_step=5, mount_height=100, vertical_view=24)
scenario = load_scenario("mixed").replace(**rates, **tilts)
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


FORMS = (
    lambda array: np.repeat(array, 2, -1)[..., ::2],  # strided
    lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),  # read only
    np.asfortranarray,
    lambda array: array.astype(array.dtype.newbyteorder()),
)


def test_arrays_of_any_form_use_the_same_kernels():
    actions, mask = np.random.default_rng(0).integers(0, 3, (3, 4)), np.array([True, False, True])
    planner, results = load_agent("planner-fast", "hit-mac").policy, []
    for form in (np.array, *FORMS):
        scenes = Simulator("hit-mac", 3, 0)
        observed = Observer(scenes.scenario, planner.features).observe(scenes)
        scenes.step(form(actions), form(mask))
        decided = planner.predict({name: form(array) for name, array in observed.items()})[0]
        compiled = len(sub_step.signatures), len(search_all.signatures)
        results.append((decided, scenes.state.target_position, compiled))
    np.testing.assert_equal(results, results[:1] * len(results))
