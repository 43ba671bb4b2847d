"""Attention of a policy's networks to the targets in its decisions."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hitmac.agents.hierarchy import HierarchicalAgent, HierarchyState
from hitmac.agents.policy import Adapted, Policy, networks_of
from hitmac.perception import AgentTargetEncoder, Weights


class AttentionWatch:
    """Context that records the attention of a policy's networks in its decisions.

    It supports every policy whose ``predict`` calls an :class:`~hitmac.perception.AgentTargetEncoder` with attention:
    learned ones, the levels of a hierarchy, custom ones. Decisions stay the same, bit for bit::

        with AttentionWatch(policy) as watch:
            actions, state = policy.predict(observation, state, starts, deterministic=True)
            shares = watch.shares(observation, state)

    Args:
        policy: the policy.

    Attributes:
        levels: names of the levels with attention: ``"policy"``; of a hierarchy ``"coordinator"``, ``"executor"``; ()
            without any.
    """

    def __init__(self, policy: Policy) -> None:
        whole = policy
        while isinstance(whole, Adapted):
            whole = whole.policy
        parts: dict[str, Any] = {"policy": policy}
        if isinstance(whole, HierarchicalAgent):
            parts = {"coordinator": whole.coordinator.policy, "executor": whole.executor.policy}
            self._padding = whole.executor.padding
        self._encoders = {
            level: module
            for level, part in parts.items()
            for network in reversed(networks_of(part))
            for module in reversed(list(network.modules()))  # the first of a level counts
            if isinstance(module, AgentTargetEncoder) and module.config.encoder == "attention"
        }
        self._calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.levels = tuple(self._encoders)

    def __enter__(self) -> "AttentionWatch":
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

    def shares(self, observation: dict[str, np.ndarray], state: tuple[Any, ...] | None = None) -> dict[str, np.ndarray]:
        """Return the attention in the last decision, by level, in the shape of the observation's mask.

        Entry (i, j) is the share of sensor i's attention that target j receives (the j-th listed target, in an
        observation of the nearest): the mean over heads and over the sensor's pairs, in the last block. A row sums to
        1, or is 0 for a sensor without targets. NaN marks scenes in which a level has not decided, and all scenes where
        a way of attending of one's own returns no weights. `observation` is the one of the last decision; for a
        hierarchy, also pass the state that the decision returned.
        """
        scenes, n, m = observation["mask"].shape
        calls, self._calls = self._calls, {}
        found = {level: np.full((scenes, n, m), np.nan, np.float32) for level in self.levels}
        for level, (arguments, options) in calls.items():
            with torch.no_grad():
                _, weights = self._encoders[level](*arguments, **options | {"need_weights": True})
            if weights.targets is None and weights.pairs is None:  # a way of attending of one's own
                continue
            pairs = arguments[0] if arguments else options["pairs"]
            shares = to_targets(weights, pairs.shape[-3]).cpu().numpy()
            rows = HierarchyState(*state).age == 1 if state and level == "coordinator" else np.ones(scenes, np.bool_)
            decided = int(rows.sum())
            if shares.shape[-1] == m and shares.size in (decided * n * m, decided * n * n * m):  # not something else
                shares = shares.reshape(decided, n, -1, m)  # of each sensor: its row, or the scene as known to it
                found[level][rows] = shares[:, np.arange(n), np.arange(n) % shares.shape[2]]
            if state and level == "executor":
                assigned = HierarchyState(*state).assigned & (observation["mask"] != 0)
                if self._padding != "unfiltered":  # the assigned targets are packed at the front
                    rows_of = np.argsort(~assigned, -1, kind="stable")  # the target of each row
                    packed, found[level] = found[level], np.zeros_like(found[level])
                    np.put_along_axis(found[level], rows_of, packed, -1)
                own = found[level] * assigned
                found[level] = own / np.maximum(own.sum(-1, keepdims=True), np.finfo(own.dtype).tiny)
        self._calls.clear()  # the calls above were recorded too
        return found


def attention_of(
    policy: Policy,
    observation: dict[str, np.ndarray],
    state: tuple[Any, ...] | None = None,
    episode_start: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Return the attention of a policy in one decision, by level; {} for a policy without attention.

    The arguments are those of :meth:`hitmac.agents.Policy.predict`, the arrays those of :meth:`AttentionWatch.shares`.
    """
    with AttentionWatch(policy) as watch:
        if not watch.levels:
            return {}
        _, new = policy.predict(observation, state, episode_start, deterministic=True)
        return watch.shares(observation, new)


def to_targets(weights: Weights, num_agents: int) -> Tensor:
    """Return the shares (..., n, m) of every agent's attention that its targets receive.

    They are the mean over heads and over the agent's valid pairs as queries. Where attention is over the pairs of all
    agents as one sequence, a target's share is that of all pairs with it. Raises ValueError for weights of neither
    targets nor pairs.
    """
    if weights.targets is not None:  # (..., n, h, m, m)
        received = weights.targets.sum((-3, -2))
    elif weights.pairs is not None:  # (..., h, n * m, n * m)
        by_pair = weights.pairs.sum(-3).unflatten(-1, (num_agents, -1)).sum(-2)  # (..., n * m, m)
        received = by_pair.unflatten(-2, (num_agents, -1)).sum(-2)
    else:
        raise ValueError("weights has neither targets nor pairs; they are not those of an encoder that attends")
    return received / received.sum(-1, keepdim=True).clamp_min(torch.finfo(received.dtype).tiny)
