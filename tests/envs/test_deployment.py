"""Observations of measured positions equal those of the simulator's observer."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hitmac
from hitmac.envs import FEATURES, Memory, Scenario, Simulator, load_scenario, observe
from hitmac.envs import deployment as measured
from hitmac.envs.observation import Observer
from tests.envs.scenes import scenarios

ALL = tuple(FEATURES)
ONE = {"arena": 10, "sensing_range": 5, "field_of_view": 90, "distance_scale": 20, "max_speed": 2, "time_step": 0.5}
NEARNESS = [{"nearest": 3, "neighbours": 3}, {"nearest": 2, "radius": 600.0}, {"nearest": 99, "neighbours": 99}]
SCENES = {
    "hit-mac": load_scenario("hit-mac"),
    "random": load_scenario("random"),
    "mixed": load_scenario("mixed"),
    "obstacles": load_scenario("obstacles"),  # zooms, discs
    "walls": Scenario(walls=[(-900, -300, 700, 400), (0, -1000, 0, 1000)], discs=[(300, 300, 200)], arena=(1250, 1100)),
    "court": load_scenario("football-4"),  # rails, a rectangle
    "own rails": Scenario(
        num_sensors=3, placement="rails", rail_step=40,
        rails=[[(0, 0), (300, 400)], [(-500, -500)], [(0, 0), (100, 0), (100, 100), (0, 0)]],
    ),
    "absences": Scenario(failure_rate=0.2, recovery_rate=0.2, leave_rate=0.1, return_rate=0.2),
    "all round": Scenario(field_of_view=(360, 90, 10, 200), sensing_range=(300, 1500, 800, 2000)),
}  # fmt: skip


def played(scenario, scenes=6, steps=23, seed=0):
    """A simulator after some sub-steps of random decisions."""
    simulator = Simulator(scenario, scenes, seed)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        simulator.step(rng.integers(0, 3, (scenes, len(scenario.decisions) * scenario.num_sensors)))
    return simulator


def measured_in(simulator, known=None):
    """Arguments of `observe` for all scenes: exact measurements of the simulator."""
    state, scenario = simulator.state, simulator.scenario
    if known is None:
        position, velocity, extra = state.target_position, state.velocity, {}
        position = np.where(state.present[..., None], position, np.nan)
    else:  # the knowledge that all sensors share
        position, velocity = known.known_position[:, 0], known.known_velocity[:, 0]
        position = np.where(known.known_left[:, 0, :, None], np.nan, position)
        extra = {"age": known.known_age[:, 0], "seen": known.noticed}
    return {
        "sensor_position": state.sensor_position,
        "heading": np.where(state.working, state.heading, np.nan),
        "target_position": position,
        "target_before": position - velocity * scenario.time_step,
        "field_of_view": state.field_of_view,
        "along": state.along,
        **extra,
    }


def check(simulator, known=None, features=ALL, **nearness):
    expected = Observer(simulator.scenario, features, **nearness).observe(simulator)
    arguments = measured_in(simulator, known)
    for b in range(simulator.num_envs):  # each has obstacles of its own
        site = vars(simulator.scenario) | {"discs": simulator.state.disc[b]}
        got = observe(site, features, **{name: values[b] for name, values in arguments.items()}, **nearness)
        assert set(got) == set(expected)
        for name in got:
            assert got[name].dtype == expected[name].dtype
        for name in set(got) - {"pairs"}:
            np.testing.assert_array_equal(got[name], expected[name][b], err_msg=name)
        for k, name in enumerate(features):
            np.testing.assert_allclose(got["pairs"][..., k], expected["pairs"][b, ..., k], atol=2e-6, err_msg=name)
    return expected


@pytest.mark.parametrize("name", SCENES)
def test_it_is_the_observer_for_every_feature(name):
    scenario = SCENES[name].replace(position_noise=0, missed_detections=0, knowledge="full")
    for k, steps in enumerate((0, 1, 40)):
        simulator = played(scenario, steps=steps, seed=k)
        shown = check(simulator)
        check(simulator, **NEARNESS[k])
        if scenario.varies and steps:
            assert not shown["mask"].all()


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios(), seed=st.integers(0, 2**20))
def test_it_is_the_observer_in_any_scenario(scenario, seed):
    simulator = played(scenario.replace(position_noise=0, missed_detections=0), scenes=3, steps=8, seed=seed)
    check(simulator)
    check(simulator, nearest=1 + seed % 6, neighbours=1 + seed % 4)


@pytest.mark.parametrize("name", ["hit-mac", "obstacles", "court", "absences"])
def test_with_shared_knowledge_it_is_the_observer_of_what_was_last_seen(name):
    scenario = SCENES[name].replace(position_noise=0, missed_detections=0.1, knowledge="shared")
    simulator = played(scenario, steps=60)
    shown = check(simulator, simulator.known)
    check(simulator, simulator.known, nearest=2, radius=0.6 * scenario.distance_scale)
    assert shown["mask"].any()
    assert (simulator.known.known_age > 0).any()


def test_the_memory_is_the_knowledge_that_all_sensors_share():
    scenario = Scenario(knowledge="shared", extra_move_every=0, walk="bounce")
    simulator, memory, rng = Simulator(scenario, 5, 0), Memory("shared"), np.random.default_rng(0)
    before, compared = np.zeros((5, 5), bool), 0
    for _ in range(80):
        state, known = simulator.state, simulator.known
        found = memory.see(np.where(state.covered[..., None], state.target_position, np.nan))
        ever = np.isfinite(known.known_age[:, 0])
        np.testing.assert_array_equal(np.isfinite(found["target_position"]).all(-1), ever)
        np.testing.assert_array_equal(found["target_position"][ever], known.known_position[:, 0][ever])
        np.testing.assert_array_equal(found["age"][ever], known.known_age[:, 0][ever])
        twice = state.covered & before
        velocity = (found["target_position"] - found["target_before"]) / scenario.time_step
        np.testing.assert_allclose(velocity[twice], state.velocity[twice], atol=1e-8)
        assert np.isnan(found["target_before"][state.covered & ~before]).all()
        compared, before = compared + twice.sum(), state.covered.copy()
        simulator.step(rng.integers(0, 3, (5, 4)))
    assert compared > 50


def test_the_memory_of_full_knowledge_forgets_targets_without_a_position():
    memory = Memory()
    assert np.isnan(memory.see([(1, 2), (3, 4)])["target_before"]).all()
    second = memory.see([(2, 2), (np.nan, np.nan)])
    np.testing.assert_array_equal(second["target_before"][0], (1, 2))
    assert np.isnan(second["target_position"][1]).all()
    assert np.isnan(memory.see([(2, 2), (3, 4)])["target_before"][1]).all()
    shared = Memory("shared")
    shared.see([(1, 2), (3, 4)])
    gone = shared.see(np.full((2, 2), np.nan), left=[False, True])
    np.testing.assert_array_equal(np.isfinite(gone["target_position"][:, 0]), [True, False])
    for knowledge in ("Full", None, ["full"]):
        with pytest.raises(ValueError, match=re.escape(f"knowledge is {knowledge!r}; it must be one of full, shared")):
            Memory(knowledge)
    with pytest.raises(ValueError, match=r"target_position has shape \(3, 2\); it must be \(..., 2, 2\)"):
        shared.see(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"left has shape \(3,\); it must be \(..., 2\)"):
        shared.see(np.zeros((2, 2)), left=[True, False, True])
    assert shared.see([(1, 2), (3, 4)])["age"].tolist() == [0, 0]  # after the errors


def test_a_target_keeps_its_row_until_a_new_one_needs_it():
    memory, nan = Memory("shared", num_targets=2), (np.nan, np.nan)
    memory.see([(1, 2)], ids=["a"])
    seen = memory.see([(3, 4), (1, 3)], ids=["b", "a"])
    np.testing.assert_array_equal(seen["target_position"], [(1, 3), (3, 4)])
    np.testing.assert_array_equal(seen["target_before"], [(1, 2), nan])
    memory.see([(5, 5)], ids=["b"])
    seen = memory.see([(9, 9)], ids=["c"])
    assert memory.rows == {"c": 0, "b": 1}  # the position of a was the oldest
    assert seen["age"].tolist() == [0, 1]
    np.testing.assert_array_equal(seen["target_before"], [nan, (3, 4)])
    assert memory.see([], ["c", "nobody"], ids=[])["age"].tolist() == [np.inf, 2]
    for ids in (["d", "d"], ["d"]):
        with pytest.raises(ValueError, match=r"ids is \['d'.*\]; it must name each of 2 targets once"):
            memory.see([(0, 0), (1, 1)], ids=ids)
    seen = memory.see([(0, 0), (1, 1), nan], ids=("d", (2, 7), "c"), target_before=[(8, 8), nan, nan])
    assert memory.rows == {"c": 0, "d": 1, (2, 7): 2}
    np.testing.assert_array_equal(seen["target_before"][1:], [(8, 8), nan])


def test_leading_axes_broadcast():
    rng = np.random.default_rng(0)
    sensors, headings, targets = (rng.uniform(-9, 9, shape) for shape in ((3, 2), (4, 1, 3), (2, 5, 2)))
    sensors[1] = np.nan  # a sensor without a place is near itself only
    features = ("distance", "bearing", "visible", "others_seeing", "heading_sin", "radial_velocity", "sensor_x")
    for options in ({}, {"nearest": 2, "neighbours": 2}):
        together = observe(ONE, features, sensors, headings, targets, targets - 0.1, **options)
        for a, b in np.ndindex(4, 2):
            alone = observe(ONE, features, sensors, headings[a, 0], targets[b], targets[b] - 0.1, **options)
            assert set(alone) == set(together)
            for name, array in alone.items():
                np.testing.assert_array_equal(together[name][a, b], array, err_msg=name)
                assert together[name].flags.writeable
    assert together["neighbours"][0, 0, 1].tolist() == [1, -1]
    assert together["targets"][0, :, 1].tolist() == [[-1, -1]] * 2


def test_absent_sensors_and_targets_and_obstacles_by_hand():
    shown = observe(ONE, ("distance", "sensor_x"), [(5, 5), (1, 1)], [np.nan, 0], [(np.nan, np.nan), (2, 3)])
    np.testing.assert_array_equal(shown["mask"], [[0, 0], [0, 1]])
    assert not shown["pairs"][0].any()
    np.testing.assert_allclose(shown["pairs"][1, :, 1], 0.1)
    assert shown["pairs"][1, 0, 0] == 0
    first = observe(ONE, ("radial_velocity", "tangential_velocity"), [(5, 5)], [0], [(2, 3)])
    assert not first["pairs"].any()
    aged = observe(
        ONE | {"arena": (10, 5)}, ("expected_distance",), [(0, 0)], [0], [(0, 3), (3, 0)], [(0, 2), (2, 0)], age=[9, 9]
    )
    np.testing.assert_allclose(aged["pairs"].ravel(), [5 / 20, 10 / 20])  # the border of the arena
    site = ONE | {"walls": [(1, -1, 1, 1)], "discs": [(0, 2, 0.5)], "field_of_view": 360}
    shown = observe(site, ("visible",), [(0, 0)], [0], [(3, 0), (-3, 0), (0, 4), (0, 1)])
    np.testing.assert_array_equal(shown["pairs"][0, :, 0], [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *(({name: 0}, f"the site's {name} is 0; it must be over 0 and") for name in ONE),
        ({"arena": float("nan")}, "the site's arena is nan; it must be over 0"),
        ({"max_speed": "x"}, "the site's max_speed is 'x'; it must be an array of numbers"),
        ({"field_of_view": 361}, "field_of_view is 361; it must be over 0 and at most 360"),
        ({"turn_angle": 181}, "turn_angle is 181; it must be over 0 and at most 180"),
        ({"sensing_range": [5, -1]}, r"sensing_range is \[5, -1\]; it must be over 0"),
        ({"sensing_range": [5, 6, 7]}, r"sensing_range has shape \(3,\); it must be a number, or 2 of them"),
        ({"arena": (1, 2, 3)}, r"arena has shape \(3,\)"),
        ({"speed_noise": -1}, "speed_noise is -1; it must be 0 or more"),
        ({"walls": [(0, 0, 1)]}, r"walls has shape \(1, 3\); it must be \(..., any, 4\)"),
        ({"discs": [(0, 0)]}, "the site's discs has shape"),
        ({"rails": [[(0, 0), (1, 1)]] * 3}, "the site has 3 rails; it must have one, or 2"),
    ],
)
def test_a_site_out_of_its_ranges_is_named(change, says):
    site, two, one = ONE | {"turn_angle": 5} | change, [(0, 0), (1, 1)], [(1, 1)]
    with pytest.raises(ValueError, match=says) as raised:
        observe(site, ALL, two, [0, 0], one, [(0, 0)], along=[0, 0])
    assert "\n" not in str(raised.value)


PLACE = {"sensor_position": [(0, 0)], "heading": [0], "target_position": [(1, 1)]}
MANY = {"sensor_position": [[(0, 0)]] * 2, "heading": [[0]] * 3}


def without(name):
    return {key: value for key, value in ONE.items() if key != name}


@pytest.mark.parametrize(
    ("site", "features", "arguments", "says"),
    [
        ("hit-mac", "distance", {}, "site is 'hit-mac'; it must be a Scenario, or a mapping"),
        (ONE, "smell", {}, "unknown feature smell: known are sensor_id, target_id"),
        (ONE, "turn", {}, "the feature turn needs the site's turn_angle, which is missing"),
        (ONE | {"rails": [[(0, 0), (1, 1)]]}, "rail_sin", {}, "the feature rail_sin needs the argument along"),
        (without("sensing_range"), "distance", {"nearest": 1, "neighbours": 1}, "neighbours needs .* sensing_range"),
        (without("field_of_view"), "distance", {"nearest": 1, "neighbours": 1}, "neighbours needs .* field_of_view"),
        (ONE, "distance", MANY, r"broadcast: sensor_position \(2,\), target_position \(\), heading \(3,\)"),
        (ONE, "distance", {"heading": [0, 1]}, "heading has shape"),
        (ONE, "distance", {"target_position": [1, 1, 1]}, "target_position has shape"),
        (ONE, "age", {"age": [1, 2, 3]}, "age has shape"),
        (ONE, "age", {"age": [-1]}, "age is -1.0; it must be 0 or more"),
        (ONE, "visible", {"seen": [[1], [0]]}, "seen has shape"),
        (ONE, "distance", {"field_of_view": [0]}, "field_of_view is 0.0; it must be over 0, at most 360"),
        (ONE, "distance", {"nearest": 0}, "nearest is 0; it must be a whole number, 1 or more"),
        (ONE, "distance", {"nearest": 2, "neighbours": 1.5}, "neighbours is 1.5; it must be a whole number, 1 or more"),
        (ONE, "distance", {"nearest": 2, "radius": -1}, "radius is -1; it must be a finite number over 0"),
        (ONE, "distance", {"radius": 3.0}, "radius is 3.0; it needs nearest, the number of targets"),
    ],
)
def test_wrong_arguments_are_named(site, features, arguments, says):
    with pytest.raises((TypeError, ValueError), match=says):
        observe(site, (features,), **PLACE | arguments)


def test_it_has_every_feature_and_needs_numpy_only():
    assert hitmac.observe is observe
    assert set(measured.FEATURES) == set(FEATURES)
    assert {name for name, one in FEATURES.items() if one.of_sensor} == measured.OF_SENSOR
    path = Path(measured.__file__)
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("alone", {str(path)!r})
alone = importlib.util.module_from_spec(spec)
spec.loader.exec_module(alone)
print({{"numba", "gymnasium", "torch", "hitmac"}} & set(sys.modules))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "set()\n"
