"""Attention over agent-target features, after HiT-MAC, for any policy. Requires only torch.

This module exports the encoder and its layers. Further modules are :mod:`perception.scores`,
:mod:`perception.transformer`, :mod:`perception.released` (the published networks), :mod:`perception.plots` (plots of
attention weights) and :mod:`perception.adapters` (adapters for other libraries).
"""

from perception.ablations import NoisyLinear, RecurrentLayer
from perception.amc import AMCCritic
from perception.checks import check_finite
from perception.encoder import AgentTargetEncoder, Features, Weights
from perception.flat import FlatEncoder
from perception.functional import attend, causal_mask
from perception.multi_head import MultiHeadAttention
from perception.ragged import pad_scenes, unpad_scenes
from perception.tanh_attention import AttentionLayer
from perception.transformer import EncoderBlock, PositionalEncoding, TokenEmbedding

__all__ = [
    "AMCCritic",
    "AgentTargetEncoder",
    "AttentionLayer",
    "EncoderBlock",
    "Features",
    "FlatEncoder",
    "MultiHeadAttention",
    "NoisyLinear",
    "PositionalEncoding",
    "RecurrentLayer",
    "TokenEmbedding",
    "Weights",
    "attend",
    "causal_mask",
    "check_finite",
    "pad_scenes",
    "unpad_scenes",
]
