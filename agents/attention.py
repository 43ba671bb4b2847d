"""Attention of a policy's networks to the targets, in the decisions that it takes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hitmac.agents.custom import networks_of
from hitmac.agents.hierarchy import HierarchicalAgent, HierarchyState
from hitmac.agents.policy import Memoryless, Policy
from hitmac.perception import AgentTargetEncoder, Weights


class AttentionWatch:
    """Context in which the decisions of a policy leave what its networks attended to.

    Every policy can be watched whose ``predict`` calls an :class:`~hitmac.perception.AgentTargetEncoder` that attends:
    the learned ones, the levels of a hierarchy, your own. Decisions stay the same, bit for bit::

        with AttentionWatch(policy) as watch:
            actions, state = policy.predict(observation, state, starts, deterministic=True)
            shares = watch.shares(observation, state)

    Args:
        policy: the policy.

    Attributes:
        levels: the names of what attends: ``"policy"``; of a hierarchy ``"coordinator"``, ``"executor"``; () if nothing
            does.
    """

    def __init__(self, policy: Policy) -> None:
        whole = policy.policy if isinstance(policy, Memoryless) else policy
        parts: dict[str, Any] = {"policy": policy}
        if isinstance(whole, HierarchicalAgent):
            parts = {"coordinator": whole.coordinator.policy, "executor": whole.executor.policy}
            self._padding = whole.executor.padding
        found = {level: _encoder(part) for level, part in parts.items()}
        self._encoders = {level: encoder for level, encoder in found.items() if encoder is not None}
        self._calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.levels = tuple(self._encoders)

    def __enter__(self) -> AttentionWatch:
        self._hooks = [
            encoder.register_forward_pre_hook(partial(self._keep, level), with_kwargs=True)
            for level, encoder in self._encoders.items()
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _keep(self, level: str, _: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._calls[level] = arguments, options

    def shares(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        *,
        num_targets: int | None = None,
        listed: bool = False,
    ) -> dict[str, np.ndarray]:
        """Return the attention in the last decision, by level.

        An entry (i, j) is the share of sensor i's attention that goes to target j: the mean over heads, and over the
        pairs of the sensor that attend, in the last block. A row sums to 1, or is 0 for a sensor without targets.

        Args:
            observation: the observation (B, n, m) that the policy has acted on.
            state: the state that it has returned; needed of a hierarchy.
            num_targets: m, for an observation that lists the nearest targets; None: 1 + the highest that it lists.
            listed: of such an observation, return the shares of its lists, without those of other targets, which are 0.

        Returns:
            Arrays (B, n, m) by level, or (B, n, k) of lists; NaN in the scenes in which a level has not decided.
        """
        scenes, n, m = observation["mask"].shape
        calls, self._calls = self._calls, {}
        found = {level: np.full((scenes, n, m), np.nan, np.float32) for level in self.levels}
        for level, (arguments, options) in calls.items():
            with torch.no_grad():
                _, weights = self._encoders[level](*arguments, **options | {"need_weights": True})
            pairs = arguments[0] if arguments else options["pairs"]
            shares = to_targets(weights, pairs.shape[-3]).cpu().numpy()
            rows = np.ones(scenes, np.bool_)
            if level == "coordinator":
                rows = HierarchyState(*(state or ())).age == 1  # it has just decided
            found[level][rows] = _of_sensors(shares, int(rows.sum()), n, m)
            if level == "executor":
                assigned = HierarchyState(*(state or ())).assigned & (observation["mask"] != 0)
                found[level] = _of_goals(found[level], assigned, packed=self._padding != "unfiltered")
        self._calls.clear()  # the same encoders have been called again
        if "targets" not in observation or listed:
            return found
        targets = observation["targets"]
        m = int(targets.max(initial=-1)) + 1 if num_targets is None else num_targets
        return {level: _of_lists(shares, targets, m) for level, shares in found.items()}


def attention_of(
    policy: Policy,
    observation: dict[str, np.ndarray],
    state: tuple[Any, ...] | None = None,
    episode_start: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Return the attention of a policy in one decision, by level; {} for a policy that attends to nothing.

    The arguments are those of :meth:`hitmac.agents.Policy.predict`, the arrays (B, n, m) those of
    :meth:`AttentionWatch.shares`.
    """
    with AttentionWatch(policy) as watch:
        if not watch.levels:
            return {}
        _, new = policy.predict(observation, state, episode_start, deterministic=True)
        return watch.shares(observation, new)


def to_targets(weights: Weights, num_agents: int) -> Tensor:
    """Return the shares (..., n, m) of every agent's attention that its targets receive.

    They are the mean over heads and over the agent's valid pairs as queries. Where pairs of all agents are attended to
    as one sequence, a target receives what all pairs with it receive.

    Raises:
        ValueError: weights of neither targets nor pairs.
    """
    if weights.targets is not None:  # (..., n, h, m, m)
        received = weights.targets.sum((-3, -2))
    elif weights.pairs is not None:  # (..., h, n * m, n * m)
        by_pair = weights.pairs.sum(-3).unflatten(-1, (num_agents, -1)).sum(-2)  # (..., n * m, m)
        received = by_pair.unflatten(-2, (num_agents, -1)).sum(-2)
    else:
        raise ValueError("weights has neither targets nor pairs; they are not those of an encoder that attends")
    return received / received.sum(-1, keepdim=True).clamp_min(torch.finfo(received.dtype).tiny)


def _encoder(policy: Any) -> AgentTargetEncoder | None:
    """Return the first encoder of a policy that attends; None without any."""
    modules: list[nn.Module] = [module for network in networks_of(policy) for module in network.modules()]
    return next(
        (one for one in modules if isinstance(one, AgentTargetEncoder) and one.config.encoder == "attention"), None
    )


def _of_sensors(shares: np.ndarray, scenes: int, n: int, m: int) -> np.ndarray | float:
    """Return the shares (B, n, m) of the sensors, out of those of the rows that the network has seen (R, k, m).

    NaN stands for those of a policy of your own that encodes something else.
    """
    if shares.shape == (scenes, n, m):
        return shares
    if shares.shape not in ((scenes * n, 1, m), (scenes * n, n, m)):
        return np.nan
    by_scene = shares.reshape(scenes, n, *shares.shape[1:])
    # A row is a sensor by itself, or the scene as one sensor knows it.
    own = np.zeros(n, np.int64) if shares.shape[1] == 1 else np.arange(n)
    return by_scene[:, np.arange(n), own]


def _of_lists(shares: np.ndarray, targets: np.ndarray, m: int) -> np.ndarray:
    """Return the shares (B, n, m) of all targets, out of those (B, n, k) of the listed ones."""
    every = np.zeros((*shares.shape[:2], m + 1), shares.dtype)  # the last stands for none
    np.put_along_axis(every, np.where(targets < 0, m, targets), shares, -1)
    return every[..., :m]


def _of_goals(shares: np.ndarray, assigned: np.ndarray, packed: bool) -> np.ndarray:
    """Return an executor's shares (B, n, m) of the assigned targets, whose rows may be packed to the front."""
    if packed:
        order = np.argsort(~assigned, -1, kind="stable")  # the target of each row
        rows, shares = shares, np.zeros_like(shares)
        np.put_along_axis(shares, order, rows, -1)
    shares = shares * assigned
    return shares / np.maximum(shares.sum(-1, keepdims=True), np.finfo(shares.dtype).tiny)
