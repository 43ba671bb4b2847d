"""Command line ``python -m envs``: list the scenarios and environments, or show, film or draw one scenario."""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

from hitmac.agents.command_line import program_name
from hitmac.agents.registry import load_agent
from hitmac.envs import TASKS, load_scenario, presets
from hitmac.envs.files import check_ending
from hitmac.envs.render import Picture, check_display, check_film, save_pictures, save_png
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import checked_seed
from hitmac.envs.validation import whole_number
from hitmac.signals import end_on_signal

_STEPS_SHOWN = 200
_MOST_STEPS = 100_000


def _program() -> str:
    return program_name("python -m envs")


def _listing() -> str:
    lines = ["environments (specified in the docstrings of envs.tasks)"]
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
    lines += ["", f"{_program()} NAME [--film out.gif] [--picture out.png]   show, film or draw a scenario"]
    return "\n".join(lines)


def _agent(options: argparse.Namespace, scenario: Scenario) -> Any:
    """Return the agent of a name that only the package of agents knows; None for `random` and `still`."""
    if options.agent in ("random", "still"):
        return None
    if options.task != "Coverage":
        raise ValueError(f"--agent {options.agent} plays Coverage only; --task is {options.task}")
    return load_agent(options.agent, scenario)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog=_program(), description="List the scenarios, or show one.")
    parser.add_argument(
        "scenario",
        nargs="?",
        help="preset, also with sizes, YAML file, or directory of a run; omit to list the presets",
    )
    parser.add_argument("--task", choices=sorted(TASKS), default="Coverage", help="task of the environment (Coverage)")
    parser.add_argument(
        "--agent",
        default="random",
        help="agent that acts: random, still, or an agent of agents.evaluate, such as pretrained:flat (random)",
    )
    parser.add_argument("--film", metavar="OUT.gif", help="write a film, GIF or MP4")
    parser.add_argument("--picture", metavar="OUT.png", help="write a picture of the last step")
    parser.add_argument(
        "--steps", type=int, default=_STEPS_SHOWN, help=f"number of steps, 1 to {_MOST_STEPS} ({_STEPS_SHOWN})"
    )
    parser.add_argument("--size", type=int, default=480, help="longer side of film and picture, pixels (480)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the scene and of the random agent (0)")
    options = parser.parse_args(arguments)
    if options.scenario is None and not (options.film or options.picture):
        print(_listing())
        return
    with end_on_signal(parser.prog):
        try:
            _show(options)
        except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
            parser.exit(2, f"{parser.prog}: error: {error}\n")


def _show(options: argparse.Namespace) -> None:
    if options.film:
        check_film("--film", options.film)
    if options.picture:
        check_ending("--picture", options.picture, ".png")
    scenario = load_scenario(options.scenario or "hit-mac")
    whole_number("--steps", options.steps, 1, _MOST_STEPS)
    checked_seed(options.seed, "--seed")
    files = bool(options.film or options.picture)
    agent = _agent(options, scenario)
    env = gymnasium.make(
        TASKS[options.task].spec.id,
        scenario=scenario,
        **({} if agent is None else {"features": agent.features}),
        max_episode_steps=options.steps,
        render_mode=None if files else "human",
    )
    if not files:
        check_display()
    env.action_space.seed(options.seed)
    observation, _ = env.reset(seed=options.seed)
    state = None
    task = env.unwrapped.task  # type: ignore[attr-defined]
    picture = Picture(scenario, options.size) if files else None
    frames: list[np.ndarray] = []
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


if __name__ == "__main__":
    main()
