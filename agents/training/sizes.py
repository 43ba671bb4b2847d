"""Sizes of a training that suit the scene: scenes side by side, rows of a gradient step, steps of a rollout."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from hitmac.envs.scenario import Scenario

AnyOptions = TypeVar("AnyOptions")

SIZES = ("num_envs", "batch_size", "rollout_steps")
"""Options whose defaults depend on the scene."""

PAIRS = {"imitation": 200, "ppo": 100, "a2c": 60}
"""Most pairs of a sensor and a target in a scene for which the sizes are the defaults, by the algorithm.

A policy that learns from reward learns after whole rollouts only, and by A2C from whole rollouts at once.
"""

_SENSORS = 4  # of the scene that the defaults are for
_MULTIPLE = 8  # of every size
_SHORTEST = 4  # steps of a rollout by imitation, which learns after every step


def scaled(
    options: AnyOptions, scenario: Scenario | None, per_sensor: bool = False, nearest: int | None = None
) -> AnyOptions:
    """Return default options with sizes for a scenario: the more pairs its scenes have, the fewer scenes.

    The pairs in a step of all scenes and those in a gradient step do not grow beyond those of scenes with :data:`PAIRS`
    pairs, so neither do their time and memory.

    Args:
        options: the defaults of a job.
        scenario: the scene to train on; None leaves the options as they are.
        per_sensor: rows of a gradient step are sensors also where the job does not say so.
        nearest: targets that a sensor is shown; None: all.
    """
    given: Any = options
    if scenario is None or given.algorithm not in PAIRS:  # what is out of its range is refused later
        return options
    sensors, targets = scenario.num_sensors, min(nearest or scenario.num_targets, scenario.num_targets)
    most = PAIRS[given.algorithm]
    share = most / (sensors * targets)
    sizes = {"num_envs": _part(given.num_envs, share)}
    if hasattr(given, "batch_size"):
        rows_are_sensors = per_sensor or given.task.spec.role == "executor"
        sizes["batch_size"] = _part(given.batch_size, most / _SENSORS / targets if rows_are_sensors else share)
        if given.algorithm == "imitation" and getattr(given, "memory", "none") == "none":
            sizes["rollout_steps"] = max(min(_SHORTEST, given.rollout_steps), int(given.rollout_steps * min(share, 1)))
    return dataclasses.replace(given, **sizes)


def _part(size: int, share: float) -> int:
    """Return a share of a size, at least _MULTIPLE and one of its multiples; with a share of 1 or more, the size."""
    return size if share >= 1 else max(int(size * share) // _MULTIPLE * _MULTIPLE, min(size, _MULTIPLE))


def sizes_in_words(options: Any, scenario: Scenario) -> str:
    """Return the sizes of a training as a line."""
    return (
        f"{scenario.num_sensors} sensors, {scenario.num_targets} targets: {options.num_envs} scenes side by side, "
        f"rollouts of {options.rollout_steps} steps, batches of {options.batch_size}"
    )
