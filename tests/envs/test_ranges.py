"""Ranges of scenario parameters and options: what each accepts, and its error, help and documentation."""

import dataclasses
import json
import re
import time

import numpy as np
import pytest
import yaml

from hitmac.agents import load_policy
from hitmac.agents.learned.checkpoint import FORMAT, VERSION
from hitmac.agents.training.config import (
    JOBS,
    CoordinatorOptions,
    CoverageOptions,
    CoverageRewardOptions,
    ExecutorOptions,
    HitMacOptions,
    check,
)
from hitmac.agents.training.resume import prepare, read_options
from hitmac.envs import Scenario, load_scenario, parallel_env
from hitmac.envs.scenario import parameter_table
from hitmac.envs.tasks import CoordinatorTask
from hitmac.envs.validation import (
    CombinedError,
    Range,
    allowed,
    did_you_mean,
    field_docs,
    field_types,
    help_texts,
    over,
)
from hitmac.perception import EncoderConfig

TINY = np.nextafter(0, 1)

COUNT, NATURAL = ([1, 10**6], [0, -1, 1.5]), ([0, 10**6], [-1, 1.5])
POSITIVE, NOT_NEGATIVE = ([TINY, 1e9], [0, -TINY]), ([0, 1e9], [-TINY])
FRACTION = ([0, 1, 0.5], [-TINY, np.nextafter(1, 2)])
AREA = ([[-1250, 1250, -1250, 1250], (0, 0, 0, 0)], [(0, 1, 0), (-1251, 0, 0, 0), (0, 0, 0, 1251), (1, 0, 0, 1)])

SCENARIO = {
    "name": (["", "x"], [5, None]),
    "num_sensors": ([1, 6, 3.0, np.int64(2)], [0, -1, 2.5]),
    "num_targets": COUNT,
    "min_sensors": ([0, 4], [-1, 5, 0.5]),
    "min_targets": ([0, 5], [-1, 6, 0.5]),
    "arena": ([1250, 1e9, (1250, 1e9)], [0, -1, (1250,), (1250, 0)]),
    "whole_numbers": ([True, False, np.bool_(True)], [0, None]),
    "sensing_range": ([1e-30, 1e9, (1, 2, 3, 4), np.ones(4)], [0, (1, 2, 3), (1, 2, 3, 0), ()]),
    "field_of_view": ([1e-30, 360, (1, 2, 3, 360)], [0, np.nextafter(360, 361), (1, 2, 3), (1, 2, 3, 361)]),
    "turn_angle": ([1e-30, 180, (1, 2, 3, 180)], [0, np.nextafter(180, 181), (1, 2, 3), (1, 2, 3, 181)]),
    "zoom": ([(), (90, 90), (1e-30, 360)], [90, (90,), (0, 120), (30, 361), (120, 30), (30, 60, 120)]),
    "zoom_step": POSITIVE,
    "rails": ([()], [[[(0, 0), (0, 0, 0)]], [5], 5]),
    "rail_step": POSITIVE,
    "rail_starts": ([(), (0, 5)], [(-TINY,), 5]),
    "failure_rate": FRACTION,
    "recovery_rate": FRACTION,
    "position_noise": NOT_NEGATIVE,
    "missed_detections": FRACTION,
    "knowledge": (["full", "shared", "neighbours", "own"], ["all", 1]),
    "communication_range": NOT_NEGATIVE,
    "hops": COUNT,
    "message_loss_rate": FRACTION,
    "message_delay": NATURAL,
    "placement": (["areas", "grid", "random"], ["area", 1, "fixed", "crossings"]),
    "sensor_positions": ([()], [[(0, 0, 0)] * 4, 5]),  # with the placement fixed: test_mounts
    "sensor_headings": ([(), (0, 90, -180, 720)], [(0, 90), (0, 90, 180, "x"), 5]),
    "pan_limits": ([(), [(-90, 90)], [(0, 0)] * 4, [(170, 190)]], [[(0, 0)] * 2, [(1, 0)], [(0,)], 5]),
    "sensor_areas": ([[(0, 0, 0, 0)] * 4], [[(0, 0, 0, 0)] * 3, [(0, 0, 0)] * 4, [(-1251, 0, 0, 0)] * 4, 4]),
    "grid": ([1, 10], [0, 1.5]),
    "spacing": NOT_NEGATIVE,
    "start_heading": (["random", "target"], ["targets", 0]),
    "target_area": AREA,
    "walk": (["goals", "random", "bounce", "still", "evade"], ["goal", 0, "streets"]),
    "wander": ([0, 180], [-TINY, np.nextafter(180, 181)]),
    "time_step": POSITIVE,
    "min_speed": ([0, 99.9], [-TINY]),
    "max_speed": ([np.nextafter(50, 51)], [50, 0]),
    "speed_noise": NOT_NEGATIVE,
    "goal_radius": NOT_NEGATIVE,
    "stuck_distance": NOT_NEGATIVE,
    "goal_patience": COUNT,
    "extra_move_every": NATURAL,
    "leave_rate": FRACTION,
    "return_rate": FRACTION,
    "tracks": (["a.csv", ("a.csv", "b.csv"), ()], [5, "", ("a.csv", 5), None]),
    "background": (["floor.png", ""], [5, ["floor.png"], None]),
    "discs": ([(), [(0, 0, TINY)]], [[(0, 0, 0)], [(0, 0)], 1]),
    "random_discs": NATURAL,
    "disc_radius": ([(TINY, 1250), (5, 5)], [(0, 5), (9, 5), (5,), 5]),
    "walls": ([(), [(0, 0, 1, 1)]], [[(0, 0, 1)], 1]),
    "distance_scale": POSITIVE,
    "blocks": ([(), (1, 1), (10, 24)], [(1,), (1, 2, 3), (0, 1), (1.5, 1), 1]),
    "street_width": POSITIVE,
    "episode_steps": NATURAL,
}

