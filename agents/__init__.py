"""Agents for directional sensor networks: learned and scripted ones, checkpoints, evaluation."""

from agents.attention_policy import AttentionExtractor, AttentionPolicy
from agents.checkpoint import PolicyConfig, load_policy, save_policy
from agents.policy import Policy
from agents.registry import SCRIPTED, scripted_agent

__all__ = [
    "SCRIPTED",
    "AttentionExtractor",
    "AttentionPolicy",
    "Policy",
    "PolicyConfig",
    "load_policy",
    "save_policy",
    "scripted_agent",
]
