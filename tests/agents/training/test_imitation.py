"""Imitation of a teacher: losses by hand, the scenes and labels that are remembered, and the updates."""

import dataclasses
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hitmac.agents import AttentionPolicy
from hitmac.agents.learned.policy import RATES
from hitmac.agents.planning.levels import AssignInRange
from hitmac.agents.planning.planner import PlanningPolicy
from hitmac.agents.training import imitation
from hitmac.agents.training.config import CoverageOptions, with_defaults
from hitmac.agents.training.imitation import Imitation, MoveLabels, imitation_loss
from hitmac.agents.training.learner import build
from hitmac.agents.training.parts import by_size, halves, in_parallel, select, sizes
from hitmac.envs import DEFAULT_FEATURES, load_scenario
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from tests.envs.scenes import BY_RATE


class Compass(PlanningPolicy):
    """Teacher that values a turn by the sum of the targets' bearings, and records what it is shown."""

    features = ("bearing",)

    def __init__(self):
        super().__init__()
        self.seen = []

    def plan(self, pairs, mask, state=None, episode_start=None):
        self.seen.append((pairs.copy(), mask.copy()))
        calls = np.zeros(len(pairs), int) if state is None else state[0] + 1
        if episode_start is not None:
            calls[episode_start] = 0
        self.calls = calls
        return self.values(pairs, mask), (calls,)

    @staticmethod
    def values(pairs, mask):
        bearing = (pairs[..., 0] * mask).sum(-1)
        return np.stack((np.zeros_like(bearing), bearing, -bearing), -1)


TASKS = {
    "Coverage": {},
    "Executor": {"goals_every": 2, "goal_share": 0.5, "padding": "masked", "features": DEFAULT_FEATURES},
    "Coordinator": {"features": DEFAULT_FEATURES},
}
USUAL = {
    "learning_rate": 2e-3, "n_steps": 4, "batch_size": 128, "n_epochs": 2, "temperature": 0.1, "max_grad_norm": 5.0,
    "device": "cpu",
}  # fmt: skip


def learner(task="Coverage", scenario="hit-mac-3x2", num_envs=4, per_sensor=False, **options):
    torch.manual_seed(0)
    of_task = TASKS[task] | ({"per_sensor": True} if per_sensor else {})
    venv = DirectionalSensorVecEnv(task, num_envs, load_scenario(scenario), seed=5, max_episode_steps=9, **of_task)
    teacher = AssignInRange() if task == "Coordinator" else Compass()
    return Imitation(AttentionPolicy, venv, **({"teacher": teacher, "seed": 1} | USUAL | options))


# --- losses and labels ---


def test_the_loss_by_hand():
    logits = torch.tensor([[0.0, math.log(2.0), 0.0]])  # probabilities 1/4, 1/2, 1/4
    values = torch.tensor([[0.0, 0.0, 0.2 * math.log(2.0)]])  # softmax at 0.2: 1/4, 1/4, 1/2
    cross_entropy = 0.25 * math.log(4) + 0.25 * math.log(2) + 0.5 * math.log(4)
    regret = 0.75 * 0.2 * math.log(2.0)
    assert imitation_loss(logits, values, 0.2).item() == pytest.approx(cross_entropy + regret, abs=1e-6)
    shifted = imitation_loss(logits - 3.0, values + 7.0, 0.2)
    assert shifted.item() == pytest.approx(cross_entropy + regret, abs=1e-5)


def test_the_values_of_rates_by_hand():
    """Linear between the opposite of a command, staying and the command; a level just beyond it counts as it."""
    values = torch.tensor([[1.0, 3.0, 0.0]] * 3)
    found = imitation.values_of_rates(values, torch.tensor([0.5, 1.0, -1.0]))
    expected = {
        0.5: {0.0: 1, 0.2: 1.8, 0.4: 2.6, 0.6: 3, 0.8: 0, 1.0: 0, -0.2: 0.6, -0.4: 0.2, -0.6: 0, -0.8: 0, -1.0: 0},
        1.0: {0.0: 1, 0.2: 1.4, 0.4: 1.8, 0.6: 2.2, 0.8: 2.6, 1.0: 3, -0.2: 0.8, -0.6: 0.4, -1.0: 0},
        -1.0: {0.0: 1, -0.2: 1.4, -1.0: 3, 0.2: 0.8, 1.0: 0},
    }
    for row, by_rate in zip(found, expected.values(), strict=True):
        for rate, value in by_rate.items():
            assert row[RATES.index(rate)].item() == pytest.approx(value, abs=1e-6)


