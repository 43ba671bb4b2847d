"""Recorded games of MATE (:mod:`tests.data`), continued by ours from their first states, with their random draws."""

import numpy as np

from hitmac.envs import Duel, load_scenario


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
    """Return a Duel of the E episodes of a set in their first recorded states."""
    scenario = load_scenario(name.split("/")[0].lower()).replace(**changes)
    duel = Duel(scenario, len(record["done"]), 0)
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
    return duel


def follow(duel, record, t):
    """Advance a Duel by the recorded actions and draws of step t."""
    episodes, after, now = np.arange(len(record["done"])), record["goal"][:, t + 1], record["target"][:, t + 1]
    through = record["camera_sees_target"][:, t + 1] & ~record["in_clear"][:, t + 1]
    duel.game.transmitted[..., : len(episodes)] = np.moveaxis(through, 0, -1)
    left = record["remaining"][:, t].astype(np.int64)
    for j in range(after.shape[1]):
        off = np.abs(now[:, j, None] - duel.game.warehouse).max(-1)
        choices = left[episodes, off.argmin(-1)] > 0  # (E, W) goals of a load here
        rank = (choices & (np.arange(4) < after[:, j, None])).sum(-1)
        duel.game.chance[j, : len(episodes)] = (rank + 0.5) / np.maximum(choices.sum(-1), 1)
        new = (after[:, j] >= 0) & (after[:, j] != record["goal"][:, t, j])
        left[episodes[new], off.argmin(-1)[new], after[new, j]] -= record["target_goal_bits"][new, t + 1, j].sum(-1)
    action, targets = record["camera_action"][:, t], record["target_action"][:, t]
    duel.advance(action, duel.chosen(None), targets, drawn=True)
