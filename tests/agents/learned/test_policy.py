"""Policies of the three action spaces: their heads, critics and starts, by hand."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO

from hitmac.agents import AttentionPolicy, load_agent
from hitmac.envs import load_scenario
from hitmac.envs.observation import Observer
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks import TASKS, CoordinatorTask
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from tests.agents.untrained import observed, untrained
from tests.perception.numerics import same


def built(scenario="hit-mac", task="Coverage", **policy):
    """An untrained policy, and an observation of three scenes as tensors."""
    made, _ = untrained(scenario, task, noise=0.1, **policy)
    return made, {name: torch.from_numpy(array) for name, array in observed(scenario).items()}


def test_each_sensor_turns_by_its_own_feature_and_the_global_one():
    policy, shown = built(attend_over="targets")
    logits = policy.get_distribution(shown).distribution.logits  # (B, n, 3)
    features = policy.features_extractor.encoder(shown["pairs"])
    for i in range(4):
        expected = policy.action_net[0](torch.cat((features.per_agent[:, i], features.global_feature), -1))
        torch.testing.assert_close(logits[:, i], expected.log_softmax(-1))
    torch.testing.assert_close(policy.predict_values(shown), policy.value_net(features, None))


def test_sensors_stay_where_there_is_no_target_at_all():
    policy, shown = built()
    probabilities = policy.get_distribution({name: part[:, :, :0] for name, part in shown.items()}).distribution.probs
    assert (probabilities[..., 0] == 1).all()


def test_an_assignment_comes_from_a_pairs_feature_its_sensors_and_the_global_one():
    policy, shown = built("hit-mac-3x2", "Coordinator")
    features = policy.features_extractor.encoder(shown["pairs"])
    logits = policy.get_distribution(shown).distribution.logits
    for i, j in itertools.product(range(3), range(2)):
        parts = features.per_target[:, i, j], features.per_agent[:, i], features.global_feature
        torch.testing.assert_close(policy.action_net[0](torch.cat(parts, -1))[:, 0], logits[:, 2 * i + j])
    value = policy.value_net.critic(features.per_target.flatten(1, 2))
    torch.testing.assert_close(policy.predict_values(shown)[:, 0], value)


def test_the_value_of_a_sensor_is_what_its_pairs_contribute():
    policy, shown = built("hit-mac-3x2", "Coordinator", credit="difference_rewards")
    pairs = policy.features_extractor.encoder(shown["pairs"]).per_target.flatten(1, 2)
    _, contributions = policy.value_net.critic(pairs, return_contributions=True)  # (3, 6), pair (i, j) at 2 i + j
    expected = contributions.unflatten(-1, (3, 2)).sum(-1)
    torch.testing.assert_close(policy.predict_values(shown), expected)


@pytest.mark.parametrize("task", ["Coverage", "Executor", "Coordinator"])
def test_policies_are_mapped_over_their_parameters_and_observations(task):
    task = TASKS[task]()
    made = [AttentionPolicy(task.observation_space, task.action_space, lambda _: 1e-3) for _ in range(4)]
    (*policies, base), state = made, torch.func.stack_module_state(made[:3])[0]
    shown = {name: torch.as_tensor(np.stack([space.sample()] * 3)) for name, space in task.observation_space.items()}

    def act(state, shown):
        one = {name: part.unsqueeze(0) for name, part in shown.items()}
        return torch.func.functional_call(base, state, (one,), {"deterministic": True})

    found = torch.func.vmap(act)(state, shown)
    for number, policy in enumerate(policies):
        expected = policy({name: part[number, None] for name, part in shown.items()}, deterministic=True)
        same([part[number] for part in found], expected)


def test_the_encoders_start_survives_stable_baselines3():
    torch.manual_seed(0)
    model = PPO(AttentionPolicy, DirectionalSensorVecEnv("Coverage", 2), n_steps=8, batch_size=8, device="cpu")
    attention = model.policy.features_extractor.encoder.attention
    for linear in (attention.Q, attention.K, attention.V):
        gram = linear.weight @ linear.weight.T
        assert (gram - torch.diag(gram.diag())).abs().max() > 0.1  # orthogonal_ would make it diagonal
        bound = (6 / 128) ** 0.5
        assert 0.95 * bound < linear.weight.abs().max() <= bound
        assert not linear.bias.any()


def test_a_mask_of_other_numbers_and_arguments_without_effect_are_refused():
    task = CoordinatorTask()
    policy = AttentionPolicy(task.observation_space, task.action_space, lambda _: 1e-3)
    shown = {name: torch.as_tensor(array).float() for name, array in task.observe().items()}
    policy(shown)
    with pytest.raises(ValueError, match="mask holds"):
        policy(shown | {"mask": shown["mask"] * 0.5 - 0.1})
    for name, value in (("net_arch", [64]), ("activation_fn", torch.nn.Tanh), ("share_features_extractor", False)):
        with pytest.raises(ValueError, match=f"{name} would have no effect on this policy's encoder"):
            AttentionPolicy(task.observation_space, task.action_space, lambda _: 1e-3, **{name: value})
    again = AttentionPolicy(**policy._get_constructor_parameters())  # as Stable-Baselines3 loads a policy
    again.load_state_dict(policy.state_dict())


def test_spaces_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="the observation space is Box"):
        PPO(AttentionPolicy, "CartPole-v1")
    space = CoordinatorTask().observation_space
    for action_space, options, message in (
        (spaces.MultiDiscrete([3] * 5), {}, r"MultiDiscrete\(\[3 3 3 3 3\]\); for 4 sensors and 5 targets"),
        (spaces.MultiBinary(7), {}, r"it must be MultiBinary\(20\), MultiDiscrete"),
    ):
        with pytest.raises(ValueError, match=message):
            AttentionPolicy(space, action_space, lambda _: 1e-3, **options)


def test_a_policy_that_learned_from_all_targets_decides_alike_on_lists_of_all():
    scenario = load_scenario("random").replace(num_targets=12)
    dense, listed = (load_agent(f"pretrained:any-size{end}", scenario) for end in ("", ":nearest=12"))
    assert (dict(dense.nearness), dict(listed.nearness)) == ({}, {"nearest": 12})
    simulator = Simulator(scenario, 3, 0)
    everything, nearest = (Observer(scenario, dense.features, **one.nearness) for one in (dense, listed))
    for _ in range(5):
        actions, _ = dense.policy.predict(everything.observe(simulator), deterministic=True)
        same, _ = listed.policy.predict(nearest.observe(simulator), deterministic=True)
        np.testing.assert_array_equal(actions, same)
        simulator.step(actions)
