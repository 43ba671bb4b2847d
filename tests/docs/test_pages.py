"""README, pages, examples and site: links resolve, commands parse, code runs, figures agree."""

import argparse
import dataclasses
import importlib
import importlib.util
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
import textwrap

import gymnasium
import pytest
import tyro

from hitmac import envs, train
from hitmac.__main__ import COMMANDS
from hitmac.agents import PolicyConfig, save_policy
from hitmac.agents import evaluate as evaluation
from hitmac.agents.attention import Options as AttentionOptions
from hitmac.agents.evaluate.command import Options as EvaluateOptions
from hitmac.agents.export.folder import main as export
from hitmac.agents.learned.checkpoint import build_policy
from hitmac.agents.pretrained.publish import main as publish
from hitmac.agents.registry import named_agents
from hitmac.agents.reproduce import ROWS
from hitmac.agents.reproduce import Options as ReproduceOptions
from hitmac.agents.scenarios import main as show_scenes
from hitmac.agents.training import config
from hitmac.agents.training.config import JOBS, HitMacOptions
from hitmac.agents.watch import Options as WatchOptions
from hitmac.envs import DEFAULT_FEATURES, TASKS, load_scenario
from hitmac.perception import encoder
from tests.docs.pages import PAGES, ROOT, Shell, inline_commands, steps

BLOCKS = {
    f"{page}, {number}": step.text
    for page in PAGES.keys() - {"docs/tutorial.md"}  # whose blocks run in order
    for number, step in enumerate(step for step in steps(page) if step.kind == "python")
}
WRITTEN = {re.sub(r"\s+#.*$", "", step.text) for page in PAGES for step in steps(page) if step.kind == "command"}
INLINE = {command for page in PAGES for command in inline_commands(page)}
TINY = ["--total-steps", "32", "--num-envs", "2", "--episodes", "1", "--episode-steps", "2", "--weight-dim", "8"]


def save(folder, task="Coverage"):
    """Save an untrained policy of a task as a checkpoint."""
    scenario = load_scenario("hit-mac-6x9")
    config = PolicyConfig(
        policy={"weight_dim": 8}, features=DEFAULT_FEATURES, scenario=scenario, training_seeds=(2**40, 2**40), task=task
    )
    save_policy(folder / "checkpoint", build_policy(config, scenario), config)


# Links and names


@pytest.mark.parametrize("page", PAGES)
def test_files_links_and_modules_exist(page):
    packages = "perception|envs|agents|tests|benchmarks|examples|docs"
    for name in re.findall(rf"`((?:{packages})/[/\w.]*|train\.py)`", PAGES[page]):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`((?:perception|envs|agents)(?:\.\w+)+)`", PAGES[page]):
        assert pkgutil.resolve_name(f"hitmac.{name}") is not None
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", PAGES[page]):
        path, _, section = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.is_file(), link
        headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE) if section else []
        assert not section or section in [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings]


def test_the_readme_links_every_page():
    assert {page for page in PAGES if page.startswith("docs/")} <= set(re.findall(r"\]\((\S+)\)", PAGES["README.md"]))


