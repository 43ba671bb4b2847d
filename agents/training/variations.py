"""Trainings of one job with several seeds and values of its options: ordinary runs in one directory."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from hitmac.agents.command_line import parse
from hitmac.agents.learned.groups import SEED
from hitmac.agents.training.options import flag
from hitmac.agents.training.run_options import RunOptions
from hitmac.envs.errors import did_you_mean

AnyOptions = TypeVar("AnyOptions", bound=RunOptions)

MAX_TRAININGS = 10_000

# Of the whole group, and options that change the defaults of others.
_FIXED = {"seed", "seeds", "set", "processes", "ray", "run_dir", "resume", "algorithm", "memory", "start"}
_FIXED |= {"scenario", "knowledge", "tracks", "episodes"}
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


def with_seed_range(arguments: Sequence[str]) -> list[str]:
    """Return the command line with ``--seeds 2..4`` as ``--seed 2 --seeds 3``.

    Raises:
        ValueError: the range is empty, or ``--seed`` is given beside it.
    """
    text = [part for one in arguments for part in (one.split("=", 1) if one.startswith("--seeds=") else (one,))]
    for place, given in enumerate(text[1:], 1):
        found = re.fullmatch(r"(\d{1,12})\.\.(\d{1,12})", given)
        if text[place - 1] != "--seeds" or not found:
            continue
        first, last = map(int, found.groups())
        if last < first:
            raise ValueError(f"--seeds is {given}; the first must not be over the last")
        if any(one == "--seed" or one.startswith("--seed=") for one in text):
            raise ValueError(f"--seeds is {given}, which holds the first seed; leave out --seed")
        return [*text[: place - 1], "--seed", str(first), "--seeds", str(last - first + 1), *text[place + 1 :]]
    return list(arguments)


class Training(NamedTuple, Generic[AnyOptions]):
    """Training of a group."""

    variation: str
    """What varies, such as ``pooling=sum``; ``""`` where only the seeds do."""
    options: AnyOptions


def variations(options: AnyOptions) -> dict[str, AnyOptions]:
    """Return the options of every combination of the values of ``set``, by what varies.

    Raises:
        ValueError: an option that is not known or cannot be varied, a value twice, or too many combinations.
    """
    varied: dict[str, list[tuple[str, Any]]] = {}
    for text in options.set:
        name, values = _split(options, text)
        if name in varied:
            raise ValueError(f"--set names {name} twice; give all its values at once")
        varied[name] = [(value, _value(options, name, value)) for value in values]
    found = {}
    for combination in itertools.product(*varied.values()):
        chosen = dict(zip(varied, combination, strict=True))
        words = " ".join(f"{name}={text}" for name, (text, _) in chosen.items())
        changes: dict[str, Any] = {name: value for name, (_, value) in chosen.items()}
        found[words] = dataclasses.replace(options, **(changes | {"set": ()}))
    folders = list(map(_folder, found))
    if twice := next((one for one in folders if folders.count(one) > 1), None):
        raise ValueError(f"--set has two variations whose directory would be {twice}; leave one out")
    if len(found) * options.seeds > MAX_TRAININGS:
        raise ValueError(f"--set and --seeds make {len(found) * options.seeds} trainings; at most {MAX_TRAININGS}")
    return found


def trainings(options: AnyOptions, run_dir: Path) -> list[Training[AnyOptions]]:
    """Return the trainings of a group, of each variation all seeds; those whose run exists go on with it."""
    found = []
    for words, varied in variations(options).items():
        for seed in range(options.seed, options.seed + options.seeds):
            run = run_dir / _folder(words) / f"{SEED}{seed}"
            one = dataclasses.replace(varied, seed=seed, seeds=1, run_dir=run, resume=run.exists())
            found.append(Training(words, one))
    return found


def _folder(words: str) -> str:
    """Return the name of the directory of a variation, such as ``pooling-sum``."""
    return re.sub(r"[^\w.+]+", "-", words).strip("-")


def _split(options: RunOptions, text: str) -> tuple[str, list[str]]:
    """Return the option that a ``--set`` names, and its values."""
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not values:
        raise ValueError(f"--set is {text!r}; it must have the form pooling=sum,mean")
    known = [field.name for field in dataclasses.fields(options) if field.name not in _FIXED]
    if name in _FIXED:
        raise ValueError(f"--set names {name}, which is the same in all trainings of a group")
    if name not in known:
        raise ValueError(f"--set names the unknown option {name!r}{did_you_mean(name, known)}")
    split = [value.strip() for value in values.split(",")]
    if twice := next((value for value in split if split.count(value) > 1), None):
        raise ValueError(f"--set {text!r} has {twice!r} twice")
    return name, split


def _value(options: RunOptions, name: str, text: str) -> Any:
    """Return the value of an option as the command line has it."""
    if isinstance(getattr(options, name), bool):
        if text.lower() not in _TRUTH:
            raise ValueError(f"--set {name}={text}; it must be true or false")
        return _TRUTH[text.lower()]
    parsed = parse(type(options), f"--set {name}", [flag(name), *shlex.split(text)], default=options)
    return getattr(parsed, name)
