"""README, pages, examples and site: links resolve, commands parse, code runs, figures agree."""

import ast
import dataclasses
import importlib
import json
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from unittest.mock import patch

import gymnasium
import numpy as np
import pytest
import tyro

from hitmac import train
from hitmac.__main__ import COMMANDS
from hitmac.__main__ import main as hitmac
from hitmac.agents import evaluate as evaluation
from hitmac.agents import load_policy
from hitmac.agents.command_line import parse
from hitmac.agents.deploy.run.detections import parse as parse_line
from hitmac.agents.deploy.run.drivers import load_sections
from hitmac.agents.deploy.run.operation import Operations, load_operations
from hitmac.agents.deploy.run.pictures import load_views
from hitmac.agents.deploy.run.stills import Still
from hitmac.agents.deploy.site import command as site
from hitmac.agents.evaluate import benchmark
from hitmac.agents.evaluate.logs import read_log
from hitmac.agents.names import named_agents
from hitmac.agents.training import report
from hitmac.agents.training.config import check, completed, given_options, with_seed_range
from hitmac.envs import TASKS, load_scenario
from hitmac.envs.files import parse_yaml
from hitmac.envs.observation import OBSERVERS
from hitmac.perception import encoder
from tests.agents.deploy.run.camera_servers import Motor, ViscaServer
from tests.agents.deploy.run.fakes import SITE, detecting
from tests.agents.training import brief
from tools import reproduce

ROOT = Path(__file__).parents[2]
FORMS = {"site": site.FORMS, "benchmark": benchmark.FORMS}
FILES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tools/README.md")), *(ROOT / "docs").glob("*.md")]
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(FILES)}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def indented(text):
    """Return the commands of the indented blocks, with continued lines joined, without comments."""
    blocks = re.findall(r"(?:\A|\n)\n((?: {4}\S.*\n(?: {5,}\S.*\n|\n(?= {4}\S))*)+)", text)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [re.sub(r"\s+", " ", re.sub(r"\s+#.*$", "", line)).strip() for line in lines if line.strip()]


def steps(page):
    """Return the blocks of Python of a page, and its commands in indented blocks, in order, each with its kind."""
    found, text, end = [], PAGES[page], 0
    for block in FENCED.finditer(text):
        found += [("command", command) for command in indented(text[end : block.start()])]
        found += [("python", block[2])] * (block[1] == "python")
        end = block.end()
    return found + [("command", command) for command in indented(text[end:])]


