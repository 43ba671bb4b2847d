"""Training by RLlib: the files of the default engine, several processes, one of which is killed."""

import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("ray.rllib", reason="RLlib is not installed: pip install 'hitmac[rllib]'")

import ray

from hitmac.agents.evaluate import evaluate
from hitmac.agents.learned.checkpoint import load_policy
from hitmac.agents.training.config import CoverageRewardOptions, check
from hitmac.agents.training.resume import contents
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from tests.agents.training.runs import SMALL, differences, started, state, steps_of

RLLIB = ["coverage-ppo", "--engine", "rllib", *SMALL, "--num-envs", 6]


@pytest.fixture(scope="module")
def shared_ray():
    """One Ray for all trainings: an engine connects to the one that runs."""
    ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "shutdown", lambda: None)
        yield
    ray.shutdown()


@pytest.mark.slow
def test_a_run_leaves_the_files_of_the_default_engine_and_is_continued(here, shared_ray, tmp_path, capfd, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    asked = [*RLLIB, "--total-steps", 48]
    here(*asked[:1], *asked[3:], "--no-difference-rewards", "--run-dir", "sb3", evaluated=True)
    for name in ("one", "two"):
        here(*asked, "--run-dir", name, evaluated=True)
    assert list(temporary.glob("SB3-*")) == []
    printed = capfd.readouterr()
    assert "WARNING" not in printed.err
    assert "\n48 steps in" in printed.out
    assert "steps, exploring: coverage " in printed.out
    files = [{name for name in contents(Path(run)) if not name.startswith("tensorboard")} for run in ("one", "sb3")]
    assert files[0] == files[1]
    assert len(list(Path("one/tensorboard").iterdir())) == 1
    one, two, other = map(state, ("one", "two", "sb3"))
    assert one.keys() - other.keys() == {"seeds/used"}
    assert {name.split("/")[0] for name in other.keys() - one.keys()} == {
        "simulator",
        "random",
        "venv",
        "progress",
        "learner",
    }
    assert differences(one, two) == []  # the same seed gives the same run in one process
    assert load_policy("one")[1].training_seeds == (2**40, 2**40 + 5)
    assert [point["steps"] for point in json.loads(Path("one/curve.json").read_text())["exploring"]] == [24, 48]
    assert yaml.safe_load(Path("one/config.yaml").read_text())["options"]["engine"] == "rllib"

    # It continues from its weights and moments, with scenes that it has not seen, in other processes.
    more = ["--total-steps", 72, "--num-env-runners", 2]
    here("coverage-ppo", "--run-dir", "one", "--resume", *more)
    longer = state("one")
    assert longer["progress/steps"].tolist() == [72]
    assert len(longer["progress/curve"]) == 3
    assert longer["optimizer/0/step"] == 1.5 * one["optimizer/0/step"]
    assert load_policy("one")[1].training_seeds == (2**40, 2**40 + 11)
    name = "policy/action_net.0.0.weight"
    assert 0 < np.abs(longer[name] - one[name]).max() < 0.1


@pytest.mark.slow
def test_every_role_and_form_of_a_policy_trains(here, shared_ray):
    for number, arguments in enumerate([
        ("executor",),
        ("coordinator", "--no-difference-rewards"),
        ("coverage", "--algorithm", "ppo", "--per-sensor", "--critic", "no_prefix"),
        ("coverage-ppo", "--nearest", "2", "--neighbours", "1", "--attend-over", "agents", "--scenario", "random"),
    ]):  # fmt: skip
        here(*arguments, *RLLIB[1:], "--total-steps", 60, "--run-dir", number)
        assert steps_of(str(number)) >= 60
        assert state(str(number))["optimizer/0/step"] > 0


def test_options_that_do_not_fit_are_refused(refused, monkeypatch):
    for arguments, says in (
        (["coverage", *RLLIB[1:]], "--algorithm imitation cannot be combined with --engine rllib, which requires ppo"),
        ([*RLLIB, "--compiled"], "--compiled True requires learning from reward by --engine sb3"),
        ([*RLLIB, "--num-env-runners", 7], "--num-env-runners is 7; it must not exceed --num-envs, 6"),
        ([*RLLIB, "--ray", "auto", "--seeds", 2], "--ray auto cannot be combined with --engine rllib"),
        ([*RLLIB, "--address", "auto", "--seeds", 2], "--address auto cannot be combined with several trainings"),
        ([*RLLIB, "--address", "127.0.0.1:1"], "--address is '127.0.0.1:1'"),
    ):
        assert says in refused(*arguments, "--run-dir", "x")
    monkeypatch.setattr("importlib.util.find_spec", lambda name, find=None: None)
    with pytest.raises(ValueError, match=r"^--engine rllib requires Ray: pip install 'hitmac\[rllib\]'$"):
        check(CoverageRewardOptions(engine="rllib"))


@pytest.mark.slow
def test_numbers_that_are_not_finite_end_the_training(failed, shared_ray, monkeypatch):
    steps, step_wait = [], DirectionalSensorVecEnv.step_wait

    def spoilt(self):
        observation, rewards, *rest = step_wait(self)
        steps.append(1)
        if len(steps) == 11:  # the first two warm up
            rewards[3] = np.nan
        return observation, rewards, *rest

    fast = ("--num-env-runners", 1, "--epochs", 1, "--batch-size", 24, "--learning-rate", 1e30)
    assert "step 24: the policy's TurnHead gives " in failed(*RLLIB, "--run-dir", "fast", *fast)
    assert not Path("fast/checkpoint").exists()
    monkeypatch.setattr(DirectionalSensorVecEnv, "step_wait", spoilt)
    assert "the reward of scene 3 holds nan" in failed(*RLLIB, "--run-dir", "spoilt")
    assert all(weight.isfinite().all() for weight in load_policy("spoilt")[0].parameters())


@pytest.mark.slow
def test_a_policy_learns(here, shared_ray):
    sizes = ("--num-envs", 64, "--rollout-steps", 16, "--batch-size", 256, "--epochs", 4, "--weight-dim", 16)
    more = ("--total-steps", 30_000, "--learning-rate", 4e-3, "--scenario", "hit-mac-2x2", "--save-every", 60)
    here(*RLLIB, *sizes, *more, "--run-dir", "run")
    unseen = {"seed": 10**6, "episodes": 8, "max_episode_steps": 300, "progress": False}
    found = evaluate(["run", "random"], "hit-mac-2x2", **unseen)["agents"]
    assert found["run"]["coverage"]["mean"] > found["random"]["coverage"]["mean"] + 0.15


@pytest.mark.slow
def test_a_killed_env_runner_is_started_again_and_the_training_ends_well(tmp_path):
    arguments = [*RLLIB, "--num-env-runners", 2, "--total-steps", 2400, "--run-dir", "run"]
    training = started(tmp_path, arguments, ["run"])
    os.kill(runners_of(training.pid)[0], signal.SIGKILL)
    assert training.wait(timeout=900) == 0, (tmp_path / "log").read_text()
    printed = (tmp_path / "log").read_text()
    assert printed.count("was lost and restarted") == 1
    assert "Traceback" not in printed
    assert steps_of(tmp_path / "run") >= 2400
    assert state(tmp_path / "run")["seeds/used"].tolist() == [9]
    assert load_policy(tmp_path / "run")[1].training_seeds == (2**40, 2**40 + 8)


def runners_of(pid):
    """Return the processes of env runners below a process."""
    listed = subprocess.check_output(["ps", "-eo", "pid=,ppid=,args="], text=True).splitlines()
    rows, below = [line.split(None, 2) for line in listed], {str(pid)}
    while found := {own for own, parent, *_ in rows if parent in below} - below:
        below |= found
    return [int(own) for own, _, *name in rows if own in below and "SceneEnvRunner" in "".join(name)]
