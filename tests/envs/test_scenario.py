"""Scenarios: ranges of every parameter, parameters that contradict each other, units, presets and files."""

import copy
import dataclasses
import json
import pickle
import re

import numpy as np
import pytest
import yaml

from hitmac.envs import Scenario, Simulator, load_scenario, presets
from hitmac.envs.scenario import parameter_table, with_settings
from hitmac.envs.validation import CombinedError, field_types

METRES = Scenario(arena=42)
LENGTHS = {
    "sensing_range": 800, "rail_step": 10, "communication_range": 1000, "min_speed": 50, "max_speed": 100,
    "goal_radius": 5, "stuck_distance": 10, "distance_scale": 2000,
}  # fmt: skip

# --- ranges ---

TINY = np.nextafter(0, 1)
COUNT, NATURAL = ([1, 10**6], [0, -1, 1.5]), ([0, 10**6], [-1, 1.5])
POSITIVE, NOT_NEGATIVE = ([TINY, 1e9], [0, -TINY]), ([0, 1e9], [-TINY])
FRACTION = ([0, 1, 0.5], [-TINY, np.nextafter(1, 2)])


PARAMETERS = {  # accepted values, refused values
    **dict.fromkeys(("num_targets", "hops", "goal_patience"), COUNT),
    **dict.fromkeys(("message_delay", "extra_move_every", "random_discs", "episode_steps"), NATURAL),
    **dict.fromkeys(("zoom_step", "rail_step", "time_step", "distance_scale", "street_width"), POSITIVE),
    **dict.fromkeys(("position_noise", "communication_range", "spacing", "speed_noise"), NOT_NEGATIVE),
    **dict.fromkeys(("goal_radius", "stuck_distance"), NOT_NEGATIVE),
    **dict.fromkeys(("failure_rate", "recovery_rate", "missed_detections", "message_loss_rate"), FRACTION),
    **dict.fromkeys(("leave_rate", "return_rate"), FRACTION),
    "name": (["", "x"], [5, None]),
    "num_sensors": ([1, 6, 3.0, np.int64(2)], [0, -1, 2.5]),
    "min_sensors": ([0, 4], [-1, 5, 0.5]),
    "min_targets": ([0, 5], [-1, 6, 0.5]),
    "arena": ([1250, 1e9, (1250, 1e9)], [0, -1, (1250,), (1250, 0)]),
    "whole_numbers": ([True, False, np.bool_(True)], [0, None]),
    "sensing_range": ([1e-30, 1e9, (1, 2, 3, 4), np.ones(4)], [0, (1, 2, 3), (1, 2, 3, 0), (), None]),
    "field_of_view": ([1e-30, 360, (1, 2, 3, 360)], [0, np.nextafter(360, 361), (1, 2, 3), (1, 2, 3, 361)]),
    "turn_angle": ([1e-30, 180, (1, 2, 3, 180)], [0, np.nextafter(180, 181), (1, 2, 3), (1, 2, 3, 181)]),
    "zoom": ([(), (90, 90), (1e-30, 360)], [90, (90,), (0, 120), (30, 361), (120, 30), (30, 60, 120)]),
    "rails": ([()], [[[(0, 0), (0, 0, 0)]], [5], 5]),
    "rail_starts": ([(), (0, 5)], [(-TINY,), 5]),
    "knowledge": (["full", "shared", "neighbours", "own"], ["all", 1]),
    "placement": (["areas", "grid", "random"], ["area", 1, "fixed", "crossings"]),
    "sensor_positions": ([()], [[(0, 0, 0)] * 4, 5]),
    "sensor_headings": ([(), (0, 90, -180, 720)], [(0, 90), (0, 90, 180, "x"), 5]),
    "pan_limits": ([(), [(-90, 90)], [(0, 0)] * 4, [(170, 190)]], [[(0, 0)] * 2, [(1, 0)], [(0,)], 5]),
    "sensor_areas": ([[(0, 0, 0, 0)], [(0, 0, 0, 0)] * 4], [[], [(0, 0, 0)] * 4, [(-1251, 0, 0, 0)] * 4, 4]),
    "grid": ([1, 10, 10_000], [0, 1.5, 10_001]),
    "start_heading": (["random", "target"], ["targets", 0]),
    "target_area": ([[-1250, 1250] * 2, (0,) * 4], [(0, 1, 0), (-1251, 0, 0, 0), (0, 0, 0, 1251), (1, 0, 0, 1)]),
    "walk": (["goals", "random", "bounce", "still", "evade"], ["goal", 0, "streets"]),
    "wander": ([0, 180], [-TINY, np.nextafter(180, 181)]),
    "min_speed": ([0, 99.9], [-TINY]),
    "max_speed": ([np.nextafter(50, 51)], [50, 0]),
    "tracks": (["a.csv", ("a.csv", "b.csv"), ()], [5, "", ("a.csv", 5), None]),
    "background": (["floor.png", ""], [5, ["floor.png"], None]),
    "discs": ([(), [(0, 0, TINY)]], [[(0, 0, 0)], [(0, 0)], 1]),
    "disc_radius": ([(TINY, 1250), (5, 5)], [(0, 5), (9, 5), (5,), 5]),
    "walls": ([(), [(0, 0, 1, 1)]], [[(0, 0, 1)], 1]),
    "blocks": ([(), (1, 1), (10, 24)], [(1,), (1, 2, 3), (0, 1), (1.5, 1), 1]),
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Scenario)])
def test_every_parameter_has_its_range(name):
    accepted, refused = PARAMETERS[name]
    for value in accepted:
        Scenario(**{name: value})
    number = re.search(r"\b(int|float)\b", str(field_types(Scenario)[name]))
    nonsense = (float("nan"), float("inf"), -float("inf"), True, "many", [[1]]) if number else ()
    for value in (*refused, *nonsense):
        with pytest.raises((TypeError, ValueError), match=rf"{name}\b.*; it must be "):
            Scenario(**{name: value})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"turn_angle": (5, 5)}, r"turn_angle is \[5.0, 5.0\]; .* one for each of the 4 sensors"),
        ({"zoom": (100, 120)}, "field_of_view is 90.0; it must be within zoom"),
        ({"arena": 42, "max_speed": 1.5}, r"max_speed is 1.5; it must be over min_speed \(1.68\)"),
        ({"leave_rate": 0.1, "tracks": "a.csv"}, "leave_rate is 0.1; it must be 0 with tracks"),
        ({"min_targets": 1, "tracks": "a.csv"}, "min_targets is 1; it must be 0 with tracks"),
        ({"arena": 42, "sensor_areas": [(0, 50, 0, 1)] * 4}, r"sensor_areas .* inside the arena of \+-42"),
        ({"arena": 42, "target_area": (0, 50, 0, 1)}, r"target_area .* inside the arena of \+-42"),
        ({"placement": "crossings", "blocks": (1, 2), "num_sensors": 7}, "blocks .* crossing for each of 7 sensors"),
        ({"blocks": (9, 9), "street_width": 250}, "street_width is 250.0; it must be under 250 with these blocks"),
        ({"placement": "grid", "grid": 1}, "grid is 1; it must be large enough"),
        ({"placement": "random", "spacing": 1000}, "spacing is 1000.0; it must be smaller, since 4 sensors"),
        ({"random_discs": 1, "disc_radius": (5, 1200)}, "disc_radius .* must be smaller"),
        ({"random_discs": 1, "disc_radius": (5, 1251)}, r"disc_radius .* at most the arena \(1250\)"),
    ],
)
def test_parameters_that_contradict_each_other_are_named(changes, says):
    with pytest.raises(ValueError, match=says):
        Scenario(**changes)


