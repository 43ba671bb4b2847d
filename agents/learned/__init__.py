"""Learned policies: the attention policy with its heads, credit assignment, checkpoints."""
