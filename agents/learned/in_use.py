"""Learned policies as agents of a scenario."""

from __future__ import annotations

from hitmac.agents.learned.beliefs import BeliefPolicy, OwnKnowledge
from hitmac.agents.learned.checkpoint import PolicyConfig
from hitmac.agents.policy import Completed, PerSensor, Policy
from hitmac.agents.tracking.features import BELIEFS
from hitmac.envs.scenario import Scenario


def in_use(policy: Policy, config: PolicyConfig, scenario: Scenario) -> tuple[Policy, tuple[str, ...]]:
    """Return a policy that turns all sensors in the form that acts in a scenario, and the features that it reads."""
    agent: Policy = PerSensor(policy) if config.options.get("per_sensor") else policy
    features = config.features
    if features == BELIEFS:
        agent, features = BeliefPolicy(agent, scenario), BeliefPolicy.features
    if config.policy["memory"] == "recurrent" and scenario.knowledge in ("neighbours", "own"):
        agent = OwnKnowledge(agent, scenario)
    if config.scenario.decisions != scenario.decisions:
        agent = Completed(agent, config.scenario.decisions, scenario.decisions)
    return agent, features
