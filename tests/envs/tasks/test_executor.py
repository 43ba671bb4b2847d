"""HiT-MAC's executor task: equal to the released program's recordings, and by hand."""

import numpy as np
import pytest

from hitmac.envs import PAPER_FEATURES, load_scenario
from hitmac.envs.tasks import CoverageTask, ExecutorTask
from hitmac.envs.tasks.executor import executed, mask_unassigned
from tests.envs.tasks.released import ONE, assert_same_angles, placed, start


def test_the_executor_task_is_the_released_programs(trajectories):
    record = trajectories("hitmac_executor_trajectories.npz")
    task = ExecutorTask(num_envs=len(record["reward"]), seed=0)
    task.reset(options=start(record, record["targets"]))
    np.testing.assert_allclose(task.observe()["pairs"], record["obs0"], atol=1e-6)
    for step in range(101):
        reward = task.step(record["action"][:, step])
        state = task.simulator.state
        assert_same_angles(state.heading, record["heading"][:, step])
        np.testing.assert_allclose(task.rewards, record["reward"][:, step], atol=1e-9)
        np.testing.assert_allclose(reward, record["reward"][:, step].mean(-1), atol=1e-9)
        np.testing.assert_array_equal(task.assigned, record["goals"][:, step])
        np.testing.assert_allclose(task.simulator.coverage, record["coverage"][:, step])
        np.testing.assert_allclose(task.observe()["pairs"], record["obs"][:, step], atol=1e-6)
        assert (task.time >= 101).tolist() == record["done"][:, step].tolist()


def test_rewards_by_hand():
    targets = [(500, 0), (0, 500)]
    task = placed(ExecutorTask(ONE), 0, targets)
    assert task.step([[0]]) == pytest.approx((1 - 1) / 2)  # in the middle of the view; not seen
    assert task.step([[1]]) == pytest.approx((1 - 5 / 45 - 1) / 2 - 0.01)
    np.testing.assert_allclose(task.sensor_rewards(), [[(1 - 5 / 45 - 1) / 2 - 0.01]])
    task = placed(ExecutorTask(ONE, centring=0.3, turn_cost=0.5), 0, targets)
    assert task.step([[1]]) == pytest.approx((1 - 0.3 * 5 / 45 - 1) / 2 - 0.5)
    failed = placed(ExecutorTask(ONE.replace(failure_rate=1)), 0, targets)
    assert failed.step([[1]]) == failed.rewards.item() == 0


def test_a_sensor_pays_for_turning_as_long_as_its_motor_turns():
    motor = ONE.replace(turn_rates=45, command_delay=1, pan_limits=[(-150, 150)])
    task = placed(ExecutorTask(motor, turn_cost=0.5), 0, [(-500, 0), (-500, 1)])
    assert [task.step([[action]]) for action in (1, 0, 0)] == [-1, -1.5, -1]


def test_a_share_of_the_targets_in_range_become_goals():
    task = ExecutorTask("hit-mac", 500, 0, goals_every=1, goal_share=0.7)
    drawn = []
    for _ in range(2):
        task.step(np.zeros((500, 4), int))
        s = task.simulator.state
        in_range = np.linalg.norm(s.target_position[:, None] - s.sensor_position[:, :, None], axis=-1) <= 800
        assert not task.assigned[~in_range].any()
        assert abs(task.assigned[in_range].mean() - 0.7) < 0.03
        drawn.append(task.assigned.copy())
    assert (drawn[0] != drawn[1])[in_range].mean() > 0.2


def test_unfiltered_rows_stay_in_place_beside_the_assignment():
    task = placed(ExecutorTask(ONE, padding="unfiltered", goals_every=1), 0, [(900, 0), (500, 0)])
    task.step([[0]])
    shown = task.observe()
    np.testing.assert_array_equal(shown["pairs"][..., :-1], task.observer.observe(task.simulator)["pairs"])
    assert shown["pairs"][0, 0, :, -1].tolist() == [0, 1]
    assert task.observation_space["pairs"].shape == (1, 2, len(PAPER_FEATURES) + 1)


@pytest.mark.parametrize("padding", ["attended", "masked"])
def test_packed_rows_keep_their_order_and_carry_their_targets(padding):
    """The k nearest of 5 targets, some of them assigned, against a loop; the row's index replaces a feature."""
    rng = np.random.default_rng(0)
    shown = {
        "pairs": rng.uniform(size=(3, 4, 5, 2)).astype(np.float32),
        "mask": rng.integers(0, 2, (3, 4, 5), np.int8),
        "targets": rng.permuted(np.tile(np.arange(7, dtype=np.int32), (3, 4, 1)), axis=-1)[..., :5],
    }
    shown["targets"][shown["mask"] == 0] = -1
    assigned = rng.random((3, 4, 7)) < 0.6
    ours = mask_unassigned(shown, assigned, padding, row_id=1)
    for b, i in np.ndindex(3, 4):
        slots = [k for k in range(5) if shown["mask"][b, i, k] and assigned[b, i, shown["targets"][b, i, k]]]
        rows = np.zeros((5, 2), np.float32)
        rows[: len(slots), 0] = shown["pairs"][b, i, slots, 0]
        rows[: len(slots), 1] = np.arange(len(slots)) / 5
        np.testing.assert_array_equal(ours["pairs"][b, i], rows)
        assert ours["targets"][b, i].tolist() == [*shown["targets"][b, i, slots], *[-1] * (5 - len(slots))]
        assert ours["mask"][b, i].tolist() == [k < len(slots) or padding == "attended" for k in range(5)]


