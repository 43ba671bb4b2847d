"""Coordinator and executor: their policies, their credit, both as one agent, and what they are compared with."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numba import njit
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.buffers import DictRolloutBuffer

from hitmac.agents import AttentionPolicy, PolicyConfig, save_policy
from hitmac.agents.baselines.levels import AssignAll, AssignInRange, AssignRandomly, ScriptedExecutor
from hitmac.agents.evaluate import evaluate, evaluate_executors
from hitmac.agents.evaluate.film import save_film
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.learned.checkpoint import build_policy, copy_executor, load_policy
from hitmac.agents.learned.difference_rewards import SensorBernoulli, SensorRolloutBuffer
from hitmac.agents.policy import PerSensor, ReleasedPolicy
from hitmac.agents.registry import Agent, load_agent, load_executor
from hitmac.envs import DEFAULT_FEATURES, PAPER_FEATURES, Scenario, load_scenario
from hitmac.envs.kernels import assignment as kernels
from hitmac.envs.render import Picture
from hitmac.envs.tasks import CoordinatorTask, CoverageTask, ExecutorTask
from hitmac.envs.tasks.base import flatten_sensors
from hitmac.envs.tasks.executor import mask_unassigned
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from hitmac.perception.released import ReleasedCoordinator, ReleasedExecutor

HIT_MAC = load_scenario("hit-mac")


def learner(venv, algorithm=PPO, **policy):
    options = {"n_steps": 8, "seed": 0, "device": "cpu", "policy_kwargs": {"weight_dim": 8, **policy}}
    if policy.get("credit") == "difference_rewards":
        options["rollout_buffer_class"] = SensorRolloutBuffer
    if algorithm is PPO:
        options |= {"batch_size": 16, "n_epochs": 1}
    torch.manual_seed(0)
    return algorithm(AttentionPolicy, venv, **options)


def saved(folder, task, scenario=HIT_MAC, options=None, features=DEFAULT_FEATURES, **policy):
    torch.manual_seed(1)
    config = PolicyConfig(
        policy={"weight_dim": 8, **policy},
        features=features,
        scenario=scenario,
        training_seeds=(2**40, 2**40 + 9),
        task=task,
        options=options or {},
    )
    net = build_policy(config, scenario)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save_policy(folder, net, config)
    return net, config


# --- what an executor is shown ---


def test_goals_in_three_ways():
    pairs = np.arange(1, 13, dtype=np.float32).reshape(1, 2, 3, 2)
    shown = {"pairs": pairs, "mask": np.array([[[1, 1, 1], [1, 1, 0]]], np.int8)}
    assigned = np.array([[[False, True, True], [True, False, True]]])
    masked = mask_unassigned(shown, assigned, "masked")
    assert masked["pairs"][0, 0].tolist() == [[3, 4], [5, 6], [0, 0]]
    assert masked["pairs"][0, 1].tolist() == [[7, 8], [0, 0], [0, 0]]  # the last is not there
    assert masked["mask"].tolist() == [[[1, 1, 0], [1, 0, 0]]]
    attended = mask_unassigned(shown, assigned, "attended", row_id=0)
    assert attended["pairs"][0, 0, :2, 0].tolist() == [0, np.float32(1 / 3)]
    assert attended["mask"].all()
    whole = mask_unassigned(shown, assigned, "unfiltered")
    np.testing.assert_array_equal(whole["pairs"][..., :2], pairs)
    assert whole["pairs"][..., 2].tolist() == [[[0, 1, 1], [1, 0, 0]]]
    assert whole["mask"] is shown["mask"]


@pytest.mark.parametrize("padding", ["attended", "masked", "unfiltered"])
def test_executors_observe_what_their_space_says(padding):
    task = ExecutorTask(num_envs=3, seed=0, padding=padding)
    assert task.observation_space["pairs"].shape == (4, 5, 5 if padding == "unfiltered" else 4)
    for _ in range(12):
        task.step(np.ones((3, 4), np.int64))
        for b in range(3):
            assert task.observation_space.contains({key: value[b] for key, value in task.observe().items()})


# --- policies for the three action spaces ---


@pytest.mark.parametrize("encoder", ["attention", "recurrent", "mlp"])
@pytest.mark.parametrize("critic", [None, "amc", "no_prefix", "value_head"])
@pytest.mark.parametrize("credit", ["team", "difference_rewards"])
def test_a_coordinator_learns_with_any_parts(encoder, critic, credit):
    venv = DirectionalSensorVecEnv(
        "Coordinator", 4, "hit-mac-3x2", 0, credit=credit, features=PAPER_FEATURES, max_episode_steps=5
    )
    parts = {} if critic is None else {"critic": critic}
    model = learner(venv, encoder=encoder, credit=credit, **parts)
    before = [parameter.clone() for parameter in model.policy.parameters()]
    model.learn(64)
    assert any((a != b).any() for a, b in zip(before, model.policy.parameters(), strict=True))
    actions, _ = model.predict(venv.observe(), deterministic=True)
    assert actions.shape == (4, 6)
    assert actions.dtype == np.int8
    assert venv.action_space.contains(actions[0])


@pytest.mark.parametrize("credit", ["team", "difference_rewards"])
def test_a2c_learns_too(credit):
    venv = DirectionalSensorVecEnv("Coordinator", 4, "hit-mac-3x2", 0, credit=credit)
    learner(venv, A2C, credit=credit).learn(64)


def test_an_assignment_comes_from_a_pairs_feature_its_sensors_and_the_global_one():
    space = CoordinatorTask("hit-mac-3x2").observation_space
    policy = AttentionPolicy(space, spaces.MultiBinary(6), lambda _: 1e-3, weight_dim=8)
    shown = {key: torch.as_tensor(value) for key, value in CoordinatorTask("hit-mac-3x2", 5, 0).observe().items()}
    features = policy.features_extractor.encoder(shown["pairs"])
    logits = policy.get_distribution(shown).distribution.logits
    for i, j in itertools.product(range(3), range(2)):
        parts = features.per_target[:, i, j], features.per_agent[:, i], features.global_feature
        torch.testing.assert_close(policy.action_net[0](torch.cat(parts, -1))[:, 0], logits[:, 2 * i + j])
    value = policy.value_net.critic(features.per_target.flatten(1, 2))
    torch.testing.assert_close(policy.predict_values(shown)[:, 0], value)


def test_the_value_of_a_sensor_is_what_its_pairs_contribute():
    space = CoordinatorTask("hit-mac-3x2").observation_space
    policy = AttentionPolicy(space, spaces.MultiBinary(6), lambda _: 1e-3, weight_dim=8, credit="difference_rewards")
    shown = {key: torch.as_tensor(value) for key, value in CoordinatorTask("hit-mac-3x2", 5, 0).observe().items()}
    pairs = policy.features_extractor.encoder(shown["pairs"]).per_target.flatten(1, 2)
    _, contributions = policy.value_net.critic(pairs, return_contributions=True)  # (5, 6), pair (i, j) at 2 i + j
    by_hand = np.stack([contributions[:, 2 * i : 2 * i + 2].sum(-1).detach().numpy() for i in range(3)], -1)
    np.testing.assert_allclose(policy.predict_values(shown), by_hand, rtol=1e-5)


def test_reordering_sensors_and_targets_reorders_the_assignment():
    task = CoordinatorTask("hit-mac", 5, 0, features=DEFAULT_FEATURES)
    policy = AttentionPolicy(
        task.observation_space, task.action_space, lambda _: 1e-3, weight_dim=8, attend_over="axes"
    )

    def logits(seen):
        return policy.get_distribution(policy.obs_to_tensor(seen)[0]).distribution.logits.unflatten(-1, (4, 5))

    sensors, targets, shown = [2, 0, 3, 1], [4, 2, 0, 1, 3], task.observe()
    other = {key: value[:, sensors][:, :, targets] for key, value in shown.items()}
    torch.testing.assert_close(logits(other), logits(shown)[:, sensors][:, :, targets])


def test_one_sensor_is_a_scene_with_one_sensor():
    venv = DirectionalSensorVecEnv("Executor", 3, features=DEFAULT_FEATURES, padding="masked")
    model = learner(venv, attend_over="targets")
    model.learn(96)
    assert model.predict(venv.observe())[0].shape == (12,)
    with pytest.raises(ValueError, match=r"the action space is Discrete\(3\)"):
        AttentionPolicy(venv.observation_space, spaces.Discrete(3), lambda _: 1e-3, credit="difference_rewards")
    with pytest.raises(ValueError, match=r"it must be MultiBinary\(20\), MultiDiscrete"):
        AttentionPolicy(CoordinatorTask().observation_space, spaces.MultiBinary(7), lambda _: 1e-3)


# --- credit for every sensor ---


def test_the_difference_reward_by_hand():
    scenario = Scenario(num_sensors=2, num_targets=4, walk="still", extra_move_every=0)
    task = CoordinatorTask(scenario, 1, 0, idle="hold", decision=2)
    # Both see the first two; the first alone sees the third; nobody sees the last.
    targets = [(400, 0), (500, 0), (-600, 50), (0, 1200)]
    task.simulator.place(sensor_position=[(0, 0), (-10, 0)], heading=[0, 0], target_position=targets)
    task.step(np.zeros((1, 8), np.int8))
    assert task.difference_rewards().tolist() == [[0, 0]]
    task.simulator.place(sensor_position=[(0, 0), (-10, 0)], heading=[180, 0], target_position=targets)
    task.step(np.zeros((1, 8), np.int8))
    assert task.difference_rewards().tolist() == [[0.25, 0.5]]


def test_difference_rewards_are_the_coverage_less_that_without_the_sensor():
    task = CoordinatorTask("random", 20, 0, decision=1)
    rng = np.random.default_rng(0)
    for _ in range(30):
        task.step(rng.integers(0, 2, (20, task.action_space.n)))
        live = task.simulator.state
        present = np.maximum(live.present.sum(-1), 1)
        for i in range(live.visible.shape[1]):
            without = np.delete(live.visible, i, 1).any(1).sum(-1) / present
            whole = live.visible.any(1).sum(-1) / present
            np.testing.assert_allclose(task.difference_rewards()[:, i], whole - without, atol=1e-12)


def test_the_likelihoods_of_the_sensors_make_up_the_whole():
    torch.manual_seed(0)
    logits, actions = torch.randn(7, 6), torch.randint(0, 2, (7, 6)).float()
    ours = SensorBernoulli(3, 2).proba_distribution(logits)
    assert ours.log_prob(actions).shape == ours.entropy().shape == (7, 3)
    whole = torch.distributions.Bernoulli(logits=logits)
    torch.testing.assert_close(ours.log_prob(actions)[:, 1], whole.log_prob(actions)[:, 2:4].sum(-1))
    torch.testing.assert_close(ours.entropy().sum(-1), whole.entropy().sum(-1))


def test_the_buffer_is_stable_baselines3s_for_every_sensor():
    """Sensor i's advantages are those of the original buffer that sees its rewards and values alone."""
    rng = np.random.default_rng(0)
    space = spaces.Dict(pairs=spaces.Box(-1, 1, (3, 2, 4)), mask=spaces.MultiBinary((3, 2)))
    options = {"gae_lambda": 0.9, "gamma": 0.8, "n_envs": 5}
    ours = SensorRolloutBuffer(6, space, spaces.MultiBinary(6), **options)
    theirs = [DictRolloutBuffer(6, space, spaces.MultiBinary(6), **options) for _ in range(3)]
    for _ in range(6):
        seen = {key: rng.random((5, *part.shape)).astype(np.float32) for key, part in space.items()}
        action, start = rng.integers(0, 2, (5, 6)), rng.random(5) < 0.3
        reward = rng.normal(size=(5, 3)).astype(np.float32)
        value, log_prob = (torch.as_tensor(rng.normal(size=(5, 3)).astype(np.float32)) for _ in range(2))
        ours.add(seen, action, reward, start, value, log_prob)
        for i, buffer in enumerate(theirs):
            buffer.add(seen, action, reward[:, i], start, value[:, i : i + 1], log_prob[:, i])
    last, dones = rng.normal(size=(5, 3)).astype(np.float32), rng.random(5) < 0.5
    ours.compute_returns_and_advantage(last, dones)
    for i, buffer in enumerate(theirs):
        buffer.compute_returns_and_advantage(torch.as_tensor(last[:, i : i + 1]), dones)
        np.testing.assert_allclose(ours.advantages[..., i], buffer.advantages, atol=1e-6)
        np.testing.assert_allclose(ours.returns[..., i], buffer.returns, atol=1e-6)
    samples = list(ours.get(15))
    assert [tuple(sample.advantages.shape) for sample in samples] == [(45,), (45,)]
    assert samples[0].returns.shape == samples[0].old_values.shape == (45,)
    drawn = torch.cat([sample.returns for sample in samples]).sort().values
    torch.testing.assert_close(drawn, torch.as_tensor(ours.returns.flatten()).sort().values)


