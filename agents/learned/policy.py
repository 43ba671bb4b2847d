"""Attention policy for Stable-Baselines3: the encoder, a head for the actions, a critic."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import (
    BernoulliDistribution,
    CategoricalDistribution,
    Distribution,
    make_proba_distribution,
)
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn
from torch.distributions import Categorical

from hitmac.perception import AMCCritic, EncoderConfig, Features
from hitmac.perception.checks import as_mask, check_choice, one_of, unless_full
from hitmac.perception.encoder import ATTEND_OVER, ENCODERS, take_encoder_config

LISTS = ("targets", "neighbours")
"""Parts of an observation that list targets and sensors by index."""


class AttentionExtractor(BaseFeaturesExtractor):
    """Encoder as a Stable-Baselines3 features extractor.

    The features of a scene are its global feature and then every sensor's, ``(B, (1 + n) * weight_dim)``.

    Args:
        observation_space: Dict with ``pairs`` (n, m, d) and ``mask`` (n, m), or of one sensor (m, d) and (m,). With
            ``targets`` (n, k), pairs and mask are those of the listed targets; ``neighbours`` (n, l) lists sensors.
        encoder_config: the encoder's options; None: the defaults.
        appended: number of features that a subclass appends to those of a pair.
        **options: single options of :class:`hitmac.perception.EncoderConfig`, which replace those of `encoder_config`.

    Raises:
        ValueError: an unsupported observation space, or an option out of its range.
        TypeError: an unknown option.
    """

    need_pairs = True
    """If False, the features of listed pairs are not computed, for heads that do not read them."""

    def __init__(
        self,
        observation_space: spaces.Space,
        encoder_config: EncoderConfig | None = None,
        *,
        appended: int = 0,
        **options: Any,
    ) -> None:
        config = (encoder_config or EncoderConfig()).with_options(**options)
        n, m, feature_dim = shape_of(observation_space)
        super().__init__(observation_space, (1 + n) * config.weight_dim)
        self.weight_dim = config.weight_dim
        self.encoder: nn.Module = ENCODERS[config.encoder].build(config, n, m, feature_dim + appended)
        if "targets" in observation_space.spaces:  # type: ignore[attr-defined]
            check_lists(config)
        if "neighbours" in observation_space.spaces and config.attend_over != "agents":  # type: ignore[attr-defined]
            raise ValueError(f"the observation lists neighbours, which attend_over={config.attend_over!r} never reads")

    def encode(self, observations: dict[str, Tensor]) -> tuple[Features, Tensor | None]:
        """Return the features and the mask (B, n, m) bool, None where every pair is known to be valid."""
        pairs, mask = observations["pairs"], as_mask(observations["mask"])
        lists = {name: observations[name] for name in LISTS if name in observations}
        if pairs.ndim == 3:  # a single sensor is a scene with one sensor, whose targets no other sensor lists
            pairs, mask, lists = pairs.unsqueeze(1), mask.unsqueeze(1), {}
        some = unless_full(mask)
        if lists:
            return self.encoder(pairs, some, **lists, need_pairs=self.need_pairs), some
        return self.encoder(pairs, some), some

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Return the features of every scene, flat."""
        features, _ = self.encode(observations)
        return torch.cat((features.global_feature, features.per_agent.flatten(1)), -1)


def check_lists(config: EncoderConfig) -> None:
    """Raise ValueError if an encoder does not support pairs that are listed by index."""
    if not ENCODERS[config.encoder].any_size:
        raise ValueError(f"encoder is {config.encoder!r}, a plain network; it does not support the nearest targets")
    if not ATTEND_OVER[config.attend_over].takes_lists:
        known = one_of((name for name, way in ATTEND_OVER.items() if way.takes_lists), config.attend_over)
        raise ValueError(f"attend_over is {config.attend_over!r}; over the nearest targets it must be {known}")


def shape_of(observation_space: spaces.Space) -> tuple[int, int, int]:
    """Return n, m and d of an observation space, n = 1 for a single sensor; raise ValueError for any other space."""
    if not isinstance(observation_space, spaces.Dict) or set(observation_space) - set(LISTS) != {"pairs", "mask"}:
        raise ValueError(
            f"the observation space is {observation_space}; it must be a Dict of pairs and mask, and for the nearest "
            "targets of targets and neighbours"
        )
    pairs = observation_space["pairs"].shape or ()
    n, m, feature_dim = pairs if len(pairs) == 3 else (1, *pairs)
    return n, m, feature_dim


