"""Scenes of entities of several kinds: an encoder for all of them, and a head that selects one."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hitmac.perception.checks import check_choice, check_tokens, check_widths
from hitmac.perception.encoder import EncoderConfig, feature_layers
from hitmac.perception.functional import make_score, masked_scores, pool, xavier_linear, zero_masked
from hitmac.perception.tanh_attention import AttentionLayer
from hitmac.perception.transformer import EncoderBlock


class EntityFeatures(NamedTuple):
    """Outputs of :class:`hitmac.perception.EntityEncoder`."""

    per_entity: dict[str, Tensor]
    """For each kind (..., count, f): features of its entities, zero where masked."""
    global_feature: Tensor
    """(..., f): feature of the scene, zero without entities."""


ENTITY_BLOCKS: dict[str, Callable[[EncoderConfig], nn.Module]] = {
    "transformer": lambda config: EncoderBlock(
        config.weight_dim, config.num_heads, score="scaled_dot" if config.scaled else "dot", norm_first=True
    ),
    "tanh": lambda config: AttentionLayer(
        *[config.weight_dim] * 2, num_heads=config.num_heads, scaled=config.scaled, residual=True, layer_norm=True
    ),
}
"""Blocks of attention between entities, by name."""


class EntityEncoder(nn.Module):
    """Encoder of scenes with entities of several kinds, each kind with its own features and any number of entities.

    Entity i, of kind k with features x, has the token ``e_i = max(0, W_k x + b_k) + c_k``, where c_k is a learned
    embedding of the kind. Blocks of attention map the tokens of all kinds as one sequence. The features of the last
    block are pooled into one of the scene.

    The order of the entities of a kind permutes only their own features. Masked entities may be NaN or infinite. A
    kind, or a whole scene, may have no entity.

    Args:
        kinds: width of the features of each kind, by name.
        weight_dim: f, width of the outputs.
        attention: ``"transformer"``: :class:`hitmac.perception.EncoderBlock`, normalised before its branches;
            ``"tanh"``: HiT-MAC's :class:`hitmac.perception.AttentionLayer`, with a residual and a layer norm.
        num_blocks: blocks of attention, 1 or more.
        num_heads: heads of each block, a divisor of weight_dim.
        scaled: divide the scores by the square root of a head's width.
        pooling: ``"mean"``, ``"sum"`` or ``"max"``.
        embed_layers: linear layers with a ReLU for each kind, 1 or more.
        num_frequencies: sines and cosines appended to each input feature, 0 or more.

    Attributes:
        kinds: the widths, by name.
        embed, of_kind: the layers W, b and the embedding c (f,) of each kind, by name followed by ``_``, with ``%2E``
            for a dot. The embeddings are initialised Xavier-uniform.
    """

    def __init__(
        self,
        kinds: Mapping[str, int],
        weight_dim: int = 64,
        *,
        attention: str = "transformer",
        num_blocks: int = 1,
        num_heads: int = 1,
        scaled: bool = True,
        pooling: str = "mean",
        embed_layers: int = 1,
        num_frequencies: int = 0,
    ) -> None:
        super().__init__()
        if not kinds:
            raise ValueError("kinds is empty; expected the width of one kind or more, by name")
        self.kinds = dict(zip(kinds, check_widths(**kinds), strict=True))
        check_choice("attention", attention, ENTITY_BLOCKS)
        config = EncoderConfig(
            weight_dim=weight_dim, num_blocks=num_blocks, num_heads=num_heads, scaled=scaled, pooling=pooling,
            embed_layers=embed_layers, num_frequencies=num_frequencies,
        )  # fmt: skip
        self.weight_dim, self.pooling, self.attention = config.weight_dim, config.pooling, attention
        names = [_attribute(kind) for kind in self.kinds]
        widths = zip(names, self.kinds.values(), strict=True)
        self.embed = nn.ModuleDict({name: feature_layers(width, config) for name, width in widths})
        of_kind = nn.init.xavier_uniform_(torch.empty(len(names), config.weight_dim))
        self.of_kind = nn.ParameterDict(zip(names, map(torch.clone, of_kind), strict=True))  # each in its own memory
        self.blocks = nn.ModuleList(ENTITY_BLOCKS[attention](config) for _ in range(config.num_blocks))

    def forward(self, entities: Mapping[str, Tensor], masks: Mapping[str, Tensor] | None = None) -> EntityFeatures:
        """Encode a batch of scenes.

        Args:
            entities: features (..., count, width) of every kind, by name, with the same leading axes, any or none. The
                counts are 0 or more, and may differ between kinds and calls.
            masks: (..., count) for some kinds, 0 and 1 in any dtype; 1 marks a valid entity. Without a mask, all
                entities of a kind are valid.

        Raises:
            ValueError: missing or unknown kinds.
        """
        entities, masks = dict(entities.items()), {} if masks is None else dict(masks.items())
        if self.kinds.keys() != entities.keys() or masks.keys() - entities.keys():
            given = f"entities are of {', '.join(entities)}, masks of {', '.join(masks) or 'none'}"
            raise ValueError(f"{given}; expected the kinds {', '.join(self.kinds)}, with count 0 for none")
        tokens: list[Tensor] = []
        valid: list[Tensor] = []
        for kind, width in self.kinds.items():
            x, name = entities[kind], _attribute(kind)
            mask = check_tokens(x, masks.get(kind), width, kind, "count", f"mask of {kind}")
            if tokens and x.shape[:-2] != tokens[0].shape[:-2]:
                lead = tuple(tokens[0].shape[:-2])
                raise ValueError(f"{kind} has shape {tuple(x.shape)}; those of the other kinds begin with {lead}")
            tokens.append(self.embed[name](zero_masked(x, mask)) + self.of_kind[name])
            valid.append(torch.ones(x.shape[:-1], dtype=torch.bool, device=x.device) if mask is None else mask)
        x, mask = torch.cat(tokens, -2), torch.cat(valid, -1) if masks else None  # (..., L, f), (..., L)
        for block in self.blocks:
            x = (block(x, mask) if self.attention == "tanh" else block(x, key_mask=mask))[0]
        x = zero_masked(x, mask)
        per_entity = x.split([each.shape[-2] for each in tokens], -2)
        return EntityFeatures(dict(zip(self.kinds, per_entity, strict=True)), pool(x, mask, self.pooling))


def _attribute(kind: str) -> str:
    """Return the name of a kind's layers: one that a module has not, such as ``items``, and without a dot."""
    return kind.replace("%", "%25").replace(".", "%2E") + "_"


