"""Command line ``hitmac evaluate``: compare agents on the same new episodes."""

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from hitmac.agents.command_line import Agents, parse, stop_on_bad_input
from hitmac.agents.evaluate.compare import evaluate, save_evaluation
from hitmac.agents.evaluate.cross import WHOLE, cross_table, evaluate_cross, save_matrix
from hitmac.agents.evaluate.figures import new_figure, save_pareto, save_pictures, save_sweeps
from hitmac.agents.evaluate.film import films_of, save_film
from hitmac.agents.evaluate.logs import evaluate_log, log_table, read_log
from hitmac.agents.evaluate.tables import table
from hitmac.agents.learned.checkpoint import checked_device
from hitmac.agents.names import named_agents
from hitmac.agents.planning.levels import COORDINATORS
from hitmac.agents.pretrained import PREFIX, pretrained
from hitmac.agents.registry import SCRIPTED, number_of
from hitmac.envs.files import check_output, write_text
from hitmac.envs.render import check_film
from hitmac.envs.scenario import Scenario, load_scenario, with_settings
from hitmac.envs.tasks import SUB_STEPS
from hitmac.envs.validation import Count, did_you_mean

PROGRAM = "hitmac evaluate"


@dataclass(frozen=True)
class Options:
    """Compare agents on the same new episodes; write a table, the metrics of every episode, and figures."""

    agents: Agents = ("random", "still", "nearest")
    """Agents, comma-separated: scripted agents, also with options, planner:turn_cost=0.5, or several values of one,
    planner:turn_cost=0.5/1; scripted coordinators, also with an executor, assign-all:runs/x; folders of runs or
    checkpoints; released:FILE:FILE; custom agents, MODULE:CLASS:OPTION=VALUE. Several trainings of an agent:
    NAME=runs/a+runs/b."""
    scenario: str = "hit-mac"
    """Scenarios, comma-separated: a preset's name (also with sizes: hit-mac-6x9), the path of a YAML file, or a run or
    its config.yaml."""
    tracks: tuple[str, ...] = ()
    """CSV files of recorded tracks, for all scenarios; each episode follows one of them."""
    columns: str = ""
    """Other names of their columns, such as time=t,id=track, or numbers without a header. Empty: the scenario's."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Parameter of all scenarios, NAME=VALUE with the value in YAML, such as knowledge=shared; can be repeated."""
    sizes: str = ""
    """Sizes of the scenario, sensors x targets, comma-separated: 4x5,6x9."""
    vary: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Parameter of a single scenario and its values, NAME=V1/V2/V3, such as missed_detections=0/0.1/0.3; can be
    repeated."""
    device: str = "cpu"
    """Device of networks: cpu, cuda, cuda:1, or auto, an accelerator if present."""
    episodes: Count = 200
    """Number of episodes of each agent."""
    seed: int = 0
    """Seed of the first episode; the k-th has seed + k."""
    max_episode_steps: Count | None = None
    """Length of an episode, sub-steps. None: 1010, and whole episodes of a game of two teams."""
    bounds: bool = False
    """Also compute an upper bound of the coverage and a lower estimate of the clairvoyant optimum."""
    json: Path | None = None
    """File for the metrics of every episode."""
    pictures: Path | None = None
    """Directory for tables and figures, with a subdirectory for each of several scenarios."""
    film: Path | None = None
    """File for a film of the first episode, .gif or .mp4; names of several agents or scenarios are added to it."""
    curves: Path | None = None
    """File for the figure of coverage against each parameter of --vary."""
    front: Path | None = None
    """File for the figure of coverage against rotation of a single scenario; a line joins one agent's options."""
    log: Path | None = None
    """Log of hitmac run, .jsonl, to evaluate in place of agents; with --tracks, against the true tracks."""
    cross: tuple[str, ...] = ()
    """Teams of sensors, comma-separated, in place of --agents, in a game of two teams such as mate-4v8-9: also
    mate:greedy, populations A=0.5+B=0.5, or a folder of hitmac train duel."""
    against: tuple[str, ...] = ()
    """Teams of targets of the game, comma-separated, each against every team of sensors: random, naive, greedy and
    heuristic (rules of MATE, not agents), evader, folders of runs, and populations. Empty: the scenario's walk."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    names = f"Scripted agents: {', '.join(SCRIPTED)}; scripted coordinators: {', '.join(COORDINATORS)}; "
    names += f"trained: {', '.join(PREFIX + name for name in pretrained())}."
    options = parse(Options, PROGRAM, arguments, description=f"{Options.__doc__}\n\n{names}", first="--agents")
    with stop_on_bad_input(PROGRAM):
        if options.json:
            check_output("json", options.json)
        if options.log:
            _evaluate_log(options.log, options)
            return
        scenes = _scenarios(options)
        game = options.cross or options.against or (len(scenes) == 1 and scenes[0].is_game)
        sweeps = {} if game else dict(varied(scenes[0], text) for text in options.vary)
        if sweeps:
            scenes = [scene for by_value in sweeps.values() for scene in by_value.values()]
        steps = options.max_episode_steps or (WHOLE if game else SUB_STEPS)
        same: dict[str, Any] = {"episodes": options.episodes, "seed": options.seed, "max_episode_steps": steps}
        played = [] if game and not options.film else scenes
        teams = [(scenario, named_agents(options.agents, scenario, options.device)) for scenario in played]
        films = films_of(options.film, teams) if options.film else {}
        evaluations = [_evaluate_game(scenes[0], options, same)] if game else []
        for scenario, agents in [] if game else teams:
            evaluations.append(evaluate(agents, scenario, bounds=options.bounds, **same))
            print(f"{table(evaluations[-1])}\n")
        if options.json:
            save_evaluation(options.json, evaluations[0] if len(evaluations) == 1 else evaluations)
            print(f"every episode: {options.json}")
        for path, film in films.items():
            save_film(path, *film, seed=options.seed, sub_steps=steps)
            print(f"film: {path}")
        if options.curves:
            rest = iter(evaluations)
            save_sweeps(options.curves, {name: {one: next(rest) for one in scenes} for name, scenes in sweeps.items()})
            print(f"coverage against parameters: {options.curves}")
        if options.front:
            save_pareto(options.front, evaluations[0])
            print(f"coverage against rotation: {options.front}")
        if options.pictures and game:
            options.pictures.mkdir(parents=True, exist_ok=True)
            write_text(options.pictures / "evaluation.md", f"```\n{cross_table(evaluations[0])}\n```\n")
            save_matrix(options.pictures / "matrix.png", evaluations[0])
        elif options.pictures:
            by_name: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}  # the sizes of a scenario together
            for scenario, evaluation in zip(scenes, evaluations, strict=True):
                name, n, m = _name_and_size(scenario)
                by_name.setdefault(name, {})[n, m] = evaluation
            for name, by_size in by_name.items():
                save_pictures(options.pictures / (name if len(by_name) > 1 else ""), by_size)
        if options.pictures:
            print(f"tables and pictures: {options.pictures}/")


def _refuse(options: Options, names: Sequence[str], why: str) -> None:
    """Raise ValueError for the first of these options that is given."""
    for name in names:
        if getattr(options, name):
            raise ValueError(f"--{name} {why}")


def _evaluate_log(path: Path, options: Options) -> None:
    """Print the metrics of a log, and write them if the options ask for it."""
    others = ("set", "sizes", "vary", "bounds", "pictures", "film", "curves", "front", "cross", "against")
    _refuse(options, others, "cannot be combined with --log")
    if len(options.tracks) > 1:
        raise ValueError(f"--log requires a single file of --tracks; got {len(options.tracks)}")
    run = read_log(path)
    metrics = evaluate_log(run, next(iter(options.tracks), None), options.columns)
    print(log_table(run, metrics))
    if options.json:
        save_evaluation(options.json, {name: None if math.isnan(one) else one for name, one in metrics.items()})


def _evaluate_game(scenario: Scenario, options: Options, same: dict[str, Any]) -> dict[str, Any]:
    """Evaluate every team of sensors against every team of targets; print the tables."""
    others = ("sizes", "vary", "tracks", "bounds", "curves", "front")
    _refuse(options, others, "is not supported in a game of two teams")
    if options.cross or options.against:
        _refuse(options, ["film"], "cannot be combined with --cross or --against")
    sensors, targets = (
        [name.strip() for text in names for name in text.split(",")]
        for names in (options.cross or options.agents, options.against or (scenario.walk.removeprefix("carry-"),))
    )
    with checked_device(options.device):
        evaluation = evaluate_cross(sensors, targets, scenario, **same)
    print(f"{cross_table(evaluation)}\n")
    return evaluation


def varied(scenario: Scenario, text: str) -> tuple[str, dict[float, Scenario]]:
    """Return the name and the scenarios, by value, of a parameter such as ``missed_detections=0/0.1/0.3``.

    Raises ValueError or TypeError for another form, or values that the scenario cannot have.
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
    """Load the comma-separated scenarios in every size; check the options for files against them."""
    scenes = []
    for name in map(str.strip, options.scenario.split(",")):
        scenario = load_scenario(name)
        for size in map(str.strip, options.sizes.split(",")) if options.sizes else ():
            if not re.fullmatch(r"\d+x\d+", size):
                raise ValueError(f"sizes has {size!r}; it must have the form 4x5: sensors x targets")
            n, m = map(int, size.split("x"))
            scenes.append(scenario.replace(name=f"{scenario.name}-{size}", num_sensors=n, num_targets=m))
        scenes += [] if options.sizes else [scenario]
    given = [_name_and_size(scenario) for scenario in scenes]
    if twice := next((one for one in given if given.count(one) > 1), None):
        name, n, m = twice
        raise ValueError(f"two scenarios are named {name} with {n} sensors and {m} targets; give each its own name")
    if options.film:
        check_film("film", options.film)
    if options.pictures and options.pictures.is_file():
        raise FileExistsError(f"pictures is '{options.pictures}', a file; name a folder")
    if options.pictures or options.front or options.curves:
        new_figure((1.0, 1.0))  # raises an error without matplotlib
    for option in ("front", "curves"):
        if path := getattr(options, option):
            check_output(option, path, ".png")
    for option in ("front", "vary", "cross", "against"):
        if getattr(options, option) and len(scenes) > 1:
            raise ValueError(f"--{option} requires a single scenario; got {len(scenes)}")
    if options.vary and (options.front or options.pictures):
        raise ValueError("--vary cannot be combined with --front or --pictures; --curves draws its figure")
    if options.curves and not options.vary:
        raise ValueError("--curves requires --vary")
    scenes = [with_settings(scenario, options.set) for scenario in scenes] if options.set else scenes
    return [scenario.following(options.tracks, options.columns) for scenario in scenes]


def _name_and_size(scenario: Scenario) -> tuple[str, int, int]:
    """Return a scenario's name without its size, valid for a folder, and n and m."""
    name = re.sub(r"\W+", "-", re.sub(r"-\d+x\d+$", "", scenario.name)).strip("-")
    return name or "scene", scenario.num_sensors, scenario.num_targets
