"""Games of two teams: equal to recorded ones, and by their rules."""

import numpy as np
import pytest

from hitmac.envs import Simulator, load_scenario
from hitmac.envs.entities import mate_observations

AFTER_STEP = {
    "target_position": "target", "heading": "camera_orientation", "field_of_view": "camera_viewing_angle",
    "cargo_bounty": "bounty", "cargo_goal": "goal", "cargo_empty": "target_empty_bits", "cargo_remaining": "remaining",
    "cargo_awaiting": "awaiting", "cargo_delivered": "delivered", "cargo_sees_sensor": "target_sees_camera",
    "cargo_sees_disc": "target_sees_obstacle",
}  # fmt: skip
"""Recorded arrays by names of the state; all count in every step."""


def games(record):
    """Return the arrays of every recorded set, by the set's name, `MATE-4v8-9/greedy`.

    They include `goal` (E, T + 1, m), the warehouse to which a load goes, -1 for no load.
    """
    found = {}
    for name, array in record.items():
        found.setdefault(name.rpartition("/")[0], {})[name.rpartition("/")[2]] = array
    for one in found.values():
        bits = one["target_goal_bits"]
        one["goal"] = np.where(bits.any(-1), bits.argmax(-1), -1)
    return found


def duel_of(name, record, **changes):
    """Return a simulator of the E episodes of a set in their first recorded states."""
    scenario = load_scenario(name.split("/")[0].lower()).replace(**changes)
    duel = Simulator(scenario, len(record["done"]), 0)
    state, capacity = duel.get_state(), record["target_capacity"].astype(np.int64)
    delivered = record["delivered"][:, 0].astype(np.int64)
    given = {
        "disc": record["obstacle"], "sensor_position": record["camera"], "heading": record["camera_orientation"][:, 0],
        "field_of_view": record["camera_viewing_angle"][:, 0], "target_position": record["target"][:, 0],
        "speed": 20.0 / capacity, "cargo_capacity": capacity, "cargo_goal": record["goal"][:, 0],
        "cargo_weight": record["target_goal_bits"][:, 0].sum(-1), "cargo_bounty": record["bounty"][:, 0],
        "cargo_empty": record["target_empty_bits"][:, 0], "cargo_remaining": record["remaining"][:, 0],
        "cargo_awaiting": record["awaiting"][:, 0], "cargo_delivered": delivered,
        "cargo_paid": record["transport_rate"][:, 0] * 200 * delivered,
    }  # fmt: skip
    duel.set_state(state | {key: np.asarray(value, state[key].dtype) for key, value in given.items()})
    duel.place(heading=given["heading"])  # computes views
    duel.rows = duel.rows._replace(game=duel.rows.game._replace(drawn=True))
    return duel


def follow(duel, record, t):
    """Advance a simulator by the recorded actions and draws of step t."""
    episodes, after, now = np.arange(len(record["done"])), record["goal"][:, t + 1], record["target"][:, t + 1]
    through = record["camera_sees_target"][:, t + 1] & ~record["in_clear"][:, t + 1]
    duel.rows.game.transmitted[..., : len(episodes)] = np.moveaxis(through, 0, -1)
    left = record["remaining"][:, t].astype(np.int64)
    for j in range(after.shape[1]):
        off = np.abs(now[:, j, None] - duel.rows.game.warehouse).max(-1)
        choices = left[episodes, off.argmin(-1)] > 0  # (E, W) goals of a load here
        rank = (choices & (np.arange(4) < after[:, j, None])).sum(-1)
        duel.rows.game.chance[j, : len(episodes)] = (rank + 0.5) / np.maximum(choices.sum(-1), 1)
        new = (after[:, j] >= 0) & (after[:, j] != record["goal"][:, t, j])
        left[episodes[new], off.argmin(-1)[new], after[new, j]] -= record["target_goal_bits"][new, t + 1, j].sum(-1)
    action, targets = (np.ascontiguousarray(record[f"{kind}_action"][:, t]) for kind in ("camera", "target"))
    duel.step(action, target_action=targets)