def test_credit_needs_a_task_that_gives_it():
    with pytest.raises(ValueError, match="CoverageTask has no difference rewards"):
        DirectionalSensorVecEnv(CoverageTask(), max_episode_steps=5, credit="difference_rewards")
    with pytest.raises(ValueError, match="credit is 'all'; it must be team or difference_rewards"):
        DirectionalSensorVecEnv("Coordinator", 2, credit="all")


# --- both as one agent ---


class Recorder:
    """A coordinator that assigns target k to every sensor at its k-th call, and keeps what it was shown."""

    def __init__(self):
        self.calls = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.calls.append(observation["pairs"].copy())
        chosen = np.zeros(observation["mask"].shape, np.int8)
        chosen[..., (len(self.calls) - 1) % chosen.shape[-1]] = 1
        return chosen.reshape(len(chosen), -1), None


def test_it_decides_every_so_many_sub_steps_and_at_a_start():
    coordinator = Recorder()
    levels = LevelPolicy(coordinator, ("distance",)), LevelPolicy(ScriptedExecutor(), ScriptedExecutor.features)
    agent = HierarchicalAgent(HIT_MAC, *levels, decision=3)
    assert agent.features == ("distance", "bearing_sin", "bearing_cos", "turn")
    task = CoverageTask(HIT_MAC, 2, 0, features=agent.features)
    state, assigned = None, []
    for step in range(8):
        start = np.array([step == 0, step in (0, 4)])
        action, state = agent.predict(task.observe(), state, start)
        task.step(action)
        assigned.append(state[0].any(1).argmax(-1).tolist())
    # Scene 1 begins anew at step 4, and decides then and three steps later.
    assert assigned == [[0, 0], [0, 0], [0, 0], [1, 1], [1, 2], [1, 2], [3, 2], [3, 4]]
    assert [call.shape for call in coordinator.calls] == [(2, 4, 5, 1), (2, 4, 5, 1), *[(1, 4, 5, 1)] * 3]


