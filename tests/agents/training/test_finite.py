"""NaN and infinity end a training in one line, and the last checkpoint stays good."""

import re

import numpy as np
import pytest
import stable_baselines3
import torch

from hitmac import train
from hitmac.agents.learned.checkpoint import load_policy
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

TINY = ("--num-envs", "8", "--rollout-steps", "8", "--batch-size", "64", "--weight-dim", "8", "--episodes", "2",
        "--episode-steps", "20", "--curve-points", "0", "--save-every", "0.001", "--run-dir")  # fmt: skip
PPO, A2C = ("coverage-ppo",), ("coverage-ppo", "--algorithm", "a2c")
CASES = [
    *((job, "reward", np.nan) for job in (("coverage",), PPO, A2C, (*PPO, "--epochs", "1"), ("executor",))),
    *((job, "observation", np.inf) for job in (("coverage",), PPO)),
    *((job, "reward", 1e30) for job in (PPO, A2C)),
]
FAST = [
    PPO, (*PPO, "--epochs", "1"), A2C, (*PPO, "--encoder", "mlp"), (*PPO, "--per-sensor"), (*PPO, "--nearest", "2"),
    ("coverage",), ("coverage", "--memory", "recurrent", "--knowledge", "shared"), ("executor",), ("coordinator",),
    ("coordinator", "--algorithm", "a2c"), ("coordinator", "--no-difference-rewards"),
]  # fmt: skip
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # it would be a line of its own


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["train.py", *map(str, arguments)])
    train.main()


@pytest.mark.parametrize(("job", "what", "value"), CASES)
def test_a_number_that_is_not_finite_ends_the_training_and_spoils_no_checkpoint(
    job, what, value, monkeypatch, tmp_path, capsys
):
    steps, step_wait = [0], DirectionalSensorVecEnv.step_wait

    def spoilt(self):
        observation, rewards, done, infos = step_wait(self)
        steps[0] += 1
        if steps[0] == 60:
            if what == "reward":
                rewards[..., 0] = value
            else:
                observation["pairs"][3, 1, 2] = value
        return observation, rewards, done, infos

    monkeypatch.setattr(DirectionalSensorVecEnv, "step_wait", spoilt)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *job, *TINY, tmp_path / "run", "--total-steps", "2000")
    assert ended.value.code == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert line.startswith("train.py: error: step ")
    assert (f"the {what} of scene" if value != 1e30 else "is not finite after the update") in line
    policy, _ = load_policy(tmp_path / "run")  # refuses what is not finite
    assert all(weight.isfinite().all() for weight in policy.parameters())
    if (job, what) == (PPO, "reward"):
        monkeypatch.setattr(DirectionalSensorVecEnv, "step_wait", step_wait)
        run(monkeypatch, *job, "--run-dir", tmp_path / "run", "--resume", "--total-steps", "1000")


def refused(monkeypatch, capsys, *arguments):
    """Return the one line with which a training ends."""
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *arguments)
    assert ended.value.code == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert line.startswith("train.py: error: step ")
    return line


@pytest.mark.parametrize("job", FAST)
def test_weights_that_are_too_large_end_the_training_in_one_line(job, monkeypatch, tmp_path, capsys):
    line = refused(monkeypatch, capsys, *job, *TINY, tmp_path / "run", "--total-steps", 2000, "--learning-rate", 1e30)
    assert re.search(r"step (?!0:)\d+: the (weight .* is not finite|policy's \w+ gives -?(nan|inf) at )", line)
    if (tmp_path / "run" / "checkpoint").exists():  # of before the first update
        policy, _ = load_policy(tmp_path / "run")
        assert all(weight.abs().max() < 100 for weight in policy.parameters())


def test_an_infinite_reward_ends_the_training_in_one_line(monkeypatch, tmp_path, capsys):
    line = refused(monkeypatch, capsys, *PPO, *TINY, tmp_path / "run", "--total-steps", 2000, "--turn-cost", 1e300)
    assert "step 8: the reward of scene 0 holds -inf" in line


def test_a_policy_whose_outputs_are_not_finite_is_not_saved(monkeypatch, tmp_path, capsys):
    learn, updates = stable_baselines3.PPO.train, []

    def spoilt(self):
        learn(self)
        updates.append(1)
        if len(updates) == 3:
            with torch.no_grad():
                for weight in self.policy.parameters():
                    weight.mul_(1e30)

    monkeypatch.setattr(stable_baselines3.PPO, "train", spoilt)
    line = refused(monkeypatch, capsys, *PPO, *TINY, tmp_path / "run", "--total-steps", 2000)
    assert "step 192: the policy's TurnHead gives" in line
    policy, _ = load_policy(tmp_path / "run")
    assert all(weight.abs().max() < 100 for weight in policy.parameters())


def test_a_weight_that_is_not_finite_is_named(monkeypatch, tmp_path, capsys):
    learn = stable_baselines3.PPO.train

    def spoilt(self):
        learn(self)
        with torch.no_grad():
            next(self.policy.parameters()).view(-1)[0] = float("nan")

    monkeypatch.setattr(stable_baselines3.PPO, "train", spoilt)
    with pytest.raises(SystemExit):
        run(monkeypatch, "coverage-ppo", *TINY, tmp_path / "run", "--total-steps", "1000")
    assert "is not finite after the update" in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoint").exists()
