"""Agents for directional sensor networks: learned and scripted agents, checkpoints, evaluation."""

from agents.hierarchy import HierarchicalAgent, LevelPolicy
from agents.learned.attention_policy import AttentionPolicy
from agents.learned.checkpoint import PolicyConfig, load_policy, save_policy
from agents.learned.extractor import AttentionExtractor
from agents.policy import Policy
from agents.registry import SCRIPTED, Agent, load_agent, load_executor, scripted_agent

Level = LevelPolicy
"""Earlier name of :class:`LevelPolicy`."""

__all__ = [
    "SCRIPTED",
    "Agent",
    "AttentionExtractor",
    "AttentionPolicy",
    "HierarchicalAgent",
    "Level",
    "LevelPolicy",
    "Policy",
    "PolicyConfig",
    "load_agent",
    "load_executor",
    "load_policy",
    "save_policy",
    "scripted_agent",
]