def test_the_scripted_executor_is_that_of_the_coordinators_task():
    task = CoordinatorTask("hit-mac", 40, 0, features=ScriptedExecutor.features, decision=1, idle="hold")
    executor = LevelPolicy(ScriptedExecutor(), ScriptedExecutor.features)
    rng = np.random.default_rng(0)
    turn_to_mean = njit(lambda rows, b, assigned, turns: kernels.turn_to_mean(rows, b, assigned, turns))
    for _ in range(30):
        assignment = rng.integers(0, 2, (40, 20))
        shown = mask_unassigned(task.observe(), assignment.reshape(40, 4, 5) != 0, "masked")
        rows = {key: value.reshape(-1, *value.shape[2:]) for key, value in shown.items()}
        turns, _ = executor.policy.predict(rows)
        expected = np.zeros((40, 4), np.int64)
        for b in range(40):
            turn_to_mean(task.simulator.rows, b, assignment.reshape(40, 4, 5) != 0, expected)
        assert (turns.reshape(40, 4) == expected).mean() > 0.999  # a bearing may lie on a whole turn
        task.step(assignment)


def test_a_target_is_known_to_an_executor_by_its_row():
    """As in the coordinator's task, which packs the rows of the assigned targets to the front."""
    seen = []

    class Spy:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            seen.append(observation["pairs"][:, :, 0])
            return np.zeros(len(observation["pairs"]), int), None

    class Last:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.tile([0, 0, 0, 1, 1], (len(observation["pairs"]), 4)), None

    agent = HierarchicalAgent(HIT_MAC, LevelPolicy(Last(), ("distance",)), LevelPolicy(Spy(), ("target_id",)))
    agent.predict(CoverageTask(HIT_MAC, 2, 0, features=agent.features).observe())
    np.testing.assert_allclose(seen[0], np.tile([0, 0.2, 0, 0, 0], (8, 1)), rtol=1e-6)


