"""Stable-Baselines3 environments: equal to the single environments, with a row for a scene or for a sensor."""

import copy

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import SAC
from stable_baselines3.common.vec_env import VecMonitor

from hitmac.envs.tasks import CoverageTask
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from tests.envs.scenes import BY_RATE


def test_scenes_are_those_of_the_vector_environment():
    venv, returns = DirectionalSensorVecEnv("Coverage", 3, max_episode_steps=6), np.zeros(3)
    vector = gymnasium.make_vec("dsn/Coverage-v0", num_envs=3, max_episode_steps=6, autoreset_mode="SameStep")
    venv.seed(20)
    np.testing.assert_equal(venv.reset(), vector.reset(seed=20)[0])
    rng = np.random.default_rng(0)
    for step in range(1, 15):
        action = rng.integers(0, 3, (3, 4))
        observation, rewards, dones, infos = venv.step(action)
        shown, reward, _, truncated, info = vector.step(action)
        np.testing.assert_equal((observation, rewards), (shown, np.float32(reward)))
        returns += reward
        last = info.get("final_info", info)
        for b, own in enumerate(infos):
            assert dones[b] == truncated[b] == own["TimeLimit.truncated"] == (step % 6 == 0)
            for name in ("coverage", "turned", "visible"):
                np.testing.assert_equal(own[name], last[name][b])
            if dones[b]:
                np.testing.assert_equal(own["terminal_observation"], info["final_obs"][b])
                assert (own["episode"]["r"], own["episode"]["l"]) == (pytest.approx(returns[b]), 6)
        returns *= step % 6 > 0


