"""Replay: records of episodes and of logged runs, and self-contained HTML pages that show them."""

import base64
import gzip
import html
import io
import json
import math
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.agents.attention import AttentionWatch
from hitmac.agents.evaluate.compare import Episodes, fitted
from hitmac.agents.evaluate.film import tracked
from hitmac.agents.evaluate.logs import Run
from hitmac.agents.names import load_agent
from hitmac.agents.policy import Policy, is_large, one_thread_each
from hitmac.agents.registry import Agent
from hitmac.agents.tracking.beliefs import BeliefState
from hitmac.agents.tracking.walk_model import X, Y
from hitmac.envs.files import check_output, read_text, write_text
from hitmac.envs.parts.tilt import footprints
from hitmac.envs.render import read_background
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.tasks import SUB_STEPS
from hitmac.envs.validation import positive

SCRIPTS = ("series.js", "scene.js", "strip.js", "curves.js", "player.js")
"""Parts of the page's script, in order of use."""

_BACKGROUND = 1600  # longer side of a background, pixels

DOTS = 12
"""Number of points that represent the particles of a belief."""

_NEVER = 2**16 - 1  # age of targets never seen, or seen to leave
_NONE = 2**16 - 1  # empty place in a list of targets


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
    check_output("path", path, ".html")
    scenario, sub_steps = fitted(load_scenario(scenario), positive("sub_steps", sub_steps))
    loaded = [load_agent(agent, scenario) for agent in agents]
    if not loaded:
        raise ValueError("agents is empty; give one or more")
    episodes = (record(agent, scenario, seed, sub_steps) for agent in loaded)
    write_text(path, page(scenario, f"{scenario.name}, seed {seed}", episodes, speed))


def page(
    scenario: Scenario, title: str, episodes: Iterable[Mapping[str, Any]], speed: float = 20.0, private: Any = ()
) -> str:
    """Return the page of episodes of one scenario, results of :func:`record`, with `private` polygons."""
    shown = world(scenario)  # raises the errors of a background before episodes are played
    data = shown | {"speed": speed, "episodes": [*episodes], "private": [*private]}
    return filled("page.html", SCRIPTS, title, data)


