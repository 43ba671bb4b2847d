"""HiT-MAC's coordinator task: equal to the released program's recordings, and by hand."""

import numpy as np
import pytest

from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.planning.levels import AssignAll, ScriptedExecutor
from hitmac.envs import DEFAULT_FEATURES, Scenario, load_scenario
from hitmac.envs.tasks import CoordinatorTask, CoverageTask
from tests.envs.tasks.released import ONE, assert_same_angles, placed, start

ALIVE = Scenario(
    name="alive", walk="evade", wander=20, failure_rate=0.1, recovery_rate=0.3, leave_rate=0.1, return_rate=0.3,
    position_noise=20, missed_detections=0.2, min_sensors=2, min_targets=2,
)  # fmt: skip


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
        assert (task.simulator.track_ended == (decision == 100)).all()  # after eleven moves in each decision


@pytest.mark.parametrize(
    ("bearing", "turned"), [(0.1, 0), (4.9, 0), (5.1, 5), (60, 5), (-0.1, -5), (-60, -5), (179, 5), (-179, -5)]
)
def test_the_scripted_executor_by_hand(bearing, turned):
    task = CoordinatorTask(ONE, decision=1)
    place = 300 * np.cos(np.radians(bearing + 30)), 300 * np.sin(np.radians(bearing + 30))
    placed(task, 30, [place, (900, 900)])
    task.step([[1, 0]])
    assert task.simulator.state.heading[0, 0] - 30 == pytest.approx(turned)


def test_the_scripted_executor_turns_to_the_mean_of_those_present():
    task = placed(CoordinatorTask(ONE, decision=4), 0, [(300, 300), (-300, 300)])
    task.step([[1, 1]])
    assert (task.simulator.state.heading.item(), task.info()["turned"]) == (pytest.approx(20), 1)
    task = placed(CoordinatorTask(ONE.replace(leave_rate=1), idle="hold", decision=2), 0, [(0, 500), (0, 600)])
    task.step([[1, 1]])  # both leave at the end of the first sub-step
    assert task.simulator.state.heading.item() == 5
    task = placed(CoordinatorTask(ONE, decision=1), 0, [(300, -300), (-300, 900)])
    task.simulator.state.present[0, 1] = False
    task.step([[1, 1]])
    assert task.simulator.state.heading.item() == -5


def test_idle_sensors_turn_at_random():
    turning = CoordinatorTask("hit-mac", 200, 0)
    before = turning.simulator.state.heading.copy()
    turned = 0
    for _ in range(5):
        turning.step(np.zeros((200, 20), int))
        turned += turning.turned.mean()
    assert abs(turned / 5 / 10 / 4 - 2 / 3) < 0.01
    assert abs((turning.simulator.state.heading - before).mean()) < 2


class Still:
    """Executor that turns no sensor."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.seen = observation
        return np.zeros(len(observation["pairs"]), int), None


@pytest.mark.parametrize(
    ("scenario", "decision", "every"),
    [
        (ALIVE, 1, 3), (ALIVE, 7, 10), (ALIVE, 10, 0), ("hit-mac", 7, 10), ("hit-mac", 10, 3), ("obstacles", 10, 10),
        pytest.param("football-4", 7, 3, marks=pytest.mark.slow), ("mixed", 1, 10), ("large-6x9", 7, 3),
    ],
)  # fmt: skip
def test_a_decision_is_its_sub_steps(scenario, decision, every):
    """Extra moves, comings and goings, every number drawn: the coordinator is trained on what is evaluated."""
    scenario = load_scenario(scenario).replace(extra_move_every=every)
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
        for k in range(decision):
            flat.step(np.zeros((3, *flat.action_space.shape), int))
            seen = flat.simulator.state.visible.any((1, 2))
            np.testing.assert_array_equal(still.sub_rewards[:, k], np.where(seen, flat.simulator.coverage, -0.1))
        np.testing.assert_equal(still.simulator.get_state(), flat.simulator.get_state())
        np.testing.assert_equal(still.observe(), flat.observe())
        if scenario.walk != "evade":  # which the turns of the sensors change
            for name in ("target_position", "velocity", "draws", "present"):
                states = [getattr(task.simulator.state, name) for task in (scripted, flat)]
                np.testing.assert_array_equal(*states, err_msg=name)


def test_the_state_of_an_executor_is_carried_and_starts_with_each_episode():
    calls = []

    class Recurrent(Still):
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            calls.append((state, None if episode_start is None else episode_start.tolist()))
            return np.zeros(len(observation["pairs"]), int), len(calls)

    task = CoordinatorTask("hit-mac-2x2", 2, 0, executor=Recurrent(), decision=2)
    task.step(np.ones((2, 4), int))
    task.reset(mask=np.array([False, True]))
    task.step(np.ones((2, 4), int))
    assert calls == [(None, None), (1, [False] * 4), (2, [False, False, True, True]), (3, [False] * 4)]


class Counting(Still):
    """Executor that turns to the left in every third step of an episode, by its memory."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        count = np.zeros(len(observation["pairs"]), int) if state is None else state[0] + 1
        if episode_start is not None:
            count[episode_start] = 0
        return (count % 3 == 2).astype(int), (count,)


