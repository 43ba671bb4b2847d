"""The main job, small: it learns, it resumes as if never interrupted, and it refuses bad input."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import yaml

from hitmac.agents.evaluate.command import main
from hitmac.agents.training.config import (
    GOAL_FEATURES,
    CoverageOptions,
    ExecutorOptions,
    HitMacOptions,
    levels,
    with_defaults,
    with_limits,
)
from hitmac.agents.training.train import RolloutCallback, make_environments
from hitmac.envs import DEFAULT_FEATURES, load_scenario
from hitmac.envs.observation import FEATURE_SETS

ROOT = Path(__file__).parents[3]
SMALL = ["--num-envs", "8", "--rollout-steps", "4", "--batch-size", "16", "--weight-dim", "8"]
SHORT = ["--episodes", "2", "--episode-steps", "20"]


def command(*arguments):
    return [sys.executable, str(ROOT / "train.py"), *map(str, arguments)]


def run(*arguments, cwd, **options):
    return subprocess.run(command(*arguments), cwd=cwd, capture_output=True, text=True, timeout=300, **options)


def training(run_dir):
    return safetensors.numpy.load_file(run_dir / "checkpoint" / "training.safetensors")


def differences(one, other):
    """Names of what is not equal bit for bit, the clock left out."""

    def without_clock(name, array):
        return array[:, [0, 2, 3, 4]] if name in ("progress/curve", "progress/evaluations") else array

    return [
        name
        for name in one.keys() | other.keys()
        if name != "progress/seconds"
        and not np.array_equal(without_clock(name, one[name]), without_clock(name, other[name]))
    ]


@pytest.mark.slow
def test_a_run_leaves_everything_and_resumes_as_if_never_interrupted(tmp_path):
    whole = run("--run-dir", "whole", "--total-steps", 256, *SMALL, *SHORT, cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    left = {str(path.relative_to(tmp_path / "whole")) for path in (tmp_path / "whole").rglob("*") if path.is_file()}
    events = {path for path in left if path.startswith("tensorboard/events")}
    assert len(events) == 1
    assert left - events == {
        "config.yaml",
        "checkpoint/config.json",
        "checkpoint/policy.safetensors",
        "checkpoint/training.safetensors",
        "curve.png",
        "curve.json",
        "episode.gif",
        "evaluation.json",
        "evaluation.md",
        "bars.png",
        "pareto.png",
        "over_time.png",
    }
    for path in left:
        assert path in whole.stdout
    result = json.loads((tmp_path / "whole" / "evaluation.json").read_text())
    assert set(result) == {"scenario", "episodes", "seeds", "provenance", "agents"}
    assert set(result["agents"]) == {"trained", "random", "still", "nearest", "greedy", "planner"}
    assert {"coverage", "rotation", "average_gain", "per_episode"} <= set(result["agents"]["trained"])
    assert len(result["agents"]["trained"]["per_episode"]["coverage"]) == 2
    assert "trained" in whole.stdout

    # The same seed gives the same run. A longer one goes on from where it ended.
    again = run("--run-dir", "again", "--total-steps", 256, *SMALL, *SHORT, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    first = training(tmp_path / "whole")
    assert differences(first, training(tmp_path / "again")) == []
    longer = run("--run-dir", "again", "--resume", "--total-steps", 320, cwd=tmp_path)
    assert longer.returncode == 0, longer.stderr
    assert training(tmp_path / "again")["progress/steps"].tolist() == [320]
    assert len(training(tmp_path / "again")["progress/curve"]) == 10

    # The training scenes are none of those that the evaluation uses.
    config = json.loads((tmp_path / "whole" / "checkpoint" / "config.json").read_text())
    assert config["training_seeds"][0] > result["seeds"][1]
    from hitmac.envs.kernels.streams import stream_keys

    trained_on = np.arange(config["training_seeds"][0], config["training_seeds"][1] + 1, dtype=np.uint64)
    assert np.array_equal(first["simulator/key"], stream_keys(trained_on))

    again = run("--run-dir", "whole", *SMALL, *SHORT, cwd=tmp_path)
    assert again.returncode == 2
    assert "whole exists; name a new directory, or continue that run by adding --resume" in again.stderr
    other = run("--run-dir", "whole", "--resume", "--gamma", 0.5, cwd=tmp_path)
    assert other.returncode == 2
    assert "--gamma is 0.5, but the run in whole has 0.97; it cannot be changed" in other.stderr


@pytest.mark.slow
def test_hit_mac_trains_both_levels_and_evaluates_them(tmp_path):
    small = ["--executor-steps", 1024, "--coordinator-steps", 128, "--num-envs", 8, "--weight-dim", 8, "--episodes", 2]
    whole = run("hit-mac", "--run-dir", "whole", *small, cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    executor = json.loads((tmp_path / "whole" / "executor" / "evaluation.json").read_text())
    assert set(executor["agents"]) == {"trained", "scripted", "planner", "random", "still"}
    coordinator = json.loads((tmp_path / "whole" / "coordinator" / "evaluation.json").read_text())
    assert {"trained", "assign-all", "assign-in-range", "random", "still", "nearest"} <= set(coordinator["agents"])
    held = tmp_path / "whole" / "coordinator" / "checkpoint" / "executor" / "policy.safetensors"
    assert held.read_bytes() == (tmp_path / "whole" / "executor" / "checkpoint" / "policy.safetensors").read_bytes()

    # A longer one goes on; one that is whole already is only evaluated again.
    again = run("hit-mac", "--run-dir", "whole", "--resume", "--coordinator-steps", 256, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    state = training(tmp_path / "whole" / "coordinator")
    assert state["progress/steps"].tolist() == [256]
    other = run("hit-mac", "--run-dir", "whole", "--resume", "--features", "hit-mac", cwd=tmp_path)
    assert other.returncode == 2
    assert "--features is hit-mac, but the run in whole has frame; it cannot be changed" in other.stderr
    wrong = run("coverage", "--run-dir", "whole", "--resume", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "whole is a run of the job hit-mac; coverage cannot continue it" in wrong.stderr

    # Two that count as trainings of one agent, an assignment with the executor, two sizes, and everything that is left.
    agents = "ours=whole+whole:scripted,assign-all:whole,whole:scripted,still"
    command = ["-m", "hitmac", "evaluate", "--agents", agents, "--sizes", "4x5,2x3", "--episodes", "3"]
    command += ["--max-episode-steps", "30", "--bounds", "--json", "all.json", "--pictures", "pictures"]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    first, second = json.loads((tmp_path / "all.json").read_text())
    assert (first["scenario"], second["scenario"]) == ("hit-mac-4x5", "hit-mac-2x3")
    ours = first["agents"]["ours"]
    assert ours["runs"] == ["whole", "whole:scripted"]
    assert len(ours["per_episode"]["coverage"]) == 6
    assert ours["per_episode"]["coverage"][:3] != [None] * 3
    assert first["agents"]["free turning"]["coverage"]["mean"] >= ours["coverage"]["mean"]
    left = {"evaluation.md", "bars.png", "pareto.png", "over_time.png", "heat_maps.png"}
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == left
    assert max(map(len, done.stdout.split("\n\n")[1].splitlines())) <= 80

    # Scenes that are no sizes of each other have pictures of their own.
    main(["--agents", "still,nearest", "--scenario", "hit-mac,obstacles-3x4,obstacles-2x2", "--episodes", "2",
          "--max-episode-steps", "5", "--pictures", str(tmp_path / "each")])  # fmt: skip
    each = {str(path.relative_to(tmp_path / "each")) for path in (tmp_path / "each").rglob("*.*")}
    assert each == {f"obstacles/{name}" for name in left} | {f"hit-mac/{name}" for name in left - {"heat_maps.png"}}


def build(tmp_path):
    from stable_baselines3 import PPO

    from hitmac.agents import AttentionPolicy
    from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

    venv = DirectionalSensorVecEnv("Coverage", 4, max_episode_steps=9)
    model = PPO(
        AttentionPolicy, venv, n_steps=8, batch_size=16, n_epochs=2, seed=1, device="cpu",
        policy_kwargs={"weight_dim": 8},
    )  # fmt: skip
    return model, venv


def test_a_resumed_training_is_bit_for_bit_the_uninterrupted_one(tmp_path):
    from hitmac.agents.training.resume import Progress, load_training, save_training

    model, venv = build(tmp_path)
    model.learn(5 * 32)
    save_training(tmp_path / "whole", model, venv, Progress())

    model, venv = build(tmp_path)
    model.learn(2 * 32)
    save_training(tmp_path / "part", model, venv, Progress(3.0, [(1, 2, 3, 4, 5)]))
    np.random.seed(99)  # noqa: NPY002 - another process would not be here either
    model, venv = build(tmp_path)
    progress = load_training(tmp_path / "part", model, venv)
    assert progress == Progress(3.0, [(1, 2, 3, 4, 5)])
    model.learn(3 * 32, reset_num_timesteps=False)
    save_training(tmp_path / "resumed", model, venv, Progress())
    whole, resumed = (safetensors.numpy.load_file(tmp_path / name) for name in ("whole", "resumed"))
    assert differences(whole, resumed) == []


def test_the_points_of_a_curve_follow_the_steps_and_not_the_clock():
    from hitmac.agents.registry import load_agent
    from hitmac.agents.training.report import CurveEvaluation
    from hitmac.agents.training.resume import Progress

    scenario = load_scenario("hit-mac")
    points = []
    for seconds in (0.0, 1.0, 1000.0):
        progress = Progress()
        for steps in range(0, 801, 20):
            progress.seconds += seconds
            curve = CurveEvaluation(  # as in a run that is resumed after every rollout
                CoverageOptions(curve_points=10, episode_steps=50, episodes=2),
                load_agent("still", scenario),
                scenario,
                progress,
                lambda steps, seconds: steps / 800,
            )
            curve(steps, final=steps == 800)
        points.append([row[0] for row in progress.evaluations])
    # Points are due after 800 (k / 10)^2 steps: 8, 32, 72, 128, 200, ...
    assert points == 3 * [[0, 20, 40, 80, 140, 200, 300, 400, 520, 660, 800]]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Runs train.py in this process, in an empty directory; a signal comes in the middle of a rollout if asked for."""
    from hitmac import train

    monkeypatch.chdir(tmp_path)

    def run_here(*arguments, interrupt_at=None):
        steps = iter(range(10**9))
        original = RolloutCallback._on_step

        def step(progress):
            if next(steps) == interrupt_at:
                signal.raise_signal(signal.SIGINT)
            return original(progress)

        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["train.py", *map(str, arguments)])
            patch.setattr(RolloutCallback, "_on_step", step)
            train.main()
        return tmp_path

    return run_here