@pytest.mark.parametrize("occlusion", ["rays", "exact"])
def test_recorded_games_are_repeated(trajectories, occlusion):
    """With MATE's rays in every number, observations included; exact discs hide 3 of 26,000 pairs more or less."""
    differ = 0
    for name, record in games(trajectories("mate_trajectories.npz")).items():
        duel = duel_of(name, record, occlusion=occlusion)
        for t in range(record["done"].shape[1]):
            follow(duel, record, t)
            state = duel.get_state()
            wrong = (duel.state.visible != record["camera_sees_target"][:, t + 1]).any((1, 2))
            differ += wrong.sum()
            for ours, theirs in AFTER_STEP.items():
                np.testing.assert_allclose(state[ours][~wrong], record[theirs][~wrong, t + 1], atol=1e-6, err_msg=ours)
            rates = duel.coverage, duel.game.real_coverage, duel.game.transport_rate, duel.game.target_reward
            recorded = (*(record[f"{key}_rate"][:, t + 1] for key in ("coverage", "real_coverage", "transport")),
                        record["target_reward"][:, t])  # fmt: skip
            np.testing.assert_allclose(np.array(rates)[:, ~wrong], np.array(recorded)[:, ~wrong], atol=1e-6)
            np.testing.assert_array_equal(duel.game.done, record["done"][:, t])
            np.testing.assert_array_equal(100 * duel.game.cargo.weight, record["freight"][:, t + 1])
            if occlusion == "rays" and t % 100 == 99:
                for ours, kind in zip(mate_observations(duel), ("camera", "target"), strict=True):
                    np.testing.assert_allclose(ours, record[f"{kind}_observation"][:, t // 100 + 1], atol=1e-6)
            duel.game.cargo.bounty[:] = record["bounty"][:, t + 1]  # also after a pair that differs
    assert differ <= (3 if occlusion == "exact" else 0)


def test_no_cargo_is_lost_and_the_game_ends():
    duel = Simulator(load_scenario("mate-2v4-0").replace(cargoes=2), 20, 0)
    cargo = duel.game.cargo
    total = cargo.awaiting.sum(1)
    assert (total % 8 == 0).all()
    assert not duel.game.done.any()
    rng, steps = np.random.default_rng(0), 0
    while not duel.game.done.all() and steps < 3000:
        steps += 1
        empty = cargo.empty.all(2) | (cargo.goal >= 0)
        goal = np.where(cargo.goal >= 0, cargo.goal, np.where(empty, 0, cargo.empty.argmin(2)))
        moves = duel.rows.game.warehouse[goal] - duel.state.target_position
        duel.step(rng.uniform(-5, 5, (20, 2, 2)), target_action=moves)
        loads = np.eye(4)[cargo.goal] * cargo.weight[..., None]
        np.testing.assert_array_equal(cargo.remaining.sum(1) + loads.sum(1), cargo.awaiting)
        np.testing.assert_array_equal(cargo.delivered + cargo.awaiting.sum(1), total)
        assert (cargo.weight <= cargo.capacity).all()
        assert (cargo.bounty <= 100 * cargo.weight).all()
        assert ((cargo.weight > 0) == (cargo.goal >= 0)).all()
    assert duel.game.done.all()
    assert ((duel.game.transport_rate > 0) & (duel.game.transport_rate <= 1)).all()


def test_whole_numbers_turn_and_zoom_as_degrees():
    one, two = Simulator("mate-4v8-9", 3, 0), Simulator("mate-4v8-9", 3, 0)
    whole = np.random.default_rng(0).integers(0, 3, (3, 8))
    way = np.array([0.0, 1.0, -1.0])[whole]
    one.step(whole)
    two.step(np.stack([way[:, :4] * 5, way[:, 4:] * -2.5], -1))
    np.testing.assert_equal(one.get_state(), two.get_state())
    one.step(whole[:, :4])  # turns alone
    assert (one.state.field_of_view == two.state.field_of_view).all()
    assert (one.state.heading != two.state.heading).any()
