"""Names of agents: options of scripted agents, several values of one, and names joined by a colon."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

from hitmac.agents.custom import is_import
from hitmac.agents.nearness import OPTIONS
from hitmac.envs.errors import did_you_mean
from hitmac.envs.ranges import convert

_WORDS = {"none": None, "true": True, "false": False}


def read_options(kind: type, name: str) -> dict[str, Any]:
    """Return the options in a name such as ``planner:turn_cost=0.5:horizon=30``, with their types.

    Args:
        kind: class of the agent, whose constructor's parameters are the options, those of its bases included.
        name: name with options, each ``:OPTION=VALUE``.

    Raises:
        ValueError: no such option, one given twice, or one without a value.
        TypeError: a value of another type.
    """
    known = _options_of(kind)
    options: dict[str, Any] = {}
    for part in name.split(":")[1:]:
        option, equals, text = part.partition("=")
        if option not in known:
            raise ValueError(
                f"unknown option {option!r} in {name}{did_you_mean(option, known)}: known are {', '.join(known)}"
            )
        if not (equals and text) or option in options:
            raise ValueError(f"{option} in {name} is given {'twice' if option in options else 'without a value'}")
        options[option] = convert(option, known[option], _value(text))
    return options


def _options_of(kind: type) -> dict[str, Any]:
    """Return the types of a constructor's options; those that it hands on are its base's."""
    parameters = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    own = {
        name: hints[name]
        for name, how in parameters.items()
        if how.default is not how.empty and name != "scenario" and name in hints
    }
    handed_on = any(how.kind is how.VAR_KEYWORD for how in parameters.values())
    return own | (_options_of(kind.__mro__[1]) if handed_on else {})


def _value(text: str) -> Any:
    """Return the number, true, false or none that a text is, or the text."""
    number = number_of(text)
    return _WORDS.get(text, text) if number is None else number


def number_of(text: str) -> int | float | None:
    """Return the number that a text is; None if it is none."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None


def with_options(names: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of one of the names with options, at the end of an agent's name or before a ``+``.

    Options of the observation, such as ``nearest=16``, may follow any name.
    """
    scripted, shown = "|".join(map(re.escape, names)), "|".join(OPTIONS)
    own = rf"(?:memoryless:)?(?:{scripted})(?::\w+=[^:=+]+)+"
    return re.compile(rf"(?:^|(?<=[=+]))(?:{own}|[^=+]+?(?::(?:{shown})=[^:=+]+)+)(?=$|\+)")


def each_value(name: str) -> list[str]:
    """Return a name for each value of an option with several, as in ``planner:turn_cost=0.1/0.5``."""
    found = re.search(r"(?<==)[^:=+/]+(?:/[^:=+/]+)+", name)
    if found is None:
        return [name]
    return [name[: found.start()] + value + name[found.end() :] for value in found[0].split("/")]


def split_group(name: str, optional: re.Pattern[str]) -> tuple[str, str]:
    """Split ``NAME=MEMBERS`` at the last ``=`` that belongs to no option; without one, the name is empty."""
    hidden = optional.sub(lambda found: "." * len(found[0]), name)
    place = hidden.rfind("=")
    return name[: max(place, 0)], name[place + 1 :]


def family_of(name: str) -> tuple[str, str]:
    """Return the family of an agent's name and its options, which follow the first colon; "" without options."""
    found = re.search(r"(?::[^:=]+=[^:=]*)+$", name)
    return (name[: found.start()], found[0][1:]) if found else (name, "")


def halves(text: str, is_left: Callable[[str], bool], is_right: Callable[[str], bool]) -> tuple[str, str] | None:
    """Split `text` at a ':' into two names, each of which may contain further ':'.

    If only the left name is known, split at the only ':', so that an error can name the right one.
    """
    both = [(text[:place], text[place + 1 :]) for place, letter in enumerate(text) if letter == ":"]
    left = [two for two in both if is_left(two[0])]
    unknown = None if is_import(text) or not left else only_two(text)
    return next((two for two in left if is_right(two[1])), unknown)


def only_two(text: str) -> tuple[str, str] | None:
    """Split `text` at its only ':'; None if it has none or several."""
    left, _, right = text.partition(":")
    return (left, right) if text.count(":") == 1 else None
