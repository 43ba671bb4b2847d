"""Tables of an evaluation, for the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COVERAGE = (
    ("coverage", "coverage", "{mean:.3f}"),
    ("95 % interval", "coverage", "{ci95[0]:.3f} .. {ci95[1]:.3f}"),
    ("IQM", "coverage", "{iqm:.3f}"),
    ("reward", "decision_reward", "{mean:.3f}"),
    ("rotation", "rotation", "{mean:.3f}"),
    ("gain", "average_gain", "{mean:.2f}"),
    ("least", "least_covered", "{mean:.3f}"),
    ("P", "improvement", "{0[0]:.2f}"),
    ("ms", "inference_ms", "{0:.3f}"),
)
"""Columns: title, metric, format of its value."""
_EXECUTORS = (
    ("reward", "reward", "{mean:.3f}"),
    ("95 % interval", "reward", "{ci95[0]:.3f} .. {ci95[1]:.3f}"),
    ("IQM", "reward", "{iqm:.3f}"),
    ("rotation", "rotation", "{mean:.3f}"),
    ("coverage", "coverage", "{mean:.3f}"),
)
_NOT_IN_A_TERMINAL = ("gain", "ms")  # where a table is at most 80 characters wide
_ONE_SEED = "one training seed: the interval is over episodes only; another training would differ"


def rows(evaluation: Mapping[str, Any], terminal: bool = False) -> tuple[list[list[str]], list[list[str]]]:
    """Return the cells of the table, titles first, then the agents, best first; and those with one training seed."""
    agents = evaluation["agents"]
    columns = _EXECUTORS if all("reward" in result for result in agents.values()) else _COVERAGE
    best_first = sorted(agents.items(), key=lambda item: -item[1][columns[0][1]]["mean"])
    shown = [column for column in columns if not terminal or column[0] not in _NOT_IN_A_TERMINAL]
    many = [["agent", *(column[0] for column in shown)]]
    one: list[list[str]] = []
    for name, result in best_first:
        label = f"{name} *" if terminal and result.get("bound") else name + note(result)
        cells = [label, *(_cell(result.get(metric), form) for _, metric, form in shown)]
        (one if result.get("trainings") == 1 else many).append(cells)
    return many, one


def _cell(value: Any, form: str) -> str:
    """Return a value in its format, a dash without one."""
    try:
        return form.format(value, **(value if isinstance(value, Mapping) else {}))
    except (TypeError, KeyError):
        return "-"


def note(result: Mapping[str, Any]) -> str:
    """Return the note in brackets after a name: the kind of a bound, or the number of an agent's training seeds."""
    if result.get("bound"):
        return f" ({result['bound']})"
    trainings = result.get("trainings", 0)
    return f" ({trainings} seed{'s' if trainings > 1 else ''})" if trainings else ""


def one_seed(agents: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the legend's note on the intervals of agents with one training seed; empty without such agents."""
    return ", with 1 seed over episodes only" if any(one.get("trainings") == 1 for one in agents.values()) else ""


def title(evaluation: Mapping[str, Any]) -> str:
    """Return the title of an evaluation: scenario, episodes and seeds."""
    first, last = evaluation["seeds"]
    return f"{evaluation['scenario']}, {evaluation['episodes']} episodes, seeds {first} to {last}"


def table(evaluation: Mapping[str, Any]) -> str:
    """Return the evaluation as a table for the terminal, the best agent first."""
    many, one = rows(evaluation, terminal=True)
    widths = [max(len(row[column]) for row in (*many, *one)) for column in range(len(many[0]))]

    def line(row: list[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

    lines = [line(many[0]), "  ".join("-" * width for width in widths), *map(line, many[1:])]
    if one:
        lines += [f"{_ONE_SEED}:", *map(line, one)]
    notes = [
        f"* {name}: {result['bound']}, computed with the future known."
        for name, result in evaluation["agents"].items()
        if result.get("bound")
    ]
    if "P" in many[0]:
        first = next(iter(evaluation["agents"]))
        notes.append(f"reward: HiT-MAC's decision reward. P: probability that {first} covers more.")
    return "\n".join([title(evaluation), "", *lines, *([""] if notes else []), *notes])


def markdown(evaluation: Mapping[str, Any]) -> str:
    """Return the evaluation as a Markdown table with all columns; agents with one training seed have their own."""
    many, one = rows(evaluation)
    parts = [f"{title(evaluation)}:", "", *_markdown(many)] if len(many) > 1 else [f"{title(evaluation)}:"]
    if one:
        parts += ["", f"{_ONE_SEED[0].upper()}{_ONE_SEED[1:]}:", "", *_markdown([many[0], *one])]
    return "\n".join(parts)


def _markdown(cells: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (cells[0], ["---"] * len(cells[0]), *cells[1:])]
