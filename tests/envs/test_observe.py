"""Observations of measured positions: those of the simulator's observer."""

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
        num_sensors=3,
        rails=[[(0, 0), (300, 400)], [(-500, -500)], [(0, 0), (100, 0), (100, 100), (0, 0)]],
        placement="rails",
        rail_step=40,
        knowledge="full",
    ),
    "absences": Scenario(failure_rate=0.2, recovery_rate=0.2, leave_rate=0.1, return_rate=0.2),
    "all round": Scenario(field_of_view=(360, 90, 10, 200), sensing_range=(300, 1500, 800, 2000)),
    "tracks": Scenario(extra_move_every=0),
}


def played(scenario, scenes=6, steps=23, seed=0):
    """A simulator after some sub-steps of random decisions, at whose end all targets move by recorded tracks."""
    simulator = Simulator(scenario, scenes, seed)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        simulator.step(rng.integers(0, 3, (scenes, len(scenario.decisions) * scenario.num_sensors)))
    return simulator


def measured_in(simulator, known=None):
    """Arguments of `observe` for all scenes: what an exact measurement of the simulator gives."""
    state, scenario = simulator.state, simulator.scenario
    if known is None:
        position, velocity, extra = state.target_position, state.velocity, {}
        position = np.where(state.present[..., None], position, np.nan)
    else:  # what all sensors know together
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
        assert got["pairs"].dtype == np.float32
        assert got["mask"].dtype == np.int8
        for name in set(got) - {"pairs"}:
            assert got[name].dtype == expected[name].dtype
            np.testing.assert_array_equal(got[name], expected[name][b], err_msg=name)
        for k, name in enumerate(features):
            np.testing.assert_allclose(got["pairs"][..., k], expected["pairs"][b, ..., k], atol=2e-6, err_msg=name)
    return expected


@pytest.mark.parametrize("name", SCENES)
def test_it_is_the_observer_for_every_feature(name):
    scenario = SCENES[name].replace(position_noise=0, missed_detections=0, knowledge="full")
    for seed, steps in ((0, 0), (1, 1), (2, 40)):
        simulator = played(scenario, steps=steps, seed=seed)
        shown = check(simulator)
        for nearness in NEARNESS:
            check(simulator, **nearness)
        if scenario.varies and steps:
            assert not shown["mask"].all()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
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


def test_the_memory_is_what_all_sensors_know():
    scenario = Scenario(knowledge="shared", extra_move_every=0, walk="bounce")
    simulator, memory, rng = Simulator(scenario, 5, 0), Memory("shared"), np.random.default_rng(0)
    before, told = np.zeros((5, 5), bool), 0
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
        told, before = told + twice.sum(), state.covered.copy()
        simulator.step(rng.integers(0, 3, (5, 4)))
    assert told > 50


def test_the_memory_of_full_knowledge_keeps_no_target_that_is_not_there():
    memory = Memory()
    first = memory.see([(1, 2), (3, 4)])
    assert np.isnan(first["target_before"]).all()
    second = memory.see([(2, 2), (np.nan, np.nan)])
    np.testing.assert_array_equal(second["target_before"][0], (1, 2))
    assert np.isnan(second["target_position"][1]).all()
    assert np.isnan(memory.see([(2, 2), (3, 4)])["target_before"][1]).all()
    shared = Memory("shared")
    shared.see([(1, 2), (3, 4)])
    gone = shared.see(np.full((2, 2), np.nan), left=[False, True])
    np.testing.assert_array_equal(np.isfinite(gone["target_position"][:, 0]), [True, False])


def test_a_first_call_has_no_velocities_and_later_ones_have_those_of_the_simulator():
    simulator = Simulator("hit-mac", 3, 0)
    names = ("radial_velocity", "tangential_velocity")
    before = simulator.state.target_position.copy()
    places = (simulator.state.sensor_position, simulator.state.heading)
    assert not observe(simulator.scenario, names, *places, before)["pairs"].any()
    simulator.step(np.zeros((3, 4), int))
    simulator.place(target_position=before)
    simulator.step(np.zeros((3, 4), int))  # without an extra move
    shown = observe(simulator.scenario, names, *places, simulator.state.target_position, before)["pairs"]
    np.testing.assert_allclose(shown, Observer(simulator.scenario, names).observe(simulator)["pairs"], atol=1e-6)
    assert shown.any()


