"""The shells: gymnasium single and vector, Stable-Baselines3."""

import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from hitmac import envs
from hitmac.envs.tasks import CoordinatorTask
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from hitmac.envs.wrappers.vector_env import DirectionalSensorVectorEnv

ID = "dsn/Coverage-v0"
IDS = [ID, "dsn/Executor-v0", "dsn/Coordinator-v0"]
DISABLED = AutoresetMode.DISABLED


def make(env_id=ID, **options):
    return gymnasium.make(env_id, **options)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("features", [envs.DEFAULT_FEATURES, envs.PAPER_FEATURES, tuple(envs.FEATURES)])
def test_api_checkers(env_id, features):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(env_id, render_mode="rgb_array", features=features).unwrapped)
        # Stable-Baselines3 takes every array of three axes for an image that should be uint8 and large.
        warnings.filterwarnings("ignore", message="It seems that your observation pairs is an image")
        warnings.filterwarnings("ignore", message="The minimal resolution for an image")
        warnings.filterwarnings("ignore", message="It seems that your observation space pairs is an image")
        check_env_for_sb3(make(env_id, features=features))


def test_reward_and_info():
    env = make(turn_cost=0.1)
    env.reset(seed=0)
    for action in ([0, 0, 0, 0], [1, 2, 1, 0], [1, 1, 2, 2]):
        _, reward, terminated, truncated, info = env.step(np.array(action))
        turned = np.count_nonzero(action)
        assert info["turned"] == turned
        assert info["coverage"] == info["visible"].mean()
        assert reward == pytest.approx(info["coverage"] - 0.1 * turned / 4)
        assert not terminated
        assert not truncated


@pytest.mark.parametrize(("options", "length"), [({}, 1010), ({"max_episode_steps": 7}, 7)])
def test_episodes_are_truncated(options, length):
    single, vector = make(**options), gymnasium.make_vec(ID, num_envs=2, **options)
    single.reset(seed=0)
    vector.reset(seed=0)
    for step in range(1, length + 1):
        _, _, terminated, truncated, _ = single.step(np.zeros(4, int))
        assert (terminated, truncated) == (False, step == length)
        _, _, terminations, truncations, _ = vector.step(np.zeros((2, 4), int))
        assert not terminations.any()
        assert (truncations == (step == length)).all()


def test_an_episode_can_be_longer_than_the_papers():
    env = make(max_episode_steps=1200)
    env.reset(seed=0)
    truncations = [env.step(np.zeros(4, int))[3] for _ in range(1200)]
    assert truncations.index(True) == 1199


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_native_vector_is_gymnasiums_vector_of_singles(env_id, mode):
    """Every return value equals that of gymnasium's own SyncVectorEnv, across several episode ends."""
    native = gymnasium.make_vec(env_id, num_envs=3, max_episode_steps=5, autoreset_mode=mode)
    reference = SyncVectorEnv([lambda: make(env_id, max_episode_steps=5)] * 3, autoreset_mode=mode)
    native.action_space.seed(0)
    same(native.reset(seed=11), reference.reset(seed=11))
    ended = np.zeros(3, bool)
    for step in range(23):
        if mode is DISABLED and ended.any():
            same(native.reset(options={"reset_mask": ended}), reference.reset(options={"reset_mask": ended.copy()}))
        if mode is DISABLED and step == 2:  # from here on the scenes end at different times
            mask = np.array([True, False, False])
            same(native.reset(options={"reset_mask": mask}), reference.reset(options={"reset_mask": mask}))
        action = native.action_space.sample()
        ours, theirs = native.step(action), reference.step(action)
        same(ours, theirs)
        ended = ours[3].copy()
    assert native.metadata["autoreset_mode"] is mode


def same(ours, theirs):
    """Equal in value; an info of ours may say of more scenes than theirs, whose masks leave some out."""
    if isinstance(theirs, dict):
        for key, value in theirs.items():
            if not key.startswith("_"):
                mask = theirs.get(f"_{key}", slice(None))
                same(masked(ours[key], mask), masked(value, mask))
    elif isinstance(theirs, tuple | list):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        same(list(ours), list(theirs))
    elif theirs is None:
        assert ours is None
    else:
        np.testing.assert_array_equal(ours, theirs)


