"""Particles: against a brute-force Bayesian grid, and the simulator."""

import numpy as np
import pytest
from numba import njit
from scipy.signal import fftconvolve

from hitmac.agents.tracking import ParticleTracker
from hitmac.agents.tracking.carriers import _step_round, has_bounty
from hitmac.agents.tracking.sight import NO_CELLS, Watch
from hitmac.agents.tracking.walk_model import AIM_X, AIM_Y, CARRY, MODELS, SPEED
from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.parts.walks import WALKS, Walk

ROOM = Scenario(
    num_sensors=1, num_targets=1, arena=100, sensing_range=80, sensor_areas=[(0, 0, 0, 0)], walk="random",
    target_area=(-100, 100, -100, 100), time_step=1, min_speed=9.999, max_speed=10, speed_noise=0, goal_radius=5,
    stuck_distance=0, whole_numbers=False, extra_move_every=0,
)  # fmt: skip


def view(x, y, degrees, opening, reach, chance=1.0):
    angle = np.radians(degrees)
    return [x, y, np.cos(angle), np.sin(angle), np.cos(np.radians(opening / 2)), reach**2, chance]


def in_view(places, x, y, cos, sin, half, squared, _):
    dx, dy = places[..., 0] - x, places[..., 1] - y
    return (dx**2 + dy**2 <= squared) & (cos * dx + sin * dy > half * np.hypot(dx, dy))


def coarse(cells, number=10):
    size = cells.shape[-1] // number
    return cells.reshape(number, size, number, size).sum((1, 3))


def distance(one, other):
    """Total variation."""
    return 0.5 * np.abs(one - other).sum()


class Grid:
    """Brute-force Bayesian filter of a random walk with steps of one length, reflected at the border."""

    def __init__(self, arena, length, cells=200):
        self.middle = ((np.arange(cells) + 0.5) / cells * 2 - 1) * arena
        self.places = np.stack(np.meshgrid(self.middle, self.middle, indexing="ij"), -1)
        self.belief = np.full((cells, cells), 1 / cells**2)
        angle = (np.arange(64) + 0.5) / 64 * 2 * np.pi
        steps = np.rint(length * np.stack((np.cos(angle), np.sin(angle)), -1) / (2 * arena) * cells).astype(int)
        self.most = np.abs(steps).max()
        self.step = np.zeros((2 * self.most + 1,) * 2)  # symmetric
        np.add.at(self.step, tuple((steps + self.most).T), 1 / 64)

    def move(self):
        self.belief = fftconvolve(np.pad(self.belief, self.most, "symmetric"), self.step, "valid").clip(0)

    def look(self, views):
        for one in views:
            self.belief *= 1 - one[-1] * in_view(self.places, *one)
        self.belief /= self.belief.sum()


def test_particles_are_the_bayesian_grid():
    """A walk at random, seen once, then looked for in vain by two sweeping sensors: total variation at most 0.06."""
    tracker = ParticleTracker(ROOM, 1, particles=20_000, seed=3)
    grid, blind = Grid(100, 10), Grid(100, 10)
    at = np.array([[[-20.0, 30.0]]])
    for seen in (False, True):
        if seen:
            tracker.see(at, np.ones((1, 1), bool), np.array([[[6.0, 8.0]]]))
            for one in (grid, blind):
                one.belief[:] = 0
                one.belief[*(np.searchsorted(grid.middle, at.ravel() - 0.5))] = 1
        for step in range(20):
            views = [view(0, 0, 10 * step, 60, 70), view(-90, -90, 80 - 4 * step, 40, 150, 0.6)]
            tracker.move()
            tracker.look(np.array([views]), np.ones((1, 1), bool))
            for one in (grid, blind):
                one.move()
            grid.look(views)
            if step > 5:
                assert distance(coarse(tracker.map(40)[0, 0]), coarse(grid.belief)) < 0.06
        assert distance(coarse(tracker.map(40)[0, 0]), coarse(blind.belief)) > 0.15
        assert tracker.map(40)[0, 0][in_view(Grid(100, 10, 40).places, *views[0])].sum() < 0.1


