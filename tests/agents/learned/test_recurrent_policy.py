"""Policy that learns a memory: what it may know, its state, its learning, and what is refused."""

import dataclasses

import numpy as np
import pytest
import torch

from hitmac.agents import PolicyConfig, load_agent, save_policy
from hitmac.agents.evaluate import evaluate
from hitmac.agents.learned.beliefs import OwnKnowledge
from hitmac.agents.learned.checkpoint import build_policy, load_policy
from hitmac.agents.learned.recurrent import OF_SENSOR, RECURRENT_FEATURES, SEEN, RecurrentPolicy
from hitmac.agents.registry import as_agent
from hitmac.agents.training.config import CoverageOptions, CoverageRewardOptions, check, check_on, with_defaults
from hitmac.agents.training.imitation import RecurrentImitation
from hitmac.agents.training.resume import Progress, load_training, save_training
from hitmac.agents.training.train import build
from hitmac.envs import load_scenario
from hitmac.envs.tasks import CoverageTask

SHARED = load_scenario("hit-mac").replace(knowledge="shared", failure_rate=0.02, recovery_rate=0.2)
SMALL = {"num_envs": 6, "rollout_steps": 4, "batch_size": 12, "weight_dim": 8, "teacher": "planner-fast"}


def config_on(scenario, **policy):
    return PolicyConfig(
        policy={"memory": "recurrent", "weight_dim": 16, "num_blocks": 2, "attend_over": "axes"} | policy,
        features=RECURRENT_FEATURES,
        scenario=scenario,
        training_seeds=(2**40, 2**40),
    )


def fresh(scenario=SHARED, **policy):
    """Untrained policy that is sure of its actions, and takes each of them in a third of the scenes or so."""
    torch.manual_seed(0)
    made = build_policy(config_on(scenario, **policy), scenario)
    last = made.action_net[0][2]
    with torch.no_grad():
        last.weight.mul_(1000.0)
        logits, acting, _ = made.unroll(torch.from_numpy(np.stack([one["pairs"] for one in observations(SHARED)])))
        last.bias.copy_(-logits[:, 0][acting].mean(0))
    return made


def observations(scenario=SHARED, scenes=5, steps=12, seed=0):
    """Observations of scenes in which the sensors turn by chance."""
    task = CoverageTask(scenario, scenes, seed, features=RECURRENT_FEATURES)
    actions = np.random.default_rng(1).integers(0, 3, (steps, scenes, scenario.num_sensors))
    shown = []
    for action in actions:
        shown.append(task.observe())
        task.step(action)
    return shown


def played(policy, shown, starts=None):
    """Deterministic actions (T, B, n) and the last state of a policy."""
    state, actions = None, []
    for step, observation in enumerate(shown):
        start = None if starts is None else starts[step]
        action, state = policy.predict(observation, state, start, deterministic=True)
        actions.append(action)
    return np.stack(actions), state


def picked(shown, rows):
    return [{name: array[rows] for name, array in observation.items()} for observation in shown]


def test_a_scene_of_a_batch_is_played_as_alone():
    policy, shown = fresh(), observations()
    together, (state,) = played(policy, shown)
    assert len(np.unique(together)) == 3
    for scene in range(5):
        alone, (own,) = played(policy, picked(shown, slice(scene, scene + 1)))
        np.testing.assert_array_equal(alone[:, 0], together[:, scene])
        np.testing.assert_allclose(own[0], state[scene], atol=1e-5)
    action, _ = policy.predict({name: array[2] for name, array in shown[0].items()}, deterministic=True)
    np.testing.assert_array_equal(action, together[0, 2])


def test_it_is_equivariant_over_sensors_and_targets_and_of_any_number_of_them():
    policy, shown = fresh(), observations()
    actions, (state,) = played(policy, shown)
    sensors, targets = [2, 0, 3, 1], [4, 2, 0, 1, 3]
    permuted = [
        {name: array[:, sensors][:, :, targets] for name, array in observation.items()} for observation in shown
    ]
    others, (other,) = played(policy, permuted)
    np.testing.assert_array_equal(others, actions[..., sensors])
    np.testing.assert_allclose(other, state[:, sensors][:, :, targets], atol=1e-5)
    larger = load_scenario("hit-mac-6x9").replace(knowledge="shared")
    assert played(fresh(larger), observations(larger))[0].shape == (12, 5, 6)


def test_a_sequence_at_once_is_the_loop_of_its_steps():
    policy, shown = fresh(), observations()
    starts = np.zeros((12, 5), bool)
    starts[0], starts[7, 1], starts[3, 4] = True, True, True
    actions, (state,) = played(policy, shown, starts)
    pairs = torch.from_numpy(np.stack([one["pairs"] for one in shown]))
    logits, acting, last = policy.unroll(pairs, None, torch.from_numpy(starts))
    np.testing.assert_array_equal(logits[:, 0].argmax(-1).unflatten(0, (12, 5)), actions)
    np.testing.assert_allclose(last.detach(), state, atol=1e-5)
    works = np.stack([(one["pairs"][:, :, 0, -2:] != 0).any(-1) for one in shown])
    np.testing.assert_array_equal(acting.unflatten(0, (12, 5)), works)
    assert not works.all()
    assert (actions[~works] == 0).all()  # a failed sensor stays