def test_actions_of_sensors_without_goals_are_none():
    assigned = np.array([[[1, 0], [0, 0], [0, 1]]], np.bool_)
    mask = np.array([[[1, 1], [1, 1], [1, 0]]])
    assert executed(np.array([1, 2, 2]), assigned, mask, 1).tolist() == [[1, 0, 0]]
    pairs = np.array([[1, 2], [2, 1], [1, 1]])
    assert executed(pairs, assigned, mask, 2).tolist() == [[1, 0, 0, 2, 0, 0]]
    assert executed(pairs, assigned, mask, 1).tolist() == [[1, 0, 0]]  # further decisions are dropped
    assert executed(np.array([1, 2, 2]), assigned, mask, 3).tolist() == [[1, 0, 0, *[0] * 6]]
    for wrong in (np.array([0, 1]), np.array([0, 1, 3]), np.array([0, -1, 1]), np.zeros(3)):
        with pytest.raises(ValueError, match="it must give 3 numbers 0, 1 or 2"):
            executed(wrong, assigned, mask, 1)


def test_options_out_of_range_are_refused():
    wrong = {"padding": "none", "centring": 1.5, "goal_share": -0.1, "goals_every": 0, "turn_cost": -1}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=rf"{name} is .*; it must be"):
            ExecutorTask(**{name: value})


@pytest.mark.parametrize("action", ["turn", "rate"])
def test_rewards_and_goals_of_a_game_by_hand(action):
    scenario = load_scenario("mate-3v5-2").replace(action=action, zoom_step=20)
    task = ExecutorTask(scenario, 4, 0, turn_cost=0.03, centring=0.5, goals_every=3, opponent="heuristic")
    rng, state, renewed = np.random.default_rng(0), task.simulator.state, 0
    for step in range(1, 8):
        goals, before = task.assigned.copy(), state.heading.copy()
        shares = rng.uniform(-1, 1, (4, 6)) * (rng.random((4, 6)) < 0.7)
        reward = task.step(shares if action == "rate" else rng.integers(0, 3, (4, 6)))
        off = state.target_position[:, None] - state.sensor_position[:, :, None]
        aside = np.degrees(np.arctan2(off[..., 1], off[..., 0])) - state.heading[..., None]
        aside = np.abs((aside + 180) % 360 - 180) / (state.field_of_view[..., None] / 2)
        worth = (np.where(state.visible, 1 - 0.5 * aside, -1) * goals).sum(-1) / np.maximum(goals.sum(-1), 1)
        expected = worth - 0.03 * (state.heading != before)
        np.testing.assert_allclose(task.sensor_rewards(), expected, atol=1e-9)
        np.testing.assert_allclose(reward, expected.mean(1))
        if step % 3 == 0:
            known = task.simulator.known
            off = known.known_position[:, :, :, :2] - state.sensor_position[:, :, None]
            near = (off**2).sum(-1) <= (1500 if scenario.num_sensors <= 4 else 1000) ** 2
            goals, renewed = near & np.isfinite(known.known_age), renewed + 1
        np.testing.assert_array_equal(task.assigned, goals)
    assert renewed == 2
    assert (state.field_of_view != 30).any()


class Alternating:
    """Coordinator that assigns the even targets, or after a call the odd ones, to all sensors."""

    features = ("bearing",)

    def __init__(self):
        self.calls = 0

    def predict(self, observation, deterministic=False):
        self.calls += 1
        assigned = np.zeros(observation["mask"].shape, np.int8)
        assigned[..., self.calls % 2 :: 2] = 1
        return assigned.reshape(len(assigned), -1), None


@pytest.mark.parametrize("name", ["hit-mac", "tilting"])
def test_with_a_coordinator_its_goals_hold_and_the_reward_is_a_part_of_the_coverage(name):
    scenario = load_scenario(name)
    n, m = scenario.num_sensors, scenario.num_targets
    task = ExecutorTask(scenario, 3, seed=0, coordinator=Alternating(), goals_every=4, turn_cost=0.02)
    alone = CoverageTask(scenario, 3, seed=0, turn_cost=n * 0.02)
    for one in (task, alone):
        one.reset(seed=5)
    for step in range(12):
        first = task.assigned[0, 0, 0]
        assert (task.assigned == (first ^ (np.arange(m) % 2 == 1))).all()
        action = np.random.default_rng(step).integers(0, 3, (3, n * len(scenario.decisions)))
        reward = task.step(action)
        alone.step(action)
        np.testing.assert_allclose(task.sensor_rewards(), alone.difference_rewards(), atol=1e-12)
        np.testing.assert_allclose(reward, task.sensor_rewards().mean(-1))
        assert (task.assigned[0, 0, 0] != first) == ((step + 1) % 4 == 0)
