"""Options of the jobs whose policy may imitate a planner, and the planner as the teacher of a role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from hitmac.agents.baselines.levels import AssignPlanned, PlannerExecutor, in_place
from hitmac.agents.baselines.planner import PlannerAgent
from hitmac.agents.baselines.planning import PlanningPolicy
from hitmac.agents.registry import SCRIPTED, scripted_agent
from hitmac.agents.training.options import Options
from hitmac.envs.ranges import Choice, NotNegative, Positive
from hitmac.envs.scenario import Scenario

TEACHERS = tuple(name for name, agent in SCRIPTED.items() if issubclass(agent, PlanningPolicy))
"""Agents that a policy can imitate, by name."""


@dataclass(frozen=True)
class ImitationOptions(Options):
    """Base class of the options of jobs whose policy may imitate a planner."""

    imitation_defaults: ClassVar[dict[str, Any]] = {}
    """Defaults of other options with ``--algorithm imitation``."""
    imitation_limit: ClassVar[dict[str, Any]] = {}
    """Default limit with ``--algorithm imitation``; {}: that of the job."""

    algorithm: Annotated[str, Choice(("imitation", "ppo", "a2c"))] = "ppo"
    """Learning algorithm: imitation of a planner, with some other defaults for a level of the hierarchy; or from reward
    alone: ppo, or a2c, the synchronous form of the paper's A3C, which knows no batch_size and no epochs."""
    teacher: Annotated[str, Choice(TEACHERS)] = "planner"
    """Planner to imitate."""
    planner_turn_cost: NotNegative = 0.1
    """Cost of a sub-step of turning in the planner's plans, in targets covered for a sub-step: the higher, the less the
    policy turns."""
    temperature: Positive = 0.1
    """Temperature of the distribution over actions that the planner's values are turned into, in targets covered for a
    sub-step."""


def teacher_of(options: ImitationOptions, scenario: Scenario) -> Any:
    """Return the planner as a teacher of turns, of turns towards goals, or of assignments, for the role of the task."""
    role, chosen = options.task.spec.role, {"turn_cost": options.planner_turn_cost}
    if role == "coordinator":
        chosen = AssignPlanned.planning | chosen
    if role == "agent":
        return scripted_agent(options.teacher, scenario, **chosen)
    planner = scripted_agent(options.teacher, in_place(scenario), **chosen)
    assert isinstance(planner, PlannerAgent)
    if role == "coordinator":
        return AssignPlanned(scenario, planner=planner)
    return PlannerExecutor(scenario, planner=planner)
