"""Rules of the game of two teams: places at the start, slides, views."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitmac.envs import Simulator, load_scenario
from hitmac.envs.parts.cargo import slide

GAME = load_scenario("mate-4v8-9")
PLACE, STEP = st.floats(-150, 150), st.floats(-20, 20)


def test_everything_starts_apart_in_its_area():
    duel = Simulator(GAME, 500, 0)
    state, warehouses = duel.state, np.column_stack([GAME.warehouses, [56.25] * 4])
    sensors = np.concatenate([state.sensor_position, np.full((500, 4, 1), 40.0)], -1)
    discs = np.concatenate([np.broadcast_to(warehouses, (500, 4, 3)), sensors, state.disc], 1)
    between = np.linalg.norm(discs[:, :, None, :2] - discs[:, None, :, :2], axis=-1) + 1e4 * np.eye(17)
    assert (between - discs[:, :, None, 2] - discs[:, None, :, 2] > 20 - 1e-2)[:, 4:].all()
    shorter = np.sqrt(np.minimum(state.range_squared[:, :, None], state.range_squared[:, None]))
    assert (between[:, 4:8, 4:8] >= 0.1 * shorter).all()
    away = np.linalg.norm(discs[:, None, :, :2] - state.target_position[:, :, None], axis=-1)
    assert (away > discs[:, None, :, 2]).all()
    assert (np.abs(discs[:, 4:, :2]) <= 1000 - 1.2 * discs[:, 4:, 2:] + 1e-9).all()
    for areas, places in ((GAME.sensor_areas, state.sensor_position), (GAME.disc_areas[:4], state.disc[..., :2])):
        low, high = np.array(areas)[:, ::2], np.array(areas)[:, 1::2]
        inside = ((places[:, :, None] >= low) & (places[:, :, None] <= high)).all(-1)
        assert (inside.sum(1) >= 1).all()
        assert inside[:, 0].mean(0).max() < 0.6
    assert (np.abs(state.target_position) <= 200).all()
    assert set(state.heading.flat) == set(range(-180, 180, 5))
    assert abs(state.field_of_view.mean() - 105) < 5
    assert np.ptp(state.field_of_view) > 140
    np.testing.assert_allclose(state.range_squared * state.field_of_view, 30 * 1500**2)
    assert (np.sort(duel.game.cargo.capacity) == [1] * 4 + [2] * 4).all()
    assert (duel.game.cargo.capacity.mean(0) > 1.3).all()
    assert (state.speed * duel.game.cargo.capacity == 20).all()


def test_cargoes_are_dealt_evenly_and_the_first_loads_have_every_goal():
    cargo = Simulator(GAME, 500, 0).game.cargo
    loads = np.eye(4)[cargo.goal] * cargo.weight[..., None]
    assert (cargo.awaiting.sum(1) == 64).all()
    assert (cargo.goal >= 0).all()
    assert (cargo.remaining[:, range(4), range(4)] == 0).all()
    np.testing.assert_array_equal(cargo.remaining.sum(1) + loads.sum(1), cargo.awaiting)
    assert np.abs(cargo.awaiting.mean(0) - 16).max() < 1
    assert np.abs((cargo.goal[..., None] == range(4)).mean((0, 1)) - 0.25).max() < 0.05
    few = Simulator(GAME.replace(cargoes=1, num_targets=1), 200, 0).game.cargo
    assert (few.awaiting.sum(1) >= 4).all()  # every warehouse has one to send, so at least one draw of each


def test_an_obstacle_without_room_has_no_radius():
    crowded = GAME.replace(disc_areas=[(0, 1, 0, 1)], random_discs=3)
    radius = np.sort(Simulator(crowded, 20, 0).state.disc[..., 2])
    assert (radius[:, :2] == 0).all()
    assert (radius[:, 2] >= 25).all()


@pytest.mark.parametrize(
    ("disc", "step", "after"),
    [
        ((8, 3, 5), (10, 0), (10 - 3.84, -2.88)),  # 6 left at (4, 0), times 0.8 of the tangent (0.8, -0.6)
        ((10, 0, 4), (10, 0), (6, 0)),  # head on
        ((5, 3, 3), (10, 0), (10, 0)),  # touches from the side
        ((-5, 0, 4), (10, 0), (10, 0)),  # behind
        ((14, 0, 4), (10, 0), (10, 0)),  # not reached
        ((1, 0, 4), (3, 0), (-3, 0)),  # from inside
        ((5, 0, 4), (0, 0), (0, 0)),
    ],
)  # fmt: skip
def test_a_step_slides_along_a_disc(disc, step, after):
    np.testing.assert_allclose(slide.py_func(0.0, 0.0, *map(float, step), *map(float, disc)), after, atol=1e-12)


@given(PLACE, PLACE, STEP, STEP, st.floats(1, 100))
def test_no_step_ends_in_a_disc_or_is_longer_than_wanted(x, y, step_x, step_y, radius):
    if math.hypot(x, y) >= radius:
        to_x, to_y = slide.py_func(x, y, step_x, step_y, 0.0, 0.0, radius)
        assert math.hypot(x + to_x, y + to_y) >= radius * (1 - 1e-9)
        assert math.hypot(to_x, to_y) <= math.hypot(step_x, step_y) * (1 + 1e-9)


def scene(num_envs=1, **changes):
    """One sensor at the origin that looks along +x with a view of 60 degrees and a range of 100, without discs."""
    game = GAME.replace(
        num_sensors=1, num_targets=1, random_discs=0, sensing_range=100 * math.sqrt(2), sensor_radius=0, **changes
    )
    duel = Simulator(game, num_envs, 0)
    duel.state.field_of_view[:] = 60
    duel.place(sensor_position=np.zeros((1, 2)), heading=np.zeros(1), target_position=np.full((1, 2), -500.0))
    return duel


@pytest.mark.parametrize(
    ("place", "seen"),
    [((100, 0), 1), ((100.001, 0), 0), ((50, 28.8), 1), ((50, 28.9), 0), ((-50, 0), 0), ((50, -28.8), 1)],
)
def test_a_view_is_a_sector(place, seen):
    duel = scene()
    duel.place(target_position=np.array([place], float))
    assert duel.state.visible.sum() == duel.coverage == seen


def table_of_rays(discs, reach):
    """Return bearings, degrees, and lengths of MATE's table of rays from the origin past discs (k, 3), step by step."""
    rays = [(degree, reach) for degree in range(-180, 180)]
    for x, y, radius in discs:
        distance, bearing = math.hypot(x, y), math.degrees(math.atan2(y, x))
        half = math.degrees(math.asin(radius / distance))
        rays += [(bearing + side * half + off, reach) for side in (-1, 1) for off in (-0.01, 0.01)]
        spread = np.linspace(bearing - half, bearing + half, max(16, int(2 * half)) + 1)
        rays += [(one, min(reach, distance + radius)) for one in spread]
    bearings, lengths = np.array(sorted(rays)).T
    for x, y, radius in discs:
        along = x * np.cos(np.radians(bearings)) + y * np.sin(np.radians(bearings))
        chord = radius**2 - (x * x + y * y - along**2)
        near = along - np.sqrt(np.maximum(chord, 0))
        lengths = np.where((along >= 0) & (chord > 0), np.minimum(lengths, near), lengths)
    return bearings, lengths