def test_the_simple_coordinators():
    task = CoverageTask(HIT_MAC, 500, 0, features=("in_range",))
    shown = task.observe()
    shown["mask"][0] = 0
    assert AssignAll().predict(shown)[0].all()
    near = AssignInRange().predict(shown)[0].reshape(500, 4, 5)
    np.testing.assert_array_equal(near, (shown["pairs"][..., 0] != 0) & (shown["mask"] != 0))
    assert 0.48 < AssignRandomly(seed=1).predict(shown)[0].mean() < 0.52
    for name in ("assign-all", "assign-in-range", "assign-randomly", "assign-planned"):
        agent = load_agent(name, HIT_MAC)
        assert agent.policy.predict(CoverageTask(HIT_MAC, 3, 0, features=agent.features).observe())[0].shape == (3, 4)


def test_idle_sensors_turn_at_random_or_hold():
    nothing = type("Nothing", (AssignAll,), {"act": lambda self, p, k: np.zeros((len(k), k[0].size), np.int8)})
    levels = LevelPolicy(nothing(), ("distance",)), LevelPolicy(ScriptedExecutor(), ScriptedExecutor.features)
    task = CoverageTask(HIT_MAC, 500, 0, features=HierarchicalAgent(HIT_MAC, *levels).features)
    drawn = HierarchicalAgent(HIT_MAC, *levels).predict(task.observe())[0]
    assert np.abs(np.bincount(drawn.ravel()) / drawn.size - 1 / 3).max() < 0.05
    assert not HierarchicalAgent(HIT_MAC, *levels, idle="hold").predict(task.observe())[0].any()


