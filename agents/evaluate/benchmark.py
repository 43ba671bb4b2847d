"""Command line ``hitmac benchmark``: evaluate an agent on a frozen suite of scenes, and compare results."""

import hashlib
import json
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hitmac import __version__
from hitmac.agents.command_line import Forms, provenance, run_form
from hitmac.agents.evaluate.compare import evaluate, recordings_of
from hitmac.agents.evaluate.figures import colours_of, label_of, new_figure, plain_axis, write_figure
from hitmac.agents.evaluate.statistics import over_scenes, wins
from hitmac.agents.evaluate.tables import aligned, counted, folded, note
from hitmac.agents.names import named_agents, parse
from hitmac.agents.registry import Agent
from hitmac.envs.files import check_output, parse_yaml, read_text, write_text
from hitmac.envs.scenario import Scenario, load_scenario

PROGRAM = "hitmac benchmark"
FORMAT = "hitmac-benchmark"
SUITE = Path(__file__).with_name("benchmark.yaml")
SOURCE = Path(__file__).resolve().parents[2]
_KEPT = ("coverage", "decision_reward", "rotation", "least_covered", "inference_ms")
_FILES = ("tracks", "past_tracks", "background")


@dataclass(frozen=True)
class Run:
    """Evaluate an agent on every scene of the suite; an interrupted run continues."""

    agent: str = "nearest"
    """Agent, as in hitmac evaluate, such as planner, runs/x, my_module:MyPolicy, or trainings, ours=runs/a+runs/b;
    ours=runs/{scene} is a run for each scene, by its name. As the first argument, it needs no --agent."""
    to: Path = Path("result.json")
    """File of the result, written after each scene."""
    device: str = "cpu"
    """Device of networks: cpu, cuda, cuda:1, or auto, an accelerator if present."""


@dataclass(frozen=True)
class Table:
    """Compare results: scores over all scenes, and the coverage in each."""

    results: tuple[Path, ...] = ()
    """Files of results, of hitmac benchmark run. As the first arguments, they need no --results."""
    picture: Path | None = None
    """File for a figure of the scores, .png."""


class Scene(NamedTuple):
    """Scene of the suite; a coverage between `floor` and `bound` scores 0 to 1."""

    scenario: Scenario
    episodes: int
    sub_steps: int
    floor: float
    bound: float

    def scores(self, coverage: Sequence[float | None]) -> np.ndarray:
        """Return (coverage - floor) / (bound - floor), (S, E), of the coverage of every episode, run after run."""
        values = np.array(coverage, float).reshape(-1, self.episodes)
        return (values - self.floor) / (self.bound - self.floor)


class Suite(NamedTuple):
    """Frozen scenes with their version, and a digest of all that defines them."""

    version: int
    scenes: dict[str, Scene]
    digest: str

    def __str__(self) -> str:
        return f"version {self.version} (digest {self.digest})"


def load_suite(path: Path = SUITE) -> Suite:
    """Load a suite of scenes.

    The digest is that of the scenarios' parameters other than their defaults, of the recordings, and of the numbers of
    episodes and sub-steps, so that it is the same on every machine.

    Raises ``FileNotFoundError`` if its recordings are neither in the source tree of this program nor in this folder.
    """
    plain, scenes, defined = parse_yaml(read_text(path)), dict[str, Scene](), dict[str, Any]()
    root = SOURCE if (SOURCE / "examples").is_dir() else Path()
    for name, entry in plain["scenes"].items():
        file, days = root / entry["scenario"], entry.get("days", ())
        if days and not file.is_file():
            raise FileNotFoundError(f"{entry['scenario']} is part of the source only; run {PROGRAM} in a checkout")
        scenario = load_scenario(file if days else entry["scenario"]).replace(name=name, **entry.get("set", {}))
        scenario = scenario.following([str(file.parent / f"tracks/day-{day}.csv") for day in days])
        usual = Scenario(arena=scenario.arena).to_dict()
        changed = {one: value for one, value in scenario.to_dict().items() if value != usual[one] and one not in _FILES}
        tracks = [read_text(file) for file in (*scenario.tracks, *scenario.past_tracks)]
        scenes[name] = Scene(scenario, *(entry[field] for field in Scene._fields[1:]))
        defined[name] = [changed, tracks, scenes[name][1:]]
    found = hashlib.sha256(json.dumps(defined, sort_keys=True).encode()).hexdigest()
    return Suite(plain["version"], scenes, found[:12])


