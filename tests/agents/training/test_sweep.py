"""Groups of trainings, with several seeds and values of options, and the two levels of HiT-MAC."""

import dataclasses
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from hitmac.agents import load_agent
from hitmac.agents.learned.checkpoint import load_policy, variations_in
from hitmac.agents.names import named_agents
from hitmac.agents.training.config import CoverageOptions, HitMacOptions, levels
from hitmac.agents.training.resume import locked, open_run, resolve
from hitmac.agents.training.sweep import is_finished, last_line, start_training, trainings, variations
from hitmac.envs import load_scenario
from tests.agents.training.brief import OWN_PROCESS
from tests.agents.training.runs import SMALL, differences, started, state, steps_of, tensors

HIT_MAC = load_scenario("hit-mac")
PAIR = ["--num-envs", 8, "--weight-dim", 4, "--episodes", 2, "--scenario", "hit-mac-2x2", "--processes", 1]


def evaluated(run):
    return json.loads(Path(run, "evaluation.json").read_text())["agents"]


# --- variations ---


def test_all_combinations_are_varied_with_every_seed():
    options = CoverageOptions(sweep=("pooling=sum,mean", "weight-dim=8,16", "scaled=yes,no"), seed=2, seeds=2)
    found = variations(options)
    assert list(found)[:2] == ["pooling=sum weight_dim=8 scaled=yes", "pooling=sum weight_dim=8 scaled=no"]
    values = [(one.pooling, one.weight_dim, one.scaled) for one in found.values()]
    assert (len(set(values)), values[0], values[-1]) == (8, ("sum", 8, True), ("mean", 16, False))
    group = trainings(options, Path("x"))
    assert len(group) == 16
    assert [str(one.run_dir.relative_to("x")) for _, one in group[:3]] == [
        "pooling-sum-weight_dim-8-scaled-yes/seed-2",
        "pooling-sum-weight_dim-8-scaled-yes/seed-3",
        "pooling-sum-weight_dim-8-scaled-no/seed-2",
    ]
    assert all((one.sweep, one.seeds, one.is_group) == ((), 1, False) for _, one in group)
    assert dataclasses.replace(trainings(CoverageOptions(), Path("x"))[0][1], run_dir=None) == CoverageOptions()


def test_values_are_those_of_the_command_line():
    found = variations(CoverageOptions(sweep=("features=frame,distance visible,motion", "critic=amc,None")))
    assert {one.features for one in found.values()} == {("frame",), ("distance", "visible"), ("motion",)}
    assert {one.critic for one in found.values()} == {"amc", None}
    assert len(variations(CoverageOptions(sweep=("learning_rate=1e-3,0.001",)))) == 2  # by their words
    both = HitMacOptions(sweep=("weight_dim=8,16",))
    assert [levels(one, Path("x"))[0].weight_dim for one in variations(both).values()] == [8, 16]


def test_set_is_for_the_scenario_and_sweep_for_the_job(tmp_path, refused):
    asked = CoverageOptions(set=("knowledge=shared",), sweep=("pooling=sum,mean",), run_dir=tmp_path / "run")
    options, scenario = resolve(asked, {"set", "sweep", "run_dir"})
    assert (scenario.knowledge, scenario.name) == ("shared", "hit-mac, knowledge=shared")
    with open_run(options, scenario):
        pass
    resumed, again = resolve(CoverageOptions(run_dir=tmp_path / "run", resume=True), set())
    assert (resumed.sweep, resumed.set, again.knowledge) == (("pooling=sum,mean",), ("knowledge=shared",), "shared")
    says = (
        "--set pooling=sum,mean names an option of the job, not of the scenario; give --pooling, or to vary it --sweep"
    )
    assert says in refused("--set", "pooling=sum,mean")
    assert "num_sensers (did you mean num_sensors?)" in refused("--set", "num_sensers=3")


def test_the_last_line_of_a_log_has_no_progress_bar(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"first\n 10%|\r 20%|\rerror: it broke\n\n")
    assert last_line(log) == "error: it broke"
    log.write_bytes(b"")
    assert last_line(log) == "it printed nothing"


# --- groups ---