AT_LEAST_2 = ([2, 10**6], [1, 2.5])
OPTIONS = {
    "minutes": ([None, TINY, 1e9], [0, -1]),
    "total_steps": ([None, 1], [0, 1.5]),
    "num_envs": ([1, 65536], [0, 65537]),
    "engine": (["sb3"], ["tune", None]),  # with rllib: test_rllib_engine
    "num_env_runners": ([0], [-1, 1.5]),
    "num_learners": ([0], [-1, 1.5]),
    "seeds": COUNT,
    "processes": COUNT,
    "seed": ([0, 1_000_000], [-1, 1_000_001]),
    "algorithm": (["ppo", "a2c"], ["a3c", None]),
    "encoder": (["attention", "recurrent", "mlp"], ["rnn", None]),
    "attend_over": (["agents", "targets", "pairs", "axes"], ["agent", None]),
    "pooling": (["sum", "mean", "max"], ["none", None]),
    "num_heads": ([1, 2, 64], [0, 3, 1.5]),
    "embed_layers": COUNT,
    "num_blocks": COUNT,
    "num_frequencies": NATURAL,
    "critic": ([None, "amc", "no_prefix", "value_head"], ["value"]),
    "weight_dim": COUNT,
    "episode_steps": COUNT,
    "rollout_steps": AT_LEAST_2,
    "batch_size": AT_LEAST_2,
    "epochs": COUNT,
    "learning_rate": POSITIVE,
    "gamma": FRACTION,
    "gae_lambda": FRACTION,
    "entropy": NOT_NEGATIVE,
    "final_entropy": NOT_NEGATIVE,
    "max_grad_norm": POSITIVE,
    "save_every": NOT_NEGATIVE,
    "curve_points": NATURAL,
    "episodes": COUNT,
    "knowledge": ([None, "full", "shared", "neighbours", "own"], ["all", 1]),
}
IMITATION = {
    "algorithm": (["imitation", "ppo", "a2c"], ["imitate", None]),
    "teacher": (
        ["planner", "planner-fast", "belief-planner", "belief-planner-fast", "belief-planner-fastest"],
        ["greedy", None],
    ),
    "planner_turn_cost": NOT_NEGATIVE,
    "temperature": POSITIVE,
}
NEAREST = {"nearest": ([None, *COUNT[0]], COUNT[1]), "radius": ([None], [0, -1]), "neighbours": ([None], [0, 1.5])}
OF_JOB = {
    CoverageOptions: IMITATION | NEAREST | {"turn_cost": NOT_NEGATIVE},
    CoverageRewardOptions: IMITATION | NEAREST | {"turn_cost": NOT_NEGATIVE},
    ExecutorOptions: IMITATION
    | {
        "turn_cost": NOT_NEGATIVE,
        "centring": FRACTION,
        "goals_every": COUNT,
        "goal_share": FRACTION,
        "padding": (["attended", "masked", "unfiltered"], ["none", None]),
    },
    CoordinatorOptions: IMITATION
    | {"idle": (["random", "hold"], ["hols", None]), "decision": ([1, 10_000], [0, 10_001, 1.5, None])},
    HitMacOptions: {
        "executor_minutes": OPTIONS["minutes"],
        "coordinator_minutes": OPTIONS["minutes"],
        "executor_steps": OPTIONS["total_steps"],
        "coordinator_steps": OPTIONS["total_steps"],
        "seed": OPTIONS["seed"],
        "seeds": COUNT,
        "processes": COUNT,
        "algorithm": (["ppo", "imitation"], ["a2c", None]),
        "features": (["frame", "hit-mac", "motion"], ["frames", None]),
        "num_envs": OPTIONS["num_envs"],
        "weight_dim": COUNT,
        "episodes": COUNT,
        "knowledge": OPTIONS["knowledge"],
    },
}
TABLES = {job: (OPTIONS if job is not HitMacOptions else {}) | own for job, own in OF_JOB.items()}
UNCHECKED = {
    "start",
    "memory",
    "tracks",
    "scenario",
    "run_dir",
    "resume",
    "set",
    "ray",
    "address",
    "features",
    "per_sensor",
    "row_id",
    "device",
    "executor",
    "scaled",
    "difference_rewards",
}
ENCODER = {field.name for field in dataclasses.fields(EncoderConfig)}
NONSENSE = (float("nan"), float("inf"), -float("inf"), True, "many", [[1]])