def test_the_best_rates_are_those_of_the_teachers_steps():
    tilting = BY_RATE.replace(tilt_limits=((5, 75),), tilt_step=5, mount_height=100, vertical_view=24)
    for scenario, second in ((BY_RATE, ()), (load_scenario("mate-2v4-0"), (1.0, -1.0)), (tilting, (-1.0, 1.0))):
        env = DirectionalSensorVecEnv("Coverage", 2, scenario.replace(num_sensors=2, action="rate"))
        turn = 1.0 if scenario.is_game else 5 / scenario.time_step / 45
        teacher = Compass()
        teacher.decides = scenario.decisions
        labels = imitation.TurnLabels(teacher, env, 0.5)
        values = np.eye(3)[[[[1, 2][: len(scenario.decisions)], [2, 1][: len(scenario.decisions)]]] * 2]
        expected = [turn, -turn, *second]  # zoom 2 is wider, over 0; tilt 2 is up, under 0
        np.testing.assert_allclose(labels.best(values.reshape(2, 2, -1)), [expected] * 2, atol=1e-6)


def test_the_loss_of_assignments_by_hand():
    model = learner("Coordinator", "hit-mac-1x3")
    logits = torch.tensor([[0.0, math.log(3.0), 5.0]])
    model.policy.logits = lambda obs: logits[:, None, :, None]
    mask, answers = torch.tensor([[[1, 1, 0]]]), torch.tensor([[1.0, 0.0, 1.0]])
    loss, decisions = model.labels.loss(model.policy, {"mask": mask}, answers)
    assert loss.item() == pytest.approx(math.log(2) + math.log(4))  # the last pair is absent
    assert decisions == 2
    nothing, decisions = model.labels.loss(model.policy, {"mask": 0 * mask}, answers)
    assert (nothing.item(), decisions) == (0.0, 0)


def test_labels_of_turns_and_moves_where_lenses_zoom():
    """Two sensors on rails: a teacher's turns and moves, sensor by sensor, and no zoom."""
    scenario = load_scenario("volleyball-4").replace(num_sensors=2, rail_starts=(), zoom=(60, 120))
    assert scenario.decisions == ("turn", "zoom", "move")
    turns, moves = np.float32([[0, 3, 1], [5, 2, 0]]), np.float32([[1, 0, 4], [0, 9, 2]])
    teacher = Compass()
    teacher.decides = ("turn", "move")
    teacher.plan = lambda *seen: (np.stack([np.concatenate((turns, moves)), np.concatenate((moves, turns))]), None)
    labels = imitation.TurnLabels(teacher, DirectionalSensorVecEnv("Coverage", 2, scenario), 0.5)
    found = labels.label(labels.observe(), np.ones(2, bool))
    assert found[0].tolist() == [[0, 3, 1, 1, 0, 4], [5, 2, 0, 0, 9, 2]]
    assert found[1].tolist() == [[1, 0, 4, 0, 3, 1], [0, 9, 2, 5, 2, 0]]
    assert labels.best(found).tolist() == [[1, 0, 0, 0, 2, 1], [2, 1, 0, 0, 1, 0]]

    logits, acting = torch.randn(2, 3, 2, 3), torch.tensor([[False, True], [False, False]])
    loss, number = labels.loss_of(logits, acting, torch.from_numpy(found))
    own = zip(logits[0, :, 1], ([5.0, 2.0, 0.0], [0.0, -1.0, -1.0], [0.0, 9.0, 2.0]), strict=True)
    assert loss.item() == pytest.approx(sum(imitation_loss(one, torch.tensor(value), 0.5).item() for one, value in own))
    assert number == 1


# --- buffer ---


