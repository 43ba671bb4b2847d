"""Typed command line options, and one-line error messages."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import tyro

Options = TypeVar("Options")


def parse(
    options: type[Options], program: str, arguments: Sequence[str] | None = None, default: Options | None = None
) -> Options:
    """Parse the options of the command line; an invalid option ends the program with a one-line message.

    Args:
        options: a dataclass, each field with a docstring.
        program: name of the program in messages.
        arguments: arguments of the command line; None: those of the process.
        default: defaults of the options; None: those of the dataclass.
    """
    errors = io.StringIO()
    config: Any = (tyro.conf.FlagCreatePairsOff,)
    defaults: Any = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(options, prog=program, args=arguments, config=config, **defaults)
    except SystemExit as end:
        if not end.code:
            raise
        # The parser draws a box of many lines; the message is between its title and the first rule.
        text = [re.sub("[│╭╮╰╯─]", "", line).strip() for line in errors.getvalue().splitlines()]
        reason = " ".join(line for line in text[1 : text.index("", 1) if "" in text[1:] else None] if line)
        print(f"{program}: error: {reason} (see --help)", file=sys.stderr)
        sys.exit(2)


@contextlib.contextmanager
def stop_on_bad_input(program: str) -> Iterator[None]:
    """Turn errors of bad input into a one-line message and exit status 2."""
    try:
        yield
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        print(f"{program}: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