class SelectionHead(nn.Module):
    """Head that selects one of a varying number of candidates, a pointer.

    The logit of candidate i is ``(W_q q + b_q) (W_c c_i + b_c) / sqrt(f)``, with the query q and the candidate's
    features c_i (Vinyals, Fortunato, Jaitly, "Pointer networks", NeurIPS 2015, with the score of Vaswani and others,
    NeurIPS 2017). The order of the candidates permutes the logits.

    Args:
        weight_dim: f, width of the query and of the candidates.
        none: append a last logit, from learned features, which means "choose none". It is never masked.
    """

    def __init__(self, weight_dim: int, *, none: bool = False) -> None:
        super().__init__()
        (self.weight_dim,) = check_widths(weight_dim=weight_dim)
        self.query, self.candidate = (xavier_linear(self.weight_dim, self.weight_dim) for _ in range(2))
        self.score = make_score("scaled_dot", self.weight_dim)
        self.none = nn.Parameter(torch.zeros(1, self.weight_dim)) if none else None

    def forward(self, query: Tensor, candidates: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits of the candidates, for ``torch.distributions.Categorical(logits=...)``.

        Args:
            query: (..., weight_dim). Its leading axes broadcast with those of the candidates: queries (..., n, f) with
                candidates (..., 1, count, f) give logits (..., n, count).
            candidates: (..., count, weight_dim).
            mask: (..., count), 0 and 1 in any dtype; 1 marks a candidate that may be selected. None: all.

        Returns:
            The logits (..., count), or (..., count + 1) with `none`. Masked ones are the lowest finite number of their
            dtype, so their probability is 0 where any candidate is left. Where none is left, all are this number: the
            choice is uniform, with a logarithm of its likelihood, an entropy and gradients of 0, so that it does not
            affect the learning; use ``none=True`` or discard it. Masked candidates may be NaN or infinite.
        """
        mask = check_tokens(candidates, mask, self.weight_dim, "candidates", "count")
        if query.ndim < 1 or query.shape[-1] != self.weight_dim:
            raise ValueError(f"query has shape {tuple(query.shape)}; its last axis must be {self.weight_dim}")
        candidates = zero_masked(candidates, mask)
        if self.none is not None:
            candidates = torch.cat((candidates, self.none.expand(*candidates.shape[:-2], -1, -1)), -2)
            mask = None if mask is None else nn.functional.pad(mask, (0, 1), value=True)
        logits = self.score(self.query(query).unsqueeze(-2), self.candidate(candidates)).squeeze(-2)
        return masked_scores(logits, mask)