@pytest.mark.parametrize(
    ("task", "scenario", "per_sensor"),
    [("Coverage", "obstacles", False), ("Coverage", "random", True), ("Executor", "random", False),
     ("Executor", "obstacles", False), ("Coordinator", "random", False)],
)  # fmt: skip
def test_scenes_are_stored_with_the_labels_of_the_same_step(task, scenario, per_sensor, monkeypatch):
    model = learner(task, scenario, per_sensor=per_sensor)
    stored, shown, step = [], [], model.env.step

    def watch(actions):
        stored.append({name: array.copy() for name, array in model._last_obs.items()})
        if task == "Executor":
            shown.append((model.env.task.assigned & model.env.task.simulator.valid_pairs).reshape(model.n_envs, -1))
        if task == "Coordinator":
            shown.append(AssignInRange().predict(model.labels.observe())[0])
        return step(actions)

    monkeypatch.setattr(model.env, "step", watch)
    model.learn(12 * model.n_envs)
    state = model.get_state()
    assert len(state["values"]) == 12 * model.n_envs
    assert model._n_updates == 11 * model.num_updates  # none before anything is stored
    assert all(np.array_equal(state[name], np.concatenate([one[name] for one in stored])) for name in ("pairs", "mask"))
    if task == "Coordinator":
        assert np.array_equal(state["values"], np.concatenate(shown))
        return
    pairs, mask = (np.concatenate(one) for one in zip(*model.labels.teacher.seen[1:], strict=True))  # 0: compiles it
    assert np.array_equal(state["values"].ravel(), Compass.values(pairs, mask).astype(np.float32).ravel())
    if task == "Executor":  # its teacher is shown the goals only
        assert np.array_equal(mask != 0, np.concatenate(shown))
        assert np.array_equal(state["mask"].sum(-1), mask.sum(-1))
    rows = len(model.labels.teacher.calls) // model.env.task.num_envs
    assert model.labels.teacher.calls.tolist() == np.repeat(model.env.task.time - 1, rows).tolist()  # nine an episode


def test_the_oldest_scenes_are_replaced(monkeypatch):
    monkeypatch.setattr(imitation, "BUFFER_SCENES", 10)
    model = learner()
    assert len(model.buffer["pairs"]) == 12  # whole steps of all scenes
    model.learn(5 * 4 * 4)
    recent = [Compass.values(*shown).astype(np.float32) for shown in model.labels.teacher.seen[-3:]]
    assert {row.tobytes() for row in model.get_state()["values"]} == {row.tobytes() for row in np.concatenate(recent)}


# --- updates ---


@pytest.mark.parametrize("num_envs", [1, 2, 3])
def test_a_gradient_is_that_of_the_whole_batch_on_any_number_of_threads(num_envs, monkeypatch):
    """Halves of one scene and none, of one and one, and of unequal size."""
    gradients = []
    for workers in (1, 2):
        model = learner(num_envs=num_envs, max_grad_norm=1e9)
        model.learn(12 * num_envs)
        chosen = model._chosen(12 * num_envs)
        monkeypatch.setattr(model, "_chosen", lambda _, chosen=chosen: chosen)
        scenes = {name: torch.from_numpy(array[chosen]) for name, array in model.buffer.items()}
        loss, decisions = model.labels.loss(model.policy, scenes, scenes.pop("values"))
        expected = torch.autograd.grad(loss / decisions, list(model.policy.parameters()), materialize_grads=True)
        with ThreadPoolExecutor(workers) as threads:
            assert model._update(threads) == pytest.approx(loss.item() / decisions, rel=1e-5)
        found = [torch.zeros_like(one) if one.grad is None else one.grad for one in model.policy.parameters()]
        torch.testing.assert_close(found, list(expected), rtol=1e-3, atol=1e-6)
        gradients.append(found)
        before = torch.nn.utils.parameters_to_vector(model.policy.parameters()).detach()
        model.buffer["mask"][:] = 0  # scenes without decisions change no weight
        with ThreadPoolExecutor(workers) as threads:
            assert model._update(threads) == 0.0
        assert torch.equal(torch.nn.utils.parameters_to_vector(model.policy.parameters()), before)
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_the_learned_policy_is_the_average_of_the_weights():
    """After update k the weights 1 to k count as k (k + 1) ... (k + 8), up to a factor: as k^9."""
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


