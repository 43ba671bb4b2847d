"""Attention over agent-target features, after HiT-MAC, for any policy.

Requires only torch; large inputs on a CPU are faster with numba.

Constructors raise ``ValueError`` for options out of range. Calls raise ``ValueError`` for mismatched shapes, for masks
on a CPU with numbers other than 0 and 1, and ``TypeError`` for masks that are not tensors. The message names the
argument, its value and the allowed values. Masks are 1 for what is valid, in any dtype, and what they exclude affects
neither values nor gradients. Numbers of equations are those of ``docs/mathematics.md``. An agent is a sensor.

Further modules: :mod:`hitmac.perception.functional` (scores), :mod:`hitmac.perception.released` (the published
networks), :mod:`hitmac.perception.plots` (plots of attention weights).
"""

from hitmac.perception.amc import AMCCritic
from hitmac.perception.checks import check_finite
from hitmac.perception.encoder import AgentTargetEncoder, EncoderConfig, FlatEncoder
from hitmac.perception.entities import EntityEncoder, EntityFeatures, SelectionHead
from hitmac.perception.functional import Features, Weights, attend, causal_mask
from hitmac.perception.recurrent import NoisyLinear, RecurrentLayer
from hitmac.perception.sparse import pad_scenes, unpad_scenes
from hitmac.perception.tanh_attention import AttentionLayer
from hitmac.perception.transformer import EncoderBlock, MultiHeadAttention, PositionalEncoding, TokenEmbedding

__all__ = [
    "AMCCritic",
    "AgentTargetEncoder",
    "AttentionLayer",
    "EncoderBlock",
    "EncoderConfig",
    "EntityEncoder",
    "EntityFeatures",
    "Features",
    "FlatEncoder",
    "MultiHeadAttention",
    "NoisyLinear",
    "PositionalEncoding",
    "RecurrentLayer",
    "SelectionHead",
    "TokenEmbedding",
    "Weights",
    "attend",
    "causal_mask",
    "check_finite",
    "pad_scenes",
    "unpad_scenes",
]
