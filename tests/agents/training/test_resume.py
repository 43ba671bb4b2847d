"""Run directories and training states: a resumed run is the uninterrupted one, a damaged or used one is refused."""

import contextlib
import dataclasses
import errno
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
import yaml

from hitmac.agents.learned.checkpoint import load_policy
from hitmac.agents.training import resume
from hitmac.agents.training.config import JOBS, CoverageOptions, completed
from hitmac.agents.training.learner import build
from hitmac.agents.training.resume import Progress, load_training, locked, open_run, save_training, saved_progress
from hitmac.agents.training.train import stop_on_signal
from hitmac.envs import load_scenario
from hitmac.envs.base.streams import stream_keys
from tests.agents.training.runs import SMALL, differences, started, state, steps_of, tensors
from tests.envs.scenes import BY_RATE

BELIEVES = {"features": ("beliefs",), "teacher": "belief-planner-fastest"}
# One of every kind of learner, observation and state, in scenes with zoom, absent sensors and failures.
LEARNERS = [
    ("coverage", "obstacles", {}),
    ("coverage", "hit-mac-6x12", {"nearest": 3, "radius": 1200.0, "neighbours": 2, "attend_over": "agents"}),
    ("coverage", "random", {"per_sensor": True}),
    ("coverage", "hit-mac-3x2", {"memory": "recurrent"}),
    ("coverage", "hit-mac-3x2", BELIEVES),
    ("coverage", "nameless", {"teacher": "planner-fast"}),
    ("coverage-ppo", "hit-mac-3x2", {}),
    ("coverage-ppo", "hit-mac-3x2", {"memory": "recurrent"}),
    ("coverage-ppo", "random", {"algorithm": "a2c", "nearest": 2}),
    ("coverage", "by rate", {"teacher": "planner-fast"}),
    ("coverage-ppo", "mate by rate", {}),
    ("executor", "by rate", {}),
    ("executor", "mate by rate", BELIEVES | {"algorithm": "imitation"}),
    ("coordinator", "mate", BELIEVES | {"algorithm": "imitation", "decision": 1}),
    ("coordinator", "mate", BELIEVES),
    ("executor", "obstacles", {}),
    ("executor", "random", {"algorithm": "imitation", "teacher": "planner-fast"}),
    ("coordinator", "random", {}),
    ("coordinator", "obstacles", {"algorithm": "imitation", "teacher": "planner-fast"}),
    ("transport", "mate-2v4-0", {"frame_skip": 2}),
    ("transport", "mate-2v4-0", {"algorithm": "imitation", "teacher": "evader"}),
]


@pytest.mark.parametrize(("job", "scene", "options"), LEARNERS, ids=[f"{job}-{scene}" for job, scene, _ in LEARNERS])
def test_a_resumed_learner_is_bit_for_bit_the_uninterrupted_one(job, scene, options, tmp_path):
    small = {"num_envs": 3, "rollout_steps": 3, "batch_size": 4, "weight_dim": 4, "episode_steps": 5}
    nameless = {"identities": False, "false_detections": 0.1} if scene == "nameless" else {}
    duel = load_scenario("mate-2v4-1")
    others = {"by rate": BY_RATE, "mate": duel, "mate by rate": duel.replace(action="rate")}
    scenario = others.get(scene) or load_scenario("hit-mac-3x2" if nameless else scene)
    partial = bool(nameless) or {"memory", "features"} & {*options}
    scenario = scenario.replace(knowledge="shared" if partial else "full", **nameless)
    asked = dataclasses.replace(JOBS[job](), **small | options)
    options = completed(asked, {*small, *options}, scenario)

    def learner():
        model, venv, _ = build(options, scenario)
        return model, venv, options.rollout_steps * venv.num_envs

    def left(name):
        save_training(tmp_path / name, model, venv, progress)
        return safetensors.numpy.load_file(tmp_path / name)

    progress = Progress(3.0, [(1, 2, 3, 4, 5)])
    model, venv, rollout = learner()
    model.learn(rollout)
    left("part")
    model.learn(2 * rollout, reset_num_timesteps=False)
    whole = left("whole")
    np.random.seed(99)  # noqa: NPY002 - the state of another process
    torch.manual_seed(99)
    model, venv, _ = learner()
    assert load_training(tmp_path / "part", model, venv) == progress
    assert saved_progress(tmp_path / "part") == (rollout, 3.0)
    model.learn(2 * rollout, reset_num_timesteps=False)
    assert differences(whole, left("resumed")) == []
    assert whole["progress/steps"].item() == 3 * rollout
    assert whole["progress/updates"].item() > 0


