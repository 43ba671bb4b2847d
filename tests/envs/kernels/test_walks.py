"""Walks of the targets: every one stays in the arena, and HiT-MAC's is the released program's."""

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator
from hitmac.envs.parts.walks import WALKS
from tests.envs.scenes import assert_documented


@pytest.mark.parametrize("name", [name for name, walk in WALKS.items() if walk.move])
def test_every_walk_is_documented_and_fills_its_arena(name):
    assert_documented(name, WALKS[name].move)
    scene = Scenario(
        arena=(900, 300), target_area=(-900, 900, -300, 300), walk=name, placement="random", wander=30, time_step=1,
        blocks=(1, 3) if name == "streets" else (), street_width=4 if name == "streets" else 20,
    )  # fmt: skip
    simulator = Simulator(scene, 150, 0)
    places = [simulator.state.target_position.copy()]
    for _ in range(60):
        simulator.step(np.zeros((150, 4), np.int64))
        places.append(simulator.state.target_position.copy())
        assert (np.abs(places[-1]) <= (900, 300)).all()
    most = np.abs(places).max((0, 1, 2))
    assert (most > (850, 280)).all()
    assert (name == "still") == bool((places[0] == places[-1]).all())


def test_targets_walk_as_those_of_the_released_program(trajectories):
    record = trajectories("hitmac_coordinator_trajectories.npz")
    moves = record["target_moves"].reshape(len(record["reward"]), -1, 5, 2)
    theirs = np.linalg.norm(np.diff(moves, axis=1), axis=-1).mean(1)  # (episode, target) mean length of a step
    simulator = Simulator(Scenario(extra_move_every=0), 200, 0)
    ours, before = [], simulator.state.target_position.copy()
    for _ in range(1000):
        simulator.step(np.zeros((200, 4), np.int64))
        ours.append(np.linalg.norm(simulator.state.target_position - before, axis=-1))
        before = simulator.state.target_position.copy()
    error = theirs.std() / np.sqrt(theirs.size)
    assert abs(np.mean(ours) - theirs.mean()) < 4 * error


SMALL = {"arena": (1.0, 0.8), "target_area": (-1, 1, -0.5, 0.5), "placement": "random", "time_step": 1.0}


@pytest.mark.parametrize(
    "changes",
    [
        {**SMALL, "whole_numbers": True}, {**SMALL, "whole_numbers": False}, {"time_step": 60}, {"speed_noise": 1e6},
        {"num_sensors": 1, "random_discs": 2, "disc_radius": (1200, 1200)},
        {"random_discs": 2, "disc_radius": (600, 600)},
    ],
)  # fmt: skip
def test_moves_and_draws_that_never_fit_end_within_the_arena(changes):
    scenario = Scenario(**changes)
    simulator = Simulator(scenario, 20, 0)
    for _ in range(20):
        assert (np.abs(simulator.state.target_position) <= scenario.extent).all()
        simulator.step(np.ones((20, scenario.num_sensors), np.int64))
    assert np.isfinite(simulator.state.target_position).all()


ONE = Scenario(
    num_sensors=1, num_targets=1, extra_move_every=0, speed_noise=0, time_step=1, min_speed=50, max_speed=51
)  # fmt: skip


def walk(name, steps=1, **changes):
    """Positions (steps + 1, B, 2) of 500 targets that begin in the middle with the speed 50."""
    simulator = Simulator(ONE.replace(walk=name, **changes), 500, 0)
    simulator.place(target_position=[(0, 0)])
    track = [simulator.state.target_position[:, 0].copy()]
    for _ in range(steps):
        simulator.step(np.zeros((500, 1), np.int64))
        track.append(simulator.state.target_position[:, 0].copy())
    np.testing.assert_allclose(simulator.state.velocity[:, 0], track[-1] - track[-2])
    return np.array(track)


def test_walks_by_their_steps():
    assert not walk("still", 5).any()
    steps = np.diff(walk("random", 10), axis=0)
    np.testing.assert_allclose(np.linalg.norm(steps, axis=-1), 50)
    assert np.abs(steps.mean((0, 1))).max() < 2
    assert abs((steps[1:] * steps[:-1]).sum(-1).mean()) / 2500 < 0.03  # no memory of the last direction
    track = walk("bounce", 10)
    np.testing.assert_allclose(np.diff(track, axis=0), np.broadcast_to(track[1], (10, 500, 2)), atol=1e-9)
    steps = np.diff(walk("bounce", 10, wander=20), axis=0)
    angles = np.degrees(np.arctan2(steps[..., 1], steps[..., 0]))
    swerve = (np.diff(angles, axis=0) + 180) % 360 - 180
    assert 19 < np.abs(swerve).max() <= 20 + 1e-6
    assert abs(swerve.mean()) < 1


@pytest.mark.parametrize("axis", [0, 1])
def test_the_border_reflects_targets(axis):
    simulator = Simulator(ONE.replace(walk="bounce"), 1, 0)
    simulator.place(target_position=[np.roll((1230, 0), axis)])
    simulator.state.course[:] = np.radians((30, 60)[axis])
    for step in (1, 2):
        simulator.step(np.zeros((1, 1), np.int64))
        expected = np.roll((1270 - step * 50 * np.cos(np.radians(30)), 25 * step), axis)
        np.testing.assert_allclose(simulator.state.target_position[0, 0], expected)


def test_evading_targets_leave_the_view_sideways():
    for heading, y, direction in ((0, 10, 1), (0, -10, -1), (180, 10, 1)):
        simulator = Simulator(ONE.replace(walk="evade"), 1, 0)
        simulator.place(heading=[heading], sensor_position=[(0, 0)], target_position=[(500, y)])
        simulator.state.course[:] = 0
        simulator.step(np.zeros((1, 1), np.int64))
        aside = np.array([-y, 500]) / np.hypot(500, y) * direction * 50
        moved = (50, 0) if heading == 180 else aside  # straight on where no sensor sees it
        np.testing.assert_allclose(simulator.state.target_position[0, 0] - (500, y), moved)
