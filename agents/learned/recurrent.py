"""Attention policy with a learned memory: a recurrent state of every pair, updated by current sightings."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from hitmac.agents.learned.policy import AttentionExtractor, AttentionPolicy, shape_of
from hitmac.agents.policy import Starts, State, checked_starts, copied_state
from hitmac.perception import EncoderConfig, Features
from hitmac.perception.checks import unless_full
from hitmac.perception.recurrent import PairMemory

MEMORIES = ("none", "recurrent")
"""Memories of a policy."""

RECURRENT_FEATURES = (
    "bearing_sin",
    "bearing_cos",
    "distance",
    "in_range",
    "visible",
    "others_seeing",
    "radial_velocity",
    "tangential_velocity",
    "seen_now",
    "sensor_x",
    "sensor_y",
    "heading_sin",
    "heading_cos",
)
"""Observation features of a recurrent policy: of a target in sight, and of the sensor."""

SEEN, OF_SENSOR, _SIN, _COS = map(RECURRENT_FEATURES.index, ("seen_now", "sensor_x", "heading_sin", "heading_cos"))
"""Indices of features; those from `OF_SENSOR` on describe the sensor."""


def works(pairs: Tensor) -> Tensor:
    """Return True (..., n) for the sensors that work, given features (..., n, m, d); a failed one has no heading."""
    return (pairs[..., 0, _COS] != 0) | (pairs[..., 0, _SIN] != 0)


class RecurrentExtractor(AttentionExtractor):
    """Encoder on the features and a recurrent memory of every pair.

    The features (n, m, d) are :data:`RECURRENT_FEATURES`; those of a target out of sight are set to zero, except those
    of the sensor. The observation's mask is ignored: a pair is valid where the sensor works. The memory is as wide as
    the encoder, whose width must be even.
    """

    def __init__(self, observation_space: spaces.Space, encoder_config: EncoderConfig | None = None) -> None:
        width = (encoder_config or EncoderConfig()).weight_dim
        _, _, feature_dim = shape_of(observation_space)
        if feature_dim != len(RECURRENT_FEATURES):
            raise ValueError(
                f"the observation has {feature_dim} features; they must be {', '.join(RECURRENT_FEATURES)}"
            )
        super().__init__(observation_space, encoder_config, appended=width)
        self.memory = PairMemory(feature_dim, width)

    def unroll(
        self, pairs: Tensor, state: Tensor | None = None, starts: Tensor | None = None
    ) -> tuple[Features, Tensor | None, Tensor]:
        """Encode T steps of B scenes, pairs (T, B, n, m, d).

        `state` (B, n, m, f) is the state after the last call, None at the start of the scenes; `starts` (T, B) bool
        marks the first steps of episodes. Returns the features of the T * B scenes, their mask (T * B, n, m) bool, or
        None if all sensors are known to work, and the state for the next call.
        """
        working = works(pairs)  # (T, B, n)
        pairs = torch.cat((pairs[..., :OF_SENSOR] * (pairs[..., SEEN, None] != 0), pairs[..., OF_SENSOR:]), -1)
        # The memory of a failed sensor stays in the frame of the world.
        heading = torch.stack((torch.where(working, pairs[..., 0, _COS], 1.0), pairs[..., 0, _SIN]), -1)
        remembered, state = self.memory(pairs, heading, state, starts)
        some = unless_full(working)
        mask = None if some is None else some.unsqueeze(-1).expand(pairs.shape[:-1]).flatten(0, 1)
        tokens = torch.cat((pairs, remembered), -1).flatten(0, 1)
        return self.encoder(tokens, mask), mask, state

    def encode(self, observations: dict[str, Tensor]) -> tuple[Features, Tensor | None]:
        """Return the features and the mask of scenes at their start."""
        features, mask, _ = self.unroll(observations["pairs"].unsqueeze(0))
        return features, mask


class RecurrentPolicy(AttentionPolicy):
    """Attention policy with a recurrent state for every pair of a sensor and a target.

    It reads only the targets in sight, see :class:`RecurrentExtractor` and
    :class:`hitmac.perception.recurrent.PairMemory`. :meth:`predict` carries the state and must be called at every
    sub-step; methods without a state assume scenes at their start. The arguments are those of
    :class:`~hitmac.agents.learned.policy.AttentionPolicy`, for turns, with observations of :data:`RECURRENT_FEATURES`.
    """

    features_extractor: RecurrentExtractor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"features_extractor_class": RecurrentExtractor} | kwargs)

    def unroll(
        self, pairs: Tensor, state: Tensor | None = None, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits (T * B, j, n, k), working sensors (T * B, n) and state; see `RecurrentExtractor.unroll`."""
        features, mask, state = self.features_extractor.unroll(pairs, state, starts)
        logits = self.action_net(features, mask).unflatten(1, (self.decisions, -1, self.num_actions))
        acting = logits.new_ones(logits.shape[0], logits.shape[2], dtype=torch.bool) if mask is None else mask.any(-1)
        return logits, acting, state

    def predict(
        self, observation: Any, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies; the state of a single scene also has a scene axis."""
        self.set_training_mode(False)
        pairs = torch.as_tensor(observation["pairs"], dtype=torch.float32, device=self.device)
        scenes, memory = pairs.reshape(1, -1, *pairs.shape[-3:]), None
        if state is not None:
            shape = (*scenes.shape[1:-1], self.features_extractor.memory.width)
            memory = torch.as_tensor(copied_state(state, shape)[0], device=self.device)
        starts = torch.as_tensor(checked_starts(episode_start, scenes.shape[1]), device=self.device).unsqueeze(0)
        with torch.no_grad():
            logits, _, new = self.unroll(scenes, memory, starts)
            choice = self.action_dist.proba_distribution(action_logits=logits.flatten(1))
            actions = choice.get_actions(deterministic=deterministic).cpu().numpy()
        return actions.reshape(*pairs.shape[:-3], actions.shape[-1]), (new.cpu().numpy(),)
