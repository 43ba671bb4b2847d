"""A new task is one class that declares itself: ids, shells, help, training job and checkpoints follow."""

import json
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from hitmac import envs
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.policy import PerSensor
from hitmac.agents.registry import Agent, load_agent
from hitmac.agents.scenarios import main as list_environments
from hitmac.agents.training.config import JOBS, default_job
from hitmac.agents.training.report import in_training, metric_of
from hitmac.agents.training.train import build
from hitmac.envs.tasks import CoordinatorTask, CoverageTask, ExecutorTask, Task, TaskSpec, make_task
from hitmac.envs.tasks.base import turning_space
from hitmac.envs.wrappers.gym_env import DirectionalSensorEnv
from hitmac.envs.wrappers.pettingzoo_env import DirectionalSensorParallelEnv
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from hitmac.envs.wrappers.vector_env import DirectionalSensorVectorEnv


class GuardTask(Task):
    """Guard: every sensor is rewarded for seeing any target."""

    spec = TaskSpec(
        name="Guard", episode_steps=6, summary="see any target", scenario="hit-mac-2x3", options={"per_sensor": False}
    )

    def __init__(self, scenario=None, num_envs=1, seed=None, *, bonus=1.0, features=("distance",), num_threads=None):
        super().__init__(scenario, num_envs, seed, features=features, num_threads=num_threads)
        self.bonus, self.action_space = bonus, turning_space(self.scenario)

    def step(self, action, mask=None):
        self.simulator.step(self.checked(action), mask)
        return self.sensor_rewards().mean(-1)

    def sensor_rewards(self):
        return self.bonus * self.simulator.state.visible.any(-1)


@pytest.fixture
def guard():
    """Registers the task, and takes it out again."""
    envs.register_task(GuardTask)
    yield "Guard"
    del envs.TASKS["Guard"], gymnasium.registry["dsn/Guard-v0"]


def test_a_new_task_passes_every_checker(guard):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("dsn/Guard-v0", render_mode="rgb_array").unwrapped)
        for message in ("It seems that your observation", "The minimal resolution for an image"):
            warnings.filterwarnings("ignore", message=message)  # pairs is taken for an image
        check_env_for_sb3(gymnasium.make("dsn/Guard-v0"))
    parallel_api_test(envs.parallel_env(guard), num_cycles=50)


def test_a_new_task_is_the_same_in_all_shells(guard):
    """Same observations, rewards and ends, by the task's defaults: 2 sensors, 3 targets, 6 steps, an option."""
    single = gymnasium.make("dsn/Guard-v0", bonus=3)
    vector = gymnasium.make_vec("dsn/Guard-v0", num_envs=1, bonus=3, autoreset_mode="SameStep")
    scenes, rows = (DirectionalSensorVecEnv(guard, per_sensor=apart, bonus=3) for apart in (False, True))
    parallel = envs.parallel_env(guard, bonus=3)
    assert single.observation_space["pairs"].shape == (2, 3, 1)
    for venv in (scenes, rows):
        venv.seed(5)
    seen = single.reset(seed=5)[0], vector.reset(seed=5)[0], scenes.reset(), rows.reset(), parallel.reset(seed=5)[0]
    rng = np.random.default_rng(0)
    total = 0.0
    for step in range(1, 7):
        one, batch, scene, row, apart = (shown.get("pairs", shown) for shown in seen)
        np.testing.assert_array_equal(np.stack((batch[0], scene[0], row)), np.stack((one,) * 3))
        np.testing.assert_array_equal([apart[agent]["pairs"] for agent in parallel.agents], one)
        action = rng.integers(0, 3, 2)
        agents = dict(zip(parallel.agents, action, strict=True))
        stepped = (single.step(action), vector.step(action[None]), scenes.step(action[None]))
        (of_row, own, row_ends, _), of_agents = rows.step(action), parallel.step(agents)
        reward = stepped[0][1]
        assert reward == stepped[1][1][0] == stepped[2][1][0] == own.mean() == np.mean(list(of_agents[1].values()))
        assert list(of_agents[1].values()) == own.tolist()
        assert {bool(stepped[0][3]), bool(stepped[1][3][0]), bool(stepped[2][2][0]), *row_ends.tolist()} == {step == 6}
        assert set(of_agents[3].values()) == {step == 6}
        seen = stepped[0][0], stepped[1][0], stepped[2][0], of_row, of_agents[0]
        total += reward
    assert total > 0


def test_a_new_task_is_listed(guard, capsys):
    list_environments([])
    assert "  dsn/Guard-v0           6 steps; see any target\n" in capsys.readouterr().out


def test_names_are_taken_once(guard):
    class Other(GuardTask):
        pass

    with pytest.raises(ValueError, match="Other is named 'Guard', which is the name of another task"):
        envs.register_task(Other)


