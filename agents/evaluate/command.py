"""Command line ``hitmac evaluate``: compare agents on the same new episodes."""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from hitmac.agents.baselines.levels import COORDINATORS
from hitmac.agents.command_line import parse, stop_on_bad_input
from hitmac.agents.evaluate.compare import evaluate, save_evaluation
from hitmac.agents.evaluate.figures import save_pareto, save_pictures, save_sweeps
from hitmac.agents.evaluate.film import save_films
from hitmac.agents.evaluate.tables import table
from hitmac.agents.pretrained import PREFIX, pretrained
from hitmac.agents.registry import SCRIPTED, named_agents, number_of
from hitmac.envs.files import check_ending
from hitmac.envs.render import check_film
from hitmac.envs.scenario import Scenario, load_scenario, with_settings
from hitmac.envs.tasks import SUB_STEPS
from hitmac.envs.validation import Count, did_you_mean

PROGRAM = "hitmac evaluate"


@dataclass(frozen=True)
class Options:
    """Compare agents on the same new episodes; write a table, the metrics of every episode, and figures."""

    agents: str = "random,still,nearest"
    """Agents, comma-separated: scripted ones, optionally with options, as in planner:turn_cost=0.5, or one for each of
    several values, planner:turn_cost=0.5/1; scripted coordinators, optionally with an executor, as in
    assign-all:runs/x; folders of runs or checkpoints; released:FILE:FILE; MODULE:CLASS, a custom agent. Several
    trainings of one agent: NAME=runs/a+runs/b."""
    scenario: str = "hit-mac"
    """Scenarios, comma-separated: a preset's name (also with sizes: hit-mac-6x9), the path of a YAML file, or a run or
    its config.yaml."""
    tracks: tuple[str, ...] = ()
    """CSV files of recorded tracks for all scenarios, in place of their own; each episode follows one of them."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Parameter of all scenarios, NAME=VALUE with a value in YAML, such as knowledge=shared; may be given several
    times."""
    sizes: str = ""
    """Numbers of sensors and targets to set in the scenario, comma-separated: 4x5,6x9."""
    vary: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Parameter of a single scenario with the values to set, NAME=V1/V2/V3, such as missed_detections=0/0.1/0.3; may be
    given several times."""
    device: str = "cpu"
    """Device of networks: cpu, cuda, cuda:1, or auto, an accelerator if there is one."""
    episodes: Count = 200
    """Number of episodes of each agent."""
    seed: int = 0
    """Seed of the first episode; the k-th has seed + k."""
    max_episode_steps: Count = SUB_STEPS
    """Length of an episode, sub-steps."""
    bounds: bool = False
    """Also show an upper bound of the coverage, and a lower estimate of the clairvoyant optimum."""
    json: Path | None = None
    """File for the metrics of every episode."""
    pictures: Path | None = None
    """Directory for tables and figures; with several scenarios, they get a subdirectory each."""
    film: Path | None = None
    """File for a film of the first episode, .gif or .mp4; with several agents or scenarios, each has its own file, with
    its name in the file's."""
    curves: Path | None = None
    """File for the figure of coverage against each parameter of --vary."""
    front: Path | None = None
    """File for the figure of coverage against rotation of a single scenario; a line joins the agents of one name with
    different options."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    names = f"Scripted agents: {', '.join(SCRIPTED)}; scripted coordinators: {', '.join(COORDINATORS)}; "
    names += f"trained: {', '.join(PREFIX + name for name in pretrained())}."
    options = parse(Options, PROGRAM, arguments, description=f"{Options.__doc__}\n\n{names}")
    with stop_on_bad_input(PROGRAM):
        scenes = _scenarios(options)
        sweeps = dict(varied(scenes[0], text) for text in options.vary)
        if sweeps:
            scenes = [scene for by_value in sweeps.values() for scene in by_value.values()]
        teams = [(scenario, named_agents(options.agents, scenario, options.device)) for scenario in scenes]
        same: dict[str, Any] = {name: getattr(options, name) for name in ("episodes", "max_episode_steps", "bounds")}
        evaluations = []
        for scenario, agents in teams:
            evaluations.append(evaluate(agents, scenario, seed=options.seed, **same))
            print(f"{table(evaluations[-1])}\n")
        if options.json:
            save_evaluation(options.json, evaluations[0] if len(evaluations) == 1 else evaluations)
            print(f"every episode: {options.json}")
        if options.film:
            for path in save_films(options.film, teams, seed=options.seed, sub_steps=options.max_episode_steps):
                print(f"film: {path}")
        if options.curves:
            rest = iter(evaluations)
            save_sweeps(options.curves, {name: {one: next(rest) for one in scenes} for name, scenes in sweeps.items()})
            print(f"coverage against what varies: {options.curves}")
        if options.front:
            save_pareto(options.front, evaluations[0])
            print(f"coverage against rotation: {options.front}")
        if options.pictures:
            by_name: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}  # the sizes of a scenario together
            for scenario, evaluation in zip(scenes, evaluations, strict=True):
                name, n, m = _name_and_size(scenario)
                by_name.setdefault(name, {})[n, m] = evaluation
            for name, by_size in by_name.items():
                save_pictures(options.pictures / (name if len(by_name) > 1 else ""), by_size)
            print(f"tables and pictures: {options.pictures}/")


def varied(scenario: Scenario, text: str) -> tuple[str, dict[float, Scenario]]:
    """Return the parameter that `text` varies, such as ``missed_detections=0/0.1/0.3``, and the scenario of each value.

    Raises ValueError or TypeError, in one line, for another form, or values that the scenario cannot have.
    """
    name, _, values = text.partition("=")
    plain = [one for one, value in dataclasses.asdict(scenario).items() if type(value) in (int, float)]
    if name not in plain:
        raise ValueError(f"--vary has {name!r}{did_you_mean(name, plain)}: it must be one of {', '.join(plain)}")
    numbers = {number for one in values.split("/") if (number := number_of(one)) is not None}
    if len(numbers) != values.count("/") + 1:
        raise ValueError(f"--vary is {text!r}; it must have the form {name}=V1/V2/V3, with different numbers")
    return name, {
        one: scenario.replace(name=f"{scenario.name}, {name} {one}", **{name: one}) for one in sorted(numbers)
    }


def _scenarios(options: Options) -> list[Scenario]:
    """Load the comma-separated scenarios, each in all sizes, or in its own; check that the files fit them."""
    scenes = []
    for name in options.scenario.split(","):
        scenario = load_scenario(name)
        for size in options.sizes.split(",") if options.sizes else ():
            if not re.fullmatch(r"\d+x\d+", size):
                raise ValueError(f"sizes has {size!r}; it must have the form 4x5: sensors x targets")
            n, m = map(int, size.split("x"))
            scenes.append(scenario.replace(name=f"{scenario.name}-{size}", num_sensors=n, num_targets=m))
        scenes += [] if options.sizes else [scenario]
    given = [_name_and_size(scenario) for scenario in scenes]
    if twice := next((one for one in given if given.count(one) > 1), None):
        raise ValueError(
            "two scenarios are named {} with {} sensors and {} targets; give each its own name".format(*twice)
        )
    if options.film:
        check_film("film", options.film)
    for option in ("front", "curves", "vary"):
        value = getattr(options, option)
        if value and option != "vary":
            check_ending(option, value, ".png")
        if value and option != "curves" and len(scenes) > 1:
            raise ValueError(f"--{option} takes a single scenario; there are {len(scenes)}")
    if options.vary and (options.front or options.pictures):
        raise ValueError("--vary draws --curves only; leave out --front and --pictures")
    if options.curves and not options.vary:
        raise ValueError("--curves needs --vary")
    scenes = [with_settings(scenario, options.set) for scenario in scenes] if options.set else scenes
    return [scenario.replace(tracks=options.tracks) for scenario in scenes] if options.tracks else scenes


def _name_and_size(scenario: Scenario) -> tuple[str, int, int]:
    """Return a scenario's name without its size, as a valid folder name, then n and m."""
    name = re.sub(r"\W+", "-", re.sub(r"-\d+x\d+$", "", scenario.name)).strip("-")
    return name or "scene", scenario.num_sensors, scenario.num_targets