@pytest.mark.parametrize(
    "changes", [{"disc_radius": (25, 100)}, {"placement": "grid", "sensor_areas": [(0, 750, 0, 1)]}, {"arena": 0.5}]
)
def test_parameters_without_a_use_are_not_compared(changes):
    Scenario(**{"arena": 42} | changes)


def test_all_errors_are_reported_at_once(tmp_path):
    (tmp_path / "bad.yaml").write_text("num_sensor: 3\nnum_targets: 0\narena: wide\nwalk: bonce\n")
    with pytest.raises(CombinedError) as caught:
        load_scenario(tmp_path / "bad.yaml")
    first, *lines = str(caught.value).splitlines()
    assert first == f"{tmp_path / 'bad.yaml'}: 4 errors:"
    assert lines[0].startswith("  unknown scenario parameter num_sensor (did you mean num_sensors?): known are name, ")
    for line, words in zip(lines[1:], ("num_targets is 0", "arena is 'wide'", "walk is 'bonce'"), strict=True):
        assert line.startswith(f"  scenario 'bad': {words}; it must be ")
    assert lines[3].endswith("(did you mean bounce?)")
    with pytest.raises(CombinedError, match=r"(?s)zoom is \[90.0, 30.0\].*\n.*max_speed is 40.0"):
        Scenario(zoom=(90, 30), max_speed=40)
    with pytest.raises(ValueError, match=r"^scenario 'custom': grid is 0; it must be 1 to 10000$"):
        Scenario(grid=0)
    with pytest.raises(ValueError, match="k7, k8, k9 and 990 more: known are"):
        Scenario.from_dict({f"k{k}": 1 for k in range(1000)})