# Running


def run(agent: str, path: Path, suite: Suite, device: str = "cpu", progress: bool = True) -> dict[str, Any]:
    """Evaluate an agent on every scene of a suite, and write the result as JSON after each.

    A result at `path` of the same agent, suite and version of this program is continued: the other scenes are played.

    Returns:
        The result: ``"version"`` and ``"digest"`` of the suite; ``"agent"``; its ``"trainings"``, with their steps and
        seconds if known; ``"hitmac"`` and ``"commit"``, the version of this program; ``"provenance"``; ``"scenes"``,
        for each name the metrics with their intervals, the coverage and rotation of every episode, and the
        ``"seconds"`` taken; and ``"refused"``, for each other scene the reason why the agent does not fit it.

    Raises:
        ValueError: an agent that does not fit any scene, several agents, an agent with more trainings for one scene
            than for another, or another file at `path`.
    """
    check_output("to", path, ".json")
    loaded, refused = dict[str, list[Agent]](), dict[str, str]()
    for name, scene in suite.scenes.items():
        try:
            loaded[name] = named_agents(agent.replace("{scene}", name), scene.scenario, device)
        except Exception as error:  # also of a user's class
            refused[name] = _reason(error)
    if not loaded:
        raise ValueError(f"agent {agent} does not fit any scene of the suite: {next(iter(refused.values()))}")
    names, *others = [{one.name for one in group} for group in loaded.values()]
    if len(names) > 1:
        raise ValueError(f"agent is {agent!r}, which names {len(names)} agents; give one")
    sizes = {name: len(group) for name, group in loaded.items()}
    if len({*sizes.values()}) > 1:
        raise ValueError(f"{agent} has {sizes} trainings; it must have as many for each scene")
    about = provenance()
    head = {
        "format": FORMAT, "version": suite.version, "digest": suite.digest,
        "agent": agent if any(other != names for other in others) else names.pop(),  # a run for each scene: its form
        "trainings": [trained_for(one) for one in zip(*loaded.values(), strict=True) if one[0].trained],
        "hitmac": __version__, "commit": about["commit"],
    }  # fmt: skip
    scenes = _continued(path, head)
    whole = head | {"provenance": about, "scenes": scenes, "refused": refused}
    for number, (name, agents) in enumerate(loaded.items(), 1):
        if name in scenes:
            continue
        if progress:
            print(f"{name} ({number} of {len(loaded)})")
        scene, began = suite.scenes[name], time.perf_counter()
        try:
            found = evaluate(
                agents, scene.scenario, episodes=scene.episodes, max_episode_steps=scene.sub_steps, progress=progress
            )
        except Exception as error:
            refused[name] = _reason(error)
            continue
        (result,) = found["agents"].values()
        scenes[name] = {one: result[one] for one in _KEPT} | {
            "per_episode": {one: result["per_episode"][one] for one in ("coverage", "rotation")},
            "seconds": round(time.perf_counter() - began, 1),
        }
        write_text(path, json.dumps(whole) + "\n")
    if not scenes:
        raise ValueError(f"{agent} plays no scene: {next(iter(refused.values()))}")
    write_text(path, json.dumps(whole) + "\n")
    return whole


def trained_for(agents: Sequence[Agent]) -> dict[str, Any]:
    """Return the runs of a training, one for each scene, with all steps and seconds; None if some are not known."""
    names = dict.fromkeys(agent.run or agent.name for agent in agents)
    folders = [next(iter(parse(name).parts), None) for name in names]
    amounts = [training_amounts(folder) if isinstance(folder, Path) else [] for folder in folders]
    return {"run": ", ".join(names)} | {
        one: sum(each[one] for several in amounts for each in several) if all(amounts) else None
        for one in ("steps", "seconds")
    }


