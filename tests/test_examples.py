"""The examples run, and print what they say."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
import tyro

from hitmac import envs
from hitmac.agents import evaluate as evaluation
from hitmac.perception import MultiHeadAttention

ROOT = Path(__file__).parents[1]
BY_HAND = ROOT / "examples" / "attention_by_hand.py"
PLUGGED_IN = sorted(path for path in (ROOT / "examples").glob("*.py") if path != BY_HAND)
SHORT = {
    "dqn_one_sensor": ["--total-steps", "2100"],
    "onnx_without_torch": ["--episodes", "2", "--steps", "20"],
    "own_agent": ["--episodes", "2"],
    "own_site": ["--episodes", "2"],
    "own_task": ["--total-steps", "100"],
    "pettingzoo_a2c": ["--total-steps", "700"],
    "ppo_gymnasium": ["--total-steps", "100"],
    "rllib_ppo": ["--total-steps", "100"],
    "sb3_own_env": ["--total-steps", "100"],
    "torchrl_ppo": ["--total-steps", "100"],
}
"""Options with which an example takes a few steps only."""
NEEDS = {
    "onnx_without_torch": "onnxruntime",
    "pettingzoo_a2c": "pettingzoo",
    "rllib_ppo": "ray",
    "torchrl_ppo": "torchrl",
}


@pytest.fixture
def printed(capsys):
    def run(path):
        said = runpy.run_path(str(path), run_name="__main__")["__doc__"]
        return textwrap.dedent(said.split("prints::\n\n")[1]), capsys.readouterr().out

    return run


def test_attention_by_hand_prints_what_it_says(printed):
    said, found = printed(BY_HAND)
    assert found == said


def numbers(lines, name, occurrence=0):
    """The matrix printed under a name, for the given time."""
    starts = [number for number, line in enumerate(lines) if line.startswith(f"{name} ")]
    rows = [lines[starts[occurrence]].removeprefix(name).split()]
    for line in lines[starts[occurrence] + 1 :]:
        if not line.startswith("        "):
            break
        rows.append(line.split())
    return np.array(rows, dtype=float)


def test_the_numbers_are_those_of_the_worked_examples(printed):
    """Three inputs of width 4 and a picture of 8 x 8 pixels, as worked out on paper."""
    lines = printed(BY_HAND)[1].splitlines()
    expected = [
        ("queries", 0, [[1, 0, 2], [2, 2, 2], [2, 1, 3]]),
        ("keys", 0, [[0, 1, 1], [4, 4, 0], [2, 3, 1]]),
        ("values", 0, [[1, 2, 3], [2, 8, 0], [2, 6, 3]]),
        ("scores", 0, [[2, 4, 4], [4, 16, 12], [4, 12, 10]]),
        ("outputs", 1, [[2, 7, 1.5], [2, 8, 0], [2, 7.8, 0.3]]),
        ("scores", 1, [[1.1547, 2.3094, 2.3094], [2.3094, 9.2376, 6.9282], [2.3094, 6.9282, 5.7735]]),
        ("weights", 1, [[0.13613, 0.43194, 0.43194], [8.9045e-4, 0.90884, 0.090267], [7.4449e-3, 0.75471, 0.23785]]),
        ("outputs", 2, [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]]),
        ("counts", 0, [[4, 4, 4, 4], [4, 6, 4, 6]] * 2),
        ("scores", 2, [[1, 1, 1, 1], [1, 1.5, 1, 1.5]] * 2),
    ]
    for name, occurrence, matrix in expected:
        np.testing.assert_allclose(numbers(lines, name, occurrence), matrix, atol=5.1e-5, err_msg=name)


def test_shapes_of_several_heads():
    made = MultiHeadAttention(16, 2, query_dim=10, key_dim=10, value_dim=10)
    assert made(torch.randn(32, 20, 10))[0].shape == (32, 20, 16)


@pytest.fixture
def short_episodes(monkeypatch):
    """Evaluates episodes of 50 sub-steps; a task that is registered is taken out again."""
    whole = evaluation.evaluate
    monkeypatch.setattr(
        evaluation, "evaluate", lambda *agents, **options: whole(*agents, **options, max_episode_steps=50)
    )
    tasks = set(envs.TASKS)
    yield
    for name in set(envs.TASKS) - tasks:
        del envs.TASKS[name], gymnasium.registry[f"dsn/{name}-v0"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("path", PLUGGED_IN, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path, monkeypatch, capfd, short_episodes):
    """In a short form, from another folder; it prints figures of its agent and of a baseline, and leaves nothing."""
    if (library := NEEDS.get(path.stem)) and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    if path.stem == "onnx_without_torch":
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, str(path), *SHORT[path.stem]], env=environment, check=True)
    else:
        tyro.cli(runpy.run_path(str(path))["main"], args=SHORT[path.stem])
    said = capfd.readouterr().out
    assert "processor time" in said
    assert len(re.findall(r"\b0\.\d{3}\b", said)) >= 2, said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", PLUGGED_IN, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_reaches(path):
    text = path.read_text()
    assert len(text.splitlines()) < 80
    said = text.split('"""')[1]
    assert f"``python examples/{path.name}``" in said
    figures = re.findall(r"0\.\d{3}", said)
    assert len(figures) >= 2, "of the agent and of a baseline"
    row = next(line for line in (ROOT / "docs/examples.md").read_text().splitlines() if f"/{path.name})" in line)
    assert figures[0] in row
    assert figures[1] in row