def test_the_documentation_lists_every_parameter():
    table = parameter_table(Scenario)
    assert table in Scenario.__doc__
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
    assert list(rows) == [field.name for field in dataclasses.fields(Scenario)]
    assert rows["sensing_range"].startswith("800 * arena / 1250 | over 0 | Largest distance")
    assert rows["whole_numbers"].startswith("true if arena is 1250 |  | Draw whole")


# --- units ---


def test_lengths_speeds_and_areas_without_a_value_grow_with_the_arena():
    for name, value in LENGTHS.items():
        assert getattr(METRES, name) == pytest.approx(value * 42 / 1250), name
    assert METRES.target_area == pytest.approx((-33.6, 33.6, -33.6, 33.6))
    assert METRES.sensor_areas[2] == pytest.approx((-42, -25.2, -8.4, 8.4))
    assert METRES.disc_radius == pytest.approx((0.84, 3.36))
    assert not METRES.whole_numbers
    court = Scenario(arena=(1250, 625))  # lengths follow the shorter side, areas both
    assert (court.sensing_range, court.max_speed) == (400, 50)
    assert court.target_area == (-1000, 1000, -500, 500)
    assert court.sensor_areas[0] == (250, 750, 125, 375)
    given = {name: 3 * value for name, value in LENGTHS.items()} | {"whole_numbers": True, "disc_radius": (1, 2)}
    assert {name: getattr(Scenario(arena=42, **given), name) for name in given} == given


@pytest.mark.parametrize(
    ("arena", "placement"), [(1e-3, "areas"), (42, "grid"), (1e6, "random"), ((14, 7.5), "areas"), ((1e-3, 50), "grid")]
)
def test_the_game_is_the_same_in_any_units(arena, placement):
    changes = {"placement": placement, "random_discs": 1}
    scenario = Scenario(arena=arena, **changes)
    ours, still = Simulator(scenario, 50, 0), np.zeros((50, 4), np.int64)
    before = ours.state.target_position.copy()
    for _ in range(20):
        ours.step(still)
    assert (np.abs(ours.state.target_position) <= scenario.extent).all()
    assert (ours.state.target_position != before).all((1, 2)).mean() > 0.9
    if not isinstance(arena, tuple):
        papers = Simulator(Scenario(whole_numbers=False, **changes), 50, 0)
        for _ in range(20):
            papers.step(still)
        scaled = papers.state.target_position / 1250
        np.testing.assert_allclose(ours.state.target_position / arena, scaled, atol=1e-6)
        assert ours.coverage.mean() == pytest.approx(papers.coverage.mean(), abs=4e-3)


# --- presets, copies and files ---


def test_presets_and_their_sizes():
    assert load_scenario("hit-mac") == Scenario(name="hit-mac") == Scenario(name="hit-mac", arena=1250)
    assert Scenario().sensor_areas[0] == (250, 750, 250, 750)
    scenario = load_scenario("hit-mac-6x9")
    assert (scenario.num_sensors, scenario.num_targets, scenario.name) == (6, 9, "hit-mac-6x9")
    assert {load_scenario(name).name for name in presets()} == set(presets())


