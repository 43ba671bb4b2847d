"""AMC critic of HiT-MAC: value of an assignment as a sum of approximate marginal contributions, in one pass."""

from torch import Tensor, nn
from torch.nn import functional

from hitmac.perception.checks import check_choice, check_tokens, check_widths
from hitmac.perception.fast_paths import prefix_sums
from hitmac.perception.functional import causal_mask, xavier_linear, zero_masked
from hitmac.perception.tanh_attention import AttentionLayer, is_two_steps

CRITICS = ("amc", "no_prefix", "value_head")
"""The paper's critic; its ablation onlyJ, a linear layer over each z alone; a linear layer over sum(z)."""


class AMCCritic(nn.Module):
    """Critic that sums the contribution of each pair to the pairs before it.

    ``value = sum over j of linear([G(z_1 .. z_(j-1)); z_j])``, equation (6), where G is the global feature of a second
    attention layer over the prefix, 0 for the empty prefix (Xu, Zhong, Wang, NeurIPS 2020, section 3.2: approximate
    marginal contribution, after Shapley).

    One pass computes all prefixes, equation (7): two running sums along each row of scores. The linear layer needs only
    one number per v, so the sums cost L^2 operations. Memory grows with L. An attention layer with hooks, a replaced
    one, or one with further options is called for all prefixes as sequences of their own: L^3 operations, memory L^2.

    Args:
        feature_dim: width of a pair's feature z.
        weight_dim: width of G; None: feature_dim.
        kind: ``"amc"``, ``"no_prefix"`` or ``"value_head"``, see :data:`CRITICS`.

    Attributes:
        attention: the second :class:`hitmac.perception.AttentionLayer` (``"amc"`` only); a layer that replaces it must
            have its interface.
        linear: maps [G; z], or z alone, to a number; what replaces it must be affine.
    """

    def __init__(self, feature_dim: int, weight_dim: int | None = None, *, kind: str = "amc") -> None:
        super().__init__()
        weight_dim = feature_dim if weight_dim is None else weight_dim
        feature_dim, weight_dim = check_widths(feature_dim=feature_dim, weight_dim=weight_dim)
        check_choice("kind", kind, CRITICS)
        self.feature_dim, self.weight_dim, self.kind = feature_dim, weight_dim, kind
        self.attention = AttentionLayer(feature_dim, weight_dim) if kind == "amc" else None
        self.linear = xavier_linear(feature_dim + weight_dim if kind == "amc" else feature_dim, 1)

    def forward(
        self, z: Tensor, mask: Tensor | None = None, *, return_contributions: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the value of a sequence.

        Args:
            z: (..., L, feature_dim), the pairs in order; L is 0 or more.
            mask: (..., L), 0 and 1 in any dtype; 1 marks a valid pair; the others are skipped. None: all are valid.
            return_contributions: also return the contribution of each pair.

        Returns:
            The value (...,). With `return_contributions` also the contributions (..., L), whose sum is the value (for
            ``"value_head"`` up to the bias, which belongs to no pair).
        """
        mask = check_tokens(z, mask, self.feature_dim, "z", "L")
        z = zero_masked(z, mask)
        before = 0 if self.attention is None else self.weight_dim
        at_zero = self.linear(z.new_zeros(before + self.feature_dim))  # (1,), the bias
        contributions = self.linear(functional.pad(z, (before, 0)))  # (..., L, 1)
        if self.attention is not None:  # linear([G; z]) = u . G + (w . z + b)
            of_prefixes = self._by_sums if _is_papers(self.attention) else self._by_calls
            contributions = contributions + of_prefixes(self.attention, z, mask, at_zero)
        if self.kind == "value_head":  # the bias counts once
            contributions = contributions - at_zero
        contributions = contributions.squeeze(-1)
        contributions = contributions if mask is None else contributions * mask
        total = contributions.sum(-1)
        total = total + at_zero.squeeze(0) if self.kind == "value_head" else total
        return (total, contributions) if return_contributions else total

    def _of_global(self, x: Tensor, at_zero: Tensor) -> Tensor:
        """Return u . x (..., L, 1) of x (..., L, weight_dim)."""
        return self.linear(functional.pad(x, (0, self.feature_dim))) - at_zero

    def _by_sums(self, layer: AttentionLayer, z: Tensor, mask: Tensor | None, at_zero: Tensor) -> Tensor:
        """Return u . G (..., L, 1) of the prefix before each pair, for which the number u . v of each v is enough."""
        query, key, value = layer.project(z)
        of_value = self._of_global(value, at_zero).squeeze(-1)
        # tanh bounds every score by +-weight_dim.
        sums = prefix_sums(query, key, of_value, mask, float(self.weight_dim)).to(of_value.dtype)
        # The prefix of a pair ends before it; that of the first is empty.
        return functional.pad(sums, (1, 0))[..., : z.shape[-2]].unsqueeze(-1)

    def _by_calls(self, layer: nn.Module, z: Tensor, mask: Tensor | None, at_zero: Tensor) -> Tensor:
        """Return the same by a call of the layer, with every prefix as a sequence."""
        length = z.shape[-2]
        before = causal_mask(length, z.device).tril(-1)  # (L, L)
        before = before if mask is None else before & mask.unsqueeze(-2)
        prefixes = z.unsqueeze(-3).expand(*z.shape[:-1], length, self.feature_dim)  # (..., L, L, d)
        global_features = layer(prefixes, before.expand(prefixes.shape[:-1]))[1]
        return self._of_global(zero_masked(global_features, before.any(-1)), at_zero)


def _is_papers(layer: nn.Module) -> bool:
    """Return True if the layer is the paper's, whose global feature is a running sum."""
    plain = is_two_steps(layer) and layer.num_heads == 1 and layer.pooling == "sum"
    return plain and not (layer.training and layer.dropout)