def test_particles_walk_to_goals_as_the_targets_do():
    """Targets seen for 60 sub-steps and then not: their true places and the particles' are distributed alike."""
    scenario, scenes = Scenario(num_sensors=1, num_targets=1, extra_move_every=0), 3000
    simulator, tracker = Simulator(scenario, scenes, 0), ParticleTracker(scenario, scenes, particles=32)
    seen, stay = np.ones((scenes, 1), bool), np.zeros((scenes, 1), int)
    for _ in range(60):
        tracker.see(simulator.state.target_position, seen, simulator.state.velocity)
        simulator.step(stay)
        tracker.move()
    tracker.see(simulator.state.target_position, seen, simulator.state.velocity)
    start = simulator.state.target_position.copy()
    ahead = simulator.state.velocity / np.linalg.norm(simulator.state.velocity, axis=-1, keepdims=True)

    def spread(places, steps):
        """Share of the places in cells ahead and aside of where the target was last seen."""
        offset = places - start
        axes = (offset * ahead).sum(-1), offset[..., 0] * -ahead[..., 1] + offset[..., 1] * ahead[..., 0]
        reach = 120 * 0.13 * steps
        cells, *_ = np.histogram2d(*(one.ravel() for one in axes), bins=9, range=[[-reach, reach]] * 2)
        return cells / cells.sum()

    for step in range(1, 101):
        simulator.step(stay)
        tracker.move()
        if step in (10, 40, 100):
            cells = sum(spread(tracker.positions[:, :, p], step) for p in range(32)) / 32
            assert distance(cells, spread(simulator.state.target_position, step)) < 0.08
    np.testing.assert_array_equal(tracker.weights, 1 / 32)


def test_a_target_that_is_seen_has_a_speed_that_explains_its_moves():
    """Moves are 1 to 1.2 times the speed, and one shorter than 10 ends a course: at speeds under 77 it does often."""
    tracker = ParticleTracker("hit-mac", 1, particles=200)
    tracker.see(np.zeros((1, 5, 2)), np.ones((1, 5), bool), np.full((1, 5, 2), (80.0, 0.0)))
    speeds = tracker.belief.body[:, :, SPEED]
    assert speeds.min() >= 80 / 1.2
    assert speeds.max() <= 80
    assert (speeds > 10 / 0.13).mean() > 0.7
    tracker.move()
    tracker.see(np.full((1, 5, 2), (11.7, 0.0)), np.ones((1, 5), bool), np.full((1, 5, 2), (90.0, 0.0)))
    assert speeds.min() >= 90 / 1.2
    assert speeds.max() <= 80


def test_constant_velocity_goes_on_and_bounces():
    scenario = ROOM.replace(walk="bounce", num_targets=2, min_speed=1)
    tracker = ParticleTracker(scenario, 1, particles=8)
    tracker.see(np.array([[[80.0, 0], [0, 0]]]), np.ones((1, 2), bool), np.array([[[8.0, 0], [-3, 4]]]))
    tracker.move(5)
    np.testing.assert_allclose(tracker.positions[0], np.repeat([[[80.0, 0]], [[-15.0, 20]]], 8, 1), atol=1e-9)
    tracker.move(np.array([2]))
    np.testing.assert_allclose(tracker.mean[0], [[64.0, 0], [-21.0, 28]], atol=1e-9)
    assert ParticleTracker(ROOM.replace(walk="still")).positions.shape == (1, 1, 256, 2)


GAME = load_scenario("mate-4v8-9").replace(num_targets=1, min_speed=10, max_speed=20)
HOUSES = np.array(GAME.warehouses)


def aims(tracker):
    """Share of the particles on their way to each warehouse."""
    return (tracker.belief.body[0, 0, AIM_X : AIM_Y + 1].T[:, None] == HOUSES).all(-1).mean(0)


