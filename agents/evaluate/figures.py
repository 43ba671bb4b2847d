"""Figures of evaluations: bars, coverage against rotation, coverage over time, heat maps over sizes.

Every function takes evaluations in the form of :func:`hitmac.agents.evaluate.evaluate`, and writes one PNG. A reference
(an entry with ``"reference"``, computed with more knowledge than an agent has) is grey, and its label names its kind.
The label of an agent with one training seed says so, since its intervals are over episodes only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hitmac.agents.evaluate.tables import note, one_seed
from hitmac.agents.registry import family_of, number_of
from hitmac.envs.files import check_ending, whole_file
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import did_you_mean

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


class Value(NamedTuple):
    """Mean of a metric and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


def name_points(
    figure: Figure,
    axis: Axes,
    labels: Mapping[str, tuple[str, str]],
    points: Mapping[str, tuple[Value, Value]],
    levels: Mapping[str, float],
    stairs: np.ndarray,
    lines: Iterable[np.ndarray] = (),
) -> None:
    """Write each label (text, colour) next to its point or level, where it overlaps least with everything drawn.

    Drawn are the points and levels, the `stairs` (k, 2) and the `lines`, each through points (k, 2).
    """
    figure.draw_without_rendering()  # fixes the position of the axis, and with it all overlaps
    frame = axis.bbox
    taken: list[np.ndarray] = []  # boxes of drawn objects: left, bottom, right, top; pixels

    def take(start: tuple[float, float], end: tuple[float, float], margin: float = 3) -> None:
        corners = axis.transData.transform([start, end])
        taken.append(np.concatenate((corners.min(0) - margin, corners.max(0) + margin)))

    def write(name: str, anchors: np.ndarray, sides: np.ndarray, gaps: np.ndarray) -> None:
        """Write a label at the best of k places, given by anchors, sides and gaps (k, 2), the preferred first."""
        words, colour = labels[name]
        text = axis.text(0, 0, words, color=colour, fontsize=9.5, zorder=4, ha="center", va="center", transform=None)
        half = np.array(text.get_window_extent().size) / 2
        centres = anchors + sides * (half + gaps)
        boxes = np.concatenate((centres - half, centres + half), -1)
        others = np.array(taken)[:, None]
        shared = np.minimum(boxes[:, 2:], others[..., 2:]) - np.maximum(boxes[:, :2], others[..., :2])
        outside = (frame.min - boxes[:, :2]).clip(0).sum(-1) + (boxes[:, 2:] - frame.max).clip(0).sum(-1)
        best = np.argmin(shared.clip(0).prod(-1).sum(0) + 100 * outside + 2 * np.arange(len(centres)))
        taken.append(boxes[best])
        x, y = axis.transAxes.inverted().transform(centres[best])
        text.set(x=x, y=y, transform=axis.transAxes)

    for x, y in points.values():
        take((x.low, y.mean), (x.high, y.mean))
        take((x.mean, y.low), (x.mean, y.high))
        take((x.mean, y.mean), (x.mean, y.mean), 6)
    for (a, b), (c, d) in pairwise(stairs):
        take((a, b), (c, b))
        take((c, b), (c, d))
    for line in lines:
        places = np.linspace(0, len(line) - 1, 24 * len(line))
        for x, y in zip(*(np.interp(places, np.arange(len(line)), column) for column in line.T), strict=True):
            take((x, y), (x, y))
    for level in levels.values():
        take((axis.get_xlim()[0], level), (axis.get_xlim()[1], level))
    around = np.array([(1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1)])
    for name, (x, y) in points.items():
        gaps = np.repeat((7, 12, 18, 26, 36), len(around))[:, None]
        write(name, axis.transData.transform((x.mean, y.mean)), np.tile(around, (5, 1)), gaps)
    along = np.repeat(np.linspace(1, 0, 9), 2)  # from the right to the left, above and below
    for name, level in levels.items():
        anchors = np.stack((frame.x0 + along * frame.width, np.full(18, axis.transData.transform((0, level))[1])), -1)
        write(name, anchors, np.stack((1 - 2 * along, np.tile((1, -1), 9)), -1), np.full((18, 1), 4))


