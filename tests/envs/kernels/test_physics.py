"""Turns, zooms and failures of the sensors, moves, comings and goings of the targets in a sub-step, by hand."""

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator
from hitmac.envs.tasks import CoverageTask

ONE = Scenario(num_sensors=1, num_targets=1, extra_move_every=0)
STAY = np.zeros((1, 1), np.int64)
STAYS, LEFT = 0, 1


def test_turning():
    simulator = Simulator(Scenario(num_sensors=3), 1, 0)
    simulator.place(heading=[0, 178, -178])
    for _ in range(72):
        simulator.step(np.array([[0, 1, 2]]))
    state = simulator.state
    np.testing.assert_allclose(state.heading[0], [0, 178 + 360, -178 - 360])
    radians = np.radians(state.heading)
    np.testing.assert_allclose(state.direction, np.stack([np.cos(radians), np.sin(radians)], -1), atol=1e-13)
    assert (state.turned.item(), simulator.rotation.item()) == (2, 2 / 3)
    assert simulator.rotated.tolist() == [[False, True, True]]
    simulator.reset()
    assert not simulator.rotated.any()


MOTOR = ONE.replace(time_step=0.1, turn_rates=40, acceleration=100, command_delay=2, pan_limits=[(-150, 150)])


def driven(scenario, actions):
    """Return heading, rate, pending turn and number of turned sensors after each action of a sensor that faces 0."""
    simulator, names = Simulator(scenario, 1, 0), ("heading", "rate", "pending_turn", "turned")
    simulator.place(heading=[0])
    for action in actions:
        simulator.step(np.array([[action]]))
        yield tuple(getattr(simulator.state, name).item() for name in names)


def test_a_motor_speeds_up_and_slows_down_after_the_delay_of_commands():
    """The rate changes by 10 degrees per second in 0.1 s, the heading by the area under it."""
    headings = [0, 0, 0.5, 2, 4.5, 7.875, 10.875, 12.875, 13.875, 14, 14, 14]
    rates = [0, 0, 10, 20, 30, 35, 25, 15, 5, 0, 0, 0]
    ends = [1, 4, 9, *[14] * 9]  # of the motion, without further commands
    turned = [0, 0, *[1] * 8, 0, 0]
    expected = np.stack((headings, rates, np.subtract(ends, headings), turned), 1)
    found = [*driven(MOTOR.replace(turn_rates=35), [LEFT] * 4 + [STAYS] * 8)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("share", "rate"), [(1, 40), (0.5, 20), (-0.5, -20), (0.1, 10), (-0.051, -10), (0.05, 0), (0, 0)]
)
def test_rates_are_limited_and_ignored_in_the_dead_zone(share, rate):
    motor = MOTOR.replace(turn_rates=(10, 40), acceleration=0, command_delay=0, dead_zone=2)
    for k, (heading, *now) in enumerate(driven(motor, [float(share)] * 2), 1):
        assert (heading, *now) == pytest.approx((0.1 * k * rate, rate, 0, int(rate != 0)))


def test_a_motor_stops_at_a_limit_and_when_it_fails():
    limited = MOTOR.replace(pan_limits=[(-3, 6)], command_delay=0)
    found = [*driven(limited, [LEFT] * 5 + [2] * 9)]
    assert [one[0] for one in found[:5]] == pytest.approx([0.5, 2, 4.5, 6, 6])
    assert [one[1:] for one in found[3:5]] == [(0, 0, 1), (0, 0, 0)]
    assert found[-1] == (-3, 0, 0, 0)
    failing = MOTOR.replace(failure_rate=1, recovery_rate=1, command_delay=1)
    headings, rates, _, turned = zip(*driven(failing, [LEFT] + [STAYS] * 3 + [LEFT] * 4), strict=True)
    assert rates == (0, 10, 0, 0, 0, 10, 0, 10)  # of commands of the sub-step before, while it works
    assert headings[-1] == pytest.approx(1.5)
    assert turned == (0, 1, 0, 0, 0, 1, 0, 1)


@pytest.mark.parametrize("rate", [5 / 0.13, 1000])
def test_a_motor_that_needs_no_time_turns_at_once(rate):
    plain = Scenario(failure_rate=0.1, recovery_rate=0.5)
    fast = plain.replace(turn_rates=rate, pan_limits=[(-180, 180)])
    rng = np.random.default_rng(1)
    simulators = [Simulator(scenario, 20, 0) for scenario in (plain, fast, fast)]
    for _ in range(60):
        action = rng.integers(0, 3, (20, 4))
        shares = np.array([0, 5 / 0.13 / rate, -5 / 0.13 / rate])[action]
        for simulator, one in zip(simulators, (action, action, shares), strict=True):
            simulator.step(one)
        first, *others = (simulator.get_state() for simulator in simulators)
        for other in others:
            for name in ("heading", "direction", "visible", "turned", "target_position"):
                np.testing.assert_allclose(other[name], first[name], atol=1e-9, err_msg=name)
            assert not other["pending_turn"].any()


def walker(scenario, scenes=1, **state):
    simulator = Simulator(scenario, scenes, 0)
    full = simulator.get_state()
    for name, value in ({"target_position": (0, 0), "speed": 80, "moves": 0, "places": np.inf} | state).items():
        full[name][...] = value
    simulator.set_state(full)
    return simulator


def test_a_step_leads_towards_the_goal():
    simulator = walker(ONE.replace(speed_noise=0), goal=(300, 400))
    simulator.step(STAY)
    np.testing.assert_allclose(simulator.state.target_position[0, 0], np.array([0.6, 0.8]) * 80 * 0.13)
    np.testing.assert_allclose(simulator.state.velocity[0, 0], [48, 64])
    assert simulator.state.goal[0, 0].tolist() == [300, 400]
    assert simulator.state.moves[0, 0] == 1


