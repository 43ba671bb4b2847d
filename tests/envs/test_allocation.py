"""Places, states, seeds and actions that a user hands over: checked before any change."""

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.tasks import CoverageTask
from tests.envs.kernels.test_rails import ONE, SITE
from tests.envs.scenes import BY_RATE

HIT_MAC, OWN, LEAVING = Scenario(), Scenario(knowledge="own"), Scenario(leave_rate=0.1)
GAME = load_scenario("mate-4v8-9")
STILL = np.zeros((2, 4, 2))


def refused(simulator, call, says, error=ValueError):
    before = simulator.get_state()
    with pytest.raises(error, match=says):
        call(simulator)
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
    refused(Simulator(scenario, 1, 0), lambda simulator: simulator.place(**places), says)


def test_placed_headings_are_within_the_limits():
    """In the same direction; a whole turn is no limit."""
    for limits, heading, placed in (
        (SITE.pan_limits, [360, -200, 900], [0, 160, 900]),
        ([(170, 190), (-180, 180), (0, 0)], [-170, 1000, 720], [190, 1000, 0]),
    ):
        simulator = Simulator(SITE.replace(pan_limits=limits, sensor_headings=()), 1, 0)
        simulator.place(heading=heading)
        assert simulator.state.heading[0].tolist() == placed


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
    refused(simulator, lambda s: s.set_state(s.get_state() | {name: wrong}), says)


@pytest.mark.parametrize(
    ("scenario", "call", "says"),
    [
        (HIT_MAC, lambda s: s.reset(seed=1, options=[1]), "they must be a dictionary"),
        *((HIT_MAC, lambda s, one=one: s.place(heading=[one] * 4), "must be numbers") for one in ("1", 1j, True, None)),
        (HIT_MAC, lambda s: s.reset(mask=np.ones(3, bool)), r"it must be a bool array of shape \(2,\)"),
        (HIT_MAC, lambda s: s.reset(mask=[True, False]), "mask is .True, False.; it must be a bool array"),
        (HIT_MAC, lambda s: s.step(np.zeros((2, 5), int)), r"\(2, 5\); it must be whole numbers of shape \(2, 4\)"),
        (HIT_MAC, lambda s: s.step(np.zeros((2, 4))), "action is float64"),
        (HIT_MAC, lambda s: s.step(np.zeros((2, 4), int), np.ones(2, int)), "it must be a bool array"),
        (HIT_MAC, lambda s: s.step(np.zeros((2, 4), int), target_action=STILL), "without warehouses the targets move"),
        (HIT_MAC, lambda s: Simulator(num_envs=0), "num_envs is 0"),
        (HIT_MAC, lambda s: Simulator(num_threads=0), "num_threads is 0"),
        (HIT_MAC, lambda s: s.reset(seed=[1, 2, 3]), "got 3 seeds for 2 scenes"),
        *(
            (HIT_MAC, lambda s, seed=seed: s.reset(seed=seed), "it must be a whole number from 0")
            for seed in (True, np.True_, 1.5, "7", -1, 2**63, [True, 1], [1, -2], 1j)
        ),
        (HIT_MAC, lambda s: s.set_state(s.get_state() | {"other": np.zeros((2, 4))}), "a state must have the names"),
        (HIT_MAC, lambda s: s.set_state(Simulator(OWN, 2, 0).get_state()), "a state must have the names"),
        (HIT_MAC, lambda s: s.set_state(s.get_state() | {"heading": STILL}), r"'heading' has shape \(2, 4, 2\)"),
        (HIT_MAC, lambda s: s.set_state(s.get_state() | {"time": np.zeros(2)}), "'time' is float64; it must be int64"),
        (GAME, lambda s: s.step(np.zeros((2, 8))), r"float64 of shape \(2, 8\); it must be floating-point degrees or"),
        (GAME, lambda s: s.step(np.zeros((2, 4, 2), int)), r"action is int64 of shape \(2, 4, 2\)"),
        (GAME, lambda s: s.step(np.full((2, 4, 2), np.nan)), "action holds a number that is not finite"),
        (GAME, lambda s: s.step(STILL, target_action=STILL), r"target_action is .* numbers of shape \(2, 8, 2\)"),
        (GAME, lambda s: s.step(STILL, target_action=np.full((2, 8, 2), np.inf)), "target_action holds a number that"),
        (GAME, lambda s: s.place(target_tracks=np.zeros((5, 8, 2))), "target_tracks .* no target is absent or follows"),
        (GAME, lambda s: s.place(target_position=np.full((8, 2), np.nan)), "target_position .* with warehouses no"),
        (GAME, lambda s: s.set_state(s.get_state() | {"cargo_goal": np.full((2, 8), 4)}), "'cargo_goal' .* -1 to 3: 4"),
    ],
)
def test_a_refused_call_changes_nothing(scenario, call, says):
    refused(Simulator(scenario, 2, 0), call, says)


@pytest.mark.parametrize(
    ("action", "error", "says"),
    [
        (np.zeros((1, 3), int), ValueError, r"action has shape \(1, 3\); it must have shape \(1, 4\)"),
        (np.array([[0, 1, 2, 3]]), ValueError, r"action holds 3; it must be 0 \(stay\), 1 \(left\) or 2 \(right\)"),
        (np.array([[0, -1, 2, 0]], np.int8), ValueError, "action holds -1"),
        (np.array([[0, np.nan, 1, 1]]), TypeError, r"action is float64 \(.* first\); it must be whole numbers"),
        ([["left"] * 4], TypeError, "action is <U4"),
        ([[0], [1, 2]], ValueError, "with rows of the same length"),
        (np.array([[0, -1, 1, 1.5]]), ValueError, "action holds 1.5; it must be rates from -1 to 1, left over 0"),
        (np.array([[0, -1, 1, np.nan]]), ValueError, "action holds nan; it must be rates"),
        (np.zeros((1, 4), np.int64), TypeError, "action is int64; it must be floating-point rates from -1 to 1"),
    ],
)
def test_wrong_actions_of_a_task_move_nothing(action, error, says):
    task = CoverageTask(BY_RATE if "rates" in says else HIT_MAC, 1, 0)
    refused(task.simulator, lambda simulator: task.step(action), says, error)
