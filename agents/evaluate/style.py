"""Common style of the figures of results: colours, labels, axes, file format.

Every scripted agent has a fixed colour. The colour of any other agent follows from its position among the others.
Agents of one name with different options have the same.
References are grey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitmac.agents.evaluate.tables import note
from hitmac.agents.names import family_of
from hitmac.envs.files import check_ending, whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WITHOUT_LEARNING = {
    "random": "#8c613c",
    "still": "#a3a02c",
    "nearest": "#e08a2e",
    "greedy": "#2aa3a3",
    "exact": "#4f6d7a",
    "planner": "#228b4a",
    "planner-fast": "#8fc66b",
    "belief-planner": "#0f7f8c",
    "belief-planner-fast": "#6fb7c2",
    "belief-planner-fastest": "#a9d3d8",
}
_OTHERS = ("#427ac4", "#d0392b", "#784696", "#d977b5", "#1b3e73", "#7a7fd1", "#5d8a00", "#b0305c")
GREY = "#7d7d7d"
INK = "#333333"
_LONGEST = 26  # characters of a name


def new_figure(size: tuple[float, float]) -> Figure:
    """Make an empty figure of a size in inches; raise ModuleNotFoundError that names the extra to install."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("figures need matplotlib: pip install 'hitmac[train]'") from None
    return Figure(figsize=size, dpi=110, layout="constrained")


def write_figure(path: str | Path, figure: Figure) -> None:
    """Write a figure as PNG; raise ValueError if `path` does not end in .png."""
    check_ending("path", path, ".png")
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def is_reference(result: Mapping[str, Any]) -> bool:
    """Return True if a result is that of a reference, not of an agent."""
    return bool(result.get("reference"))


def colours_of(agents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the colour of every agent, by name, from their results."""
    families = {name: family_of(name)[0] for name, result in agents.items() if not is_reference(result)}
    others = [family for family in dict.fromkeys(families.values()) if family not in _WITHOUT_LEARNING]
    colours = {family: _OTHERS[place % len(_OTHERS)] for place, family in enumerate(others)} | _WITHOUT_LEARNING
    return {name: colours[families[name]] if name in families else GREY for name in agents}


def label_of(name: str, result: Mapping[str, Any]) -> str:
    """Return the label of an agent: its name and the note of its result.

    Of a long name only the end is kept, the most specific part of a folder. Dollar signs are escaped for matplotlib.
    """
    short = name if len(name) <= _LONGEST else "\u2026" + name[1 - _LONGEST :]
    return short.replace("$", r"\$") + note(result)


def plain_axis(axis: Axes, grid: str, keep: Sequence[str] = ("left", "bottom")) -> None:
    """Draw a thin grid behind the plot, and only the sides `keep` of the frame."""
    axis.grid(axis=grid, alpha=0.25, lw=0.7)  # type: ignore[arg-type]
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=9, color=GREY)
    for side, spine in axis.spines.items():
        spine.set_visible(side in keep)
        spine.set_color(GREY)