def test_leading_axes_broadcast():
    rng = np.random.default_rng(0)
    sensors, headings, targets = (
        rng.uniform(-9, 9, (3, 2)),
        rng.uniform(-180, 180, (4, 1, 3)),
        rng.uniform(-9, 9, (2, 5, 2)),
    )
    features = ("distance", "bearing", "visible", "others_seeing", "heading_sin", "radial_velocity")
    together = observe(ONE, features, sensors, headings, targets, targets - 0.1)
    assert together["pairs"].shape == (4, 2, 3, 5, 6)
    for a in range(4):
        for b in range(2):
            alone = observe(ONE, features, sensors, headings[a, 0], targets[b], targets[b] - 0.1)
            np.testing.assert_array_equal(together["pairs"][a, b], alone["pairs"])
            np.testing.assert_array_equal(together["mask"][a, b], alone["mask"])


def test_lists_have_leading_axes_too_and_a_sensor_without_a_place_is_near_itself_alone():
    rng = np.random.default_rng(0)
    sensors, targets = rng.uniform(-9, 9, (3, 2)), rng.uniform(-9, 9, (2, 5, 2))
    sensors[1] = np.nan
    options = {"nearest": 2, "neighbours": 2}
    together = observe(ONE, ("distance", "sensor_x"), sensors, [0, 0, 0], targets, **options)
    assert together["neighbours"].shape == (2, 3, 2)
    assert together["neighbours"][0, 1].tolist() == [1, -1]
    assert together["targets"][:, 1].tolist() == [[-1, -1]] * 2
    for b in range(2):
        alone = observe(ONE, ("distance", "sensor_x"), sensors, [0, 0, 0], targets[b], **options)
        for name, array in alone.items():
            np.testing.assert_array_equal(together[name][b], array)
            assert together[name].flags.writeable


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nearest": 0}, "nearest is 0; it must be a whole number, 1 or more"),
        ({"nearest": 2, "neighbours": 1.5}, "neighbours is 1.5; it must be a whole number, 1 or more"),
        ({"nearest": 2, "radius": -1}, "radius is -1; it must be a finite number over 0"),
        ({"radius": 3.0}, "radius is 3.0; it needs nearest, the number of targets"),
    ],
)
def test_wrong_options_of_the_nearest_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        observe(ONE, ("distance",), [(0, 0)], [0], [(1, 1)], **options)


def test_a_sensor_that_does_not_work_shows_nothing_and_one_that_does_shows_itself():
    shown = observe(ONE, ("distance", "sensor_x"), [(5, 5), (1, 1)], [np.nan, 0], [(np.nan, np.nan), (2, 3)])
    np.testing.assert_array_equal(shown["mask"], [[0, 0], [0, 1]])
    assert not shown["pairs"][0].any()
    np.testing.assert_allclose(shown["pairs"][1, :, 1], 0.1)
    assert shown["pairs"][1, 0, 0] == 0


def test_a_wall_and_a_disc_hide_targets():
    site = ONE | {"walls": [(1, -1, 1, 1)], "discs": [(0, 2, 0.5)]}
    shown = observe(site | {"field_of_view": 360}, ("visible",), [(0, 0)], [0], [(3, 0), (-3, 0), (0, 4), (0, 1)])
    np.testing.assert_array_equal(shown["pairs"][0, :, 0], [0, 1, 0, 1])