@pytest.mark.slow
def test_a_broken_group_is_continued_and_evaluated_together(here, refused, capsys):
    group = ["--total-steps", 32, "--seed", 4, "--seeds", 2, *SMALL]
    with pytest.raises(SystemExit):
        here("--run-dir", "all", *group, at=8 + 2, number=signal.SIGHUP, evaluated=True)  # a training has 8 steps
    assert "aborted; a checkpoint is kept, if there is one: continue with --resume" in capsys.readouterr().err
    assert not Path("all/evaluation.json").exists()
    first = Path("all/seed-4/evaluation.json").stat().st_mtime_ns
    assert here("--run-dir", "all", "--resume", "--processes", 1, evaluated=True) == 8
    assert "all/seed-4: already done" in capsys.readouterr().out
    assert Path("all/seed-4/evaluation.json").stat().st_mtime_ns == first
    here("--run-dir", "alone", "--seed", 5, "--total-steps", 32, *SMALL)
    assert differences(tensors("all/seed-5"), tensors("alone")) == []
    assert differences(tensors("all/seed-4"), tensors("alone"))

    found = evaluated("all")
    assert {key: found["trained"][key] for key in ("trainings", "interval", "runs")} == {
        "trainings": 2, "interval": "episodes and trainings", "runs": ["seed 4", "seed 5"]
    }  # fmt: skip
    assert [found[name]["trainings"] for name in ("random", "still")] == [0, 0]
    runs = [evaluated(f"all/seed-{seed}")["trained"]["per_episode"]["coverage"] for seed in (4, 5)]
    assert found["trained"]["per_episode"]["coverage"] == runs[0] + runs[1]
    for spec, name in (("all", "all"), ("ours=all", "ours"), ("ours=all/seed-4+all/seed-5", "ours")):
        both = named_agents(spec, HIT_MAC)
        assert [(one.name, one.run) for one in both] == [(name, f"all/seed-{seed}") for seed in (4, 5)]
    with pytest.raises(ValueError, match=r"all holds 2 trainings; name one of them, such as all/seed-4"):
        load_agent("all", HIT_MAC)

    assert here("--run-dir", "all", "--resume", "--total-steps", 48, "--processes", 1, evaluated=True) == 8
    assert "--seeds is 3, but the run in all has 2" in refused("--run-dir", "all", "--resume", "--seeds", 3)
    options = CoverageOptions(run_dir=Path("all/seed-4"), total_steps=48)
    assert is_finished(options)
    for unfinished in ({"total_steps": 49}, {"total_steps": None, "minutes": 9.0}, {"run_dir": Path("absent")}):
        assert not is_finished(dataclasses.replace(options, **unfinished))
    Path("all/seed-4/evaluation.json").unlink()
    assert not is_finished(options)


@pytest.mark.slow
def test_levels_with_several_seeds(here):
    here("executor", "--run-dir", "executors", "--seeds", 2, "--total-steps", 64, *SMALL, evaluated=True)
    found = evaluated("executors")
    assert {name: one["trainings"] for name, one in found.items()} == {
        "trained": 2, "scripted": 0, "planner": 0, "random": 0, "still": 0
    }  # fmt: skip
    assert len(found["trained"]["per_episode"]["reward"]) == 4
    one = ["--executor", "executors/seed-0"]
    here("coordinator", "--run-dir", "coordinators", "--seeds", 2, *one, "--total-steps", 16, *SMALL, evaluated=True)
    found = evaluated("coordinators")
    assert (found["trained"]["trainings"], found["assign-all"]["trainings"]) == (2, 1)  # they share their executor


# --- processes ---


def is_free(run):
    """Return whether no training holds a run."""
    try:
        with locked(run):
            return True
    except BlockingIOError:
        return False


@pytest.mark.slow
def test_a_training_that_fails_does_not_stop_the_others_and_a_signal_stops_all(tmp_path):
    several = ["--run-dir", "all", "--seeds", 2, *SMALL, "--processes", 2, "--total-steps", 10**7]
    group = started(tmp_path, ["coverage-ppo", *several], ["all/seed-0", "all/seed-1"])
    found = subprocess.run(["pgrep", "-P", str(group.pid), "-f", "hitmac.train"], capture_output=True, text=True)
    runs = [tmp_path / run for run in ("all", "all/seed-0", "all/seed-1")]
    try:
        assert not any(is_free(run) for run in runs)
        os.kill(int(found.stdout.split()[0]), signal.SIGKILL)
        time.sleep(1)
        assert sum(is_free(run) for run in runs) == 1
        group.send_signal(signal.SIGTERM)
        assert group.wait(timeout=300) == 1
    finally:
        group.kill()
    assert "1 of 2 trainings failed" in (tmp_path / "log").read_text()
    assert all(is_free(run) for run in runs)


