"""Typed command line options, and one-line error messages."""

import contextlib
import dataclasses
import importlib
import io
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from itertools import dropwhile, pairwise, takewhile
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NoReturn, TypeVar

import torch
import tyro

from hitmac.envs.base.threads import cores
from hitmac.envs.validation import did_you_mean, field_types, help_texts

Options = TypeVar("Options")

Agents = Annotated[tuple[str, ...], tyro.conf.arg(aliases=["--agent"])]
"""Type of the option ``--agents`` of all commands, names for :func:`hitmac.agents.names.named_agents`."""

Forms = Mapping[str, tuple[type, Callable[[Any], None], str]]
"""Options, function and first option of each form of a command, such as ``hitmac site make``."""

IMPORTS = "HITMAC_IMPORTS"
"""Environment variable with the modules of ``--import``, for the processes that a command starts."""

_IMPORT = tyro.conf.arg(name="import", help="Module of your own to import first, for the names that it registers.")


def import_own(place: str, label: str) -> ModuleType:
    """Import a module from the current directory or an installed package; raise ValueError, with `label`, for none."""
    if not all(part.isidentifier() for part in place.split(".")):
        raise ValueError(f"{label} is {place!r}; it must be a module's name, such as my_module")
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # the module exists, but one of its imports does not
        raise ValueError(f"{label}: no module {place} in the current directory, nor installed") from None


def with_values_apart(arguments: Sequence[str], option: str) -> list[str]:
    """Return a command line with each ``option=value`` as two arguments."""
    return [part for one in arguments for part in (one.split("=", 1) if one.startswith(f"{option}=") else (one,))]


