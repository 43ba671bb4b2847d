"""Earlier import path of the attention layers and functions, which live in the modules imported here."""

from perception.functional import attend, causal_mask, count, masked_softmax, pool, zero_masked
from perception.multi_head import MultiHeadAttention
from perception.tanh_attention import POOLINGS, AttentionLayer

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
