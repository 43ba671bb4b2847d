"""Benchmarks of speed and memory; run them with ``python -m benchmarks``."""
