"""The perception of HiT-MAC for any policy: attention over agent-target features. It needs torch alone.

The encoder and its layers are here; besides there are :mod:`perception.scores`, :mod:`perception.transformer`,
:mod:`perception.released` (the published nets), :mod:`perception.plots` (attention for the eye) and
:mod:`perception.adapters` (other libraries).
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