@pytest.mark.parametrize("scenario", ["mixed", "obstacles"])
def test_it_acts_by_the_policy(scenario):
    """By its best actions, since the policy is made sure of them; absent sensors stay."""
    model = learner(scenario=scenario, num_envs=16)
    model.learn(16 * 4)
    with torch.no_grad():
        model.policy.action_net[0][2].weight.mul_(1e6)
    observation = model._last_obs
    expected, _ = model.policy.predict(observation, deterministic=True)
    with ThreadPoolExecutor(1) as threads:
        actions = model._act(observation, threads)
    assert actions.dtype == expected.dtype
    np.testing.assert_array_equal(actions, expected)
    assert (expected != 0).any()


# --- batches in parts ---


def test_scenes_are_sorted_by_size_and_cropped():
    """Sizes by hand; cropping changes neither loss nor gradients nor logits."""
    mask = np.zeros((3, 4, 5), np.int8)
    mask[0, 1, 2] = mask[1, 0, 0] = mask[2, 3, 1] = 1
    assert sizes(mask).tolist() == [[2, 3], [1, 1], [4, 2]]
    assert [rows.tolist() for rows in by_size(mask)] == [[1], [], [], [0], [], [], [2], [], []]
    assert [rows.tolist() for rows in by_size(mask[[0, 0, 1, 1, 1, 1, 2]])[:4]] == [[2], [3], [4], [5]]
    assert [rows.tolist() for rows in halves(mask)] == [[0, 1], [2]]
    model = learner(scenario="mixed", num_envs=16, batch_size=8)
    assert model.varies
    model.learn(16 * 12)
    rows = by_size(model.buffer["mask"][: 16 * 12])[0]
    results = []
    for crop in (False, True):
        scenes = {name: torch.from_numpy(array) for name, array in select(model.buffer, rows, crop=crop).items()}
        labels = scenes.pop("values")
        loss, _ = model.labels.loss(model.policy, scenes, labels)
        gradient = torch.autograd.grad(loss, list(model.policy.parameters()), materialize_grads=True)
        results.append((scenes["pairs"].numel(), [loss.detach(), *gradient], model.policy.logits(scenes).detach()))
    (most, whole, padded), (least, cropped, plain) = results
    assert 2 * least < most  # a ninth of the scenes, the smallest
    n = plain.shape[2]
    torch.testing.assert_close(padded[:, :, :n], plain, rtol=1e-3, atol=1e-5)
    assert (padded[:, :, n:].argmax(-1) == 0).all()  # the others stay
    torch.testing.assert_close(whole, cropped, rtol=1e-3, atol=1e-5)


def test_only_whole_scenes_whose_sizes_vary_are_cropped():
    assert not learner().varies
    assert not learner(scenario="mixed", policy_kwargs={"encoder": "mlp"}).varies  # a network for one size
    # Rows (m, d) are no scenes, although labels have as many axes as masks here.
    assert not learner(scenario=load_scenario("hit-mac-1x3").replace(min_targets=1), per_sensor=True).varies


def test_parts_are_computed_once_each_in_their_order_also_by_this_thread_alone():
    computed, busy, parts = [], threading.Event(), range(9)
    with ThreadPoolExecutor(1) as threads:
        for _ in range(2):
            found = in_parallel(threads, lambda part: computed.append(part) or 2 * part, parts)
            assert found == [2 * part for part in parts]
            threads.submit(busy.wait)
        busy.set()
    assert sorted(computed) == sorted([*parts, *parts])


@pytest.mark.parametrize("per_sensor", [True, False])
def test_a_single_sensor_that_knows_no_target_learns_where_to_look(per_sensor):
    scenario = load_scenario("hit-mac").replace(knowledge="own", num_targets=1, failure_rate=0.05, recovery_rate=0.2)
    options = CoverageOptions(num_envs=6, batch_size=6, rollout_steps=16, weight_dim=8, per_sensor=per_sensor)
    model, venv, _ = build(options, scenario)
    model.learn(16 * venv.num_envs)
    knowing, working = model._last_obs["mask"].any(-1).ravel(), venv.task.acting.ravel()
    assert (working & ~knowing).any()
    assert not working.all()
    labels = model.labels.label(model.labels.observe(), np.zeros(venv.num_envs, bool))
    _, decisions = model.labels.loss(model.policy, model._tensors(model._last_obs), torch.from_numpy(labels))
    assert decisions == (working if per_sensor else working & knowing).sum()  # in a scene such a sensor has to stay