@pytest.mark.slow
def test_a_run_stopped_in_a_rollout_and_resumed_is_the_uninterrupted_one(here):
    """Ctrl-C in the sixth step of a rollout of eight: the rollout and its update are finished, and then saved."""
    limit = ["--total-steps", 5 * 64, "--num-envs", 8, "--rollout-steps", 8, "--batch-size", 16, "--weight-dim", 8]
    here("--run-dir", "whole", *limit, *SHORT)
    folder = here("--run-dir", "stopped", *limit, *SHORT, interrupt_at=8 + 5)
    assert training(folder / "stopped")["progress/steps"].tolist() == [2 * 64]
    assert (folder / "stopped" / "evaluation.json").is_file()
    here("--run-dir", "stopped", "--resume")
    whole, stopped = training(folder / "whole"), training(folder / "stopped")
    for one in (whole, stopped):
        one.pop("progress/evaluations")  # which the stopped run has one more of
    assert differences(whole, stopped) == []
    config = yaml.safe_load((folder / "stopped" / "config.yaml").read_text())
    assert [set(sitting) >= {"versions", "command", "commit"} for sitting in config["sittings"]] == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("what", [("--features", "beliefs"), ("--memory", "recurrent")])
def test_a_training_on_what_is_seen_stopped_and_resumed_is_the_uninterrupted_one(what, here):
    learning = [*what, "--knowledge", "shared", "--teacher", "belief-planner", "--num-envs", 8]
    limit = ["--total-steps", 5 * 64, "--rollout-steps", 8, "--batch-size", 16, "--weight-dim", 8, "--curve-points", 0]
    here("--run-dir", "whole", *learning, *limit, *SHORT)
    folder = here("--run-dir", "stopped", *learning, *limit, *SHORT, interrupt_at=8 + 5)
    here("--run-dir", "stopped", "--resume")
    assert differences(training(folder / "whole"), training(folder / "stopped")) == []
    config = json.loads((folder / "whole" / "checkpoint" / "config.json").read_text())
    assert (config["features"] == ["beliefs"], config["policy"]["memory"] == "recurrent") == (
        "beliefs" in what,
        "recurrent" in what,
    )
    assert config["scenario"]["knowledge"] == "shared"


