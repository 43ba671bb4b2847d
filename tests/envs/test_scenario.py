"""Scenarios: ranges of every parameter, parameters that contradict each other, units, presets and files."""

import copy
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from hitmac.envs import Scenario, Simulator, load_scenario, presets
from hitmac.envs.scenario import DECISIONS, with_settings
from hitmac.envs.tasks.coverage import CoverageTask
from hitmac.envs.validation import CombinedError, allowed, field_types
from tests.envs.scenes import write_tracks

METRES = Scenario(arena=42)
LENGTHS = {
    "sensing_range": 800, "rail_step": 10, "communication_range": 1000, "min_speed": 50, "max_speed": 100,
    "goal_radius": 5, "stuck_distance": 10, "distance_scale": 2000,
}  # fmt: skip

# --- ranges ---

RANGES = {
    "": "name whole_numbers identities sensor_names sensor_headings tracks past_tracks columns background",
    "1 or more": "num_sensors num_targets hops goal_patience seen_by cargoes",
    "0 or more": "min_sensors min_targets rail_starts position_noise communication_range message_delay spacing "
    "turn_rates acceleration dead_zone heading_noise min_speed speed_noise goal_radius stuck_distance extra_move_every "
    "random_discs episode_steps target_range sensor_radius mount_height",
    "over 0": "arena sensing_range zoom_step tilt_step rail_step time_step max_speed disc_radius street_width "
    "distance_scale warehouse_size",
    "over 0 and at most 360 degrees": "field_of_view zoom",
    "over 0 and at most 180 degrees": "turn_angle vertical_view",
    "0 to 180 degrees": "wander",
    "0 to 1": "failure_rate recovery_rate missed_detections message_loss_rate leave_rate return_rate transmittance",
    "0 to 1000": "false_detections command_delay",
    "0 to 1000000": "zone_values target_values",
    "turn or rate": "action",
    "1 to 10000": "grid blocks",
    "one of full, shared, neighbours, own": "knowledge",
    "one of areas, grid, random, rails, fixed, crossings": "placement",
    "random or target": "start_heading",
    "one of goals, random, bounce, still, evade, streets, recorded, carry-random, carry-naive, carry-greedy, "
    "carry-heuristic": "walk",
    "exact or rays": "occlusion",
    "list of list of [x, y]": "rails zones",
    "list of [x, y]": "sensor_positions warehouses",
    "list of [low, high]": "pan_limits",
    "list of [lowest, highest]": "tilt_limits",
    "[x low, x high, y low, y high]": "target_area",
    "list of [x low, x high, y low, y high]": "sensor_areas disc_areas",
    "list of [x, y, radius]": "discs",
    "list of [x1, y1, x2, y2]": "walls",
}


def test_every_parameter_has_its_range_and_a_row_in_the_documentation():
    hints = field_types(Scenario)
    assert {name: allowed(hint) for name, hint in hints.items()} == {
        name: words for words, names in RANGES.items() for name in names.split()
    }
    for name in (name for name, hint in hints.items() if re.search(r"\b(int|float)\b", str(hint))):
        for value in (float("nan"), float("inf"), True, "many", [[1]]):
            with pytest.raises((TypeError, ValueError), match=rf"{name}\b.*; it must be "):
                Scenario(**{name: value})
        if re.search(r"\bint\b", str(hints[name])) and "tuple" not in str(hints[name]):
            with pytest.raises(ValueError, match=rf"{name} is 1{'0' * 19}; it must be .*(below 2\^63| to \d+)"):
                Scenario(**{name: 10**19})
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", Scenario.__doc__, re.MULTILINE))
    assert list(rows) == list(hints)
    assert rows["sensing_range"].startswith("800 * arena / 1250 | over 0 | Largest distance")
    assert rows["whole_numbers"].startswith("true if arena is 1250 |  | Draw whole")


RAIL = {"placement": "rails", "rails": [[(0, 0), (100, 0)]]}
FIXED = {"placement": "fixed", "sensor_positions": [(0, 0)] * 4}
TILTING = {"tilt_limits": [(0, 80)], "mount_height": 300}
GAME = {"warehouses": [(0, 0), (9, 9)], "zoom": (30, 180), "extra_move_every": 0}
ONE_FILE = {"tracks": "a.csv", "num_targets": 1}
UNNAMED = {"identities": False}
CITY = {"placement": "crossings", "blocks": (1, 2)}
ZONE = {"zones": [[(0, 0), (1250, 0), (0, -1250)]], "zone_values": [0]}


