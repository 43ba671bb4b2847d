"""Hostile files, places that are no files, and arguments that must not reach a kernel."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hitmac import train
from hitmac.agents import scripted_agent
from hitmac.agents.policy import check_finite
from hitmac.agents.registry import SCRIPTED
from hitmac.agents.tracking import ParticleTracker
from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.files import parse_yaml, whole_file, working_folder, write_text
from hitmac.envs.tasks import CoverageTask
from hitmac.envs.wrappers.gym_env import DirectionalSensorEnv
from hitmac.envs.wrappers.pettingzoo_env import DirectionalSensorParallelEnv
from hitmac.envs.wrappers.vector_env import DirectionalSensorVectorEnv
from tools.faults import JOBS

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("arena: 1\narena: 2\n", "'arena' is given twice"),
        ("arena: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        ("arena: 2020-13-45", "month must be in 1..12"),
    ],
    ids=["twice", "code", "date"],
)
def test_a_hostile_scenario_is_refused_in_one_line(text, says, tmp_path):
    path = tmp_path / "scene.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a YAML file") as refused:
        load_scenario(path)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["fixed", "rails"])
def test_a_scenario_of_ten_thousand_sensors_is_within_the_limits(placement, tmp_path):
    places = [(float(k % 100), float(k // 100)) for k in range(10_000)]
    told = {
        "fixed": {"sensor_positions": places, "sensor_headings": (45.5,) * 10_000},
        "rails": {"rails": [((x, y), (x + 1, y), (x, y)) for x, y in places], "rail_starts": (0.5,) * 10_000},
    }
    each = {"sensing_range": (500.0,) * 10_000, "field_of_view": (60.0,) * 10_000, "turn_angle": (2.5,) * 10_000}
    scenario = Scenario(name="a", num_sensors=10_000, placement=placement, **told[placement], **each)
    scenario.save(tmp_path / "a.yaml")
    (tmp_path / "a.json").write_text(json.dumps(scenario.to_dict()))
    assert load_scenario(tmp_path / "a.yaml") == load_scenario(tmp_path / "a.json") == scenario


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.program is train.main])
def test_a_training_to_kill_begins(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train.py", *JOBS[name].begin])
    for begins in ("train_run", "train_group"):
        monkeypatch.setattr(train, begins, mock.Mock(side_effect=SystemExit(0)))
    with pytest.raises(SystemExit) as ended:
        train.main()
    assert ended.value.code == 0


@pytest.mark.slow
def test_killed_and_resumed_in_short(tmp_path):
    table = [sys.executable, "-m", "tools.faults", "--trials", "2", "--bare", "coverage-ppo", "evaluation", "export"]
    ended = subprocess.run(table, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(ended.stdout.splitlines()) >= 3 * 4


def test_references_may_be_used():
    assert parse_yaml("a: &a [1, 2]\nb: [*a, *a]\nc: &c {x: 1}\nd: {<<: *c, y: 2}") == {
        "a": [1, 2], "b": [[1, 2], [1, 2]], "c": {"x": 1}, "d": {"x": 1, "y": 2},
    }  # fmt: skip
    assert parse_yaml("") is None


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["elsewhere", "link.txt", "real.txt"]


def test_a_new_file_has_the_usual_permissions_and_an_old_one_keeps_its_own(tmp_path):
    usual, tensors, text = tmp_path / "usual", tmp_path / "a.safetensors", tmp_path / "b.txt"
    usual.touch()
    with whole_file(tensors) as temporary:
        save_file({"a": torch.zeros(1)}, temporary)
    text.write_text("old")
    text.chmod(0o640)
    write_text(text, "new")
    assert [path.stat().st_mode & 0o777 for path in (tensors, text)] == [usual.stat().st_mode & 0o777, 0o640]


def test_what_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_that_was_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "absent" / "file.txt"
    with pytest.raises(FileNotFoundError) as raised:
        write_text(path, "text")
    assert str(raised.value) == f"[Errno 2] No such file or directory: '{path}'"

    def fails(source, target):
        raise PermissionError(13, "Permission denied", str(source), None, str(target))

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(PermissionError) as raised:
        write_text(tmp_path / "file.txt", "text")
    assert str(raised.value) == f"[Errno 13] Permission denied: '{tmp_path / 'file.txt'}'"
    (tmp_path / "plain").touch()
    with pytest.raises(NotADirectoryError, match=r"plain is a file, so that .*plain/run cannot be made"):
        working_folder(tmp_path / "plain" / "run")


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint64])
def test_scenes_count_on_from_a_seed_of_any_kind_of_number(kind):
    keys = Simulator("hit-mac", 10, kind(100)).state.key
    assert (keys == Simulator("hit-mac", 10, 100).state.key).all()
    assert (Simulator("hit-mac", 10, kind(250 - 123)).state.key[9:] == Simulator("hit-mac", 1, 136).state.key).all()


@pytest.mark.parametrize("seed", [True, np.True_, 1.5, "7", -1, 2**63, [True, 1], [1.0, 2.0], 1j])
def test_what_is_no_seed_is_refused(seed):
    simulator = Simulator("hit-mac", 2, 0)
    with pytest.raises(ValueError, match="it must be a whole number from 0"):
        simulator.reset(seed=seed)
    with pytest.raises(ValueError, match="it must be a whole number from 0"):
        Simulator("hit-mac", 2, seed)


@pytest.mark.parametrize("heading", [["1"] * 4, [1j] * 4, [True] * 4, [None] * 4, "north"])
def test_headings_are_numbers(heading):
    with pytest.raises(ValueError, match=r"heading is .*; it must be numbers"):
        DirectionalSensorEnv("Coverage").reset(seed=0, options={"heading": heading})


@pytest.mark.parametrize("options", [[1], [], 7, "heading", np.ones(2), np.ones((2, 2))], ids=repr)
@pytest.mark.parametrize(
    "make",
    [
        lambda: Simulator("hit-mac", 2, 0),
        lambda: DirectionalSensorEnv("Coverage"),
        lambda: DirectionalSensorVectorEnv("Coverage", num_envs=2),
        lambda: DirectionalSensorParallelEnv("Coverage"),
    ],
    ids=["simulator", "gymnasium", "vector", "pettingzoo"],
)
def test_options_of_a_reset_are_a_dictionary(make, options):
    with pytest.raises(ValueError, match=r"options are .*; they must be a dictionary"):
        make().reset(seed=0, options=options)


@pytest.mark.parametrize("deviation", [[0.0], np.zeros(2), "1", None, -1.0, float("nan")], ids=repr)
def test_a_deviation_is_one_number(deviation):
    tracker, here = ParticleTracker("hit-mac", 1, particles=8), np.zeros((1, 5, 2))
    with pytest.raises((TypeError, ValueError), match=r"deviation (is|holds) .*; it must be"):
        tracker.see(here, np.ones((1, 5), np.bool_), deviation=deviation)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numbers_of_every_size_are_checked(dtype):
    check_finite("pairs", np.ones(3, dtype))
    with pytest.raises(ValueError, match="pairs holds inf"):
        check_finite("pairs", np.array([1, np.inf], dtype))


@pytest.mark.parametrize("grid", [2**63, 10_001, 0])
def test_the_grid_has_a_largest_size(grid):
    with pytest.raises(ValueError, match=r"grid is .*; it must be .*1 to 10000"):
        Scenario(placement="grid", grid=grid)


@pytest.mark.parametrize("name", [name for name in SCRIPTED if name not in ("random", "still")])  # which read none
def test_an_agent_by_rule_refuses_features_that_are_not_its_own(name):
    agent = scripted_agent(name, "hit-mac")
    observation = CoverageTask("hit-mac", 2, 0, features=agent.features).observe()
    with pytest.raises(ValueError, match=f"must hold the {len(agent.features)} features"):
        agent.predict({**observation, "pairs": observation["pairs"][..., 1:]})


def test_yaml_errors_are_one_line():
    for text in ("a: [", "a: 2020-13-45"):
        with pytest.raises(ValueError, match=r"expected|month"):
            parse_yaml(text)
