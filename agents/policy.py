"""The protocol that all agents share, learned or scripted: Stable-Baselines3's ``predict``, batched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from envs.assigned_observation import flatten_sensors, unflatten_sensors
from perception.released import ReleasedCoordinator, ReleasedExecutor


class Policy(Protocol):
    """Whatever decides on actions.

    A policy that draws random numbers, or has another state to begin with, may have a method ``start(seeds)``: the
    state for the first call, in which the scenes with these seeds (B,) begin. What it does is then a function of the
    scene, see :func:`started`.
    """

    def predict(
        self,
        observation: Any,
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[Any, ...] | None]:
        """Decide for a batch of scenes.

        Args:
            observation: the environment's, every array with the scene axis first.
            state: what the last call returned; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins.
            deterministic: take the best action rather than draw one.

        Returns:
            Actions, scene axis first, and the state to hand to the next call.
        """
        ...


def started(policy: Policy, seeds: Sequence[int] | np.ndarray) -> tuple[Any, ...] | None:
    """The state in which a policy begins the episodes of scenes with these seeds (B,); None for one without any."""
    start = getattr(policy, "start", None)
    return start(np.asarray(seeds)) if callable(start) else None


class PerSensor:
    """A policy of one sensor, shared by all sensors of a scene.

    Args:
        policy: is shown ``pairs`` (B * n, m, d) and ``mask`` (B * n, m) and gives a number for each of the B * n
            sensors, or two where lenses zoom.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, None]:
        """See :class:`Policy`; the actions are (B, n), or (B, 2 n), all turns before all zooms."""
        actions, _ = self.policy.predict(flatten_sensors(observation), deterministic=deterministic)
        return unflatten_sensors(actions, observation["mask"].shape[1], zooms=actions.ndim > 1), None


class ReleasedPolicy:
    """A net of the published HiT-MAC program as a policy: its best actions, as that program takes them.

    Args:
        net: its coordinator, which gives (B, n * m) assignments of 0 and 1, or its executor, which gives (B,) turns.
    """

    def __init__(self, net: ReleasedCoordinator | ReleasedExecutor) -> None:
        self.net = net.eval()

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, None]:
        """See :class:`Policy`; it knows no masks."""
        with torch.no_grad():
            logits, _ = self.net(torch.as_tensor(observation["pairs"]))
        return logits.argmax(-1).numpy(), None
