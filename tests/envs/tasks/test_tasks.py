"""HiT-MAC's executor and coordinator tasks: equal to the released program's recordings, and by hand."""

import numpy as np
import pytest

from hitmac.envs import DEFAULT_FEATURES, PAPER_FEATURES, Scenario, load_scenario, presets
from hitmac.envs.tasks import CoordinatorTask, CoverageTask, ExecutorTask


def start(record, tracks):
    return {
        "sensor_position": record["sensor_position"],
        "heading": record["heading0"],
        "target_position": record["target0"],
        "target_moves": tracks,
    }


def assert_same_angles(ours, theirs):
    """Equal but for whole turns: the released program wraps its headings now and then, we never do."""
    np.testing.assert_allclose((ours - theirs + 180) % 360, 180, atol=1e-9)


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


def test_the_coordinator_task_is_the_released_programs(trajectories):
    record = trajectories("hitmac_coordinator_trajectories.npz")
    episodes = len(record["reward"])
    task = CoordinatorTask(num_envs=episodes, seed=0)
    task.reset(options=start(record, record["target_moves"].reshape(episodes, -1, 5, 2)))
    np.testing.assert_allclose(task.observe()["pairs"], record["obs0"], atol=1e-6)
    for decision in range(101):
        action = record["action"][:, decision].reshape(episodes, -1)
        reward = task.step(action)
        assert_same_angles(task.simulator.state.heading, record["headings"][:, decision, -1])
        np.testing.assert_allclose(task.sub_rewards, record["sub_reward"][:, decision], atol=1e-9)
        np.testing.assert_allclose(reward, record["reward"][:, decision], atol=1e-9)
        np.testing.assert_allclose(task.simulator.coverage, record["coverage"][:, decision])
        np.testing.assert_allclose(task.info()["turned"], record["cost"][:, decision])
        np.testing.assert_allclose(task.observe()["pairs"], record["obs"][:, decision], atol=1e-6)
        assert (task.time >= 101).tolist() == record["done"][:, decision].tolist()


ONE = Scenario(num_sensors=1, num_targets=2, start_heading="target", extra_move_every=0)
ALIVE = Scenario(
    name="alive", walk="evade", wander=20, failure_rate=0.1, recovery_rate=0.3, leave_rate=0.1, return_rate=0.3,
    position_noise=20, missed_detections=0.2, min_sensors=2, min_targets=2,
)  # fmt: skip


def placed(task, heading, targets, tracks=None):
    options = {"sensor_position": [(0, 0)], "heading": [heading], "target_position": targets}
    task.reset(options=options | {"target_moves": [targets] * 400 if tracks is None else tracks})
    return task


def test_executor_rewards_by_hand():
    task = placed(ExecutorTask(ONE), 0, [(500, 0), (0, 500)])
    assert task.step([[0]]) == pytest.approx((1 - 1) / 2)  # in the middle of the view; not seen
    assert task.step([[1]]) == pytest.approx((1 - 5 / 45 - 1) / 2 - 0.01)
    for _ in range(3):
        task.step([[1]])
    assert task.step([[0]]) == pytest.approx((1 - 20 / 45 - 1) / 2)
    assert ExecutorTask(ONE, turn_cost=0.5).turn_cost == 0.5
    task = placed(ExecutorTask(ONE, centring=0.3), 0, [(500, 0), (0, 500)])
    assert task.step([[1]]) == pytest.approx((1 - 0.3 * 5 / 45 - 1) / 2 - 0.01)


def test_executor_goals_are_what_is_in_range_at_every_tenth_step():
    task = placed(ExecutorTask(ONE), 0, [(500, 0), (900, 0)])
    for _ in range(9):
        task.step([[0]])
    assert task.assigned.tolist() == [[[True, True]]]
    assert task.step([[0]]) == pytest.approx((1 - 1) / 2)  # the reward is still for the old goals
    assert task.assigned.tolist() == [[[True, False]]]
    assert task.step([[0]]) == pytest.approx(1)
    task.reset()
    assert task.assigned.all()


