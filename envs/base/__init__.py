"""What all kernels stand on: compilation, threads, formulas, random streams, the state, nearest things."""