def see(tracker, place, velocity=(0, 0)):
    tracker.see(np.array([[place]], float), np.ones((1, 1), bool), np.array([[velocity]], float))


def test_the_course_of_a_target_that_carries_shows_its_warehouse_and_its_pace_its_capacity():
    tracker = ParticleTracker(GAME, 1, particles=400)
    see(tracker, (-400, -400))
    np.testing.assert_allclose(aims(tracker), 0.25, atol=0.1)
    see(tracker, (-386, -386), (14, 14))
    assert aims(tracker)[0] > 0.9  # north-east
    assert (tracker.belief.body[0, 0, SPEED] == 20).all()
    before = aims(tracker)
    see(tracker, (-372, -372), (14, 14))
    np.testing.assert_allclose(aims(tracker), before, atol=0.01)  # on the same course nothing is new
    see(tracker, (-372, -362), (0, 10))
    assert before[1] < 0.1 < aims(tracker)[1]  # north, or north-east with much noise
    assert (tracker.belief.body[0, 0, SPEED] == 10).all()
    see(tracker, (-925, 860), (0, 10))
    assert aims(tracker)[1] == 0  # has arrived
    assert aims(tracker).sum() == pytest.approx(1)


def test_targets_that_carry_walk_to_another_warehouse_and_keep_their_noise():
    """Of moves by 20 with a noise of at most half a step in each axis, each brings the target 5 nearer or more."""
    tracker = ParticleTracker(GAME, 1, particles=300)
    see(tracker, (100, 100))
    see(tracker, (114, 114), (14, 14))
    goal, before = HOUSES[0], tracker.positions[0, 0]
    courses = []
    for _ in range(20):
        tracker.move()
        moved = tracker.positions[0, 0] - before
        before = tracker.positions[0, 0]
        north_east = (goal == tracker.belief.body[0, 0, AIM_X : AIM_Y + 1].T).all(-1)
        assert np.linalg.norm(moved, axis=-1).max() < 20 + 1e-9
        assert (moved[north_east] @ goal / np.linalg.norm(goal)).min() > 5
        courses.append(np.arctan2(*moved.T))
    turned = abs(np.diff(np.array(courses)[:, north_east], axis=0)) > 0.03
    assert 0.02 < turned.mean() < 0.08  # one move in 20
    for _ in range(100):
        before = tracker.positions[0, 0]
        tracker.move()
        aim = tracker.belief.body[0, 0, AIM_X : AIM_Y + 1].T
        assert (abs(aim - before).max(-1) > 75).all()  # in its warehouse a target takes another
    assert (aim != goal).any(-1).mean() > 0.95
    assert abs(tracker.positions).max() <= 1000


