"""Tables of an evaluation, for the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class _Column(NamedTuple):
    title: str
    metric: str
    show: Callable[[Any], str]
    terminal: bool = True
    """True if the column also appears in a terminal, where a table is at most 80 characters wide."""


def _number(key: str, digits: int) -> Callable[[Any], str]:
    return lambda result: "-" if result[key] is None else f"{result[key]:.{digits}f}"


def _interval(result: Any) -> str:
    return "-" if result["ci95"] is None else "{:.3f} .. {:.3f}".format(*result["ci95"])


def _probability(result: Any) -> str:
    return "-" if result is None or result[0] is None else f"{result[0]:.2f}"


_COVERAGE = (
    _Column("coverage", "coverage", _number("mean", 3)),
    _Column("95 % interval", "coverage", _interval),
    _Column("IQM", "coverage", _number("iqm", 3)),
    _Column("reward", "decision_reward", _number("mean", 3)),
    _Column("rotation", "rotation", _number("mean", 3)),
    _Column("gain", "average_gain", _number("mean", 2), terminal=False),
    _Column("least", "least_covered", _number("mean", 3)),
    _Column("P", "improvement", _probability),
    _Column("ms", "inference_ms", lambda ms: f"{ms:.3f}", terminal=False),
)
_EXECUTORS = (
    _Column("reward", "reward", _number("mean", 3)),
    _Column("95 % interval", "reward", _interval),
    _Column("IQM", "reward", _number("iqm", 3)),
    _Column("rotation", "rotation", _number("mean", 3)),
    _Column("coverage", "coverage", _number("mean", 3)),
)


_ONE_SEED = "one training seed: the interval is over episodes only; another training would differ"


def rows(evaluation: Mapping[str, Any], terminal: bool = False) -> tuple[list[list[str]], list[list[str]]]:
    """Return the cells of the table, titles first, then the agents, best first; and those with one training seed."""
    agents = evaluation["agents"]
    leading = _EXECUTORS if all("reward" in result for result in agents.values()) else _COVERAGE
    columns = [column for column in leading if column.terminal or not terminal]
    many = [["agent", *(column.title for column in columns)]]
    one: list[list[str]] = []
    for name, result in sorted(agents.items(), key=lambda item: -item[1][leading[0].metric]["mean"]):
        shown = f"{name} *" if terminal and result.get("reference") else name + note(result)
        cells = [shown, *(c.show(result[c.metric]) if c.metric in result else "-" for c in columns)]
        (one if result.get("trainings") == 1 else many).append(cells)
    return many, one


def note(result: Mapping[str, Any]) -> str:
    """Return the note in brackets after a name: the kind of a reference, or the number of an agent's training seeds."""
    if result.get("reference"):
        return f" ({result['reference']})"
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
    text = [title(evaluation), "", *lines]
    references = [
        f"* {name}: {result['reference']}, computed with the future known."
        for name, result in evaluation["agents"].items()
        if result.get("reference")
    ]
    if "P" in many[0]:
        first = next(iter(evaluation["agents"]))
        references.append(f"reward: HiT-MAC's decision reward. P: probability that {first} covers more.")
    return "\n".join([*text, *([""] if references else []), *references])


def markdown(evaluation: Mapping[str, Any]) -> str:
    """Return the evaluation as a Markdown table with all columns; agents with one training seed have their own."""
    many, one = rows(evaluation)
    parts = [f"{title(evaluation)}:", "", *_markdown(many)] if len(many) > 1 else [f"{title(evaluation)}:"]
    if one:
        parts += ["", f"{_ONE_SEED[0].upper()}{_ONE_SEED[1:]}:", "", *_markdown([many[0], *one])]
    return "\n".join(parts)


def _markdown(cells: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (cells[0], ["---"] * len(cells[0]), *cells[1:])]
