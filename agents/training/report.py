"""Evaluation of trainings: the curve of the policy in training, and the report that compares it with baselines."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.agents.evaluate import evaluate, evaluate_executors, save_evaluation, save_pictures
from hitmac.agents.evaluate.cross import cross_table, evaluate_cross
from hitmac.agents.evaluate.figures import colours_of, label_of, new_figure, plain_axis, write_figure
from hitmac.agents.evaluate.film import save_film
from hitmac.agents.evaluate.tables import counted, released_reward, table
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.learned.checkpoint import PolicyConfig, checked_device
from hitmac.agents.names import load_agent, load_executor
from hitmac.agents.planning.levels import COORDINATORS, EXECUTORS
from hitmac.agents.policy import Policy, digest
from hitmac.agents.registry import Agent, as_agent, as_level, load_run
from hitmac.agents.training.config import CoordinatorOptions, Options
from hitmac.agents.training.resume import POINT, Progress
from hitmac.envs.files import write_text
from hitmac.envs.scenario import Scenario, load_scenario

BASELINES = ("random", "still", "nearest", "greedy", "planner")
"""Agents to compare every trained agent with."""

DUEL_BASELINES = {
    "sensors": ("mate:random", "mate:naive", "mate:greedy", "mate:heuristic", "belief-planner-fast"),
    "targets": ("random", "naive", "greedy", "heuristic", "evader"),
}
"""Players of each team to compare a trained one with, in a scenario with two teams."""

MODEST = ("random", "still", "nearest", "greedy", "scripted")
"""Baselines that every trained policy should surpass."""

TRAINED = "trained"
"""Name of the trained policy in an evaluation."""

SPINNING = 0.9
"""Rotation above which the report warns of sensors that turn all the time."""

DECIDED = 0.01
"""Share of the highest entropy below which the report warns of a policy that no longer explores."""

CURVE_SEED = 2**41
"""First seed of the scenes of the curve, which neither the training nor the final evaluation uses."""

EPISODES = 32
_PAIRS = 32 * 20  # of EPISODES scenes of 4 x 5: larger scenes have fewer episodes, and 4 at least
_CHEAPER = 8  # steps of an evaluation for a step of a training


# The curve.


class CurveEvaluation:
    """Evaluation of the deterministic policy at intervals that are short at first, when it learns fast.

    Point k of K is due after the share (k / K)^2 of the training, but not before the training has taken, since the last
    point, an eighth of the steps of an evaluation. No point depends on the speed of the machine. K is ``curve_points``,
    0 for none. The engine gives policy and progress, the clock the share of the training.
    """

    def __init__(self, options: Options, engine: Any, clock: Any) -> None:
        self._engine, self._clock, self._scenario = engine, clock, engine.config.scenario
        self._points, self._sub_steps = options.curve_points, options.sub_steps
        self._trained: Any = in_training(options, engine.policies[0], engine.config) if self._points else None
        pairs = self._scenario.num_sensors * self._scenario.num_targets
        self._episodes = min(EPISODES, options.episodes, max(4, _PAIRS // pairs))

    def add_point(self, *, final: bool = False) -> None:
        """Add a point if one is due now, as the final one always is."""
        steps, progress = self._engine.steps, self._engine.progress
        last = progress.evaluations[-1] if progress.evaluations else None
        if not self._points or (last and last[0] == steps):
            return
        if last and not final:
            passed = int(self._points * math.sqrt(self._clock.fraction_at(int(last[0]), last[1])))
            due = int(self._points * math.sqrt(self._clock.fraction))
            if due == passed or steps - last[0] < self._episodes * self._sub_steps / _CHEAPER:
                return
        options: dict[str, Any] = {"episodes": self._episodes, "max_episode_steps": self._sub_steps}
        options |= {"seed": CURVE_SEED, "progress": False}
        if isinstance(self._trained, LevelPolicy):
            evaluation, reward = evaluate_executors({TRAINED: self._trained}, self._scenario, **options), "reward"
        else:
            evaluation, reward = evaluate(self._trained, self._scenario, **options), "decision_reward"
        result = evaluation["agents"][TRAINED]
        means = np.array([result[metric]["mean"] for metric in ("coverage", "rotation", reward)], float)  # None: NaN
        progress.evaluations.append((steps, progress.seconds, *means.tolist()))


def in_training(options: Options, policy: Policy, config: PolicyConfig) -> Agent | LevelPolicy:
    """Return a policy in training as an agent, or an executor as a level of the hierarchy."""
    if config.role == "executor":
        return as_level(policy, config)
    executor = None
    if isinstance(options, CoordinatorOptions):
        with checked_device(options.device):
            executor = load_executor(options.executor, config.scenario)
    return as_agent(policy, config, config.scenario, name=TRAINED, executor=executor)


def save_points(path: str | Path, progress: Progress) -> None:
    """Write the points of both policies, exploring and deterministic, as JSON."""
    curves = {"deterministic": progress.evaluations, "exploring": progress.curve}
    content: dict[str, Any] = {
        name: [{key: None if math.isnan(x) else x for key, x in zip(POINT, point, strict=True)} for point in points]
        for name, points in curves.items()
    }
    write_text(path, json.dumps(content, indent=1) + "\n")


def save_curve(path: str | Path, progress: Progress, metric: str, references: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw coverage or reward, and rotation below it, against steps and minutes of training.

    Thick lines with dots show the deterministic policy, thin ones the exploring policy, and dashed ones the references,
    results of others by name.
    """
    exploring, deterministic = (
        np.array(points, np.float64).reshape(-1, len(POINT)) for points in (progress.curve, progress.evaluations)
    )
    figure = new_figure((11, 6.4))
    colours = colours_of({TRAINED: {}, **references})
    look: dict[str, Any] = {"color": colours[TRAINED], "solid_capstyle": "round"}
    faint: dict[str, Any] = {"alpha": 0.5} if len(deterministic) else {}
    axes = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=(3, 2))
    for row, shown in zip(axes, (metric, "rotation"), strict=True):
        y = POINT.index(shown)
        levels = {name: result[shown]["mean"] for name, result in references.items() if shown in result}
        for axis, x, scale in ((row[0], 0, 1e6), (row[1], 1, 60.0)):
            dots = "o" if len(exploring) == 1 else ""
            axis.plot(exploring[:, x] / scale, exploring[:, y], lw=0.8, marker=dots, **faint, **look)
            axis.plot(deterministic[:, x] / scale, deterministic[:, y], lw=2, marker="o", ms=4, **look)
            for name, level in levels.items():
                if level is not None:
                    label = f"{label_of(name, {})} {level:.3f}"
                    axis.axhline(level, ls="--", lw=1.1, color=colours[name], zorder=1, label=label)
            axis.set_xlim(left=0)
            plain_axis(axis, "both")
        row[0].set_ylabel(shown)
        if levels:
            row[1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8.5)
    axes[1, 0].set_xlabel("million environment steps")
    axes[1, 1].set_xlabel("minutes of training")
    title = "training: thick, deterministic policy; thin, exploring; dashed, final results of others"
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    write_figure(path, figure)


