"""Training by RLlib: the same run as by the default engine, on several processes, one of which is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
import yaml

pytest.importorskip("ray.rllib", reason="RLlib is not installed: pip install 'hitmac[rllib]'")

import torch
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from stable_baselines3.common.logger import configure

from hitmac import train
from hitmac.agents.evaluate import evaluate
from hitmac.agents.learned.checkpoint import build_policy, load_policy, tensors_of
from hitmac.agents.training.config import CoverageRewardOptions, check
from hitmac.agents.training.resume import contents
from hitmac.agents.training.rllib import ppo
from hitmac.agents.training.train import build
from hitmac.envs import load_scenario

SMALL = ("--num-envs", "6", "--rollout-steps", "8", "--batch-size", "16", "--weight-dim", "8")
SMALL += ("--episodes", "2", "--episode-steps", "10", "--curve-points", "2", "--save-every", "0")
RLLIB = ("--engine", "rllib")


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["train.py", *map(str, arguments)])
    train.main()


def refusal(monkeypatch, capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, *arguments)
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def state_of(run_dir):
    return safetensors.numpy.load_file(run_dir / "checkpoint" / "training.safetensors")


def files(run_dir):
    return {name for name in contents(run_dir) if not name.startswith("tensorboard")}


@pytest.mark.slow
def test_a_run_leaves_the_files_of_the_default_engine_and_goes_on(monkeypatch, tmp_path, capfd):
    run(monkeypatch, "coverage-ppo", *SMALL, "--total-steps", 96, "--run-dir", tmp_path / "sb3")
    for name in ("one", "two"):
        run(monkeypatch, "coverage-ppo", *RLLIB, *SMALL, "--total-steps", 96, "--run-dir", tmp_path / name)
    said = capfd.readouterr()
    assert "WARNING" not in said.err
    assert "\n96 steps in" in said.out
    assert files(tmp_path / "one") == files(tmp_path / "sb3")
    assert len(list((tmp_path / "one" / "tensorboard").iterdir())) == 1
    own, other = (set(state_of(tmp_path / name)) for name in ("one", "sb3"))
    assert own - other == {"seeds/used"}
    assert {name.split("/")[0] for name in other - own} == {"simulator", "random", "venv", "progress"}

    # The same seed gives the same run in one process.
    one, two = state_of(tmp_path / "one"), state_of(tmp_path / "two")
    assert [name for name in one if name.startswith(("policy", "optimizer")) and (one[name] != two[name]).any()] == []
    _, config = load_policy(tmp_path / "one")
    agents = evaluate([str(tmp_path / "one"), "still"], episodes=2, max_episode_steps=5, progress=False)["agents"]
    assert len(agents) == 2
    assert config.training_seeds == (2**40, 2**40 + 5)
    curve = json.loads((tmp_path / "one" / "curve.json").read_text())
    assert [point["steps"] for point in curve["exploring"]] == [48, 96]
    assert curve["deterministic"][-1]["steps"] == 96
    assert yaml.safe_load((tmp_path / "one" / "config.yaml").read_text())["options"]["engine"] == "rllib"

    # It goes on from its weights and moments, with scenes that it has not seen, in other processes.
    more = ("--total-steps", 144, "--num-env-runners", 2, "--num-learners", 1)
    run(monkeypatch, "coverage-ppo", "--run-dir", tmp_path / "one", "--resume", *more)
    longer = state_of(tmp_path / "one")
    assert longer["progress/steps"].tolist() == [144]
    assert len(longer["progress/curve"]) == 3
    assert longer["optimizer/0/step"] == 1.5 * one["optimizer/0/step"]
    assert load_policy(tmp_path / "one")[1].training_seeds == (2**40, 2**40 + 11)
    assert (longer["policy/action_net.0.0.weight"] != one["policy/action_net.0.0.weight"]).any()
    assert np.abs(longer["policy/action_net.0.0.weight"] - one["policy/action_net.0.0.weight"]).max() < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("executor",),
        ("coordinator", "--no-difference-rewards"),
        ("coverage", "--algorithm", "ppo", "--per-sensor", "--critic", "no_prefix"),
        ("coverage-ppo", "--nearest", "2", "--neighbours", "1", "--scenario", "random"),
    ],
)
def test_every_role_and_form_of_a_policy_trains(arguments, monkeypatch, tmp_path):
    run(monkeypatch, *arguments, *RLLIB, *SMALL, "--total-steps", 200, "--run-dir", tmp_path / "run")
    state = state_of(tmp_path / "run")
    assert state["progress/steps"] >= 200
    assert load_policy(tmp_path / "run")[0] is not None


def test_what_does_not_fit_is_refused_in_one_line(monkeypatch, tmp_path, capsys):
    def said(*arguments):
        return refusal(monkeypatch, capsys, *arguments, "--run-dir", tmp_path / "x")

    assert "--num-env-runners is 2; it needs --engine rllib" in said("coverage", "--num-env-runners", 2)
    assert "--num-learners is 1; it needs --engine rllib" in said("coverage-ppo", "--num-learners", 1)
    assert "--address is auto; it needs --engine rllib" in said("coverage-ppo", "--address", "auto")
    assert "--algorithm is imitation; RLlib trains by ppo here" in said("coverage", *RLLIB)
    assert "--difference-rewards is True; with --engine rllib it must be False" in said("coordinator", *RLLIB)
    assert "there are --num-envs 4 to share" in said("coverage-ppo", *RLLIB, "--num-envs", 4, "--num-env-runners", 5)
    assert "there are --batch-size 4 to share" in said("coverage-ppo", *RLLIB, "--batch-size", 4, "--num-learners", 5)
    assert "--ray is auto; a training with --engine rllib" in said(
        "coverage-ppo", *RLLIB, "--ray", "auto", "--seeds", 2
    )
    assert "of several trainings" in said("coverage-ppo", *RLLIB, "--address", "auto", "--seeds", 2)
    assert "no Ray cluster answers there" in said("coverage-ppo", *RLLIB, "--address", "127.0.0.1:1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name, find=None: None)
    with pytest.raises(ValueError, match=r"^--engine is rllib; it needs Ray: pip install 'hitmac\[rllib\]'$"):
        check(CoverageRewardOptions(engine="rllib"))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_number_that_is_not_finite_ends_the_training(monkeypatch, tmp_path, capsys):
    sample = ppo.SceneEnvRunner.sample
    for value, words in ((np.nan, "the reward of scene 3 holds nan"), (1e30, "loss")):
        calls = [0]

        def spoilt(self, *, calls=calls, value=value, **kwargs):
            (found,) = sample(self, **kwargs)
            calls[0] += 1
            if calls[0] == 3:  # step 2 of scene 3
                found.rewards.data[3 * 8 + 2] = found.extra_model_outputs["value_targets"].data[3 * 8 + 2] = value
            return [found]

        monkeypatch.setattr(ppo.SceneEnvRunner, "sample", spoilt)
        folder = tmp_path / words.replace(" ", "-")
        with pytest.raises(SystemExit) as end:
            run(monkeypatch, "coverage-ppo", *RLLIB, *SMALL, "--total-steps", 400, "--run-dir", folder)
        assert end.value.code == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
        assert line.startswith("train.py: error: step ")
        assert words in line
        policy, _ = load_policy(folder)
        assert all(weight.isfinite().all() for weight in policy.parameters())


@pytest.mark.slow
def test_weights_that_are_too_large_end_the_training(monkeypatch, tmp_path, capsys):
    fast = ("--num-env-runners", 1, "--epochs", 1, "--batch-size", 48, "--learning-rate", 1e30)
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, "coverage-ppo", *RLLIB, *SMALL, *fast, "--total-steps", 400, "--run-dir", tmp_path / "run")
    assert end.value.code == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert line.startswith("train.py: error: step 48: the policy's TurnHead gives ")
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_no_seed_is_used_twice():
    begun, options = [], SimpleNamespace(num_envs=10)
    seeds = ppo.ScenePPO.__new__(ppo.ScenePPO)
    seeds.config = SimpleNamespace(num_env_runners=3, env_config={"options": options})
    seeds.env_runner_group = SimpleNamespace(
        foreach_env_runner=lambda begin, **which: begun.append((which["remote_worker_ids"][0], begin.keywords["seed"]))
    )
    seeds.begin_scenes(2**40, 0)
    seeds._begin_in([2])
    assert begun == [(1, 2**40), (2, 2**40 + 4), (3, 2**40 + 7), (2, 2**40 + 10)]
    assert seeds.seeds_used == 13


def test_a_gradient_step_is_that_of_the_default_engine():
    """Both engines take the same rows to the same weights."""
    scenario = load_scenario("random")  # with sensors that are absent
    options = CoverageRewardOptions(
        num_envs=8, rollout_steps=4, batch_size=32, epochs=1, weight_dim=8, engine="rllib", entropy=0.1, critic="amc"
    )
    model, venv, config = build(options, scenario)
    model.set_logger(configure(None, []))
    weights = {name: tensor.numpy().copy() for name, tensor in tensors_of(model.policy).items()}
    _, callback = model._setup_learn(32)
    model.collect_rollouts(venv, callback, model.rollout_buffer, 4)
    buffer = model.rollout_buffer
    rows = next(iter(buffer.get(32)))
    model.train()

    own = ppo.ppo_config(options, scenario, build_policy(config, scenario))
    spaces = {"default_policy": (venv.observation_space, venv.action_space)}
    own.learner_connector = None
    taught = own.build_learner(spaces=spaces)
    taught.build()
    taught.begin(weights, {}, 0)
    taught.set_rates(options.learning_rate, options.entropy)
    with torch.no_grad():
        logits = taught.module["default_policy"].forward_train({"obs": rows.observations})["action_dist_inputs"]
    batch = {
        "obs": rows.observations,
        "actions": rows.actions.long(),
        "action_logp": rows.old_log_prob,
        "action_dist_inputs": logits,
        "advantages": rows.advantages,
        "value_targets": rows.returns,
    }
    taught.update(batch=MultiAgentBatch({"default_policy": SampleBatch(batch)}, len(rows.returns)), num_epochs=1)
    changed = tensors_of(model.policy)
    for name, tensor in tensors_of(taught.policy).items():
        assert name.startswith("value") or (changed[name].numpy() != weights[name]).any()
        torch.testing.assert_close(tensor, changed[name], atol=2e-6, rtol=1e-4)


@pytest.mark.slow
def test_a_policy_learns(monkeypatch, tmp_path):
    sizes = ("--num-envs", 64, "--batch-size", 256, "--epochs", 4, "--weight-dim", 32, "--episodes", 50)
    more = ("--total-steps", 60_000, "--learning-rate", 2e-3, "--curve-points", 0)
    run(monkeypatch, "coverage-ppo", *RLLIB, *sizes, *more, "--run-dir", tmp_path / "run")
    agents = json.loads((tmp_path / "run" / "evaluation.json").read_text())["agents"]
    assert agents["trained"]["coverage"]["mean"] > agents["random"]["coverage"]["mean"] + 0.15
    points = json.loads((tmp_path / "run" / "curve.json").read_text())["exploring"]
    assert points[-1]["coverage"] > points[0]["coverage"] + 0.1


@pytest.mark.slow
def test_a_killed_env_runner_is_started_again_and_the_training_ends_well(tmp_path):
    arguments = [sys.executable, "-m", "hitmac.train", "coverage-ppo", *RLLIB, *SMALL, "--num-env-runners", "2"]
    arguments += ["--total-steps", "9600", "--run-dir", str(tmp_path / "run")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    with open(tmp_path / "log", "wb") as log:
        training = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT, env=environment)
    state = tmp_path / "run" / "checkpoint" / "training.safetensors"
    end = time.monotonic() + 600
    while not state.is_file() and time.monotonic() < end and training.poll() is None:
        time.sleep(0.1)
    assert training.poll() is None, (tmp_path / "log").read_text()
    killed = runners_of(training.pid)[0]
    os.kill(killed, signal.SIGKILL)
    assert training.wait(timeout=900) == 0, (tmp_path / "log").read_text()
    said = (tmp_path / "log").read_text()
    assert said.count("was lost and started again") == 1
    assert "Traceback" not in said
    assert state_of(tmp_path / "run")["progress/steps"] >= 9600
    assert state_of(tmp_path / "run")["seeds/used"].tolist() == [9]
    assert load_policy(tmp_path / "run")[1].training_seeds == (2**40, 2**40 + 8)


def runners_of(pid):
    """Return the processes of env runners below a process."""
    parents, found = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if "SceneEnvRunner" in (path / "cmdline").read_text():
                found.append(int(path.name))
        except OSError:
            continue

    def is_below(one):
        while one in parents:
            if one == pid:
                return True
            one = parents[one]
        return False

    return [one for one in found if is_below(one)]
