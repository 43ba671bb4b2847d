"""``hitmac export``: files and their card, what is replaced, and what is refused."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from hitmac.agents.deploy.export import export_agent
from hitmac.agents.deploy.export import folder as export_folder
from hitmac.agents.deploy.export.folder import CARD, main
from hitmac.agents.learned.checkpoint import save_policy
from hitmac.agents.pretrained import pretrained_folder
from hitmac.envs import FEATURES, Simulator, load_scenario, observe, presets
from tests.agents.deploy.export.made import copied, fresh, hierarchy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--agent and --to must be given"),
        (["pretrained:flat"], "error: --to must be given"),
        (["planner", "--to=out"], "planner cannot be exported: PlannerAgent has no network of this program"),
        (["pretrained:beliefs", "--to=out"], "its inputs are particle beliefs"),
        (["memoryless:pretrained:flat", "--to=out"], "export the agent itself"),
        (["assign-all", "--to=out"], "of its coordinator, AssignAll has no network"),
        *((["pretrained:flat", f"--to=p{end}"], "name must end in .onnx or .pt2") for end in (".pt", ".pth", ".ort")),
    ],
)
def test_what_cannot_be_exported_is_named_and_leaves_nothing(arguments, message, error_of):
    assert message in error_of(main, *arguments, "--scenario=hit-mac")


@pytest.mark.slow
def test_files_are_replaced_only_if_asked(flat, card_alone, tmp_path, capsys):
    own, old, plain = tmp_path / "own", copied(flat, tmp_path / "old", agent="before"), tmp_path / "plain"
    foreign = tmp_path / "foreign"
    for folder in (own, foreign):
        folder.mkdir()
    plain.touch()
    (foreign / CARD).write_text("{}")  # of another program
    for to, replace, message in (
        (own, False, "not an earlier export"), (own, True, "not an earlier export"), (plain, True, "not an earlier"),
        (foreign, True, "not an earlier export"),
        (old, False, "--replace"), (old / "policy.onnx", False, "--replace"),
    ):  # fmt: skip
        with pytest.raises(FileExistsError, match=message):
            export_agent("pretrained:flat", to, replace=replace)
    main(["pretrained:flat", "--to", str(old), "--replace"])
    assert json.loads((old / CARD).read_text())["agent"] == "pretrained:flat"
    assert f"try it: {Path(sys.executable).name} {old}/run.py" in capsys.readouterr().out


def test_files_of_the_user_stay_in_a_replaced_folder(flat, card_alone, tmp_path):
    to, names = copied(flat, tmp_path / "to"), ("floor.txt", "my_camera.py", "run.py")
    for name in names:
        (to / name).write_text("own")
    export_agent(hierarchy(), to, "hit-mac", replace=True)
    made = {"coordinator.onnx", "executor.onnx", CARD, "features.py", "observe.py"}
    assert {path.name for path in to.iterdir()} == made | {*names}
    assert [(to / name).read_text() for name in names] == ["own"] * 3
    old = copied(flat, tmp_path / "old", runner=hashlib.sha256(b"of another version").hexdigest())
    (old / "run.py").write_text("of another version")
    export_agent("pretrained:flat", old, replace=True)
    assert (old / "run.py").read_bytes() == (flat / "run.py").read_bytes()


def test_a_failure_leaves_nothing_and_keeps_earlier_files(flat, tmp_path, monkeypatch):
    def fails(part, path, card):
        path.write_text("half")
        raise RuntimeError("full")

    monkeypatch.setattr(export_folder, "_write", fails)
    old = copied(flat, tmp_path / "old")
    for name in ("new", "new.pt2", "old"):
        with pytest.raises(RuntimeError, match="full"):
            export_agent("pretrained:flat", tmp_path / name, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (old / "policy.onnx").stat().st_size > 10_000


@pytest.mark.parametrize("name", [*presets(), "city-20x30"])
def test_observations_of_the_site_are_those_of_the_scenario(name):
    scenario = load_scenario(name)
    site = json.loads(json.dumps(export_folder.site_of(scenario)))
    few = scenario if scenario.num_sensors <= 30 else scenario.replace(num_sensors=30, sensor_positions=())
    state = Simulator(few, 1, 0).state
    places = {"sensor_position": state.sensor_position[0], "heading": state.heading[0], "along": state.along[0]}
    moving = {"target_position": state.target_position[0], "target_before": state.target_position[0] - 1.0}
    shown = [observe(of, tuple(FEATURES), **places, **moving)["pairs"] for of in (site, scenario)]
    np.testing.assert_array_equal(*shown)
    if name.startswith("city"):  # whose blocks are in the way
        open_site = observe(site | {"walls": []}, ("visible",), **places, **moving)["pairs"]
        assert (open_site != shown[0][..., [tuple(FEATURES).index("visible")]]).any()


def test_the_site_is_that_of_the_training(card_alone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, scene, task in (
        ("c", "hit-mac-6x9", "Coordinator"), ("e", "hit-mac-executor-3x4", "Executor"), ("flat", "random", "Coverage")
    ):  # fmt: skip
        save_policy(f"runs/{name}/checkpoint", *fresh(scene, task))
    for number, (agent, arguments, expected) in enumerate([
        ("runs/flat", [], "random"),
        ("runs/flat:nearest=2", [], "random"),
        ("runs/c:runs/e", [], "hit-mac-6x9"),
        ("pretrained:any-size:nearest=3", [], load_scenario(pretrained_folder("any-size")).name),
        ("runs/flat", ["--scenario", "football-4"], "football-4"),
    ]):  # fmt: skip
        main([agent, "--to", f"out{number}", *arguments])
        card = json.loads(Path(f"out{number}", CARD).read_text())
        assert (card["agent"], card["site"]["name"]) == (agent, expected)
    assert load_scenario(export_folder._own_scenario("assign-all:runs/e")).name == "hit-mac-executor-3x4"