# The report.


def load_trained(options: Options, scenario: Scenario) -> Agent:
    """Return the agent of a run; an executor's has a scripted coordinator."""
    with checked_device(options.device):
        if options.task.spec.role == "executor":
            return load_agent("assign-in-range", scenario, executor=options.folder)
        return load_run(options.folder, scenario, name=TRAINED)


def evaluate_trainings(trainings: Sequence[tuple[str, Options]], scenario: Scenario) -> dict[str, Any]:
    """Evaluate the policies of runs, by name, and the baselines; policies of one name are seeds of one agent."""
    options = trainings[0][1]
    if scenario.is_game:
        return evaluate_duel([job.folder for _, job in trainings], options, scenario)
    print(f"\nevaluating {counted(options.episodes, 'episode')} of each agent; --episodes sets another number")
    with checked_device(options.device):
        if options.task.spec.role == "executor":
            executors: dict[str, Any] = {}
            for name, job in trainings:
                executors.setdefault(name, []).append(job.folder)
            executors |= {name: name for name in EXECUTORS}
            steps = options.episode_steps
            return evaluate_executors(executors, scenario, episodes=options.episodes, max_episode_steps=steps)
    agents: list[Agent] = []
    for name, job in trainings:
        with checked_device(job.device):
            compared = [load_trained(job, scenario)._replace(name=name)]
            compared += [load_agent(one, scenario) for one in BASELINES]
            if isinstance(job, CoordinatorOptions):  # the scripted ones, with the same executor
                compared += [load_agent(one, scenario, executor=job.executor) for one in COORDINATORS]
        for agent in compared:
            if agent.trained and name not in (TRAINED, agent.name):  # a rule with the training's executor
                agent = agent._replace(name=f"{agent.name} {name}")
            same = [one for one in agents if one.name == agent.name]
            if not same or (agent.trained and digest(agent.policy) not in [digest(one.policy) for one in same]):
                several = len(trainings) > 1 and agent.trained
                agents.append(agent._replace(run=f"seed {job.seed}") if several else agent)
    return evaluate(agents, scenario, episodes=options.episodes, max_episode_steps=options.sub_steps)