@pytest.mark.slow
def test_ctrl_c_stops_the_whole_of_hit_mac_and_resume_goes_on(here, capsys):
    """It is moved and named by another spelling of its path between the sittings, and what it was made from is gone."""
    own = Path("scene.yaml")
    small = ["--executor-steps", 2 * 4096, "--coordinator-steps", 64, "--num-envs", 64, "--weight-dim", 8]
    load_scenario("hit-mac-2x2").save(own)
    here("hit-mac", "--run-dir", "a:1", "--scenario", own, "--episodes", 2, *small, interrupt_at=3)
    assert not Path("a:1/coordinator").exists()
    assert training(Path("a:1/executor"))["progress/steps"].tolist() == [2048]
    assert "go on with: train.py hit-mac --run-dir a:1 --resume" in capsys.readouterr().out
    own.unlink()
    Path("elsewhere").mkdir()
    Path("a:1").rename("elsewhere/planner")
    here("hit-mac", "--run-dir", "./elsewhere/../elsewhere/planner", "--resume", interrupt_at=10**8)
    run_dir = Path("elsewhere/planner").resolve()
    assert training(run_dir / "executor")["progress/steps"].tolist() == [8192]
    assert training(run_dir / "coordinator")["progress/steps"].tolist()[0] >= 64
    run_dir.rename("nearest")
    here("hit-mac", "--run-dir", Path("nearest").resolve(), "--resume", "--coordinator-steps", 2100)
    assert training(Path("nearest/coordinator"))["progress/steps"].tolist()[0] >= 2100
    used = Path("nearest/executor/checkpoint/policy.safetensors").read_bytes()
    here("hit-mac", "--run-dir", "nearest", "--resume", "--executor-steps", 10**6, interrupt_at=10**8)
    assert "the coordinator uses it, so it stays as it is" in capsys.readouterr().out
    assert Path("nearest/executor/checkpoint/policy.safetensors").read_bytes() == used
    reported = json.loads(Path("nearest/coordinator/evaluation.json").read_text())["agents"]
    assert reported["trained"]["coverage"]["mean"] != reported["nearest"]["coverage"]["mean"]