def masked(value, mask):
    return value if isinstance(value, dict) else value[mask]


@pytest.mark.parametrize("wrong", ["Never", None, np.ones(2), ["team"]])
def test_options_of_a_batch_are_refused_in_one_line(wrong):
    says = "autoreset_mode is .*; it must be one of NextStep, SameStep, Disabled"
    with pytest.raises((TypeError, ValueError), match=says):
        DirectionalSensorVectorEnv("Coverage", num_envs=2, autoreset_mode=wrong)
    with pytest.raises((TypeError, ValueError), match=r"credit is .*; it must be team or difference_rewards"):
        DirectionalSensorVecEnv("Coverage", 2, credit=wrong)


def test_a_disabled_vector_refuses_to_step_an_ended_scene():
    vector = gymnasium.make_vec(ID, num_envs=2, max_episode_steps=1, autoreset_mode="Disabled")
    vector.reset(seed=0)
    vector.step(np.zeros((2, 4), int))
    with pytest.raises(RuntimeError, match="scene 0 has ended"):
        vector.step(np.zeros((2, 4), int))


def test_returned_arrays_survive_the_next_step():
    for env, batch in (
        (make(), ()),
        (gymnasium.make_vec(ID, num_envs=3), (3,)),
        (DirectionalSensorVecEnv("Coverage", 3), (3,)),
    ):
        first = env.reset()
        held, copies = pickle.loads(pickle.dumps((first, first)))
        returned = env.step(np.ones((*batch, 4), int))
        returned_copy = pickle.loads(pickle.dumps(returned))
        for _ in range(15):
            env.step(np.ones((*batch, 4), int))
        np.testing.assert_equal(first, copies)
        np.testing.assert_equal(returned, returned_copy)
        np.testing.assert_equal(held, copies)


def test_a_pickled_environment_goes_on_the_same():
    env = make()
    env.reset(seed=3)
    env.step(np.ones(4, int))
    copy = pickle.loads(pickle.dumps(env))
    for _ in range(30):
        np.testing.assert_equal(env.step(np.ones(4, int)), copy.step(np.ones(4, int)))
    np.testing.assert_equal(env.reset(), copy.reset())


def test_sb3_scenes_are_the_single_environments():
    venv = DirectionalSensorVecEnv("Coverage", 3, max_episode_steps=6)
    venv.seed(20)
    singles = [make(max_episode_steps=6) for _ in range(3)]
    observation = venv.reset()
    returns = np.zeros(3)
    for b, single in enumerate(singles):
        np.testing.assert_equal({k: v[b] for k, v in observation.items()}, single.reset(seed=20 + b)[0])
    rng = np.random.default_rng(0)
    for step in range(1, 15):
        action = rng.integers(0, 3, (3, 4))
        observation, rewards, dones, infos = venv.step(action)
        for b, single in enumerate(singles):
            shown, reward, _, truncated, info = single.step(action[b])
            returns[b] += reward
            assert rewards[b] == np.float32(reward)
            assert dones[b] == truncated == infos[b]["TimeLimit.truncated"] == (step % 6 == 0)
            np.testing.assert_equal({key: infos[b][key] for key in info if key in infos[b]}, without_time(info))
            if truncated:
                np.testing.assert_equal(infos[b]["terminal_observation"], shown)
                assert infos[b]["episode"]["r"] == pytest.approx(returns[b])
                assert infos[b]["episode"]["l"] == 6
                returns[b] = 0
                shown, _ = single.reset()
            np.testing.assert_equal({k: v[b] for k, v in observation.items()}, shown)


def without_time(info):
    return {key: value for key, value in info.items() if key in ("coverage", "turned", "visible")} | (
        {"TimeLimit.truncated": info["TimeLimit.truncated"]} if "TimeLimit.truncated" in info else {}
    )


