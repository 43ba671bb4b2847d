import json

import pytest
import yaml

from hitmac.envs import Scenario, load_scenario, presets


def test_the_preset_is_the_papers_scene():
    assert load_scenario("hit-mac") == Scenario(name="hit-mac")
    assert "hit-mac" in presets()


def test_sizes_in_a_name():
    scenario = load_scenario("hit-mac-6x9")
    assert (scenario.num_sensors, scenario.num_targets, scenario.name) == (6, 9, "hit-mac-6x9")


def test_yaml_there_and_back(tmp_path):
    scenario = Scenario(name="mine", num_sensors=2, field_of_view=60, sensor_areas=((0, 1, 0, 1), (2, 3, 2, 3)))
    scenario.save(tmp_path / "mine.yaml")
    assert load_scenario(tmp_path / "mine.yaml") == scenario
    assert load_scenario(str(tmp_path / "mine.yaml")) == scenario
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"num_sensors": 0}, ValueError, "num_sensors is 0; it must be 1 or more"),
        ({"num_sensors": 2.5}, TypeError, "num_sensors is 2.5"),
        ({"num_targets": True}, TypeError, "num_targets is True"),
        ({"num_sensors": 7}, ValueError, "at least one area for each of the 7 sensors"),
        ({"field_of_view": 361}, ValueError, "field_of_view is 361.0; it must be over 0 and at most 360"),
        ({"sensing_range": -1}, ValueError, "sensing_range is -1.0; it must be over 0"),
        ({"sensing_range": float("nan")}, TypeError, "sensing_range is nan"),
        ({"max_speed": 50}, ValueError, "over min_speed"),
        ({"start_heading": "up"}, ValueError, "random or target"),
        ({"target_area": (0, 9999, 0, 1)}, ValueError, "inside the arena"),
        ({"target_area": (0, 1)}, TypeError, r"it must be \[x low, x high"),
        ({"colour": "red"}, ValueError, "unknown scenario parameter colour: known are name, num_sensors"),
    ],
)
def test_impossible_parameters_are_named(changes, error, says):
    with pytest.raises(error, match=says.replace("(", r"\(")):
        load_scenario("hit-mac").replace(**changes)


def test_unknown_names_and_broken_files(tmp_path):
    with pytest.raises(ValueError, match="unknown scenario 'nowhere': known are basketball-4"):
        load_scenario("nowhere")
    with pytest.raises(ValueError, match="num_sensors is 0"):
        load_scenario("hit-mac-0x5")
    with pytest.raises(FileNotFoundError):
        load_scenario(tmp_path / "absent.yaml")
    (tmp_path / "list.yaml").write_text("[1, 2]")
    with pytest.raises(ValueError, match="must hold a mapping"):
        load_scenario(tmp_path / "list.yaml")
    (tmp_path / "code.yaml").write_text("!!python/object/apply:os.system ['false']")
    with pytest.raises(ValueError, match="is not a YAML file"):
        load_scenario(tmp_path / "code.yaml")


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
    (run / "config.yaml").write_text("scenario: hit-mac")
    with pytest.raises(ValueError, match=r"config\.yaml is not a scenario: it must hold a mapping of parameters"):
        load_scenario(run)
    (checkpoint / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not a JSON file"):
        load_scenario(checkpoint)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="unknown scenario 'empty'"):
        load_scenario("empty")


def test_a_key_given_twice_is_refused(tmp_path):
    (tmp_path / "twice.yaml").write_text("num_sensors: 3\nnum_targets: 4\nnum_sensors: 5\n")
    with pytest.raises(ValueError, match=r"twice.yaml is not a YAML file: key 'num_sensors' is given twice .* line 3"):
        load_scenario(tmp_path / "twice.yaml")


def test_a_misspelt_parameter_gets_a_hint():
    with pytest.raises(
        ValueError, match=r"unknown scenario parameter num_sensor \(did you mean num_sensors\?\): known"
    ):
        Scenario.from_dict({"num_sensor": 3})
    with pytest.raises(ValueError, match=r"unknown scenario parameter xyz: known are"):
        Scenario.from_dict({"xyz": 3})
