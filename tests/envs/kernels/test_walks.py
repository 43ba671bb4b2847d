"""Walks of the targets: every one stays in the arena, and HiT-MAC's is the released program's."""

import numpy as np
import pytest

from hitmac.envs import Scenario, Simulator
from hitmac.envs.kernels.walks import WALKS


@pytest.mark.parametrize("name", WALKS)
def test_every_walk_is_documented_and_fills_its_arena(name):
    line = WALKS[name].__doc__.splitlines()[0]
    assert line.endswith(".")
    assert len(line) > 8
    assert f"`{name}`" in Scenario.__doc__
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


def test_slow_targets_change_their_goals_all_the_time():
    """The paper's quirk: under about 77 a target never gets farther than 10 from its last places."""
    simulator = Simulator("hit-mac", 200, 0)
    for _ in range(50):
        simulator.step(np.zeros((200, 4), np.int64))
    speed, moves = simulator.state.speed.ravel(), simulator.state.moves.ravel()
    assert moves[speed < 60].max() <= 1
    assert moves[speed > 80].mean() > 5


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


HIT_MAC = Scenario()
SMALL = {"arena": (1.0, 0.8), "target_area": (-1, 1, -0.5, 0.5), "disc_radius": (0.1, 0.2), "sensing_range": 1.0}


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(**SMALL, placement="random", time_step=1.0, whole_numbers=True),
        Scenario(**SMALL, placement="random", time_step=1.0, whole_numbers=False),
        HIT_MAC.replace(time_step=60),
        HIT_MAC.replace(speed_noise=1e6),
        HIT_MAC.replace(num_sensors=1, random_discs=2, disc_radius=(1200, 1200)),
        HIT_MAC.replace(random_discs=2, disc_radius=(600, 600)),
    ],
)
def test_moves_and_draws_that_never_fit_end_within_the_arena(scenario):
    simulator = Simulator(scenario, 20, 0)
    for _ in range(20):
        assert (np.abs(simulator.state.target_position) <= scenario.extent).all()
        simulator.step(np.ones((20, scenario.num_sensors), np.int64))
    assert np.isfinite(simulator.state.target_position).all()