def test_staggered_scenes_end_one_after_another():
    venv = DirectionalSensorVecEnv("Coverage", 4, max_episode_steps=8, stagger=True)
    venv.reset()
    ends, lengths = [], []
    for _ in range(8):
        _, _, dones, infos = venv.step(np.zeros((4, 4), int))
        ends.append(np.flatnonzero(dones).tolist())
        lengths += [info["episode"]["l"] for info in infos if "episode" in info]
    assert ends == [[], [3], [], [2], [], [1], [], [0]]
    assert lengths == [2, 4, 6, 8]


def test_the_other_calls_of_a_vec_env():
    venv = DirectionalSensorVecEnv("Coverage", 3)
    assert venv.get_attr("num_envs") == [3, 3, 3]
    assert venv.get_attr("features", [0]) == [envs.DEFAULT_FEATURES]
    assert venv.env_is_wrapped(gymnasium.Wrapper) == [False] * 3
    assert venv.has_attr("scenario")
    assert not venv.has_attr("nothing")
    venv.set_attr("note", 1)
    assert venv.get_attr("note", 2) == [1]
    with pytest.raises(ValueError, match="cannot be set for"):
        venv.set_attr("note", 1, [0])
    with pytest.raises(AttributeError, match="have no method 'fly'"):
        venv.env_method("fly")


@pytest.mark.parametrize(
    ("action", "error", "says"),
    [
        (np.zeros(3, int), ValueError, r"action has shape \(1, 3\); it must have shape \(1, 4\)"),
        (np.zeros((1, 4), int), ValueError, "action has shape"),
        (np.array([0, 1, 2, 3]), ValueError, "action holds 3; it must be 0"),
        (np.array([0, -1, 2, 0]), ValueError, "action holds -1"),
        (np.array([0, np.nan, 1, 1]), TypeError, "action is float64"),
        (["left"] * 4, TypeError, "action is"),
        (None, ValueError, "action has shape"),
    ],
)
def test_wrong_actions_move_nothing(action, error, says):
    env = make()
    env.reset(seed=0)
    before = env.unwrapped.task.simulator.get_state()
    with pytest.raises(error, match=says):
        env.step(action)
    np.testing.assert_equal(env.unwrapped.task.simulator.get_state(), before)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"scenario": "moon"}, ValueError, "unknown scenario 'moon': known are basketball-4"),
        ({"features": ["smell"]}, ValueError, "unknown feature smell: known are"),
        ({"turn_cost": -1}, ValueError, "turn_cost is -1.0; it must be 0 or more"),
        ({"turn_cost": float("nan")}, TypeError, "turn_cost is nan"),
        ({"render_mode": "ascii"}, ValueError, "render_mode is 'ascii'; it must be rgb_array or human"),
    ],
)
def test_wrong_options(options, error, says):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gymnasium warns of an unknown render mode, and then it is our error
        for build in (make, lambda **o: gymnasium.make_vec(ID, num_envs=2, **o)):
            with pytest.raises(error, match=says):
                build(**options)


def test_a_picture_shows_seen_and_unseen_targets():
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    simulator = env.unwrapped.task.simulator
    simulator.place(sensor_position=[(0, 0)] * 4, heading=[0] * 4, target_position=[(500, 0)] * 2 + [(-900, -900)] * 3)
    picture = env.render()
    assert picture.shape == (600, 600, 3)
    assert picture.dtype == np.uint8

    def colour(x, y):
        scale = 600 * 0.88 / 2500
        return picture[round(300 - y * scale), round(300 + x * scale)].astype(int)

    red, green, _ = colour(500, 0)
    assert green > red + 50  # seen: a green disc
    assert colour(-900, -900).min() > 240  # unseen: a ring, empty inside
    assert (colour(300, 100) < colour(-300, 100) - 10).any()  # the field of view is shaded, and only it
    env.unwrapped.task.simulator.place(heading=[180] * 4)
    assert not np.array_equal(env.render(), picture)
    assert len(gymnasium.make_vec(ID, num_envs=2, render_mode="rgb_array").render()) == 2