def test_a_row_for_every_sensor():
    """The end of an episode; the steps are tested with PettingZoo's environment."""
    joint, rows = (DirectionalSensorVecEnv("Executor", 3, max_episode_steps=4, per_sensor=own) for own in (False, True))
    joint.seed(5)
    rows.seed(5)
    joint.reset()
    assert rows.observation_space.contains({key: value[7] for key, value in rows.reset().items()})
    assert (rows.num_envs, rows.action_space) == (12, gymnasium.spaces.Discrete(3))
    rng, returns = np.random.default_rng(0), np.zeros(12)
    for step in range(1, 10):
        action = rng.integers(0, 3, (3, 4))
        _, _, dones, infos = joint.step(action)
        _, _, row_dones, row_infos = rows.step(action.ravel())
        assert row_dones.tolist() == np.repeat(dones, 4).tolist() == [step % 4 == 0] * 12
        returns += np.ravel([info["rewards"] for info in infos])
        for row in np.flatnonzero(row_dones):
            last = infos[row // 4]["terminal_observation"]["pairs"][row % 4]
            np.testing.assert_array_equal(row_infos[row]["terminal_observation"]["pairs"], last)
            assert row_infos[row]["episode"]["r"] == pytest.approx(returns[row])
        returns[row_dones] = 0


@pytest.mark.parametrize(("task", "per_sensor", "credit"), [
    ("Coverage", False, "team"), ("Coverage", False, "difference_rewards"), ("Coverage", True, "difference_rewards"),
    ("Transport", True, "team"),
])  # fmt: skip
def test_a_held_action_is_as_many_steps_and_ends_with_the_episode(task, per_sensor, credit):
    """Of 8 sub-steps: three, three and two."""
    scenario = "mate-2v4-0" if task == "Transport" else "hit-mac"
    options = {"max_episode_steps": 8, "per_sensor": per_sensor, "credit": credit}
    single, held = (DirectionalSensorVecEnv(task, 3, scenario, frame_skip=skip, **options) for skip in (1, 3))
    for venv in (single, held):
        venv.seed(4)
        venv.reset()
    single.action_space.seed(0)
    for _ in range(2):
        for number in (3, 3, 2):
            action = np.stack([single.action_space.sample() for _ in range(single.num_envs)])
            *_, (shown, _, dones, infos) = steps = [single.step(action) for _ in range(number)]
            observation, reward, held_dones, held_infos = held.step(action)
            np.testing.assert_equal(observation, shown)
            np.testing.assert_allclose(reward, sum(one[1] for one in steps) / number, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(held_dones, dones)
            assert dones.all() == (number == 2)
            for own, info in zip(held_infos, infos, strict=True):
                assert own.keys() == info.keys()
                if "episode" in info:
                    assert own["episode"]["r"] == pytest.approx(info["episode"]["r"])
                    assert own["episode"]["l"] == info["episode"]["l"] == 8
    with pytest.raises(ValueError, match="frame_skip is 0; it must be a whole number, 1 or more"):
        DirectionalSensorVecEnv(task, frame_skip=0)


def test_staggered_scenes_end_one_after_another():
    venv = DirectionalSensorVecEnv("Coverage", 4, max_episode_steps=8, stagger=True)
    venv.reset()
    assert not venv.task.time.any()  # episodes begin as any others, as for the rules of a game
    ends, lengths = [], []
    for _ in range(16):
        _, _, dones, infos = venv.step(np.zeros((4, 4), int))
        ends.append(np.flatnonzero(dones).tolist())
        lengths += [info["episode"]["l"] for info in infos if "episode" in info]
    assert ends == [[], [3], [], [2], [], [1], [], [0]] * 2
    assert lengths == [2, 4, 6, 8, 8, 8, 8, 8]


def test_with_end_infos_only_ended_scenes_have_one():
    short, whole = (DirectionalSensorVecEnv("Coverage", 4, max_episode_steps=3, end_infos=own) for own in (True, False))
    for venv in (short, whole):
        venv.seed(3)
        venv.reset()
    for _ in range(6):
        found, expected = (venv.step(np.zeros((4, 4), int)) for venv in (short, whole))
        np.testing.assert_array_equal(found[2], expected[2])
        for done, own, info in zip(found[2], found[3], expected[3], strict=True):
            assert own.keys() == ({"terminal_observation", "TimeLimit.truncated", "episode"} if done else set())
            for name, value in own.items():
                if name != "episode":  # holds seconds
                    np.testing.assert_equal(value, info[name])


def test_sac_learns_rates():
    venv = DirectionalSensorVecEnv("Coverage", 2, BY_RATE, 0, max_episode_steps=5)
    small = {"learning_starts": 4, "batch_size": 4, "buffer_size": 20, "policy_kwargs": {"net_arch": [4]}}
    model = SAC("MultiInputPolicy", venv, **small)
    before = [parameter.clone() for parameter in model.actor.parameters()]
    model.learn(20)
    assert any((one != other).any() for one, other in zip(before, model.actor.parameters(), strict=True))
    rates = model.predict(venv.reset())[0]
    assert (rates.shape, rates.dtype) == ((2, 4), np.float32)
    venv.step(np.ones((2, 4), np.float32))
    assert (venv.task.simulator.get_state()["commands"][:, 0] == 45).all()


def test_the_other_calls_of_a_vec_env():
    venv = DirectionalSensorVecEnv("Coverage", 3)
    venv.set_attr("note", 1)
    assert venv.get_attr("note", [2, 0]) == [1, 1]
    assert venv.env_is_wrapped(gymnasium.Wrapper) == [False] * 3
    venv.set_options([{"heading": np.full(4, 10 * b)} for b in range(3)])
    returned = venv.reset()
    assert venv.task.simulator.state.heading.tolist() == [[10 * b] * 4 for b in range(3)]
    copies = copy.deepcopy(returned)
    plain = DirectionalSensorVecEnv("Coverage", 3)
    plain.seed(5)
    plain.reset()
    for rows in (1, 4):  # a row for each scene, or for each sensor
        mixed = DirectionalSensorVecEnv("Coverage", 3, per_sensor=rows > 1)
        mixed.seed(5)
        own = [{}, {"heading": np.full(4, 30.0)}, {"target_position": np.zeros((5, 2))}]
        mixed.set_options([own[row // rows] for row in range(3 * rows)])
        mixed.reset()
        state, other = mixed.task.simulator.state, plain.task.simulator.state
        assert state.heading[1].tolist() == [30.0] * 4
        assert not state.target_position[2].any()
        np.testing.assert_array_equal(state.heading[[0, 2]], other.heading[[0, 2]])
        np.testing.assert_array_equal(state.target_position[:2], other.target_position[:2])
    venv.step(np.ones((3, 4), int))
    np.testing.assert_equal(returned, copies)
    assert venv.get_images() == [None] * 3


class OwnReward(CoverageTask):
    """Task with a reward of its own, of which no part is any sensor's."""

    def step(self, *args, **options):
        return super().step(*args, **options) ** 2


def test_wrong_use_is_refused():
    venv, credit = DirectionalSensorVecEnv("Coverage", 2, per_sensor=True), {"credit": "difference_rewards"}
    venv.reset()
    for call, says in (
        (lambda: venv.set_attr("note", 1, [0]), "cannot be set for"),
        (lambda: venv.env_method("fly"), "have no method 'fly'"),
        (lambda: venv.step(np.zeros((2, 4), int)), r"action has shape \(2, 4\); it must have shape \(8,\)"),
        (lambda: DirectionalSensorVecEnv("Coverage", credit="tea"), "credit is 'tea'; it must be team"),
        (lambda: DirectionalSensorVecEnv(OwnReward, credit="difference_rewards"), "has no difference rewards"),
        (lambda: DirectionalSensorVecEnv("Coordinator", per_sensor=True), "decides for all sensors at once"),
        (lambda: VecMonitor(DirectionalSensorVecEnv("Coverage", **credit)), "for VecMonitor .* it must be 'team'"),
    ):
        with pytest.raises((ValueError, AttributeError), match=says):
            call()