def is_number(hint):
    return isinstance(hint, type(None)) or bool(re.search(r"\b(int|float)\b", str(hint)))


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Scenario)])
def test_every_scenario_parameter_has_its_range(name):
    accepted, refused = SCENARIO[name]
    for value in accepted:
        Scenario(**{name: value})
    wrong = (*refused, *(NONSENSE if is_number(field_types(Scenario)[name]) else ()))
    for value in wrong:
        with pytest.raises((TypeError, ValueError), match=rf"{name}\b.*; it must be "):
            Scenario(**{name: value})


@pytest.mark.parametrize(("job", "name"), [(job, name) for job, table in TABLES.items() for name in table])
def test_every_option_has_its_range(job, name):
    accepted, refused = TABLES[job][name]
    for value in accepted:
        check(job(**{name: value}))
    wrong = (*refused, *(NONSENSE if is_number(field_types(job)[name]) else ()))
    for value in wrong:
        with pytest.raises((TypeError, ValueError), match=rf"^--{name.replace('_', '-')} (is|holds) .*; it must be "):
            check(job(**{name: value}))


def test_the_tables_hold_every_option():
    assert set(TABLES) == {*JOBS.values(), HitMacOptions}
    for job, table in TABLES.items():
        assert set(field_types(job)) - set(table) <= UNCHECKED


def test_a_field_declared_again_keeps_its_range():
    assert allowed(field_types(ExecutorOptions)["gamma"]) == "0 to 1"
    assert field_docs(ExecutorOptions)["gamma"] == field_docs(CoverageOptions)["gamma"] == "Discount per step."


