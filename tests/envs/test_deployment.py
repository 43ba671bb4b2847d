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
from hitmac.envs import FEATURES, Memory, Scenario, Simulator, observe
from hitmac.envs import deployment as measured
from hitmac.envs.observation import Observer
from hitmac.envs.parts.detections import DetectionObserver
from tests.envs.scenes import MOTORS, scenarios

ALL = tuple(FEATURES)
ONE = {"arena": 10, "sensing_range": 5, "field_of_view": 90, "distance_scale": 20, "max_speed": 2, "time_step": 0.5}


def check(scenario, steps, seed, **nearness):
    """Compare the observations of exact measurements after some sub-steps of random decisions."""
    simulator, rng = Simulator(scenario, 4, seed), np.random.default_rng(seed)
    for _ in range(steps):
        simulator.step(rng.integers(0, 3, (4, len(scenario.decisions) * scenario.num_sensors)))
    expected = Observer(scenario, ALL, **nearness).observe(simulator)
    state, known, extra = simulator.state, simulator.known, {}
    if known is None:
        position, velocity = np.where(state.present[..., None], state.target_position, np.nan), state.velocity
    else:  # the knowledge that all sensors share
        position = np.where(known.known_left[:, 0, :, None], np.nan, known.known_position[:, 0])
        velocity, extra = known.known_velocity[:, 0], {"age": known.known_age[:, 0], "seen": known.noticed}
    arguments = extra | {
        "sensor_position": state.sensor_position,
        "heading": np.where(state.working, state.heading, np.nan),
        "target_position": position,
        "target_before": position - velocity * scenario.time_step,
        "field_of_view": state.field_of_view,
        "along": state.along,
        "rate": state.rate,
    }
    delay = scenario.command_delay
    if delay:  # the last commands, oldest first
        slots = (state.time[:, None] + 1 + np.arange(delay)) % (delay + 1)
        extra["commands"] = np.take_along_axis(simulator.get_state()["commands"], slots[..., None], 1)
    arguments |= extra | ({} if state.tilt is None else {"tilt": state.tilt})
    shown = DetectionObserver(scenario).observe(simulator)["sensors"]
    sensors = [arguments[name] for name in ("sensor_position", "heading", "field_of_view", "along", "rate")]
    moving = {"rate": sensors[4], "commands": extra.get("commands"), "tilt": state.tilt}
    rows = measured.sensor_rows(scenario, *sensors[:2], field_of_view=sensors[2], along=sensors[3], **moving)
    np.testing.assert_allclose(rows, shown, rtol=1e-6, atol=1e-6)
    for b in range(4):  # each has obstacles of its own
        site = vars(scenario) | {"discs": state.disc[b]}
        got = observe(site, ALL, **{name: values[b] for name, values in arguments.items()}, **nearness)
        assert {name: array.dtype for name, array in got.items()} == {name: it.dtype for name, it in expected.items()}
        for name in set(got) - {"pairs"}:
            np.testing.assert_array_equal(got[name], expected[name][b], err_msg=name)
        for k, name in enumerate(ALL):
            np.testing.assert_allclose(got["pairs"][..., k], expected["pairs"][b, ..., k], atol=2e-6, err_msg=name)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenarios(both=True), st.integers(0, 2**20))
def test_it_is_the_observer_in_any_scenario(scenario, seed):
    # Every pair of rails, tilts and knowledge, with half of the kernels of all combinations.
    knowledge = "shared" if bool(scenario.rails) != bool(scenario.tilt_limits) else "full"
    side, height = 0.7013 * np.array(scenario.extent)
    zones = [[(-side, -height), (side, -height / 3), (0, 0), (side, height)], [(0, -height), (side, 0), (-side, side)]]
    scenario = scenario.replace(
        position_noise=0, missed_detections=0.1 * (knowledge == "shared"), knowledge=knowledge, zones=zones,
        zone_values=(0.5 + seed % 3, 0), target_values=np.arange(scenario.num_targets) + 1,
        whole_numbers=False,  # whose targets can stand on the limit of a view, which rounding decides
    )  # fmt: skip
    check(scenario, seed % 20, seed)
    near = {"nearest": 1 + seed % 6, "neighbours": 2 + seed % 3}
    check(scenario, 8, seed, **near, radius=0.3 * scenario.distance_scale if seed % 2 else None)