PRESENT = {"a.csv": [(0, 5), (0, 9), (6, 9)], "b.csv": [(0, 9)] * 3, "c.csv": [(0, 3), (4, 9)]}
"""First and end second of each target of a file; 2, 3 and 1 targets at once."""


@pytest.fixture
def tracks(tmp_path):
    paths = []
    for name, times in PRESENT.items():
        rows = (f"{t},{k},0,0" for k, (first, end) in enumerate(times) for t in range(first, end))
        paths.append(write_tracks(tmp_path / name, *rows))
    return paths


def test_other_tracks_leave_the_motion_of_earlier_ones(tracks):
    a, b, c = tracks
    assert Scenario().walk == "goals"
    one = Scenario(tracks=a)
    other = one.following([b]).following([c])
    assert (one.walk, other.walk) == ("recorded", "recorded")
    assert (other.tracks, other.past_tracks) == ((c,), (a,))
    assert one.replace(walk="bounce").following([b]).walk == "bounce"


def test_the_tracks_define_how_many_targets_there_are(tracks, tmp_path):
    a, b, c = tracks
    metres = {"arena": 10.0, "time_step": 1.0}
    assert [Scenario(tracks=files, **metres).num_targets for files in (a, b, c, tracks, ())] == [2, 3, 1, 3, 5]
    one = Scenario(tracks=a, **metres)
    assert [one.following([file]).num_targets for file in tracks] == [2, 3, 2]
    assert one.following(columns="time=t").num_targets == 2
    assert one.replace(tracks=b, num_targets=1).num_targets == 1
    assert Scenario(tracks=a, num_targets=1, **metres).num_targets == 1
    one.save(tmp_path / "site.yaml")
    Path(a).unlink()
    assert load_scenario(tmp_path / "site.yaml") == one  # nothing is counted again
    with pytest.raises(FileNotFoundError, match=r"a\.csv"):
        Scenario(tracks=a, **metres)


