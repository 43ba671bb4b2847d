"""An evaluation as a table, for the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class _Column(NamedTuple):
    title: str
    metric: str
    show: Callable[[Any], str]
    terminal: bool = True
    """Whether it has a place in a terminal too, where a table is at most 80 characters wide."""


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


def rows(evaluation: Mapping[str, Any], terminal: bool = False) -> list[list[str]]:
    """The table's cells, titles first, then the agents, the best first."""
    agents = evaluation["agents"]
    leading = _EXECUTORS if all("reward" in result for result in agents.values()) else _COVERAGE
    columns = [column for column in leading if column.terminal or not terminal]
    cells = [["agent", *(column.title for column in columns)]]
    for name, result in sorted(agents.items(), key=lambda item: -item[1][leading[0].metric]["mean"]):
        shown = f"{name} (bound)" if result.get("bound") else name
        if len(result.get("runs", ())) > 1:
            shown += f" ({len(result['runs'])} seeds)"
        cells.append([shown, *(c.show(result[c.metric]) if c.metric in result else "-" for c in columns)])
    return cells


def title(evaluation: Mapping[str, Any]) -> str:
    """What was evaluated."""
    first, last = evaluation["seeds"]
    return f"{evaluation['scenario']}, {evaluation['episodes']} episodes, seeds {first} to {last}"


def table(evaluation: Mapping[str, Any]) -> str:
    """The evaluation as a table for the terminal, the best agent first."""
    cells = rows(evaluation, terminal=True)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    text = [title(evaluation), "", lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
    if "P" in cells[0]:
        first = next(iter(evaluation["agents"]))
        text += ["", f"reward: HiT-MAC's decision reward. P: how likely {first} is to cover more."]
    return "\n".join(text)


def markdown(evaluation: Mapping[str, Any]) -> str:
    """The evaluation as a table in Markdown, with all columns."""
    cells = rows(evaluation)
    lines = [f"| {' | '.join(row)} |" for row in (cells[0], ["---"] * len(cells[0]), *cells[1:])]
    return "\n".join([f"{title(evaluation)}:", "", *lines])
