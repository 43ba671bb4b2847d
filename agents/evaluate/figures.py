"""Figures of evaluations: bars, coverage against rotation, coverage over time, heat maps over sizes, sweeps.

Every function writes evaluations, results of :func:`hitmac.agents.evaluate.evaluate`, as one PNG file `path`; without
matplotlib it raises ModuleNotFoundError, which names the extra to install. Bounds are grey; lines of upper bounds are
dashed, and those of lower estimates dotted. Labels include the kind of a bound and the number of training seeds: with
one, intervals are over episodes only. Agents of one family, the same agent with different options, share a colour.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hitmac.agents.evaluate.tables import folded, markdown, note, released_reward, scope, title
from hitmac.agents.names import split_options
from hitmac.envs.files import check_output, whole_file, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WITHOUT_LEARNING = {
    "random": "#8c613c", "still": "#a3a02c", "nearest": "#e08a2e", "greedy": "#2aa3a3", "exact": "#4f6d7a",
    "planner": "#228b4a", "planner-fast": "#8fc66b", "belief-planner": "#0f7f8c", "belief-planner-fast": "#6fb7c2",
    "belief-planner-fastest": "#a9d3d8",
}  # fmt: skip
_OTHERS = ("#427ac4", "#d0392b", "#784696", "#d977b5", "#1b3e73", "#7a7fd1", "#5d8a00", "#b0305c")
_GREY, _INK = "#7d7d7d", "#333333"
_PANELS = {
    "coverage": "coverage",
    "decision_reward": "decision reward",
    "rotation": "rotation (less is better)",
    "least_covered": "least covered",
}


def new_figure(size: tuple[float, float], title: str = "") -> Figure:
    """Return an empty figure of a size in inches; raise ModuleNotFoundError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("figures require matplotlib: pip install 'hitmac[train]'") from None
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    figure.suptitle(title.replace("$", r"\$"), fontsize=10, x=0.01, ha="left", color=_INK, wrap=True)
    return figure


