"""What the README shows, works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agents import PolicyConfig, save_policy
from agents.learned.checkpoint import build_policy
from envs import DEFAULT_FEATURES, load_scenario

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_there_are_examples():
    assert len(BLOCKS) >= 6


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_runs(number, tmp_path):
    """Alone, in a process of its own, with nothing added: as a stranger would run it."""
    scenario = load_scenario("hit-mac-6x9")
    config = PolicyConfig(policy={}, features=DEFAULT_FEATURES, scenario=scenario, training_seeds=(2**40, 2**40))
    save_policy(tmp_path / "runs" / "six-nine" / "checkpoint", build_policy(config, scenario), config)
    shortened = BLOCKS[number]
    for long, short in {"learn(500_000)": "learn(512)", "VecEnv(256)": "VecEnv(16)", "range(1010)": "range(3)"}.items():
        shortened = shortened.replace(long, short)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", shortened], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_every_package_and_file_named_is_there():
    for name in re.findall(r"`((?:perception|envs|agents|tests|benchmarks)[/\w.]*\.(?:py|yaml))`", README):
        assert (ROOT / name).is_file(), name
