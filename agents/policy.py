"""Protocol of all agents, learned or scripted: Stable-Baselines3's ``predict``, batched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from hitmac.envs.assigned_observation import flatten_sensors, unflatten_sensors
from hitmac.perception.released import ReleasedCoordinator, ReleasedExecutor

SEEN = "seen_now"


class Policy(Protocol):
    """Protocol of a policy, an object that decides on actions.

    A policy that draws random numbers, or has an initial state, may have a method ``start(seeds)``. It returns the
    state for the first call, for scenes with these seeds (B,). The decisions are then a function of the scene, see
    :func:`started`.
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
            observation: observation of the environment, every array with the scene axis first.
            state: state returned by the last call; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins.
            deterministic: take the best action instead of sampling.

        Returns:
            The actions, scene axis first, and the state for the next call.
        """
        ...


def started(policy: Policy, seeds: Sequence[int] | np.ndarray) -> tuple[Any, ...] | None:
    """Return a policy's initial state for scenes with these seeds (B,); None for a policy without ``start``."""
    start = getattr(policy, "start", None)
    return start(np.asarray(seeds)) if callable(start) else None


class PerSensor:
    """Policy of scenes that shares a policy of one sensor among all sensors.

    Args:
        policy: policy that observes ``pairs`` (B * n, m, d) and ``mask`` (B * n, m), and returns one number for each of
            the B * n sensors, or one for each of its decisions.
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
        """Act as :class:`Policy` specifies; the actions are (B, k n), with k decisions of a sensor."""
        actions, _ = self.policy.predict(flatten_sensors(observation), deterministic=deterministic)
        decisions = 1 if actions.ndim == 1 else actions.shape[-1]
        return unflatten_sensors(actions, observation["mask"].shape[1], decisions), None


def completed(actions: np.ndarray, own: Sequence[str], decisions: Sequence[str]) -> np.ndarray:
    """Return actions with the decisions of a scenario: those not taken are 0, to keep the field of view or the place.

    Args:
        actions: (..., k n), the k decisions of `own`.
        own: names of the decisions taken; those that the scenario does not have are dropped.
        decisions: names of the d decisions of a sensor, :attr:`hitmac.envs.Scenario.decisions`.

    Returns:
        (..., d n).
    """
    if tuple(own) == tuple(decisions):
        return actions
    taken = dict(zip(own, np.split(actions, len(own), -1), strict=True))
    nothing = np.zeros_like(taken["turn"])
    return np.concatenate([taken.get(name, nothing) for name in decisions], -1)


class Completed:
    """Policy for a scenario with other decisions: those not taken are 0, to keep the field of view or the place.

    Args:
        policy: policy that returns the decisions `own` (B, k n), or as an executor (R,) or (R, k).
        own: names of the decisions that it takes.
        decisions: names of the decisions of the scenario; see :func:`completed`.
    """

    def __init__(self, policy: Policy, own: Sequence[str], decisions: Sequence[str]) -> None:
        self.policy, self.own, self.decisions = policy, tuple(own), tuple(decisions)

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[Any, ...] | None]:
        """Act as :class:`Policy` specifies; the actions are (B, d n), or (R, d)."""
        actions, state = self.policy.predict(observation, state, episode_start, deterministic)
        actions = actions.reshape(len(actions), -1)
        return completed(actions, self.own, self.decisions), state


class Memoryless:
    """Policy that knows no more than what is seen now: to it, a target that no sensor sees is not there.

    It is a baseline for scenarios with partial knowledge. With full knowledge it changes nothing.

    Args:
        policy: the policy.
        features: the observation features that it reads.

    Attributes:
        features: those that the memoryless policy reads: the same, and at the end ``seen_now``.
    """

    def __init__(self, policy: Policy, features: Sequence[str]) -> None:
        self.policy, self.features = policy, (*(name for name in features if name != SEEN), SEEN)
        self._columns = [self.features.index(name) for name in features]

    def start(self, seeds: Sequence[int] | np.ndarray) -> tuple[Any, ...] | None:
        """Return the policy's initial state for scenes with these seeds (B,)."""
        return started(self.policy, seeds)

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[Any, ...] | None]:
        """Act as :class:`Policy` specifies."""
        pairs = observation["pairs"]
        seen = {"pairs": pairs[..., self._columns], "mask": observation["mask"] * (pairs[..., -1] != 0)}
        return self.policy.predict({**observation, **seen}, state, episode_start, deterministic)


class ReleasedPolicy:
    """Policy of a network of the published HiT-MAC program, which takes the best actions, as that program does.

    Args:
        net: its coordinator, which decides on (B, n * m) assignments of 0 and 1, or its executor, on (B,) turns.
    """

    def __init__(self, net: ReleasedCoordinator | ReleasedExecutor) -> None:
        self.net = net.eval().to(torch.get_default_device())

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, None]:
        """Act as :class:`Policy` specifies; the mask is ignored."""
        with torch.no_grad():
            logits, _ = self.net(torch.as_tensor(observation["pairs"], device=next(self.net.parameters()).device))
        return logits.argmax(-1).cpu().numpy(), None
