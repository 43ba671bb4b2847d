"""Command line ``hitmac scenarios``: list scenarios and environments, or show, film or draw a scenario."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hitmac.agents.command_line import Agents, parse, stop_on_bad_input
from hitmac.agents.deploy import watch
from hitmac.agents.evaluate.compare import fitted
from hitmac.agents.evaluate.film import pictures
from hitmac.agents.names import named_agent
from hitmac.envs import TASKS, load_scenario, presets
from hitmac.envs.files import check_output
from hitmac.envs.render import check_film, save_pictures, save_png
from hitmac.envs.simulator import checked_seed
from hitmac.envs.validation import Range, convert, field_types

PROGRAM = "hitmac scenarios"


@dataclass(frozen=True)
class Options:
    """List the scenarios, or show one: hitmac scenarios football-4 --film out.gif."""

    scenario: str = ""
    """Scenario: a preset's name (also with sizes: hit-mac-6x9), the path of a YAML file, or a run; empty: list the
    presets. As the first argument, it needs no --scenario."""
    agents: Agents = ("random",)
    """Agent, as in hitmac evaluate: random, still, pretrained:flat; on a page also several, comma-separated."""
    film: Path | None = None
    """File for a film, .gif or .mp4."""
    picture: Path | None = None
    """File for a picture of the last step, .png. Without film and picture: a page as in hitmac watch."""
    steps: Annotated[int, Range(1, 100_000)] = 200
    """Number of steps."""
    size: int = 480
    """Longer side of film and picture, 64 to 4096 pixels."""
    seed: int = 0
    """Seed of the scene and of the random agent."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = parse(Options, PROGRAM, arguments, first="--scenario")
    if not (options.scenario or options.film or options.picture):
        print(_listing())
        return
    name = options.scenario or "hit-mac"
    if not (options.film or options.picture):
        watch.main([*options.agents, f"--scenario={name}", f"--seed={options.seed}", f"--sub-steps={options.steps}"])
        return
    with stop_on_bad_input(PROGRAM):
        if options.film:
            check_film("--film", options.film)
        if options.picture:
            check_output("--picture", options.picture, ".png")
        steps = convert("--steps", field_types(Options)["steps"], options.steps)
        scenario, steps = fitted(load_scenario(name), steps)
        agent, seed = named_agent(options.agents, scenario), checked_seed(options.seed, "--seed")
        if options.film:
            save_pictures(options.film, pictures(agent, scenario, seed, steps, options.size), frames_per_second=20)
            print(f"{options.film}: {steps} pictures")
        if options.picture:
            save_png(options.picture, *pictures(agent, scenario, seed, steps, options.size, every=steps))
            print(options.picture)


def _listing() -> str:
    lines = ["environments (specified in the docstrings of hitmac.envs.tasks)"]
    for spec in (task.spec for task in TASKS.values()):
        lines += [f"  {spec.id:<19}{spec.episode_steps:>6} steps", f"      {spec.summary}"]
    lines += ["", f"  {'scenario':<17}{'sizes':>10}{'arena':>13}  {'walk':<9}{'placement':<11}also"]
    for name in presets():
        scene = load_scenario(name)
        ranges = ((scene.min_sensors, scene.num_sensors), (scene.min_targets, scene.num_targets))
        sizes = " x ".join(f"{low}-{most}" if low else f"{most}" for low, most in ranges)
        discs = scene.random_discs + len(scene.discs)
        notes = [one for one in scene.decisions if one not in ("turn", "move")] + [f"{discs} discs"] * bool(discs)
        notes += [f"{scene.knowledge} knowledge"] * (scene.knowledge != "full")
        arena = " x ".join(f"{2 * half:g}" for half in scene.extent)
        about = f"{scene.walk:<9}{scene.placement:<11}{', '.join(notes)}"
        if scene.is_game:
            about = "a game of two teams"
        lines.append(f"  {name:<17}{sizes:>10}{arena:>13}  {about}".rstrip())
    lines += ["", f"Other sizes: hit-mac-6x9, mate-6v10-4. {PROGRAM} NAME shows a scenario."]
    return "\n".join(lines)
