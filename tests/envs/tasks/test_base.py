"""Tasks: a new one is one class, and every environment accepts a task, its class or its name."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test

from hitmac import envs
from hitmac.agents.names import load_agent
from hitmac.agents.policy import PerSensor
from hitmac.agents.scenarios import main as list_environments
from hitmac.agents.training.config import JOBS, default_job
from hitmac.envs.observation import Observer
from hitmac.envs.tasks import CoordinatorTask, CoverageTask, ExecutorTask, Task, TaskSpec, make_task
from hitmac.envs.validation import NotNegative
from hitmac.envs.wrappers.gym_env import DirectionalSensorEnv
from hitmac.envs.wrappers.pettingzoo_env import DirectionalSensorParallelEnv
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from hitmac.envs.wrappers.vector_env import DirectionalSensorVectorEnv


@dataclass(kw_only=True, eq=False, repr=False)
class GuardTask(Task):
    """Guard: every sensor is rewarded for seeing any target."""

    spec = TaskSpec(
        name="Guard", episode_steps=6, summary="see any target", scenario="hit-mac-2x3", options={"per_sensor": False}
    )
    features: Any = ("distance",)
    bonus: NotNegative = 1.0

    def step(self, action, mask=None):
        self.simulator.step(self.checked(action), mask)
        return self.sensor_rewards().mean(-1)

    def sensor_rewards(self):
        return self.bonus * self.simulator.state.visible.any(-1)


@pytest.fixture
def guard():
    """Register the task during a test."""
    envs.register_task(GuardTask)
    yield "Guard"
    del envs.TASKS["Guard"], gymnasium.registry["dsn/Guard-v0"]


def test_a_new_task_passes_the_checkers(guard):
    check_env(gymnasium.make("dsn/Guard-v0", render_mode="rgb_array").unwrapped)
    parallel_api_test(envs.parallel_env(guard), num_cycles=50)


def test_a_new_task_has_options_is_listed_and_takes_its_name(guard, capsys):
    assert all(shell.task.bonus == 3 for shell in shells(guard, bonus=3))
    with pytest.raises(ValueError, match=r"bonus is -1.0; it must be 0 or more"):
        make_task(guard, bonus=-1)
    list_environments([])
    assert "  dsn/Guard-v0            6 steps\n      see any target\n" in capsys.readouterr().out
    with pytest.raises(ValueError, match="Other is named 'Guard', which is the name of another task"):
        envs.register_task(type("Other", (GuardTask,), {}))
    again = type("GuardTask", (GuardTask,), {"__module__": __name__})  # as by a notebook's cell that runs again
    envs.register_task(again)
    assert type(make_task(guard)) is again
    for taken in ("motion", "distance", "beliefs"):
        with pytest.raises(ValueError, match=f"observer is named '{taken}', which is the name of other features"):
            envs.register_observer(taken, Observer)


def test_a_new_task_has_a_job_that_trains_evaluates_and_resumes(guard, tmp_path, monkeypatch, capsys):
    from hitmac import train

    job = default_job(GuardTask)
    monkeypatch.setitem(train.COMMANDS, job.job, job)
    assert (job.job, job().scenario, job().episode_steps) == ("guard", "hit-mac-2x3", 6)
    with pytest.raises(SystemExit):
        train.run_command([job.job, "--help"])
    assert "--per-sensor" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    for name in ("save_pictures", "save_curve"):
        monkeypatch.setattr(f"hitmac.agents.training.report.{name}", lambda *arguments, **options: None)
    small = ["--num-envs", "2", "--rollout-steps", "2", "--weight-dim", "4", "--episodes", "2", "--run-dir", "run"]
    train.run_command([job.job, "--total-steps", "8", "--per-sensor", *small])
    train.run_command([job.job, "--total-steps", "16", "--run-dir", "run", "--resume"])
    assert json.loads(Path("run/checkpoint/config.json").read_text())["task"] == guard
    evaluation = json.loads(Path("run/evaluation.json").read_text())
    assert (evaluation["scenario"], evaluation["episodes"]) == ("hit-mac-2x3", 2)
    assert {"trained", "planner", "random", "still"} <= set(evaluation["agents"])
    assert isinstance(load_agent("run", "hit-mac-2x3").policy, PerSensor)


def test_every_task_has_a_job_of_its_role_with_its_defaults():
    assert {job.task for job in JOBS.values()} == set(envs.TASKS.values())
    for name, job in JOBS.items():
        assert name.removesuffix("-ppo") == job.task.spec.name.lower()
        assert job().scenario == job.task.spec.scenario
        assert job().episode_steps == (1600 if name == "transport" else job.task.spec.episode_steps)
    for kind in (ExecutorTask, CoordinatorTask):
        variant = type("Variant", (kind,), {"spec": kind.spec._replace(name="Variant", episode_steps=5)})
        assert issubclass(default_job(variant), JOBS[kind.spec.name.lower()])
        assert default_job(variant)().episode_steps == 5


def shells(task, **options):
    return (
        DirectionalSensorEnv(task, **options),
        DirectionalSensorVectorEnv(task, **options),
        DirectionalSensorVecEnv(task, **options),
        DirectionalSensorParallelEnv(task, **options),
    )


@pytest.mark.parametrize("kind", envs.TASKS.values())
def test_shells_accept_a_task_by_name_by_class_or_made(kind):
    made = kind(num_envs=1, seed=3)
    for task in (kind.spec.name, kind, made):
        for shell in shells(task):
            assert (type(shell.task), shell.task is made) == (kind, task is made)
            assert shell.scenario.name == kind.spec.scenario
            steps = getattr(shell, "max_episode_steps", kind.spec.episode_steps)
            assert steps == kind.spec.episode_steps
    if kind.team == "sensors":
        for shell in shells(kind, scenario="hit-mac-2x3", nearest=1):
            assert (shell.scenario.num_targets, shell.task.nearest) == (3, 1)
    assert DirectionalSensorVectorEnv(kind(num_envs=4)).num_envs == 4


def test_other_tasks_and_their_options_are_refused():
    for shell in (DirectionalSensorEnv, DirectionalSensorVectorEnv, DirectionalSensorVecEnv, envs.parallel_env):
        with pytest.raises(ValueError, match="unknown task 'Chess': known are Coverage, Executor, Coordinator"):
            shell("Chess")
        with pytest.raises(TypeError, match="task is 3; it must be the name of a task, its class, or a Task"):
            shell(3)
        with pytest.raises(TypeError, match="scenario is given with an existing CoverageTask"):
            shell(CoverageTask(), scenario="hit-mac")
    for shell in (DirectionalSensorVectorEnv, DirectionalSensorVecEnv, DirectionalSensorParallelEnv):
        with pytest.raises(ValueError, match="max_episode_steps is 0"):
            shell("Coverage", max_episode_steps=0)
    with pytest.raises(TypeError, match="turn_cost is given with an existing CoverageTask"):
        make_task(CoverageTask(), turn_cost=1.0)
    with pytest.raises(ValueError, match="nearest is 2; it must be None where features is a function"):
        make_task("Coverage", nearest=2, features=Observer)