# --- sequences, for policies with a memory ---


def recurrent(**options):
    """Return a learner of 6 scenes with rollouts of 4 steps."""
    small = {"num_envs": 6, "rollout_steps": 4, "batch_size": 12, "weight_dim": 8, "teacher": "planner-fast"}
    options = dataclasses.replace(with_defaults(CoverageOptions, "imitation", "recurrent"), **small | options)
    shared = {"knowledge": "shared", "failure_rate": 0.02, "recovery_rate": 0.2}
    return build(options, load_scenario("hit-mac").replace(**shared))[0]


def test_sequences_are_remembered_with_the_states_before_them():
    """A rollout that is unrolled from the state before it ends in the state before the next."""
    model = recurrent(learning_rate=1e-12, episode_steps=9)
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
    monkeypatch.setattr(imitation, "BUFFER_SCENES", 2 * 4 * 6)
    model = recurrent()
    assert len(model.buffer["pairs"]) == 3 * 6
    drawn, inner = set(), model._drawn

    def watch():
        parts = inner()
        drawn.update((model.num_timesteps // 24, int(row) // 6) for rows in parts for row in rows)
        return parts

    monkeypatch.setattr(model, "_drawn", watch)
    model.learn(24 * 5)
    for now in range(1, 5):
        assert {slot for at, slot in drawn if at == now} <= ({0} if now == 1 else {(now - 1) % 3, (now - 2) % 3})


def test_a_training_is_shown_the_nearest():
    near = {"nearest": 3, "radius": 1200.0, "neighbours": 2}
    options = CoverageOptions(
        num_envs=4, batch_size=4, rollout_steps=2, weight_dim=8, teacher="planner-fast", attend_over="agents", **near
    )
    model, venv, made = build(options, load_scenario("hit-mac-6x12"))
    assert made.nearness == near
    assert venv.observation_space["targets"] == spaces.Box(-1, 11, (6, 3), np.int32)
    assert model.learn(8).num_timesteps == 8


def test_a_part_of_a_batch_keeps_its_lists():
    mask = np.array([[[1, 1, 0], [1, 0, 0], [0, 0, 0]]] * 2, np.int8)
    lists = {"targets": np.where(mask, [4, 7, 0], -1), "neighbours": np.array([[[0, 2], [1, 2], [2, -1]]] * 2)}
    scenes = {"pairs": np.ones((2, 3, 3, 5), np.float32), "mask": mask, "values": np.ones((2, 3, 3), np.float32)}
    found = select(scenes | lists, np.array([1]), crop=True)
    assert found["pairs"].shape == (1, 2, 2, 5)
    assert found["targets"].tolist() == [[[4, 7], [4, -1]]]
    assert found["neighbours"].tolist() == [[[0, -1], [1, -1]]]


# --- moves of targets ---


def north(duel, starts, chosen=None):
    """Return moves to the north, half of the longest in the second scene."""
    steps = np.zeros((3, 4, 2))
    steps[..., 1] = duel.state.speed * np.array([[1.0], [0.5], [1.0]])
    return steps


def test_moves_are_valued_by_their_distance_from_a_players_or_by_the_player():
    venv = DirectionalSensorVecEnv("Transport", 3, load_scenario("mate-2v4-0"), seed=5, per_sensor=True)
    labels = MoveLabels(SimpleNamespace(act=north), venv, 0.5)
    values = labels.label(labels.observe(), np.zeros(12, bool))
    assert values.shape == (12, 1, 17)
    np.testing.assert_allclose(
        values[[0, 4]][:, 0, [0, 1, 5, 13]],
        [[-1, -math.sqrt(2), 0, -2], [-0.5, -math.sqrt(1.25), -0.5, -1.5]],
        atol=1e-6,
    )
    assert labels.best(values)[[0, 3, 8]].tolist() == [[5]] * 3
    given = MoveLabels(SimpleNamespace(values=lambda *_: np.tile(np.arange(17.0), (3, 4, 1))), venv, 0.5)
    assert given.label(given.observe(), np.zeros(12, bool))[7, 0].tolist() == list(range(17))
