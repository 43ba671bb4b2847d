"""Learned policies as plain modules, from an observation to decisions, for any number of scenes, sensors and targets.

Every module takes ``pairs`` (B, n, m, d) float32 and ``mask`` (B, n, m) int8, as :func:`hitmac.envs.observe` gives them
with a scene axis. Decisions are (B, k, n) whole numbers 0, 1, 2: first the turns of all sensors. They are the best
ones, as of ``predict(..., deterministic=True)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hitmac.agents.learned.attention_policy import AttentionPolicy
from hitmac.agents.learned.recurrent_policy import RecurrentPolicy
from hitmac.perception.released import ReleasedCoordinator, ReleasedExecutor


class SceneTurns(nn.Module):
    """Decisions of a policy of scenes.

    Args:
        policy: the policy, with k decisions of each sensor.
        kept: numbers of the decisions to return.
    """

    outputs: tuple[str, ...] = ("actions", "logits")

    def __init__(self, policy: AttentionPolicy, kept: Sequence[int]) -> None:
        super().__init__()
        self.extractor, self.head = policy.features_extractor, policy.action_net
        self.decisions, self.kept = policy.decisions, list(kept)

    def forward(self, pairs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the decisions and their logits (B, k, n, 3)."""
        features, some = self.extractor.encode({"pairs": pairs, "mask": mask})
        logits = self.head(features, some).unflatten(1, (self.decisions, -1, 3))[:, self.kept]
        return logits.argmax(-1), logits


class ListedTurns(SceneTurns):
    """Decisions of a policy that is shown the nearest targets, see :class:`hitmac.envs.observation.Observer`.

    ``pairs`` and ``mask`` are then (B, n, k, d) and (B, n, k), with any k.
    """

    def forward(  # type: ignore[override]
        self, pairs: Tensor, mask: Tensor, targets: Tensor, neighbours: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the decisions and their logits (B, k, n, 3); `targets` is (B, n, k), `neighbours` (B, n, l)."""
        lists = {"targets": targets} | ({} if neighbours is None else {"neighbours": neighbours})
        features, some = self.extractor.encode({"pairs": pairs, "mask": mask, **lists})
        logits = self.head(features, some).unflatten(1, (self.decisions, -1, 3))[:, self.kept]
        return logits.argmax(-1), logits


class RecurrentTurns(SceneTurns):
    """Decisions of a policy with a recurrent state, which is 0 when an episode begins."""

    outputs: tuple[str, ...] = ("actions", "logits", "new_state")

    def forward(self, pairs: Tensor, mask: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        """Return the decisions, their logits (B, k, n, 3) and the state (B, n, m, f) for the next call."""
        features, some, new = self.extractor.unroll(pairs.unsqueeze(0), state)  # type: ignore[operator]
        logits = self.head(features, some).unflatten(1, (self.decisions, -1, 3))[:, self.kept]
        return logits.argmax(-1), logits, new


class SensorTurns(nn.Module):
    """Decisions of a policy of single sensors, which all sensors share.

    Args:
        policy: the policy, with k decisions.
        kept: numbers of the decisions to return.
    """

    outputs: tuple[str, ...] = ("actions", "logits")

    def __init__(self, policy: AttentionPolicy | ReleasedExecutor, kept: Sequence[int]) -> None:
        super().__init__()
        self.released = policy if isinstance(policy, ReleasedExecutor) else None
        self.turns = SceneTurns(policy, kept) if isinstance(policy, AttentionPolicy) else None

    def forward(self, pairs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the decisions and their logits (B, k, n, 3)."""
        rows, there = pairs.flatten(0, 1), mask.flatten(0, 1)  # (B n, m, d), (B n, m)
        if self.turns is not None:
            of_rows = self.turns(rows, there)[1].squeeze(2)  # (B n, k, 3)
        else:
            assert self.released is not None
            of_rows = self.released(rows)[0].unsqueeze(1)
        logits = of_rows.unflatten(0, mask.shape[:2]).transpose(1, 2)
        return logits.argmax(-1), logits


class AssignedTurns(SensorTurns):
    """Decisions of an executor, given the targets assigned to each sensor; a sensor without any stays.

    Args:
        policy: the executor.
        kept: numbers of the decisions to return.
        padding: layout of the assigned targets, see :func:`hitmac.envs.assigned_observation.mask_unassigned`.
        row_id: index of the feature to replace by the index of the packed row / m; -1: none.
    """

    def __init__(
        self, policy: AttentionPolicy | ReleasedExecutor, kept: Sequence[int], padding: str, row_id: int
    ) -> None:
        super().__init__(policy, kept)
        self.padding, self.row_id = padding, row_id

    def forward(self, pairs: Tensor, mask: Tensor, assigned: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return the decisions and their logits (B, k, n, 3); `assigned` is (B, n, m), 0 and 1."""
        own = assigned.bool() & mask.bool()  # ONNX Runtime before 1.21 compares no int8
        if self.padding == "unfiltered":
            shown, there = torch.cat((pairs, own.unsqueeze(-1).to(pairs.dtype)), -1), mask
        else:
            shown, there = self._packed(pairs, own)
        actions, logits = super().forward(shown, there)
        return torch.where(own.any(-1).unsqueeze(1), actions, 0), logits

    def _packed(self, pairs: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return the assigned targets of every sensor at the front of its rows, then zeros, and which rows count."""
        row = torch.arange(own.shape[-1], device=own.device)
        goes = own.unsqueeze(-2) & (own.to(torch.int64).cumsum(-1).unsqueeze(-2) == row.unsqueeze(-1) + 1)
        packed = goes.to(pairs.dtype) @ pairs  # a 1 in every row that is taken: exact
        front = goes.any(-1)  # (B, n, m)
        if self.row_id >= 0:
            number = torch.where(front, row / own.shape[-1], 0.0).to(pairs.dtype)
            here = torch.arange(pairs.shape[-1], device=own.device) == self.row_id
            packed = torch.where(here, number.unsqueeze(-1), packed)
        return packed, front if self.padding == "masked" else torch.ones_like(front)


class Assignment(nn.Module):
    """Assignment of targets to sensors by a coordinator.

    Args:
        policy: the coordinator.
    """

    outputs: tuple[str, ...] = ("assigned", "logits")

    def __init__(self, policy: AttentionPolicy | ReleasedCoordinator) -> None:
        super().__init__()
        self.released = policy if isinstance(policy, ReleasedCoordinator) else None
        if isinstance(policy, AttentionPolicy):
            self.extractor, self.head = policy.features_extractor, policy.action_net

    def forward(self, pairs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return which targets are assigned to each sensor, (B, n, m) int8, and the logits of that."""
        if self.released is not None:
            two = self.released(pairs)[0]  # (B, n m, 2): not assigned, assigned
            logits = two[..., 1] - two[..., 0]
        else:
            logits = self.head(*self.extractor.encode({"pairs": pairs, "mask": mask}))
        logits = logits.unflatten(-1, mask.shape[1:])
        return (logits > 0.0).to(torch.int8), logits


def scene_turns(policy: AttentionPolicy, kept: Sequence[int]) -> SceneTurns:
    """Return the module of a policy of scenes."""
    if policy.listed:
        return ListedTurns(policy, kept)
    return (RecurrentTurns if isinstance(policy, RecurrentPolicy) else SceneTurns)(policy, kept)
