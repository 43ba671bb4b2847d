"""Policy of one actor that selects one of the entities that it observes, for Stable-Baselines3."""

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from hitmac.agents.learned.policy import AttentionPolicy, perceptron
from hitmac.perception import EncoderConfig, EntityEncoder, EntityFeatures, SelectionHead
from hitmac.perception.checks import check_choice
from hitmac.perception.encoder import take_encoder_config

MASK = "_mask"
"""End of the name of the mask of a kind of entities in an observation."""

ENTITY_OPTIONS = ("weight_dim", "pooling", "num_heads", "scaled", "embed_layers", "num_blocks", "num_frequencies")
"""Options of :class:`hitmac.perception.EncoderConfig` that apply to entities."""


class EntityExtractor(BaseFeaturesExtractor):
    """Entity encoder as a Stable-Baselines3 features extractor; the features are those of the scene, (B, f).

    Args:
        observation_space: Dict with the features (count, d) of every kind, and its mask (count,), ``KIND_mask``, unless
            all are valid.
        encoder_config: the options :data:`ENTITY_OPTIONS`; None: the defaults.
        candidates: the kind of which one entity is selected.

    Raises:
        ValueError: the candidates are no kind of the space.
    """

    def __init__(
        self, observation_space: spaces.Dict, encoder_config: EncoderConfig | None = None, candidates: str = "moves"
    ) -> None:
        config = encoder_config or EncoderConfig()
        super().__init__(observation_space, config.weight_dim)
        kinds = {name: space.shape[-1] for name, space in observation_space.items() if not name.endswith(MASK)}  # type: ignore[index]
        check_choice("candidates", candidates, kinds)
        self.weight_dim, self.candidates = config.weight_dim, candidates
        options = {name: getattr(config, name) for name in ENTITY_OPTIONS}
        self.encoder = EntityEncoder(kinds, attention="tanh", **options)

    def encode(self, observations: dict[str, Tensor]) -> tuple[EntityFeatures, Tensor | None]:
        """Return the features of the entities, and the mask (B, k) bool of the candidates or None."""
        entities = {kind: observations[kind] for kind in self.encoder.kinds}
        masks = {kind: observations[kind + MASK].bool() for kind in entities if kind + MASK in observations}
        return self.encoder(entities, masks), masks.get(self.candidates)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Return the features of the scenes."""
        return self.encode(observations)[0].global_feature


class PointerHead(SelectionHead):
    """Logits of the candidates, selected by the actor's own feature and that of the scene; at first almost equal."""

    def __init__(self, weight_dim: int, candidates: str) -> None:
        super().__init__(weight_dim)
        self.candidates = candidates
        nn.init.xavier_uniform_(self.query.weight, 0.01)

    def forward(self, features: EntityFeatures, mask: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return (B, k)."""
        return super().forward(of_actor(features), features.per_entity[self.candidates], mask)


class ActorValue(nn.Sequential):
    """Value of the state of an actor, by a perceptron on its own feature and that of the scene."""

    def forward(self, features: EntityFeatures, mask: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return (B, 1)."""
        return super().forward(of_actor(features))


def of_actor(features: EntityFeatures) -> Tensor:
    """Return the feature of the actor and its scene (B, f)."""
    return features.per_entity["own"][..., 0, :] + features.global_feature


class EntityPolicy(AttentionPolicy):
    """Actor and critic on the entities that one actor observes, such as a target of a game of two teams.

    All entities attend to each other, see :class:`hitmac.perception.EntityEncoder`. A pointer selects one entity of the
    kind `candidates`, and the value is that of the actor's own return.

    Args:
        observation_space: as for :class:`EntityExtractor`, with the kind ``own`` of one entity, the actor.
        action_space: ``Discrete(k)``, the number of a candidate.
        lr_schedule: Stable-Baselines3's learning rate schedule.
        candidates: the kind of which one of the k entities is selected.
        **kwargs: options :data:`ENTITY_OPTIONS`, as ``encoder_config`` or each by its name; further arguments of
            Stable-Baselines3's ``ActorCriticPolicy``.
    """

    features_extractor: EntityExtractor  # type: ignore[assignment]

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        *,
        candidates: str = "moves",
        **kwargs: Any,
    ) -> None:
        self.assigns, self.credit, self.critic_kind = False, "team", "value_head"
        self.decisions, self.num_actions = 1, int(action_space.n)  # type: ignore[attr-defined]
        kwargs.setdefault("features_extractor_class", EntityExtractor)
        given = {name: kwargs.pop(name) for name in ("encoder_config", *ENTITY_OPTIONS) if name in kwargs}
        options = {"encoder_config": take_encoder_config(given), "candidates": candidates}
        kwargs.setdefault("features_extractor_kwargs", options)
        ActorCriticPolicy.__init__(self, observation_space, action_space, lr_schedule, **kwargs)

    def _build(self, lr_schedule: Schedule) -> None:
        """Build the networks, under Stable-Baselines3's names."""
        width = self.features_extractor.weight_dim
        self.action_net = PointerHead(width, self.features_extractor.candidates)
        self.value_net = ActorValue(*perceptron(width, width, 1, gain=1.0))  # type: ignore[assignment]
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def encode(self, obs: Any) -> tuple[Any, Tensor | None]:
        """Return the features of the entities, and the mask (B, k) bool of the candidates."""
        return self.features_extractor.encode({name: part.float() for name, part in obs.items()})