@pytest.mark.slow
def test_a_killed_training_continues_as_if_never_interrupted(here, refused, tmp_path):
    asked = ["coverage-ppo", "--total-steps", 16 * 30, *SMALL]
    process = started(tmp_path, [*asked, "--run-dir", "killed"], ["killed"])
    process.send_signal(signal.SIGSTOP)
    again = ["coverage-ppo", "--run-dir", "killed", "--resume"]
    assert "error: killed is in use by another training" in refused(*again)
    process.kill()
    process.wait()
    assert steps_of("killed") < 16 * 30
    here(*again)
    here(*asked, "--run-dir", "whole")
    assert differences(state("killed"), state("whole")) == []


def test_one_process_at_a_time_holds_a_run(tmp_path, monkeypatch):
    with contextlib.ExitStack() as first:
        first.enter_context(locked(tmp_path))
        with pytest.raises(BlockingIOError), locked(tmp_path):
            pass
        monkeypatch.setattr(time, "sleep", lambda seconds: first.close())
        with locked(tmp_path, patience=60.0):
            pass

    def without_locks(*arguments):
        raise OSError(errno.ENOSYS, "no locks on this file system")

    monkeypatch.setattr("fcntl.flock", without_locks)
    with locked(tmp_path), locked(tmp_path):
        pass


def test_a_new_directory_goes_to_one_of_two_runs(tmp_path, monkeypatch):
    """The other one makes it while this one is written; a name that nobody chose is followed by the next."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "now")

    others = iter([Path("one/checkpoint"), Path("runs/now/checkpoint")])

    def meanwhile():
        if other := next(others, None):
            other.mkdir(parents=True)

    monkeypatch.setattr(resume, "provenance", meanwhile)
    options, scenario = CoverageOptions(run_dir=Path("one")), load_scenario("hit-mac")
    with pytest.raises(FileExistsError, match=r"^one exists; name a new directory, or"), open_run(options, scenario):
        pass
    with open_run(dataclasses.replace(options, run_dir=None), scenario) as opened:
        assert opened.folder == Path("runs/now-2")
    assert sorted(path.name for path in [*Path().iterdir(), *Path("runs").iterdir()]) == ["now", "now-2", "one", "runs"]


def test_a_run_without_a_checkpoint_is_begun_anew_unless_it_is_in_use(tmp_path):
    options, scenario = CoverageOptions(run_dir=tmp_path / "one"), load_scenario("hit-mac")
    with open_run(options, scenario), pytest.raises(FileExistsError), open_run(options, scenario):  # still in use
        pass
    with open_run(dataclasses.replace(options, gamma=0.5), scenario):
        assert "gamma: 0.5" in (tmp_path / "one/config.yaml").read_text()
    (tmp_path / "one/notes.txt").write_text("mine")
    with pytest.raises(FileExistsError), open_run(options, scenario):
        pass
    for number, mine in enumerate(("detector: yolo\n", "job: other\noptions: {}\n", "{", "- job\n")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.yaml").write_text(mine)
        with pytest.raises(FileExistsError), open_run(dataclasses.replace(options, run_dir=folder), scenario):
            pass
        assert (folder / "config.yaml").read_text() == mine  # of another program


def test_a_run_is_moved_copied_and_extended(here, refused):
    """A coordinator's run holds a copy of its executor and of the scenario; only limits may change."""
    load_scenario("hit-mac-2x2").save("scene.yaml")
    scene = ["--scenario", "scene.yaml"]
    for name, seed in (("one", 0), ("other", 1)):
        here("executor", "--run-dir", name, "--seed", seed, *scene, "--total-steps", 32, *SMALL)
    here("coordinator", "--run-dir", "run", "--executor", "one", *scene, "--total-steps", 16, *SMALL)
    used = tensors("one")
    shutil.rmtree("one")
    Path("scene.yaml").unlink()
    shutil.copytree("run", "copy")
    Path("run").rename("planner")  # also the name of an agent
    for folder in ("copy", "planner"):
        here("coordinator", "--run-dir", folder, "--resume", "--executor", "one", "--total-steps", 32)
        assert steps_of(folder) == 32
        assert (
            differences(safetensors.numpy.load_file(Path(folder, "checkpoint/executor/policy.safetensors")), used) == []
        )
    assert differences(tensors("copy"), tensors("planner")) == []
    sessions = yaml.safe_load(written := Path("copy/config.yaml").read_text())["sessions"]
    assert all(one["command"] in written for one in sessions)  # in one line, to be copied
    assert [set(session) >= {"versions", "command", "commit"} for session in sessions] == [True, True]

    again = ["coordinator", "--run-dir", "copy", "--resume"]
    for arguments, says in (
        ([*again, "--executor", "other"], "--executor is other, but the run in copy has one; it cannot be changed"),
        ([*again, "--gamma", "0.9"], "--gamma is 0.9, but the run in copy has 0.8"),
        (
            ["executor", *again[1:]],
            "copy is a run of the job coordinator, which executor cannot continue; name coordinator before --resume",
        ),
        (again[:3], "copy exists; name a new directory, or add --resume"),
        (["--resume"], "--resume requires --run-dir"),
        (["--resume", "--run-dir", "absent"], "absent is not a run to resume: it has no config.yaml"),
    ):
        assert says in refused(*arguments)


