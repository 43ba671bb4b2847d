"""Policies that come with the package, and new ones made of a run."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

import hitmac.agents.pretrained
from hitmac import train
from hitmac.agents import load_agent, load_executor
from hitmac.agents.evaluate import evaluate
from hitmac.agents.learned.checkpoint import FILES
from hitmac.agents.pretrained import pretrained, pretrained_folder
from hitmac.agents.training.resume import saved_progress
from hitmac.envs import load_scenario
from tools.publish import main


@pytest.mark.slow
def test_pretrained_policies_cover_what_their_cards_claim():
    cards = {f"pretrained:{name}": (pretrained_folder(name) / "card.md").read_text() for name in pretrained()}
    claims = {name: re.search(r"On `([\w-]+)`: coverage ([\d.]+)", card).groups() for name, card in cards.items()}
    few = {"seed": 10**6, "max_episode_steps": 300, "progress": False}
    for scene, episodes in (("hit-mac", 4), ("obstacles", 16)):  # whose layouts differ more
        names = [name for name, (own, _) in claims.items() if (own == "obstacles") == (scene == "obstacles")]
        agents = evaluate([*names, "random"], load_scenario(scene), episodes=episodes, **few)["agents"]
        for name in names:
            covered = agents[name]["coverage"]["mean"]
            # With so few other episodes the mean has a standard error of about 0.02.
            assert covered > float(claims[name][1]) - 0.06, name
            assert covered > agents["random"]["coverage"]["mean"] + 0.3, name


@pytest.mark.parametrize("name", pretrained())
def test_a_pretrained_policy_is_small_and_plain(name):
    folder = pretrained_folder(name)
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    levels = ["", "executor/"] if (folder / "executor").exists() else [""]
    assert set(files) == {"card.md"} | {level + file for level in levels for file in FILES}
    assert sum(path.stat().st_size for path in files.values()) < 1_000_000
    configs = [json.loads(files[f"{level}config.json"].read_text()) for level in levels]
    seeds = [tuple(config["training_seeds"]) for config in configs]
    assert all(first >= 2**40 for first, _ in seeds)
    agent = load_agent(f"pretrained:{name}", load_scenario(configs[0]["scenario"]["name"]))
    assert agent.trained
    assert agent.training_seeds == tuple(seeds)


def test_an_unknown_name_gets_the_known_ones():
    with pytest.raises(ValueError, match=r"policy 'flatt' \(did you mean flat\?\): known are .*flat"):
        load_agent("pretrained:flatt", "hit-mac")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Trains in an empty directory; pretrained policies are put into it, not into the package."""
    monkeypatch.chdir(tmp_path)
    for name in ("save_film", "save_pictures", "save_curve"):
        monkeypatch.setattr(f"hitmac.agents.training.report.{name}", lambda *arguments, **options: None)
    monkeypatch.setattr(hitmac.agents.pretrained, "FOLDER", tmp_path / "home")
    (tmp_path / "home").mkdir()

    def run(options):
        small = "--num-envs 8 --weight-dim 8 --episodes 2 --rollout-steps 4 --episode-steps 20 --curve-points 0"
        command = f"python3.11 train.py {options} {small}".split()
        monkeypatch.setattr(sys, "argv", command[1:])
        monkeypatch.setattr(sys, "orig_argv", command)
        train.main()

    return run


@pytest.mark.slow
def test_the_policy_of_a_run_with_its_card(runs, error_of, monkeypatch):
    def refused(*arguments):
        return error_of(main, *arguments, "--note", "x")

    runs("coverage --seeds 2 --seed 3 --processes 1 --run-dir all --total-steps 64")
    main(["mine", "all", "--note", "A policy.", "--limits", "No zoom."])
    written = Path("home/mine/card.md").read_text()
    assert written.startswith("# mine\n\nA policy.\n\n- Trained by `python3.11 train.py coverage --seeds 2 --seed 3 ")
    minutes = saved_progress(Path("all/seed-3/checkpoint/training.safetensors"))[1] / 60
    assert f"--curve-points 0`, seed 3 (64 steps in {minutes:.1f} minutes, on `hit-mac` with 4 sensors" in written
    agents = json.loads(Path("all/seed-3/evaluation.json").read_text())["agents"]
    assert f"- On `hit-mac`: coverage {agents['trained']['coverage']['mean']:.3f} (" in written
    assert re.search(r"seeds 3, 4: coverage .* over episodes and trainings\), rotation", written)
    assert written.endswith("as in `hit-mac`. No zoom.\n")
    assert pretrained() == ["mine"]
    assert "mine exists; choose another name, or add --replace" in refused("mine", "all/seed-4")
    assert "name is 'My'; it must have lower-case letters" in refused("My", "all")
    assert "absent is not a checkpoint" in refused("none", "absent")
    main(["mine", "all/seed-4", "--note", "Another.", "--replace"])
    assert ", seed 4 (" in Path("home/mine/card.md").read_text()

    def full(*places):
        raise OSError("No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(shutil, "copyfile", full)
        assert "No space left on device" in refused("mine", "all/seed-3", "--replace")
    Path("all/seed-4/evaluation.json").unlink()
    assert "all/seed-4 has no evaluation.json" in refused("mine", "all/seed-4", "--replace")
    assert load_agent("pretrained:mine", "hit-mac").name == "pretrained:mine"  # which is unchanged

    runs("executor --total-steps 64 --run-dir both/executor")
    runs("coordinator --total-steps 64 --executor both/executor --run-dir both/coordinator")
    shutil.copy("both/coordinator/config.yaml", "both/config.yaml")
    main(["two", "both", "--note", "Both levels."])
    files = {str(path.relative_to("home/two")) for path in Path("home/two").rglob("*") if path.is_file()}
    assert files == {"card.md"} | {level + file for level in ("", "executor/") for file in FILES}
    card = Path("home/two/card.md").read_text()
    assert re.search(r"\([\d,]+ steps in \d.\d minutes and [\d,]+ steps in \d.\d minutes, on `hit-mac`", card)
    whole = load_agent("pretrained:two", "hit-mac-2x3")
    assert len(whole.training_seeds) == 2
    assert load_executor("pretrained:two", "hit-mac").training_seeds == whole.training_seeds[1:]
    assert "both/executor is an executor; give a whole agent" in refused("one", "both/executor")
