"""Speed of training by RLlib beside the default engine, in turns."""

import dataclasses
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROUNDS = 4


def rllib() -> None:
    """Print the steps per second of both engines."""
    import ray
    import torch
    from stable_baselines3.common.logger import Logger

    from hitmac import envs
    from hitmac.agents.training.config import CoverageRewardOptions
    from hitmac.agents.training.learner import build
    from hitmac.agents.training.rllib import engine
    from hitmac.agents.training.rllib.cluster import connect

    options, scenario = CoverageRewardOptions(engine="rllib"), envs.load_scenario("hit-mac")
    torch.set_num_threads(1)
    connect("local", num_cpus=4)
    model, venv, _ = build(options, scenario)
    model.set_logger(Logger(None, []))
    model._setup_learn(10**9)
    steps = options.rollout_steps * venv.num_envs
    updates: dict[str, Callable[[], Any]] = {
        "Stable-Baselines3": partial(model.learn, steps, reset_num_timesteps=False)
    }
    clock: Any = SimpleNamespace(fraction=0.0, rates=options.rates(0.0), add_point=lambda **means: None)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(3):
            chosen = dataclasses.replace(options, num_env_runners=number)
            trained = engine.RLlibEngine(chosen, scenario, Path(folder, str(number)))
            updates[f"RLlib, {number} env runners"] = partial(trained.update, clock)
        seconds: dict[str, list[float]] = {name: [] for name in updates}
        for _ in range(ROUNDS + 1):
            for name, train in updates.items():
                began = time.perf_counter()
                train()
                seconds[name].append(time.perf_counter() - began)
    print(f"\nsteps/s of an update of {steps:,} steps, coverage-ppo with its defaults; fastest of {ROUNDS}, in turns")
    for name, taken in seconds.items():
        print(f"  {name:<30} {steps / min(taken[1:]):>8,.0f}")
    ray.shutdown()