@pytest.mark.parametrize("scenario", ["hit-mac", "hit-mac-2x7", "random", "obstacles"])
def test_a_trained_pair_plays_other_scenes(tmp_path, scenario):
    saved(tmp_path / "e", "Executor")
    saved(tmp_path / "c", "Coordinator", attend_over="axes")
    copy_executor(str(tmp_path / "e"), tmp_path / "c")
    scenario = load_scenario(scenario)
    agent = load_agent(str(tmp_path / "c"), scenario)
    assert len(agent.training_seeds) == 2
    task = CoverageTask(scenario, 3, 0, features=agent.features)
    state = None
    for _ in range(12):
        action, state = agent.policy.predict(task.observe(), state, deterministic=True)
        task.step(action)


def test_a_pair_turns_as_in_the_coordinators_task(tmp_path):
    """Without extra moves, after which the task's executor looks, to the bit."""
    scenario = HIT_MAC.replace(extra_move_every=0)
    saved(tmp_path / "e", "Executor")
    saved(tmp_path / "c", "Coordinator", options={"idle": "hold"})
    copy_executor(str(tmp_path / "e"), tmp_path / "c")
    agent = load_agent(str(tmp_path / "c"), scenario)
    coordinator, executor = agent.policy.coordinator, agent.policy.executor
    decided = CoordinatorTask(
        scenario, 6, 0, features=coordinator.features, executor=executor.policy,
        executor_features=executor.features, padding=executor.padding, idle="hold",
    )  # fmt: skip
    turned = CoverageTask(scenario, 6, 0, features=agent.features)
    state = None
    for _ in range(4):
        action, _ = coordinator.policy.predict(decided.observe(), deterministic=True)
        decided.step(action)
        for _ in range(10):
            action, state = agent.policy.predict(turned.observe(), state, deterministic=True)
            turned.step(action)
        np.testing.assert_array_equal(turned.simulator.state.heading, decided.simulator.state.heading)


def test_a_policy_of_one_sensor_acts_for_all(tmp_path):
    policy, _ = saved(tmp_path, "Coverage", options={"per_sensor": True}, encoder="mlp")
    agent = load_agent(str(tmp_path), HIT_MAC)
    assert isinstance(agent.policy, PerSensor)
    shown = CoverageTask(HIT_MAC, 3, 0, features=agent.features).observe()
    actions, _ = agent.policy.predict(shown, deterministic=True)
    for i in range(4):
        own = {key: value[:, i] for key, value in shown.items()}
        np.testing.assert_array_equal(policy.predict(own, deterministic=True)[0], actions[:, i])
    load_agent(str(tmp_path), load_scenario("hit-mac-6x5"))
    with pytest.raises(ValueError, match="for 4 sensors and 5 targets; it does not fit 4 and 7"):
        load_agent(str(tmp_path), load_scenario("hit-mac-4x7"))


def test_turns_of_all_sensors_come_before_all_zooms():
    class Both:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.stack((observation["pairs"][:, 0, 0], observation["pairs"][:, 0, 0] + 10), -1), None

    shown = {"pairs": np.arange(6).reshape(2, 3, 1, 1), "mask": np.ones((2, 3, 1))}
    assert PerSensor(Both()).predict(shown)[0].tolist() == [[0, 1, 2, 10, 11, 12], [3, 4, 5, 13, 14, 15]]