def test_ranges_in_words():
    assert [str(one) for one in (Range(1), Range(0, 1), over(0), over(0, 180, "degrees"), Range(0, unit="s"))] == [
        "1 or more",
        "0 to 1",
        "over 0",
        "over 0 and at most 180 degrees",
        "0 or more s",
    ]
    hints = field_types(Scenario)
    assert allowed(hints["walk"]) == "one of goals, random, bounce, still, evade, streets"
    assert allowed(hints["discs"]) == "list of [x, y, radius]"
    assert allowed(hints["whole_numbers"]) == ""


@pytest.mark.slow
def test_help_and_documentation_show_every_range(capsys):
    from hitmac.agents.command_line import parse

    for job in TABLES:
        with pytest.raises(SystemExit):
            parse(job, "train.py", ["--help"])
        shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
        for name, text in help_texts(job).items():
            assert text in shown, name
            assert field_docs(job)[name], name
        for name in TABLES[job].keys() - ENCODER:  # perception checks its own, and its docstrings say what is allowed
            assert "Allowed: " in help_texts(job)[name], name
    table = parameter_table(Scenario)
    assert table in Scenario.__doc__
    assert all(meaning.strip() for meaning in re.findall(r"\|([^|]*)\|$", table, re.MULTILINE))


def test_all_errors_of_a_file_are_reported_at_once(tmp_path):
    (tmp_path / "bad.yaml").write_text("num_sensor: 3\nnum_targets: 0\narena: wide\nwalk: bonce\n")
    with pytest.raises(CombinedError) as caught:
        load_scenario(tmp_path / "bad.yaml")
    bad = "  scenario 'bad':"
    first, *lines = str(caught.value).splitlines()
    assert first == f"{tmp_path / 'bad.yaml'}: 4 errors:"
    assert lines[0].startswith("  unknown scenario parameter num_sensor (did you mean num_sensors?): known are name, ")
    assert lines[1:] == [
        f"{bad} num_targets is 0; it must be 1 or more",
        f"{bad} arena is 'wide'; it must be a finite number, over 0",
        f"{bad} walk is 'bonce'; it must be one of goals, random, bounce, still, evade, streets (did you mean bounce?)",
    ]
    with pytest.raises(CombinedError) as caught:  # parameters that do not fit each other
        Scenario(zoom=(90, 30), max_speed=40)
    assert str(caught.value).splitlines()[1:] == [
        "  scenario 'custom': zoom is [90.0, 30.0]; it must be empty, or the narrowest and the widest field of view, "
        "at most 360 degrees",
        "  scenario 'custom': max_speed is 40.0; it must be over min_speed (50)",
    ]
    with pytest.raises(ValueError, match=r"^scenario 'custom': grid is 0; it must be 1 to 10000$"):
        Scenario(grid=0)


def test_all_errors_of_options_are_reported_at_once():
    wrong = CoverageOptions(gamma=2, num_envs=0, features=("smell",), encoder="recurrent", weight_dim=3)
    with pytest.raises(CombinedError) as caught:
        check(wrong)
    lines = str(caught.value).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["--num-envs", "--gamma", "--weight-dim", "unknown"]
    with pytest.raises(CombinedError, match=r"^2 errors:\n  --seed is -1.*\n  --episodes is 0"):
        check(HitMacOptions(seed=-1, episodes=0))


