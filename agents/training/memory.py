"""Memory that a training will need, estimated before anything is made."""

from __future__ import annotations

from hitmac.agents.tracking.belief_observer import check_features
from hitmac.agents.training.options import Options
from hitmac.envs.machine import in_gigabytes, total_memory
from hitmac.envs.scenario import Scenario

_NUMBER = 4  # bytes
_COPIES = 5  # of every weight: itself, its gradient, two averages of the optimiser, one of imitation
_METRIC = 8  # bytes of a metric of an episode, and of the part of an episode that a sub-step belongs to


def check_memory(options: Options, scenario: Scenario) -> None:
    """Raise ValueError if a training needs more memory than there is; the message says what for.

    The estimate is a lower one: what passes may still be too much.
    """
    needed, there = memory_needed(options, scenario), total_memory()
    if there is not None and (total := sum(needed.values())) > there:
        parts = "; ".join(f"{what} {in_gigabytes(number)}" for what, number in needed.items())
        raise ValueError(
            f"this training needs {in_gigabytes(total)} of memory or more, and there are {in_gigabytes(there)}: {parts}"
        )


def memory_needed(options: Options, scenario: Scenario) -> dict[str, float]:
    """Return a lower estimate of the bytes that a training needs, by what for, with the options that it depends on."""
    width, blocks, layers = options.weight_dim, options.num_blocks, options.embed_layers
    pairs = scenario.num_sensors * min(options.nearness.get("nearest", scenario.num_targets), scenario.num_targets)
    features = len(check_features(options.features))
    weights = features * (1 + 2 * options.num_frequencies) * width + (layers - 1 + 4 * blocks) * width**2
    steps = options.rollout_steps * options.num_envs
    batch = min(options.batch_size, steps) if options.algorithm != "a2c" else steps
    length = "--episodes, --episode-steps" + ", --decision" * hasattr(options, "decision")
    return {
        "networks (--weight-dim, --embed-layers, --num-blocks, --num-frequencies)": float(_COPIES * _NUMBER * weights),
        "rollouts (--rollout-steps, --num-envs)": float(_NUMBER * steps * pairs * features),
        "gradient steps (--batch-size, --weight-dim)": float(_NUMBER * batch * pairs * width * (layers + blocks)),
        f"evaluation ({length})": float(_METRIC * (options.episodes + options.sub_steps)),
    }