@pytest.mark.parametrize(("pace", "worth"), [(20, 100), (10, 200)])
def test_a_bounty_lasts_as_long_as_the_load_was_not_seen(pace, worth):
    """A cargo is worth 100 steps in view, slow targets carry 2; in a warehouse there is a new load."""
    tracker = ParticleTracker(GAME, 1, particles=60)
    see(tracker, (0, 0))

    def share():
        return float(
            np.mean([has_bounty.py_func(tracker._walk.loads, tracker.belief.body[0, 0], p) for p in range(60)])
        )

    for step in range(1, worth - 1):
        see(tracker, (step, 0), (pace, 0))
    assert share() == 1
    see(tracker, (worth, 0), (pace, 0))
    assert share() == 0
    for _ in range(2400 // pace):  # out of sight it may have been in a warehouse
        tracker.move()
    assert share() > 0.2
    see(tracker, (0, 0), (pace, 0))
    assert share() > 0.2
    see(tracker, (925, 925), (pace, 0))
    assert share() == 1


def test_bounties_are_those_of_the_game():
    """Of targets that are always in view."""
    scenes, wrong = 20, 0
    open_game = GAME.replace(transmittance=1, cargoes=100, sensing_range=9000, zoom=(360, 360), field_of_view=360)
    duel, seen = Simulator(open_game, scenes, 0), np.ones((scenes, 1), bool)
    tracker = ParticleTracker(GAME, scenes, particles=12)
    for _step in range(600):
        tracker.see(duel.state.target_position, seen, duel.state.velocity)
        duel.step(np.zeros((scenes, 4), int))
        believed = [has_bounty.py_func(tracker._walk.loads, body[0], 0) for body in tracker.belief.body]
        wrong += (np.array(believed) != (duel.game.cargo.bounty[:, 0] > 0)).sum()
    assert wrong < 0.02 * scenes * 600


@pytest.mark.parametrize(
    ("place", "step", "side", "expected"),
    [
        ((50, 60), (0, 20), 1, (0, 20)),  # away from the view
        ((50, 60), (0, -20), 1, (-14.1, -14.1)),  # a turn to the left is in view, one to the right is not
        ((120, 0), (-30, 0), 1, (-21.2, -21.2)),
        ((120, 0), (-30, 0), -1, (-21.2, 21.2)),
        ((99, 0), (-30, 0), 1, (0, -30)),  # a turn by 45 degrees is in range
        ((60, 0), (-30, 0), 1, (0, 0)),  # every turn by at most 135 degrees is in view
    ],
)
def test_a_step_leads_round_a_view(place, step, side, expected):
    """The view is that of a sensor at the origin, of 90 degrees around +x, with the range 100."""
    views = np.array([view(0, 0, 0, 90, 100)])
    watch = Watch(views, np.empty((1, 0), np.float32), NO_CELLS, np.empty(0, np.int32), np.empty(0, np.int32), 0.0)
    round_view = njit(lambda *numbers: _step_round(watch, *numbers))
    np.testing.assert_allclose(round_view(*map(float, (*place, *step, side))), expected, atol=0.1)


def test_targets_that_carry_are_where_particles_expect_them():
    """Seen for 30 steps and then not for 30: they are nearer to the particles than to a straight course."""
    scenes = 300
    duel, seen = Simulator(GAME.replace(random_discs=0), scenes, 0), np.ones((scenes, 1), bool)
    trackers = [ParticleTracker(GAME, scenes, particles=30, model=model) for model in ("carry", "constant velocity")]
    for step in range(60):
        duel.step(np.zeros((scenes, 4), int))
        for tracker in trackers:
            tracker.move()
            if step < 30:
                tracker.see(duel.state.target_position, seen, duel.state.velocity)
    near, far = (np.linalg.norm(tracker.mean - duel.state.target_position, axis=-1).mean() for tracker in trackers)
    assert near < 0.7 * far


def test_a_look_that_contradicts_everything_starts_again():
    tracker = ParticleTracker(ROOM, 1, particles=500)
    tracker.see(np.array([[[30.0, 0]]]), np.ones((1, 1), bool))
    views = np.array([[view(0, 0, 0, 90, 70)]])
    tracker.look(views, np.ones((1, 1), bool))
    assert not in_view(tracker.positions[0, 0], *views[0, 0]).any()
    assert tracker.map(2).min() > 0.1
    np.testing.assert_allclose(tracker.weights.sum(-1), 1)


def test_errors_of_detections_spread_the_particles():
    tracker = ParticleTracker(ROOM, 1, particles=4000)
    tracker.see(np.array([[[30.0, -10]]]), np.ones((1, 1), bool), deviation=5.0)
    assert tracker.positions[0, 0].mean(0) == pytest.approx([30, -10], abs=0.5)
    assert tracker.positions[0, 0].std(0) == pytest.approx([5, 5], abs=0.4)


def test_a_new_walk_is_forecast_by_its_motion(monkeypatch):
    monkeypatch.setitem(WALKS, "mine", Walk(WALKS["still"].move, "random"))
    trackers = [ParticleTracker(ROOM.replace(walk=walk), 1, particles=50) for walk in ("mine", "random")]
    for tracker in trackers:
        tracker.move(3)
    np.testing.assert_array_equal(trackers[0].positions, trackers[1].positions)


@pytest.mark.parametrize("model", MODELS)
def test_scenes_are_the_same_in_any_batch_and_on_any_thread(model):
    options = {"particles": 40, "model": model}
    scenario = GAME.replace(num_targets=3) if model == MODELS[CARRY] else Scenario(num_targets=3, wander=20)
    rng = np.random.default_rng(0)
    many, threads = (ParticleTracker(scenario, 20, seed=5, num_threads=k, **options) for k in (1, 2))
    one = ParticleTracker(scenario, 1, seed=12, **options)
    for _ in range(10):
        seen = rng.random((20, 3)) < 0.3
        places, velocities = rng.uniform(-1000, 1000, (20, 3, 2)), rng.uniform(-70, 70, (20, 3, 2))
        views = np.array([[view(*rng.uniform(-900, 900, 2), 90, 90, 800)] for _ in range(20)])
        for tracker, rows in ((many, slice(None)), (threads, slice(None)), (one, slice(7, 8))):
            tracker.move(2)
            tracker.see(places[rows], seen[rows], velocities[rows])
            tracker.look(views[rows], ~seen[rows])
    for name, array in many.belief._asdict().items():
        np.testing.assert_array_equal(array, getattr(threads.belief, name))
        rows = (slice(None), slice(7, 8)) if name == "stream" else slice(7, 8)
        np.testing.assert_array_equal(array[rows], getattr(one.belief, name))
    many.reset(np.arange(20) == 3)
    assert (many.positions[3] != threads.positions[3]).all()
    np.testing.assert_array_equal(many.positions[4], threads.positions[4])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tracker: ParticleTracker(model="goal"), r"model is 'goal'; .* carry \(did you mean"),
        (lambda tracker: ParticleTracker(model="carry"), "model is 'carry'; it requires a scenario with warehouses"),
        (lambda tracker: ParticleTracker(particles=0), "particles is 0; it must be a whole number, 1 or more"),
        (lambda tracker: ParticleTracker(particles=2**64), "particles is 18446744073709551616; it must be at most"),
        (lambda tracker: tracker.look("", np.zeros((2, 5), bool)), "views has shape .* and type <U1"),
        (lambda tracker: tracker.see(np.zeros((2, 5, 2)), np.zeros((1, 4), bool)), r"seen has shape \(1, 4\)"),
        (lambda tracker: tracker.see(np.full((2, 5, 2), np.nan), np.ones((2, 5), bool)), "position holds nan"),
        (lambda tracker: tracker.see(np.zeros((2, 5, 2)), np.ones((2, 5), bool), deviation=-1.0), "deviation is -1"),
        (lambda tracker: tracker.look(np.zeros((2, 4, 6)), np.zeros((2, 5), bool)), r"it must be \(2, n, 7\)"),
        (lambda tracker: tracker.look(np.full((2, 4, 7), np.inf), np.ones((2, 5), bool)), "views holds inf"),
        (lambda tracker: tracker.move(1.5), "moves has .* type float64"),
        (lambda tracker: tracker.move(-1), "moves are -1; they must be from 0 to 1,000,000"),
        (lambda tracker: tracker.move(10**12), "moves are 1000000000000; they must be from 0"),
        (lambda tracker: tracker.map(0), "cells is 0"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(ParticleTracker("hit-mac", 2, particles=4))


def test_a_detection_outside_the_arena_is_in_its_corner():
    tracker = ParticleTracker("hit-mac", 2, particles=4)
    tracker.see(np.full((2, 5, 2), -1e9), np.ones((2, 5), bool))
    assert np.allclose(tracker.map(4)[..., 0, 0], 1)