@pytest.mark.parametrize(
    ("fits", "change", "says"),
    [
        ({}, {"name": 5}, "name is 5; it must be a string"),
        ({"num_sensors": 7}, {"sensor_areas": []}, "sensor_areas is .*; it must be at least one area"),
        ({"min_sensors": 4}, {"min_sensors": 5}, r"min_sensors is 5; it must be 0 to num_sensors \(4\)"),
        ({"min_targets": 5}, {"min_targets": 6}, r"min_targets is 6; it must be 0 to num_targets \(5\)"),
        ({"arena": (9, 9)}, {"arena": (9,)}, r"arena is \[9.0\]; it must be one number, or \[half the width"),
        ({"sensing_range": np.ones(4)}, {"sensing_range": (1, 2)}, "one number, or one for each of the 4 sensors"),
        ({"field_of_view": (1, 2, 3, 360)}, {"field_of_view": (1, 2)}, "one number, or one for each of the 4 sensors"),
        ({"turn_angle": (1, 2, 3, 180)}, {"turn_angle": (5, 5)}, r"turn_angle is \[5.0, 5.0\]; .* one for each of"),
        ({"turn_rates": (20, 20)}, {"turn_rates": (20, 19)}, r"turn_rates .* the highest rate, or \[lowest, highest\]"),
        ({"turn_rates": 0}, {"turn_rates": (1, 2, 3)}, "turn_rates is"),
        ({"turn_rates": 9, "acceleration": 9}, {"acceleration": 9}, "acceleration is 9.0; it must be 0 without turn_r"),
        ({"turn_rates": 9, "command_delay": 9}, {"command_delay": 9}, "command_delay is 9; it must be 0 without turn_"),
        ({"turn_rates": 9, "dead_zone": 8}, {"turn_rates": 9, "dead_zone": 9}, r"dead_zone .* highest of .* \(9\)"),
        ({"turn_rates": 9, "action": "rate"}, {"action": "rate"}, "action is 'rate'; it must be turn without turn_r"),
        ({"action": "turn"}, {"turn_rates": 9, "action": "rate", "zoom": (9, 90)}, "be turn with zoom or rails"),
        ({"zoom": (90, 90)}, {"zoom": (120, 30)}, "zoom is .*; it must be empty, or the narrowest and the widest"),
        ({"zoom": (10, 90)}, {"zoom": (100, 120)}, "field_of_view is 90.0; it must be within zoom"),
        ({"max_speed": np.nextafter(50, 51)}, {"max_speed": 50}, r"max_speed is 50.0; it must be over min_speed \(50"),
        ({"position_noise": (0, 9)} | UNNAMED, {"position_noise": (0, 9)}, r"one number, .* \[along, across\]"),
        (UNNAMED, {"position_noise": (1, 2, 3)} | UNNAMED, r"position_noise is \[1.0, 2.0, 3.0\]; it must be one"),
        ({"missed_detections": (0, 1)} | UNNAMED, {"missed_detections": (0, 1)}, r"one number, or .* \[near, far\]"),
        ({"false_detections": 9} | UNNAMED, {"false_detections": 9}, "false_detections is 9.0; it must be 0 with"),
        (ONE_FILE, ONE_FILE | {"leave_rate": 0.1}, "leave_rate is 0.1; it must be 0 with tracks"),
        ({"tracks": ()}, ONE_FILE | {"min_targets": 1}, "min_targets is 1; it must be 0 with tracks"),
        (ONE_FILE | {"tracks": ("a", "b")}, {"tracks": ("a", 5)}, "tracks is .*; it must be the name of a file, or a"),
        ({"columns": "x=px, Time=t"}, {"columns": "x=y"}, "columns is 'x=y'; it must be such as time=t,id=track"),
        ({"columns": "x=y,y=x"}, {"columns": "x=a,x=b"}, "columns is"),
        ({"columns": "time=1,id=2,x=3,y=4"}, {"columns": "t"}, "columns is"),
        ({"background": ""}, {"background": ["a.png"]}, "background is .*; it must be the name of a file"),
        ({"sensor_areas": [(0,) * 4] * 4}, {"sensor_areas": [(1, 0, 0, 0)] * 4}, "sensor_areas .* inside the arena"),
        ({"target_area": [-1250, 1250] * 2}, {"target_area": (0, 0, 0, 1251)}, r"target_area .* arena of \+-1250"),
        ({"placement": "grid", "sensor_areas": []}, {"placement": "grid", "grid": 1}, "grid is 1; it must be large"),
        ({"placement": "random"}, {"placement": "random", "spacing": 1000}, "spacing is 1000.0; .* smaller, since 4"),
        ({"discs": [(0, 0, 1e-9)]}, {"discs": [(0, 0, 0)]}, "discs is .* with a radius over 0"),
        ({"disc_radius": (5, 5)}, {"disc_radius": (9, 5)}, "disc_radius .* the lowest and the highest"),
        ({"disc_radius": (5, 1251)}, {"random_discs": 1, "disc_radius": (5, 1251)}, r"at most the arena \(1250\)"),
        ({"arena": 0.5}, {"random_discs": 1, "disc_radius": (5, 1200)}, "disc_radius .* must be smaller"),
        ({"pan_limits": [(0, 0)]}, {"pan_limits": [(1, 0)]}, "pan_limits is .*, or .* with low at most high, one pair"),
        ({"pan_limits": [(170, 190)] * 4}, {"pan_limits": [(0, 0)] * 2}, "one pair or one for each of the 4 sensors"),
        ({"sensor_names": ("a", "b", "1", "")}, {"sensor_names": ("a", "b", "c", "a")}, "empty, or different names"),
        ({"sensor_names": ()}, {"sensor_names": ("a", "b")}, "empty, or different names, one for each of the 4 sens"),
        ({"sensor_headings": (0, 90, -180, 720)}, {"sensor_headings": (0, 90)}, "empty, or one for each of the 4 sens"),
        ({"walk": "still"}, {"walk": "streets"}, "walk is 'streets'; it must be streets only with blocks"),
        (ONE_FILE | {"walk": "recorded"}, {"walk": "recorded"}, "walk .* recorded only with tracks"),
        (CITY | {"num_sensors": 6}, CITY | {"num_sensors": 7}, "blocks .* a crossing for each of 7 sensors"),
        (CITY, CITY | {"blocks": (1,)}, r"blocks is \[1\]; it must be empty, or \[rows, columns\]"),
        (ZONE, ZONE | {"zones": [[(0, 0), (9, 0)]]}, "zones is .*; it must be lists of at least 3 corners"),
        (ZONE, ZONE | {"zones": [[(0, 0), (1251, 0), (9, 9)]]}, r"zones is .*; it must be inside the arena of \+-1250"),
        (ZONE, ZONE | {"zone_values": [1, 2]}, r"zone_values is \[1.0, 2.0\]; it must be one for each of the 1 zones"),
        (ZONE, ZONE | {"zone_values": [-1]}, "zone_values holds .*-1.*; it must be 0 to 1000000"),
        ({"target_values": (1,) * 5}, {"target_values": (1, 2)}, "target_values is .* one for each of the 5 targets"),
        ({"target_values": (0, 0, 0, 0, 1)}, {"target_values": (0,) * 5}, "target_values is .* over 0 for at least"),
        (UNNAMED, UNNAMED | {"target_values": (1,) * 5}, "target_values is .* empty without identities or with tracks"),
        (ONE_FILE, ONE_FILE | {"target_values": [2]}, "target_values is .* empty without identities or with tracks"),
        ({"seen_by": 4}, {"seen_by": 5}, r"seen_by is 5; it must be 1 to num_sensors \(4\)"),
        (GAME, {"warehouses": [(0, 0)]}, "warehouses is .*; it must be empty, or at least 2"),
        (GAME, GAME | {"warehouses": [(0, 0), (0, 1251)]}, r"warehouses is .* inside the arena of \+-1250"),
        (GAME, GAME | {"extra_move_every": 10}, "warehouses is .*; it must be empty with extra_move_every"),
        (GAME, GAME | {"walls": [(0, 0, 1, 1)]}, "warehouses is .*; it must be empty with walls"),
        (GAME | {"walk": "carry-naive"}, GAME | {"walk": "goals"}, "walk is 'goals'; .* if and only if warehouses are"),
        ({"walk": "goals"}, {"walk": np.zeros(0)}, "walk is .*; it must be one of"),
        ({"walk": "goals"}, {"walk": "carry-naive"}, "walk is 'carry-naive'; .* if and only if warehouses are given"),
        (GAME | {"placement": "areas"}, GAME | {"placement": "grid"}, "placement is 'grid'; it must be areas with"),
        (GAME, GAME | {"zoom": ()}, r"zoom is \[\]; it must be the narrowest and the widest field of view"),
        (GAME | {"disc_areas": [(0,) * 4]}, {"disc_areas": [(0,) * 4]}, "disc_areas .* empty without warehouses"),
        (GAME, GAME | {"disc_areas": [(1, 0, 0, 0)]}, r"disc_areas .* inside the arena of \+-1250"),
        (RAIL, RAIL | {"rails": []}, "placement is 'rails'"),
        (RAIL, RAIL | {"placement": "random"}, "placement is 'random'"),
        (RAIL, RAIL | {"rails": [[(0, 0), (1, 0)]] * 3}, "rails is .* one for each of the 4 sensors"),
        (RAIL, RAIL | {"rails": [[]]}, "rails is"),
        (RAIL, RAIL | {"rails": [[(0, 0), (0, 0)]]}, "rails is"),
        (RAIL, RAIL | {"arena": (99, 9)}, r"rails is .* the arena of \+-99 x \+-9"),
        (RAIL | {"rail_starts": (0, 9, 99, 100)}, RAIL | {"rail_starts": (101,) * 4}, "rail_starts is .* of the r"),
        (RAIL, RAIL | {"rail_starts": [1]}, "rail_starts is"),
        ({"arena": (9, 5)}, {"arena": (9, 5), "target_area": (-5, 5, -7, 7)}, r"target_area .* arena of \+-9 x \+-5"),
        (FIXED, FIXED | {"sensor_positions": [(0, 0)] * 2}, "sensor_positions is .* each of the 4 sensors"),
        (FIXED, FIXED | {"arena": (20, 10), "sensor_positions": [(0, 11)] * 4}, r"11.* the arena of \+-20 x \+-10"),
        (FIXED, FIXED | {"placement": "grid"}, "placement is 'grid'"),
        (FIXED, {"placement": "fixed"}, "placement is 'fixed'"),
        (FIXED | {"sensor_headings": (90,) * 4, "pan_limits": [(0, 90)]},
         {"sensor_headings": (91,) * 4, "pan_limits": [(0, 90)]}, r"sensor_headings is \[91.0, .* pan_limits"),
        (TILTING, TILTING | {"tilt_limits": [(10, 5)]}, r"tilt_limits is \[\[10.0, 5.0\]\]; .* empty, or .* 0 to 90"),
        (TILTING, TILTING | {"tilt_limits": [(-5, 91)]}, "tilt_limits is"),
        (TILTING, TILTING | {"tilt_limits": [(0, 5)] * 2}, "one pair or one for each of the 4 sensors"),
        ({"mount_height": 0}, TILTING | {"mount_height": 0}, "mount_height is 0.0; it must be over 0 with tilt_limits"),
        (TILTING, TILTING | {"mount_height": (3, 4)}, "mount_height is .* one number"),
        (TILTING, TILTING | {"vertical_view": (30, 40)}, "vertical_view is .* one number"),
        (CITY, {"blocks": (9, 9), "street_width": 250}, "street_width is 250.0; it must be under 250 with these"),
    ],
)  # fmt: skip
def test_parameters_that_contradict_each_other_are_named(fits, change, says):
    Scenario(**fits)
    with pytest.raises((TypeError, ValueError), match=says):
        Scenario(**change)