def test_the_released_nets_as_an_agent(tmp_path):
    torch.manual_seed(0)
    coordinator, executor = ReleasedCoordinator(weight_dim=8), ReleasedExecutor(weight_dim=8)
    names = {
        "encoder.": "encoder.features.",
        "actor.": "actor.actor_linear.",
        "critic.attention": "ShapleyVcritic.attention",
        "critic.linear": "ShapleyVcritic.critic_linear",
    }
    tensors = {}
    for name, value in coordinator.state_dict().items():
        for ours, theirs in names.items():
            name = theirs + name[len(ours) :] if name.startswith(ours) else name
        tensors[name] = value
    torch.save({"model": tensors}, tmp_path / "c.pth")
    torch.save(
        {
            name.replace("actor.", "actor.actor_linear.").replace("critic.", "critic.critic_linear."): value
            for name, value in executor.state_dict().items()
        },
        tmp_path / "e.pth",
    )
    agent = load_agent(f"released:{tmp_path}/c.pth:{tmp_path}/e.pth", HIT_MAC)
    assert agent.features == PAPER_FEATURES
    shown = CoverageTask(HIT_MAC, 3, 0, features=agent.features).observe()
    action, (assigned, *_) = agent.policy.predict(shown, deterministic=True)
    chosen = coordinator(torch.as_tensor(shown["pairs"]))[0].argmax(-1).reshape(3, 4, 5).bool()
    np.testing.assert_array_equal(assigned, chosen)
    assert action.shape == (3, 4)
    turns, _ = ReleasedPolicy(executor).predict({"pairs": shown["pairs"][:, 0]})
    assert turns.tolist() == executor(torch.as_tensor(shown["pairs"][:, 0]))[0].argmax(-1).tolist()
    load_agent(f"released:assign-all:{tmp_path}/e.pth", HIT_MAC)
    with pytest.raises(ValueError, match=r"c.pth is the released coordinator; give the released executor"):
        load_agent(f"released:assign-all:{tmp_path}/c.pth", HIT_MAC)


# --- checkpoints and names ---


def test_what_a_checkpoint_says_of_its_task(tmp_path):
    _, config = saved(
        tmp_path / "c", "Coordinator", options={"idle": "hold"}, credit="difference_rewards", critic="value_head"
    )
    assert config.options == {"decision": 10, "idle": "hold"}
    loaded, read = load_policy(tmp_path / "c")
    assert read == config
    assert loaded.credit == "difference_rewards"
    with pytest.raises(ValueError, match="task is 'Chess'; it must be one of Coverage, Executor, Coordinator"):
        PolicyConfig(policy={}, features=PAPER_FEATURES, scenario=HIT_MAC, training_seeds=(0, 0), task="Chess")
    with pytest.raises(ValueError, match="for Executor it may hold padding"):
        saved(tmp_path, "Executor", options={"idle": "hold"})


def test_agents_that_do_not_fit_are_refused(tmp_path):
    saved(tmp_path / "e", "Executor")
    saved(tmp_path / "f", "Coverage")
    for name, says in [
        (f"{tmp_path}/e", "is an executor; name a coordinator too, as in assign-all:"),
        (f"assign-all:{tmp_path}/f", "was trained for Coverage; expected an executor"),
        (f"{tmp_path}/f:scripted", "only a coordinator takes an executor"),
        ("assign-all:nobody", "unknown executor 'nobody': known are scripted, random, still, planner, and"),
        ("released:a:b:c", "unknown agent 'released:a:b:c'"),
        ("released:a.pth:b.pth", "there is no file b.pth"),
    ]:
        with pytest.raises((ValueError, FileNotFoundError), match=says):
            load_agent(name, HIT_MAC)
    level = load_executor(str(tmp_path / "e"), HIT_MAC)
    assert (level.padding, level.training_seeds) == ("masked", ((2**40, 2**40 + 9),))


