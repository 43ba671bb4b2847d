"""Observations of a batch: their space and order; those of the released program are tested with the tasks."""

import numpy as np
import pytest

from hitmac.envs import FEATURES, TASKS, Scenario, Simulator
from hitmac.envs.observation import Observer
from hitmac.envs.parts.detections import DetectionObserver
from tests.envs.scenes import UNNAMED


def test_the_order_is_the_callers_and_the_space_holds_it():
    simulator = Simulator("hit-mac", 200, 0)
    for _ in range(20):
        simulator.step(np.ones((200, 4), np.int64))
    everything = Observer(simulator.scenario, tuple(FEATURES))
    observation = everything.observe(simulator)
    assert all(everything.space.contains({k: v[b] for k, v in observation.items()}) for b in range(200))
    backwards = Observer(simulator.scenario, (*reversed(FEATURES),)).observe(simulator)
    assert np.array_equal(backwards["pairs"], observation["pairs"][..., ::-1])
    assert not np.shares_memory(everything.observe(simulator)["pairs"], observation["pairs"])


@pytest.mark.parametrize("nearest", [None, 3])
def test_discs_near_a_sensor_are_observed_on_demand(nearest):
    """The range is 1500 at the narrowest view of 30 degrees; one disc ends just outside it, one just inside."""
    duel = Simulator("mate-2v4-0", 1, 0)
    duel = Simulator(duel.scenario.replace(random_discs=3, sensing_range=500), 1, 0)
    duel.place(sensor_position=[[(-700, 0), (-700, 10)]])
    duel.state.disc[0] = (-100, 0, 99), (-100, 0, 101), (300, 0, 50)
    observer = Observer(duel.scenario, ("distance",), nearest=nearest, discs=True)
    shown = observer.observe(duel)
    assert shown["discs"].tolist() == [[[0, 0, 0], [-100, 0, 101], [0, 0, 0]]]
    assert observer.space.contains({name: array[0] for name, array in shown.items()})
    assert "discs" not in Observer(duel.scenario, ("distance",), nearest=nearest).observe(duel)
    assert "discs" in TASKS["Coverage"](duel.scenario, discs=True).observe()


def test_a_task_without_identities_observes_detections_or_what_its_function_makes():
    task = TASKS["Coverage"](UNNAMED, 3, 0)
    assert task.observer.features == ("detections",)
    shown = DetectionObserver(UNNAMED).observe(task.simulator)
    np.testing.assert_equal(task.observe(), shown)
    assert all(task.observation_space.contains({k: v[b] for k, v in shown.items()}) for b in range(3))
    assert task.simulator.known is None
    made = TASKS["Coverage"](UNNAMED, 1, 0, features=lambda scenario: DetectionObserver(scenario.replace(name="mine")))
    assert isinstance(made.observer, DetectionObserver)
    for named in ("detections", ["detections"], ("detections",)):
        assert isinstance(TASKS["Coverage"](UNNAMED, 1, 0, features=named).observer, DetectionObserver)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Observer(Scenario(), ("bearing", "bearng")),
            r"unknown feature bearng \(did you mean bearing\?\)",
        ),
        (lambda: Observer(Scenario(), ()), "no feature given"),
        (lambda: Observer(Scenario(), ("bearing", "bearing")), "name a feature twice"),
        (lambda: Observer(Scenario(position_noise=1e60), "distance"), "feature distance reaches .*, beyond float32"),
        (lambda: Observer(UNNAMED), "identities is false; it must be true for the features bearing_sin, .*; with"),
        (lambda: TASKS["Coverage"](UNNAMED, features="hit-mac"), "identities is false; .* for the features sensor_id,"),
        (lambda: TASKS["Executor"](UNNAMED), "identities is false"),
        (lambda: TASKS["Coordinator"](UNNAMED), "identities is false"),
        (lambda: TASKS["Coverage"](UNNAMED, nearest=3), "nearest is 3; it must be None where .* identities false"),
        (lambda: DetectionObserver(UNNAMED).observe(Simulator("hit-mac-2x3")), r"this observer is for \(4, 5\)"),
    ],
)
def test_what_cannot_be_observed_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
