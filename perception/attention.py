"""The names of the attention that were once in one file; they live in the modules that this one imports them from."""

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
