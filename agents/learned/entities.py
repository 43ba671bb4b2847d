"""Policy of one actor that selects one of the entities that it observes, for Stable-Baselines3."""

from functools import partial
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.distributions import make_proba_distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from hitmac.agents.learned.policy import AttentionPolicy, perceptron, refuse_unused
from hitmac.perception import EncoderConfig, EntityEncoder, EntityFeatures, SelectionHead
from hitmac.perception.checks import as_mask, check_choice
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
    """

    def __init__(self, observation_space: spaces.Dict, encoder_config: EncoderConfig | None = None) -> None:
        config = encoder_config or EncoderConfig()
        super().__init__(observation_space, config.weight_dim)
        kinds = {name: space.shape[-1] for name, space in observation_space.items() if not name.endswith(MASK)}  # type: ignore[index]
        options = {name: getattr(config, name) for name in ENTITY_OPTIONS}
        self.encoder = EntityEncoder(kinds, attention="tanh", **options)

    def encode(self, observations: dict[str, Tensor]) -> EntityFeatures:
        """Return the features of the entities and of the scenes."""
        entities = {kind: observations[kind] for kind in self.encoder.kinds}
        masks = {kind: observations[kind + MASK] for kind in entities if kind + MASK in observations}
        return self.encoder(entities, masks)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Return the features of the scenes."""
        return self.encode(observations).global_feature


class PointerHead(SelectionHead):
    """Logits (B, k) of the candidates (B, k, f), selected by the actor (B, f); at first almost equal."""

    def __init__(self, weight_dim: int) -> None:
        super().__init__(weight_dim)
        nn.init.xavier_uniform_(self.query.weight, 0.01)

    def forward(self, features: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return (B, k)."""
        return super().forward(*features, mask)


class ActorValue(nn.Sequential):
    """Value of the state of an actor, by a perceptron on its own feature and that of the scene."""

    def forward(self, features: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return (B, 1)."""
        return super().forward(features[0])


def _candidates_of(observation_space: spaces.Space, action_space: spaces.Space, candidates: str) -> int:
    """Return the number of candidates; raise ValueError unless the spaces are those of :class:`EntityPolicy`."""
    if not isinstance(observation_space, spaces.Dict):
        raise ValueError(f"the observation space is {observation_space}; it must be a Dict of kinds of entities")
    counts = {name: (space.shape or (0,))[0] for name, space in observation_space.items() if not name.endswith(MASK)}
    if counts.get("own") != 1:
        raise ValueError(f"the observation has the kinds {', '.join(counts)}; it must have one entity of the kind own")
    check_choice("candidates", candidates, counts)
    number = counts[candidates]
    if not isinstance(action_space, spaces.Discrete) or action_space.start != 0 or action_space.n != number:
        raise ValueError(
            f"the action space is {action_space}; for {number} entities of the kind {candidates} it must be "
            f"Discrete({number})"
        )
    return int(number)


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
        refuse_unused(kwargs)
        self.assigns, self.credit, self.candidates = False, "team", candidates
        self._own_options = {"candidates": candidates}
        self.decisions, self.num_actions = 1, _candidates_of(observation_space, action_space, candidates)
        kwargs.setdefault("features_extractor_class", EntityExtractor)
        given = {name: kwargs.pop(name) for name in ("encoder_config", *ENTITY_OPTIONS) if name in kwargs}
        kwargs.setdefault("features_extractor_kwargs", {"encoder_config": take_encoder_config(given)})
        ActorCriticPolicy.__init__(self, observation_space, action_space, lr_schedule, **kwargs)

    def _build(self, lr_schedule: Schedule) -> None:
        """Build the networks, under Stable-Baselines3's names."""
        width = self.features_extractor.features_dim
        self.action_net = PointerHead(width)
        self.value_net = ActorValue(*perceptron(width, width, 1, gain=1.0))  # type: ignore[assignment]
        self._new_distribution = partial(make_proba_distribution, self.action_space)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def encode(self, obs: Any) -> tuple[Any, Tensor | None]:
        """Return the feature of the actor and the scene (B, f), those of the candidates (B, k, f), and their mask."""
        shown = {name: as_mask(part, name) if name.endswith(MASK) else part.float() for name, part in obs.items()}
        features = self.features_extractor.encode(shown)
        actor = features.per_entity["own"][..., 0, :] + features.global_feature
        return (actor, features.per_entity[self.candidates]), shown.get(self.candidates + MASK)
