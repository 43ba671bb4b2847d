"""Coverage where a parameter of the scenario varies, as curves of several agents."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.agents.evaluate.style import INK, colours_of, is_reference, label_of, new_figure, plain_axis, write_figure
from hitmac.agents.evaluate.tables import one_seed
from hitmac.agents.names import number_of
from hitmac.envs.errors import did_you_mean
from hitmac.envs.scenario import Scenario


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
