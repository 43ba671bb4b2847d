"""Measurements of speed; run them with ``python -m benchmarks``."""
