"""The README and the pages under docs: their examples run, and what they name exists."""

import dataclasses
import os
import pkgutil
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

from hitmac.agents import PolicyConfig, save_policy
from hitmac.agents.attention import Options as AttentionOptions
from hitmac.agents.evaluate.command import Options as EvaluateOptions
from hitmac.agents.export.folder import main as export
from hitmac.agents.learned.checkpoint import build_policy
from hitmac.agents.pretrained.publish import main as publish
from hitmac.agents.reproduce import Options as ReproduceOptions
from hitmac.agents.scenarios import main as show_scenes
from hitmac.agents.training.config import JOBS, HitMacOptions
from hitmac.agents.watch import Options as WatchOptions
from hitmac.envs import DEFAULT_FEATURES, load_scenario
from tests.documents import PAGES, ROOT, steps

README = PAGES["README.md"]
BLOCKS = {
    f"{page}, {number}": step.text
    for page in PAGES.keys() - {"docs/tutorial.md"}  # which test_tutorial.py runs in order
    for number, step in enumerate(step for step in steps(page) if step.kind == "python")
}
TINY = ["--total-steps", "32", "--num-envs", "2", "--episodes", "1", "--episode-steps", "2", "--weight-dim", "8"]


def save(folder, task="Coverage"):
    """Save an untrained policy of a task as a checkpoint."""
    scenario = load_scenario("hit-mac-6x9")
    config = PolicyConfig(
        policy={"weight_dim": 8}, features=DEFAULT_FEATURES, scenario=scenario, training_seeds=(2**40, 2**40), task=task
    )
    save_policy(folder / "checkpoint", build_policy(config, scenario), config)


def test_the_readme_links_every_page():
    for page in PAGES.keys() - {"README.md"}:
        assert f"]({page})" in README, page


def test_there_are_examples():
    assert len(BLOCKS) >= 10


@pytest.mark.parametrize(
    "example", [pytest.param(name, marks=[] if "README" in name else [pytest.mark.slow]) for name in sorted(BLOCKS)]
)
def test_an_example_runs(example, tmp_path):
    """Alone, in a process of its own, with nothing added: as a stranger would run it."""
    save(tmp_path / "runs" / "six-nine")
    (tmp_path / "runs" / "six-nine" / "tensorboard").mkdir()
    shortened = BLOCKS[example]
    for long, short in {"learn(500_000)": "learn(512)", "VecEnv(256)": "VecEnv(16)", "range(1010)": "range(3)"}.items():
        shortened = shortened.replace(long, short)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", shortened], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("page", PAGES)
def test_every_file_and_link_is_there(page):
    packages = "perception|envs|agents|tests|benchmarks|examples|docs"
    for name in re.findall(rf"`((?:{packages})/[/\w.]*|train\.py)`", PAGES[page]):
        assert (ROOT / name).exists(), name
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", PAGES[page]):
        path, _, section = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.is_file(), link
        headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE) if section else []
        assert not section or section in [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings]


@pytest.mark.parametrize("page", PAGES)
def test_every_module_named_is_there(page):
    for name in re.findall(r"`((?:perception|envs|agents)(?:\.\w+)+)`", PAGES[page]):
        assert pkgutil.resolve_name(f"hitmac.{name}") is not None


def test_every_room_is_on_the_map():
    for package in ("perception", "envs", "agents"):
        for path in (ROOT / package).rglob("__init__.py"):
            assert f"| `{path.parent.relative_to(ROOT)}/` |" in README


@pytest.mark.parametrize("page", PAGES)
def test_every_option_is_one(page, capsys):
    for main in (show_scenes, publish, export):
        with pytest.raises(SystemExit):
            main(["--help"])
    known = {"help", "logdir", "version", "head", "port"} | set(re.findall(r"--([a-z-]+)", capsys.readouterr().out))
    for options in (*JOBS.values(), HitMacOptions, EvaluateOptions, ReproduceOptions, WatchOptions, AttentionOptions):
        known |= {field.name.replace("_", "-") for field in dataclasses.fields(options)}
    for name in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", PAGES[page]):
        assert name.removeprefix("no-") in known, name


@pytest.mark.slow
def test_the_list_of_a_run_is_complete(tmp_path):
    table = re.search(r"\| file \| content \|\n(.*?)\n\n", README, re.DOTALL)
    listed = {name for row in table[1].splitlines()[1:] for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
    save(tmp_path / "executor", "Executor")
    options = ["coordinator", "--executor", "executor", "--run-dir", "run", "--scenario", "hit-mac-6x9", *TINY]
    command = [sys.executable, str(ROOT / "train.py"), *options]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    left = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert {"tensorboard/" if name.startswith("tensorboard/") else name for name in left} == listed


def test_the_citation_is_of_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert f"version = {{{project['version']}}}" in README
    assert citation["title"] in README
    assert citation["references"][0]["title"] in README
