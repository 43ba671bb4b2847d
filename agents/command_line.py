"""Typed options on the command line, and errors of one line."""

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
    """The options that the command line gives; one that cannot be read ends the program with one line.

    Args:
        options: a dataclass, each field with a docstring.
        program: what the user typed, for the messages.
        arguments: the command line; None: the program's own.
        default: where the defaults come from, if not from the dataclass.
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
        # The parser draws a box over many lines; what matters stands between its title and the first rule.
        text = [re.sub("[│╭╮╰╯─]", "", line).strip() for line in errors.getvalue().splitlines()]
        reason = " ".join(line for line in text[1 : text.index("", 1) if "" in text[1:] else None] if line)
        print(f"{program}: error: {reason} (see --help)", file=sys.stderr)
        sys.exit(2)


@contextlib.contextmanager
def stop_on_bad_input(program: str) -> Iterator[None]:
    """Turn the errors that bad input raises into one line and exit status 2."""
    try:
        yield
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        print(f"{program}: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
