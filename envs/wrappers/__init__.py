"""Environment interfaces to the tasks: gymnasium, its vector environments, Stable-Baselines3, PettingZoo, TorchRL."""