def test_options_exist(capsys):
    for main in (show_scenes, publish, export):
        with pytest.raises(SystemExit):
            main(["--help"])
    known = {"help", "logdir", "version", "head", "port"} | set(re.findall(r"--([a-z-]+)", capsys.readouterr().out))
    for options in (*JOBS.values(), HitMacOptions, EvaluateOptions, ReproduceOptions, WatchOptions, AttentionOptions):
        known |= {field.name.replace("_", "-") for field in dataclasses.fields(options)}
    for page in PAGES.keys() - {"tools/README.md"}:  # whose programs have their own
        names = {name.removeprefix("no-") for name in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", PAGES[page])}
        assert names <= known, page


def test_the_rows_of_the_results_can_be_reproduced():
    shown = re.search(r"\| agent \| coverage \|.*?\n\n", PAGES["docs/results.md"], re.DOTALL)[0].splitlines()[2:]
    names = {re.sub(r" \(.*\)", "", row.split(" | ")[0].strip("| ").replace("**", "")) for row in shown if row}
    assert {name for name in names if "released" not in name} - {"free turning", "clairvoyant"} <= ROWS.keys()


# Commands

FILM = "hitmac scenarios examples/site/site.yaml --agent planner --film site.gif --size 600"
ELSEWHERE = {  # tested in test_export.py, part of every session, or Ray's
    "python policy/run.py", "source .venv/bin/activate", ".ci/run", "pip install 'hitmac[train,rllib]'",
    "ray start --head --port 6379", "ray start --address 10.0.0.1:6379",
}  # fmt: skip
PLACEHOLDERS = {"S": "0", "SCENE.yaml": "hit-mac", "JOB": "coverage"}


class Parsed(Exception):  # noqa: N818 - raised where the program would begin its work
    """Options that a program has parsed and checked."""


def parsed(monkeypatch, name, arguments):
    """Parse arguments by the program of a command of ``hitmac``, which stops before its work."""
    module = importlib.import_module(COMMANDS[name][0])
    parse_argparse = argparse.ArgumentParser.parse_args

    def stop(parse):
        def parse_and_stop(*given, **options):
            raise Parsed(parse(*given, **options))

        return parse_and_stop

    if name == "train":  # it parses, and then resolves what depends on the scenario, which may not exist

        def resolve(asked, given):
            config.check(config.completed(asked, given - {"start"}, load_scenario("hit-mac")))
            raise Parsed(asked)

        monkeypatch.setattr(module, "resolve", resolve)
    elif hasattr(module, "parse"):
        monkeypatch.setattr(module, "parse", stop(module.parse))
    else:
        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop(parse_argparse))
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(Parsed) as caught:
        module.main()
    return caught.value.args[0]