@pytest.mark.parametrize("scenario", ["hit-mac-2x2", "mate-2v4-0"])
def test_the_memory_of_an_executor_waits_with_its_scene(scenario):
    """Scenes that are played in turns, also from the first decision on, are as alone."""
    scenario = load_scenario(scenario).replace(knowledge="full")
    options = {"executor": Counting(), "decision": 2, "idle": "hold"}
    batch, *alone = (CoordinatorTask(scenario, number, seed, **options) for number, seed in ((2, 5), (1, 5), (1, 6)))
    action = np.ones((2, *batch.action_space.shape), int)
    for step in range(7):
        plays = np.array([step % 3 != 2, step % 2 == 1])
        if step == 5:
            batch.reset(mask=~plays)
            alone[0].reset()
        batch.step(action, plays)
        for scene in np.flatnonzero(plays):
            alone[scene].step(action[:1])
        for scene in range(2):
            np.testing.assert_array_equal(
                batch.simulator.state.heading[scene], alone[scene].simulator.state.heading[0], err_msg=f"{step}"
            )


def test_options_and_actions_out_of_range_are_refused():
    wrong = {"executor": "clever", "idle": "sleep", "decision": 0}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name} is {value!r}; it must be "):
            CoordinatorTask(**{name: value})
    with pytest.raises(ValueError, match="action holds 2; it must be 0 or 1"):
        CoordinatorTask().step(np.full((1, 20), 2))
    with pytest.raises(TypeError, match="it must be whole numbers, 0 or 1"):
        CoordinatorTask().step(np.full((1, 20), 0.5))
    CoordinatorTask().step(np.ones((1, 20), np.float32))  # as of torch's Bernoulli


class Halves:
    """Executor that turns and narrows by half of the highest rates, towards the first row."""

    features = ("bearing",)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.sign(observation["pairs"][:, 0, :1]) * [0.5, -0.5], None


@pytest.mark.parametrize("executor", ["scripted", ScriptedExecutor(), Halves()], ids=["kernel", "steps", "shares"])
def test_a_decision_of_a_game_is_its_sub_steps(executor):
    """Scenes are as alone, and as in the coverage task with the same levels as an agent."""
    shares = isinstance(executor, Halves)
    scenario = load_scenario("mate-3v5-2").replace(action="rate" if shares else "turn")
    options = {"executor": executor, "idle": "hold", "decision": 4, "opponent": "heuristic"}
    options["padding"] = padding = "attended" if shares else "masked"
    batch, alone = CoordinatorTask(scenario, 3, 5, **options), CoordinatorTask(scenario, 1, 6, **options)
    level = ScriptedExecutor() if executor == "scripted" else executor
    levels = LevelPolicy(Half(), ("distance",)), LevelPolicy(level, level.features, padding)
    agent, state, low, turned = HierarchicalAgent(scenario, *levels, idle="hold", decision=4), None, False, 0
    task = CoverageTask(scenario, 3, 5, features=agent.features, opponent="heuristic")
    for _ in range(10):
        chosen = Half().act(None, batch.observe()["mask"])
        reward = batch.step(chosen)
        turned += batch.info()["turned"].sum()
        assert reward[1] == alone.step(chosen[1:2])[0]
        for k in range(4):
            action, state = agent.predict(task.observe(), state)
            task.step(action)
            seen = (task.simulator.state.visible & state.assigned).any((1, 2))
            low |= not seen.all()
            np.testing.assert_array_equal(batch.sub_rewards[:, k], np.where(seen, task.simulator.coverage, -0.1))
    assert low
    assert turned
    np.testing.assert_equal(batch.simulator.get_state(), task.simulator.get_state())
    np.testing.assert_array_equal(alone.observe()["pairs"], batch.observe()["pairs"][1:2])


class Half(AssignAll):
    """Coordinator that assigns the first targets to the first sensor, the others to the last."""

    def act(self, pairs, mask):
        _, n, m = mask.shape
        chosen = np.zeros(mask.shape, np.int8)
        chosen[:, 0, : m // 2], chosen[:, n - 1, m // 2 :] = 1, 1
        return chosen.reshape(len(mask), -1)


def test_in_a_decision_of_the_paper_the_targets_move_eleven_times():
    tracks = np.zeros((22, 2, 2))
    tracks[:, 0, 0] = np.arange(22)
    task = placed(CoordinatorTask(ONE.replace(extra_move_every=10)), 0, [(0, 0), (1, 1)], tracks)
    for moved, ended in ((10, False), (21, True)):
        task.step([[1, 0]])
        assert task.simulator.state.target_position[0, 0, 0] == moved
        assert task.simulator.track_ended.item() is ended
    assert task.time.tolist() == [2]


class Towards(Still):
    """The scripted executor as a policy that observes only the packed rows of its own targets."""

    calls = 0

    def predict(self, observation, **options):
        self.calls += 1
        super().predict(observation)
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
    for action in np.random.default_rng(0).integers(0, 2, (5, 30, 20)):
        action[:, ::5] = 1  # no sensor is idle
        np.testing.assert_allclose(ours.step(action), scripted.step(action), atol=1e-9)
    assert (policy.calls, policy.seen["pairs"].shape) == (50, (120, 5, 3))
    np.testing.assert_array_equal(ours.simulator.state.heading, scripted.simulator.state.heading)
