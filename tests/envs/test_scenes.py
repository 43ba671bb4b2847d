"""Properties of any scene: every preset and random scenarios, in batches and alone."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hitmac.envs import FEATURES, TASKS, Simulator, presets
from hitmac.envs.base import threads
from hitmac.envs.observation import Observer
from tests.envs.scenes import UNNAMED, scenarios

ROLES = {True: ("agent", "targets"), False: ("agent", "executor", "coordinator")}
PLAYED = [
    (task, name)
    for name in presets()
    for task in TASKS.values()
    if name != "city" and task.spec.role in ROLES[name.startswith("mate")]  # test_city
]
PLAYED += [(TASKS["Coverage"], UNNAMED.replace(false_detections=1.5, random_discs=2, leave_rate=0.1, failure_rate=0.1))]


@pytest.mark.parametrize(("task", "name"), PLAYED)
def test_on_every_preset_a_batch_is_its_scenes_on_any_number_of_threads(task, name, monkeypatch):
    for constant, value in (("SCENES_PER_BLOCK", (8, 8)), ("PAIRS_PER_BLOCK", 0), ("cores", lambda: 3)):
        monkeypatch.setattr(threads, constant, value)  # ten scenes are two blocks, for two threads
    one, two, last = task(name, 10, 0, num_threads=1), task(name, 10, 0, num_threads=3), task(name, 1, 9)
    rng = np.random.default_rng(0)
    for step in range(12):
        for batch in (one, two, last) if step == 7 else ():
            batch.reset()
        action = rng.integers(0, 2, (10, *one.action_space.shape))
        reward = one.step(action)
        np.testing.assert_array_equal(reward, two.step(action))
        assert last.step(action[-1:]) == reward[-1]
        shown = one.observe()
        assert one.observation_space.contains({key: value[7] for key, value in shown.items()})
        for other in (one, two):  # every look shows the same
            np.testing.assert_equal(shown, other.observe())
        np.testing.assert_equal({key: value[-1:] for key, value in shown.items()}, last.observe())
        np.testing.assert_equal({key: value[-1:] for key, value in one.info().items()}, last.info())
    np.testing.assert_equal(one.simulator.get_state(), two.simulator.get_state())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_properties_of_any_scene(scenario):
    batch = Simulator(scenario, 5, seed=3)
    single = Simulator(scenario, 1, seed=7)
    observer = Observer(scenario, tuple(FEATURES))
    rng = np.random.default_rng(0)
    width = scenario.num_sensors * len(scenario.decisions)
    turn = scenario.of_each_sensor("turn_angle")
    for step in range(25):
        action = rng.integers(0, 3, (5, width))
        before = batch.state.heading.copy()
        batch.step(action)
        single.step(action[4:])
        if step == 12:
            batch.reset()
            single.reset()
            before = batch.state.heading.copy()
        state = batch.state
        assert ((batch.coverage >= 0) & (batch.coverage <= 1)).all()
        assert ((batch.rotation >= 0) & (batch.rotation <= 1)).all()
        assert (np.abs(state.target_position) <= scenario.extent).all()
        assert (np.linalg.norm(state.velocity, axis=-1) <= scenario.top_speed * (1 + 1e-9)).all()
        assert (np.abs(state.heading - before) <= turn * (1 + 1e-9)).all()
        assert not state.visible[~batch.valid_pairs].any()
        np.testing.assert_array_equal(state.covered, state.visible.any(1))
        assert (state.field_of_view <= 360).all()
        shown = observer.observe(batch)
        assert observer.space.contains({key: value[2] for key, value in shown.items()})
        np.testing.assert_array_equal(shown["mask"], batch.valid_pairs)
        np.testing.assert_equal({key: value[4:] for key, value in shown.items()}, observer.observe(single))
        np.testing.assert_equal({k: v[4:] for k, v in batch.get_state().items()}, single.get_state())
    for name, array in batch.get_state().items():
        assert name == "places" or np.isfinite(array).all(), name
