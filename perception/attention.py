"""Earlier import path of the attention layers and functions, which live in the modules imported here."""

from hitmac.perception.functional import attend, causal_mask, masked_softmax, zero_masked
from hitmac.perception.multi_head import MultiHeadAttention
from hitmac.perception.pooling import POOLINGS, count, pool
from hitmac.perception.tanh_attention import AttentionLayer

__all__ = [
    "POOLINGS",
    "AttentionLayer",
    "MultiHeadAttention",
    "attend",
    "causal_mask",
    "count",
    "masked_softmax",
    "pool",
    "zero_masked",
]