def test_a_new_task_has_a_job_that_trains_evaluates_and_resumes(guard, tmp_path, monkeypatch, capsys):
    from hitmac import train

    job = default_job(GuardTask)
    monkeypatch.setitem(train.COMMANDS, job.job, job)
    assert (job.job, job().scenario, job().episode_steps) == ("guard", "hit-mac-2x3", 6)
    with pytest.raises(SystemExit):
        train.run_command([job.job, "--help"])
    assert "--per-sensor" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    small = ["--num-envs", "2", "--rollout-steps", "2", "--weight-dim", "4", "--episodes", "2", "--run-dir", "run"]
    train.run_command([job.job, "--total-steps", "8", "--per-sensor", *small])
    train.run_command([job.job, "--total-steps", "16", "--run-dir", "run", "--resume"])
    assert json.loads(Path("run/checkpoint/config.json").read_text())["task"] == guard
    evaluation = json.loads(Path("run/evaluation.json").read_text())
    assert (evaluation["scenario"], evaluation["episodes"]) == ("hit-mac-2x3", 2)
    assert {"trained", "planner", "random", "still"} <= set(evaluation["agents"])
    assert isinstance(load_agent("run", "hit-mac-2x3").policy, PerSensor)


@pytest.mark.parametrize("kind", [ExecutorTask, CoordinatorTask])
def test_a_new_task_of_another_role_has_the_job_of_its_role(kind, monkeypatch):
    class Variant(kind):
        spec = kind.spec._replace(name="Variant", scenario="hit-mac-2x2", episode_steps=5)

    monkeypatch.setitem(envs.TASKS, "Variant", Variant)
    options = default_job(Variant)(num_envs=2, rollout_steps=2, batch_size=2, weight_dim=4, episodes=1)
    scenario = envs.load_scenario(options.scenario)
    model, venv, config = build(options, scenario)
    model.learn(2 * venv.num_envs)
    assert (type(venv.task), venv.max_episode_steps, config.role) == (Variant, 5, kind.spec.role)
    trained = in_training(options, model.policy, config)
    assert isinstance(trained, LevelPolicy if config.role == "executor" else Agent)
    assert metric_of(options) == ("reward" if config.role == "executor" else "coverage")


def test_the_jobs_are_those_of_the_tasks():
    assert {job.task for job in JOBS.values()} == set(envs.TASKS.values())
    for name, job in JOBS.items():
        assert name == job.job
        assert name.removesuffix("-ppo") == job.task.spec.name.lower()
        assert (job().scenario, job().episode_steps) == (job.task.spec.scenario, job.task.spec.episode_steps)


def shells(task, **options):
    """The task in each of the four shells."""
    return (
        DirectionalSensorEnv(task, **options),
        DirectionalSensorVectorEnv(task, **options),
        DirectionalSensorVecEnv(task, **options),
        DirectionalSensorParallelEnv(task, **options),
    )


@pytest.mark.parametrize("kind", [CoverageTask, ExecutorTask, CoordinatorTask])
def test_all_shells_take_a_task_by_name_by_class_or_made(kind):
    """With the defaults that the task declares."""
    made = kind(num_envs=1, seed=3)
    for task in (kind.spec.name, kind, made):
        for shell in shells(task):
            assert type(shell.task) is kind
            assert (shell.task is made) == (task is made)
            assert shell.scenario.name == kind.spec.scenario
            steps = getattr(shell, "max_episode_steps", kind.spec.episode_steps)
            assert steps == kind.spec.episode_steps == gymnasium.spec(kind.spec.id).max_episode_steps
    for shell in shells(kind, scenario="hit-mac-2x3"):
        assert shell.scenario.num_targets == 3
    batch = kind(num_envs=4)
    assert DirectionalSensorVectorEnv(batch).num_envs == DirectionalSensorVecEnv(batch, per_sensor=False).num_envs == 4


def test_a_task_is_refused():
    for shell in (DirectionalSensorEnv, DirectionalSensorVectorEnv, DirectionalSensorVecEnv, envs.parallel_env):
        with pytest.raises(ValueError, match="unknown task 'Chess': known are Coverage, Executor, Coordinator"):
            shell("Chess")
        with pytest.raises(TypeError, match="task is 3; it must be the name of a task, its class, or a Task"):
            shell(3)
        with pytest.raises(TypeError, match="scenario is given with a CoverageTask made already"):
            shell(CoverageTask(), scenario="hit-mac")
    for shell in (DirectionalSensorVectorEnv, DirectionalSensorVecEnv, DirectionalSensorParallelEnv):
        with pytest.raises(ValueError, match="max_episode_steps is 0"):
            shell("Coverage", max_episode_steps=0)
    with pytest.raises(TypeError, match="turn_cost is given with a CoverageTask made already"):
        make_task(CoverageTask(), turn_cost=1.0)


def test_rewards_of_sensors_are_asked_of_the_task():
    """An attribute of the same name is no reward."""
    task = CoverageTask(num_envs=1)
    task.rewards = np.full((1, 4), 7.0)
    assert task.sensor_rewards() is None
    assert task.difference_rewards() is None
    rows = DirectionalSensorVecEnv(task, per_sensor=True)
    rows.reset()
    assert rows.step(np.zeros(4, int))[1].max() <= 1
    executor = ExecutorTask(num_envs=2, seed=0)
    mean = executor.step(np.ones((2, 4), int))
    np.testing.assert_allclose(executor.sensor_rewards().mean(-1), mean)
    assert CoordinatorTask().difference_rewards().shape == (1, 4)
