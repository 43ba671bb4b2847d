"""Evaluation of trainings beside baselines, and the report: tables, figures, a film, warnings of what looks wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitmac.agents.baselines.levels import COORDINATORS, EXECUTORS
from hitmac.agents.evaluate import evaluate, evaluate_executors, save_evaluation, save_pictures
from hitmac.agents.evaluate.film import save_film
from hitmac.agents.evaluate.tables import released_reward, table
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.learned.checkpoint import PolicyConfig, checked_device
from hitmac.agents.policy import Policy, digest
from hitmac.agents.registry import Agent, as_agent, as_level, load_agent, load_executor, load_run
from hitmac.agents.training.config import CoordinatorOptions, Options
from hitmac.agents.training.curve import reached_in_words, save_curve, save_points
from hitmac.agents.training.resume import Progress
from hitmac.envs.scenario import Scenario

BASELINES = ("random", "still", "nearest", "greedy", "planner")
"""Agents that every agent is compared with."""

TRAINED = "trained"
"""Name of the policy of the run in its evaluation."""

SPINNING = 0.9
"""Rotation from which on sensors are said to turn all the time."""

DECIDED = 0.01
"""Share of the highest entropy below which a policy is said to explore no longer."""

MODEST = ("random", "still", "nearest", "greedy", "scripted")
"""Baselines that every policy should surpass."""


def metric_of(options: Options) -> str:
    """Return the metric of a training's curve: executors are evaluated by their reward, agents by their coverage."""
    return "reward" if options.task.spec.role == "executor" else "coverage"


def in_training(options: Options, policy: Policy, config: PolicyConfig) -> Agent | LevelPolicy:
    """Return the policy in training, as an agent, or an executor as a level of the hierarchy."""
    if config.role == "executor":
        return as_level(policy, config)
    executor = None
    if isinstance(options, CoordinatorOptions):
        with checked_device(options.device):
            executor = load_executor(options.executor, config.scenario)
    return as_agent(policy, config, config.scenario, name=TRAINED, executor=executor)


def load_trained(options: Options, scenario: Scenario) -> Agent:
    """Return the agent that shows the policy of a run; to an executor, a scripted coordinator assigns the targets."""
    assert options.run_dir is not None
    with checked_device(options.device):
        if options.task.spec.role == "executor":
            return load_agent("assign-in-range", scenario, executor=options.run_dir)
        return load_run(options.run_dir, scenario, name=TRAINED)


def evaluate_trainings(trainings: Sequence[tuple[str, Options]], scenario: Scenario) -> dict[str, Any]:
    """Evaluate the policies of runs beside the baselines.

    Args:
        trainings: the runs, each with its name; those of one name are trainings of one agent with several seeds.
        scenario: the scene.
    """
    options = trainings[0][1]
    if options.task.spec.role == "executor":
        executors: dict[str, Any] = {}
        for name, job in trainings:
            executors.setdefault(name, []).append(job.run_dir)
        executors |= {name: name for name in EXECUTORS}
        with checked_device(options.device):
            return evaluate_executors(
                executors, scenario, episodes=options.episodes, max_episode_steps=options.episode_steps
            )
    agents: list[Agent] = []
    for name, job in trainings:
        for agent in (load_trained(job, scenario)._replace(name=name), *_baselines(job, scenario)):
            if agent.trained and name not in (TRAINED, agent.name):  # a rule with the training's executor
                agent = agent._replace(name=f"{agent.name} {name}")
            same = [one for one in agents if one.name == agent.name]
            if not same or (agent.trained and digest(agent.policy) not in [digest(one.policy) for one in same]):
                several = len(trainings) > 1 and agent.trained
                agents.append(agent._replace(run=f"seed {job.seed}") if several else agent)
    return evaluate(agents, scenario, episodes=options.episodes, max_episode_steps=options.sub_steps)


def _baselines(options: Options, scenario: Scenario) -> list[Agent]:
    """Return the agents to compare with; for a coordinator also the scripted ones, with the same executor."""
    agents = [load_agent(name, scenario) for name in BASELINES]
    if isinstance(options, CoordinatorOptions):
        with checked_device(options.device):
            agents += [load_agent(name, scenario, executor=options.executor) for name in COORDINATORS]
    return agents


def report(
    options: Options, scenario: Scenario, evaluation: Mapping[str, Any], progress: Progress, entropy: float | None
) -> None:
    """Write and print the evaluation of a run's policy, its curve and a film, and warnings of what looks wrong."""
    assert options.run_dir is not None
    run_dir, metric = options.run_dir, metric_of(options)
    warned = list(diagnostics(evaluation, metric, entropy))
    save_tables(options, scenario, evaluation, "\n\n".join([reached_in_words(progress), *warned]).strip())
    save_points(run_dir / "curve.json", progress)
    others = {name: result for name, result in evaluation["agents"].items() if name != TRAINED}
    size = (scenario.num_sensors, scenario.num_targets)
    if metric == "coverage" and size in (released := released_reward(scenario.name)):
        others["released HiT-MAC"] = {"coverage": {"mean": released[size]}}
    save_curve(run_dir / "curve.png", progress, metric, others)
    agent, seed = load_trained(options, scenario), evaluation["seeds"][0]
    save_film(run_dir / "episode.gif", agent, scenario, seed=seed, sub_steps=options.sub_steps)
    print("\n".join(["", table(evaluation), *warned]))


def save_tables(options: Options, scenario: Scenario, evaluation: Mapping[str, Any], note: str) -> None:
    """Write an evaluation, and of agents tables and figures, to the directory of a run or group."""
    assert options.run_dir is not None
    save_evaluation(options.run_dir / "evaluation.json", evaluation)
    if metric_of(options) == "coverage":
        size = (scenario.num_sensors, scenario.num_targets)
        save_pictures(options.run_dir, {size: evaluation}, note)


def diagnostics(
    evaluation: Mapping[str, Any], metric: str, entropy: float | None, name: str = TRAINED
) -> Iterator[str]:
    """Yield a line for each thing that looks wrong with a trained policy.

    Args:
        evaluation: the evaluation of the policy beside the baselines.
        metric: ``"coverage"`` or ``"reward"``.
        entropy: of a policy that learned from reward, its mean entropy at the end as a share of the highest; or None.
        name: name of the policy in the evaluation.
    """
    agents = evaluation["agents"]
    own, rotation = agents[name][metric]["mean"], agents[name]["rotation"]["mean"]
    beaten_by = [
        f"{other} ({agents[other][metric]['mean']:.3f})"
        for other in MODEST
        if other in agents and agents[other][metric]["mean"] >= own
    ]
    if beaten_by:
        yield f"Warning: {name} is no better than {', '.join(beaten_by)}: its {metric} is {own:.3f}."
    if rotation > SPINNING:
        yield f"Warning: {name} turns its sensors nearly always (rotation {rotation:.2f}); --turn-cost makes it dear."
    if entropy is not None and entropy < DECIDED:
        yield (
            f"Warning: {name} has stopped exploring: its entropy is {100 * entropy:.1f} % of the highest; "
            "--entropy and --final-entropy reward it."
        )