@pytest.mark.slow
def test_a_training_ends_with_the_process_that_started_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", OWN_PROCESS["PYTHONPATH"])
    options = CoverageOptions(run_dir=tmp_path / "run", total_steps=10**7)
    with open_run(options, HIT_MAC):
        pass
    with start_training(options.job, options.folder, 1) as training:
        training.stdin.close()  # as the end of this process would do
        assert training.wait(60) == 1
    assert is_free(options.folder)


@pytest.mark.slow
def test_variations_train_side_by_side_and_are_agents(here, monkeypatch):
    for name, value in OWN_PROCESS.items():
        monkeypatch.setenv(name, value)
    tiny = [*SMALL, "--total-steps", 32, "--scenario", "hit-mac-2x2"]
    here("--run-dir", "all", "--sweep", "pooling=sum,mean", *tiny, "--processes", 2, evaluated=True)
    here("--run-dir", "alone", "--pooling", "mean", *tiny)
    assert differences(tensors("all/pooling-mean/seed-0"), tensors("alone")) == []
    found = evaluated("all")
    assert {"pooling=sum", "pooling=mean", "random", "still"} <= set(found)
    alone = evaluated("all/pooling-mean/seed-0")["trained"]
    assert found["pooling=mean"]["coverage"]["mean"] == alone["coverage"]["mean"]
    assert "32 steps in" in Path("all/pooling-sum/seed-0/training.log").read_text()
    assert "processes" not in yaml.safe_load(Path("all/config.yaml").read_text())["options"]
    assert [folder.name for folder in variations_in("all")] == ["pooling-mean", "pooling-sum"]
    agents = named_agents("all", load_scenario("hit-mac-2x2"))
    assert [agent.name for agent in agents] == ["all/pooling-mean", "all/pooling-sum"]
    with pytest.raises(ValueError, match=r"holds 2 variations; name one of them, such as .*pooling-mean"):
        load_policy("all")


# --- both levels ---


def test_both_levels_are_trained_and_a_finished_executor_stays_as_it_is(here, capsys):
    """Stopped in the executor, moved, ended in the coordinator, and continued: each level as if never interrupted."""
    asked = ["hit-mac", *PAIR, "--executor-steps", 2 * 256, "--coordinator-steps", 2 * 64]
    here(*asked, "--run-dir", "whole")
    assert here(*asked, "--run-dir", "a:1", at=3) == 16
    assert not Path("a:1/coordinator").exists()
    assert "train.py hit-mac --run-dir a:1 --resume" in capsys.readouterr().out
    Path("a:1").rename("planner")  # also the name of an agent
    resume = ["hit-mac", "--run-dir", "planner", "--resume"]
    with pytest.raises(SystemExit):
        here(*resume, at=16 + 3, number=signal.SIGHUP)  # aborted in the coordinator
    assert steps_of("planner/executor") == 512
    used = {path: path.read_bytes() for path in Path("planner/executor").rglob("*") if path.is_file()}
    here(*resume, "--executor-steps", 10**6)
    assert "since the coordinator uses it" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in Path("planner/executor").rglob("*") if path.is_file()} == used
    for level in ("executor", "coordinator"):
        one, other = (state(f"{run}/{level}") for run in ("whole", "planner"))
        assert differences(one, other) in ([], ["progress/evaluations"])
    held = Path("planner/coordinator/checkpoint/executor/policy.safetensors")
    assert held.read_bytes() == Path("planner/executor/checkpoint/policy.safetensors").read_bytes()


@pytest.mark.slow
def test_both_levels_and_their_executors_with_several_seeds(here):
    small = ["--executor-steps", 256, "--coordinator-steps", 64]
    here("hit-mac", "--run-dir", "all", "--seeds", 2, *PAIR, *small, evaluated=True)
    found = evaluated("all")
    assert {name: one["trainings"] for name, one in found.items() if one["trainings"]} == {
        "trained": 2, "assign-all": 2, "assign-in-range": 2, "assign-randomly": 2, "assign-planned": 2
    }  # fmt: skip
    assert here("hit-mac", "--run-dir", "all", "--resume", "--processes", 1, evaluated=True) == 0
    for name, form in (("x=assign-all:all", "assign-all:{}"), ("all:scripted", "{}:scripted")):
        assert [one.run for one in named_agents(name, HIT_MAC)] == [form.format(f"all/seed-{i}") for i in (0, 1)]
