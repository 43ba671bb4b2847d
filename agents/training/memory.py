"""Memory that a training will need, estimated before anything is made."""

from __future__ import annotations

import os
from pathlib import Path

from hitmac.agents.tracking.belief_observer import check_features
from hitmac.agents.training.options import Options
from hitmac.envs.scenario import Scenario

_NUMBER = 4  # bytes
_COPIES = 5  # of every weight: itself, its gradient, two averages of the optimiser, one of imitation
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_memory(options: Options, scenario: Scenario) -> None:
    """Raise ValueError if a training needs more memory than there is; the message says what for.

    The estimate is a lower one: what passes may still be too much.
    """
    needed, there = memory_needed(options, scenario), total_memory()
    if there is not None and (total := sum(needed.values())) > there:
        parts = "; ".join(f"{what} {_gigabytes(number)}" for what, number in needed.items())
        raise ValueError(
            f"this training needs {_gigabytes(total)} of memory or more, and there are {_gigabytes(there)}: {parts}"
        )


def memory_needed(options: Options, scenario: Scenario) -> dict[str, float]:
    """Return a lower estimate of the bytes that a training needs, by what for, with the options that it depends on."""
    width, blocks, layers = options.weight_dim, options.num_blocks, options.embed_layers
    pairs = scenario.num_sensors * min(options.nearness.get("nearest", scenario.num_targets), scenario.num_targets)
    features = len(check_features(options.features))
    weights = features * width + (layers - 1 + 4 * blocks) * width**2
    steps = options.rollout_steps * options.num_envs
    batch = min(options.batch_size, steps) if options.algorithm != "a2c" else steps
    return {
        "networks (--weight-dim, --embed-layers, --num-blocks)": float(_COPIES * _NUMBER * weights),
        "rollouts (--rollout-steps, --num-envs)": float(_NUMBER * steps * pairs * features),
        "gradient steps (--batch-size, --weight-dim)": float(_NUMBER * batch * pairs * width * (layers + blocks)),
    }


def total_memory() -> int | None:
    """Return the bytes of memory of this machine, or of what this process may use of it; None if it does not say."""
    try:
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        return None
    for limit in map(Path, _LIMITS):
        try:
            found.append(int(limit.read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(found)


def _gigabytes(number: float) -> str:
    return f"{number / 2**30:,.1f} GiB"
