"""The evader: fields, hidden ways and decoys by hand, knowledge, batches, memory, and whole games."""

from types import SimpleNamespace

import numpy as np
import pytest

from hitmac.agents.planning import evader
from hitmac.agents.planning.evader import MOVES, EvaderAgent
from hitmac.envs import Simulator
from hitmac.envs.base.compile import kernel

SCENE = "mate-4v8-9"
START = np.array([True])
SENSORS = [(600, 600), (-600, 600), (-600, -600), (600, -600)]


@kernel
def exposure(state, memory, x, y):
    return evader._exposure(state, 0.1, memory, 0, x, y)


def open_duel(**places):
    """Return a game of one scene without discs, in which every target has a load for warehouse 1."""
    duel = Simulator(SCENE, 1, 9_000_000_000, num_threads=1)
    duel.state.disc[:] = (5000.0, 5000.0, 0.0)
    duel.place(**places)
    duel.game.cargo.goal[:], duel.game.cargo.weight[:], duel.game.cargo.bounty[:] = 1, 1, 100.0
    return duel


def first_moves(duel, **options):
    """Return the angles (m,) of the first moves, in degrees."""
    moves = EvaderAgent(SCENE, **options).act(duel, START)[0]
    return np.degrees(np.arctan2(moves[:, 1], moves[:, 0]))


def play(agent, duel, steps):
    """Play against MATE's greedy cameras; return all actions."""
    actions, starts = [], np.ones(duel.num_envs, np.bool_)
    for _ in range(steps):
        actions.append(agent.act(duel, starts))
        duel.step(duel.game.rule_actions("sensors", "greedy"), ~duel.game.done, actions[-1])
        starts[:] = False
    return np.array(actions)


def test_the_field_of_a_uniform_cost_is_proportional_to_the_distance():
    p, field = SimpleNamespace(half_width=1000.0, half_height=1000.0), np.zeros((40, 40))
    with np.errstate(invalid="ignore"):  # the difference of two infinite neighbours
        evader._solve.py_func(p, 50.0, np.full((40, 40), 2.0), np.array([925.0, -925.0]), 75.0, field)
    for (x, y), distance in {(875, -925): 0, (-125, -925): 1000, (925, 75): 950, (-125, 125): 1414}.items():
        at = evader._interpolate.py_func(p, 50.0, field, float(x), float(y))
        assert at == pytest.approx(2 * distance, rel=0.04), (x, y)
    field[3, 5], field[3, 6] = 1.0, 2.0
    assert evader._interpolate.py_func(p, 50.0, field, -712.5, -825.0) == pytest.approx(1.25)
    assert evader._interpolate.py_func(p, 50.0, field, -1000.0, 1000.0) == field[39, 0]


@pytest.mark.parametrize(
    ("heading", "bounty", "seen", "straight"),
    [(90, 100, True, False), (90, 0, True, True), (-90, 100, True, True), (90, 100, False, True)],
    ids=["in view", "without a bounty", "looks away", "sensor not seen"],
)
def test_carriers_go_round_the_views_that_the_team_has_seen(heading, bounty, seen, straight):
    places = {"sensor_position": [(0, 600), *SENSORS[1:]], "target_position": [(320, 925)] * 8}
    duel = open_duel(heading=[heading, 0, 0, 0], **places)
    duel.state.field_of_view[:], duel.game.cargo.bounty[:] = 90.0, bounty
    duel.game.cargo.sees_sensor[:] &= seen
    moves = first_moves(duel, decoys=0)
    assert ((np.abs(moves) > 179) == straight).all()


def test_a_disc_hides():
    """A sensor whose view is known; also what is expected once its heading is forgotten."""
    duel = open_duel(sensor_position=SENSORS)
    state, memory = duel.observed, EvaderAgent(SCENE)._forget(1)
    memory.age[:], memory.seen[:] = [0, -1, -1, -1], (-135.0, 90.0)
    duel.state.disc[0, 0] = 400.0, 400.0, 50.0
    for known, x, y, chance in (
        (False, 300, 300, 1.0), (True, 300, 300, 0.1), (True, 450, 450, 1.0), (True, 700, 700, 0.0),
        (False, -47.7, -47.7, 0.5)
    ):  # fmt: skip
        memory.disc[0, 0] = known
        assert exposure(state, memory, float(x), float(y)) == pytest.approx(chance, abs=0.01), (known, x, y)
    memory.age[0, 0] = 10_000
    assert exposure(state, memory, 700.0, 700.0) == pytest.approx(90 / 360)


@pytest.mark.parametrize(("carriers", "bounty", "up"), [(800, 100, False), (400, 100, True), (400, 0, False)])
def test_a_decoy_keeps_the_sensor_between_itself_and_the_carriers(carriers, bounty, up):
    """Without carriers it stays on the side of the centre."""
    duel = open_duel(sensor_position=SENSORS, target_position=[(700, 600), *[(600, carriers)] * 7])
    duel.game.cargo.bounty[:] = [0, *[bounty] * 7]
    assert (first_moves(duel, decoys=1)[0] > 0) == up


def test_scenes_do_not_depend_on_their_batch_and_others_are_left_alone():
    three, one = Simulator(SCENE, 3, 9_000_000_000, num_threads=1), Simulator(SCENE, 1, 9_000_000_001, num_threads=1)
    agent = EvaderAgent(SCENE)
    np.testing.assert_array_equal(play(agent, three, 60)[:, 1:2], play(EvaderAgent(SCENE), one, 60))
    before, starts = agent.get_state(), np.zeros(3, np.bool_)
    values = agent.values(three, starts, np.array([False, True, False]))
    after = agent.get_state()
    for name in before:
        np.testing.assert_array_equal(before[name][::2], after[name][::2])
    assert after["clock"].tolist() == [60, 61, 60]
    assert values.shape == (3, 8, len(MOVES))
    assert values[1].any()
    assert not values[::2].any()
    other = EvaderAgent(SCENE)
    other.set_state(before)
    np.testing.assert_array_equal(other.values(three, starts)[1], values[1])
    again = EvaderAgent(SCENE).values(three, ~starts)
    np.testing.assert_array_equal(agent.values(three, ~starts), again)


def test_most_bounties_arrive_past_greedy_cameras():
    """Greedy targets keep about 0.37 of them."""
    duel = Simulator(SCENE, 3, 9_000_000_100, num_threads=1)
    play(EvaderAgent(SCENE), duel, 2800)
    assert duel.game.done.all()
    assert (duel.game.transport_rate > 0.7).all()


@pytest.mark.parametrize(("options", "message"), [({"price": -1}, "price is -1"), ({"decoys": 8}, "decoys is 8")])
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        EvaderAgent(SCENE, **options)
