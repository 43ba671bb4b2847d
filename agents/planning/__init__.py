"""Baselines: agents that decide by rule."""