def spread(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Return positions (k,) at least a gap apart, in the order of the wanted ones, with least squared displacement.

    Less i gaps for the i-th, the positions need only be non-decreasing, so neighbours that decrease are pooled to their
    mean.
    """
    order = np.argsort(wanted, kind="stable")
    pools: list[list[float]] = []  # sum, number
    for value in wanted[order] - gap * np.arange(len(wanted)):
        pools.append([float(value), 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, number = pools.pop()
            pools[-1] = [pools[-1][0] + total, pools[-1][1] + number]
    places = np.empty(len(wanted))
    places[order] = np.repeat([s / k for s, k in pools], [int(k) for _, k in pools]) + gap * np.arange(len(wanted))
    return places


def family_lines(points: Mapping[str, tuple[Value, Value]]) -> dict[str, np.ndarray]:
    """Return the points (k, 2) of every family of several agents, rotation and coverage, by rising rotation.

    The key is the name of a member, whose colour is the family's.
    """
    members: dict[str, dict[str, tuple[float, float]]] = {}
    for name, (x, y) in points.items():
        members.setdefault(family_of(name)[0], {})[name] = x.mean, y.mean
    return {next(iter(family)): np.array(sorted(family.values())) for family in members.values() if len(family) > 1}


def short_names(agents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return what to write at each agent's point: of a family, only the best member's name is written in full.

    Of the others with an option it is the value of that option, or all their options.
    """
    best: dict[str, str] = {}
    for name, result in agents.items():
        family, options = family_of(name)
        if options and (family not in best or _coverage(result) > _coverage(agents[best[family]])):
            best[family] = name
    short = {}
    for name in agents:
        family, options = family_of(name)
        alone = options.partition("=")[2] if options.count("=") == 1 else options
        short[name] = alone if options and name != best[family] else name
    return short


def _coverage(result: Mapping[str, Any]) -> float:
    mean = (result.get("coverage") or {}).get("mean")
    return -np.inf if mean is None else mean


_PANELS = {metric: metric.replace("_", " ") for metric in ("coverage", "decision_reward", "rotation", "least_covered")}
_PANELS["rotation"] += " (less is better)"


def save_bars(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw a bar for every agent, best coverage first, with a panel for each of four metrics.

    The metrics are coverage, decision reward, rotation and least covered; missing ones are left out. Whiskers are 95 %
    intervals. References are hatched.

    Args:
        path: file of the figure.
        evaluation: evaluation of one or more agents.

    Raises:
        ValueError: the evaluation has none of the metrics.
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    coverage = {name: _value(result, "coverage") for name, result in agents.items()}
    ranked = sorted(agents, key=lambda name: -np.inf if (value := coverage[name]) is None else value.mean)  # upwards
    panels = [metric for metric in _PANELS if any(_value(result, metric) for result in agents.values())]
    if not panels:
        raise ValueError(f"no agent has any of {', '.join(_PANELS)}")
    figure = new_figure((10, 1.3 + 0.36 * len(agents)))
    for metric, axis in zip(panels, figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], strict=True):
        ends = [0.0]
        for row, name in enumerate(ranked):
            value, reference = _value(agents[name], metric), is_reference(agents[name])
            if value is None:
                axis.annotate("\u2013", (0, row), (4, 0), textcoords="offset points", va="center", color=GREY)
                continue
            look = (
                {"color": "#e4e4e4", "hatch": "////", "edgecolor": "#a8a8a8"} if reference else {"color": colours[name]}
            )
            axis.barh(row, value.mean, height=0.66, lw=0, **look)
            axis.plot((value.low, value.high), (row, row), color=INK, lw=1.1, marker="|", ms=5)
            ends += [value.mean, value.low, value.high]
            axis.annotate(
                f"{value.mean:.3f}",
                (max(value.mean, value.high, 0), row),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=INK,
            )
        width = (max(ends) - min(ends)) or 1.0
        axis.set_xlim(min(ends) - 0.06 * width * (min(ends) < 0), max(ends) + 0.34 * width)  # room for the numbers
        axis.set_ylim(-0.6, len(ranked) - 0.4)
        axis.set_yticks(range(len(ranked)), [label_of(name, agents[name]) for name in ranked])
        axis.set_title(_PANELS[metric], fontsize=10, loc="left")
        axis.locator_params(axis="x", nbins=4)
        left, right = axis.get_xlim()
        ticks = [tick for tick in axis.get_xticks() if left <= tick < right - 0.1 * width]
        axis.set_xticks(ticks)  # without labels that would overlap those of the next panel
        plain_axis(axis, "x", keep=("left",))
        axis.tick_params(axis="y", length=0)
    _title(figure, evaluation, f"whiskers: 95 % intervals{one_seed(agents)}")
    write_figure(path, figure)


def save_pareto(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw coverage against rotation, with both 95 % intervals of every agent and the Pareto front.

    The front joins the agents that no other agent dominates, by at least the same coverage with at most the same
    rotation, and a difference in one of them. Dominated agents are fainter. A line joins the agents of one name with
    several options. A result without rotation is a dashed line. A reference is a hollow diamond, not part of the front.

    Args:
        path: file of the figure.
        evaluation: evaluation of one or more agents.

    Raises:
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    figure = new_figure((10, 6.2))
    axis = figure.subplots()
    points, levels = {}, {}
    for name, result in agents.items():
        coverage, rotation = _value(result, "coverage"), _value(result, "rotation")
        if coverage is not None and rotation is not None:
            points[name] = rotation, coverage
        elif coverage is not None:
            levels[name] = coverage.mean
    front = _front({name: (x.mean, y.mean) for name, (x, y) in points.items() if not is_reference(agents[name])})
    for name, (x, y) in points.items():
        reference = is_reference(agents[name])
        look: dict[str, Any] = {
            "color": colours[name],
            "alpha": 1.0 if reference or name in front else 0.5,
            "zorder": 3,
        }
        axis.plot((x.low, x.high), (y.mean, y.mean), lw=1.3, **look)
        axis.plot((x.mean, x.mean), (y.low, y.high), lw=1.3, **look)
        axis.plot(x.mean, y.mean, "D" if reference else "o", ms=7, mfc="white" if reference else colours[name], **look)
    for name, line in (lines := family_lines(points)).items():
        axis.plot(*line.T, color=colours[name], lw=1.6, alpha=0.7, zorder=2.5)
    for name, level in levels.items():
        axis.axhline(level, ls="--", lw=1.2, color=colours[name])
    axis.margins(x=0.08, y=0.1)
    axis.autoscale_view()
    left, right = axis.get_xlim()
    axis.set_xlim(max(left, -0.03 * right), right)  # no wide strip of negative rotation
    right = axis.get_xlim()[1]
    steps = np.array([(points[name][0].mean, points[name][1].mean) for name in front]).reshape(-1, 2)
    stairs = np.concatenate((steps, [(right, steps[-1, 1])])) if len(steps) else steps
    axis.step(*stairs.T, where="post", color=INK, lw=1.1, alpha=0.5, zorder=2)
    axis.set_xlabel("rotation: mean share of sensors that turn (less is better)")
    axis.set_ylabel("coverage")
    plain_axis(axis, "both")
    _title(figure, evaluation, f"crosses: 95 % intervals{one_seed(agents)}; stairs: the Pareto front")
    labels = {name: (label_of(short, agents[name]), colours[name]) for name, short in short_names(agents).items()}
    name_points(figure, axis, labels, points, levels, stairs, lines.values())
    write_figure(path, figure)


def save_over_time(path: str | Path, evaluation: Mapping[str, Any], sub_steps: int) -> None:
    """Draw the coverage over the time of an episode, a line for each agent; references are dashed.

    Args:
        path: file of the figure.
        evaluation: evaluation of agents with ``over_time``; agents without are left out.
        sub_steps: length of an episode, sub-steps.

    Raises:
        ValueError: no agent has ``over_time``.
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    lines = {name: np.array(result["over_time"], float) for name, result in agents.items() if result.get("over_time")}
    lines = {name: line for name, line in lines.items() if not np.isnan(line).all()}
    if not lines:
        raise ValueError("no agent has over_time")
    figure = new_figure((10, 5.2))
    axis = figure.subplots()
    ends = {}
    for name, line in lines.items():
        reference = is_reference(agents[name])
        time = (np.arange(len(line)) + 0.5) * sub_steps / len(line)  # the middle of each slice
        axis.plot(
            time,
            line,
            color=colours[name],
            ls="--" if reference else "-",
            lw=1.4 if reference else 2,
            marker="" if len(line) > 1 else "o",
        )
        last = np.flatnonzero(~np.isnan(line))[-1]
        ends[name] = time[last], line[last]
    axis.set_xlim(0, sub_steps)
    axis.set_xlabel("sub-step")
    axis.set_ylabel("coverage")
    plain_axis(axis, "both")
    _title(figure, evaluation, "coverage over time")
    figure.draw_without_rendering()
    pixels = axis.transData.transform([(0, level) for _, level in ends.values()])[:, 1]
    apart = spread(pixels, 13 * figure.dpi / 72)  # height of a label
    levels = axis.transData.inverted().transform(np.stack((pixels, apart), -1))[:, 1]
    for (name, end), level in zip(ends.items(), levels, strict=True):
        axis.annotate(
            label_of(name, agents[name]),
            end,
            xytext=(1.015, level),
            textcoords=axis.get_yaxis_transform(),
            va="center",
            fontsize=9,
            color=colours[name],
            arrowprops={"arrowstyle": "-", "lw": 0.7, "color": colours[name], "alpha": 0.6, "shrinkA": 0, "shrinkB": 2},
        )
    write_figure(path, figure)


def save_heat_maps(
    path: str | Path,
    evaluations: Mapping[tuple[int, int], Mapping[str, Any]],
    reference: Mapping[tuple[int, int], float] | None = None,
) -> None:
    """Draw for every agent a heat map of its mean decision reward over n sensors (rows) and m targets (columns).

    Args:
        path: file of the figure.
        evaluations: evaluations by (n, m), each of all or some of the agents; a cell without a value is blank.
        reference: rewards by (n, m) to compare with; the difference is in brackets.

    Raises:
        ValueError: no agent has a decision reward.
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    agents = {name: result for evaluation in evaluations.values() for name, result in evaluation["agents"].items()}
    colours = colours_of(agents)
    rows, columns = (sorted({size[place] for size in evaluations}) for place in (0, 1))
    maps: dict[str, np.ndarray] = {}
    for name in sorted(agents, key=lambda name: is_reference(agents[name])):
        values = np.full((len(rows), len(columns)), np.nan)
        for (n, m), evaluation in evaluations.items():
            value = _value(evaluation["agents"].get(name, {}), "decision_reward")
            values[rows.index(n), columns.index(m)] = np.nan if value is None else value.mean
        if not np.isnan(values).all():
            maps[name] = values
    if not maps:
        raise ValueError("no agent has a decision reward")
    longest = max(len(label_of(name, agents[name])) for name in maps)
    wide, tall = max(0.66 * len(columns) + 0.6, 0.09 * longest + 0.3), 0.5 * len(rows) + 0.75
    across = max(1, min(len(maps), 4, int(9.5 / wide)))
    down = -(-len(maps) // across)
    figure = new_figure((max(4.6, across * wide + 1.2), down * tall + 0.6))
    axes = figure.subplots(down, across, squeeze=False).ravel()
    low, high = (float(end) for end in (np.nanmin(list(maps.values())), np.nanmax(list(maps.values()))))
    span = (high - low) or 1.0
    image = None
    for axis, (name, values) in zip(axes, maps.items(), strict=False):
        image = axis.imshow(values, cmap="Blues", vmin=low - 0.2 * span, vmax=high + 0.1 * span, aspect="auto")
        for (i, j), number in np.ndenumerate(values):
            if np.isnan(number):
                continue
            ink = "white" if image.norm(number) > 0.55 else INK
            size = rows[i], columns[j]
            other = None if reference is None else reference.get(size)
            axis.text(j, i - (0.15 if other is not None else 0), f"{number:.3f}", ha="center", va="center", color=ink)
            if other is not None:
                axis.text(
                    j,
                    i + 0.24,
                    f"({round(number - other, 3) + 0.0:+.3f})",
                    ha="center",
                    va="center",
                    color=ink,
                    fontsize=7,
                )
        axis.set_xticks(range(len(columns)), columns)
        axis.set_yticks(range(len(rows)), rows)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(label_of(name, agents[name]), fontsize=10, color=colours[name])
    for axis in axes[len(maps) :]:
        axis.set_visible(False)
    figure.supxlabel("targets", fontsize=9)
    figure.supylabel("sensors", fontsize=9)
    figure.suptitle(
        "decision reward" + (" (difference to the reference)" if reference else ""),
        fontsize=10,
        x=0.01,
        ha="left",
    )
    if image is not None:
        bar = figure.colorbar(image, ax=axes, aspect=30, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.set_ylim(low - 0.05 * span, high + 0.05 * span)
    write_figure(path, figure)


def _value(result: Mapping[str, Any], metric: str) -> Value | None:
    """Return a metric of an agent, None without a value; without an interval both its ends are the mean."""
    entry = result.get(metric)
    if entry is None or entry["mean"] is None:
        return None
    low, high = entry.get("ci95") or (entry["mean"], entry["mean"])
    return Value(entry["mean"], low, high)


def _title(figure: Figure, evaluation: Mapping[str, Any], legend: str) -> None:
    scenario = str(evaluation["scenario"]).replace("$", r"\$")
    first, last = evaluation["seeds"]
    text = f"{scenario}: {evaluation['episodes']} episodes, seeds {first} to {last}; {legend}"
    figure.suptitle(text, fontsize=10, x=0.01, ha="left", color=INK)


def _front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points (rotation, coverage) that no other dominates, by rising rotation."""

    def beaten(x: float, y: float) -> bool:
        return any(a <= x and b >= y and (a, b) != (x, y) for a, b in points.values())

    return sorted((name for name, point in points.items() if not beaten(*point)), key=lambda name: points[name])


def varied(scenario: Scenario, text: str) -> tuple[str, dict[float, Scenario]]:
    """Return the parameter that `text` varies, such as ``missed_detections=0/0.1/0.3``, and the scenario of each value.

    Raises:
        ValueError: `text` has another form, names no parameter that is a number, or has a value that the scenario
            cannot have or has twice.
        TypeError: a value of another type.
    """
    name, _, values = text.partition("=")
    plain = [field.name for field in dataclasses.fields(scenario) if _is_number(getattr(scenario, field.name))]
    if name not in plain:
        raise ValueError(f"--vary has {name!r}{did_you_mean(name, plain)}: it must be one of {', '.join(plain)}")
    texts = values.split("/")
    numbers = [number for one in texts if (number := number_of(one)) is not None]
    if len(set(numbers)) != len(texts):
        raise ValueError(f"--vary is {text!r}; it must have the form {name}=V1/V2/V3, with different numbers")
    scenes = {one: scenario.replace(name=f"{scenario.name}, {name} {one}", **{name: one}) for one in sorted(numbers)}
    return name, scenes


def save_sweeps(path: str | Path, sweeps: Mapping[str, Mapping[float, Mapping[str, Any]]]) -> None:
    """Draw the coverage of every agent against each of the parameters that vary, in a panel for each parameter.

    Bands are 95 % intervals. References are dashed.

    Args:
        path: file of the figure.
        sweeps: of each parameter the evaluations by value, all of the same agents.

    Raises:
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    first = next(iter(next(iter(sweeps.values())).values()))
    agents, colours = first["agents"], colours_of(first["agents"])
    figure = new_figure((2.2 + 3.3 * len(sweeps), 3.9))
    axes = figure.subplots(1, len(sweeps), sharey=True, squeeze=False)[0]
    for axis, (parameter, evaluations) in zip(axes, sweeps.items(), strict=True):
        values = list(evaluations)
        for name, result in agents.items():
            entries = [evaluation["agents"][name]["coverage"] for evaluation in evaluations.values()]
            means = np.array([entry["mean"] for entry in entries])
            low, high = np.array([entry["ci95"] or (entry["mean"], entry["mean"]) for entry in entries]).T
            dashed = "--" if is_reference(result) else "-"
            axis.fill_between(values, low, high, color=colours[name], alpha=0.15, lw=0)
            axis.plot(values, means, dashed, marker="o", ms=3.5, color=colours[name], label=label_of(name, result))
        axis.set_xlabel(parameter.replace("_", " "))
        plain_axis(axis, "both")
        axis.locator_params(axis="x", nbins=4)
    axes[0].set_ylabel("coverage")
    handles, labels = axes[0].get_legend_handles_labels()
    order = np.argsort([-line.get_ydata()[0] for line in handles])
    figure.legend(
        [handles[k] for k in order], [labels[k] for k in order], loc="outside right upper", frameon=False, fontsize=9
    )
    start, end = first["seeds"]
    text = f"{first['episodes']} episodes, seeds {start} to {end}; bands: 95 % intervals{one_seed(agents)}"
    figure.suptitle(text, fontsize=10, x=0.01, ha="left", color=INK)
    write_figure(path, figure)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