def import_modules(arguments: Sequence[str]) -> None:
    """Import the modules of ``--import``, also the parent process's; raise ValueError for an absent one."""
    texts = pairwise(with_values_apart(arguments, "--import"))
    given = [os.environ.get(IMPORTS, ""), *(module for option, module in texts if option == "--import")]
    modules = dict.fromkeys(filter(None, ",".join(given).split(",")))
    for module in modules:
        import_own(module, "--import")
    if modules:
        places = dict.fromkeys([os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        os.environ |= {IMPORTS: ",".join(modules), "PYTHONPATH": os.pathsep.join(filter(None, places))}


def parse(
    options: type[Options],
    program: str,
    arguments: Sequence[str] | None = None,
    default: Options | None = None,
    description: str | None = None,
    first: str = "",
) -> Options:
    """Parse the options of the command line, a dataclass; an invalid one ends the program with a one-line message.

    By default `arguments` are those of the process, `default` is the dataclass, and `description` its docstring. A
    field without a default has to be given. The value of the option `first` may stand first, without its name. Every
    command also has the option ``--import``.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if first and given and not given[0].startswith("-"):
        given.insert(0, first)
    with stop_on_bad_input(program):
        import_modules(given)
    kind: Any = options
    texts, types = help_texts(kind), field_types(kind)
    values = {name: getattr(options if default is None else default, name, dataclasses.MISSING) for name in types}
    names = {f"--{name.replace('_', '-')}": value for name, value in values.items()} | {"--import": ()}
    for option, value in pairwise((*given, "--")):  # such as *.csv where no file matches
        if isinstance(names.get(option), tuple) and value.startswith("--"):
            _refuse(program, f"{option} is given without a value (see --help)")
    fields = [  # with the allowed values in the help
        (name, Annotated[types[name], tyro.conf.arg(help=texts[name])], dataclasses.field(default=value))
        for name, value in values.items()
    ]
    several: Any = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, _IMPORT]
    fields.append(("modules", several, dataclasses.field(default=())))
    helped: Any = dataclasses.make_dataclass(options.__name__, fields, frozen=True)
    errors, config = io.StringIO(), (tyro.conf.FlagCreatePairsOff,)
    try:
        with contextlib.redirect_stderr(errors):
            parsed = tyro.cli(
                helped, prog=program, description=description or options.__doc__, args=given, config=config
            )
    except SystemExit as end:
        if not end.code:
            raise
        # The parser draws a box of many lines, with dashes in plain terminals; the message is between its title and the
        # next rule.
        text = [re.sub("[│╭╮╰╯─]|^ *--+ *$", "", line).strip() for line in errors.getvalue().splitlines()]
        reason = " ".join(takewhile(bool, dropwhile(lambda line: not line, text[1:])))
        required = [option for option, value in names.items() if value is dataclasses.MISSING]
        lacking = set(required) - {one.split("=")[0] for one in given}
        if lacking and reason.startswith(("Missing", "The following arguments are required")):  # newer, older versions
            reason = f"{' and '.join(sorted(lacking, key=required.index))} must be given"
        for problem, kind in (
            ("invalid literal for int() with base 10", "whole "),
            ("could not convert string to float", ""),
        ):
            wanted = rf"\1 is \2; it must be a {kind}number"
            reason = re.sub(rf"Error parsing (\S+): {re.escape(problem)}: (.*)", wanted, reason)
        if reason.startswith("Unrecognized"):
            wrong = re.search(r"(?<!\S)-[\w-]+", reason)
            hint = f"; without {first} it must be the first argument" if first else ""
            reason += did_you_mean(wrong[0], names) if wrong else hint
        _refuse(program, f"{reason} (see --help)")
    return options(**{name: getattr(parsed, name) for name in values})


def run_form(program: str, forms: Forms, arguments: Sequence[str] | None = None) -> None:
    """Run the form of a command that the first argument names, with the other arguments."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(f"usage: {program} FORM [OPTIONS]\n\nforms ({program} FORM --help explains its options)")
        print("\n".join(f"  {form:<10}  {options.__doc__}" for form, (options, *_) in forms.items()))
        sys.exit()
    with stop_on_bad_input(program):
        if name not in forms:
            raise ValueError(f"unknown form {name!r}{did_you_mean(name, forms)}: known are {', '.join(forms)}")
        options, run, first = forms[name]
        run(parse(options, f"{program} {name}", rest, first=first))


def _refuse(program: str, reason: object) -> NoReturn:
    """End the program with a one-line reason and exit status 2."""
    print(f"{program}: error: {reason}", file=sys.stderr)
    sys.exit(2)


@contextlib.contextmanager
def stop_on_bad_input(program: str) -> Iterator[None]:
    """Context in which errors of bad input end the program with a one-line message and exit status 2."""
    try:
        yield
    except BrokenPipeError:  # the reader of the output has left, see end_on_signal
        raise
    except OSError as error:
        _refuse(program, f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error)
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        _refuse(program, error)


def provenance() -> dict[str, Any]:
    """Return the provenance of the results of this process.

    Returns:
        ``versions`` of Python and of the packages, None for a package that is not installed; ``commit``, the hash of
        the checkout of this code, and ``modified``, True if a tracked file differs from that commit, both None without
        a checkout or git; ``threads`` of PyTorch and of the simulator, and the cores of the machine; ``platform``,
        ``processor``; ``command``, quoted for a shell, in which a path outside the current directory is reduced to its
        last part. It contains no name of the host, the user or a directory outside the current one.
    """
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("hitmac", "torch", "numpy", "numba", "stable-baselines3", "gymnasium"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = None
            versions[name] = metadata.version(name)
    commit, modified = _commit(Path(__file__).resolve().parents[1])
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else "")
    return {
        "versions": versions,
        "commit": commit,
        "modified": modified,
        "threads": {"torch": torch.get_num_threads(), "simulator": cores(), "cores": os.cpu_count()},
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": named[1].strip() if named else platform.processor() or platform.machine(),
        "command": _command(sys.orig_argv, Path.cwd()),
    }


def _commit(root: Path) -> tuple[str | None, bool | None]:
    """Return the commit of the checkout with the top directory `root`, and whether tracked files differ from it."""
    # A repository named by the environment, or one around an installed package, is not that of this code.
    git: dict[str, Any] = {
        "env": {name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "cwd": root, "stderr": subprocess.DEVNULL,
        "encoding": "utf-8", "errors": "surrogateescape",
    }  # fmt: skip
    try:
        top, commit = subprocess.check_output(["git", "rev-parse", "--show-toplevel", "HEAD"], **git).splitlines()
        if Path(top).resolve() != root.resolve():
            return None, None
        return commit, bool(subprocess.check_output(["git", "status", "--porcelain", "--untracked-files=no"], **git))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _command(arguments: list[str], here: Path) -> str:
    """Return the command line for a shell in the directory `here`, without directories of the machine."""

    def shown(path: re.Match[str]) -> str:
        place = Path(path[0])
        return str(place.relative_to(here)) if place.is_relative_to(here) else place.name

    if len(arguments) > 1 and Path(arguments[1]).name == "hitmac":  # the installed script, which Python runs
        arguments = arguments[1:]
    # An absolute path begins an argument, or follows a separator within one.
    return shlex.join(re.sub(r"(?<![^,+=:\s])[/\\][^,+=:]*", shown, one) for one in arguments)
