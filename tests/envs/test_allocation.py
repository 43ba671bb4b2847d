"""Places and states that a user hands over: checked before any change."""

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator, load_scenario
from tests.envs.kernels.test_rails import ONE, SITE

HIT_MAC, OWN, LEAVING = Scenario(), Scenario(knowledge="own"), Scenario(leave_rate=0.1)


def refused(simulator, call, says):
    before = simulator.get_state()
    with pytest.raises(ValueError, match=says):
        call(before)
    np.testing.assert_equal(simulator.get_state(), before)


@pytest.mark.parametrize(
    ("scenario", "places", "says"),
    [
        (HIT_MAC, {"heading": [[1, 2], [3]]}, "heading "),
        (HIT_MAC, {"heading": [1, 2, 3, 4, 5]}, r"heading has shape \(5,\); it must be"),
        (HIT_MAC, {"heading": [1e12] * 4}, "heading holds 1e"),
        (HIT_MAC, {"heading": [0, 0, 0, np.nan]}, "heading holds nan"),
        (HIT_MAC, {"heading": [1] * 4, "target_position": np.full((5, 2), 1300)}, r"the arena is \+-1250"),
        (HIT_MAC, {"along": [0] * 4}, "on no rails"),
        (HIT_MAC, {"headings": [0] * 4}, r"unknown place 'headings' \(did you mean heading\?\)"),
        (HIT_MAC, {"target_position": [(0, np.nan)] * 5}, "target_position holds nan; every number must be finite"),
        (HIT_MAC, {"target_tracks": [[(0, np.nan)] * 5]}, "target_tracks holds nan; every number must be finite"),
        (HIT_MAC, {"target_tracks": np.full((3, 5, 2), np.inf)}, "target_tracks holds inf; .* must be finite"),
        (HIT_MAC, {"target_tracks": np.zeros((3, 4, 2))}, "target_tracks has shape"),
        (HIT_MAC, {"target_tracks": np.zeros((0, 5, 2))}, "target_tracks has shape"),
        (LEAVING, {"target_tracks": np.full((3, 5, 2), np.nan)}, r"with a leave_rate \(0.1\) every number must be"),
        (ONE, {"sensor_position": [(0, 0)]}, "on rails, give along"),
        (ONE, {"along": [801]}, "along holds 801; it must be from 0 to the length"),
        (ONE, {"target_position": [(150, 101)]}, r"target_position holds 101; the arena is \+-200 x \+-100"),
        (SITE, {"heading": [91, 160, 0]}, "heading holds 91; it must be within the pan_limits 0 to 90"),
    ],
)
def test_impossible_places_are_refused(scenario, places, says):
    simulator = Simulator(scenario, 1, 0)
    refused(simulator, lambda before: simulator.place(**places), says)


def test_placed_headings_are_within_the_limits():
    simulator = Simulator(SITE, 1, 0)
    simulator.place(heading=[360, -200, 900])
    assert simulator.state.heading[0].tolist() == [0, 160, 900]


@pytest.mark.parametrize(
    ("scenario", "name", "number", "says"),
    [
        *(
            (HIT_MAC, name, number, f"state '{name}' holds a number that is not from")
            for name, number in {
                "time": -5, "heading": 1e12, "target_position": 1251, "sensor_position": 1e9, "track_moves": 1,
                "num_sensors": 5, "along": 1, "field_of_view": 91, "range_squared": -1, "direction": 3,
                "rail_direction": 1, "rate": 1, "pending_turn": 1,
            }.items()
        ),
        (HIT_MAC, "direction", 0.5, "'direction' holds a vector whose length is not 1"),
        (ONE, "along", 801, "'along' holds a number that is not from 0 to 800"),
        (SITE, "heading", 89, "state 'heading' holds 89; it must be within the pan_limits"),
        (OWN, "known_age", np.nan, "'known_age' holds a number that is not finite"),
        (HIT_MAC, "velocity", np.inf, "'velocity' holds a number that is not finite"),
        (load_scenario("tilting"), "tilt", 91, "'tilt' holds a number that is not from 5.0 to 75.0: 91"),
    ],
)  # fmt: skip
def test_states_out_of_range_are_refused(scenario, name, number, says):
    simulator = Simulator(scenario, 2, 0)
    wrong = np.full_like(simulator.get_state()[name], number)
    refused(simulator, lambda before: simulator.set_state(before | {name: wrong}), says)


def test_states_of_another_form_are_refused():
    simulator = Simulator(seed=0)
    for change, says in (
        ({"other": np.zeros((1, 4))}, "a state must have the names"),
        (Simulator(OWN, 1, 0).get_state(), "a state must have the names"),
        ({"key": np.ones(1, np.uint64), "heading": np.zeros((1, 3))}, r"'heading' has shape \(1, 3\)"),
        ({"time": np.zeros(1)}, "'time' is float64; it must be int64"),
    ):
        refused(simulator, lambda before, change=change: simulator.set_state(before | change), says)
