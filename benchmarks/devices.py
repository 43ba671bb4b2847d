"""Speed of the networks and of trainings on every device of the machine, in float32 and in bfloat16."""

import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from hitmac.agents.learned.checkpoint import checked_device
from hitmac.agents.training.config import JOBS, with_defaults
from hitmac.agents.training.learner import SB3Engine, TrainingClock
from hitmac.envs import load_scenario
from hitmac.perception import AgentTargetEncoder, AMCCritic

ROUNDS, SECONDS = 5, 0.4
TRAINING = 10.0  # seconds of a training
FEATURES = 8


def _devices() -> list[str]:
    """Return the CPU, and the accelerator if there is one."""
    return list(dict.fromkeys(("cpu", checked_device("auto").type)))


def _networks(width: int) -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Return the networks, each with the shape of what it takes of a scene of 4 sensors and 5 targets."""
    options = {"attend_over": "axes", "pooling": "mean", "num_blocks": 2}
    return {
        "encoder": (AgentTargetEncoder(FEATURES, width, **options), (4, 5, FEATURES)),
        "AMC critic": (AMCCritic(width), (20, width)),
    }


def _rate(network: nn.Module, shape: tuple[int, ...], batch: int, device: str, dtype: torch.dtype) -> float:
    """Return the scenes/s of forward and backward passes of a batch."""
    network, x = network.to(device, dtype), torch.randn(batch, *shape, device=device, dtype=dtype)

    def run(seconds: float) -> float:
        began, passes = time.perf_counter(), 0
        while passes == 0 or time.perf_counter() - began < seconds:
            found = network(x)
            (found if isinstance(found, torch.Tensor) else found.global_feature).float().square().mean().backward()
            passes += 1
            if device != "cpu":
                torch.accelerator.synchronize()
        return passes * batch / (time.perf_counter() - began)

    run(0.0)
    return statistics.median(run(SECONDS) for _ in range(ROUNDS))


def _training(device: str, scenes: int, batch: int, compiled: bool) -> float:
    """Return the steps/s of coverage-ppo, rollouts and updates, after two updates that compile."""
    options = dataclasses.replace(
        with_defaults(JOBS["coverage-ppo"], "ppo", "none", None),
        device=device,
        num_envs=scenes,
        batch_size=batch,
        compiled=compiled,
        total_steps=10**9,
    )
    with tempfile.TemporaryDirectory() as folder:
        engine = SB3Engine(options, load_scenario(options.scenario), Path(folder))
        clock = TrainingClock(options, engine)
        for _ in range(2):
            engine.update(clock)
        first, began = engine.steps, time.perf_counter()
        while time.perf_counter() - began < TRAINING:
            engine.update(clock)
        clock.bar.close()
        return (engine.steps - first) / (time.perf_counter() - began)


def devices() -> None:
    """Print the figures of every device."""
    torch.manual_seed(0)
    print(f"\nscenes/s of 4 x 5, forward and backward, {torch.get_num_threads()} threads; medians of {ROUNDS}")
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    print(f"  {'network':<11} {'width':>5} {'batch':>6} {'device':<7}" + "".join(f"{kind:>12}" for kind in kinds))
    for width in (64, 256):
        for name, (network, shape) in _networks(width).items():
            for batch in (64, 1024, 8192):
                for device in _devices():
                    rates = [_rate(network, shape, batch, device, dtype) for dtype in kinds.values()]
                    found = "".join(f"{rate:>12,.0f}" for rate in rates)
                    print(f"  {name:<11} {width:>5} {batch:>6} {device:<7}{found}", flush=True)
    print("\nsteps/s of coverage-ppo, rollouts and updates")
    print(f"  {'scenes':>6} {'batch':>6} {'device':<7}{'eager':>12}{'compiled':>12}")
    for scenes, batch in ((512, 512), (512, 4096), (4096, 16384)):
        for device in _devices():
            rates = [_training(device, scenes, batch, compiled) for compiled in (False, True)]
            print(f"  {scenes:>6} {batch:>6} {device:<7}" + "".join(f"{rate:>12,.0f}" for rate in rates), flush=True)
