"""Groups of trainings: ranges of seeds, options that vary, and trainings in processes of their own."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from hitmac import train
from hitmac.agents.learned.checkpoint import load_policy, variations_in
from hitmac.agents.registry import named_agents
from hitmac.agents.training.config import CoverageOptions, HitMacOptions, levels, with_seed_range
from hitmac.agents.training.sweep import last_line, trainings, variations
from hitmac.envs import load_scenario

SMALL = ["--num-envs", 8, "--rollout-steps", 4, "--batch-size", 16, "--weight-dim", 8]
SMALL += ["--episodes", 2, "--episode-steps", 20, "--curve-points", 0]
TINY = [*SMALL, "--total-steps", 64]
LONG = [*SMALL, "--total-steps", 10_000_000]


def command(*arguments):
    return [sys.executable, "-m", "hitmac.train", *map(str, arguments)]


def alive(process):
    """Return whether a process runs; one that has ended may still be listed."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def refused(capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["train.py", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        train.main()
    assert end.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(("given", "means"), [
    (["--seeds", "0..9"], ["--seed", "0", "--seeds", "10"]),
    (["--seeds=3..3"], ["--seed", "3", "--seeds", "1"]),
    (["--minutes", "1", "--seeds", "2..4", "--resume"], ["--minutes", "1", "--seed", "2", "--seeds", "3", "--resume"]),
    (["--seeds", "3"], ["--seeds", "3"]),
    (["--run-dir", "1..2"], ["--run-dir", "1..2"]),
    (["1..2"], ["1..2"]),
    ([], []),
])  # fmt: skip
def test_a_range_of_seeds_is_the_first_and_their_number(given, means):
    assert with_seed_range(given) == means


def test_ranges_that_cannot_be_are_refused(capsys, monkeypatch):
    assert "--seeds is 4..2; the first must not be over the last" in refused(capsys, monkeypatch, "--seeds", "4..2")
    assert "leave out --seed" in refused(capsys, monkeypatch, "--seed", 1, "--seeds", "1..2")
    assert "--seed is 9999999" in refused(capsys, monkeypatch, "--seeds", "9999999..9999999")


def test_all_combinations_are_varied_with_every_seed():
    options = CoverageOptions(set=("pooling=sum,mean", "weight-dim=8,16", "scaled=yes,no"), seed=2, seeds=2)
    found = variations(options)
    assert len(found) == 8
    assert list(found)[:2] == ["pooling=sum weight_dim=8 scaled=yes", "pooling=sum weight_dim=8 scaled=no"]
    values = [(one.pooling, one.weight_dim, one.scaled) for one in found.values()]
    assert values[0] == ("sum", 8, True)
    assert values[-1] == ("mean", 16, False)
    assert len(set(values)) == 8
    group = trainings(options, Path("x"))
    assert len(group) == 16
    assert [one.run_dir for _, one in group[:3]] == [
        Path("x/pooling-sum-weight_dim-8-scaled-yes/seed-2"),
        Path("x/pooling-sum-weight_dim-8-scaled-yes/seed-3"),
        Path("x/pooling-sum-weight_dim-8-scaled-no/seed-2"),
    ]
    assert all((one.set, one.seeds, one.is_group) == ((), 1, False) for _, one in group)


def test_values_are_read_as_the_command_line_reads_them():
    found = variations(CoverageOptions(set=("features=frame,distance visible,motion", "critic=amc,None")))
    assert {one.features for one in found.values()} == {("frame",), ("distance", "visible"), ("motion",)}
    assert {one.critic for one in found.values()} == {"amc", None}
    assert list(variations(CoverageOptions())) == [""]
    both = HitMacOptions(set=("weight_dim=8,16",))
    assert [levels(one, Path("x"))[0].weight_dim for one in variations(both).values()] == [8, 16]