UNREPORTED = "from hitmac import train; train.report = lambda *arguments: None; train.main()"


def test_the_executor_of_a_coordinator_that_was_killed_stays_as_it_is(here, monkeypatch):
    """Ctrl-C in the executor, which then goes on; killed in the coordinator, which then goes on alone."""
    small = ["--num-envs", 64, "--weight-dim", 8, "--episodes", 2, "--scenario", "hit-mac-2x2"]
    steps = ["--executor-steps", 2 * 4096, "--coordinator-steps", 10**6]
    monkeypatch.setattr("hitmac.train.report", lambda *arguments: None)
    folder = here("hit-mac", "--run-dir", "both", *small, *steps, interrupt_at=3)
    executor, coordinator = folder / "both" / "executor", folder / "both" / "coordinator"
    assert training(executor)["progress/steps"].tolist() == [2048]
    with open(folder / "log", "wb") as log:
        resumed = [sys.executable, "-c", UNREPORTED, "hit-mac", "--run-dir", "both", "--resume"]
        process = subprocess.Popen(resumed, cwd=folder, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": ROOT})
    wait_for(coordinator / "config.yaml", process, 500)
    process.kill()
    process.wait()
    assert training(executor)["progress/steps"].tolist() == [8192]
    used = {path: path.read_bytes() for path in executor.rglob("*") if path.is_file()}
    here("hit-mac", "--run-dir", "both", "--resume", "--executor-steps", 10**6, "--coordinator-steps", 64)
    assert training(coordinator)["progress/steps"].item() >= 64
    assert {path: path.read_bytes() for path in executor.rglob("*") if path.is_file()} == used


@pytest.mark.parametrize("name", ["scripted", "random", "a:b=c+d,e"])
def test_an_executor_is_reported_whatever_the_name_of_its_run(name, here):
    """It is never taken for an agent of that name, nor cut apart at a ':'."""
    here("executor", "--run-dir", name, "--total-steps", 64, *SMALL, *SHORT)
    agents = json.loads(Path(name, "evaluation.json").read_text())["agents"]
    assert set(agents) == {"trained", "scripted", "planner", "random", "still"}
    assert all(agents["trained"]["reward"] != agents[other]["reward"] for other in ("scripted", "random", "still"))


@pytest.mark.parametrize("name", ["planner", "2026-01-01T12:00"])
def test_a_policy_is_reported_whatever_the_name_of_its_run(name, here):
    here("--run-dir", name, "--total-steps", 64, *SMALL, *SHORT)
    agents = json.loads(Path(name, "evaluation.json").read_text())["agents"]
    others = [result for other, result in agents.items() if other != "trained"]
    assert all(result["coverage"] != agents["trained"]["coverage"] for result in others)


@pytest.mark.slow
def test_a_run_holds_a_copy_of_its_executor(here, capsys):
    for name, seed in (("one", 0), ("other", 1)):
        here("executor", "--run-dir", name, "--seed", seed, "--total-steps", 64, *SMALL, *SHORT)
    here("coordinator", "--run-dir", "run", "--executor", "one", "--total-steps", 16, *SMALL, *SHORT)
    shutil.rmtree("one")
    here("coordinator", "--run-dir", "run", "--resume", "--executor", "one", "--total-steps", 40)
    assert training(Path("run"))["progress/steps"].tolist()[0] >= 40
    with pytest.raises(SystemExit):
        here("coordinator", "--run-dir", "run", "--resume", "--executor", "other")
    assert "--executor is other, but the run in run has one; it cannot be changed" in capsys.readouterr().err


def test_help_names_every_job(here, capsys):
    for arguments in (["--help"], ["-h"]):
        with pytest.raises(SystemExit) as end:
            here(*arguments)
        assert not end.value.code
        shown = capsys.readouterr().out
        for job in ("coverage", "coverage-ppo", "executor", "coordinator", "hit-mac"):
            assert f"\n  {job} " in shown
        assert "--total-steps" in shown


def test_a_run_of_one_update_has_a_curve(here):
    import matplotlib.image

    here("--run-dir", "run", "--total-steps", 16, *SMALL, *SHORT)
    state = training(Path("run"))
    assert state["progress/curve"].shape == (1, 5)
    assert state["progress/evaluations"][:, 0].tolist() == [0, 32]
    here("--run-dir", "without", "--total-steps", 16, "--curve-points", 0, *SMALL, *SHORT)
    assert training(Path("without"))["progress/evaluations"].shape == (0, 5)
    assert np.array_equal(
        training(Path("without"))["policy/action_net.0.0.weight"], state["policy/action_net.0.0.weight"]
    )
    blue = np.array([0x42, 0x7A, 0xC4]) / 255  # of the trained policy in every picture
    for name in ("run", "without"):
        picture = matplotlib.image.imread(Path(name, "curve.png"))[..., :3]
        assert (np.abs(picture - blue).max(-1) < 0.02).sum() > 10


def test_damaged_training_states_are_refused(tmp_path):
    from hitmac.agents.training.resume import Progress, load_training, save_training

    model, venv = build(tmp_path)
    model.learn(32)
    save_training(tmp_path / "state", model, venv, Progress())
    whole = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(whole[:-50])
    with pytest.raises(ValueError, match="is not a whole training state"):
        load_training(tmp_path / "state", model, venv)
    arrays = safetensors.numpy.load(whole)
    del arrays["random/torch"]
    safetensors.numpy.save_file(arrays, tmp_path / "state")
    with pytest.raises(ValueError, match="is not a whole training state"):
        load_training(tmp_path / "state", model, venv)


def start(tmp_path, *arguments):
    return subprocess.Popen(
        command(*arguments), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(path, process, seconds=120):
    deadline = time.monotonic() + seconds
    try:
        while not path.exists():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
    except BaseException:
        process.kill()
        raise


@pytest.mark.slow
def test_kill_and_resume(tmp_path):
    process = start(tmp_path, "--run-dir", "killed", "--total-steps", 10**9, "--save-every", 0.1, *SMALL, *SHORT)
    state = tmp_path / "killed" / "checkpoint" / "training.safetensors"
    wait_for(state, process)
    time.sleep(1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    steps = int(training(tmp_path / "killed")["progress/steps"][0])
    assert steps > 0
    resumed = run("--run-dir", "killed", "--resume", "--total-steps", steps + 64, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert training(tmp_path / "killed")["progress/steps"].tolist() == [steps + 64]


def test_an_executor_is_trained_for_what_its_options_say():
    asked = {"turn_cost": 0.2, "centring": 0.3, "goals_every": 7, "goal_share": 0.5, "padding": "attended"}
    task = make_environments(ExecutorOptions(num_envs=2, **asked), load_scenario("hit-mac-executor")).task
    assert {name: getattr(task, name) for name in asked} == asked
    executor, coordinator = levels(HitMacOptions(seed=3), Path("runs/x"))
    assert (executor.scenario, executor.goals_every, executor.centring, executor.goal_share) == (
        "hit-mac",
        10,
        0.2,
        0.8,
    )
    assert (executor.seed, coordinator.seed, coordinator.executor) == (3, 3, "runs/x/executor")
    assert (executor.algorithm, coordinator.algorithm, coordinator.credit) == ("ppo", "ppo", "difference_rewards")
    frame = ExecutorOptions.features, FEATURE_SETS["frame"]
    assert (executor.features, coordinator.features) == frame
    imitation = with_defaults(HitMacOptions, "imitation")
    executor, coordinator = levels(imitation, Path("runs/x"))
    assert (executor.scenario, executor.goals_every, executor.goal_share) == ("hit-mac", 10, 0.8)
    assert (executor.features, coordinator.features) == (GOAL_FEATURES, DEFAULT_FEATURES)
    assert (with_limits(executor).total_steps, with_limits(coordinator).total_steps) == (512_000, 70_400)
    assert with_limits(dataclasses.replace(executor, total_steps=9)).minutes is None
    both = levels(dataclasses.replace(imitation, features="frame"), Path("runs/x"))
    assert tuple(level.features for level in both) == frame


@pytest.mark.slow
def test_both_levels_of_hit_mac_imitate(here):
    asked = ["--algorithm", "imitation", "--weight-dim", 8, "--episodes", 2, "--seed", 1]
    asked += ["--executor-steps", 64 * 2 * 32, "--coordinator-steps", 64 * 8, "--scenario", "hit-mac-2x2"]
    here("hit-mac", "--run-dir", "whole", *asked)
    here("hit-mac", "--run-dir", "stopped", *asked, interrupt_at=3)
    assert not Path("stopped/coordinator").exists()
    here("hit-mac", "--run-dir", "stopped", "--resume")
    for level in ("executor", "coordinator"):
        whole, stopped = (training(Path(run) / level) for run in ("whole", "stopped"))
        assert whole["progress/updates"].item() > 0
        for one in (whole, stopped):
            one.pop("progress/evaluations", None)
        assert differences(whole, stopped) == []
    written = yaml.safe_load(Path("whole/coordinator/config.yaml").read_text())["options"]
    assert (written["algorithm"], written["idle"], written["num_envs"]) == ("imitation", "hold", 64)
    reported = json.loads(Path("whole/coordinator/evaluation.json").read_text())["agents"]
    assert {"trained", "assign-planned"} <= set(reported)


@pytest.mark.slow
def test_the_algorithm_does_not_change_an_option_that_is_given(here):
    small = ["--total-steps", 64, "--weight-dim", 4, "--episodes", 1, "--curve-points", 0, "--episode-steps", 5]
    here("coordinator", "--algorithm", "imitation", "--idle", "random", "--num-envs", 8, "--run-dir", "a", *small)
    written = yaml.safe_load(Path("a/config.yaml").read_text())["options"]
    assert (written["idle"], written["num_envs"], written["epochs"]) == ("random", 8, 8)


@pytest.mark.slow
def test_ctrl_c_ends_the_training_and_evaluates(tmp_path):
    process = start(tmp_path, "--run-dir", "stopped", "--total-steps", 10**9, "--save-every", 0.1, *SMALL, *SHORT)
    wait_for(tmp_path / "stopped" / "checkpoint" / "training.safetensors", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "stopping after this update: evaluating and saving" in out
    assert (tmp_path / "stopped" / "evaluation.json").is_file()
    assert "stopped/" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--num-envs", "0"], "--num-envs is 0; it must be 1 to 65536"),
        (["chess"], "unknown job 'chess': known are coverage, coverage-ppo, executor, coordinator, hit-mac"),
        (["coordinator", "--executor", "nobody"], "unknown executor 'nobody': known are scripted, random, still"),
        (["coordinator", "--executor", "still"], "--executor is still; it must be scripted or the directory of a run"),
        (
            ["coordinator", "--executor", "hitmac.agents.baselines.rules:StillAgent"],
            "--executor is hitmac.agents.baselines.rules:StillAgent; it must be scripted or the directory of a run",
        ),
        (["coordinator", "--critic", "judge"], "--critic is judge; it must be one of amc, no_prefix, value_head"),
        (["executor", "--padding", "none"], "--padding is none; it must be one of attended, masked, unfiltered"),
        (["executor", "--centring", "1.5"], "--centring is 1.5; it must be 0 to 1"),
        (["executor", "--goal-share", "nan"], "--goal-share is nan; it must be a finite number, 0 to 1"),
        (["hit-mac", "--features", "smell"], "--features is smell; it must be one of hit-mac, frame, motion"),
        (["hit-mac", "--episodes", "0"], "--episodes is 0; it must be 1 or more"),
        (["--num-envs", "abc"], "'abc'"),
        (["--minutes", "-1"], "--minutes is -1.0; it must be over 0"),
        (["--minutes", "nan"], "--minutes is nan; it must be a finite number, over 0"),
        (["--scenario", "moon"], "unknown scenario 'moon': known are basketball-4"),
        (["--features", "smell"], "unknown feature smell: known are sensor_id"),
        (["--memory", "gru"], "--memory is gru; it must be none or recurrent"),
        (
            ["--memory", "recurrent"],
            "--memory is recurrent, and the knowledge full; to learn a memory it must be shared",
        ),
        (["--memory", "recurrent", "--features", "motion"], "with --memory recurrent they must be left out"),
        (["coverage-ppo", "--memory", "recurrent"], "--algorithm is ppo; a memory is learned by imitation"),
        (["coordinator", "--memory", "recurrent"], "--memory"),
        (["--resume"], "--resume needs --run-dir"),
        (["--resume", "--run-dir", "absent"], "absent is no run to resume: it has no config.yaml"),
        (["--gamma", "1.5"], "--gamma is 1.5; it must be 0 to 1"),
        (["--colour", "red"], "--colour"),
    ],
)
def test_bad_options_get_one_line_and_leave_nothing(arguments, says, tmp_path, monkeypatch, capsys):
    from hitmac import train

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    with pytest.raises(SystemExit) as end:
        train.main()
    assert end.value.code == 2
    message = capsys.readouterr().err
    assert says in message
    assert len(message.strip().splitlines()) == 1
    assert os.listdir(tmp_path) == []


def test_a_foreign_configuration_is_refused(tmp_path, monkeypatch, capsys):
    from hitmac import train

    (tmp_path / "config.yaml").write_text("!!python/object/apply:os.system ['false']")
    monkeypatch.setattr(sys, "argv", ["train.py", "--run-dir", str(tmp_path), "--resume"])
    with pytest.raises(SystemExit):
        train.main()
    assert "is not the configuration of a run" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("coverage", "--num-envs", 64, "--teacher", "planner-fast", "--total-steps", 8192),
        ("coverage-ppo", "--num-envs", 256, "--total-steps", 100_000),
    ],
)
def test_it_learns(arguments, tmp_path):
    """It soon covers far more than random agents, from a planner's values or from reward alone."""
    result = run(*arguments, "--run-dir", "run", "--episodes", 10, "--curve-points", 0, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    agents = json.loads((tmp_path / "run" / "evaluation.json").read_text())["agents"]
    assert agents["trained"]["coverage"]["mean"] > agents["random"]["coverage"]["mean"] + 0.2
    options = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["options"]
    assert options["total_steps"] == arguments[-1]
