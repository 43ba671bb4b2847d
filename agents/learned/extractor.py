"""Encoder as a Stable-Baselines3 features extractor."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from hitmac.perception import EncoderConfig, Features
from hitmac.perception.attending import ATTEND_OVER
from hitmac.perception.checks import one_of
from hitmac.perception.encoder import ENCODERS
from hitmac.perception.functional import is_recorded

LISTS = ("targets", "neighbours")
"""Parts of an observation that list targets and sensors by index."""


class AttentionExtractor(BaseFeaturesExtractor):
    """Encoder as a Stable-Baselines3 features extractor.

    The features of a scene are its global feature and then every sensor's, ``(B, (1 + n) * weight_dim)``; with
    `per_target` every pair's follow, and then the mask, ``(B, (1 + n + n * m) * weight_dim + n * m)``.

    Args:
        observation_space: Dict with ``pairs`` (n, m, d) and ``mask`` (n, m), or of one sensor (m, d) and (m,). Where it
            also has ``targets`` (n, k), pairs and mask are those of the targets listed; ``neighbours`` (n, l) lists the
            sensors near each.
        encoder_config: the encoder's options; None: the defaults.
        per_target: the features hold every pair's too.
        appended: width of what a subclass appends to a pair's features.
        **options: single options of :class:`hitmac.perception.EncoderConfig`, which replace those of `encoder_config`.

    Attributes:
        need_pairs: False: leave out the features of listed pairs, for heads that do not read them.

    Raises:
        ValueError: the observation space is another, or an option is out of its range.
        TypeError: an unknown option.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        encoder_config: EncoderConfig | None = None,
        *,
        per_target: bool = False,
        appended: int = 0,
        **options: Any,
    ) -> None:
        config = (encoder_config or EncoderConfig()).with_options(**options)
        width = config.weight_dim
        n, m, feature_dim = shape_of(observation_space)
        super().__init__(observation_space, (1 + n) * width + (n * m * (width + 1) if per_target else 0))
        self.weight_dim, self.per_target = width, per_target
        self.need_pairs = True
        self.encoder: nn.Module = ENCODERS[config.encoder].build(config, n, m, feature_dim + appended)
        if "targets" in observation_space.spaces:  # type: ignore[attr-defined]
            check_lists(config)

    def encode(self, observations: dict[str, Tensor]) -> tuple[Features, Tensor | None]:
        """Return the features and the mask (B, n, m) bool, None where every pair is there."""
        pairs, mask = observations["pairs"], observations["mask"].bool()
        lists = {name: observations[name] for name in LISTS if name in observations}
        if pairs.ndim == 3:  # a sensor by itself is a scene with one sensor, whose targets no other sensor lists
            pairs, mask, lists = pairs.unsqueeze(1), mask.unsqueeze(1), {}
        # Attention without a mask is faster, and whole scenes are the rule. A recorded graph serves all scenes.
        some = mask if is_recorded() or not bool(mask.all()) else None
        if lists:
            return self.encoder(pairs, some, **lists, need_pairs=self.need_pairs), some
        return self.encoder(pairs, some), some

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Return the features of every scene, flat."""
        features, mask = self.encode(observations)
        parts = [features.global_feature, features.per_agent.flatten(1)]
        if self.per_target:
            pairs = features.per_target
            there = pairs.new_ones(pairs.shape[:-1]) if mask is None else mask.to(pairs.dtype)
            parts += [pairs.flatten(1), there.flatten(1)]
        return torch.cat(parts, -1)


def check_lists(config: EncoderConfig) -> None:
    """Raise ValueError if an encoder cannot take pairs that are listed by index."""
    if not ENCODERS[config.encoder].any_size:
        raise ValueError(f"encoder is {config.encoder!r}, a plain network; it does not take the nearest targets only")
    if ATTEND_OVER[config.attend_over].listed is None:
        known = one_of((name for name, way in ATTEND_OVER.items() if way.listed), config.attend_over)
        raise ValueError(f"attend_over is {config.attend_over!r}; over the nearest targets it must be {known}")


def shape_of(observation_space: spaces.Space) -> tuple[int, int, int]:
    """Return n, m and d of an observation space, or raise ValueError; a sensor by itself is a scene with one sensor."""
    if not isinstance(observation_space, spaces.Dict) or set(observation_space) - set(LISTS) != {"pairs", "mask"}:
        raise ValueError(
            f"the observation space is {observation_space}; it must be a Dict of pairs and mask, and for the nearest "
            "targets of targets and neighbours"
        )
    pairs = observation_space["pairs"].shape or ()
    n, m, feature_dim = pairs if len(pairs) == 3 else (1, *pairs)
    return n, m, feature_dim
