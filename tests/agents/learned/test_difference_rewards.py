"""Credit for every sensor, and none for sensors that are absent or have failed."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.buffers import DictRolloutBuffer

from hitmac.agents import AttentionPolicy
from hitmac.agents.learned.difference_rewards import ActingRolloutBuffer, SensorBernoulli, SensorRolloutBuffer
from hitmac.envs import load_scenario
from hitmac.envs.tasks import CoordinatorTask
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

# Every scene has 1 to 4 sensors of 4, some of which fail, and targets that leave and return.
SCENE = load_scenario("random").replace(
    num_sensors=4, num_targets=3, min_sensors=1, min_targets=1,
    failure_rate=0.1, recovery_rate=0.3, leave_rate=0.05, return_rate=0.1,
)  # fmt: skip
KINDS = {
    "coverage": ("Coverage", {}),
    "coverage, per sensor": ("Coverage", {"per_sensor": True}),
    "executor": ("Executor", {"padding": "masked"}),
    "coordinator": ("Coordinator", {}),
    "coordinator, by sensor": ("Coordinator", {"credit": "difference_rewards"}),
}


def space_of(n, m, d=3):
    return spaces.Dict(pairs=spaces.Box(-9, 9, (n, m, d), np.float32), mask=spaces.MultiBinary((n, m)))


def learner(kind, algorithm=PPO, scenario=SCENE):
    task, options = KINDS[kind]
    venv = DirectionalSensorVecEnv(task, 6, scenario, 0, **options)
    buffer = SensorRolloutBuffer if venv.credit == "difference_rewards" else ActingRolloutBuffer
    torch.manual_seed(0)
    return algorithm(
        AttentionPolicy, venv, n_steps=8, seed=0, device="cpu",
        rollout_buffer_class=buffer, rollout_buffer_kwargs={"acting": venv.acting},
        policy_kwargs={"weight_dim": 4, "credit": venv.credit},
        **({"batch_size": 16} if algorithm is PPO else {"normalize_advantage": True}),
    )  # fmt: skip


@pytest.mark.parametrize(("assigns", "credit"), [(False, "team"), (True, "team"), (True, "difference_rewards")])
def test_absent_sensors_have_no_part_in_likelihood_and_entropy(assigns, credit):
    """A scene padded with absent sensors and targets has the likelihood, entropy and value of the scene itself."""
    torch.manual_seed(0)

    def policy(n, m):
        action_space = spaces.MultiBinary(n * m) if assigns else spaces.MultiDiscrete([3] * n * 2)
        return AttentionPolicy(space_of(n, m), action_space, lambda _: 1e-3, weight_dim=8, credit=credit)

    small, large = policy(2, 3), policy(4, 5)
    for parameter in small.parameters():
        torch.nn.init.normal_(parameter)
    large.load_state_dict(small.state_dict())
    padded, mask = torch.randn(5, 4, 5, 3), torch.zeros(5, 4, 5)
    mask[:, :2, :3] = 1
    actions, _, _ = large({"pairs": padded, "mask": mask})
    parts = actions.unflatten(-1, (4, 5) if assigns else (2, 4))
    own = parts[:, :2, :3] if assigns else parts[:, :, :2]
    assert parts.sum() == own.sum()  # the others stay
    ours = small.evaluate_actions({"pairs": padded[:, :2, :3], "mask": torch.ones(5, 2, 3)}, own.flatten(1))
    theirs = large.evaluate_actions({"pairs": padded, "mask": mask}, actions)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.flatten(), other.flatten(), atol=1e-4, rtol=1e-4)
    sum(one.sum() for one in theirs).backward()
    assert all(one.grad.isfinite().all() for one in large.parameters() if one.grad is not None)


@pytest.mark.parametrize(
    ("kind", "algorithm"), [*((kind, PPO) for kind in KINDS), ("executor", A2C), ("coordinator, by sensor", A2C)]
)
def test_an_update_depends_on_sensors_that_act_only(kind, algorithm):
    """Other rewards, values, likelihoods and advantages of rows that do not act give the same update."""
    results = []
    for noise in (0.0, 1000.0):
        model = learner(kind, algorithm)
        model.learn(model.n_steps * model.env.num_envs)  # a first update
        model._setup_learn(0, reset_num_timesteps=False)
        buffer, acted = model.rollout_buffer, []
        model.env.step_wait = lambda step=model.env.step_wait, env=model.env, acted=acted: (
            acted.append(env.acting().copy()), step()
        )[1]  # fmt: skip

        def spoil(last_values, dones, buffer=buffer, noise=noise):
            for array in (buffer.rewards, buffer.values, buffer.log_probs):
                array[~buffer.acting] += noise
            last_values = torch.as_tensor(last_values).numpy().reshape(buffer.values.shape[1:]).copy()
            last_values[~buffer._acting_now] += noise
            type(buffer).compute_returns_and_advantage(buffer, last_values, dones)

        buffer.compute_returns_and_advantage = spoil
        model.collect_rollouts(model.env, model._init_callback(None), buffer, model.n_steps)
        acting = np.stack(acted)
        assert np.array_equal(acting, buffer.acting)
        assert 0 < acting.mean() < 1
        model.train()
        samples = list(buffer.get(16))
        assert sum(len(sample.advantages) for sample in samples) == acting.sum()
        rows = acting.any(-1) if acting.ndim == 3 else acting
        assert sum(len(sample.actions) for sample in samples) == rows.sum()
        results.append([parameter.detach().clone() for parameter in model.policy.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_advantages_end_where_a_sensor_stops_working():
    """By hand: gamma 0.5, lambda 1, no episode ends; the second row fails after its first step and comes back."""
    acting = iter(np.array([[1, 1], [1, 1], [1, 0], [1, 1], [1, 1]], bool))  # the first in the constructor
    buffer = ActingRolloutBuffer(
        3, space_of(1, 1), spaces.Discrete(3), gamma=0.5, gae_lambda=1.0, n_envs=2, acting=lambda: next(acting)
    )
    buffer.reset()
    observation = {"pairs": np.zeros((2, 1, 1, 3)), "mask": np.ones((2, 1, 1))}
    for step in range(3):
        value, reward = torch.full((2, 1), 10.0 * (step + 1)), np.full(2, step + 1.0)
        buffer.add(observation, np.zeros((2, 1)), reward, np.zeros(2), value, torch.zeros(2))
    buffer.compute_returns_and_advantage(torch.full((2, 1), 40.0), np.zeros(2, bool))
    # Row 0: deltas 1 + 10 - 10, 2 + 15 - 20, 3 + 20 - 30; row 1 at first: 1 + 0.5 * 10 - 10, and nothing follows.
    last = 3 + 0.5 * 40 - 30
    middle = 2 + 0.5 * 30 - 20 + 0.5 * last
    assert buffer.advantages[:, 0].tolist() == [1 + 0.5 * 20 - 10 + 0.5 * middle, middle, last]
    assert buffer.advantages[[0, 2], 1].tolist() == [1 + 0.5 * 10 - 10, last]


@pytest.mark.parametrize("kind", ["executor", "coordinator, by sensor"])
def test_no_mean_is_empty_where_all_sensors_have_failed(kind):
    model = learner(kind, scenario=SCENE.replace(failure_rate=1.0, recovery_rate=0.0))
    model.learn(2 * 8 * model.env.num_envs)
    assert all(parameter.isfinite().all() for parameter in model.policy.parameters())


def test_difference_rewards_are_the_coverage_less_that_without_the_sensor():
    task, rng = CoordinatorTask("random", 20, 0, decision=1), np.random.default_rng(0)
    for _ in range(30):
        task.step(rng.integers(0, 2, (20, task.action_space.n)))
        visible, present = task.simulator.state.visible, np.maximum(task.simulator.state.present.sum(-1), 1)
        for i in range(visible.shape[1]):
            lost = visible.any(1).sum(-1) - np.delete(visible, i, 1).any(1).sum(-1)
            np.testing.assert_allclose(task.difference_rewards()[:, i], lost / present, atol=1e-12)


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
    ours = SensorRolloutBuffer(6, space, spaces.MultiBinary(6), acting=lambda: np.ones((5, 3), bool), **options)
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