@pytest.mark.parametrize(("given", "says"), [
    (["pooling"], "--set is 'pooling'; it must have the form pooling=sum,mean"),
    (["poling=sum,mean"], "--set names the unknown option 'poling' (did you mean pooling?)"),
    (["seed=1,2"], "--set names seed, which is the same in all trainings of a group"),
    (["algorithm=ppo,imitation"], "--set names algorithm, which is the same"),
    (["scenario=hit-mac,random"], "--set names scenario, which is the same"),
    (["pooling=sum,sum"], "has 'sum' twice"),
    (["pooling=sum", "pooling=mean"], "--set names pooling twice"),
    (["scaled=perhaps"], "--set scaled=perhaps; it must be true or false"),
    (["weight_dim=8,many"], "--set weight_dim: error:"),
    (["weight_dim=8,0"], "weight_dim=0: --weight-dim is 0"),
    (["pooling=sum,average"], "pooling=average: --pooling is average"),
    (["learning_rate=1e-3,0.001"], None),
])  # fmt: skip
def test_variations_that_cannot_be_leave_nothing(given, says, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if says is None:  # the same value in other words is another variation
        assert len(variations(CoverageOptions(set=tuple(given)))) == 2
        return
    error = refused(capsys, monkeypatch, "--run-dir", "x", *(part for one in given for part in ("--set", one)), *TINY)
    assert says in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_cluster_trains_groups_only(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "--ray is for several trainings" in refused(capsys, monkeypatch, "--run-dir", "x", "--ray", "local", *TINY)
    assert not list(tmp_path.iterdir())


def test_the_last_line_of_a_log_has_no_progress_bar(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"first\n 10%|\r 20%|\rerror: it broke\n\n")
    assert last_line(log) == "error: it broke"
    log.write_bytes(b"")
    assert last_line(log) == "it printed nothing"


@pytest.mark.slow
def test_variations_train_side_by_side_and_are_agents(tmp_path):
    subprocess.run(
        command("--run-dir", tmp_path / "all", "--set", "pooling=sum,mean", "--processes", 2, *TINY), check=True
    )
    alone = command("--run-dir", tmp_path / "alone", "--pooling", "mean", *TINY)
    subprocess.run(alone, check=True)
    weights = [tmp_path / run / "checkpoint" / "policy.safetensors" for run in ("all/pooling-mean/seed-0", "alone")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    found = json.loads((tmp_path / "all" / "evaluation.json").read_text())["agents"]
    assert {"pooling=sum", "pooling=mean", "random", "planner"} <= set(found)
    one = json.loads((tmp_path / "alone" / "evaluation.json").read_text())["agents"]["trained"]
    assert found["pooling=mean"]["coverage"]["mean"] == one["coverage"]["mean"]
    assert "64 steps in" in (tmp_path / "all" / "pooling-sum" / "seed-0" / "training.log").read_text()
    assert "processes" not in yaml.safe_load((tmp_path / "all" / "config.yaml").read_text())["options"]

    folders = variations_in(tmp_path / "all")
    assert [folder.name for folder in folders] == ["pooling-mean", "pooling-sum"]
    agents = named_agents(str(tmp_path / "all"), load_scenario("hit-mac"))
    assert [agent.name for agent in agents] == [str(folder) for folder in folders]
    with pytest.raises(ValueError, match=r"holds 2 variations; name one of them, such as .*pooling-mean"):
        load_policy(tmp_path / "all")


@pytest.mark.slow
def test_one_that_fails_does_not_stop_the_others_and_a_signal_stops_all(tmp_path):
    several = ["--run-dir", tmp_path / "all", "--seeds", 3, "--processes", 3]
    group = subprocess.Popen(
        command(*several, *LONG, "--save-every", 0), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    states = [tmp_path / "all" / f"seed-{seed}" / "checkpoint" / "training.safetensors" for seed in range(3)]
    end = time.monotonic() + 900
    while not all(state.is_file() for state in states) and time.monotonic() < end and group.poll() is None:
        time.sleep(0.2)
    assert group.poll() is None
    children = subprocess.run(
        ["pgrep", "-P", str(group.pid), "-f", "hitmac.train"], capture_output=True, text=True, check=True
    )
    first, *others = map(int, children.stdout.split())
    os.kill(first, signal.SIGKILL)
    time.sleep(2)
    assert all(alive(child) for child in others)
    group.send_signal(signal.SIGTERM)
    out = group.communicate(timeout=900)[0].decode()
    assert group.returncode == 1
    assert "1 of 3 trainings failed" in out
    assert not any(alive(child) for child in others)
    assert all(state.is_file() for state in states)


@pytest.mark.slow
def test_trainings_end_with_the_process_that_started_them(tmp_path):
    several = ["--run-dir", tmp_path / "all", "--seeds", 2, "--processes", 2]
    group = subprocess.Popen(command(*several, *LONG), stdout=subprocess.PIPE)
    logs = [tmp_path / "all" / f"seed-{seed}" / "training.log" for seed in range(2)]
    end = time.monotonic() + 600
    while not all(log.is_file() for log in logs) and time.monotonic() < end:
        time.sleep(0.1)
    children = subprocess.run(
        ["pgrep", "-P", str(group.pid), "-f", "hitmac.train"], capture_output=True, text=True, check=True
    )
    group.kill()
    group.wait()
    end = time.monotonic() + 120
    while (
        left := [one for one in children.stdout.split() if Path(f"/proc/{one}").exists()]
    ) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


def test_the_options_of_a_group_are_those_of_its_trainings_but_for_the_group():
    options = CoverageOptions(seeds=2, total_steps=5)
    (first, _) = (one for _, one in trainings(options, Path("x")))
    assert dataclasses.replace(first, seeds=2, run_dir=None) == options
