"""Agents for directional sensor networks: learned and scripted agents, checkpoints, evaluation."""

from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.learned.checkpoint import PolicyConfig, load_policy, save_policy
from hitmac.agents.learned.entities import EntityPolicy
from hitmac.agents.learned.policy import AttentionExtractor, AttentionPolicy
from hitmac.agents.names import load_agent, load_executor, load_opponent
from hitmac.agents.policy import Policy
from hitmac.agents.registry import SCRIPTED, Agent, scripted_agent

__all__ = [
    "SCRIPTED",
    "Agent",
    "AttentionExtractor",
    "AttentionPolicy",
    "EntityPolicy",
    "HierarchicalAgent",
    "LevelPolicy",
    "Policy",
    "PolicyConfig",
    "load_agent",
    "load_executor",
    "load_opponent",
    "load_policy",
    "save_policy",
    "scripted_agent",
]