def test_noise_only_lengthens_a_step():
    simulator = walker(ONE, 200, goal=(300, 400))
    simulator.step(np.zeros((200, 1), np.int64))
    steps = np.linalg.norm(simulator.state.target_position, axis=-1) / (80 * 0.13)
    assert 1 <= steps.min() < 1.02
    assert 1.18 < steps.max() < 1.2


@pytest.mark.parametrize(
    ("state", "new_goal"),
    [
        ({"goal": (4.9, 0)}, True),  # near the goal
        ({"goal": (5.1, 0)}, False),
        ({"places": (9.9, 0, np.inf, np.inf)}, True),  # near the last place
        ({"places": (np.inf, np.inf, 0, 9.9)}, True),  # near the one before
        ({"places": (10.1, 0, 0, 10.1)}, False),
        ({"moves": 100}, True),  # this is the 101st move
        ({"moves": 99}, False),
    ],
)
def test_when_a_target_takes_a_new_goal(state, new_goal):
    state = {"goal": (300, 400), **state}
    simulator = walker(ONE, **state)
    simulator.step(STAY)
    assert (simulator.state.goal[0, 0].tolist() != list(state["goal"])) is new_goal
    if new_goal:
        assert simulator.state.moves[0, 0] == 0
        assert simulator.state.speed[0, 0] in range(50, 100)
        assert (np.abs(simulator.state.goal) <= 1250).all()


def test_a_step_out_of_the_arena_is_drawn_again():
    """The goal is 6 away and the step 13 long: it would end outside."""
    simulator = walker(ONE, target_position=(1244, 0), goal=(1250, 0), speed=99)
    simulator.step(STAY)
    assert np.abs(simulator.state.target_position).max() <= 1250
    assert simulator.state.goal[0, 0].tolist() != [1250, 0]
    assert simulator.state.places[0, 0].tolist() == [1244, 0, 1244, 0]


def test_the_extra_move_comes_before_every_tenth_sub_step():
    simulator = walker(ONE.replace(extra_move_every=10), goal=(900, 900))
    moves = []
    for _ in range(21):
        before = int(simulator.state.moves[0, 0])
        simulator.step(STAY)
        moves.append(int(simulator.state.moves[0, 0]) - before)
    assert moves == [2] + [1] * 9 + [2] + [1] * 9 + [2]


def test_zoom_trades_view_for_range():
    simulator = Simulator(ONE.replace(walk="still", zoom=(30, 120), zoom_step=20), 1, 0)
    simulator.place(heading=[0], sensor_position=[(0, 0)], target_position=[(1000, 0)])
    assert not simulator.state.visible.item()
    area = 800**2 * 90
    state = simulator.state
    for view in (70, 50, 30, 30):
        simulator.step(np.array([[0, 1]]))
        assert (state.field_of_view.item(), state.range_squared.item()) == (view, pytest.approx(area / view))
    assert (state.visible.item(), state.turned.item()) == (True, 0)
    for view in (50, 70, 90, 110, 120, 120):
        simulator.step(np.array([[1, 2]]))
        assert state.field_of_view.item() == view
    assert state.heading.item() == 30
    simulator.reset()
    assert simulator.state.field_of_view.item() == 90


def test_failed_sensors_neither_see_nor_turn():
    simulator = Simulator(ONE.replace(walk="still", failure_rate=1, recovery_rate=1), 1, 0)
    simulator.place(heading=[0], sensor_position=[(0, 0)], target_position=[(500, 0)])
    assert simulator.state.visible.item()
    for working in (False, True, False, True):
        simulator.step(np.ones((1, 1), np.int64))
        state = simulator.state
        assert state.working.item() is state.visible.item() is bool(state.turned.item()) is working
    assert simulator.state.heading.item() == 10


def test_comings_and_goings_have_their_rates():
    rates = {"failure_rate": 0.2, "recovery_rate": 0.1, "leave_rate": 0.2, "return_rate": 0.1}
    simulator = Simulator(Scenario(walk="still", **rates), 4000, 0)
    for steps, share in ((1, 0.8), (40, 0.1 / (0.1 + 0.2))):
        for _ in range(steps):
            simulator.step(np.zeros((simulator.num_envs, 4), np.int64))
        assert simulator.state.working.mean() == pytest.approx(share, abs=0.01)
        assert simulator.state.present.mean() == pytest.approx(share, abs=0.01)


def test_a_target_that_has_left_does_not_count():
    task = CoverageTask(ONE.replace(num_targets=2, leave_rate=1, walk="still"), 1, 0)
    task.simulator.place(heading=[0], sensor_position=[(0, 0)], target_position=[(500, 0), (-500, 0)])
    assert task.simulator.coverage == 0.5
    task.simulator.state.present[0, 1] = False
    task.simulator.place(heading=[0])
    assert task.simulator.coverage == 1  # the only one present is seen
    assert task.observe()["mask"].tolist() == [[[1, 0]]]
    task.step(np.zeros((1, 1), int))
    assert task.simulator.coverage == 1
    assert not task.observe()["pairs"].any()


def test_targets_return_elsewhere_in_their_area():
    area = (-100, 100, 200, 300)
    simulator = Simulator(Scenario(leave_rate=1, return_rate=1, walk="still", target_area=area), 50, 0)
    before, after = simulator.state.target_position.copy(), simulator.state.target_position
    for _ in range(2):
        simulator.step(np.zeros((50, 4), np.int64))
    assert simulator.state.present.all()
    assert (after != before).any(-1).all()
    assert ((after >= (-100, 200)) & (after <= (100, 300))).all()