@pytest.mark.parametrize(
    "scenario",
    [METRES, Scenario(name="mine", num_sensors=2, field_of_view=(60, 1e-3), sensor_areas=((0, 1, 0, 1), (2, 3, 2, 3)))],
)
def test_copies_and_files_are_the_same_scenario(scenario, tmp_path):
    path = tmp_path / f"{scenario.name}.yaml"
    scenario.save(path)
    for same in (
        load_scenario(path), load_scenario(str(path)), Scenario.from_dict(scenario.to_dict()), scenario.replace(),
        copy.deepcopy(scenario), pickle.loads(pickle.dumps(scenario)),
    ):  # fmt: skip
        assert same == scenario
        assert hash(same) == hash(scenario)
    assert scenario.replace(arena=2500).sensing_range == scenario.sensing_range  # only left out values grow


@pytest.mark.parametrize("name", ["run", "12:30", "planner"])
def test_a_run_or_checkpoint_names_its_scenario(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario("hit-mac-6x9").replace(name="mine", speed_noise=1e-5)
    run, checkpoint = tmp_path / name, tmp_path / "other" / "checkpoint"
    run.mkdir()
    checkpoint.mkdir(parents=True)
    written = {"job": "coverage", "options": {"scenario": "hit-mac"}, "scenario": scenario.to_dict()}
    (run / "config.yaml").write_text(yaml.safe_dump(written))
    (checkpoint / "config.json").write_text(json.dumps({"format": "hitmac-policy", "scenario": scenario.to_dict()}))
    for path in (f"{name}/config.yaml", name, run, "other", checkpoint, checkpoint / "config.json"):
        assert load_scenario(path) == scenario, path


def test_paths_of_files_are_relative_to_the_yaml(tmp_path, monkeypatch):
    (tmp_path / "sites").mkdir()
    path = tmp_path / "sites" / "site.yaml"
    for tracks in ("../walk.csv", ["../walk.csv"], str(tmp_path / "walk.csv")):
        path.write_text(yaml.safe_dump({"tracks": tracks, "background": "floor.png"}))
        loaded = load_scenario(path)
        assert loaded.tracks == (str(tmp_path / "walk.csv"),)
        assert loaded.background == str(tmp_path / "sites" / "floor.png")
    monkeypatch.chdir(tmp_path)
    assert Scenario(tracks="walk.csv") == Scenario(tracks=[tmp_path / "walk.csv"])
    loaded.save("saved.yaml")
    assert load_scenario("saved.yaml") == loaded


def test_settings_change_a_scenario_and_its_name():
    changed = with_settings(Scenario(), ["knowledge=shared", "field_of_view=[1, 2, 3, 4]"])
    assert changed == Scenario(name=changed.name, knowledge="shared", field_of_view=(1, 2, 3, 4))
    assert changed.name == "custom, knowledge=shared, field_of_view=[1, 2, 3, 4]"
    for settings, says in (
        (["hops"], "'hops' must be NAME=VALUE"), (["hops=1", "hops=2"], "each name given once"),
        (["hops=[1"], "hops=.1 is not YAML"), (["hop=1"], "did you mean hops"), (["hops=0"], "hops is 0"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            with_settings(Scenario(), settings)


@pytest.mark.parametrize(
    ("name", "text", "error", "says"),
    [
        ("nowhere", None, ValueError, "unknown scenario 'nowhere': known are basketball-4"),
        ("obstcles-3x4", None, ValueError, r"unknown scenario 'obstcles-3x4' \(did you mean obstacles\?\)"),
        ("hit-mac-0x5", None, ValueError, "num_sensors is 0"),
        ("absent.yaml", None, FileNotFoundError, "absent.yaml"),
        ("list.yaml", "[1, 2]", ValueError, "must hold a mapping"),
        ("code.yaml", "!!python/object/apply:os.system ['false']", ValueError, "is not a YAML file"),
        ("twice.yaml", "hops: 3\ngrid: 4\nhops: 5\n", ValueError, "key 'hops' is given twice .* line 3"),
        ("config.yaml", "scenario: hit-mac", ValueError, "config.yaml is not a scenario: it must hold a mapping"),
        ("config.json", "{", ValueError, "config.json is not a JSON file"),
        (7, None, TypeError, "scenario is 7; it must be a Scenario"),
    ],
)
def test_names_and_files_without_a_scenario_are_refused(name, text, error, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text:
        (tmp_path / name).write_text(text)
    with pytest.raises(error, match=says):
        load_scenario(name)