def write_figure(path: str | Path, figure: Figure) -> None:
    """Write a figure as PNG; raise ValueError if `path` does not end in .png."""
    check_output("path", path, ".png")
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def colours_of(agents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the colour of every agent, by name, from their results."""
    families = {name: split_options(name)[0] for name, result in agents.items() if not result.get("bound")}
    others = [family for family in dict.fromkeys(families.values()) if family not in _WITHOUT_LEARNING]
    colours = {family: _other(place) for place, family in enumerate(others)} | _WITHOUT_LEARNING
    return {name: colours[families[name]] if name in families else _GREY for name in agents}


def _other(place: int) -> str:
    """Return the colour of a family without its own, by its place; lighter and then darker ones follow the first."""
    round_, index = divmod(place, len(_OTHERS))
    colour = np.array([int(_OTHERS[index][k : k + 2], 16) for k in (1, 3, 5)])
    return "#{:02x}{:02x}{:02x}".format(*(colour + (colour, 255, 0)[round_ % 3]) // 2)


def label_of(name: str, result: Mapping[str, Any]) -> str:
    """Return the label of an agent: its name, on several lines if it is long, and the note of its result."""
    text = folded(name).replace("$", r"\$") + note(result)
    return " " * text.startswith("_") + text  # matplotlib leaves a label out of a legend if it begins with _


def plain_axis(axis: Axes, grid: str) -> None:
    """Draw a thin grid behind the plot, and only the left and bottom sides of the frame."""
    axis.grid(axis=grid, alpha=0.25, lw=0.7)  # type: ignore[arg-type]
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=9, color=_GREY)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_GREY)


def save_pictures(folder: str | Path, evaluations: Mapping[tuple[int, int], Mapping[str, Any]], note: str = "") -> None:
    """Write tables and figures of evaluations, by (n, m), into `folder`, which is created if necessary.

    The files are ``evaluation.md``, with `note` as its last paragraph; ``bars.png``, ``pareto.png`` and
    ``over_time.png`` of the first evaluation; and for several sizes ``heat_maps.png``, on the released program's scene
    with a comparison to that program.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    first = next(iter(evaluations.values()))
    paragraphs = [*map(markdown, evaluations.values()), *([note] if note else [])]
    write_text(folder / "evaluation.md", "\n\n".join(paragraphs) + "\n")
    save_bars(folder / "bars.png", first)
    save_pareto(folder / "pareto.png", first)
    save_over_time(folder / "over_time.png", first)
    if len(evaluations) > 1:
        save_heat_maps(folder / "heat_maps.png", evaluations, released_reward(first["scenario"]))


def save_bars(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw a bar for every agent, best coverage first, in a panel for each metric.

    The metrics are coverage, decision reward, rotation and least covered; missing ones are left out. Whiskers are 95 %
    intervals. Bounds are hatched. Raises ValueError without any of the metrics.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    values = {metric: {name: _value(result, metric) for name, result in agents.items()} for metric in _PANELS}
    panels = [metric for metric, of_agents in values.items() if any(of_agents.values())]
    if not panels:
        raise ValueError(f"no agent has any of {', '.join(_PANELS)}")
    ranked = sorted(agents, key=lambda name: (values["coverage"][name] or [-np.inf])[0])  # upwards
    labels = [label_of(name, agents[name]) for name in ranked]
    high = 0.36 * max(1.0, 0.5 * max(1 + label.count("\n") for label in labels))  # of a row
    figure = new_figure((10, 1.3 + high * len(agents)), f"{title(evaluation)}; whiskers: {_intervals(agents)}")
    for metric, axis in zip(panels, figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], strict=True):
        for row, name in enumerate(ranked):
            mean, low, high = values[metric][name] or (np.nan, 0, 0)
            style = {"color": colours[name]}
            if agents[name].get("bound"):
                style = {"color": "#e4e4e4", "hatch": "////", "edgecolor": "#a8a8a8"}
            if values[metric][name]:
                axis.barh(row, mean, height=0.66, lw=0, **style)
                axis.plot((low, high), (row, row), color=_INK, lw=1.1, marker="|", ms=5)
            text, place = "\u2013" if np.isnan(mean) else f"{mean:.3f}", (np.nanmax((mean, high, 0)), row)
            axis.annotate(text, place, (5, 0), textcoords="offset points", va="center", fontsize=8.5, color=_INK)
        left, right = axis.get_xlim()
        axis.set_xlim(left, right + 0.34 * (right - left))  # room for the numbers
        axis.set_ylim(-0.6, len(ranked) - 0.4)
        axis.set_yticks(range(len(ranked)), labels)
        axis.set_title(_PANELS[metric], fontsize=10, loc="left")
        axis.locator_params(axis="x", nbins=3)
        plain_axis(axis, "x")
        axis.tick_params(axis="y", length=0)
    write_figure(path, figure)


def save_pareto(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw coverage against rotation, with both 95 % intervals of every agent and the Pareto front.

    One agent dominates another with at least the same coverage at no more rotation, if one of them differs. The front
    joins the agents that are not dominated; the others are fainter. A family is one line, with the options at its
    points. A result without rotation is a dashed line. A bound is a hollow diamond, not part of the front.
    """
    agents, colours = evaluation["agents"], colours_of(evaluation["agents"])
    figure = new_figure((10, 6.2), f"{title(evaluation)}; crosses: {_intervals(agents)}; stairs: the Pareto front")
    axis, places = figure.subplots(), {}
    families: dict[str, list[str]] = {}
    for name, result in agents.items():
        x, y = _value(result, "rotation"), _value(result, "coverage")
        if x and y:
            places[name] = x, y
            families.setdefault(split_options(name)[0], []).append(name)
        elif y:
            axis.axhline(y[0], ls="--", lw=1.2, color=colours[name], label=label_of(name, result))
    points = {name: (x[0], y[0]) for name, (x, y) in places.items()}
    front = _front({name: point for name, point in points.items() if not agents[name].get("bound")})
    for family, members in families.items():
        members.sort(key=lambda name: points[name])
        several, colour = len(members) > 1, colours[members[0]]
        label = label_of(family if several else members[0], agents[members[0]])
        line = np.array([points[name] for name in members])
        axis.plot(*line.T, color=colour, lw=1.6, alpha=0.7, zorder=2.5, label=label)
        for name in members:
            (x, y), bound, options = places[name], agents[name].get("bound"), split_options(name)[1]
            style: dict[str, Any] = {"color": colour, "alpha": 1.0 if bound or name in front else 0.5, "zorder": 3}
            axis.plot(x[1:], (y[0], y[0]), lw=1.3, **style)
            axis.plot((x[0], x[0]), y[1:], lw=1.3, **style)
            axis.plot(*points[name], "D" if bound else "o", ms=7, mfc="white" if bound else colour, **style)
            if several:
                text = options.partition("=")[2] if options.count("=") == 1 else options
                axis.annotate(text, points[name], (5, 5), textcoords="offset points", fontsize=8.5, color=colour)
    axis.margins(x=0.08, y=0.1)
    left, right = axis.get_xlim()
    axis.set_xlim(max(left, -0.03 * right), right)  # no wide strip of negative rotation
    if front:
        steps = [*(points[name] for name in front), (right, points[front[-1]][1])]
        axis.step(*zip(*steps, strict=True), where="post", color=_INK, lw=1.1, alpha=0.5, zorder=2)
    axis.set(xlabel="rotation: mean share of sensors that turn (less is better)", ylabel="coverage")
    plain_axis(axis, "both")
    _legend_beside(axis)
    write_figure(path, figure)


def save_over_time(path: str | Path, evaluation: Mapping[str, Any]) -> None:
    """Draw the coverage over the time of an episode, a line for each agent with ``over_time``.

    Raises ValueError if no agent has ``over_time``.
    """
    agents, colours, sub_steps = evaluation["agents"], colours_of(evaluation["agents"]), evaluation["sub_steps"]
    lines = {name: np.array(result.get("over_time") or [], float) for name, result in agents.items()}
    if all(np.isnan(line).all() for line in lines.values()):
        raise ValueError("no agent has over_time")
    figure = new_figure((10, 5.2), f"{title(evaluation)}; coverage over time")
    axis = figure.subplots()
    for name, line in lines.items():
        if np.isnan(line).all():
            continue
        time = (np.arange(len(line)) + 0.5) * sub_steps / len(line)  # the middle of each part
        style, marker = _style(agents[name]), "" if len(line) > 1 else "o"
        wide = 2.0 if style == "-" else 1.4
        axis.plot(time, line, style + marker, lw=wide, color=colours[name], label=label_of(name, agents[name]))
    axis.set(xlim=(0, sub_steps), xlabel="sub-step", ylabel="coverage")
    plain_axis(axis, "both")
    _legend_beside(axis)
    write_figure(path, figure)


def save_heat_maps(
    path: str | Path,
    evaluations: Mapping[tuple[int, int], Mapping[str, Any]],
    reference: Mapping[tuple[int, int], float],
) -> None:
    """Draw a heat map of the mean decision reward of every agent over n sensors (rows) and m targets (columns).

    `evaluations`, by (n, m), are each of all or some agents; a cell without a value is blank. The differences to the
    rewards `reference`, by (n, m), are in brackets. Raises ValueError if no agent has a decision reward.
    """
    agents = {name: result for evaluation in evaluations.values() for name, result in evaluation["agents"].items()}
    colours = colours_of(agents)
    rows, columns = (sorted({size[place] for size in evaluations}) for place in (0, 1))
    maps: dict[str, np.ndarray] = {}
    for name in sorted(agents, key=lambda name: bool(agents[name].get("bound"))):
        found = {size: _value(each["agents"].get(name, {}), "decision_reward") for size, each in evaluations.items()}
        if any(found.values()):
            maps[name] = np.array([[(found.get((n, m)) or [np.nan])[0] for m in columns] for n in rows])
    if not maps:
        raise ValueError("no agent has a decision reward")
    longest = max(len(line) for name in maps for line in label_of(name, agents[name]).split("\n"))
    wide, tall = max(0.66 * len(columns) + 0.6, 0.09 * longest + 0.3), 0.5 * len(rows) + 0.75
    across = max(1, min(len(maps), 4, int(9.5 / wide)))
    down = -(-len(maps) // across)
    text = "decision reward" + (" (difference to the reference)" if reference else "")
    figure = new_figure((max(4.6, across * wide + 1.2), down * tall + 0.6), text)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    every = np.array(list(maps.values()))
    low, span = np.nanmin(every), np.nanmax(every) - np.nanmin(every) or 1.0
    for axis, (name, values) in zip(axes, maps.items(), strict=False):
        image = axis.imshow(values, cmap="Blues", vmin=low - 0.2 * span, vmax=low + 1.1 * span, aspect="auto")
        for i, j in np.argwhere(~np.isnan(values)):
            text, other = f"{values[i, j]:.3f}", reference.get((rows[i], columns[j]))
            if other is not None:
                text += f"\n({round(values[i, j] - other, 3) + 0.0:+.3f})"  # without -0.0
            colour = "white" if image.norm(values[i, j]) > 0.55 else _INK
            axis.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
        axis.set_xticks(range(len(columns)), columns)
        axis.set_yticks(range(len(rows)), rows)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(label_of(name, agents[name]), fontsize=10, color=colours[name])
    for axis in axes[len(maps) :]:
        axis.set_visible(False)
    figure.supxlabel("targets", fontsize=9)
    figure.supylabel("sensors", fontsize=9)
    figure.colorbar(image, ax=axes, aspect=30, pad=0.02).outline.set_visible(False)
    write_figure(path, figure)


def save_sweeps(path: str | Path, sweeps: Mapping[str, Mapping[float, Mapping[str, Any]]]) -> None:
    """Draw the coverage of every agent against the values of parameters, in a panel for each parameter.

    `sweeps` holds the evaluations of the same agents, by parameter and value. Bands are 95 % intervals. The title has
    the scenario of the first evaluation without its last part after a comma, such as `hops 1.0`.
    """
    every = [evaluation for by_value in sweeps.values() for evaluation in by_value.values()]
    agents, colours = every[0]["agents"], colours_of(every[0]["agents"])
    emptiest = max(every, key=lambda evaluation: evaluation.get("empty", 0.0))
    words = f"{every[0]['scenario'].rsplit(', ', 1)[0]}, {scope(emptiest)}; bands: {_intervals(agents)}"
    figure = new_figure((2.2 + 3.3 * len(sweeps), 3.9), words)
    axes = figure.subplots(1, len(sweeps), sharey=True, squeeze=False)[0]
    for axis, (parameter, evaluations) in zip(axes, sweeps.items(), strict=True):
        for name, result in agents.items():
            every_value = (_value(evaluation["agents"][name], "coverage") for evaluation in evaluations.values())
            values = [value or [np.nan] * 3 for value in every_value]
            (mean, low, high), x, style = np.array(values, float).T, list(evaluations), f"{_style(result)}o"
            axis.fill_between(x, low, high, color=colours[name], alpha=0.15, lw=0)
            axis.vlines(x, low, high, color=colours[name], alpha=0.4, lw=1)  # a single value has no band
            axis.plot(x, mean, style, ms=3.5, color=colours[name], label=label_of(name, result))
        axis.set_xlabel(parameter.replace("_", " "))
        plain_axis(axis, "both")
        axis.locator_params(axis="x", nbins=4)
    axes[0].set_ylabel("coverage")
    _legend_beside(axes[-1])
    write_figure(path, figure)


def _value(result: Mapping[str, Any], metric: str) -> list[float] | None:
    """Return the mean of a metric and the ends of its interval (without one, the mean); None without a value."""
    entry = result.get(metric) or {"mean": None}
    mean = entry["mean"]
    return None if mean is None else [mean, *(entry.get("ci95") or (mean, mean))]


def _style(result: Mapping[str, Any]) -> str:
    """Return the style of an agent's line, or of the line of a bound of a kind."""
    return {"upper bound": "--", "lower estimate": ":"}.get(result.get("bound", ""), "-")


def _intervals(agents: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the description of the intervals, which with one training seed are over episodes or recordings only."""
    one = [result.get("interval") for result in agents.values() if result.get("trainings") == 1]
    return "95 % intervals" + (f", with 1 seed over {one[0]} only" if one else "")


def _front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points (rotation, coverage) that are not dominated, by rising rotation."""
    beaten = {(x, y) for x, y in points.values() for a, b in points.values() if a <= x and b >= y and (a, b) != (x, y)}
    return sorted((name for name, point in points.items() if point not in beaten), key=lambda name: points[name])


def _legend_beside(axis: Axes) -> None:
    """Write a legend to the right of the plot, by falling last values of the lines."""
    lines: Any = axis.get_legend_handles_labels()[0]
    lines.sort(key=lambda line: -np.nan_to_num(line.get_ydata()[-1]))
    axis.legend(handles=lines, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=9)
    rows = sum(1 + line.get_label().count("\n") for line in lines)
    figure: Any = axis.figure
    figure.set_figheight(max(figure.get_figheight(), 1.0 + 0.21 * rows))
