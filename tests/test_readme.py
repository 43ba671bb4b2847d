"""What the README shows, works."""

import re
from pathlib import Path

import pytest

from agents import PolicyConfig, save_policy
from agents.checkpoint import build_policy
from envs import DEFAULT_FEATURES, load_scenario

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_there_are_examples():
    assert len(BLOCKS) >= 6


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario("hit-mac-6x9")
    config = PolicyConfig(policy={}, features=DEFAULT_FEATURES, scenario=scenario, training_seeds=(2**40, 2**40))
    save_policy("runs/six-nine/checkpoint", build_policy(config, scenario), config)
    shortened = BLOCKS[number].replace("learn(500_000)", "learn(512)").replace("range(1010)", "range(3)")
    exec("import gymnasium, envs\n" + shortened, {})


def test_every_package_and_file_named_is_there():
    for name in re.findall(r"`((?:perception|envs|agents|tests|benchmarks)[/\w.]*\.(?:py|yaml))`", README):
        assert (Path(__file__).parents[1] / name).is_file(), name
