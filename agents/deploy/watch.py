"""Command line ``hitmac watch``: show an episode of agents on a page in the browser."""

import os
import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hitmac.agents.command_line import Agents, parse, stop_on_bad_input
from hitmac.agents.deploy.replay.page import page, record_log, save_replay
from hitmac.agents.evaluate.logs import ENDING, read_log
from hitmac.agents.names import named_agents
from hitmac.envs.files import check_output, write_text
from hitmac.envs.scenario import load_scenario
from hitmac.envs.tasks import SUB_STEPS
from hitmac.envs.validation import Count, Positive, convert

PROGRAM = "hitmac watch"


@dataclass(frozen=True)
class Options:
    """Watch agents play the same episode, side by side: hitmac watch --agents planner,pretrained:flat.

    The episodes are written as one self-contained HTML page, which is shown in the browser.
    """

    agents: Agents = ("pretrained:flat",)
    """Agents, comma-separated, as in hitmac evaluate: planner, pretrained:NAME, the directory of a run; or the log of
    hitmac run, .jsonl. As the first argument, it needs no --agents."""
    scenario: str = "hit-mac"
    """Scenario: a preset's name (also with sizes: hit-mac-6x9), the path of a YAML file, or a run."""
    seed: int = 0
    """Seed of the episode."""
    sub_steps: Count = SUB_STEPS
    """Length of the episode, sub-steps."""
    tracks: tuple[str, ...] = ()
    """CSV files of recorded tracks in place of the scenario's; the episode follows one of them."""
    columns: str = ""
    """Other names of their columns, such as time=t,id=track, or numbers without a header. Empty: the scenario's."""
    device: str = "cpu"
    """Device of networks: cpu, cuda, cuda:1, or auto, an accelerator if present."""
    to: Path = Path("watch.html")
    """File of the page."""
    open: bool = True
    """Open the page in the browser, if a display is present."""
    sub_steps_per_second: Positive = 20.0
    """Initial speed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = parse(Options, PROGRAM, arguments, first="--agents")
    with stop_on_bad_input(PROGRAM):
        convert("--sub-steps-per-second", Positive, options.sub_steps_per_second)
        check_output("--to", options.to, ".html")
        seed, speed = options.seed, options.sub_steps_per_second
        if options.agents[0].endswith(ENDING):
            logged = read_log(options.agents[0])
            site = logged.scenario
            write_text(options.to, page(site, site.name, [record_log(logged)], speed, logged.private))
            names = [logged.agent]
        else:
            scenario = load_scenario(options.scenario).following(options.tracks, options.columns)
            agents = named_agents(options.agents, scenario, options.device)
            names = [agent.name for agent in agents]  # trainings of one agent have the names of their runs
            agents = [agent._replace(name=agent.run) if names.count(agent.name) > 1 else agent for agent in agents]
            names = [agent.name for agent in agents]
            save_replay(options.to, agents, scenario, seed=seed, sub_steps=options.sub_steps, speed=speed)
    print(f"{options.to}: {', '.join(names)}; {options.to.stat().st_size / 1000:.0f} kB")
    # Without a display, a text browser would take over the terminal.
    seen = not sys.platform.startswith("linux") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if options.open and seen:
        webbrowser.open(options.to.resolve().as_uri())
