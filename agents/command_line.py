"""Typed command line options, and one-line error messages."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import dropwhile, pairwise, takewhile
from typing import Annotated, Any, NoReturn, TypeVar

import tyro

from hitmac.envs.errors import did_you_mean
from hitmac.envs.field_docs import help_texts
from hitmac.envs.ranges import field_types

Options = TypeVar("Options")


def parse(
    options: type[Options],
    program: str,
    arguments: Sequence[str] | None = None,
    default: Options | None = None,
    description: str | None = None,
) -> Options:
    """Parse the options of the command line; an invalid option ends the program with a one-line message.

    Args:
        options: a dataclass, each field with a docstring.
        program: name of the program in messages.
        arguments: arguments of the command line; None: those of the process.
        default: defaults of the options; None: those of the dataclass.
        description: text of the help above the options; None: the docstring of the dataclass.
    """
    errors = io.StringIO()
    config: Any = (tyro.conf.FlagCreatePairsOff,)
    helped = _with_help(options)
    more: Any = {"description": description or options.__doc__}
    if default is not None:
        more["default"] = helped(**_values(default))
    given = sys.argv[1:] if arguments is None else arguments
    for name in _lists(options):  # as where the files that *.csv stands for are not there
        for option, value in pairwise((*given, "--")):
            if option == name and value.startswith("--"):
                _refuse(program, f"{name} is given without a value (see --help)")
    try:
        with contextlib.redirect_stderr(errors):
            return options(**_values(tyro.cli(helped, prog=program, args=arguments, config=config, **more)))
    except SystemExit as end:
        if not end.code:
            raise
        # The parser draws a box of many lines; the message is between its title and the next rule. A terminal without
        # box characters gets dashes.
        text = [re.sub("[│╭╮╰╯─]|^ *--+ *$", "", line).strip() for line in errors.getvalue().splitlines()]
        reason = " ".join(takewhile(bool, dropwhile(lambda line: not line, text[1:])))
        known = [f"--{name.replace('_', '-')}" for name in _values(options)]
        if reason.startswith("Unrecognized") and (wrong := re.search(r"--[\w-]+", reason)):
            reason += did_you_mean(wrong[0], known)
        _refuse(program, f"{reason} (see --help)")


def _refuse(program: str, reason: object) -> NoReturn:
    """End the program with the reason in one line and exit status 2."""
    print(f"{program}: error: {reason}", file=sys.stderr)
    sys.exit(2)


def _lists(options: Any) -> list[str]:
    """Return the options that take several values."""
    return [f"--{name.replace('_', '-')}" for name, value in _values(options).items() if isinstance(value, tuple)]


def _values(options: Any) -> dict[str, Any]:
    """Return the values of a dataclass's fields, or of a class their defaults."""
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}


def _with_help(options: Any) -> Any:
    """Return a dataclass with the same fields, whose help tells what each allows."""
    texts, types = help_texts(options), field_types(options)
    fields = [
        (name, Annotated[types[name], tyro.conf.arg(help=texts[name])], dataclasses.field(default=default))
        for name, default in _values(options).items()
    ]
    return dataclasses.make_dataclass(options.__name__, fields, frozen=True)


@contextlib.contextmanager
def stop_on_bad_input(program: str) -> Iterator[None]:
    """Turn errors of bad input into a message of one line, or one for each error, and exit status 2."""
    try:
        yield
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        _refuse(program, error)