def test_what_is_wrong_is_named():
    with pytest.raises(ValueError, match="unknown feature smell: known are sensor_id, target_id"):
        observe(ONE, ("smell",), [(0, 0)], [0], [(1, 1)])
    with pytest.raises(ValueError, match="the feature turn needs the site's turn_angle, which is missing"):
        observe(ONE, ("distance", "turn"), [(0, 0)], [0], [(1, 1)])
    with pytest.raises(ValueError, match="the feature rail_sin needs the argument along"):
        observe(ONE | {"rails": [[(0, 0), (1, 1)]]}, ("rail_sin",), [(0, 0)], [0], [(1, 1)])
    for name, wrong in {"heading": [0, 1], "target_position": [1, 1, 1], "age": [1, 2, 3], "seen": [[1], [0]]}.items():
        given = {"sensor_position": [(0, 0)], "heading": [0], "target_position": [(1, 1)]} | {name: wrong}
        with pytest.raises(ValueError, match=f"{name} has shape"):
            observe(ONE, ("distance", "visible", "age"), **given)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *(({name: 0}, f"the site's {name} is 0; it must be over 0 and") for name in ONE),
        *(({name: float("nan")}, f"the site's {name} is nan; it must be over 0") for name in ONE),
        *(({name: "x"}, f"the site's {name} is 'x'; it must be an array of numbers") for name in ONE),
        ({"field_of_view": 361}, "field_of_view is 361; it must be over 0 and at most 360"),
        ({"turn_angle": 181}, "turn_angle is 181; it must be over 0 and at most 180"),
        ({"sensing_range": [5, -1]}, r"sensing_range is \[5, -1\]; it must be over 0"),
        ({"sensing_range": [5, 6, 7]}, r"sensing_range has shape \(3,\); it must be a number, or 2 of them"),
        ({"arena": (1, 2, 3)}, r"arena has shape \(3,\)"),
        ({"speed_noise": -1}, "speed_noise is -1; it must be 0 or more"),
        ({"walls": [(0, 0, 1)]}, r"walls has shape \(1, 3\); it must be \(..., any, 4\)"),
        ({"discs": [(0, 0)]}, "the site's discs has shape"),
        ({"rails": [[(0, 0), (1, 1)]] * 3}, "rails are 3; there must be one, or 2"),
    ],
)
def test_a_site_out_of_its_ranges_is_named(change, says):
    site, two, one = ONE | {"turn_angle": 5} | change, [(0, 0), (1, 1)], [(1, 1)]
    with pytest.raises(ValueError, match=says) as raised:
        observe(site, ALL, two, [0, 0], one, [(0, 0)], along=[0, 0])
    assert "\n" not in str(raised.value)


def test_other_wrong_arguments_are_named():
    place = {"sensor_position": [(0, 0)], "heading": [0], "target_position": [(1, 1)]}
    for name in ("sensing_range", "field_of_view"):
        site = {key: value for key, value in ONE.items() if key != name}
        with pytest.raises(ValueError, match=f"the list of neighbours needs the site's {name}, which is missing"):
            observe(site, ("distance",), **place, nearest=1, neighbours=1)
    with pytest.raises(TypeError, match="site is 'hit-mac'; it must be a Scenario, or a mapping"):
        observe("hit-mac", ("distance",), **place)
    with pytest.raises(
        ValueError, match=r"do not broadcast: sensor_position \(2,\), target_position \(\), heading \(3,\)"
    ):
        observe(ONE, ("distance",), [[(0, 0)]] * 2, [[0]] * 3, [(1, 1)])
    with pytest.raises(ValueError, match=r"age is -1.0; it must be 0 or more"):
        observe(ONE, ("distance",), **place, age=[-1])
    with pytest.raises(ValueError, match=r"field_of_view is 0.0; it must be over 0, at most 360"):
        observe(ONE, ("distance",), **place, field_of_view=[0])


def test_a_memory_names_what_is_wrong():
    for knowledge in ("Full", "shred", None, ["full"]):
        with pytest.raises(ValueError, match=re.escape(f"knowledge is {knowledge!r}; it must be one of full, shared")):
            Memory(knowledge)
    memory = Memory()
    memory.see([(1, 2), (3, 4)])
    with pytest.raises(ValueError, match=r"target_position has shape \(3, 2\); it must be \(..., 2, 2\)"):
        memory.see(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"left has shape \(3,\); it must be \(..., 2\)"):
        memory.see(np.zeros((2, 2)), left=[True, False, True])
    assert memory.see([(1, 2), (3, 4)])["age"].tolist() == [0, 0]


def test_it_knows_every_feature_and_needs_numpy_alone():
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