def test_a_row_for_every_sensor():
    """KernelState are the sensors of the joint environment, each with its own reward and its own last observation."""
    joint = DirectionalSensorVecEnv("Executor", 3, seed=5, max_episode_steps=4, per_sensor=False)
    rows = DirectionalSensorVecEnv("Executor", 3, seed=5, max_episode_steps=4)
    joint.seed(5)
    rows.seed(5)
    assert rows.num_envs == 12
    assert rows.action_space == gymnasium.spaces.Discrete(3)
    rng = np.random.default_rng(0)
    whole, apart = joint.reset(), rows.reset()
    returns = np.zeros(12)
    for step in range(1, 10):
        for key in whole:
            np.testing.assert_array_equal(apart[key], whole[key].reshape(12, *whole[key].shape[2:]))
        assert rows.observation_space.contains({key: value[7] for key, value in apart.items()})
        action = rng.integers(0, 3, (3, 4))
        whole, _, dones, infos = joint.step(action)
        apart, rewards, row_dones, row_infos = rows.step(action.ravel())
        assert row_dones.tolist() == np.repeat(dones, 4).tolist()
        own = np.stack([info["rewards"] for info in infos]).ravel()
        np.testing.assert_array_equal(rewards, own.astype(np.float32))
        returns += own
        for row in range(12):
            if step % 4 == 0:
                last = infos[row // 4]["terminal_observation"]["pairs"][row % 4]
                np.testing.assert_array_equal(row_infos[row]["terminal_observation"]["pairs"], last)
                assert row_infos[row]["episode"]["r"] == pytest.approx(returns[row])
        if step % 4 == 0:
            returns[:] = 0
    team = DirectionalSensorVecEnv("Coverage", 2, per_sensor=True)
    team.reset()
    assert len(set(team.step(np.zeros(8, int))[1][:4].tolist())) == 1
    with pytest.raises(ValueError, match="CoordinatorTask decides for all sensors at once"):
        DirectionalSensorVecEnv(CoordinatorTask(), max_episode_steps=5, per_sensor=True)
    with pytest.raises(ValueError, match=r"action has shape \(2, 4\); it must have shape \(8,\)"):
        team.step(np.zeros((2, 4), int))


def test_reset_options_put_things_in_their_places():
    tracks = np.zeros((3, 5, 2)) + np.arange(3)[:, None, None]
    options = {"heading": [0, 90, 180, 270], "target_position": [(1, 2)] * 5, "target_tracks": tracks}
    env = make(scenario=envs.load_scenario("hit-mac").replace(extra_move_every=0))
    env.reset(seed=0, options=options)
    state = env.unwrapped.task.simulator.state
    assert state.heading[0].tolist() == [0, 90, 180, 270]
    assert state.target_position[0].tolist() == [[1, 2]] * 5
    for step in range(3):
        _, _, _, truncated, _ = env.step(np.zeros(4, int))
        assert env.unwrapped.task.simulator.state.target_position[0].tolist() == [[step, step]] * 5
        assert truncated == (step == 2)  # the tracks have ended
    env.reset()
    env.step(np.zeros(4, int))
    assert len(np.unique(env.unwrapped.task.simulator.state.target_position)) == 10  # on their own again

    vector = gymnasium.make_vec(ID, num_envs=2)
    vector.reset(seed=0, options={"heading": [[1, 2, 3, 4], [5, 6, 7, 8]]})
    vector.reset(options={"heading": [9] * 4, "reset_mask": np.array([False, True])})
    assert vector.task.simulator.state.heading.tolist() == [[1, 2, 3, 4], [9] * 4]

    venv = DirectionalSensorVecEnv("Coverage", 2)
    venv.set_options([{"heading": np.full(4, 10)}, {"heading": np.full(4, 20)}])
    venv.reset()
    assert venv.task.simulator.state.heading.tolist() == [[10] * 4, [20] * 4]


def test_clones_follow_their_tracks():
    simulator = envs.Simulator("hit-mac", 2, 0)
    simulator.place(target_moves=np.arange(40.0).reshape(4, 5, 2))
    simulator.step(np.zeros((2, 4), int))
    clone = simulator.clone()
    for one in (simulator, clone):
        one.step(np.zeros((2, 4), int))
    np.testing.assert_equal(clone.get_state(), simulator.get_state())
    assert not clone.track_ended.any()
    clone.step(np.zeros((2, 4), int))
    assert clone.track_ended.all()
