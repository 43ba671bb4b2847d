"""Compiled kernels on the state of a batch of scenes, with the scenes along the last axis."""
