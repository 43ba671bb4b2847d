"""Coverage against a parameter of the scenario."""

import json

import matplotlib.image
import pytest

from hitmac.agents.evaluate import evaluate
from hitmac.agents.evaluate.command import main, varied
from hitmac.envs import load_scenario

HIT_MAC = load_scenario("hit-mac")
FEW = ("--episodes", "2", "--max-episode-steps", "20")


def test_a_parameter_takes_each_of_its_values_in_order():
    name, scenes = varied(HIT_MAC, "missed_detections=0.3/0/0.1")
    assert (name, list(scenes)) == ("missed_detections", [0, 0.1, 0.3])
    for value, scene in scenes.items():
        assert scene == HIT_MAC.replace(name=scene.name, missed_detections=value)


def test_curves_are_the_evaluations_of_every_value(tmp_path):
    picture, written = tmp_path / "curves.png", tmp_path / "all.json"
    varying = ("--vary", "missed_detections=0/0.9", "--vary", "num_targets=2/3", "--curves", str(picture))
    main(["--agents", "still,greedy", *varying, "--json", str(written), *FEW])
    shown = [one["agents"]["greedy"]["per_episode"]["coverage"] for one in json.loads(written.read_text())]
    changes = ({"missed_detections": 0.0}, {"missed_detections": 0.9}, {"num_targets": 2}, {"num_targets": 3})
    assert len(shown) == len(changes)
    for coverage, change in zip(shown, changes, strict=True):
        alone = evaluate("greedy", HIT_MAC.replace(**change), episodes=2, max_episode_steps=20, progress=False)
        assert coverage == alone["agents"]["greedy"]["per_episode"]["coverage"]
    assert matplotlib.image.imread(picture).shape[2] == 4


def test_any_parameter_can_be_set(tmp_path):
    written = tmp_path / "all.json"
    main(
        [
            "--agents",
            "nearest",
            "--set",
            "knowledge=own",
            "--set",
            "turn_angle=[5, 6, 7, 8]",
            "--json",
            str(written),
            *FEW,
        ]
    )
    scene = HIT_MAC.replace(knowledge="own", turn_angle=(5, 6, 7, 8))
    alone = evaluate("nearest", scene, episodes=2, max_episode_steps=20, progress=False)
    shown = json.loads(written.read_text())
    assert shown["scenario"] == "hit-mac, knowledge=own, turn_angle=[5, 6, 7, 8]"
    assert shown["agents"]["nearest"]["per_episode"] == alone["agents"]["nearest"]["per_episode"]


@pytest.mark.parametrize(("arguments", "says"), [
    (["--set", "knowledge"], "'knowledge' must be NAME=VALUE"),
    (["--set", "hops=1", "--set", "hops=2"], "each name given once"),
    (["--set", "hop=1"], "hop (did you mean hops?)"),
    (["--set", "hops=many"], "hops is 'many'"),
    (["--set", "walk=[a"], "walk=[a is not YAML"),
    (["--vary", "missed_detection=0/1"], "--vary has 'missed_detection' (did you mean missed_detections?)"),
    (["--vary", "walk=goals/bounce"], "--vary has 'walk'"),
    (["--vary", "missed_detections"], "must have the form missed_detections=V1/V2/V3"),
    (["--vary", "missed_detections=0/0"], "with different numbers"),
    (["--vary", "missed_detections=0/x"], "with different numbers"),
    (["--vary", "missed_detections=0/2"], "missed_detections is 2"),
    (["--vary", "num_targets=2/2.5"], "num_targets is 2.5"),
    (["--vary", "hops=1/2", "--scenario", "hit-mac,random"], "--vary takes a single scenario; there are 2"),
    (["--vary", "missed_detections=0/0.1", "--front", "f.png"], "leave out --front"),
    (["--vary", "missed_detections=0/0.1", "--curves", "f.gif"], "its name must end in .png"),
    (["--curves", "f.png"], "--curves needs --vary"),
])  # fmt: skip
def test_what_cannot_vary_is_refused_in_one_line(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main([*arguments, *FEW])
    message = capsys.readouterr().err
    assert says in message, message
    assert not list(tmp_path.iterdir())
