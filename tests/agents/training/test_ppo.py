"""PPO with credit for every sensor, and none for sensors that are absent or have failed."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer

from hitmac.agents import AttentionPolicy
from hitmac.agents.learned.policy import RATES, SensorBernoulli, SensorCategorical, SensorRates
from hitmac.agents.learned.recurrent import RECURRENT_FEATURES, RecurrentPolicy
from hitmac.agents.tracking.features import BeliefObserver
from hitmac.agents.training.ppo import PPO, RecurrentPPO, Rollout, advantages_of
from hitmac.envs import load_scenario
from hitmac.envs.tasks import CoordinatorTask, CoverageTask
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

# Every scene has 1 to 4 sensors of 4, some of which fail, and targets that leave and return.
SCENE = load_scenario("random").replace(
    num_sensors=4, num_targets=3, min_sensors=1, min_targets=1,
    failure_rate=0.1, recovery_rate=0.3, leave_rate=0.05, return_rate=0.1,
)  # fmt: skip
BY_RATES = {"turn_rates": (1.0, 30.0), "action": "rate", "pan_limits": [(-150, 150)]}
BY_SENSOR = {"credit": "difference_rewards"}
KINDS = {
    "coverage": ("Coverage", {}),
    "coverage, by sensor": ("Coverage", BY_SENSOR),
    "coverage, by rate": ("Coverage", BY_SENSOR),
    "coverage, per sensor": ("Coverage", {"per_sensor": True} | BY_SENSOR),
    "executor": ("Executor", {"padding": "masked"}),
    "coordinator": ("Coordinator", {}),
    "coordinator, by sensor": ("Coordinator", BY_SENSOR),
    "recurrent": ("Coverage", {"features": RECURRENT_FEATURES} | BY_SENSOR),
    "recurrent, team": ("Coverage", {"features": RECURRENT_FEATURES}),
}
A2C = {"n_epochs": 1, "batch_size": 48, "normalize_advantage": False}


def learner(kind, scenario=SCENE, **options):
    """Return PPO in 6 scenes, with rollouts of 8 steps."""
    task, of_task = KINDS[kind]
    scenario = scenario.replace(knowledge="shared") if "recurrent" in kind else scenario
    if "by rate" in kind:
        scenario = scenario.replace(**BY_RATES)
    venv = DirectionalSensorVecEnv(task, 6, scenario, 0, **of_task)
    torch.manual_seed(0)
    learns, policy = (RecurrentPPO, RecurrentPolicy) if "recurrent" in kind else (PPO, AttentionPolicy)
    network = {"weight_dim": 4, "credit": "team" if venv.per_sensor else venv.credit}
    options = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, "seed": 0, "device": "cpu"} | options
    return learns(policy, venv, policy_kwargs=network, **options)


def weights(model):
    return [parameter.detach().clone() for parameter in model.policy.parameters()]


# --- credit ---

ZONES = {"zones": (((-500, -500), (500, -500), (500, 500), (-500, 500)),), "zone_values": (3.0,)}


@pytest.mark.parametrize(("scenario", "changes", "options"), [
    ("hit-mac", {}, {"turn_cost": 0.3}),
    ("random", {"leave_rate": 0.05, "return_rate": 0.1}, {}),
    ("hit-mac", {"seen_by": 2}, {}),
    ("hit-mac", ZONES | {"target_values": (1.0, 2.0, 0.5, 0.0, 4.0)}, {}),
    ("hit-mac", BY_RATES, {"turn_cost": 0.3}),
    ("hit-mac", {"pan_limits": ((-60.0, 60.0),) * 4}, {"turn_cost": 0.3}),
    ("mate-4v8-9", {"action": "rate"}, {"turn_cost": 0.3}),
    *(("mate-4v8-9", {"target_values": (0.0, 1.0, 2.0, 0.0) * 2, "seen_by": seen_by}, {"reward": reward})
      for seen_by in (1, 2) for reward in ("real_coverage", "duel")),
])  # fmt: skip
def test_the_credit_of_a_sensor_is_what_the_reward_would_lose_if_it_had_failed(scenario, changes, options):
    scenario, rng = load_scenario(scenario).replace(**changes), np.random.default_rng(0)
    task = CoverageTask(scenario, 16, 0, opponent="greedy" if scenario.is_game else None, **options)
    nonzero = 0
    for _ in range(60 if scenario.is_game else 20):
        shape = 16, *task.action_space.shape
        action = rng.uniform(-1, 1, shape) if scenario.action == "rate" else rng.integers(0, 3, shape)
        moves = task.opponent_action(np.ones(16, bool)) if scenario.is_game else None
        without = []
        for i in range(scenario.num_sensors):
            other = copy.deepcopy(task)
            other.simulator.rows.working[i] = False
            without.append(other.step(action, target_action=moves))
        reward = task.step(action, target_action=moves)
        credit = task.difference_rewards()
        np.testing.assert_allclose(credit, reward[:, None] - np.stack(without, 1), atol=1e-12)
        nonzero += (credit > 0).sum()
        if scenario.seen_by == 1 and task.reward == "coverage" and not scenario.has_values:
            shared = (task.simulator.state.visible.sum(1) > 1).sum(-1) / np.maximum(
                task.simulator.state.present.sum(-1), 1
            )
            np.testing.assert_allclose(credit.sum(-1), reward - shared, atol=1e-12)
    assert nonzero > 10


def test_the_credit_of_a_decision_is_that_of_its_sub_steps():
    task, rng = CoordinatorTask("random", 20, 0, decision=1), np.random.default_rng(0)
    for _ in range(30):
        task.step(rng.integers(0, 2, (20, task.action_space.n)))
        visible, present = task.simulator.state.visible, np.maximum(task.simulator.state.present.sum(-1), 1)
        for i in range(visible.shape[1]):
            lost = visible.any(1).sum(-1) - np.delete(visible, i, 1).any(1).sum(-1)
            np.testing.assert_allclose(task.difference_rewards()[:, i], lost / present, atol=1e-12)


def test_rows_of_single_sensors_have_the_credit_of_their_sensors():
    one, rows = (DirectionalSensorVecEnv("Coverage", 4, SCENE, 0, per_sensor=own, **BY_SENSOR) for own in (False, True))
    one.reset(), rows.reset()
    actions = np.random.default_rng(0).integers(0, 3, (4, 4))
    np.testing.assert_array_equal(one.step(actions)[1].ravel(), rows.step(actions.ravel())[1])


# --- likelihoods ---


def test_the_likelihoods_of_the_sensors_make_up_the_whole():
    torch.manual_seed(0)
    logits, actions = torch.randn(7, 6), torch.randint(0, 2, (7, 6)).float()
    ours = SensorBernoulli(3, 2).proba_distribution(logits)
    assert ours.log_prob(actions).shape == ours.entropy().shape == (7, 3)
    whole = torch.distributions.Bernoulli(logits=logits)
    torch.testing.assert_close(ours.log_prob(actions)[:, 1], whole.log_prob(actions)[:, 2:4].sum(-1))
    torch.testing.assert_close(ours.entropy().sum(-1), whole.entropy().sum(-1))


def test_the_likelihood_of_a_sensor_is_that_of_its_turn_and_its_zoom():
    torch.manual_seed(0)
    logits, actions = torch.randn(7, 4 * 3), torch.randint(0, 3, (7, 4))  # turns of two sensors, then their zooms
    ours, whole = (SensorCategorical(3, number).proba_distribution(logits) for number in (2, None))
    each = torch.distributions.Categorical(logits=logits.unflatten(-1, (4, 3)))
    torch.testing.assert_close(ours.log_prob(actions)[:, 1], each.log_prob(actions)[:, [1, 3]].sum(-1))
    torch.testing.assert_close(ours.entropy().sum(-1), whole.entropy())
    torch.testing.assert_close(ours.log_prob(actions).sum(-1), whole.log_prob(actions))


def test_rates_are_levels_by_the_likelihood_of_the_nearest():
    logits = torch.randn(50, 4 * len(RATES))  # turns of two sensors, then their zooms
    ours = SensorRates(2).proba_distribution(logits)
    each = torch.distributions.Categorical(logits=logits.unflatten(-1, (4, -1)))
    actions, levels = ours.sample(), torch.tensor(RATES)
    assert set(actions.unique().tolist()) == set(levels.tolist())
    chosen = (actions[..., None] - levels).abs().argmin(-1)
    expected = each.log_prob(chosen).unflatten(-1, (2, 2)).sum(1)
    torch.testing.assert_close(ours.log_prob(actions), expected)
    torch.testing.assert_close(ours.log_prob(actions + 0.09), expected)
    torch.testing.assert_close(ours.log_prob(9 * actions), ours.log_prob(actions.sign()))  # beyond the highest
    torch.testing.assert_close(ours.mode(), levels[each.logits.argmax(-1)])


@pytest.mark.parametrize("acts", ["turns", "rates", "assigns"])
@pytest.mark.parametrize("credit", ["team", "difference_rewards"])
def test_absent_sensors_have_no_part_in_likelihood_and_entropy(acts, credit):
    """A scene padded with absent sensors and targets has the likelihood, entropy and value of the scene itself."""
    torch.manual_seed(0)

    def policy(n, m):
        by_kind = {"turns": spaces.MultiDiscrete([3] * n * 2), "rates": spaces.Box(-1, 1, (n * 2,))}
        action_space = by_kind.get(acts, spaces.MultiBinary(n * m))
        space = spaces.Dict(pairs=spaces.Box(-9, 9, (n, m, 3), np.float32), mask=spaces.MultiBinary((n, m)))
        return AttentionPolicy(space, action_space, lambda _: 1e-3, weight_dim=8, credit=credit)

    small, large = policy(2, 3), policy(4, 5)
    for parameter in small.parameters():
        torch.nn.init.normal_(parameter)
    large.load_state_dict(small.state_dict())
    padded, mask = torch.randn(5, 4, 5, 3), torch.zeros(5, 4, 5)
    mask[:, :2, :3] = 1
    actions, _, _ = large({"pairs": padded, "mask": mask})
    parts = actions.unflatten(-1, (4, 5) if acts == "assigns" else (2, 4))
    own = parts[:, :2, :3] if acts == "assigns" else parts[:, :, :2]
    assert (parts != 0).sum() == (own != 0).sum()  # the others stay
    ours = small.evaluate_actions({"pairs": padded[:, :2, :3], "mask": torch.ones(5, 2, 3)}, own.flatten(1))
    theirs = large.evaluate_actions({"pairs": padded, "mask": mask}, actions)
    for one, other in zip(ours, theirs, strict=True):
        if credit == "difference_rewards":
            other = other[:, :2]
        torch.testing.assert_close(one.flatten(), other.flatten(), atol=1e-4, rtol=1e-4)
    if credit == "difference_rewards":
        assert not theirs[1][:, 2:].any()
        assert not theirs[2][:, 2:].any()
    sum(one.sum() for one in theirs).backward()
    assert all(one.grad.isfinite().all() for one in large.parameters() if one.grad is not None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_has_the_likelihoods_and_values_that_an_update_finds(kind):
    """Also with a memory, whose states an update computes anew from those before the rollout, in other batches."""
    model = learner(kind)
    model.learn(2 * 8 * model.env.num_envs)
    model._setup_learn(0, reset_num_timesteps=False)
    model.collect_rollouts(model.env, model._init_callback(None), model.rollout_buffer, model.n_steps)
    for rows in model._minibatches():
        with torch.no_grad():
            values, log_probs, _ = model._evaluated(model._seen(rows), model._of("actions", rows))
        acting = model._of("acting", rows)
        for found, name in ((model._denormalized(values), "values"), (log_probs, "log_probs")):
            stored = model._of(name, rows)
            torch.testing.assert_close(found.reshape(stored.shape)[acting], stored[acting], atol=1e-4, rtol=1e-4)


# --- advantages ---


def test_advantages_end_where_a_sensor_stops_working_and_at_a_time_limit():
    """By hand: gamma 0.5, lambda 1; the second row stops acting after its first step and then goes on."""
    rewards = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])[..., None]
    values = torch.tensor([[10.0, 10.0], [20.0, 20.0], [30.0, 30.0], [40.0, 40.0]])[..., None]
    goes_on = torch.tensor([[1, 0], [1, 1], [1, 0]], dtype=torch.bool)[..., None]
    terminated = torch.tensor([[0, 0], [0, 0], [0, 1]], dtype=torch.bool)[..., None]
    found = advantages_of(rewards, values, goes_on, terminated, 0.5, 1.0)[..., 0]
    last = 3 + 0.5 * 40 - 30
    middle = 2 + 0.5 * 30 - 20 + 0.5 * last
    assert found[:, 0].tolist() == [1 + 0.5 * 20 - 10 + 0.5 * middle, middle, last]
    end = 3 - 30  # terminated: nothing follows
    assert found[:, 1].tolist() == [1 + 0.5 * 10 - 10, 2 + 0.5 * 30 - 20 + 0.5 * end, end]


def test_advantages_are_stable_baselines3s():
    rng = np.random.default_rng(0)
    theirs = RolloutBuffer(6, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), "cpu", 0.9, 0.8, n_envs=5)
    ended, steps = rng.random((6, 5)) < 0.3, []
    starts = np.concatenate([np.zeros((1, 5), bool), ended])
    for t in range(6):
        reward, value = (rng.normal(size=5).astype(np.float32) for _ in range(2))
        theirs.add(np.zeros((5, 1)), np.zeros((5, 1)), reward, starts[t], torch.tensor(value), torch.zeros(5))
        steps.append((torch.tensor(reward), torch.tensor(value)))
    last = torch.tensor(rng.normal(size=5).astype(np.float32))
    theirs.compute_returns_and_advantage(last, starts[6])
    rewards, values = (torch.stack(part) for part in zip(*steps, strict=True))
    values, ends = torch.cat((values, last[None]))[..., None], torch.tensor(ended)[..., None]
    found = advantages_of(rewards[..., None], values, ~ends, ends, 0.8, 0.9)
    np.testing.assert_allclose(found[..., 0], theirs.advantages, atol=1e-6)


# --- updates ---


@pytest.mark.parametrize(("kind", "options"), [
    *((kind, {}) for kind in KINDS if "recurrent" not in kind), ("executor", A2C), ("coordinator, by sensor", A2C),
])  # fmt: skip
def test_an_update_depends_on_sensors_that_act_only(kind, options, monkeypatch):
    """Other rewards, values and likelihoods of sensors that do not act give the same update."""
    results, fill = [], Rollout.fill
    for noise in (0.0, 1000.0):
        model = learner(kind, **options)
        model.learn(model.n_steps * model.env.num_envs)  # a first update

        def spoil(self, observations, steps, last, noise=noise):
            share = torch.stack([step["acting"] for step in steps]).float().mean()
            assert 0 < share < 1
            for step, following in zip(steps, [*steps[1:], None], strict=True):
                for name in ("rewards", "values", "log_probs"):
                    step[name] = step[name] + noise * ~step["acting"]
                if following is None:
                    last = last + noise * ~step["goes_on"]
            fill(self, observations, steps, last)

        monkeypatch.setattr(Rollout, "fill", spoil)
        model.learn(model.n_steps * model.env.num_envs, reset_num_timesteps=False)
        monkeypatch.setattr(Rollout, "fill", fill)
        results.append(weights(model))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize(("knowledge", "options"), [
    ("own", {"per_sensor": True}), ("shared", {"features": BeliefObserver}), ("shared", {}),
])  # fmt: skip
def test_a_sensor_that_knows_no_target_learns_where_to_look(knowledge, options):
    scenario = load_scenario("hit-mac").replace(knowledge=knowledge, num_targets=1)
    venv, network = DirectionalSensorVecEnv("Coverage", 6, scenario, 0, **options), {"weight_dim": 4}
    model = PPO(AttentionPolicy, venv, n_steps=8, batch_size=16, policy_kwargs=network, device="cpu")
    model.learn(8 * venv.num_envs)
    assert not venv.task.simulator.acting.all()
    assert (model.rollout_buffer.steps["weights"] == 1.0).all() == bool(options)  # else such a sensor has to stay


@pytest.mark.parametrize("kind", ["executor", "coverage, by sensor"])
def test_no_mean_is_empty_where_all_sensors_have_failed(kind):
    model = learner(kind, scenario=SCENE.replace(failure_rate=1.0, recovery_rate=0.0))
    model.learn(2 * 8 * model.env.num_envs)
    assert all(parameter.isfinite().all() for parameter in model.policy.parameters())


@pytest.mark.parametrize("normalized", [True, False])
def test_with_normalised_values_the_unit_of_the_reward_has_no_effect(normalized, monkeypatch):
    found, step_wait = [], DirectionalSensorVecEnv.step_wait
    for unit in (1.0, 1024.0):
        model = learner("coverage, by sensor", normalize_values=normalized)

        def scaled(self, unit=unit):
            observation, rewards, *rest = step_wait(self)
            return observation, unit * rewards, *rest

        monkeypatch.setattr(DirectionalSensorVecEnv, "step_wait", scaled)
        model.learn(3 * 8 * model.env.num_envs)
        found.append(torch.cat([one.flatten() for one in weights(model)]))
    same = torch.allclose(*found, atol=1e-4)
    assert same == normalized


@pytest.mark.parametrize("kind", ["coverage, by sensor", "recurrent"])
@pytest.mark.parametrize("apart", [False, True])
def test_a_critic_apart_does_not_change_the_encoder(kind, apart):
    model = learner(kind, critic_apart=apart)
    model.learn(8 * 6)
    model.rollout_buffer.steps["advantages"].zero_()  # leaves the critic's loss alone
    model.policy.zero_grad()
    model._loss(model._minibatches()[0])[0].backward()
    encoder = [parameter.grad for parameter in model.policy.features_extractor.parameters()]
    assert any(grad is not None and grad.any() for grad in encoder) != apart
    assert all(parameter.grad.any() for parameter in model.policy.value_net.parameters())


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(("compiled", "error"), [(False, 1e-5), pytest.param(True, 1e-4, marks=pytest.mark.slow)])
def test_one_thread_and_a_compiled_update_find_what_two_threads_do_eagerly(compiled, error, monkeypatch):
    found = []
    for changed in (False, True):
        model = learner("coverage, by sensor", compiled=changed and compiled)
        if changed and not compiled:
            monkeypatch.setattr(PPO, "_slices", lambda self, number: [slice(None)])
        model.learn(2 * 8 * model.env.num_envs)
        found.append(torch.cat([one.flatten() for one in weights(model)]))
    torch.testing.assert_close(*found, atol=error, rtol=10 * error)


# --- the interface of Stable-Baselines3 ---


@pytest.mark.parametrize("kind", ["coverage, by sensor", "recurrent"])
def test_a_saved_learner_goes_on(kind, tmp_path):
    model = learner(kind)
    model.learn(8 * 6)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=learner(kind).env)
    assert loaded.num_timesteps == 48
    assert (loaded.value_mean, loaded.value_deviation) == (model.value_mean, model.value_deviation)
    assert loaded.value_deviation > 0
    assert all(torch.equal(one, other) for one, other in zip(weights(model), weights(loaded), strict=True))
    observation = model.env.reset()
    actions = [one.predict(observation, deterministic=True)[0] for one in (model, loaded)]
    np.testing.assert_array_equal(*actions)
    loaded.learn(8 * 6, reset_num_timesteps=False)
    assert loaded.num_timesteps == 96
    assert not all(torch.equal(one, other) for one, other in zip(weights(model), weights(loaded), strict=True))


def test_any_environment_with_pairs_and_a_mask_will_do():
    """Without ``acting`` every row acts; a time limit is no termination."""

    class Bandit(DirectionalSensorVecEnv):
        acting = property()

    venv = Bandit("Coverage", 6, load_scenario("hit-mac"), 0, max_episode_steps=5)
    model = PPO(AttentionPolicy, venv, n_steps=8, batch_size=16, policy_kwargs={"weight_dim": 4}, device="cpu")
    model.learn(2 * 8 * 6)
    assert model.rollout_buffer.steps["acting"].all()
    assert not model.rollout_buffer.steps["terminated"].any()
