"""Lessons for the two levels of HiT-MAC: turns towards goals, and assignments."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from hitmac.agents import AttentionPolicy
from hitmac.agents.baselines.levels import AssignInRange, AssignPlanned, PlannerExecutor
from hitmac.agents.baselines.planner import PlannerAgent
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.registry import as_level, load_agent
from hitmac.agents.training.config import CoordinatorOptions, CoverageOptions, ExecutorOptions, with_defaults
from hitmac.agents.training.imitation import AssignmentLabels, GoalLabels, Imitation
from hitmac.agents.training.resume import Progress, load_training, save_training
from hitmac.agents.training.train import build
from hitmac.envs import DEFAULT_FEATURES, load_scenario
from hitmac.envs.tasks import CoverageTask
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

SMALL = {"num_envs": 4, "rollout_steps": 3, "batch_size": 4, "weight_dim": 8, "teacher": "planner-fast"}
LEVELS = {"executor": ExecutorOptions, "coordinator": CoordinatorOptions}
SCENES = ["hit-mac-3x2", "obstacles", "random"]


class Compass:
    """Teacher of executors, which values a turn by the sum of the goals' bearings; it keeps what it was asked."""

    features = ("bearing",)

    def __init__(self):
        self.asked = []

    def plan(self, pairs, mask, state=None, episode_start=None):
        self.asked.append((pairs.copy(), mask.copy()))
        calls = np.zeros(len(pairs), int) if state is None else state[0] + 1
        if episode_start is not None:
            calls[episode_start] = 0
        self.calls = calls
        return self.values(pairs, mask), (calls,)

    @staticmethod
    def values(pairs, mask):
        bearing = (pairs[..., 0] * mask).sum(-1)
        return np.stack((np.zeros_like(bearing), bearing, -bearing), -1)


def of_executor(scenario="hit-mac-3x2", num_envs=4, **options):
    task = {"max_episode_steps": 9, "goals_every": 2, "goal_share": 0.5, "padding": options.pop("padding", "masked")}
    venv = DirectionalSensorVecEnv(
        "Executor", num_envs, load_scenario(scenario), seed=5, features=DEFAULT_FEATURES, **task
    )
    return Imitation(AttentionPolicy, venv, **({"teacher": Compass(), "seed": 1, "n_steps": 4} | options))


def of_coordinator(scenario="hit-mac-3x2", num_envs=4, **options):
    venv = DirectionalSensorVecEnv(
        "Coordinator", num_envs, load_scenario(scenario), seed=5, features=DEFAULT_FEATURES, max_episode_steps=9
    )
    return Imitation(AttentionPolicy, venv, **({"teacher": AssignInRange(), "seed": 1, "n_steps": 4} | options))


@pytest.mark.parametrize("scenario", SCENES)
def test_an_executor_learns_from_values_of_its_goals(scenario, monkeypatch):
    model = of_executor(scenario)
    n, step, goals = model.env.scenario.num_sensors, model.env.step, []

    def watch(actions):
        goals.append((model.env.task.assigned & model.env.task.simulator.valid_pairs).reshape(model.n_envs, -1))
        return step(actions)

    monkeypatch.setattr(model.env, "step", watch)
    model.learn(12 * model.n_envs)
    assert isinstance(model.labels, GoalLabels)
    state, (_, *asked) = model.get_state(), model.labels.teacher.asked  # the first compiles the teacher
    assert model.n_envs == 4 * n
    for number, (pairs, mask) in enumerate(asked):
        at = slice(number * model.n_envs, (number + 1) * model.n_envs)
        assert np.array_equal(mask != 0, goals[number])
        assert np.array_equal(state["mask"][at].sum(-1), goals[number].sum(-1))
        assert np.array_equal(state["values"][at, 0], Compass.values(pairs, mask).astype(np.float32))
    times = np.repeat(model.env.task.time, n)
    assert model.labels.teacher.calls.tolist() == (times - 1).tolist()  # an episode has nine steps


@pytest.mark.parametrize("scenario", SCENES)
def test_a_coordinator_learns_from_assignments(scenario, monkeypatch):
    model = of_coordinator(scenario)
    near, step = [], model.env.step

    def watch(actions):
        near.append(AssignInRange().predict(model.labels.observe())[0])
        return step(actions)

    monkeypatch.setattr(model.env, "step", watch)
    model.learn(12 * 4)
    assert isinstance(model.labels, AssignmentLabels)
    assert np.array_equal(model.get_state()["values"], np.concatenate(near))


def test_the_loss_of_assignments_by_hand():
    model = of_coordinator("hit-mac-1x3")
    logits = torch.tensor([[0.0, math.log(3.0), 5.0]])
    model.policy.logits = lambda obs: logits[:, None, :, None]
    mask, answers = torch.tensor([[[1, 1, 0]]]), torch.tensor([[1.0, 0.0, 1.0]])
    loss, decisions = model.labels.loss(model.policy, {"mask": mask}, answers)
    assert loss.item() == pytest.approx(math.log(2) + math.log(4))  # the last pair is not there
    assert decisions == 2
    nothing, decisions = model.labels.loss(model.policy, {"mask": 0 * mask}, answers)
    assert (nothing.item(), decisions) == (0.0, 0)