def training_amounts(folder: Path) -> list[dict[str, float]]:
    """Return the last point of the curve of a run, with its steps and seconds; of each, with both levels."""
    curves = sorted(folder.glob("*/curve.json"), reverse=True) or [folder / "curve.json"]  # the executor is first
    return [last for path in curves if path.is_file() for last in json.loads(read_text(path))["exploring"][-1:]]


def _reason(error: Exception) -> str:
    """Return the reason of an error in one line, with its class unless it is one of bad input."""
    plain = isinstance(error, ValueError | TypeError | OSError | ModuleNotFoundError)
    return " ".join(f"{'' if plain else f'{type(error).__name__}: '}{error}".split())


def _continued(path: Path, head: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scenes of the result at `path`, {} without one; raise ValueError for another result."""
    if not path.exists():
        return {}
    found = read_result(path)
    for one, value in head.items():
        if found[one] != value:
            raise ValueError(
                f"{path} is a result with {one} {found[one]}, which now is {value}; give another file, or delete it"
            )
    return found["scenes"]


# Comparing


def read_result(path: Path) -> dict[str, Any]:
    """Read a result; raise ValueError for any other file."""
    try:
        found = json.loads(read_text(path))
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r}")
        head = ("version", "digest", "agent", "trainings", "hitmac", "commit", "provenance", "scenes", "refused")
        return {"format": FORMAT} | {one: found[one] for one in head}
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is not a result of {PROGRAM} run: {error!r}") from None


def read_results(paths: Sequence[Path], suite: Suite) -> dict[str, dict[str, Any]]:
    """Read whole results of a suite, by agent.

    Raises ``ValueError`` for a result of another version or digest, an unfinished one, or two of one agent.
    """
    results: dict[str, dict[str, Any]] = {}
    for path in paths:
        found = read_result(path)
        if (found["version"], found["digest"]) != (suite.version, suite.digest):
            other = f"version {found['version']} (digest {found['digest']})"
            raise ValueError(f"{path} is of {other} of the suite; this program has {suite}, so they are not comparable")
        if missing := suite.scenes.keys() - found["scenes"].keys() - found["refused"].keys():
            command = f"{PROGRAM} run {found['agent']} --to {path}"
            raise ValueError(f"{path} is not finished, without {', '.join(sorted(missing))}; continue it: {command}")
        if found["agent"] in results:
            raise ValueError(f"two results are of {found['agent']}, also {path}; leave one out")
        results[found["agent"]] = found
    if not results:
        raise ValueError("results is empty; give one or more files")
    return results


def compare(results: Mapping[str, Mapping[str, Any]], suite: Suite) -> dict[str, dict[str, Any]]:
    """Compare results by agent, the best first.

    Returns:
        For each agent its ``"score"``, the interquartile mean over scenes and trainings (0 in a scene that it does not
        fit); ``"improvement"``, the probability that the first given agent covers more in an episode, mean over the
        scenes; both with the ends of their 95 % bootstrap intervals, see
        :func:`hitmac.agents.evaluate.statistics.over_scenes`; ``"rotation"``, mean over its scenes; ``"trainings"``,
        their number.
    """
    recordings = [recordings_of(scene.scenario, range(scene.episodes)) for scene in suite.scenes.values()]
    scores, compared = dict[str, list[np.ndarray]](), dict[str, dict[str, Any]]()
    for agent, result in results.items():
        scenes, number = result["scenes"], max(len(result["trainings"]), 1)
        scores[agent] = [
            scene.scores(scenes[name]["per_episode"]["coverage"])
            if name in scenes
            else np.zeros((number, scene.episodes))
            for name, scene in suite.scenes.items()
        ]
    first = next(iter(scores))
    for agent, own in scores.items():
        better = [wins(*pair) for pair in zip(scores[first], own, strict=True)]
        compared[agent] = {
            "score": over_scenes(own, recordings),
            "improvement": None if agent == first else over_scenes(better, recordings, trimmed=0.0),
            "rotation": np.mean([scene["rotation"]["mean"] for scene in results[agent]["scenes"].values()]),
            "trainings": len(results[agent]["trainings"]),
        }
    return dict(sorted(compared.items(), key=lambda item: -item[1]["score"][0]))


def table(results: Mapping[str, Mapping[str, Any]], suite: Suite) -> str:
    """Return the comparison of results as tables for the terminal."""
    compared, first = compare(results, suite), next(iter(results))
    letters = {name: chr(ord("A") + number) for number, name in enumerate(suite.scenes)}
    above = [["agent", "score", "95 % interval", "P", "rotation", "steps"], ["bound *", "1.000", "", "", "", ""]]
    below = [["agent", *letters.values()], ["bound *", *(f"{scene.bound:.2f}" for scene in suite.scenes.values())]]
    notes = [f"{agent} on {name}: {why}" for agent, one in results.items() for name, why in one["refused"].items()]
    for agent, one in compared.items():
        steps, covered = [each["steps"] for each in results[agent]["trainings"]], results[agent]["scenes"]
        cells = ["{:.3f}".format(*one["score"]), "{1:.3f} .. {2:.3f}".format(*one["score"])]
        cells += [f"{one['improvement'][0]:.2f}" if one["improvement"] else "-", f"{one['rotation']:.3f}"]
        amount = "-" if not steps else "?" if None in steps else f"{np.mean(steps):,.0f}"
        above.append([folded(agent) + note(one), *cells, amount])
        means = [f"{covered[name]['coverage']['mean']:.2f}" if name in covered else "-" for name in letters]
        below.append([folded(agent), *means])
    unbounded = [letters[name] for name, scene in suite.scenes.items() if scene.bound == 1.0]
    return "\n".join([
        f"{PROGRAM}, {suite}", "", *aligned(above), "", "coverage:", *aligned(below), "",
        *textwrap.wrap(", ".join(f"{letter}={name}" for name, letter in letters.items()), 80), "",
        "score: interquartile mean over the scenes; 0 is the better of random and still,",
        f"1 the bound. * free turning, an upper bound; 1 in {', '.join(unbounded)}.",
        f"P: probability that {first} covers more in an episode, mean over the scenes.",
        *(["-: does not fit the scene, score 0:", *notes] if notes else []),
    ])  # fmt: skip


def save_comparison(path: Path, results: Mapping[str, Mapping[str, Any]], suite: Suite) -> None:
    """Draw the scores of results, best first, and the probabilities of improvement, with 95 % bootstrap intervals."""
    compared = dict(reversed(compare(results, suite).items()))  # upwards
    colours, first = colours_of(compared), next(iter(results))
    figure = new_figure((10, 1.3 + 0.36 * len(compared)), f"{PROGRAM}, {suite}; whiskers: 95 % intervals")
    titles = {"score": "score (interquartile mean)", "improvement": f"P({label_of(first, {})} covers more)"}
    for axis, (measure, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        for row, (agent, one) in enumerate(compared.items()):
            if one[measure]:
                middle, *ends = one[measure]
                axis.plot(ends, (row, row), color=colours[agent], lw=6, alpha=0.35, solid_capstyle="butt")
                axis.plot(middle, row, "|", color=colours[agent], ms=13, mew=2.5)
        axis.set_yticks(range(len(compared)), [label_of(agent, one) for agent, one in compared.items()])
        axis.set_title(title, fontsize=10, loc="left")
        plain_axis(axis, "x")
    write_figure(path, figure)


# Command line


def _run(options: Run) -> None:
    result = run(options.agent, options.to, load_suite(), options.device)
    for name, reason in result["refused"].items():
        print(f"{result['agent']} does not fit {name}: {reason}")
    seconds = sum(scene["seconds"] for scene in result["scenes"].values())
    print(f"{options.to}: {counted(len(result['scenes']), 'scene')} in {seconds / 60:.1f} minutes")


def _compare(options: Table) -> None:
    if options.picture:
        check_output("picture", options.picture, ".png")
    suite = load_suite()
    results = read_results(options.results, suite)
    print(table(results, suite))
    if options.picture:
        save_comparison(options.picture, results, suite)
        print(f"picture: {options.picture}")


FORMS: Forms = {"run": (Run, _run, "--agent"), "table": (Table, _compare, "--results")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    run_form(PROGRAM, FORMS, arguments)