def check(monkeypatch, words, *, alone=False):
    """Check that a program exists and accepts the options; `alone` allows missing arguments."""
    program, *rest = words
    if program == "make":
        target, *settings = rest
        assert re.search(rf"^(\w+ )*{target}( \w+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
        for name, value in (setting.split("=", 1) for setting in settings):
            assert name in ("ARGS", "PYTHON")
            if name == "ARGS" and target in ("train", "reproduce") and "--help" not in value:
                check_options(monkeypatch, target, shlex.split(value))
    elif program in ("python", "python3"):
        kind, *rest = rest
        if kind == "-c":
            compile(rest[0], "command", "exec")
        elif kind == "train.py":
            check_options(monkeypatch, "train", rest)
        elif kind.startswith("examples/"):
            assert (ROOT / kind).is_file(), kind
        else:
            assert kind == "-m", kind
            assert importlib.util.find_spec(rest[0]) is not None, rest[0]
    else:
        assert program == "hitmac", program
        name, *rest = rest
        assert name in (*COMMANDS, "--help", "--version")
        if name in COMMANDS and "--help" not in rest and (rest or not alone):
            check_options(monkeypatch, name, rest)


def check_options(monkeypatch, name, arguments):
    """Check the arguments of a command of ``hitmac``, and that the presets and agents among them are known."""
    options = parsed(monkeypatch, name, [PLACEHOLDERS.get(one, one) for one in arguments])
    for scenario in str(getattr(options, "scenario", None) or "hit-mac").split(","):
        if not set(scenario) & set("/."):  # no file
            load_scenario(scenario)
    if name == "evaluate":
        known = [agent for agent in options.agents.split(",") if "runs/" not in agent]
        assert not known or named_agents(",".join(known), load_scenario("hit-mac"))


@pytest.mark.parametrize("command", sorted(WRITTEN | INLINE), ids=lambda one: one[:60])
def test_a_command_is_one(command, monkeypatch):
    if command not in ELSEWHERE:
        for one in command.split(" && "):
            program, *words = shlex.split(one)
            check(monkeypatch, [program.removeprefix(".venv/bin/"), *words], alone=command in INLINE)


@pytest.mark.slow
def test_a_film_is_made(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert FILM in WRITTEN
    Shell(tmp_path)(FILM)
    assert (tmp_path / "site.gif").is_file()


# Code


@pytest.fixture
def tables():
    """Removes the tasks and encoders that a page or an example registers."""
    tasks, kinds = set(envs.TASKS), set(encoder.ENCODERS)
    yield
    for name in set(envs.TASKS) - tasks:
        del envs.TASKS[name], gymnasium.registry[f"dsn/{name}-v0"]
    for name in set(encoder.ENCODERS) - kinds:
        del encoder.ENCODERS[name]


@pytest.mark.parametrize(
    "block", [pytest.param(name, marks=[] if "README" in name else [pytest.mark.slow]) for name in sorted(BLOCKS)]
)
def test_a_block_runs(block, tmp_path, monkeypatch, tables):
    save(tmp_path / "runs" / "six-nine")
    monkeypatch.chdir(tmp_path)
    shortened = BLOCKS[block].replace("learn(500_000)", "learn(512)").replace("VecEnv(256)", "VecEnv(16)")
    exec(compile(shortened, block, "exec"), {"__name__": "__main__"})


@pytest.mark.slow
def test_the_tutorial_runs_with_short_trainings(tmp_path):
    """In one folder, each block in its own process; baselines reach the figures on the page."""
    page, shell, shown = "docs/tutorial.md", Shell(tmp_path), ""
    for kind, text in steps(page):
        if ".venv" in text:  # the installation is that of the tests
            continue
        text = text.replace("--total-steps 40000", "--total-steps 2000").replace("range(600)", "range(10)")
        printed = shell(text if kind == "command" else f"python - <<'END'\n{text}\nEND")
        if "evaluate" in text and "yard" not in text:
            shown += printed
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"planner.gif", "first.gif", "yard.yaml", "yard.gif", "runs/first/episode.gif"} <= left
    expected = "".join(re.findall(r"^```text\n(.*?)^```$", PAGES[page], re.DOTALL | re.MULTILINE))
    figures = re.compile(r"^(planner|nearest|random) .*?(0\.\d{3})\b", re.MULTILINE)
    assert figures.findall(shown) == figures.findall(expected)
    assert len(figures.findall(shown)) == 5


@pytest.mark.slow
def test_the_list_of_a_run_is_complete(tmp_path, monkeypatch):
    table = re.search(r"\| file \| content \|\n(.*?)\n\n", PAGES["docs/train.md"], re.DOTALL)
    listed = {name for row in table[1].splitlines()[1:] for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
    save(tmp_path / "executor", "Executor")
    monkeypatch.chdir(tmp_path)
    train.run_command(["coordinator", "--executor", "executor", "--run-dir", "run", "--scenario", "hit-mac-6x9", *TINY])
    left = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert {"tensorboard/" if name.startswith("tensorboard/") else name for name in left} == listed


# Examples

BY_HAND = ROOT / "examples" / "attention_by_hand.py"
PLUGGED_IN = sorted(path for path in (ROOT / "examples").glob("*.py") if path != BY_HAND)
SHORT = {
    "dqn_one_sensor": ["--total-steps", "2100"],
    "onnx_without_torch": ["--episodes", "2", "--steps", "20"],
    "own_agent": ["--episodes", "2"],
    "own_site": ["--episodes", "2"],
    "pettingzoo_a2c": ["--total-steps", "700"],
}
"""Options with which an example takes a few steps only; by default 100 steps."""


def test_attention_by_hand(capsys):
    """It prints what its head shows, and the worked numbers of the mathematics."""
    head = runpy.run_path(str(BY_HAND), run_name="__main__")["__doc__"]
    printed = capsys.readouterr().out
    assert printed == textwrap.dedent(head.split("prints::\n\n")[1])
    assert re.search(r"weights +0\.13613 +0\.43194 +0\.43194\n", printed)
    assert re.search(r"outputs +1\.8639 +6\.3194 +1\.7042\n", printed)


@pytest.fixture
def short_episodes(monkeypatch):
    """Evaluates episodes of 50 sub-steps."""
    whole = evaluation.evaluate
    monkeypatch.setattr(
        evaluation, "evaluate", lambda *agents, **options: whole(*agents, **options, max_episode_steps=50)
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("path", PLUGGED_IN, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path, monkeypatch, capfd, short_episodes, tables):
    """Shortened, from another folder: it prints figures of its agent and of a baseline, and leaves no files."""
    monkeypatch.chdir(tmp_path)
    options = SHORT.get(path.stem, ["--total-steps", "100"])
    if path.stem == "onnx_without_torch":
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, str(path), *options], env=environment, check=True)
    else:
        tyro.cli(runpy.run_path(str(path))["main"], args=options)
    printed = capfd.readouterr().out
    assert "processor time" in printed
    assert len(re.findall(r"\b0\.\d{3}\b", printed)) >= 2, printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", PLUGGED_IN, ids=lambda path: path.stem)
def test_the_figures_of_an_example_are_on_its_page(path):
    head = path.read_text().split('"""')[1]
    assert f"``python examples/{path.name}``" in head
    figures = re.findall(r"0\.\d{3}", head)
    row = next(line for line in PAGES["docs/examples.md"].splitlines() if f"/{path.name})" in line)
    assert len(figures) >= 2, "of the agent and of a baseline"
    assert set(figures[:2]) <= set(re.findall(r"0\.\d{3}", row))


# The site, which `make docs` builds


@pytest.fixture
def extension(monkeypatch):
    pytest.importorskip("sphinx", reason="the documentation needs the extra docs")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return lambda name: importlib.import_module(f"extensions.{name}")


@pytest.mark.parametrize("package", ["hitmac.perception", "hitmac.envs", "hitmac.agents"])
def test_the_reference_has_every_public_name_once(extension, package):
    names = [name for names in extension("reference_pages").REFERENCE[package].values() for name in names]
    assert sorted(names) == sorted(importlib.import_module(package).__all__)


def test_the_example_of_every_environment_runs(extension):
    pages = extension("environment_pages")
    assert pages.AGENTS.keys() == TASKS.keys()
    for task in TASKS.values():
        assert f"autoclass:: hitmac.envs.tasks.{task.__name__}" in pages.environment_page(task)
        exec(pages.EXAMPLE.format(id=task.spec.id), {})


def test_markdown_in_a_docstring_becomes_restructured_text(extension):
    lines = ["## Action", "", "    | key | value |", "    |---|---|", "    | `a` | b, or c |", "", "| no table |"]
    assert extension("markdown_docstrings").restructured(lines) == [
        ".. rubric:: Action", "",
        "", "    .. list-table::", "       :header-rows: 1", "",
        "       * - key", "         - value", "       * - `a`", "         - b, or c", "",
        "", "| no table |",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "page", "link", "expected"),
    [
        ("docs/evaluation.md", "evaluation", "../README.md#results", "project/readme.md#results"),
        ("docs/evaluation.md", "evaluation", "../agents/pretrained/flat/card.md", "pretrained/flat.md"),
        ("README.md", "project/readme", "envs/scenes/hit-mac.png", "../../envs/scenes/hit-mac.png"),
        ("README.md", "project/readme", "https://arxiv.org", "https://arxiv.org"),
    ],
)
def test_links_lead_to_pages_of_the_site(extension, file, page, link, expected):
    assert extension("repository_pages").relinked(f"a [b]({link}).", file, page) == f"a [b]({expected})."