@pytest.mark.parametrize("steps", [0, 1, 2, 9])
def test_it_is_the_observer_of_motors(steps):
    check(MOTORS, steps, 3)
    check(MOTORS.replace(acceleration=0, command_delay=2), steps, 4)


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
    memory, shared, here = Memory(), Memory("shared"), [(1, 2), (3, 4)]
    assert np.isnan(memory.see(here)["target_before"]).all()
    second = memory.see([(2, 2), (np.nan, np.nan)])
    np.testing.assert_array_equal(second["target_before"][0], (1, 2))
    assert np.isnan(second["target_position"][1]).all()
    assert np.isnan(memory.see(here)["target_before"][1]).all()
    shared.see(here)
    gone = shared.see(np.full((2, 2), np.nan), left=[False, True])
    np.testing.assert_array_equal(np.isfinite(gone["target_position"][:, 0]), [True, False])
    for call, says in (
        (lambda: Memory("Full"), "knowledge is 'Full'; it must be one of full, shared"),
        (lambda: shared.see(np.zeros((3, 2))), "target_position has shape (3, 2); it must be (..., 2, 2)"),
        (lambda: shared.see(here, left=[True] * 3), "left has shape (3,); it must be (..., 2)"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            call()
    assert shared.see(here)["age"].tolist() == [0, 0]  # after the errors


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
    full = Memory(num_targets=1)
    full.see([(1, 1)], ids=[7])
    assert np.isnan(full.see([(2, 2)], ids=[8])["target_before"]).all()  # of another target


def test_leading_axes_broadcast():
    """Those of all arguments, and those of each argument alone."""
    rng, site = np.random.default_rng(0), ONE | {"rails": [[(0, 0), (9, 0), (9, 9)]], "turn_angle": 5}
    shapes = {
        "sensor_position": (3, 2), "heading": (4, 1, 3), "target_position": (2, 5, 2), "target_before": (5, 2),
        "age": (2, 5), "seen": (3, 5), "field_of_view": (3,), "along": (4, 1, 3),
    }  # fmt: skip
    together = {name: rng.uniform(1, 9, shape) for name, shape in shapes.items()}
    together["sensor_position"][1] = np.nan  # a sensor without a place is near itself only
    last = {"heading": 1, "age": 1, "field_of_view": 1, "along": 1}  # axes of an argument; the others have two
    plain = {name: array[(0,) * (array.ndim - last.get(name, 2))] for name, array in together.items()}
    cases = [together, *(plain | {name: np.stack((array, array / 2))} for name, array in plain.items())]
    for options in ({}, {"nearest": 2, "neighbours": 2}):
        for arguments in cases:
            batch = observe(site, ALL, **arguments, **options)
            lead = batch["mask"].shape[:-2]
            assert lead == ((4, 2) if arguments is together else (2,))
            for place in np.ndindex(lead):
                own = {
                    name: np.broadcast_to(array, lead + array.shape[array.ndim - last.get(name, 2) :])[place]
                    for name, array in arguments.items()
                }
                alone = observe(site, ALL, **own, **options)
                assert set(alone) == set(batch)
                for name, array in alone.items():
                    np.testing.assert_array_equal(batch[name][place], array, err_msg=name)
                    assert batch[name].flags.writeable
    assert batch["neighbours"][0, 1].tolist() == [1, -1]
    assert batch["targets"][:, 1].tolist() == [[-1, -1]] * 2


def test_what_was_not_measured_and_has_no_velocity_by_hand():
    features = ("distance", "sensor_x", "radial_velocity", "tangential_velocity")
    for before in (None, np.full((2, 2), np.nan)):
        shown = observe(ONE, features, [(5, 5), (1, 1)], [np.nan, 0], [(np.nan, 3), (4, 5)], before)
        np.testing.assert_array_equal(shown["mask"], [[0, 0], [0, 1]])
        np.testing.assert_allclose(shown["pairs"], [np.zeros((2, 4)), [(0, 0.1, 0, 0), (0.25, 0.1, 0, 0)]])
    aged = observe(ONE, ("visible", "age"), [(0, 0)], [0], [(1, 0)] * 3, age=[0, 9, 9000])
    np.testing.assert_allclose(aged["pairs"][0], [(1, 0), (0, 0.09), (0, 10)], rtol=1e-6)


SITE = ONE | {"turn_angle": 5}
PLACE = {"sensor_position": [(0, 0), (1, 1)], "heading": [0, 0], "target_position": [(1, 1)]}
NEAR = {"nearest": 1, "neighbours": 1}


def test_what_is_missing_has_the_default_of_a_scenario():
    scenario = Scenario(num_sensors=2, num_targets=1, **SITE)
    own, expected = (observe(site, ALL, **PLACE, target_before=[(0, 1)], age=[3]) for site in (SITE, scenario))
    np.testing.assert_array_equal(own["pairs"], expected["pairs"])


MANY = {"sensor_position": [[(0, 0), (1, 1)]] * 2, "heading": [[0, 0]] * 3}


@pytest.mark.parametrize(
    ("site", "features", "arguments", "says"),
    [
        *((SITE | {name: 0}, ALL, {}, f"the site's {name} is 0; it must be over 0 and") for name in ONE),
        (SITE | {"max_speed": "x"}, ALL, {}, "the site's max_speed is 'x'; it must be an array of numbers"),
        (SITE | {"field_of_view": 361}, ALL, {}, "field_of_view is 361; it must be over 0 and at most 360"),
        (SITE | {"sensing_range": [5, -1]}, ALL, {}, r"sensing_range is \[5, -1\]; it must be over 0"),
        (SITE | {"sensing_range": [5] * 3}, ALL, {}, r"sensing_range has shape \(3,\); it must be a number, or 2 of"),
        (SITE | {"speed_noise": -1}, ALL, {}, "speed_noise is -1; it must be 0 or more"),
        (SITE | {"walls": [(0, 0, 1)]}, ALL, {}, r"walls has shape \(1, 3\); it must be \(..., any, 4\)"),
        (SITE | {"rails": [[(0, 0), (1, 1)]] * 3}, ALL, {"along": [0, 0]}, "has 3 rails; it must have one, or 2"),
        (SITE | {"rails": [[(0, 0), (1, 1)]]}, "rail_sin", {}, "the feature rail_sin requires the argument along"),
        ("hit-mac", "distance", {}, "site is 'hit-mac'; it must be a Scenario, or a mapping"),
        (ONE, "smell", {}, "unknown feature smell: known are sensor_id, target_id"),
        (ONE, "turn", {}, "the feature turn requires the site's turn_angle, which is missing"),
        ({"distance_scale": 1}, "distance", NEAR, "the list of neighbours requires the site's sensing_range"),
        (ONE, "distance", MANY, r"broadcast: sensor_position \(2,\), target_position \(\), heading \(3,\)"),
        (ONE, "distance", {"heading": [0]}, "heading has shape"),
        (ONE | {"command_delay": 2}, "distance", {"commands": [(0, 0)]}, r"commands has shape \(1, 2\); .* 2, 2"),
        (ONE, "age", {"age": [-1]}, "age is -1.0; it must be 0 or more"),
        (ONE, "distance", {"field_of_view": [0, 9]}, "field_of_view is 0.0; it must be over 0, at most 360"),
        (ONE, "distance", {"nearest": 0}, "nearest is 0; it must be a whole number, 1 or more"),
        (ONE, "distance", {"nearest": 2, "neighbours": 1.5}, "neighbours is 1.5; it must be a whole number, 1 or more"),
        (ONE, "distance", {"nearest": 2, "radius": -1}, "radius is -1; it must be a finite number over 0"),
        (ONE, "distance", {"radius": 3.0}, "radius is 3.0; it requires nearest, the number of targets"),
    ],
)
def test_wrong_sites_and_arguments_are_named(site, features, arguments, says):
    with pytest.raises((TypeError, ValueError), match=says) as raised:
        observe(site, features, **PLACE | {"target_before": [(0, 0)]} | arguments)
    assert "\n" not in str(raised.value)


def test_it_has_every_feature_and_needs_numpy_only():
    assert hitmac.observe is observe
    assert measured.FEATURES is FEATURES
    code = f"""
import importlib.util, sys
sys.path.insert(0, {str(Path(measured.__file__).parent)!r})
spec = importlib.util.spec_from_file_location("alone", {str(Path(measured.__file__))!r})
alone = importlib.util.module_from_spec(spec)
spec.loader.exec_module(alone)
print({{"numba", "gymnasium", "torch", "hitmac"}} & set(sys.modules))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "set()\n"
