"""An evaluation as a table, for the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class _Column(NamedTuple):
    title: str
    metric: str
    show: Callable[[Any], str]


def _number(digits: int) -> Callable[[Any], str]:
    return lambda result: "-" if result["mean"] is None else f"{result['mean']:.{digits}f}"


def _interval(result: Any) -> str:
    return "-" if result["ci95"] is None else "{:.3f} .. {:.3f}".format(*result["ci95"])


_COLUMNS = (
    _Column("reward", "reward", _number(3)),
    _Column("95 % interval", "reward", _interval),
    _Column("coverage", "coverage", _number(3)),
    _Column("95 % interval", "coverage", _interval),
    _Column("IQM", "coverage", lambda result: "-" if result["iqm"] is None else f"{result['iqm']:.3f}"),
    _Column("decision reward", "decision_reward", _number(3)),
    _Column("rotation", "rotation", _number(3)),
    _Column("gain", "average_gain", _number(2)),
    _Column("least covered", "least_covered", _number(3)),
    _Column("P(first >)", "improvement", lambda p: "-" if p is None or p[0] is None else f"{p[0]:.2f}"),
    _Column("ms", "inference_ms", lambda ms: "-" if ms is None else f"{ms:.3f}"),
)


def rows(evaluation: Mapping[str, Any]) -> list[list[str]]:
    """The table's cells, titles first, best agent first; only the columns that the evaluation has values of."""
    agents = evaluation["agents"]
    leading = "reward" if all("reward" in result for result in agents.values()) else "coverage"
    columns = [column for column in _COLUMNS if any(column.metric in result for result in agents.values())]
    if leading == "reward":
        columns = [column for column in columns if column.title != "IQM" and column.metric != "coverage"] + [
            column for column in columns if column.metric == "coverage" and column.title == "coverage"
        ]
    ranked = sorted(agents.items(), key=lambda item: -item[1][leading]["mean"])
    cells = [["agent", *(column.title for column in columns)]]
    for name, result in ranked:
        title = f"{name} (bound)" if result.get("bound") else name
        if len(result.get("runs", [])) > 1:
            title += f" ({len(result['runs'])} seeds)"
        cells.append([title, *(c.show(result[c.metric]) if c.metric in result else "-" for c in columns)])
    return cells


def title(evaluation: Mapping[str, Any]) -> str:
    """What was evaluated."""
    first, last = evaluation["seeds"]
    return f"{evaluation['scenario']}, {evaluation['episodes']} episodes, seeds {first} to {last}"


def table(evaluation: Mapping[str, Any]) -> str:
    """The evaluation as a table for the terminal, best coverage first."""
    cells = rows(evaluation)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([title(evaluation), "", lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def markdown(evaluation: Mapping[str, Any]) -> str:
    """The evaluation as a table in Markdown."""
    cells = rows(evaluation)
    lines = [_line(cells[0]), _line(["---"] * len(cells[0])), *(_line(row) for row in cells[1:])]
    return "\n".join([f"{title(evaluation)}:", "", *lines])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