def test_all_errors_are_reported_at_once(tmp_path):
    (tmp_path / "bad.yaml").write_text("num_sensor: 3\nnum_targets: 0\narena: wide\nwalk: bonce\n")
    with pytest.raises(CombinedError) as caught:
        load_scenario(tmp_path / "bad.yaml")
    first, *lines = str(caught.value).splitlines()
    assert first == f"{tmp_path / 'bad.yaml'}: 4 errors:"
    assert lines[0].startswith("  unknown scenario parameter num_sensor (did you mean num_sensors?)")
    for line, words in zip(lines[1:], ("num_targets is 0", "arena is 'wide'", "walk is 'bonce'"), strict=True):
        assert line.startswith(f"  scenario 'bad': {words}; it must be ")
    assert lines[3].endswith("(did you mean bounce?)")
    with pytest.raises(CombinedError, match=r"(?s)zoom is \[90.0, 30.0\].*\n.*max_speed is 40.0"):
        Scenario(zoom=(90, 30), max_speed=40)
    with pytest.raises(ValueError, match="k7, k8, k9 and 990 more: known are"):
        Scenario.from_dict({f"k{k}": 1 for k in range(1000)})
    with pytest.raises(ValueError, match="unknown scenario parameter a b: known are"):
        Scenario.from_dict({"a\n  b": 1})