def test_an_episode_begins_with_nothing_in_memory():
    policy, shown = fresh(), observations()
    starts = np.zeros((12, 5), bool)
    starts[6, [1, 3]] = True
    again, (state,) = played(policy, shown, starts)
    alone, (own,) = played(policy, picked(shown[6:], [1, 3]))
    np.testing.assert_array_equal(again[6:, [1, 3]], alone)
    np.testing.assert_allclose(state[[1, 3]], own, atol=1e-5)
    without, _ = played(policy, shown)
    assert (without[6:, [1, 3]] != alone).any()  # it does remember


def test_nothing_but_what_is_seen_now_is_read():
    """Neither last known places and velocities nor the mask, which says what was ever seen."""
    policy, shown = fresh(), observations()
    changed = []
    for observation in shown:
        pairs, mask = observation["pairs"].copy(), observation["mask"].copy()
        unseen = pairs[..., SEEN] == 0
        for k in set(range(OF_SENSOR)) - {SEEN}:
            pairs[unseen, k] = 0.7
        mask[unseen] = 1 - mask[unseen]
        changed.append({"pairs": pairs, "mask": mask})
    assert all(name.startswith(("sensor", "heading")) for name in RECURRENT_FEATURES[OF_SENSOR:])
    assert np.mean([(one["pairs"][..., SEEN] == 0).mean() for one in shown]) > 0.2
    actions, (state,) = played(policy, shown)
    others, (other,) = played(policy, changed)
    np.testing.assert_array_equal(others, actions)
    np.testing.assert_array_equal(other, state)
    for observation in changed:
        observation["pairs"][..., SEEN] = 1
    assert (played(policy, changed)[0] != actions).any()  # what is seen is read


def test_the_gradient_of_a_step_reaches_those_before_it():
    policy = fresh()
    pairs = torch.from_numpy(np.stack([one["pairs"] for one in observations()])).requires_grad_()
    logits, _, _ = policy.unroll(pairs)
    logits.unflatten(0, (12, 5))[-1].clamp(-1e30).sum().backward()
    assert (pairs.grad.abs().sum((1, 2, 3, 4)) > 0).all()


def test_a_saved_policy_plays_the_same(tmp_path):
    policy, shown = fresh(), observations()
    save_policy(tmp_path, policy, config_on(SHARED))
    loaded, config = load_policy(tmp_path)
    assert isinstance(loaded, RecurrentPolicy)
    assert config.policy["memory"] == "recurrent"
    np.testing.assert_array_equal(played(loaded, shown)[0], played(policy, shown)[0])
    agents = [as_agent(policy, config, SHARED, name="made"), load_agent(tmp_path, SHARED)._replace(name="read")]
    agents = evaluate(agents, SHARED, episodes=2, max_episode_steps=20, progress=False)["agents"]
    assert agents["made"]["coverage"] == agents["read"]["coverage"]
    for other in ("hit-mac-2x5", "hit-mac-6x9"):
        result = evaluate([tmp_path], load_scenario(other).replace(knowledge="shared"), episodes=1, max_episode_steps=9)
        assert result["agents"]


@pytest.mark.parametrize("knowledge", ["own", "neighbours"])
def test_with_its_own_knowledge_a_sensor_acts_on_that_alone(knowledge):
    scenario = load_scenario("hit-mac").replace(knowledge=knowledge, failure_rate=0.02, recovery_rate=0.2)
    agent = as_agent(fresh(), config_on(SHARED), scenario, name="trained")
    assert isinstance(agent.policy, OwnKnowledge)
    shown = observations(scenario)
    changed = [{name: array.copy() for name, array in one.items()} for one in shown]
    for one in changed:
        one["pairs"][:, 1:, :, :OF_SENSOR] = 0.3  # what the others know; not where they are
        one["mask"][:, 1:] = 1
    actions, others = played(agent.policy, shown)[0], played(agent.policy, changed)[0]
    np.testing.assert_array_equal(others[..., 0], actions[..., 0])
    assert (others[..., 1:] != actions[..., 1:]).any()


def test_what_all_know_every_sensor_describes_as_it_is_shown():
    scenario = load_scenario("hit-mac-3x5").replace(knowledge="shared", failure_rate=0.02, recovery_rate=0.2)
    for observation in observations(scenario, scenes=40):
        pairs = observation["pairs"]
        described = OwnKnowledge(fresh(scenario), scenario).describe(pairs)
        seen = pairs[:, :, :, SEEN, None] != 0
        expected = np.where(seen | (np.arange(len(RECURRENT_FEATURES)) >= OF_SENSOR), pairs, 0)
        works = (pairs[:, :, 0, -2:] != 0).any(-1)
        for sensor in range(3):
            rows = works[:, sensor]
            np.testing.assert_allclose(described[rows, sensor], expected[rows], atol=2e-4)
            assert (described[~rows, sensor, :, :, :OF_SENSOR] == 0).all()