def test_foreign_configurations_are_refused(refused):
    Path("run").mkdir()
    for written in ("!!python/object/apply:os.system ['false']", "[]", "job: coverage\noptions: {speed: 1}"):
        Path("run/config.yaml").write_text(written)
        assert "is not the configuration of a run" in refused("--run-dir", "run", "--resume")


def test_damaged_training_states_are_refused(tmp_path):
    options = JOBS["coverage-ppo"](num_envs=2, rollout_steps=4, batch_size=8, weight_dim=4)
    model, venv, _ = build(options, load_scenario("hit-mac-2x2"))
    model.learn(8)
    path = tmp_path / "state"
    save_training(path, model, venv, Progress())
    whole = path.read_bytes()
    missing, wrong = (safetensors.numpy.load(whole) for _ in range(2))
    del missing["random/torch"]
    wrong["simulator/heading"] = wrong["simulator/heading"][:1]
    for damaged in (whole[:-50], safetensors.numpy.save(missing), safetensors.numpy.save(wrong)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=str(path)):
            load_training(path, model, venv)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=str(path)):
        saved_progress(path)


def test_a_full_disk_ends_the_training_and_the_last_checkpoint_stays(failed, monkeypatch):
    saved, write = [], Path.write_bytes

    def fill(path, content):
        saved.append(path)
        if "training" not in path.name or len(saved) < 6:
            return write(path, content)
        path.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", fill)
    line = failed("coverage-ppo", "--run-dir", "run", "--total-steps", 512, *SMALL)
    assert f"No space left on device: '{Path('run/checkpoint/training.safetensors')}'" in line
    load_policy("run")
    assert 0 < steps_of("run") < 512
    names = sorted(path.name for path in Path("run/checkpoint").iterdir())
    assert names == ["config.json", "policy.safetensors", "training.safetensors"]


def test_the_scenes_of_a_training_are_none_of_those_of_an_evaluation():
    _, venv, config = build(CoverageOptions(num_envs=4, batch_size=2, seed=3), load_scenario("hit-mac"))
    venv.reset()
    assert config.training_seeds == (2**40 + 3 * 2**16, 2**40 + 3 * 2**16 + 3)
    keys = stream_keys(np.arange(config.training_seeds[0], config.training_seeds[1] + 1, dtype=np.uint64))
    assert np.array_equal(venv.task.simulator.get_state()["key"], keys)


# --- signals and limits ---


def test_a_signal_ends_the_training_after_the_update_and_resume_continues_it(here, capfd):
    asked = ["coverage", *SMALL, "--total-steps", 4 * 16]
    steps = here(*asked, "--run-dir", "whole")
    assert here(*asked, "--run-dir", "stopped", at=2) == steps // 4
    out = capfd.readouterr().out
    assert "stopping after this update" in out
    assert "steps, exploring: coverage " in out
    assert "train.py coverage --run-dir stopped --resume" in out
    load_policy("stopped")
    assert here("coverage", "--run-dir", "stopped", "--resume", at=2, number=signal.SIGTERM) == steps // 4
    here("coverage", "--run-dir", "stopped", "--resume")
    assert differences(state("whole"), state("stopped")) == []


def test_any_thread_may_train():
    """Only the main one may handle signals."""

    def is_stopped():
        with stop_on_signal() as stop:
            return stop.is_set()

    with ThreadPoolExecutor(1) as other:
        assert other.submit(is_stopped).result() is False


def test_the_time_limit_ends_a_rollout_too(here, monkeypatch):
    monkeypatch.setattr("hitmac.agents.training.learner.OVERDUE", 0.0)
    here("coverage", "--run-dir", "run", *SMALL, "--minutes", 0.005, "--rollout-steps", 10**9)
    load_policy("run")
    assert steps_of("run") > 0


def test_the_time_limit_ends_an_update_too(here, monkeypatch):
    monkeypatch.setattr("hitmac.agents.training.learner.OVERDUE", 0.0)
    here("coverage-ppo", "--run-dir", "run", *SMALL, "--minutes", 0.02, "--epochs", 10**9)
    load_policy("run")
    assert steps_of("run") > 0