def test_sensors_without_goals_teach_nothing():
    model = of_executor()
    model.learn(4 * model.n_envs)
    before = [parameter.clone() for parameter in model.policy.parameters()]
    model.buffer["mask"][:] = 0
    with ThreadPoolExecutor(1) as threads:
        assert model._update(threads) == 0.0
    assert all(torch.equal(a, b) for a, b in zip(before, model.policy.parameters(), strict=True))


@pytest.mark.parametrize("scenario", SCENES)
@pytest.mark.parametrize("level", LEVELS)
def test_a_resumed_level_goes_on_as_if_never_interrupted(level, scenario, tmp_path):
    scene = load_scenario(scenario)
    options = LEVELS[level](algorithm="imitation", **SMALL)
    whole, venv, _ = build(options, scene)
    steps = 6 * venv.num_envs
    whole.learn(steps)
    save_training(tmp_path / "part", whole, venv, Progress())
    whole.learn(steps, reset_num_timesteps=False)
    resumed, venv, _ = build(options, scene)
    load_training(tmp_path / "part", resumed, venv)
    resumed.learn(steps, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps == 2 * steps
    assert whole._n_updates > 0
    for one, other in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_teacher_of_each_job():
    scene = load_scenario("hit-mac")
    for kind, teacher in ((ExecutorOptions, PlannerExecutor), (CoordinatorOptions, AssignPlanned),
                          (CoverageOptions, PlannerAgent)):  # fmt: skip
        model, _, config = build(kind(algorithm="imitation", **SMALL, planner_turn_cost=0.7), scene)
        assert isinstance(model.labels.teacher, teacher)
        planner = model.labels.teacher if teacher is PlannerAgent else model.labels.teacher.planner
        assert (planner.samples, planner.turn_cost) == (1, 0.7)
        assert config.policy["credit"] == "team"


def test_defaults_depend_on_the_algorithm():
    for kind in LEVELS.values():
        assert with_defaults(kind, "ppo") == kind()
        assert "radial_velocity" in with_defaults(kind, "imitation").features
        assert "radial_velocity" not in kind().features
    assert with_defaults(CoordinatorOptions, "imitation").idle == "hold"
    assert "others_seeing" not in with_defaults(ExecutorOptions, "imitation").features


def test_a_planned_assignment_leaves_idle_sensors_alone():
    agent = load_agent("assign-planned:planner", "hit-mac")
    assert agent.policy.idle == "hold"
    assert load_agent("assign-all:planner", "hit-mac").policy.idle == "random"


def test_the_planning_executor_is_the_planner_of_one_sensor():
    scenario = load_scenario("hit-mac-1x5")
    planner, executor = PlannerAgent(scenario), PlannerExecutor(scenario)
    task, state, own = CoverageTask(scenario, 20, 0, features=planner.features), None, None
    for _ in range(12):
        shown = task.observe()
        joint, state = planner.predict(shown, state)
        rows, own = executor.predict({name: array[:, 0] for name, array in shown.items()}, own)
        assert np.array_equal(joint[:, 0], rows)
        task.step(joint)


def coverage(coordinator, executor, idle="hold"):
    agent = HierarchicalAgent("hit-mac", coordinator, executor, idle=idle)
    task, state, total = CoverageTask("hit-mac", 20, 7 * 10**9, features=agent.features), None, 0.0
    for _ in range(150):
        actions, state = agent.predict(task.observe(), state, deterministic=True)
        task.step(actions)
        total += task.simulator.coverage.mean() / 150
    return total


def test_the_planned_levels_cover_more_than_the_scripted():
    scene = load_scenario("hit-mac")
    planned = LevelPolicy(AssignPlanned(scene), AssignPlanned.features)
    executor = LevelPolicy(PlannerExecutor(scene), PlannerExecutor.features)
    scripted = load_agent("assign-in-range:scripted", scene).policy
    both = coverage(planned, executor)
    assert both > coverage(planned, scripted.executor) + 0.005
    assert both > coverage(scripted.coordinator, executor) + 0.03


@pytest.mark.slow
def test_both_levels_learn_from_the_planner():
    scene = load_scenario("hit-mac")
    small = {"num_envs": 16, "batch_size": 64, "weight_dim": 32, "teacher": "planner-fast", "algorithm": "imitation"}
    options = ExecutorOptions(**small, features=DEFAULT_FEATURES, goals_every=10, goal_share=0.8, episode_steps=1010)
    model, venv, config = build(options, scene)
    model.learn(venv.num_envs * 320)
    executor = as_level(model.policy, config)
    planned = LevelPolicy(AssignPlanned(scene), AssignPlanned.features)
    scripted = load_agent("assign-in-range:scripted", scene).policy
    assert coverage(planned, executor) > coverage(planned, scripted.executor)
    model, venv, config = build(
        CoordinatorOptions(**small | {"batch_size": 16}, epochs=4, features=DEFAULT_FEATURES), scene
    )
    model.learn(venv.num_envs * 400)
    coordinator = LevelPolicy(model.policy, config.features)
    assert coverage(coordinator, executor) > coverage(scripted.coordinator, executor) + 0.01
