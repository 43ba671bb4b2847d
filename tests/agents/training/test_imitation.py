"""Imitation of a planner's values: the loss by hand, what is remembered, and that it learns."""

import dataclasses
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from hitmac.agents import AttentionPolicy
from hitmac.agents.evaluate import evaluate
from hitmac.agents.registry import as_agent
from hitmac.agents.training import imitation
from hitmac.agents.training.config import CoverageOptions
from hitmac.agents.training.imitation import Imitation, by_size, halves, imitation_loss, in_parallel, select, sizes
from hitmac.agents.training.train import build
from hitmac.envs import load_scenario
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv


class Compass:
    """Teacher that values a turn by the mean bearing of the targets; it also keeps what it was asked."""

    features = ("bearing", "distance")

    def __init__(self):
        self.asked = []

    def plan(self, pairs, mask, state=None, episode_start=None):
        self.asked.append(pairs.copy())
        calls = np.zeros(len(pairs), int) if state is None else state[0] + 1
        if episode_start is not None:
            calls[episode_start] = 0
        self.calls = calls
        return self.values(pairs), (calls,)

    @staticmethod
    def values(pairs):
        bearing = pairs[..., 0].mean(-1)
        return np.stack((np.zeros_like(bearing), bearing, -bearing), -1)


def learner(scenario="hit-mac-3x2", num_envs=4, per_sensor=False, **options):
    torch.manual_seed(0)
    venv = DirectionalSensorVecEnv(
        "Coverage", num_envs, load_scenario(scenario), seed=5, max_episode_steps=9, per_sensor=per_sensor
    )
    return Imitation(AttentionPolicy, venv, **({"teacher": Compass(), "seed": 1, "n_steps": 4} | options))


def test_the_loss_by_hand():
    logits = torch.tensor([[0.0, math.log(2.0), 0.0]])  # probabilities 1/4, 1/2, 1/4
    values = torch.tensor([[0.0, 0.0, 0.2 * math.log(2.0)]])  # softmax at 0.2: 1/4, 1/4, 1/2
    cross_entropy = 0.25 * math.log(4) + 0.25 * math.log(2) + 0.5 * math.log(4)
    regret = 0.75 * 0.2 * math.log(2.0)
    assert imitation_loss(logits, values, 0.2).item() == pytest.approx(cross_entropy + regret, abs=1e-6)
    shifted = imitation_loss(logits - 3.0, values + 7.0, 0.2)
    assert shifted.item() == pytest.approx(cross_entropy + regret, abs=1e-5)


def test_the_best_actions_have_the_least_regret():
    values = torch.tensor([[1.0, 0.0, -2.0]])
    sure = [imitation_loss(60.0 * torch.eye(3)[action : action + 1], values, 0.1).item() for action in range(3)]
    assert sure[0] < sure[1] < sure[2]


@pytest.mark.parametrize("scenario", ["hit-mac-3x2", "obstacles", "random", "hit-mac-1x1"])
@pytest.mark.parametrize("per_sensor", [False, True])
def test_it_remembers_what_was_seen_with_the_values_of_the_same_step(scenario, per_sensor, monkeypatch):
    model = learner(scenario, per_sensor=per_sensor)
    seen, step = [], model.env.step

    def watch(actions):
        seen.append({name: array.copy() for name, array in model._last_obs.items()})
        return step(actions)

    monkeypatch.setattr(model.env, "step", watch)
    model.learn(12 * model.n_envs)
    state = model.get_state()
    assert len(state["values"]) == 12 * model.n_envs
    for number, observation in enumerate(seen):
        at = slice(number * model.n_envs, (number + 1) * model.n_envs)
        assert np.array_equal(state["pairs"][at], observation["pairs"])
        assert np.array_equal(state["mask"][at], observation["mask"])
        asked = model.labels.teacher.asked[number + 1]  # the first compiles the teacher
        values = Compass.values(asked).reshape(model.n_envs, -1, 3)
        assert np.array_equal(state["values"][at], values.astype(np.float32))
    assert model.labels.teacher.calls.tolist() == (model.env.task.time - 1).tolist()  # an episode has nine steps
    assert model._n_updates == 11 * model.num_updates  # none before anything is remembered