def learner(scenario=SHARED, **options):
    """Learner with a small network, and its environments."""
    options = dataclasses.replace(with_defaults(CoverageOptions, "imitation", "recurrent"), **SMALL | options)
    model, venv, _ = build(options, scenario)
    assert isinstance(model, RecurrentImitation)
    return model, venv


def test_sequences_are_remembered_with_the_states_before_them():
    """Whatever is unrolled from the state before a rollout ends in the state before the next."""
    model, _ = learner(learning_rate=1e-12, episode_steps=9)
    model.learn(6 * 4 * 5)
    assert model._n_updates == 4 * model.num_updates == 4 * 4  # none in the first rollout
    states = model.buffer["states"][: 5 * 6].reshape(5, 6, *model.buffer["states"].shape[1:])
    assert not states[0].any()
    assert model.buffer["starts"][:6, 0].all()
    assert model.buffer["starts"][: 5 * 6].sum() > 6
    for number in range(5):
        rows = slice(6 * number, 6 * number + 6)
        pairs, starts = torch.from_numpy(model.buffer["pairs"][rows]), torch.from_numpy(model.buffer["starts"][rows])
        _, _, last = model.policy.unroll(pairs.transpose(0, 1), torch.from_numpy(states[number]), starts.mT)
        after = model._state if number == 4 else torch.from_numpy(states[number + 1])
        torch.testing.assert_close(last.detach(), after, atol=1e-5, rtol=0)


def test_only_whole_rollouts_are_drawn_and_the_oldest_are_forgotten(monkeypatch):
    from hitmac.agents.training import imitation as recurrent_imitation

    monkeypatch.setattr(recurrent_imitation, "BUFFER_SCENES", 2 * 4 * 6)
    model, _ = learner()
    assert len(model.buffer["pairs"]) == 3 * 6
    drawn, inner = set(), model._drawn

    def watch():
        parts = inner()
        now = model.num_timesteps // 24
        drawn.update((now, int(row) // 6) for rows in parts for row in rows)
        return parts

    monkeypatch.setattr(model, "_drawn", watch)
    model.learn(24 * 12)
    for now in range(2, 12):
        assert {slot for at, slot in drawn if at == now} <= {(now - 1) % 3, (now - 2) % 3}
    assert {slot for at, slot in drawn if at == 1} == {0}


def test_a_resumed_learner_goes_on_as_if_never_interrupted(tmp_path):
    whole, venv = learner()
    whole.learn(48)
    save_training(tmp_path / "part", whole, venv, Progress())
    whole.learn(48, reset_num_timesteps=False)
    resumed, venv = learner()
    load_training(tmp_path / "part", resumed, venv)
    resumed.learn(48, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps == 96
    for one, other in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(whole._state, resumed._state)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (CoverageOptions(memory="recurrent"), "--features is .*must be left out"),
        (CoverageOptions(memory="recurrent", features=RECURRENT_FEATURES, per_sensor=True), "without --per-sensor"),
        (CoverageOptions(memory="recurrent", features=RECURRENT_FEATURES, weight_dim=7), "--weight-dim is 7"),
        (CoverageRewardOptions(memory="recurrent", features=RECURRENT_FEATURES), "learned by imitation"),
        (CoverageOptions(memory="gru"), "--memory is gru"),
    ],
)
def test_options_that_do_not_fit_a_memory_are_refused(options, says):
    with pytest.raises((ValueError, ExceptionGroup), match=says):
        check(options)


@pytest.mark.parametrize("knowledge", ["full", "neighbours", "own"])
def test_a_memory_is_learned_where_sensors_share_what_they_see(knowledge):
    options = with_defaults(CoverageOptions, "imitation", "recurrent")
    check(options)
    check_on(options, SHARED)
    with pytest.raises(ValueError, match="must be shared"):
        check_on(options, load_scenario("hit-mac").replace(knowledge=knowledge))


def test_a_checkpoint_that_no_memory_fits_is_refused():
    with pytest.raises(ValueError, match="memory is 'lstm'"):
        config_on(SHARED, memory="lstm")


@pytest.mark.slow
def test_it_learns_to_search_and_to_remember():
    scene = load_scenario("hit-mac-2x2").replace(knowledge="shared")
    options = {"num_envs": 32, "rollout_steps": 16, "batch_size": 128, "weight_dim": 32, "teacher": "belief-planner"}
    model, _ = learner(scene, **options)
    model.learn(32 * 16 * 12)
    config = config_on(scene)
    trained = as_agent(model.learned, config, scene, name="trained")
    agents = evaluate([trained, "random"], scene, episodes=8, seed=10**6, progress=False)["agents"]
    assert agents["trained"]["coverage"]["mean"] > agents["random"]["coverage"]["mean"] + 0.1