# --- units ---


def test_lengths_speeds_and_areas_without_a_value_grow_with_the_arena():
    for name, value in LENGTHS.items():
        assert getattr(METRES, name) == pytest.approx(value * 42 / 1250), name
    assert (METRES.disc_radius, METRES.whole_numbers) == (pytest.approx((0.84, 3.36)), False)
    court = Scenario(arena=(1250, 625))  # lengths follow the shorter side, areas both
    assert (court.sensing_range, court.max_speed) == (400, 50)
    assert court.target_area == (-1000, 1000, -500, 500)
    assert court.sensor_areas[0] == (250, 750, 125, 375)
    given = {name: 3 * value for name, value in LENGTHS.items()} | {"whole_numbers": True, "disc_radius": (1, 2)}
    assert {name: getattr(Scenario(arena=42, **given), name) for name in given} == given


@pytest.mark.parametrize("arena", [1e-3, 42, 1e6])
def test_the_game_is_the_same_in_any_units(arena):
    changes, still = {"placement": "grid", "random_discs": 1}, np.zeros((50, 4), np.int64)
    ours = Simulator(Scenario(arena=arena, **changes), 50, 0)
    papers = Simulator(Scenario(whole_numbers=False, **changes), 50, 0)
    for _ in range(20):
        ours.step(still)
        papers.step(still)
    scaled = papers.state.target_position / 1250
    np.testing.assert_allclose(ours.state.target_position / arena, scaled, atol=1e-6)
    assert ours.coverage.mean() == pytest.approx(papers.coverage.mean(), abs=4e-3)
    assert np.ptp(scaled) > 1.5


