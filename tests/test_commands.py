"""The commands in the README and the pages: quick ones run as they stand, the others are parsed by their programs."""

import argparse
import importlib
import importlib.util
import re
import shlex
import sys

import pytest

from hitmac.__main__ import COMMANDS
from hitmac.agents.registry import named_agents
from hitmac.agents.training import config
from hitmac.envs import load_scenario
from tests.documents import PAGES, ROOT, Shell, inline_commands, steps

QUICK = {
    "hitmac --help",
    "hitmac scenarios",
    "python -m examples.attention_by_hand",
    "python -c \"from hitmac import envs; help(envs.TASKS['Coverage'])\"",
}
"""Commands that run as they stand."""

FILMS = {
    "hitmac scenarios large --film out.gif --agent random",
    "hitmac scenarios football-4 --film out.gif --agent belief-planner",
    "hitmac scenarios examples/site/site.yaml --agent planner --film site.gif --size 600",
}
"""Commands that run as they stand, too, and take some seconds; those of the tutorial run in test_tutorial.py."""

ELSEWHERE = {
    "python policy/run.py", "source .venv/bin/activate", ".ci/run", "pip install 'hitmac[train,rllib]'",
    "ray start --head --port 6379", "ray start --address 10.0.0.1:6379",
}  # fmt: skip
"""Commands of which other tests see that they work (test_export.py), which begin everything else, or are Ray's."""

TARGETS = {"train": "train", "reproduce": "reproduce"}
"""Names in :data:`COMMANDS` of the programs that get the ARGS of a target of the Makefile."""

PLACEHOLDERS = {"S": "0", "SCENE.yaml": "hit-mac"}
"""Values for what a page leaves open."""

WRITTEN = [(page, step.text) for page in PAGES for step in steps(page) if step.kind == "command"]
INLINE = [(page, command) for page in PAGES for command in inline_commands(page)]


class Parsed(Exception):  # noqa: N818 - no error: the program would begin its work now
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
    """Check a command: its program is there, and takes the options; `alone` allows that it lacks arguments."""
    program, *rest = words
    if program == "make":
        target, *settings = rest
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
        for name, value in (setting.split("=", 1) for setting in settings):
            assert name in ("ARGS", "PYTHON")
            if name == "ARGS" and target in TARGETS and "--help" not in value:
                check_options(monkeypatch, TARGETS[target], shlex.split(value))
        return
    if program in ("python", "python3"):
        kind, *rest = rest
        if kind == "-c":
            compile(rest[0], "command", "exec")
            return
        if kind == "train.py":
            name = "train"
        elif kind.startswith("examples/"):
            assert (ROOT / kind).is_file(), kind
            return
        else:
            assert kind == "-m", kind
            assert importlib.util.find_spec(rest[0]) is not None, rest[0]
            return
    else:
        assert program == "hitmac", program
        name, *rest = rest
        if name in ("--help", "--version"):
            return
        assert name in COMMANDS
    if rest or not alone:
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


def test_the_pages_have_commands():
    written = {command for _, command in WRITTEN} | {command for _, command in INLINE}
    assert len(written) > 60
    without_comments = {shown(command) for command in written}
    assert without_comments >= (QUICK | FILMS | ELSEWHERE)


def shown(command):
    """Return a command without its comment."""
    return re.sub(r"\s+#.*$", "", command)


@pytest.mark.parametrize(("page", "command"), WRITTEN, ids=lambda one: one[:60])
def test_a_command_is_one(page, command, monkeypatch, capsys):
    if shown(command) in ELSEWHERE:
        return
    for one in command.split(" && "):
        program, *words = shlex.split(one, comments=True)
        check(monkeypatch, [program.removeprefix(".venv/bin/"), *words])


@pytest.mark.parametrize(("page", "command"), INLINE, ids=lambda one: one[:60])
def test_a_command_in_a_sentence_is_one(page, command, monkeypatch):
    if command not in ELSEWHERE:
        check(monkeypatch, shlex.split(command), alone=True)


@pytest.mark.parametrize("command", sorted(QUICK))
def test_a_quick_command_runs(command, tmp_path):
    assert Shell(tmp_path)(command)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(FILMS))
def test_a_film_is_made(command, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    Shell(tmp_path)(command)
    assert len(list(tmp_path.glob("*.gif"))) == 1