def world(scenario: Scenario) -> dict[str, Any]:
    """Return what pages show of a scenario at all times, valid as JSON."""
    pan = [limits if limits[1] - limits[0] < 360.0 else None for limits in scenario.pan_limits]
    return {
        "scenario": scenario.name,
        "names": scenario.sensor_names,  # by default 1 to n
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


@one_thread_each()
def record(agent: Agent, scenario: Scenario, seed: int, sub_steps: int) -> dict[str, Any]:
    """Play an episode of T sub-steps with the agent's best actions; return its record, valid as JSON.

    The scenario is that of :func:`hitmac.agents.evaluate.compare.fitted`. The record holds:

    - ``agent``, its name; ``frames``, T + 1; ``sensors`` and ``targets``, their numbers in this episode;
    - ``discs``, (x, y, radius) of each; ``levels``, the names of the networks with attention;
    - ``series``, the values of each quantity at the start and after each sub-step, by name, see :func:`packed`.

    Quantities of pairs are tables (n, m). If the agent observes the nearest targets, its attention is that of
    lists, and ``attention <level> targets`` holds their targets. In a large scene, the lists ``visible
    targets`` of each sensor replace the table ``visible``. Without identities, ``detections`` and ``tracks`` are
    their numbers, of lists of places and covariances. With two teams, ``load`` is the weight that a target carries
    to the warehouse ``goal``, and ``awaiting`` the weight that each warehouse is still to get. Whole numbers are exact;
    others have a resolution of 1/65534 of their range, 1/254 for attention and beliefs.
    """
    episode = Episodes(agent, scenario, [seed])
    state = episode.task.simulator.state
    n, m = int(state.num_sensors[0]), int(state.num_targets[0])
    frames = [_frame(episode, n, m)]
    with AttentionWatch(agent.policy) as watch:
        for _ in episode.steps(sub_steps):
            frames.append(_frame(episode, n, m) | _attention(episode, watch, n, m, frames[-1]))
    frames[0] = frames[1] | frames[0]  # without beliefs before the first decision
    for name in frames[1]:
        if name.startswith("attention"):
            frames[0][name] = np.full_like(frames[1][name], _NONE if name.endswith("targets") else 0)
    values = {name: _stacked(name, [frame[name] for frame in frames]) for name in frames[0]}
    return {
        "agent": agent.name,
        "frames": len(frames),
        "sensors": n,
        "targets": m,
        "discs": state.disc[0].tolist(),
        "levels": list(watch.levels),
        "series": {name: packed(name, array) for name, array in values.items()},
    }


def record_log(run: Run) -> dict[str, Any]:
    """Return the record of a run, in the form of :func:`record`, without targets and with its `start`, Unix seconds."""
    steps, n = run.heading.shape
    places = np.broadcast_to(np.array(run.scenario.sensor_positions), (steps, n, 2))
    values = {
        "sensor x": places[..., 0],
        "sensor y": places[..., 1],
        "heading": np.nan_to_num(run.heading),
        "view": run.view,
        **footprints(run.scenario, run.view, run.tilt),
        "working": ~np.isnan(run.heading),
        "paused": run.paused[:, None] > 0.0,
        "by hand": run.by_hand,
        "left": run.left,
        "rests": run.rests,
        "moves": run.moves,
        "turned": (np.nan_to_num(run.orders) != 0.0).sum(-1, keepdims=True),
        "coverage": run.covered[:, None],
        "time": run.time[:, None] - run.time[0],
    }
    for kind, columns, rows in (
        ("track", ("x", "y", "xx", "xy", "yy", "existence"), run.tracks),
        ("detection", ("x", "y"), [row[:, 1:] for row in run.detections]),
    ):
        values[f"{kind}s"] = np.array([[len(row)] for row in rows])
        values |= {f"{kind} {name}": _stacked(name, [row[:, j] for row in rows]) for j, name in enumerate(columns)}
    return {
        "agent": run.agent, "frames": steps, "sensors": n, "targets": 0, "discs": run.scenario.discs, "levels": [],
        "start": float(run.time[0]),
        "series": {name: packed(name, array) for name, array in values.items()}, "messages": run.messages,
    }  # fmt: skip


def packed(name: str, values: np.ndarray) -> dict[str, Any]:
    """Pack the values of a quantity over time (F, ...) as ``low + step * whole number``.

    The whole numbers, 8 bits for marks, attention and beliefs and 16 for others, are a table of F rows (``frames``), or
    of one row if all are equal; NaN is the largest. Their differences from row to row, modulo the range of the type,
    are compressed by gzip and encoded as base64.
    """
    real = values.dtype.kind == "f"
    narrow = values.dtype == np.bool_ or (real and name.startswith(("attention", "belief")))
    dtype, limit, low, step = ("uint8", 2**8 - 1, 0.0, 1.0) if narrow else ("<u2", 2**16 - 1, 0.0, 1.0)
    if real:
        known = values[~np.isnan(values)]
        low, high = float(known.min(initial=0.0)), float(known.max(initial=0.0))
        step = max(high - low, 1e-9) / (limit - 1)
        values = np.where(np.isnan(values), limit, np.rint((values - low) / step))
    whole = values.reshape(len(values), math.prod(values.shape[1:])).astype(dtype)
    if (whole == whole[0]).all():
        whole = whole[:1]
    text = gzip.compress(np.diff(whole, axis=0, prepend=whole[:1] * 0).tobytes(), mtime=0)
    data = base64.b64encode(text).decode("ascii")
    return {"type": np.dtype(dtype).name, "frames": len(whole), "low": low, "step": step, "data": data}


def _frame(episode: Episodes, n: int, m: int) -> dict[str, np.ndarray]:
    """Return copies of the current quantities of the first n sensors and m targets."""
    simulator = episode.task.simulator
    state = simulator.state
    sensors, targets = state.sensor_position[0, :n], np.nan_to_num(state.target_position[0, :m])
    frame = {
        "sensor x": sensors[:, 0],
        "sensor y": sensors[:, 1],
        "heading": state.heading[0, :n],
        "view": state.field_of_view[0, :n],
        "reach": np.sqrt(state.range_squared[0, :n]),
        "working": state.working[0, :n],
        "turned": state.turned[:1],
        "target x": targets[:, 0],
        "target y": targets[:, 1],
        "present": state.present[0, :m],
        "covered": state.covered[0, :m] & state.present[0, :m],
        "coverage": simulator.observed_coverage[:1],
    }
    if state.near_squared is not None:
        frame["near"] = np.sqrt(state.near_squared[0, :n])
    visible = state.visible[0, :n, :m]
    frame |= {"visible targets": _lists(visible)} if is_large(episode.task.scenario) else {"visible": visible}
    if episode.assigned is not None:
        frame["assigned"] = episode.assigned[0, :n, :m]
    if simulator.known is not None:
        known = simulator.known
        age = np.where(known.known_left[0], np.inf, known.known_age[0])[:, :m]  # (r, m)
        best = age.argmin(0)  # the row that saw the target last
        place = np.nan_to_num(known.known_position[0, best, np.arange(m)])
        frame["age"] = np.minimum(age.min(0), _NEVER).astype(np.int64)
        frame["known x"], frame["known y"] = place[:, 0], place[:, 1]
        beliefs = getattr(episode.state, "beliefs", None)
        if isinstance(beliefs, BeliefState):
            frame |= _beliefs(beliefs, m, frame["age"] == 0)
    if not episode.task.scenario.identities:
        place, (mean, covariance) = tracked(episode)
        frame |= {"detections": np.array([len(place)]), "detection x": place[:, 0], "detection y": place[:, 1]}
        if hasattr(episode.agent.policy, "estimate"):
            frame |= {"tracks": np.array([len(mean)]), "track x": mean[:, 0], "track y": mean[:, 1]}
            frame |= {f"track {'xy'[i]}{'xy'[j]}": covariance[:, i, j] for i, j in ((0, 0), (0, 1), (1, 1))}
    if simulator.game:
        cargo = simulator.game.cargo
        frame |= {"load": cargo.weight[0, :m], "goal": np.where(cargo.weight > 0, cargo.goal, 0)[0, :m]}
        frame |= {"awaiting": cargo.awaiting[0], "transport": simulator.game.transport_rate[:1]}
    return {name: np.array(values) for name, values in frame.items()}


def _attention(
    episode: Episodes, watch: AttentionWatch, n: int, m: int, before: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the attention of each level in its last decision."""
    found = {}
    for level, shares in watch.shares(episode.observation, episode.state).items():
        name, now = f"attention {level}", shares[0, :n, :m]
        found[name] = np.where(np.isfinite(now), now, before.get(name, np.zeros_like(now)))
        if "targets" in episode.observation:  # an agent without levels, which decides at every sub-step
            targets = episode.observation["targets"][0, :n]
            found[f"{name} targets"] = np.where(targets < 0, _NONE, targets)
    return found


def _lists(pairs: np.ndarray) -> np.ndarray:
    """Return the targets (n, s) of pairs (n, m) bool, ascending for each sensor, padded."""
    numbers = np.where(pairs, np.arange(pairs.shape[1]), _NONE)
    return np.sort(numbers, -1)[:, : pairs.sum(-1).max(initial=0)]


def _stacked(name: str, frames: list[np.ndarray]) -> np.ndarray:
    """Stack the arrays of all frames, with padded lists."""
    shape = len(frames), *frames[0].shape[:-1], max(one.shape[-1] for one in frames)
    stacked = np.full(shape, _NONE if name.endswith("targets") else 0, frames[0].dtype)
    for row, one in zip(stacked, frames, strict=True):
        row[..., : one.shape[-1]] = one
    return stacked


def _beliefs(state: BeliefState, m: int, seen: np.ndarray) -> dict[str, np.ndarray]:
    """Return points (m, DOTS) of the beliefs about targets, from the row that saw each last; NaN in view."""
    row, every = state.last_age[0, :, :m].argmin(0), np.arange(m)
    weight = state.weight[0, row, every].cumsum(-1)  # (m, P)
    shares = (np.arange(DOTS) + 0.5) / DOTS * weight[:, -1:]
    chosen = (weight[:, None] < shares[..., None]).sum(-1).clip(max=weight.shape[-1] - 1)  # (m, DOTS)
    body = state.body[0, row, every]  # (m, 8, P)
    nowhere = (seen | ~state.present[0, row, every])[:, None]
    return {
        name: np.where(nowhere, np.nan, np.take_along_axis(body[:, axis], chosen, -1))
        for name, axis in (("belief x", X), ("belief y", Y))
    }
