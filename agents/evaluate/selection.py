"""Agents and scenarios from the evaluation's command line."""

from __future__ import annotations

import re

from hitmac.agents.device import checked_device
from hitmac.agents.learned.groups import trainings_in, variations_in
from hitmac.agents.names import each_value, split_group, with_options
from hitmac.agents.registry import SCRIPTED, Agent, load_agent
from hitmac.envs.load import load_scenario
from hitmac.envs.scenario import Scenario


def scenarios(names: str, sizes: str) -> list[Scenario]:
    """Load the comma-separated scenarios `names`, each in all `sizes`, or without any in its own size."""
    chosen = []
    for name in names.split(","):
        scenario = load_scenario(name)
        for size in sizes.split(",") if sizes else [""]:
            numbers = size.split("x")
            if size and (len(numbers) != 2 or not all(number.isdecimal() for number in numbers)):
                raise ValueError(f"sizes has {size!r}; it must have the form 4x5: sensors x targets")
            chosen.append(
                scenario.replace(
                    name=f"{scenario.name}-{size}", num_sensors=int(numbers[0]), num_targets=int(numbers[1])
                )
                if size
                else scenario
            )
    given = [name_and_size(scenario) for scenario in chosen]
    if twice := next((one for one in given if given.count(one) > 1), None):
        raise ValueError(
            "two scenarios are named {} with {} sensors and {} targets; give each its own name".format(*twice)
        )
    return chosen


def name_and_size(scenario: Scenario) -> tuple[str, int, int]:
    """Return a scenario's name without its size, as a valid folder name, then n and m."""
    name = re.sub(r"\W+", "-", re.sub(r"-\d+x\d+$", "", scenario.name)).strip("-")
    return name or "scene", scenario.num_sensors, scenario.num_targets


def named_agents(names: str, scenario: Scenario, device: str = "cpu") -> list[Agent]:
    """Load the comma-separated agents `names`, networks on a device; the agents of a group have the group's name."""
    agents, given, optional = [], set(), with_options(SCRIPTED)
    for name in (one for several in filter(None, names.split(",")) for one in _each(several, optional)):
        group, members = split_group(name, optional)
        joined = members.split("+")
        if len(joined) > 1 and not group:
            raise ValueError(f"{name!r} joins several trainings without a name; write NAME={name}")
        runs = [run for one in joined for run in each_training(one)]
        group = group or (name if runs != joined else "")
        for run in runs:
            if (group or run, run) in given:
                raise ValueError(f"agents has {run} twice{f' in {group}' if group else ''}; leave one out")
            given.add((group or run, run))
            with checked_device(device):
                agent = load_agent(run, scenario)
            agents.append(agent._replace(name=group, run=run) if group else agent)
    if not agents:
        raise ValueError(f"agents is {names!r}; give one or more")
    return agents


def _each(name: str, optional: re.Pattern[str]) -> list[str]:
    """Return the name of an agent for each value of an option with several values, or for each variation of a group."""
    if optional.fullmatch(name):
        return each_value(name)
    return [str(path) for path in variations_in(name)] or [name]


def each_training(name: str) -> list[str]:
    """Return the names of an agent's trainings: of several seeds in one directory, each; else the name alone."""
    left, colon, right = name.partition(":")
    for folder, before, after in ((name, "", ""), (right, left + colon, ""), (left, "", colon + right)):
        if folder and (runs := trainings_in(folder)):
            return [f"{before}{run}{after}" for run in runs]
    return [name]
