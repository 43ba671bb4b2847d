"""Agents for directional sensor networks: learned and scripted ones, checkpoints, evaluation."""

from agents.attention_policy import AttentionPolicy
from agents.checkpoint import PolicyConfig, load_policy, save_policy
from agents.extractor import AttentionExtractor
from agents.hierarchy import HierarchicalAgent, Level
from agents.policy import Policy
from agents.registry import SCRIPTED, Agent, load_agent, load_executor, scripted_agent

__all__ = [
    "SCRIPTED",
    "Agent",
    "AttentionExtractor",
    "AttentionPolicy",
    "HierarchicalAgent",
    "Level",
    "Policy",
    "PolicyConfig",
    "load_agent",
    "load_executor",
    "load_policy",
    "save_policy",
    "scripted_agent",
]