# --- presets, copies and files ---


def test_presets_and_their_sizes():
    assert load_scenario("hit-mac") == Scenario(name="hit-mac") == Scenario(name="hit-mac", arena=1250)
    assert Scenario().sensor_areas[0] == (250, 750, 250, 750)
    scenario = load_scenario("hit-mac-6x9")
    assert (scenario.num_sensors, scenario.num_targets, scenario.name) == (6, 9, "hit-mac-6x9")
    game, large = load_scenario("mate-2v9-0"), load_scenario("mate-5v4-7")
    assert (game.num_sensors, game.num_targets, game.random_discs, game.name) == (2, 9, 0, "mate-2v9-0")
    assert game.replace(num_sensors=4, num_targets=8, random_discs=9, name="mate-4v8-9") == load_scenario("mate-4v8-9")
    assert (large.sensing_range, game.sensing_range, large.random_discs, game.walk) == (1000, 1500, 7, "carry-greedy")
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


def test_a_run_or_checkpoint_names_its_scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario("hit-mac-6x9").replace(name="mine", speed_noise=1e-5)
    run, checkpoint = tmp_path / "12:30", tmp_path / "other" / "checkpoint"
    checkpoint.mkdir(parents=True)
    run.mkdir()
    (run / "config.yaml").write_text(yaml.safe_dump({"job": "coverage", "scenario": scenario.to_dict()}))
    (checkpoint / "config.json").write_text(json.dumps({"format": "hitmac-policy", "scenario": scenario.to_dict()}))
    for path in ("12:30/config.yaml", "12:30", run, "other", checkpoint, checkpoint / "config.json"):
        assert load_scenario(path) == scenario, path


def test_paths_of_files_are_relative_to_the_yaml(tmp_path, monkeypatch):
    (tmp_path / "sites").mkdir()
    path = tmp_path / "sites" / "site.yaml"
    for tracks in ("../walk.csv", ["../walk.csv"], str(tmp_path / "walk.csv")):
        path.write_text(yaml.safe_dump({"tracks": tracks, "num_targets": 1, "background": "floor.png"}))
        loaded = load_scenario(path)
        assert loaded.tracks == (str(tmp_path / "walk.csv"),)
        assert loaded.background == str(tmp_path / "sites" / "floor.png")
    monkeypatch.chdir(tmp_path)
    one = Scenario(tracks="walk.csv", num_targets=1)
    assert one == Scenario(tracks=[tmp_path / "walk.csv"], num_targets=1)
    loaded.save("saved.yaml")
    assert load_scenario("saved.yaml") == loaded


def test_settings_change_a_scenario_and_its_name():
    changed = with_settings(Scenario(), ["knowledge=shared", "field_of_view=[1, 2, 3, 4]"])
    assert changed == Scenario(name=changed.name, knowledge="shared", field_of_view=(1, 2, 3, 4))
    assert changed.name == "custom, knowledge=shared, field_of_view=[1, 2, 3, 4]"
    changed = with_settings(METRES, ["arena=1e2", "time_step=5e-1", "zoom=[2e1, 1.2e2]"])
    assert changed == METRES.replace(name=changed.name, arena=100, time_step=0.5, zoom=(20, 120))
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
        ("twice.yaml", "hops: 3\ngrid: 4\nhops: 5\n", ValueError, "line 3: key 'hops' is given twice$"),
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


def test_decisions_are_those_of_the_parts_in_the_order_of_an_action():
    every = Scenario(
        zoom=(30, 120), tilt_limits=[(10, 60)], mount_height=300, placement="rails", rails=[[(0, 0), (100, 0)]]
    )
    assert list(DECISIONS) == ["turn", "zoom", "tilt", "move"] == list(every.decisions)
    assert Scenario(tilt_limits=[(10, 60)], mount_height=300).decisions == ("turn", "tilt")
    for name, decision in DECISIONS.items():
        assert f"| `{name}` | `{decision.parameter}` | {' | '.join(decision.actions)} |" in CoverageTask.__doc__