BLOCKS = {
    f"{page}, {number}": text
    for page in PAGES.keys() - {"docs/tutorial.md"}  # whose blocks run in order
    for number, text in enumerate(text for kind, text in steps(page) if kind == "python")
}
WRITTEN = {text for page in PAGES for kind, text in steps(page) if kind == "command"}
INLINE = {
    " ".join(command.split())
    for text in PAGES.values()
    for command in re.findall(r"(?<!`)`((?:hitmac|make)\s[^`]+)`(?!`)", FENCED.sub("", text))
}


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
    known = {"help", "import", "logdir", "version", "head", "port", "model", "option"}  # the last two of make baselines
    fields = [
        reproduce.Options,
        *train.COMMANDS.values(),
        *(options for forms in FORMS.values() for options, *_ in forms.values()),
    ]
    for name, (place, _) in COMMANDS.items():
        module = importlib.import_module(place)
        if hasattr(module, "Options"):
            fields.append(module.Options)
        elif name not in ("train", *FORMS):
            with pytest.raises(SystemExit):
                module.main(["--help"])
    known |= set(re.findall(r"--([a-z-]+)", capsys.readouterr().out))
    known |= {field.name.replace("_", "-") for kind in fields for field in dataclasses.fields(kind)}
    for page in PAGES.keys() - {"tools/README.md"}:  # whose programs have their own
        names = {name.removeprefix("no-") for name in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", PAGES[page])}
        assert names <= known, page


def test_the_rows_of_the_results_can_be_reproduced():
    shown = re.search(r"\| agent \| coverage \|.*?\n\n", PAGES["docs/results.md"], re.DOTALL)[0].splitlines()[2:]
    names = {re.sub(r" \(.*\)", "", row.split(" | ")[0].strip("| ").replace("**", "")) for row in shown if row}
    assert {name for name in names if "released" not in name} - {"free turning", "clairvoyant"} <= reproduce.ROWS.keys()


# Commands

PLACEHOLDERS = {"S": "0", "SCENE.yaml": "hit-mac", "AGENT": "still"}
PROGRAMS = sorted(one for one in WRITTEN | INLINE if one.startswith(("hitmac ", "make ")) and "--import" not in one)


def parsed(name, arguments):
    """Parse the arguments of a command of ``hitmac`` with options."""
    if name in FORMS:
        options, _, first = FORMS[name][arguments.pop(0)]
        return parse(options, name, arguments, first=first)
    if name != "train":
        first = {"scenarios": "--scenario", "run": "--agent", "export": "--agent"}.get(name, "--agents")
        return parse(importlib.import_module(COMMANDS[name][0]).Options, name, arguments, first=first)
    job = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "coverage"
    arguments = with_seed_range(arguments)
    options = parse(train.COMMANDS[job], name, arguments)
    if (getattr(options, "start", None) or "").startswith("runs/"):  # a run of the reader's
        options = dataclasses.replace(options, start=None)
    given = given_options(type(options), arguments) - {"start"}
    check(completed(options, given, scenarios_of(options)[0]))
    return options


def scenarios_of(options):
    """Load the presets of the options; hit-mac in place of files, which may not exist."""
    names = (getattr(options, "scenario", None) or "hit-mac").split(",")
    return [load_scenario("hit-mac" if set(name) & set("/.") else name) for name in names]


@pytest.mark.parametrize("command", PROGRAMS, ids=lambda one: one[:60])
def test_a_command_is_one(command):
    """Its program exists and accepts the options, whose presets and agents are known.

    A sentence may name a command whose options are required without them.
    """
    program, name, *rest = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
    if program == "make":
        assert re.search(rf"^(\w+ )*{name}( \w+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        rest = shlex.split(rest[0].removeprefix("ARGS=")) if rest else []
    else:
        assert name in (*COMMANDS, "--help", "--version")
    if program == "make" and name == "reproduce":
        parse(reproduce.Options, name, rest)
    elif name in COMMANDS.keys() - {"pretrained"} and "--help" not in rest and command != "hitmac export":
        options = parsed(name, rest)
        known = [agent for agent in ",".join(getattr(options, "agents", ())).split(",") if "runs/" not in agent]
        known = [agent for agent in known if not agent.endswith(".jsonl")]
        assert known == [""] or named_agents(known or "still", scenarios_of(options)[0])


def test_every_training_has_a_directory_of_its_own():
    """Readers run the commands of several pages in one directory."""
    trainings = [command for command in sorted(WRITTEN) if "--resume" not in command]
    made = re.findall(r"--run-dir (\S+)", "\n".join(trainings))
    assert len(made) > 10
    assert sorted(made) == sorted(set(made))


# Code


@pytest.fixture
def tables():
    """Removes the tasks, observers and encoders that a page or an example registers."""
    with patch.dict(TASKS), patch.dict(OBSERVERS), patch.dict(gymnasium.registry), patch.dict(encoder.ENCODERS):
        yield


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, tables):
    """Runs a block of Python or a command in an empty directory; returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(kind, text):
        if kind == "python":
            exec(compile(text, "block", "exec"), {"__name__": "__main__"})
        else:
            monkeypatch.setattr(sys, "argv", shlex.split(text))
            hitmac()
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    "block", [pytest.param(name, marks=[] if "README" in name else [pytest.mark.slow]) for name in sorted(BLOCKS)]
)
def test_a_block_runs(block, run):
    short = {"learn(500_000)": "learn(512)", "VecEnv(256)": "VecEnv(16)"}
    short["--total-steps 20000"] = "--total-steps 64 --num-envs 2 --batch-size 8 --weight-dim 4 --episode-steps 20"
    run("python", re.sub("|".join(map(re.escape, short)), lambda found: short[found[0]], BLOCKS[block]))


@pytest.mark.slow
def test_the_tutorial_runs_with_short_trainings(run):
    """Block by block; baselines reach the figures on the page."""
    page, shown = "docs/tutorial.md", ""
    for kind, text in steps(page):
        if ".venv" in text:  # the installation is that of the tests
            continue
        text = text.replace("--total-steps 40000 --episodes 20", "--total-steps 512 --num-envs 16 --episodes 1")
        text = text.replace("range(600)", "range(10)") + " --steps 5" * (" --film " in text)
        if "yard.yaml --agents" in text:
            text += " --max-episode-steps 20"
        printed = run(kind, text)
        shown += printed if "evaluate" in text and "yard" not in text else ""
    left = {str(path) for path in Path().rglob("*") if path.is_file()}
    assert {"planner.gif", "first.gif", "yard.yaml", "yard.gif", "runs/intro/episode.gif"} <= left
    expected = "".join(re.findall(r"^```text\n(.*?)^```$", PAGES[page], re.DOTALL | re.MULTILINE))
    figures = re.compile(r"^(planner|nearest|random) .*?(0\.\d{3})\b", re.MULTILINE)
    assert figures.findall(shown) == figures.findall(expected)
    assert len(figures.findall(shown)) == 5


@pytest.mark.slow
def test_commands_know_what_an_imported_module_registers(run, monkeypatch):
    """The first commands of the page, with its classes in a module; a process of its own trains each seed."""
    blocks = [text.split("\nenv = ")[0] for name, text in sorted(BLOCKS.items()) if "envs.register_" in text]
    assert len(blocks) == 2, "a task and an observer"
    Path("my_module.py").write_text("\n".join(blocks))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, value in brief.OWN_PROCESS.items():
        monkeypatch.setenv(name, value)
    for name, value in (brief.SHORT_EPISODES | brief.FEW_FILES).items():
        monkeypatch.setattr(report, name, value)
    train, evaluate, watch = (text for kind, text in steps("docs/extend.md") if kind == "command")
    few = "--num-envs 2 --rollout-steps 4 --batch-size 8 --weight-dim 4 --episodes 1"
    with patch.dict(sys.modules):
        run("command", f"{train} --seeds 2 {few}".replace("100000", "8"))
        assert "\nruns/entrance (2 seeds)" in run("command", f"{evaluate} --episodes 2 --max-episode-steps 20")
        run("command", f"{watch}/seed-1 --sub-steps 20 --no-open")
    with (
        patch.dict(OBSERVERS, clear=True),
        pytest.raises(ValueError, match=r"feature crowded.*by --import MODULE"),
    ):
        load_policy("runs/entrance/seed-0")
    del TASKS["Entrance"]
    with pytest.raises(ValueError, match=r"task is 'Entrance'; it must be .*by --import MODULE"):
        load_policy("runs/entrance/seed-0")


def test_a_site_is_made_from_what_you_have(run):
    """The commands of the section in a row, with a plan, a table, pairs of points and recordings of its names."""
    pytest.importorskip("pyproj", reason="the extra site")
    corners = [[11.57, 48.14], [11.5704, 48.14], [11.5704, 48.1402], [11.57, 48.1402]]
    features = [
        {"properties": {"kind": kind, **more}, "geometry": {"type": shape, "coordinates": coordinates}}
        for kind, shape, coordinates, more in (
            ("wall", "Polygon", [[*corners, corners[0]]], {}), ("door", "Point", [11.5702, 48.14], {"width": 2}),
        )
    ]  # fmt: skip
    Path("plan.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    Path("cameras.csv").write_text("name,longitude,latitude,heading\nnorth,11.57002,48.14018,-45\n")
    pairs = zip([(0, 480), (640, 480), (640, 0), (0, 0)], corners, strict=True)
    Path("north.csv").write_text("u,v,longitude,latitude\n" + "".join(f"{u},{v},{x},{y}\n" for (u, v), (x, y) in pairs))
    walk = "".join(f"{k},1,{100 + 2 * k},40,20,200\n" for k in range(1, 101))
    for name in ("monday.txt", "tuesday.txt"):
        Path(name).write_text(walk)
    section = PAGES["docs/site.md"].split("## From what you have\n")[1].split("\n## ")[0]
    assert len(section.split()) <= 250
    printed = [run("command", command) for command in indented(section)]
    assert f"site.yaml: 29.8 m x 22.2 m, 5 walls; {re.search(r'--origin .* --geographic', section)[0]}" in printed[0]
    assert "day-1.csv: 100 positions of 1 targets" in printed[1]
    assert printed[-1].startswith("site.png: no camera can ever see ")


def test_cameras_turn_as_the_page_says(run):
    """The commands of the page in a row, shorter; a detector sends to the second by UDP."""
    SITE.replace(time_step=0.05).save("site.yaml")
    Path("cameras.yaml").write_text("0: {driver: simulated}\n1: {driver: simulated}\n")
    rehearsal, real, watch, evaluate, part = indented(PAGES["docs/run.md"])
    line = re.search(r"```json\n(.*?)\n```", PAGES["docs/run.md"])[1].replace('"north", "time": 1700000000.25', "1")
    run("command", rehearsal.replace("--port 8000", "--port 0 --minutes 0.01"))
    short = real.replace("--port 8000", "--port 0 --minutes 0.01 --log real.jsonl --log-detections")
    with detecting(line.encode()) as address:
        run("command", short.replace("5005", str(address[1])))
    detections = [frame.tolist() for frame in read_log("real.jsonl").detections if len(frame)]
    assert detections[0] == [[1.0, 12.4, 3.1], [1.0, 2.0, -4.5]]
    assert run("command", watch).startswith("watch.html: belief-planner-fast; ")
    start = read_log("rehearsal.jsonl").time[0]
    Path("truth.csv").write_text(f"time,id,x,y\n{start},a,0,0\n{start + 10},a,1,1\n")
    assert "\ngospa" in run("command", evaluate)
    subprocess.run(part.replace("14400", "2"), shell=True, check=True)
    assert read_log("hour.jsonl").time.tolist() == read_log("rehearsal.jsonl").time[-2:].tolist()


def test_what_operators_set_is_as_the_page_says(tmp_path, monkeypatch):
    page = PAGES["docs/run.md"].split("## What operators set")[1]
    (tmp_path / "cameras.yaml").write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    monkeypatch.setenv("VIEWER_PASSWORD", "open sesame")
    hall = SITE.replace(num_sensors=1, sensor_positions=[(0, 0)], pan_limits=[(-90, 90)], sensor_headings=[0])
    hall = hall.replace(sensor_names=["north"], sensing_range=20)
    (operation,) = load_operations(tmp_path / "cameras.yaml", hall)
    (still,) = load_sections(tmp_path / "cameras.yaml", hall, "page", Still)
    assert (operation.moves_an_hour, still.user) == (60, "viewer")
    assert Operations([operation], hall).privacy()[0].fault() == ""
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)} - {"operation"}
    assert listed == {field.name for field in dataclasses.fields(operation)}


@pytest.fixture
def port():
    """Port of a played camera at the pan 0 and the tilt -15."""
    with ViscaServer(Motor(0.0)) as server:
        server.tilt.jump(-15.0)
        yield server.port


def test_a_camera_is_calibrated_as_the_page_says(run, port):
    """The commands of the page in a row, with the rows of the example; the line has its place in the run."""
    Path("examples").symlink_to(ROOT / "examples")
    page = PAGES["docs/pixels.md"]
    cameras, make, calibrate, _, real, tracks = indented(page)
    assert cameras.startswith("cp examples/site/cameras.yaml .")
    run("command", make)
    names = load_scenario("site.yaml").sensor_names
    listed = Path("examples/site/cameras.yaml").read_text()
    assert list(parse_yaml(listed)) == list(names)
    real_one = f"shop-east: {{driver: visca, host: 127.0.0.1, port: {port}}}"
    Path("cameras.yaml").write_text(listed.replace("shop-east: {driver: simulated}", real_one))
    printed = run("command", calibrate)
    assert re.search(r"height +4\.2", printed)
    assert "do not determine" not in printed.replace("do not determine the distortion", "")
    assert re.search(r"```text\n(.*?)```", page, re.DOTALL)[1] in Path("examples/site/shop-east.csv").read_text()
    line = re.search(r"```json\n(.*?)\n```", page)[1].encode()
    camera, _, boxes = parse_line(line, names)
    view = load_views("cameras.yaml", load_scenario("site.yaml"))[camera]
    with detecting(re.sub(rb'"time": \S+ ', b"", line)) as address:
        short = f"{real} --port 0 --paused --minutes 0.02 --log real.jsonl --log-detections"
        run("command", re.sub(r"mqtt://\S+", f"udp://127.0.0.1:{address[1]}", short.replace("--port 8000 ", "")))
    (shown,) = {tuple(row) for frame in read_log("real.jsonl").detections[2:] for row in frame.tolist()}
    pose = view.zero, -15.0, 1.0  # the camera on the loopback stands still at pan 0
    np.testing.assert_allclose(shown, (camera, *view.floor(view.foot(boxes.box), *pose)[0]), atol=0.1)
    Path("boxes.txt").write_text("1,1,900,300,60,220,1\n2,1,904,300,60,220,1\n")
    assert "2 positions of 1 targets" in run("command", tracks)
    table = page.split("## Settings")[1]
    listed = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert listed <= {field.name for field in dataclasses.fields(view)}


# Examples

BY_HAND = ROOT / "examples" / "attention_by_hand.py"
PLUGGED_IN = sorted(path for path in (ROOT / "examples").glob("*.py") if path != BY_HAND)
SHORT = {
    "dqn_one_sensor": ["--total-steps", "2100"],
    "onnx_without_torch": ["--episodes", "2", "--steps", "20"],
    "own_agent": ["--episodes", "2"],
    "own_site": ["--episodes", "2"],
    "pettingzoo_a2c": ["--total-steps", "700"],
    "sb3_select": ["--total-steps", "100", "--episodes", "40"],
}
"""Options with which an example takes a few steps only; by default 100 steps."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda path: path.stem)
def test_help_explains_an_example_and_does_nothing_else(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    try:
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(path), run_name="__main__")
    except ModuleNotFoundError as missing:  # of another project
        pytest.skip(str(missing))
    head = ast.get_docstring(ast.parse(path.read_text())).split()
    assert not end.value.code
    assert head[:3] == [word for word in capsys.readouterr().out.split() if word in head][:3]


def test_attention_by_hand(capsys, monkeypatch):
    """It prints what its head shows."""
    monkeypatch.setattr(sys, "argv", [str(BY_HAND)])
    head = runpy.run_path(str(BY_HAND), run_name="__main__")["__doc__"]
    printed = capsys.readouterr().out
    assert printed == textwrap.dedent(head.split("prints::\n\n")[1])
    assert re.search(r"weights +0\.13613 +0\.43194 +0\.43194\n", printed)
    assert re.search(r"outputs +1\.8639 +6\.3194 +1\.7042\n", printed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("path", PLUGGED_IN, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path, monkeypatch, capfd, tables):
    """Shortened, from another folder: it prints figures of its agent and of a baseline, and leaves no files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluation, "evaluate", partial(evaluation.evaluate, max_episode_steps=50))
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
