"""The perception of HiT-MAC for any policy: attention over agent-target features. It needs torch alone."""

from perception.attention import AttentionLayer, attention_weights
from perception.encoder import AgentTargetEncoder, Features

__all__ = ["AgentTargetEncoder", "AttentionLayer", "Features", "attention_weights"]
