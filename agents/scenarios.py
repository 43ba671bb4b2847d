"""Command line ``hitmac scenarios``: list the scenarios and environments, or show, film or draw one scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np

from hitmac.agents.command_line import parse, stop_on_bad_input
from hitmac.agents.registry import load_agent
from hitmac.envs import TASKS, load_scenario, presets
from hitmac.envs.files import check_ending
from hitmac.envs.render import Picture, check_film, save_pictures, save_png
from hitmac.envs.simulator import checked_seed
from hitmac.envs.validation import Choice, Range, convert, field_types
from hitmac.envs.wrappers.shell import check_display

PROGRAM = "hitmac scenarios"


@dataclass(frozen=True)
class Options:
    """List the scenarios, or show one: hitmac scenarios football-4 --film out.gif."""

    scenario: str = ""
    """Scenario: a preset's name (also with sizes: hit-mac-6x9), the path of a YAML file, or a run. It may stand first,
    without the name of the option; empty: list the presets."""
    task: Annotated[str, Choice(TASKS)] = "Coverage"
    """Task of the environment."""
    agent: str = "random"
    """Agent that acts: random, still, or an agent of hitmac evaluate, such as pretrained:flat."""
    film: Path | None = None
    """File for a film, .gif or .mp4."""
    picture: Path | None = None
    """File for a picture of the last step, .png."""
    steps: Annotated[int, Range(1, 100_000)] = 200
    """Number of steps."""
    size: int = 480
    """Longer side of film and picture, pixels."""
    seed: int = 0
    """Seed of the scene and of the random agent."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = parse(Options, PROGRAM, arguments, first="--scenario")
    if not (options.scenario or options.film or options.picture):
        print(_listing())
        return
    with stop_on_bad_input(PROGRAM):
        _show(options)


def _listing() -> str:
    lines = ["environments (specified in the docstrings of hitmac.envs.tasks)"]
    specs = [task.spec for task in TASKS.values()]
    lines += [f"  {spec.id:<19} {spec.episode_steps:>4} steps; {spec.summary}" for spec in specs]
    lines += ["", "scenarios (each also with sizes: hit-mac-6x9)"]
    for name in presets():
        scene = load_scenario(name)
        ranges = ((scene.min_sensors, scene.num_sensors), (scene.min_targets, scene.num_targets))
        sizes = " x ".join(f"{low}-{most}" if low else f"{most}" for low, most in ranges)
        discs = scene.random_discs + len(scene.discs)
        notes = ["zoom"] * bool(scene.zoom) + [f"{discs} discs"] * bool(discs)
        notes += [f"{scene.knowledge} knowledge"] * (scene.knowledge != "full")
        placement = {"random": "at random", "rails": "on rails", "crossings": "at crossings"}.get(
            scene.placement, f"in {scene.placement}"
        )
        width, height = (2 * half for half in scene.extent)
        arena = f"{width:g} across" if width == height else f"{width:g} x {height:g}"
        about = f"walk: {scene.walk}; sensors {placement}{''.join(f'; {note}' for note in notes)}"
        lines.append(f"  {name:<17} {sizes:>9}  arena {arena:>11}; {about}")
    lines += ["", f"{PROGRAM} NAME [--film out.gif] [--picture out.png]   show, film or draw a scenario"]
    return "\n".join(lines)


def _show(options: Options) -> None:
    """Play an episode in a window, or into a film and a picture."""
    if options.film:
        check_film("--film", options.film)
    if options.picture:
        check_ending("--picture", options.picture, ".png")
    for name in ("task", "steps"):
        convert(f"--{name}", field_types(Options)[name], getattr(options, name))
    checked_seed(options.seed, "--seed")
    scenario = load_scenario(options.scenario or "hit-mac")
    agent = None if options.agent in ("random", "still") else load_agent(options.agent, scenario)
    if agent and options.task != "Coverage":
        raise ValueError(f"--agent {options.agent} plays Coverage only; --task is {options.task}")
    picture = Picture(scenario, options.size) if options.film or options.picture else None
    if picture is None:
        check_display()
    observed: dict[str, Any] = {"features": agent.features} if agent else {}
    env = gymnasium.make(
        TASKS[options.task].spec.id,
        scenario=scenario,
        **observed,
        max_episode_steps=options.steps,
        render_mode="human" if picture is None else None,
    )
    env.action_space.seed(options.seed)
    observation, _ = env.reset(seed=options.seed)
    task = env.unwrapped.task  # type: ignore[attr-defined]
    state, frames = None, []
    for step in range(options.steps):
        if agent is None:
            action = env.action_space.sample()
            action = action if options.agent == "random" else np.zeros_like(action)
        else:
            scenes = {name: values[None] for name, values in observation.items()}
            actions, state = agent.policy.predict(scenes, state, np.array([step == 0]), deterministic=True)
            action = actions[0]
        observation, *_ = env.step(action)
        if picture and options.film:
            frames.append(picture.of_task(task, 0))
    env.close()
    if options.film:
        save_pictures(options.film, frames, frames_per_second=env.metadata["render_fps"])
        print(f"{options.film}: {len(frames)} pictures")
    if picture and options.picture:
        save_png(options.picture, picture.of_task(task, 0))
        print(options.picture)
