"""Attention policy for Stable-Baselines3: the encoder, a head for the actions, a critic."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor

from hitmac.agents.learned.difference_rewards import SensorBernoulli, acting_or_all
from hitmac.agents.learned.extractor import LISTS, AttentionExtractor, shape_of
from hitmac.agents.learned.heads import CRITICS, AssignmentHead, TurnHead
from hitmac.agents.learned.sensor_categorical import SensorCategorical
from hitmac.perception import Features
from hitmac.perception.checks import check_choice
from hitmac.perception.encoder import take_encoder_config

CREDITS = ("team", "difference_rewards")
"""Forms of credit assignment: one reward and value for the team, or one for every sensor."""


class AttentionPolicy(ActorCriticPolicy):
    """Actor and critic on the attention encoder.

    The action space says what drives the actions. Turns come from a sensor's feature and the global one, by one head
    that all sensors share; an assignment comes from a pair's feature, its sensor's and the global one, by one head
    that all pairs share, independently for every pair (Xu, Zhong, Wang, NeurIPS 2020, section 3.2). The value comes
    from the global feature, or from all pairs by the paper's AMC critic. All start Xavier-uniform:
    Stable-Baselines3's orthogonal start, which would overwrite the encoder's, is never applied.

    In a scene, a sensor without any pair stays and a pair that is not there is never assigned, with certainty: they
    have likelihood 1 and entropy 0, and count for nothing in the learning.

    Args:
        observation_space: Dict with ``pairs`` (n, m, d) and ``mask`` (n, m), or of one sensor (m, d) and (m,); for
            turns also ``targets`` and ``neighbours``, see :class:`~hitmac.agents.learned.extractor.AttentionExtractor`.
        action_space: ``MultiDiscrete([k] * n)``, one action for each of the n sensors, or ``[k] * (n * j)``, the
            first action of every sensor, then the second of every sensor, ...; ``Discrete(k)`` of one sensor;
            ``MultiBinary(n * m)``, an assignment, pair (i, j) at i * m + j.
        lr_schedule: Stable-Baselines3's learning rate schedule.
        critic: ``"amc"``, ``"no_prefix"`` (see :class:`hitmac.perception.AMCCritic`) or ``"value_head"``, on the global
            feature; None: ``"amc"`` for an assignment, ``"value_head"`` for turns.
        credit: ``"team"``: one value; ``"difference_rewards"``: of an assignment, values and likelihoods are every
            sensor's own, see :mod:`hitmac.agents.learned.difference_rewards`.
        **kwargs: the encoder's options, as ``encoder_config``, a :class:`hitmac.perception.EncoderConfig`, or each by
            its name (``weight_dim=32, attend_over="axes"``); further arguments of Stable-Baselines3's
            ``ActorCriticPolicy``.

    Raises:
        ValueError: the spaces are others, or an option is out of its range.
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
        self.assigns = isinstance(action_space, spaces.MultiBinary)
        check_choice("credit", credit, CREDITS)
        if credit == "difference_rewards" and not self.assigns:
            raise ValueError(f"credit is {credit!r}, for an assignment; the action space is {action_space}")
        self.credit = credit
        self.critic_kind = critic or ("amc" if self.assigns else "value_head")
        check_choice("critic", self.critic_kind, CRITICS)
        n, m, _ = shape_of(observation_space)
        self.listed = "targets" in observation_space.spaces  # type: ignore[attr-defined]
        if self.listed and self.assigns:
            raise ValueError("the observation lists the nearest targets; an assignment needs those of all targets")
        self.num_actions, self.decisions = sensor_choices(action_space, n, m)
        kwargs.setdefault("features_extractor_class", AttentionExtractor)
        kwargs.setdefault("features_extractor_kwargs", {"encoder_config": take_encoder_config(kwargs)})
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {"critic": self.critic_kind, "credit": self.credit}

    def _build(self, lr_schedule: Schedule) -> None:
        n, m, _ = shape_of(self.observation_space)
        choices = self.num_actions, self.decisions
        width, per_sensor = self.features_extractor.weight_dim, self.credit == "difference_rewards"
        # Of a sensor by itself the mask tells its goals, and a sensor without any may still turn.
        in_scene = len(self.observation_space["mask"].shape) == 2  # type: ignore[index]
        self.features_extractor.need_pairs = self.assigns or self.critic_kind != "value_head"
        # Stable-Baselines3 names these for its own kinds of network.
        self.action_net = AssignmentHead(width) if self.assigns else TurnHead(width, *choices, masked=in_scene)
        self.value_net = CRITICS[self.critic_kind](width, per_sensor)  # type: ignore[assignment]
        if per_sensor:
            self.action_dist = SensorBernoulli(n, m)
        elif self.listed and isinstance(self.action_space, spaces.MultiDiscrete):
            self.action_dist = SensorCategorical(self.num_actions)  # Stable-Baselines3's has an object for each sensor
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions, values and log-likelihoods of scenes."""
        features, mask = self.encode(obs)
        distribution = self._distribution(features, mask)
        actions = distribution.get_actions(deterministic=deterministic)
        log_prob = distribution.log_prob(actions)
        return actions.reshape(-1, *self.action_space.shape), self.value_net(features, mask), log_prob  # type: ignore[misc]

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return values, log-likelihoods and entropies of actions taken.

        With difference rewards they are those of the sensors that act, one after the other.
        """
        features, mask = self.encode(obs)
        distribution = self._distribution(features, mask)
        values, log_prob, entropy = (
            self.value_net(features, mask),
            distribution.log_prob(actions),
            distribution.entropy(),
        )
        if self.credit == "team":
            return values, log_prob, entropy
        acting = torch.ones_like(values, dtype=torch.bool) if mask is None else acting_or_all(mask.any(-1))
        return values[acting], log_prob[acting], entropy[acting]  # type: ignore[index]

    def logits(self, obs: Any) -> Tensor:
        """Return the logits (B, j, n, k) of the turns, and with zooming lenses of the zooms, of every sensor."""
        features, mask = self.encode(obs)
        return self.action_net(features, mask).unflatten(1, (self.decisions, -1, self.num_actions))

    def get_distribution(self, obs: Any) -> Distribution:
        """Return the distribution of the actions."""
        return self._distribution(*self.encode(obs))

    def predict_values(self, obs: Any) -> Any:
        """Return the values (B, 1); with difference rewards (B, n), as a numpy array.

        Stable-Baselines3 adds what comes after a time limit to the rewards of a scene, and a row of an array takes no
        tensor.
        """
        values = self.value_net(*self.encode(obs))
        return values.detach().cpu().numpy() if self.credit == "difference_rewards" else values

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        """Return the actions in their space's own type; Stable-Baselines3 gives those of an assignment as floats."""
        actions = super()._predict(observation, deterministic)
        return actions.to(torch.int8) if self.assigns else actions

    def encode(self, obs: Any) -> tuple[Features, Tensor | None]:
        """Return the features of scenes, and the mask (B, n, m) bool; None where every pair is there."""
        # Some versions of Stable-Baselines3 keep whole numbers as floating-point ones.
        parts = {name: part.long() if name in LISTS else part.float() for name, part in obs.items()}
        return self.features_extractor.encode(parts)

    def _distribution(self, features: Features, mask: Tensor | None) -> Distribution:
        return self.action_dist.proba_distribution(action_logits=self.action_net(features, mask))


def sensor_choices(action_space: spaces.Space, n: int, m: int) -> tuple[int, int]:
    """Return the number of actions to choose from and of choices of every sensor (or pair), or raise ValueError."""
    if isinstance(action_space, spaces.MultiBinary):
        if action_space.shape != (n * m,):
            raise ValueError(f"the action space is {action_space}; it must be MultiBinary({n * m}), one for every pair")
        return 1, 1
    if isinstance(action_space, spaces.Discrete):
        choices = [int(action_space.n)]
    elif isinstance(action_space, spaces.MultiDiscrete):
        choices = action_space.nvec.tolist()
    else:
        choices = []
    if len(set(choices)) != 1:
        raise ValueError(
            f"the action space is {action_space}; it must be MultiDiscrete([k] * n), Discrete(k) or MultiBinary(n * m)"
        )
    decisions, rest = divmod(len(choices), n)
    if rest or not decisions:
        raise ValueError(
            f"the action space has {len(choices)} actions, the observation {n} sensors; "
            "there must be as many actions for each"
        )
    return choices[0], decisions