def test_rays_are_those_of_a_table():
    discs = np.array([(120, 20, 80), (-160, 180, 60), (-300, -300, 100), (200, 400, 30.0)])
    game = GAME.replace(
        num_sensors=1, num_targets=64, random_discs=0, discs=discs.tolist(), sensing_range=900, sensor_radius=0,
        transmittance=0, occlusion="rays",
    )  # fmt: skip
    duel = Simulator(game, 24, 0)
    heading = np.arange(24.0)[:, None] * 15 - 180
    bearings = (heading + np.random.default_rng(0).uniform(-14, 14, (24, 64)) + 180) % 360 - 180
    length = np.interp(bearings, *table_of_rays(discs, 900), period=360)
    way = np.stack([np.cos(np.radians(bearings)), np.sin(np.radians(bearings))], -1) * length[..., None]
    duel.state.field_of_view[:] = 30
    for share, seen in ((1 - 1e-4, True), (1 + 1e-4, False)):
        duel.place(sensor_position=np.zeros((1, 2)), heading=heading, target_position=way * share)
        assert (duel.state.visible == seen).all()


@pytest.mark.parametrize("transmittance", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("occlusion", ["exact", "rays"])
def test_a_share_of_looks_passes_discs(transmittance, occlusion):
    duel = scene(4000, discs=[(50, 0, 10)], transmittance=transmittance, occlusion=occlusion)
    duel.place(target_position=np.array([[70.0, 0.0]]))
    assert duel.coverage.mean() == pytest.approx(transmittance, abs=0.02)
    through, chance = duel.rows.game.transmitted[0, 0, :4000], duel.rows.game.chance[0, :4000]
    assert ((chance < transmittance) != through).any() == (transmittance == 0.1)  # each draw is used once
    seen = duel.coverage
    duel.step(np.zeros((4000, 1, 2)), target_action=np.zeros((4000, 1, 2)))
    assert (seen != duel.coverage).any() == (transmittance == 0.1)  # a new draw


def test_a_failed_sensor_neither_sees_nor_turns():
    duel = Simulator(GAME.replace(failure_rate=1, recovery_rate=0), 5, 0)
    before = duel.state.heading.copy()
    duel.step(np.full((5, 4, 2), 5.0))
    assert (duel.state.heading == before).all()
    assert not duel.state.visible.any()