def test_a_share_of_what_is_in_range_becomes_goals():
    task = ExecutorTask("hit-mac", 500, 0, goals_every=1, goal_share=0.7)
    task.step(np.zeros((500, 4), int))
    s = task.simulator.state
    distance = np.linalg.norm(s.target_position[:, None] - s.sensor_position[:, :, None], axis=-1)
    in_range = distance <= 800
    assert not task.assigned[~in_range].any()
    assert abs(task.assigned[in_range].mean() - 0.7) < 0.03
    before = task.assigned.copy()
    task.step(np.zeros((500, 4), int))
    assert (before != task.assigned)[in_range].mean() > 0.2  # drawn anew
    nothing = ExecutorTask("hit-mac", 2, 0, goals_every=1, goal_share=0)
    nothing.step(np.zeros((2, 4), int))
    assert not nothing.assigned.any()


def test_packing_and_padding():
    task = placed(ExecutorTask(ONE, features=DEFAULT_FEATURES), 0, [(900, 0), (500, 0)])
    for _ in range(10):
        task.step([[0]])
    whole = task.observer.observe(task.simulator)["pairs"]
    shown = task.observe()
    np.testing.assert_array_equal(shown["pairs"][0, 0, 0], whole[0, 0, 1])
    assert not shown["pairs"][0, 0, 1].any()
    assert shown["mask"].tolist() == [[[1, 1]]]
    task.padding = "masked"
    assert task.observe()["mask"].tolist() == [[[1, 0]]]


@pytest.mark.parametrize(
    ("bearing", "turned"), [(0.1, 0), (4.9, 0), (5.1, 5), (60, 5), (-0.1, -5), (-60, -5), (179, 5), (-179, -5)]
)
def test_the_scripted_executor_by_hand(bearing, turned):
    task = CoordinatorTask(ONE, decision=1)
    place = 300 * np.cos(np.radians(bearing + 30)), 300 * np.sin(np.radians(bearing + 30))
    placed(task, 30, [place, (900, 900)])
    task.step([[1, 0]])
    assert task.simulator.state.heading[0, 0] - 30 == pytest.approx(turned)


def test_the_scripted_executor_turns_to_the_mean():
    task = placed(CoordinatorTask(ONE, decision=4), 0, [(300, 300), (-300, 300)])
    task.step([[1, 1]])
    assert task.simulator.state.heading[0, 0] == pytest.approx(20)
    assert task.info()["turned"] == 1


def test_the_penalty_for_seeing_nothing_assigned():
    task = placed(CoordinatorTask(ONE), 0, [(500, 0), (0, 900)])
    assert task.step([[1, 0]]) == pytest.approx(0.5)  # the first is seen
    task = placed(CoordinatorTask(ONE), 0, [(500, 0), (499, 1)])
    assert task.step([[0, 0]]).item() == pytest.approx(-0.1)  # all is seen and nothing assigned
    assert task.sub_rewards.tolist() == [[-0.1] * 10]


def test_idle_sensors():
    holding = placed(CoordinatorTask(ONE, idle="hold"), 0, [(500, 0), (0, 900)])
    holding.step([[0, 0]])
    assert holding.simulator.state.heading[0, 0] == 0
    turning = CoordinatorTask("hit-mac", 200, 0)
    before = turning.simulator.state.heading.copy()
    turned = np.zeros(200)
    for _ in range(5):
        turning.step(np.zeros((200, 20), int))
        turned += turning.turned
    assert abs(turned.mean() / 5 / 10 / 4 - 2 / 3) < 0.01
    assert abs((turning.simulator.state.heading - before).mean()) < 2


def test_a_sensor_whose_targets_have_left_is_idle():
    task = placed(CoordinatorTask(ONE.replace(leave_rate=1), idle="hold", decision=2), 0, [(0, 500), (0, 600)])
    task.step([[1, 1]])  # all leave before the first turn is made; it is decided before
    assert task.simulator.state.heading.item() == 5
    turning = CoordinatorTask(ONE.replace(leave_rate=1), 1, 0, idle="random", decision=60)
    turning.step([[1, 1]])
    assert 20 < turning.info()["turned"] * 60 < 58  # about two thirds of the sub-steps


def test_a_failed_sensor_has_no_reward():
    task = placed(ExecutorTask(ONE.replace(failure_rate=1)), 0, [(500, 0), (0, 500)])
    assert task.step([[1]]) == 0
    assert task.rewards.tolist() == [[0.0]]


