"""Foundations of all kernels: compilation, threads, formulas, random streams, the state and nearest things."""
