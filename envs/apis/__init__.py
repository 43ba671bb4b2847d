"""Shells around the tasks: gymnasium, its vector environments, Stable-Baselines3, PettingZoo."""