class Still:
    """An executor that turns no sensor."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.zeros(len(observation["pairs"]), int), None


@pytest.mark.parametrize("every", [None, 0, 3, 10])
@pytest.mark.parametrize("decision", [1, 7, 10])
@pytest.mark.parametrize(
    "scenario",
    [*(name for name in presets() if name != "city"), ALIVE],
    ids=lambda scenario: getattr(scenario, "name", scenario),
)
def test_a_decision_is_its_sub_steps(scenario, decision, every):
    """Extra moves, comings and goings, every number drawn: the coordinator's task is trained on what is evaluated."""
    scenario = load_scenario(scenario)
    scenario = scenario if every is None else scenario.replace(extra_move_every=every)
    flat = CoverageTask(scenario, 3, 8, features=DEFAULT_FEATURES)
    options = {"decision": decision, "idle": "hold"}
    still = CoordinatorTask(scenario, 3, 8, features=DEFAULT_FEATURES, executor=Still(), **options)
    scripted = CoordinatorTask(scenario, 3, 8, **options)
    for step in range(24 // decision):
        if step == 2:
            for task in (flat, still, scripted):
                task.reset(mask=np.array([True, False, True]))
        still.step(np.ones((3, *still.action_space.shape), int))
        scripted.step(np.ones((3, *still.action_space.shape), int))
        for _ in range(decision):
            flat.step(np.zeros((3, *flat.action_space.shape), int))
        np.testing.assert_equal(still.simulator.get_state(), flat.simulator.get_state())
        np.testing.assert_equal(still.observe(), flat.observe())
        if scenario.walk != "evade":  # which the turns of the sensors change
            for name in ("target_position", "velocity", "draws", "present"):
                theirs = getattr(scripted.simulator.state, name)
                np.testing.assert_array_equal(theirs, getattr(flat.simulator.state, name), err_msg=name)


def test_an_executor_looks_after_the_extra_move():
    tracks = np.zeros((22, 2, 2))
    tracks[:, 0, 0] = np.arange(22)
    seen = []

    class Watching(Still):
        def predict(self, observation, **options):
            seen.append(observation["pairs"][0, 0, 0] * 2000)
            return super().predict(observation)

    task = CoordinatorTask(ONE.replace(extra_move_every=3), executor=Watching(), executor_features=("distance",))
    placed(task, 0, [(0, 0), (1, 1)], tracks)
    task.step([[1, 0]])
    np.testing.assert_allclose(seen, [0, 1, 2, 4, 5, 6, 8, 9, 10, 12], atol=1e-4)


def test_a_decision_of_the_paper_moves_the_targets_eleven_times():
    tracks = np.zeros((22, 2, 2))
    tracks[:, 0, 0] = np.arange(22)
    task = placed(CoordinatorTask(ONE.replace(extra_move_every=10)), 0, [(0, 0), (1, 1)], tracks)
    task.step([[1, 0]])
    assert task.simulator.state.target_position[0, 0, 0] == 10
    assert task.time.tolist() == [1]
    assert not task.simulator.track_ended.any()
    task.step([[1, 0]])
    assert task.simulator.track_ended.all()


class Towards:
    """The scripted executor again, as a policy that sees only the packed rows of its own targets."""

    def __init__(self):
        self.calls = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.calls.append({key: value.copy() for key, value in observation.items()})
        pairs, mask = observation["pairs"], observation["mask"].astype(bool)
        sine, cosine, distance = np.moveaxis(pairs.astype(np.float64), -1, 0)
        bearing = np.degrees(
            np.arctan2((sine * distance * mask).sum(-1), (cosine * distance * mask).sum(-1))
        )  # of the mean position, as seen from the sensor
        return np.array([0, 1, 2])[np.clip(np.floor(bearing / 5), -1, 1).astype(int)], None


def test_a_policy_as_executor_is_called_in_one_batch():
    policy = Towards()
    features = ("bearing_sin", "bearing_cos", "distance")
    ours = CoordinatorTask("hit-mac", 30, 7, executor=policy, executor_features=features, padding="masked")
    scripted = CoordinatorTask("hit-mac", 30, 7)
    rng = np.random.default_rng(0)
    for _ in range(5):
        action = rng.integers(0, 2, (30, 20))
        action[:, ::5] = 1  # nobody is idle
        np.testing.assert_allclose(ours.step(action), scripted.step(action), atol=1e-9)
    assert len(policy.calls) == 50
    assert policy.calls[0]["pairs"].shape == (120, 5, 3)
    np.testing.assert_array_equal(ours.simulator.state.heading, scripted.simulator.state.heading)


def test_the_rows_of_an_executor_are_numbered():
    class Looker:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            self.seen = observation
            return np.zeros(len(observation["pairs"]), int), None

    looker = Looker()
    task = CoordinatorTask("hit-mac", 1, 0, executor=looker)
    action = np.zeros((4, 5), int)
    action[2, [1, 4]] = 1
    task.step(action.reshape(1, -1))
    rows = looker.seen["pairs"][2]
    np.testing.assert_allclose(rows[:3, :2], [[0.5, 0], [0.5, 0.2], [0, 0]])
    assert looker.seen["mask"].all()


def test_an_executor_that_answers_wrongly_is_named():
    class Wrong:
        def predict(self, *arguments, **options):
            return np.array([5]), None

    with pytest.raises(ValueError, match="it must give 4 numbers 0, 1 or 2"):
        CoordinatorTask("hit-mac", 1, 0, executor=Wrong()).step(np.ones((1, 20), int))


@pytest.mark.parametrize("task", [CoverageTask, ExecutorTask, CoordinatorTask])
def test_a_batch_is_its_single_scenes(task):
    batch = task(num_envs=300, seed=50, num_threads=2)
    singles = {b: task(num_envs=1, seed=50 + b) for b in (0, 150, 299)}
    rng = np.random.default_rng(0)
    for step in range(25):
        action = rng.integers(0, 2, (300, *batch.action_space.shape))
        rewards = batch.step(action)
        for b, single in singles.items():
            assert single.step(action[b : b + 1]) == rewards[b : b + 1]
        if step == 11:
            mask = np.arange(300) % 2 == 0
            batch.reset(mask=mask)
            for b, single in singles.items():
                if mask[b]:
                    single.reset()
        shown, info = batch.observe(), batch.info()
        for b, single in singles.items():
            np.testing.assert_equal({k: v[b] for k, v in shown.items()}, {k: v[0] for k, v in single.observe().items()})
            np.testing.assert_equal({k: v[b] for k, v in info.items()}, {k: v[0] for k, v in single.info().items()})


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: ExecutorTask(padding="none"), "padding is 'none'; it must be one of attended, masked, unfiltered"),
        (lambda: ExecutorTask(centring=1.5), "centring is 1.5; it must be 0 to 1"),
        (lambda: ExecutorTask(centring=float("nan")), "centring is nan"),
        (lambda: ExecutorTask(goal_share=-0.1), "goal_share is -0.1; it must be 0 to 1"),
        (lambda: ExecutorTask(goals_every=0), "goals_every is 0"),
        (lambda: CoordinatorTask(executor="clever"), "executor is 'clever'; it must be 'scripted' or a policy"),
        (lambda: CoordinatorTask(idle="sleep"), "idle is 'sleep'; it must be random or hold"),
        (lambda: CoordinatorTask(decision=0), "decision is 0"),
        (lambda: CoordinatorTask().step(np.full((1, 20), 2)), "action holds 2; it must be 0 or 1"),
        (lambda: CoordinatorTask().step(np.ones((1, 4, 5), int)), r"it must have shape \(1, 20\)"),
        (lambda: CoverageTask().reset(options={"colour": 1}), "unknown place 'colour': known are sensor_position"),
        (lambda: CoverageTask().reset(options={"target_tracks": np.zeros((3, 4, 2))}), "target_tracks has shape"),
        (lambda: CoverageTask().reset(options={"target_tracks": np.zeros((0, 5, 2))}), "target_tracks has shape"),
        (lambda: CoverageTask().reset(options={"target_tracks": np.full((3, 5, 2), 2e3)}), "the arena is"),
        (lambda: CoverageTask().reset(options={"target_tracks": np.full((3, 5, 2), np.inf)}), "must be finite"),
    ],
)
def test_bad_input(build, says):
    with pytest.raises((TypeError, ValueError), match=says):
        build()


def test_the_papers_features_are_the_default_of_its_tasks():
    assert ExecutorTask().observer.features == CoordinatorTask().observer.features == PAPER_FEATURES
