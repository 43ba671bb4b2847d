"""The tables of walks, placements and features: every entry says what it is, runs, and keeps to its range."""

import numpy as np
import pytest
from numba import njit

from hitmac.envs import FEATURES, Scenario, Simulator
from hitmac.envs.kernels.episode import PLACEMENTS
from hitmac.envs.kernels.threads import compiled, one_of
from hitmac.envs.kernels.walks import WALKS
from hitmac.envs.observation import Observer
from hitmac.envs.tasks import CoverageTask


@pytest.mark.parametrize(
    ("name", "function"), [*WALKS.items(), *PLACEMENTS.items()], ids=[*WALKS, *(f"at {name}" for name in PLACEMENTS)]
)
def test_walks_and_placements_say_what_they_are(name, function):
    line = function.__doc__.splitlines()[0]
    assert line.endswith(".")
    assert len(line) > 8
    assert f"`{name}`" in Scenario.__doc__


@pytest.mark.parametrize("name", WALKS)
def test_every_walk_stays_in_the_arena(name):
    scenario = Scenario(walk=name, wander=30, whole_numbers=False, blocks=(3, 4) if name == "streets" else ())
    simulator = Simulator(scenario, 50, 0)
    before = simulator.state.target_position.copy()
    for _ in range(200):
        simulator.step(np.ones((50, 4), np.int64))
    assert np.abs(simulator.state.target_position).max() <= scenario.arena
    assert (name == "still") == bool((simulator.state.target_position == before).all())


@pytest.mark.parametrize("name", PLACEMENTS)
def test_every_placement_puts_different_sensors_into_the_arena(name):
    rails = [[(-1250, 0), (1250, 0)]] if name == "rails" else []
    places = [(100 * k, -100) for k in range(4)] if name == "fixed" else []
    blocks = (3, 4) if name == "crossings" else ()
    simulator = Simulator(Scenario(placement=name, rails=rails, sensor_positions=places, blocks=blocks), 50, 0)
    places = simulator.state.sensor_position
    assert np.abs(places).max() <= simulator.scenario.arena
    assert all(len(np.unique(of_one, axis=0)) == 4 for of_one in places)
    different = len(np.unique(places.reshape(50, -1), axis=0))
    assert different == 1 if name == "fixed" else different > 25


@pytest.mark.parametrize("name", FEATURES)
def test_every_feature_keeps_to_its_range(name):
    assert len(FEATURES[name].meaning) > 8
    assert f"`{name}`" in CoverageTask.__doc__
    scenario = Scenario(walk="bounce", position_noise=40, missed_detections=0.2, zoom=(40, 120), failure_rate=0.1)
    simulator, observer = Simulator(scenario, 50, 0), Observer(scenario, (name,))
    values = []
    for step in range(30):
        simulator.step(np.full((50, 8), step % 3))
        observation = observer.observe(simulator)
        assert observer.space.contains({key: value[0] for key, value in observation.items()})
        values.append(observation["pairs"])
    low, high = FEATURES[name].bounds(scenario)
    assert low <= np.min(values)
    assert np.max(values) <= np.float32(high)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Scenario(walk="bouncy"), r"walk is 'bouncy'; it must be one of goals, .* \(did you mean bounce\?\)"),
        (lambda: Scenario(placement="gird"), r"placement is 'gird'; it must be one of .* \(did you mean grid\?\)"),
        (
            lambda: Observer(Scenario(), ("bearings",)),
            r"unknown feature bearings \(did you mean bearing\?\): known are",
        ),
    ],
)
def test_an_unknown_name_is_an_error_that_names_the_known_ones(wrong, says):
    with pytest.raises(ValueError, match=says):
        wrong()


def test_a_code_calls_its_own_variant_and_an_unknown_one_none():
    def variant(number):
        @compiled
        def write(out):
            out[0] = number

        return write

    chosen = one_of([variant(number) for number in range(10, 15)])
    call = njit(lambda code, out: chosen(code, out))
    for code in range(-2, 8):
        out = np.zeros(1)
        call(code, out)
        assert out[0] == (code + 10 if 0 <= code < 5 else 0)


def test_what_is_compiled_for_kernels_alone_refuses_the_interpreter():
    one_more = compiled(lambda number: number + 1)
    for _ in range(2):  # before it is compiled, and after
        with pytest.raises(TypeError, match="compiled for kernels alone"):
            one_more(1)
        assert njit(lambda number: one_more(number))(1) == 2 == one_more.py_func(1)
