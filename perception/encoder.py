"""Agent-target features in; per-target, per-agent and global features out."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from perception.attention import AttentionLayer, check_pooling, check_tokens, check_widths, count


class Features(NamedTuple):
    """What the encoder makes of a scene with n agents and m targets."""

    per_target: Tensor
    """(..., n, m, f): one feature for every pair of an agent and a target."""
    per_agent: Tensor
    """(..., n, f): one feature for every agent."""
    global_feature: Tensor
    """(..., f): one feature for the whole scene."""


class AgentTargetEncoder(nn.Module):
    """Encodes what n agents know of m targets, with the tanh-projected attention of HiT-MAC.

    Every pair's features go through a linear map and a ReLU. Then attention, in one of three ways:

    - ``"agents"``: over each agent's targets, and then over the agents, so that each knows of the others;
    - ``"targets"``: over each agent's own targets only;
    - ``"pairs"``: over all n * m pairs as one sequence, as in the paper's coordinator.

    It takes any n and m at run time, and permuting agents or targets permutes the outputs alike.

    Args:
        feature_dim: d, width of a pair's features.
        weight_dim: f, width of the outputs.
        attend_over: ``"agents"``, ``"targets"`` or ``"pairs"``.
        pooling: ``"sum"``, the paper's, or ``"mean"``, which does not grow with n and m.

    Raises:
        ValueError: a width under 1, an unknown `attend_over` or `pooling`.
    """

    def __init__(self, feature_dim: int, weight_dim: int, *, attend_over: str = "agents", pooling: str = "sum") -> None:
        super().__init__()
        check_widths(feature_dim=feature_dim, weight_dim=weight_dim)
        check_pooling(pooling)
        if attend_over not in ("agents", "targets", "pairs"):
            raise ValueError(f"attend_over is {attend_over!r}; it must be agents, targets or pairs")
        self.feature_dim, self.weight_dim = feature_dim, weight_dim
        self.attend_over, self.pooling = attend_over, pooling
        linear = nn.Linear(feature_dim, weight_dim)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        self.embed = nn.Sequential(linear, nn.ReLU())
        self.attention = AttentionLayer(weight_dim, weight_dim, pooling=pooling)
        self.between_agents = (
            AttentionLayer(weight_dim, weight_dim, pooling=pooling) if attend_over == "agents" else None
        )

    def forward(self, pairs: Tensor, mask: Tensor | None = None) -> Features:
        """Encode scenes.

        Args:
            pairs: (..., n, m, feature_dim), any number of leading axes, also none.
            mask: bool (..., n, m), True where a pair is there. None: all are. An agent without any pair is
                taken to be absent.

        Returns:
            :class:`Features`, zero for what is not there.

        Raises:
            ValueError: the last axis is not feature_dim, or the mask's shape is not (..., n, m).
            TypeError: the mask is not bool.
        """
        check_tokens(pairs, mask, self.feature_dim, axes=2)
        if mask is not None:
            pairs = pairs.masked_fill(~mask.unsqueeze(-1), 0.0)
        embedded = self.embed(pairs)  # (..., n, m, f)
        if self.attend_over == "pairs":
            z, global_feature = self.attention(embedded.flatten(-3, -2), None if mask is None else mask.flatten(-2))
            per_target = z.unflatten(-2, pairs.shape[-3:-1])
            return Features(per_target, self._pool(per_target, mask), global_feature)
        per_target, per_agent = self.attention(embedded, mask)  # (..., n, m, f), (..., n, f)
        present = None if mask is None else mask.any(-1)  # (..., n)
        if self.between_agents is None:
            return Features(per_target, per_agent, self._pool(per_agent, present))
        of_others, global_feature = self.between_agents(per_agent, present)
        return Features(per_target, per_agent + of_others, global_feature)

    def _pool(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The sum or mean of (..., L, f) over L; what is masked out is zero already."""
        total = x.sum(-2)
        if self.pooling == "sum":
            return total
        return total / (x.shape[-2] or 1 if mask is None else count(mask))

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"attend_over={self.attend_over!r}, pooling={self.pooling!r}"
