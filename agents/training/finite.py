"""Numbers that are not finite, which end a training before they are saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger
from torch import Tensor, nn

from hitmac.agents.learned.attention_policy import AttentionPolicy


class NotFiniteError(ArithmeticError):
    """Training has met NaN or infinity; what was saved before is still good."""


def check_finite(what: str, values: np.ndarray) -> None:
    """Raise :class:`NotFiniteError` if any of the values (B, ...), the first axis that of the scenes, is not finite."""
    if (place := not_finite(values)) is not None:
        raise not_finite_error(what, place[0], values, place)


def not_finite_error(what: str, scene: object, values: np.ndarray, place: tuple[int, ...]) -> NotFiniteError:
    """Return the error of a value of a scene, whose place (scene, ...) in the values is given."""
    at = f" at {list(place[1:])}" if place[1:] else ""
    return NotFiniteError(f"{what} of scene {scene} holds {values[place]}{at}")


def not_finite(values: np.ndarray) -> tuple[int, ...] | None:
    """Return the place of the first value that is not finite; None if all are."""
    finite = np.isfinite(values)
    return None if finite.all() else tuple(int(axis) for axis in np.argwhere(~finite)[0])


@contextmanager
def finite_training(steps: Callable[[], int], *policies: AttentionPolicy) -> Iterator[None]:
    """Raise :class:`NotFiniteError` where a policy's output is not finite, and name the step in each of them.

    Args:
        steps: returns the environment steps so far.
        *policies: policies that learn or are evaluated.
    """
    hooks = [
        head.register_forward_hook(lambda head, _, output: _check_output(head, output))
        for policy in policies
        for head in (policy.action_net, policy.value_net)
    ]
    try:
        yield
    except NotFiniteError as error:
        raise NotFiniteError(f"step {steps()}: {error}") from None
    finally:
        for hook in hooks:
            hook.remove()


def _check_output(head: nn.Module, output: Tensor) -> None:
    values = output.detach().cpu().numpy()
    if (place := not_finite(values)) is not None:
        raise NotFiniteError(f"the policy's {type(head).__name__} gives {values[place]} at {list(place)}")


@contextmanager
def finite_update(logger: Logger, *policies: AttentionPolicy) -> Iterator[None]:
    """Raise :class:`NotFiniteError` if an update leaves a loss that is logged, or one of the policies, not finite."""

    def check() -> None:
        for policy in policies:
            check_update(policy, logger.name_to_value)

    try:
        yield
    except NotFiniteError:
        check()  # a weight says more than what comes of it
        raise
    check()


def check_update(policy: AttentionPolicy, logged: Mapping[str, Any]) -> None:
    """Raise :class:`NotFiniteError` unless weights, what is logged under the name of a loss, and outputs are finite.

    The outputs are those for an observation that is drawn from the observation space, always the same.
    """
    weights = [name for name, weight in policy.named_parameters() if not weight.isfinite().all()]
    losses = [name for name, loss in logged.items() if name.endswith("loss") and not np.isfinite(loss)]
    if weights or losses:
        what = f"the weight {weights[0]}" if weights else f"{losses[0]}, {float(logged[losses[0]])},"
        raise NotFiniteError(f"{what} is not finite after the update")
    policy.observation_space.seed(0)
    observation, _ = policy.obs_to_tensor(policy.observation_space.sample())
    with torch.no_grad():
        encoded = policy.encode(observation)
        for head in (policy.action_net, policy.value_net):
            _check_output(head, head(*encoded))
