"""Kernels that the simulator, the observers and the tasks call. Compiled by numba."""