def test_the_command_line_shows_a_line_for_each_error(monkeypatch, capsys):
    from hitmac import train

    monkeypatch.setattr("sys.argv", ["train.py", "--gamma", "2", "--epochs", "0"])
    with pytest.raises(SystemExit):
        train.main()
    assert capsys.readouterr().err.splitlines() == [
        "train.py: error: 2 errors:",
        "  --epochs is 0; it must be 1 or more",
        "  --gamma is 2.0; it must be 0 to 1",
    ]


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: load_scenario("hitmac"), "unknown scenario 'hitmac' (did you mean hit-mac?)"),
        (lambda: load_scenario("obstcles-3x4"), "unknown scenario 'obstcles-3x4' (did you mean obstacles?)"),
        (lambda: Scenario(placement="arees"), "(did you mean areas?)"),
        (lambda: parallel_env("coverage"), "unknown task 'coverage' (did you mean Coverage?)"),
        (lambda: parallel_env(features=("bearng", "bearing")), "unknown feature bearng (did you mean bearing?)"),
        (lambda: parallel_env(features="framed"), "unknown feature framed (did you mean frame?)"),
        (lambda: CoordinatorTask(idle="holding"), "it must be random or hold (did you mean hold?)"),
        (lambda: CoordinatorTask(padding="maskd"), "unfiltered (did you mean masked?)"),
        (lambda: CoordinatorTask().reset(options={"headings": 1}), "unknown place 'headings' (did you mean heading?)"),
        (lambda: agent("plannr"), "unknown agent 'plannr' (did you mean planner?)"),
        (lambda: agent("asign-all:scripted"), "unknown agent 'asign-all:scripted' (did you mean assign-all?)"),
        (lambda: agent("assign-all:scriptd"), "unknown executor 'scriptd' (did you mean scripted?)"),
        (lambda: check(CoverageOptions(encoder="atention")), "(did you mean attention?)"),
        (lambda: command("covrage"), "unknown job 'covrage' (did you mean coverage?)"),
        (lambda: command("--gama", "1"), "(did you mean --gamma?)"),
        (lambda: read_options(CoverageOptions, {"gama": 1}), "unknown option gama (did you mean gamma?): known are"),
    ],
)
def test_misspelt_names_get_a_hint(call, hint, capsys):
    with pytest.raises((ValueError, SystemExit)) as caught:
        call()
    assert hint in f"{caught.value}{capsys.readouterr().err}"


def test_names_that_are_like_no_other_get_no_hint():
    assert did_you_mean("xyz", ["planner", "greedy"]) == did_you_mean(7, ["planner"]) == ""


def test_of_many_unknown_names_the_first_are_told(tmp_path):
    many = {f"k{k}": 1 for k in range(100_000)} | {"x" * 10**6: 1}
    (tmp_path / "config.json").write_text(json.dumps({"format": FORMAT, "version": VERSION, **many}))
    (tmp_path / "policy.safetensors").touch()
    began = time.process_time()
    for call, told in (
        (lambda: Scenario.from_dict(many), "k7, k8, k9 and 99991 more: known are"),
        (lambda: read_options(CoverageOptions, many), "k7, k8, k9 and 99991 more: known are"),
        (lambda: load_policy(tmp_path), "config.json lacks '"),
        (lambda: Scenario.from_dict({"y" * 10**7: 1}), "(10000000 characters): known are"),
    ):
        with pytest.raises(ValueError, match=re.escape(told)) as caught:
            call()
        assert len(str(caught.value)) < 3000
    assert time.process_time() - began < 5


def agent(name):
    from hitmac.agents.registry import load_agent

    return load_agent(name, "hit-mac")


def command(*arguments):
    from hitmac import train

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["train.py", *arguments])
        train.main()


def test_all_errors_of_a_runs_configuration_are_told_at_once(tmp_path):
    asked = CoordinatorOptions(run_dir=tmp_path / "run", idle="hold")
    options, scenario = prepare(asked)
    run_dir = options.folder
    written = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert written["options"]["idle"] == "hold"
    assert load_scenario(run_dir) == scenario
    written["options"] |= {"gama": 1, "epochs": 0}
    written["scenario"]["walk"] = "fly"
    (run_dir / "config.yaml").write_text(yaml.safe_dump(written))
    with pytest.raises(
        ValueError, match="is not the configuration of a run: 3 errors:\n  unknown option gama"
    ) as caught:
        prepare(dataclasses.replace(asked, resume=True))
    assert len(str(caught.value).splitlines()) == 4