def test_the_oldest_scenes_are_forgotten(monkeypatch):
    monkeypatch.setattr(imitation, "BUFFER_SCENES", 10)
    model = learner()
    assert len(model.buffer["pairs"]) == 12  # whole steps of all scenes
    model.learn(5 * 4 * 4)
    asked = np.concatenate(model.labels.teacher.asked[1:])[-12:]
    recent = Compass.values(asked).astype(np.float32)
    rows = {row.tobytes() for row in model.get_state()["values"]}
    assert rows == {row.tobytes() for row in recent}


@pytest.mark.parametrize("scenario", ["hit-mac-3x2", "obstacles", "random"])
def test_a_resumed_learner_goes_on_as_if_never_interrupted(scenario, tmp_path):
    from hitmac.agents.training.resume import Progress, load_training, save_training

    options = CoverageOptions(num_envs=4, rollout_steps=3, batch_size=4, weight_dim=8, teacher="planner-fast")
    scene = load_scenario(scenario)
    whole, venv, _ = build(options, scene)
    whole.learn(24)
    save_training(tmp_path / "part", whole, venv, Progress())
    whole.learn(24, reset_num_timesteps=False)
    resumed, venv, _ = build(options, scene)
    load_training(tmp_path / "part", resumed, venv)
    resumed.learn(24, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps == 48
    for one, other in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(one, other)


def test_scenes_without_any_sensor_that_acts_teach_nothing():
    model = learner()
    model.learn(16)
    before = [parameter.clone() for parameter in model.policy.parameters()]
    model.buffer["mask"][:] = 0
    with ThreadPoolExecutor(1) as threads:
        assert model._update(threads) == 0.0
    assert all(torch.equal(a, b) for a, b in zip(before, model.policy.parameters(), strict=True))


@pytest.mark.slow
def test_it_learns_to_turn_as_the_teacher_does():
    model = learner("hit-mac", num_envs=16, learning_rate=3e-3)
    model.learn(16 * 300)
    model.env.seed(99)
    observation = model.env.reset()
    actions, _ = model.learned.predict(observation, deterministic=True)
    seen = model.labels.observer.observe(model.env.task.simulator)
    values = Compass.values(seen["pairs"])
    clear = np.abs(values[..., 1]) > 0.1
    assert (actions == values.argmax(-1))[clear].mean() > 0.9


@pytest.mark.slow
def test_imitation_of_the_planner_covers_in_seconds():
    options = CoverageOptions(num_envs=32, batch_size=32, epochs=4, weight_dim=32, teacher="planner-fast")
    scene = load_scenario("hit-mac")
    model, venv, config = build(dataclasses.replace(options), scene)
    assert venv.num_envs == 32
    model.learn(32 * 96)
    trained = as_agent(model.learned, config, scene, name="trained")
    agents = evaluate([trained, "random", "nearest"], scene, episodes=8, seed=10**6, progress=False)["agents"]
    assert agents["trained"]["coverage"]["mean"] > agents["random"]["coverage"]["mean"] + 0.3
    assert agents["trained"]["coverage"]["mean"] > 0.7


@pytest.mark.parametrize("num_envs", [1, 2, 3, 8])
def test_a_gradient_is_that_of_the_whole_batch_on_any_number_of_threads(num_envs, monkeypatch):
    """Halves of one scene and none, of one and one, of unequal and of equal size."""
    gradients = []
    for workers in (1, 2):
        model = learner(num_envs=num_envs, max_grad_norm=1e9)
        model.learn(12 * num_envs)
        chosen = model._chosen(12 * num_envs)
        monkeypatch.setattr(model, "_chosen", lambda _, chosen=chosen: chosen)
        scenes = {name: torch.from_numpy(array[chosen]) for name, array in model.buffer.items()}
        loss, decisions = model.labels.loss(model.policy, scenes, scenes.pop("values"))
        expected = torch.autograd.grad(loss / decisions, list(model.policy.parameters()), allow_unused=True)
        with ThreadPoolExecutor(workers) as threads:
            assert model._update(threads) == pytest.approx(loss.item() / decisions, rel=1e-5)
        found = [parameter.grad for parameter in model.policy.parameters()]
        for one, other in zip(found, expected, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)
        gradients.append([gradient for gradient in found if gradient is not None])
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_what_is_learned_is_the_average_of_the_weights():
    """After update k the weights 1 to k count as k (k + 1) ... (k + 8), up to a factor, which goes with k^9."""
    model, weights = learner(), []
    update = model._update

    def watch(threads):
        loss = update(threads)
        weights.append(model.policy.action_net[0][0].weight.detach().clone())
        return loss

    model._update = watch
    model.learn(12 * model.n_envs)
    assert len(weights) > 10
    count = torch.tensor([math.prod(range(k, k + 9)) for k in range(1, len(weights) + 1)], dtype=torch.float64)
    expected = (torch.stack(weights).double() * (count / count.sum())[:, None, None]).sum(0)
    average = model.learned.action_net[0][0].weight
    torch.testing.assert_close(average, expected.float(), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(average, weights[-1], rtol=1e-4, atol=1e-6)


def test_scenes_by_size_are_learned_together_without_padding():
    """Sizes by hand; parts are of like size, and cropping changes neither loss nor gradients nor logits."""
    mask = np.zeros((3, 4, 5), np.int8)
    mask[0, 1, 2] = mask[1, 0, 0] = mask[2, 3, 1] = 1
    assert sizes(mask).tolist() == [[2, 3], [1, 1], [4, 2]]
    assert [rows.tolist() for rows in by_size(mask)] == [[1], [], [], [0], [], [], [2], [], []]
    assert [rows.tolist() for rows in by_size(mask[[0, 0, 1, 1, 1, 1, 2]])[:4]] == [[2], [3], [4], [5]]
    assert [rows.tolist() for rows in halves(mask)] == [[0, 1], [2]]
    model = learner("mixed", num_envs=16, batch_size=8)
    assert model.varies
    model.learn(16 * 12)
    rows = by_size(model.buffer["mask"][: 16 * 12])[0]
    results = []
    for crop in (False, True):
        scenes = {name: torch.from_numpy(array) for name, array in select(model.buffer, rows, crop=crop).items()}
        labels = scenes.pop("values")
        loss, _ = model.labels.loss(model.policy, scenes, labels)
        gradient = torch.autograd.grad(loss, list(model.policy.parameters()), allow_unused=True)
        logits = model.policy.logits(scenes).detach()
        results.append((scenes["pairs"].numel(), loss.detach(), gradient, logits))
    (most, *_, padded), (least, *_, plain) = results
    assert 2 * least < most  # a ninth of the scenes, the smallest
    n = plain.shape[2]
    torch.testing.assert_close(padded[:, :, :n], plain, rtol=1e-3, atol=1e-5)
    assert (padded[:, :, n:].argmax(-1) == 0).all()  # the others stay
    torch.testing.assert_close(results[0][1], results[1][1])
    for one, other in zip(results[0][2], results[1][2], strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert not learner("hit-mac-3x2").varies
    assert not learner("mixed", policy_kwargs={"encoder": "mlp"}).varies  # a network for one size


@pytest.mark.parametrize("scenario", ["hit-mac-3x2", "mixed", "obstacles"])
def test_it_acts_by_the_policy(scenario):
    """Where the policy is sure, by its best actions; sensors that are not there stay."""
    model = learner(scenario, num_envs=16)
    model.learn(16 * 4)
    with torch.no_grad():
        model.policy.action_net[0][2].weight.mul_(1e6)
    observation = model._last_obs
    expected, _ = model.policy.predict(observation, deterministic=True)
    with ThreadPoolExecutor(1) as threads:
        actions = model._act(observation, threads)
    assert actions.shape == expected.shape
    assert actions.dtype == expected.dtype
    np.testing.assert_array_equal(actions, expected)
    assert (expected != 0).any()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_parts_are_computed_once_each_in_their_order(workers, count):
    computed = []

    def function(rows):
        computed.append(rows)
        return 2 * rows

    with ThreadPoolExecutor(workers) as threads:
        assert in_parallel(threads, function, range(count)) == [2 * number for number in range(count)]
        busy = threading.Event()
        waiting = [threads.submit(busy.wait) for _ in range(workers)]
        assert in_parallel(threads, function, range(count)) == [2 * number for number in range(count)]  # by this thread
        busy.set()
    assert sorted(computed) == sorted(2 * list(range(count)))
    assert all(one.result() for one in waiting)


def test_one_sensor_by_itself_learns_where_the_number_of_targets_varies():
    """Its observation (m, d) is no scene to crop, although there are as many sensors as rows of an answer."""
    model = learner(load_scenario("hit-mac-1x3").replace(min_targets=1), per_sensor=True)
    assert not model.varies
    model.learn(16)
    assert model._n_updates > 0
