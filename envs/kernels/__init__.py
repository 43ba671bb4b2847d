"""Compiled kernels on the state of a batch of scenes, scenes along the last axis."""