def test_the_decision_reward_counts_what_is_assigned():
    """It is that of the coordinator's task: -0.1 while no sensor sees a target that is assigned to it."""
    nothing = type("Nothing", (AssignAll,), {"act": lambda self, p, k: np.zeros((len(k), k[0].size), np.int8)})
    executor = LevelPolicy(ScriptedExecutor(), ScriptedExecutor.features)
    idle, full = (
        HierarchicalAgent(HIT_MAC, LevelPolicy(coordinator, ("distance",)), executor, idle="hold")
        for coordinator in (nothing(), AssignAll())
    )
    agents = [Agent("idle", idle, idle.features), Agent("full", full, full.features), load_agent("still", HIT_MAC)]
    result = evaluate(agents, HIT_MAC, episodes=6, seed=7, max_episode_steps=10, progress=False)["agents"]
    assert result["idle"]["decision_reward"]["mean"] == pytest.approx(-0.1)
    still = result["still"]["per_episode"]
    assert result["idle"]["per_episode"]["coverage"] == still["coverage"]
    task = CoverageTask(HIT_MAC, 6, 7)
    reward, seen, present = np.zeros(6), np.zeros((6, 5)), 10
    for _ in range(10):
        task.step(np.zeros((6, 4), np.int64))
        now = task.simulator.coverage
        reward += np.where(now > 0, now, -0.1) / 10
        seen += task.simulator.state.covered
    np.testing.assert_allclose(still["decision_reward"], reward)
    np.testing.assert_allclose(still["least_covered"], seen.min(-1) / present)
    whole = result["full"]["per_episode"]
    assert all(r <= c + 1e-12 for r, c in zip(whole["decision_reward"], whole["coverage"], strict=True))


def test_executors_are_evaluated_on_their_own_task():
    result = evaluate_executors(
        {"still": load_executor("still", HIT_MAC)}, episodes=4, seed=3, max_episode_steps=12, progress=False
    )["agents"]["still"]
    task = ExecutorTask(num_envs=4, seed=3, goals_every=1)
    reward = np.mean([task.step(np.zeros((4, 4), np.int64)) for _ in range(12)], 0)
    np.testing.assert_allclose(result["per_episode"]["reward"], reward)
    assert result["rotation"]["mean"] == 0


def test_a_film_shows_what_is_assigned(tmp_path, monkeypatch):
    drawn = []
    draw = Picture.draw

    def spy(self, simulator, b, caption, assigned):
        drawn.append(assigned)
        return draw(self, simulator, b, caption, assigned)

    monkeypatch.setattr(Picture, "draw", spy)
    for name in ("assign-in-range", "nearest"):
        save_film(tmp_path / "film.gif", load_agent(name, HIT_MAC), HIT_MAC, seed=0, sub_steps=2, every=1, size=64)
    in_range = CoverageTask("hit-mac", 1, 0, features=["in_range"]).observe()["pairs"][0, ..., 0]
    np.testing.assert_array_equal(drawn[0], in_range)
    assert drawn[2:] == [None, None]


@pytest.mark.parametrize("padding", ["attended", "masked", "unfiltered"])
def test_an_executor_is_trained_on_the_rows_that_it_is_used_on(padding):
    """What the executor's task shows with `row_id` is what a coordinator's executor is shown of the same goals."""

    class Watched(Recorder):
        features, padding = PAPER_FEATURES, "attended"

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            self.calls.append(observation)
            return np.zeros(len(observation["mask"]), int), None

    scenario = load_scenario("hit-mac-4x6")
    options = {"features": PAPER_FEATURES, "padding": padding, "goals_every": 1, "goal_share": 0.5}
    task, released = (ExecutorTask(scenario, 5, 0, row_id=row_id, **options) for row_id in (True, False))
    for _ in range(3):
        for one in (task, released):
            one.step(np.zeros((5, 4), int))
    assert 0 < task.assigned.mean() < 0.9
    watched = Watched()
    watched.padding = padding
    assigns = type("Assigns", (Recorder,), {"predict": lambda *_, **__: (task.assigned.reshape(5, -1), None)})()
    agent = HierarchicalAgent(scenario, assigns, watched)  # any objects with predict
    agent.predict(task.observer.observe(task.simulator))
    shown = flatten_sensors(task.observe())
    assert np.array_equal(watched.calls[0]["pairs"], shown["pairs"])
    assert np.array_equal(watched.calls[0]["mask"], shown["mask"])
    by_target = flatten_sensors(released.observe())["pairs"]
    assert np.array_equal(by_target, shown["pairs"]) == (padding == "unfiltered")  # which leaves rows where they are
    with pytest.raises(TypeError, match=r"a level of a hierarchy is .*; it must be a LevelPolicy or have predict"):
        HierarchicalAgent(scenario, None, watched)
