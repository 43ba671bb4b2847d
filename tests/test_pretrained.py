"""The policies that come with the package: they load by name, cover what their cards say, and run no code."""

import json
import re
from pathlib import Path

import pytest

from hitmac.agents import load_agent
from hitmac.agents.evaluate import evaluate
from hitmac.agents.pretrained import pretrained, pretrained_folder
from hitmac.envs import load_scenario


@pytest.mark.parametrize("name", pretrained())
def test_a_pretrained_policy_covers_what_its_card_says(name):
    card = (pretrained_folder(name) / "card.md").read_text()
    scenario, low = re.search(r"On `([\w-]+)`: coverage ([\d.]+)", card).groups()
    assert re.search(r"`python train.py .*`", card)
    scene = load_scenario(scenario)
    agents = evaluate([f"pretrained:{name}", "random"], scene, episodes=12, seed=10**6, progress=False)["agents"]
    # Twelve other episodes: the mean has a standard error of 0.011.
    assert agents[f"pretrained:{name}"]["coverage"]["mean"] > float(low) - 0.05
    assert agents[f"pretrained:{name}"]["coverage"]["mean"] > agents["random"]["coverage"]["mean"] + 0.3


@pytest.mark.parametrize("name", pretrained())
def test_a_pretrained_policy_is_small_and_plain(name):
    files = {path.name: path for path in pretrained_folder(name).rglob("*") if path.is_file()}
    assert set(files) == {"card.md", "config.json", "policy.safetensors"}
    assert sum(path.stat().st_size for path in files.values()) < 1_000_000
    seeds = json.loads(files["config.json"].read_text())["training_seeds"]
    assert seeds[0] >= 2**40
    agent = load_agent(f"pretrained:{name}", "hit-mac-2x3")
    assert agent.trained
    assert agent.training_seeds == (tuple(seeds),)


def test_an_unknown_name_gets_the_known_ones():
    assert "flat" in pretrained()
    with pytest.raises(ValueError, match=r"policy 'flatt' \(did you mean flat\?\): known are .*flat"):
        load_agent("pretrained:flatt", "hit-mac")
    assert Path(pretrained_folder("flat")).is_dir()
