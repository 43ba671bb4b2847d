"""Tables of an evaluation, for the terminal and in Markdown; the rewards of the released program."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

_NUMBER, _INTERVAL = "{mean:.3f}", "{ci95[0]:.3f} .. {ci95[1]:.3f}"
_COLUMNS = {
    "reward": (("rotation", "rotation", _NUMBER), ("coverage", "coverage", _NUMBER)),
    "coverage": (
        ("decision_reward", "decision_reward", _NUMBER),
        ("rotation", "rotation", _NUMBER),
        ("average_gain", "average_gain", "{mean:.2f}"),
        ("least_covered", "least_covered", _NUMBER),
        ("P", "improvement", "{0[0]:.2f}"),
        ("GOSPA", "gospa", "{mean:.3g}"),
        ("missed", "missed", "{mean:.2f}"),
        ("false", "false", "{mean:.2f}"),
        ("switches", "switches", "{mean:.1f}"),
        ("inference_ms", "inference_ms", "{0:.3f}"),
    ),
}
"""Further columns of executors and of agents: title, metric, format of its value."""
WIDTH = 80
"""Width of a terminal, characters."""

_NOT_IN_A_TERMINAL = ("average_gain", "least_covered", "inference_ms")
_LEFT_OUT = ("decision_reward", "IQM", "P")  # in this order, from tables that are wider than a terminal
_OF_TRACKS = ("GOSPA", "missed", "false", "switches")
_RELEASED = {
    (4, 5): 0.737, (2, 5): 0.476, (3, 5): 0.629, (5, 5): 0.786, (6, 5): 0.857,
    (4, 3): 0.797, (4, 7): 0.693, (4, 9): 0.665, (6, 9): 0.778,
}  # fmt: skip


def released_reward(scenario: str) -> dict[tuple[int, int], float]:
    """Return the mean decision rewards of the released HiT-MAC program, by (n, m); none for other scenes.

    They were measured in its environment with its weights: 200 episodes at 4 x 5, 60 at other sizes.
    """
    return _RELEASED if re.fullmatch(r"hit-mac(-\d+x\d+)?", scenario) else {}


def table(evaluation: Mapping[str, Any]) -> str:
    """Return an evaluation as a table for the terminal, best agent first; a wide one has fewer columns."""
    for number in range(len(_LEFT_OUT) + 1):
        many, one = _rows(evaluation, _NOT_IN_A_TERMINAL + _LEFT_OUT[:number], terminal=True)
        lines = aligned([*many, *one])
        if max(map(len, lines)) <= WIDTH:
            break
    if one:
        lines.insert(1 + len(many), f"{_one_seed(evaluation)}:")
    kinds = {name: result["bound"] for name, result in evaluation["agents"].items() if result.get("bound")}
    notes = [f"* {name}: {kind}, computed with the future known." for name, kind in kinds.items()]
    if "P" in many[0]:
        first = next(iter(evaluation["agents"]))
        notes.append(f"P: probability that {first} covers more.")
    return "\n".join([title(evaluation), "", *lines, *([""] if notes else []), *notes])


def aligned(rows: Sequence[Sequence[str]], *, ruled: bool = True) -> list[str]:
    """Return rows of cells as lines of columns; `ruled`, with a line of dashes below the first.

    A cell can have several lines, such as a :func:`folded` name.
    """
    rows = [line for row in rows for line in zip_longest(*(cell.split("\n") for cell in row), fillvalue="")]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rules = [["-" * width for width in widths]] if ruled else []
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (rows[0], *rules, *rows[1:])]


def markdown(evaluation: Mapping[str, Any]) -> str:
    """Return an evaluation as a Markdown table with all columns, and one more for agents with one training seed."""
    many, one = ([[cell.replace("|", r"\|") for cell in row] for row in rows] for rows in _rows(evaluation))
    text = f"{title(evaluation)}:"
    for before, cells in (("", many), (f"\n\n{_one_seed(evaluation).capitalize()}:", [many[0], *one])):
        if len(cells) > 1:
            lines = (f"| {' | '.join(row)} |" for row in (cells[0], ["---"] * len(cells[0]), *cells[1:]))
            text += before + "\n\n" + "\n".join(lines)
    return text


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 episode, 2 episodes."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def title(evaluation: Mapping[str, Any]) -> str:
    """Return the title of an evaluation: its scenario and :func:`scope`."""
    return f"{evaluation['scenario']}, {scope(evaluation)}"


def scope(evaluation: Mapping[str, Any]) -> str:
    """Return the episodes of an evaluation in words: recordings, seeds, and the share of time without targets."""
    first, last = evaluation["seeds"]
    episodes, recordings = counted(evaluation["episodes"], "episode"), evaluation.get("recordings")
    if recordings:
        episodes += f" of {counted(recordings, 'recording')}" + ", without intervals" * (recordings == 1)
    empty = f"; no targets {100 * evaluation['empty']:.1f} % of the time" if evaluation.get("empty") else ""
    return f"{episodes}, seeds {first} to {last}{empty}"


def folded(name: str) -> str:
    """Return the name of an agent on lines of 26 characters at most."""
    return textwrap.fill(name, 26)


def note(result: Mapping[str, Any]) -> str:
    """Return the note after a name, in brackets: the kind of a bound, or the number of training seeds."""
    if result.get("bound"):
        return f" ({result['bound']})"
    trainings = result.get("trainings", 0)
    return f" ({counted(trainings, 'seed')})" if trainings else ""


def _one_seed(evaluation: Mapping[str, Any]) -> str:
    """Return the caption of agents with one training seed."""
    samples = "recordings" if evaluation.get("recordings") else "episodes"
    return f"one training seed: interval over {samples} only; another training would differ"


def _rows(
    evaluation: Mapping[str, Any], hidden: tuple[str, ...] = (), terminal: bool = False
) -> tuple[list[list[str]], list[list[str]]]:
    """Return the cells of the titles and the agents, best first, and those of agents with one training seed."""
    agents = evaluation["agents"]
    main = "reward" if all("reward" in result for result in agents.values()) else "coverage"
    columns = (main, main, _NUMBER), ("95 % interval", main, _INTERVAL), ("IQM", main, "{iqm:.3f}"), *_COLUMNS[main]
    tracked = any("gospa" in result for result in agents.values())
    hidden += () if tracked else _OF_TRACKS
    hidden += () if any(result.get("improvement") for result in agents.values()) else ("P",)
    shown = [column for column in columns if column[0] not in hidden]
    many: list[list[str]] = [["agent", *(column[0] for column in shown)]]
    one: list[list[str]] = []
    for name, result in sorted(agents.items(), key=lambda item: -(item[1][main]["mean"] or 0.0)):
        label = folded(name) if terminal else name
        label += " *" if terminal and result.get("bound") else note(result)
        cells = [label, *(_cell(result.get(metric), form) for _, metric, form in shown)]
        (one if result.get("trainings") == 1 else many).append(cells)
    return many, one


def _cell(value: Any, form: str) -> str:
    """Return a formatted value; a dash without one."""
    try:
        return form.format(value, **(value if isinstance(value, Mapping) else {}))
    except (TypeError, KeyError):
        return "-"
