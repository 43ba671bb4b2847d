"""Pages: recorded episodes as one self-contained HTML file, and what they share with the live page."""

import base64
import html
import io
import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hitmac.agents.evaluate.compare import fitted
from hitmac.agents.names import load_agent
from hitmac.agents.policy import Policy
from hitmac.agents.registry import Agent
from hitmac.agents.replay.record import record
from hitmac.envs.files import check_ending, read_text, write_text
from hitmac.envs.render import read_background
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.simulator import positive
from hitmac.envs.tasks import SUB_STEPS

SCRIPTS = ("tracks.js", "scene.js", "strip.js", "curves.js", "player.js")
"""Parts of the page's script, in order of use."""

_BACKGROUND = 1600  # longer side of a background, pixels


def save_replay(
    path: str | Path,
    agents: Sequence[Agent | Policy | str | Path],
    scenario: Scenario | str | Path,
    *,
    seed: int,
    sub_steps: int = SUB_STEPS,
    speed: float = 20.0,
) -> None:
    """Play an episode of each agent on the same seed, and write a page that shows them side by side.

    The agents and the scenario are those of :func:`hitmac.agents.load_agent`. The episodes have `sub_steps` sub-steps,
    limited by the scenario, played at `speed` sub-steps per second at first. Raises ValueError without agents, or if
    `path` does not end in .html.
    """
    check_ending("path", path, ".html")
    scenario, sub_steps = fitted(load_scenario(scenario), positive("sub_steps", sub_steps))
    loaded = [load_agent(agent, scenario) for agent in agents]
    if not loaded:
        raise ValueError("agents is empty; give one or more")
    write_text(path, page(scenario, seed, [record(agent, scenario, seed, sub_steps) for agent in loaded], speed))


def page(scenario: Scenario, seed: int, episodes: Sequence[Mapping[str, Any]], speed: float = 20.0) -> str:
    """Return the page of episodes of one scenario and seed, records of :func:`hitmac.agents.replay.record.record`."""
    data = world(scenario) | {"seed": seed, "speed": speed, "episodes": episodes}
    return filled("page.html", SCRIPTS, f"{scenario.name}, seed {seed}", data)


def world(scenario: Scenario) -> dict[str, Any]:
    """Return what pages show of a scenario at all times, valid as JSON."""
    pan = [limits if limits[1] - limits[0] < 360.0 else None for limits in scenario.pan_limits]
    return {
        "scenario": scenario.name,
        "halfWidth": scenario.extent[0],
        "halfHeight": scenario.extent[1],
        "walls": scenario.all_walls.tolist(),
        "rails": scenario.rails,
        "zones": scenario.zones,
        "warehouses": scenario.warehouses,
        "warehouseSize": scenario.warehouse_size,
        "panLimits": pan * scenario.num_sensors if len(pan) == 1 else pan,  # None without limits
        "background": _picture(scenario.background) if scenario.background else "",
    }


def filled(template: str, scripts: Sequence[str], title: str, data: Mapping[str, Any]) -> str:
    """Return the page of a template with its style, its scripts and the data that they read."""
    parts = {name: read_text(Path(__file__).with_name(name)) for name in (template, "page.css", *scripts)}
    return string.Template(parts[template]).substitute(
        title=html.escape(title),
        style=parts["page.css"],
        # Inside a script element only "</" and "<!--" have a special meaning.
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        script="\n".join(parts[name] for name in scripts),
    )


def _picture(path: str) -> str:
    """Return a picture, reduced if it is large, as a data URI."""
    shown = read_background(path)
    shown.thumbnail((_BACKGROUND, _BACKGROUND))
    written = io.BytesIO()
    shown.save(written, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode("ascii")