def evaluate_duel(folders: Sequence[Path], options: Options, scenario: Scenario) -> dict[str, Any]:
    """Evaluate the policies of runs, and the rules of their team, against the opponent of the training."""
    targets = options.task.spec.role == "targets"
    alone = "assign-planned:" if options.task.spec.role == "executor" else ""
    own = [*(f"{alone}{folder}" for folder in folders), *(DUEL_BASELINES["targets" if targets else "sensors"])]
    other = [options.opponent or scenario.walk.removeprefix("carry-")]
    sensors, players = (other, own) if targets else (own, other)
    print(f"\nevaluating {counted(options.episodes, 'episode')} of each match; --episodes sets another number")
    with checked_device(options.device):
        return evaluate_cross(sensors, players, scenario, episodes=options.episodes)


def report(
    options: Options,
    scenario: Scenario,
    evaluation: Mapping[str, Any],
    progress: Progress | None = None,
    entropy: float | None = None,
    names: Iterable[str] = (TRAINED,),
) -> None:
    """Write and print an evaluation, with warnings about the policies of these names.

    With the progress of a run, also write its curve and a film.
    """
    run_dir, size = options.folder, (scenario.num_sensors, scenario.num_targets)
    metric = "reward" if options.task.spec.role in ("executor", "targets") else "coverage"
    game, warned = scenario.is_game, list[str]()
    if not game:
        warned += [line for name in dict.fromkeys(names) for line in diagnostics(evaluation, metric, entropy, name)]
        warned += declined(options.start, metric, progress or Progress())
    if metric == "coverage" and not game:
        save_pictures(run_dir, {size: evaluation}, "\n\n".join(warned))
    if progress is not None:
        save_points(run_dir / "curve.json", progress)
        others = {} if game else {name: one for name, one in evaluation["agents"].items() if name != TRAINED}
        released = released_reward(scenario.name)
        if metric == "coverage" and size in released and scenario == load_scenario(scenario.name):
            others["released HiT-MAC (reward)"] = {"coverage": {"mean": released[size]}}
        save_curve(run_dir / "curve.png", progress, metric, others)
        if not game:
            agent, seed = load_trained(options, scenario), evaluation["seeds"][0]
            save_film(run_dir / "episode.gif", agent, scenario, seed=seed, sub_steps=options.sub_steps)
    save_evaluation(run_dir / "evaluation.json", evaluation)  # last: a run that has it is finished
    print("\n".join(["", cross_table(evaluation) if game else table(evaluation), *warned]))


def declined(start: str | None, metric: str, progress: Progress) -> list[str]:
    """Return a warning if the deterministic policy is worse on the curve than the policy `start` was."""
    values = [point[POINT.index(metric)] for point in progress.evaluations]
    if start is None or len(values) < 2 or not values[-1] < values[0] - 5e-4:  # as much as the line shows
        return []
    first, last = values[0], values[-1]
    return [f"Warning: its {metric} on the curve's episodes is {last:.3f}, lower than that of {start}, {first:.3f}."]


def diagnostics(
    evaluation: Mapping[str, Any], metric: str, entropy: float | None, name: str = TRAINED
) -> Iterator[str]:
    """Yield warnings about the policy of a name: no better than a baseline, turning all the time, or too certain.

    The entropy is the final mean of a policy that learned from reward, as a share of the highest.
    """
    agents = evaluation["agents"]
    own, rotation = agents[name][metric]["mean"], agents[name]["rotation"]["mean"]
    means = {other: agents[other][metric]["mean"] for other in MODEST if other in agents and own is not None}
    if beaten_by := [f"{other} ({mean:.3f})" for other, mean in means.items() if mean >= own]:
        yield f"Warning: {name} is no better than {', '.join(beaten_by)}: its {metric} is {own:.3f}."
    if rotation > SPINNING:
        yield f"Warning: {name} turns its sensors nearly always (rotation {rotation:.2f}); increase --turn-cost."
    if entropy is not None and entropy < DECIDED:
        yield (
            f"Warning: {name} has stopped exploring: its entropy is {100 * entropy:.1f} % of the highest; "
            "increase --entropy and --final-entropy."
        )