def perceptron(width: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
    """Return a hidden layer with ReLU and a linear output layer, whose initial weights are scaled by `gain`."""
    first, last = nn.Linear(width, hidden), nn.Linear(hidden, outputs)
    for layer, layer_gain in ((first, 1.0), (last, gain)):
        nn.init.xavier_uniform_(layer.weight, layer_gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.ReLU(), last)


def beside_global(features: Features) -> Tensor:
    """Return each sensor's feature, concatenated with the global one (..., n, 2 f)."""
    sensors = features.per_agent
    return torch.cat((sensors, features.global_feature.unsqueeze(-2).expand_as(sensors)), -1)


class TurnHead(nn.ModuleList):
    """Logits of every sensor's actions, by one perceptron on its feature and the global one.

    If `masked`, a sensor without any pair (absent, failed, or with no target present) takes action 0, to stay, with
    likelihood 1 and entropy 0 for any parameters, so that it does not affect the learning.
    """

    def __init__(self, weight_dim: int, num_actions: int, decisions: int, *, masked: bool, gain: float = 0.01) -> None:
        super().__init__([perceptron(2 * weight_dim, weight_dim, decisions * num_actions, gain)])
        self.decisions, self.masked = decisions, masked

    def forward(self, features: Features, mask: Tensor | None) -> Tensor:
        """Return (B, j * n * k): the first decision of every sensor, then the second."""
        logits = self[0](beside_global(features)).unflatten(-1, (self.decisions, -1))  # (B, n, j, k)
        if mask is not None and self.masked:
            stay = torch.full_like(logits, torch.finfo(logits.dtype).min)
            stay[..., 0] = 0.0
            logits = torch.where(mask.any(-1)[:, :, None, None], logits, stay)
        return logits.transpose(1, 2).flatten(1)


class AssignmentHead(nn.ModuleList):
    """Logit of every pair's assignment, by one perceptron on its feature, its sensor's and the global one.

    An invalid pair is never assigned: its likelihood is 1 and its entropy 0. Source: Xu, Zhong, Wang, NeurIPS 2020,
    section 3.2.
    """

    def __init__(self, weight_dim: int) -> None:
        super().__init__([perceptron(3 * weight_dim, weight_dim, 1, gain=0.01)])

    def forward(self, features: Features, mask: Tensor | None) -> Tensor:
        """Return (B, n * m), pair (i, j) at i * m + j."""
        pairs = features.per_target
        sensors = beside_global(features).unsqueeze(2).expand(-1, -1, pairs.shape[2], -1)  # (B, n, m, 2 f)
        logits = self[0](torch.cat((pairs, sensors), -1).flatten(1, 2)).flatten(1)
        return logits if mask is None else torch.where(mask.flatten(1), logits, torch.finfo(logits.dtype).min)


class SceneValue(nn.Sequential):
    """Value of the scene, by a perceptron on the global feature."""

    def __init__(self, weight_dim: int) -> None:
        super().__init__(*perceptron(weight_dim, weight_dim, 1, gain=1.0))

    def forward(self, features: Features, mask: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return (B, 1)."""
        return super().forward(features.global_feature)


class PairsCritic(nn.Module):
    """Value of the scene by :class:`hitmac.perception.AMCCritic` on all pairs' features, or each sensor's share."""

    def __init__(self, weight_dim: int, per_sensor: bool, *, kind: str) -> None:
        super().__init__()
        self.critic, self.per_sensor = AMCCritic(weight_dim, kind=kind), per_sensor
        # The value is a sum over all pairs; large initial errors would drown the actor's gradient.
        nn.init.xavier_uniform_(self.critic.linear.weight, 0.01)

    def forward(self, features: Features, mask: Tensor | None) -> Tensor:
        """Return (B, 1), or every sensor's (B, n)."""
        pairs = features.per_target
        valid = None if mask is None else mask.flatten(1)
        value, contributions = self.critic(pairs.flatten(1, 2), valid, return_contributions=True)
        return contributions.unflatten(-1, pairs.shape[1:3]).sum(-1) if self.per_sensor else value.unsqueeze(-1)


class SharedValue(SceneValue):
    """Value of the scene as that of every sensor: the mean of their returns."""

    def forward(self, features: Features, mask: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return (B, n)."""
        return super().forward(features, mask).expand(features.per_agent.shape[:2])


CRITICS: dict[str, Callable[[int, bool], nn.Module]] = {
    "amc": partial(PairsCritic, kind="amc"),
    "no_prefix": partial(PairsCritic, kind="no_prefix"),
    "scene": lambda width, per_sensor: (SharedValue if per_sensor else SceneValue)(width),
    "value_head": lambda width, per_sensor: (
        TurnHead(width, 1, 1, masked=False, gain=1.0) if per_sensor else SceneValue(width)
    ),
}
"""Critics by name: functions of the width of the features, and of True for a value of every sensor."""


_LEVELS = 5  # of each direction

RATES = (0.0, *(sign * level / _LEVELS for level in range(1, _LEVELS + 1) for sign in (1.0, -1.0)))
"""Rates that policies choose among, shares of the highest: 0, 0.2, -0.2, ..., 1, -1."""


def rates_at(levels: Tensor) -> Tensor:
    """Return the :data:`RATES` at whole numbers."""
    return (levels + 1) // 2 * (levels % 2 * 2 - 1) / _LEVELS


class SensorCategorical(CategoricalDistribution):
    """Independent choices of one of k actions, in one tensor.

    With `num_sensors`, n, likelihood and entropy are those of every sensor's choices (B, n).
    """

    def __init__(self, num_actions: int, num_sensors: int | None = None) -> None:
        super().__init__(num_actions)
        self.num_sensors = num_sensors

    def proba_distribution(self, action_logits: Tensor) -> Self:
        """Set the logits (B, c * k) of c choices: the first of every sensor, then the second, ..."""
        choices = Categorical(logits=action_logits.unflatten(-1, (-1, self.action_dim)), validate_args=False)
        self.distribution: Any = choices
        return self

    def mode(self) -> Tensor:
        """Return the most likely actions (B, c)."""
        return self.distribution.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-likelihood of the actions (B, c)."""
        return self._total(self.distribution.log_prob(actions.reshape(self.distribution.logits.shape[:-1])))

    def entropy(self) -> Tensor:
        """Return the entropy."""
        return self._total(self.distribution.entropy())

    def _total(self, of_choices: Tensor) -> Tensor:
        if self.num_sensors is None:
            return of_choices.sum(-1)
        return of_choices.unflatten(-1, (-1, self.num_sensors)).sum(-2)


class SensorRates(SensorCategorical):
    """Independent choices of one of the :data:`RATES` of a motor, tilt or zoom; actions are these shares.

    Unlike a normal distribution, they can stand for two good rates with a bad one between them. Source: Tang, Agrawal,
    "Discretizing continuous action space for on-policy optimization", AAAI 2020.
    """

    def __init__(self, num_sensors: int | None = None) -> None:
        super().__init__(len(RATES), num_sensors)

    def mode(self) -> Tensor:
        """Return the most likely rates (B, c)."""
        return rates_at(super().mode())

    def sample(self) -> Tensor:
        """Return random rates (B, c)."""
        return rates_at(super().sample())

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-likelihood of the levels that are nearest to rates (B, c)."""
        steps = (actions * _LEVELS).round().clamp(-_LEVELS, _LEVELS).long()
        return super().log_prob(torch.where(steps > 0, 2 * steps - 1, -2 * steps))


class SensorBernoulli(BernoulliDistribution):
    """Assignment of m targets to n sensors (B, n * m), independent for each pair, with a likelihood of every sensor."""

    def __init__(self, num_sensors: int, num_targets: int) -> None:
        super().__init__(num_sensors * num_targets)
        self.sizes = num_sensors, num_targets

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-likelihood (B, n) of every sensor's part of the actions."""
        return self.distribution.log_prob(actions).unflatten(-1, self.sizes).sum(-1)

    def entropy(self) -> Tensor:
        """Return the entropy (B, n) of every sensor's part of the actions."""
        return self.distribution.entropy().unflatten(-1, self.sizes).sum(-1)


CREDITS = ("team", "difference_rewards")
"""Forms of credit assignment: one reward, value and likelihood for the team, or one of each for every sensor."""


UNUSED = ("net_arch", "activation_fn", "share_features_extractor")
"""Arguments of Stable-Baselines3's ``ActorCriticPolicy`` for networks that the policies of this package do not have."""


def refuse_unused(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for an argument that would have no effect."""
    if given := [name for name in UNUSED if name in arguments]:
        options = "the width is weight_dim, further layers are embed_layers and num_blocks"
        raise ValueError(f"{' and '.join(given)} would have no effect on this policy's encoder and heads; {options}")


class AttentionPolicy(ActorCriticPolicy):
    """Actor and critic on the attention encoder.

    The action space determines the head. Turns depend on a sensor's feature and the global one, by one perceptron that
    all sensors share; an assignment on a pair's feature, its sensor's and the global one, independently for every pair
    (Xu, Zhong, Wang, NeurIPS 2020, section 3.2). The value depends on the global feature, or on all pairs by the
    paper's AMC critic. A sensor without any pair stays and an absent pair is never assigned, with likelihood 1 and
    entropy 0. All weights are initialised Xavier-uniform; Stable-Baselines3's orthogonal initialisation is never
    applied, since it would overwrite the encoder's.

    Args:
        observation_space: as for :class:`~hitmac.agents.learned.policy.AttentionExtractor`; lists for turns only.
        action_space: ``MultiDiscrete([k] * n)``, one action for each of the n sensors, or ``[k] * (n * j)``, the
            first action of every sensor, then the second of every sensor, ...; ``Discrete(k)`` of one sensor;
            ``Box(-1, 1, (n * j,))``, rates of every sensor, chosen among :data:`RATES`;
            ``MultiBinary(n * m)``, an assignment, pair (i, j) at i * m + j.
        lr_schedule: Stable-Baselines3's learning rate schedule.
        critic: ``"amc"``, ``"no_prefix"`` (see :class:`hitmac.perception.AMCCritic`), ``"value_head"``, on a sensor's
            feature and the global one, or on the global one for a team's value, or ``"scene"``, on the global one,
            for every sensor the same; None: ``"amc"`` for an assignment, ``"value_head"`` for turns.
        credit: ``"team"``: one value and likelihood; ``"difference_rewards"``: those of every sensor (B, n), for
            :class:`hitmac.agents.training.ppo.PPO`.
        **kwargs: the encoder's options, as ``encoder_config``, a :class:`hitmac.perception.EncoderConfig`, or each by
            its name (``weight_dim=32, attend_over="axes"``); further arguments of Stable-Baselines3's
            ``ActorCriticPolicy``.

    Raises:
        ValueError: unsupported spaces, an option out of its range, or one of :data:`UNUSED`.
    """

    features_extractor: AttentionExtractor

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        *,
        critic: str | None = None,
        credit: str = "team",
        **kwargs: Any,
    ) -> None:
        refuse_unused(kwargs)
        self.assigns = isinstance(action_space, spaces.MultiBinary)
        check_choice("credit", credit, CREDITS)
        self.credit, self.critic_kind = credit, critic or ("amc" if self.assigns else "value_head")
        check_choice("critic", self.critic_kind, CRITICS)
        self._own_options: dict[str, Any] = {"critic": self.critic_kind, "credit": self.credit}
        n, m, _ = shape_of(observation_space)
        self.listed = "targets" in observation_space.spaces  # type: ignore[attr-defined]
        if self.listed and self.assigns:
            raise ValueError("the observation lists the nearest targets; an assignment requires all targets")
        self.num_actions, self.decisions = sensor_choices(action_space, n, m)
        kwargs.setdefault("features_extractor_class", AttentionExtractor)
        kwargs.setdefault("features_extractor_kwargs", {"encoder_config": take_encoder_config(kwargs)})
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        given = super()._get_constructor_parameters() | self._own_options
        return {name: value for name, value in given.items() if name not in UNUSED}

    def _build(self, lr_schedule: Schedule) -> None:
        """Build the networks, under Stable-Baselines3's names."""
        width, per_sensor = self.features_extractor.weight_dim, self.credit == "difference_rewards"
        in_scene = len(self.observation_space["mask"].shape) == 2  # type: ignore[index]
        self.features_extractor.need_pairs = self.assigns or self.critic_kind in ("amc", "no_prefix")
        if self.assigns:
            self.action_net = AssignmentHead(width)
        else:  # the mask of a single sensor is that of its goals; without any it may still turn
            self.action_net = TurnHead(width, self.num_actions, self.decisions, masked=in_scene)
        self.value_net = CRITICS[self.critic_kind](width, per_sensor)  # type: ignore[assignment]
        n, m, _ = shape_of(self.observation_space)
        self._new_distribution: Callable[[], Any] = partial(make_proba_distribution, self.action_space)
        if isinstance(self.action_space, spaces.Box):
            self._new_distribution = partial(SensorRates, n if per_sensor else None)
        elif per_sensor and self.assigns:
            self._new_distribution = partial(SensorBernoulli, n, m)
        elif per_sensor or isinstance(self.action_space, spaces.MultiDiscrete):
            self._new_distribution = partial(SensorCategorical, self.num_actions, n if per_sensor else None)
        self.action_dist = self._new_distribution()
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions, values and log-likelihoods of scenes."""
        features, mask = self.encode(obs)
        distribution = self._distribution(features, mask)
        actions = distribution.get_actions(deterministic=deterministic)
        log_prob = distribution.log_prob(actions)
        return actions.reshape(-1, *self.action_space.shape), self.value_net(features, mask), log_prob  # type: ignore[misc]

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return values, log-likelihoods and entropies of actions."""
        return self.evaluate_features(*self.encode(obs), actions)

    def evaluate_features(
        self, features: Any, mask: Tensor | None, actions: Tensor, *, critic_apart: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the same, given the result of :meth:`encode`; with `critic_apart` values have no gradient in it."""
        distribution = self._distribution(features, mask)
        of_critic = features
        if critic_apart:
            detached = (feature.detach() for feature in features)
            of_critic = Features(*detached) if isinstance(features, Features) else tuple(detached)
        return self.value_net(of_critic, mask), distribution.log_prob(actions), distribution.entropy()

    def logits(self, obs: Any) -> Tensor:
        """Return the logits (B, j, n, k) of every sensor's j decisions."""
        features, mask = self.encode(obs)
        return self.action_net(features, mask).unflatten(1, (self.decisions, -1, self.num_actions))

    def get_distribution(self, obs: Any) -> Distribution:
        """Return the distribution of the actions."""
        return self._distribution(*self.encode(obs))

    def predict_values(self, obs: Any) -> Tensor:
        """Return the values (B, 1); with difference rewards (B, n)."""
        return self.value_net(*self.encode(obs))

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        """Return the actions in the type of their space; Stable-Baselines3 returns assignments as floats."""
        actions = super()._predict(observation, deterministic)
        return actions.to(torch.int8) if self.assigns else actions

    def encode(self, obs: Any) -> tuple[Features, Tensor | None]:
        """Return the features of scenes, and the mask (B, n, m) bool; None where every pair is known to be valid."""
        # Some versions of Stable-Baselines3 store integers as floats.
        parts = {name: part.long() if name in LISTS else part.float() for name, part in obs.items()}
        return self.features_extractor.encode(parts)

    def _distribution(self, features: Any, mask: Tensor | None) -> Distribution:
        return self.distribution_of(self.action_net(features, mask))

    def distribution_of(self, logits: Tensor) -> Distribution:
        """Return a new distribution of the actions, given the output of the head; threads may share the policy."""
        return self._new_distribution().proba_distribution(action_logits=logits)


def sensor_choices(action_space: spaces.Space, n: int, m: int) -> tuple[int, int]:
    """Return the numbers of actions and of decisions of every sensor (or pair); raise ValueError for other spaces."""
    if isinstance(action_space, spaces.MultiBinary) and action_space.shape == (n * m,):
        return 1, 1
    if isinstance(action_space, spaces.Box) and action_space == spaces.Box(
        -1.0, 1.0, (action_space.shape[0] // n * n,)
    ):
        return len(RATES), action_space.shape[0] // n
    discrete = isinstance(action_space, spaces.Discrete | spaces.MultiDiscrete)
    choices = np.ravel(getattr(action_space, "nvec", getattr(action_space, "n", 0)))
    if not discrete or len(set(choices)) != 1 or len(choices) % n:
        raise ValueError(
            f"the action space is {action_space}; for {n} sensors and {m} targets it must be MultiBinary({n * m}), "
            f"MultiDiscrete([k] * {n} * j), Box(-1, 1, ({n} * j,)), or for a single sensor Discrete(k)"
        )
    return int(choices[0]), len(choices) // n
