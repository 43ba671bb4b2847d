"""Encoder, turns and value as an RLModule of RLlib."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

try:
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
    from ray.rllib.core.rl_module.apis import ValueFunctionAPI
    from ray.rllib.core.rl_module.torch import TorchRLModule
except ModuleNotFoundError:
    raise ModuleNotFoundError("RLModules need RLlib: pip install 'hitmac[rllib]'") from None

from hitmac.agents.learned.attention_policy import sensor_choices
from hitmac.agents.learned.extractor import AttentionExtractor, shape_of
from hitmac.agents.learned.heads import TurnHead, perceptron


class AttentionRLModule(TorchRLModule, ValueFunctionAPI):
    """Turns and a value on the encoder, for RLlib's algorithms with a value function, such as PPO.

    The observation is a Dict of ``pairs`` (n, m, d) and ``mask`` (n, m), the action ``MultiDiscrete([k] * n)``, one
    action for each of the n sensors, or ``[k] * (n * j)``, the first action of every sensor, then the second. A sensor
    without any pair stays, with likelihood 1. ``encoder_config`` in ``model_config`` holds the encoder's options:
    ``RLModuleSpec(AttentionRLModule, model_config={"encoder_config": EncoderConfig(weight_dim=32)})``.

    The module is an agent: ``evaluate(algorithm.get_module())`` compares it.

    Raises:
        ValueError: the spaces are others, or an option is out of its range.
        TypeError: an unknown option.
    """

    def setup(self) -> None:
        """Build the networks."""
        assert self.observation_space is not None
        n, m, _ = shape_of(self.observation_space)
        if not isinstance(self.action_space, spaces.MultiDiscrete):
            raise ValueError(f"the action space is {self.action_space}; it must be MultiDiscrete([k] * n)")
        num_actions, decisions = sensor_choices(self.action_space, n, m)
        config: Any = self.model_config or {}
        self.extractor = AttentionExtractor(self.observation_space, config.get("encoder_config"))
        self.turns = TurnHead(self.extractor.weight_dim, num_actions, decisions)
        self.value = perceptron(self.extractor.weight_dim, self.extractor.weight_dim, 1, gain=1.0)
        of_sensors: Any = TorchMultiCategorical
        self.action_dist_cls: Any = of_sensors.get_partial_dist_cls(
            space=self.action_space, input_lens=self.action_space.nvec.tolist()
        )

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        features, mask = self.extractor.encode(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.turns(features, mask), Columns.EMBEDDINGS: features.global_feature}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values (B,) of a batch, on its global features if they are given."""
        if embeddings is None:
            embeddings = self.extractor.encode(batch[Columns.OBS])[0].global_feature
        return self.value(embeddings).squeeze(-1)

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[Any, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, None]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies, on scenes (B, n, m, d)."""
        device = next(self.parameters()).device
        tensors = {key: torch.as_tensor(array, device=device) for key, array in observation.items()}
        with torch.no_grad():
            logits = self.forward_inference({Columns.OBS: tensors})[Columns.ACTION_DIST_INPUTS]
        choice = self.action_dist_cls.from_logits(logits)
        return (choice.to_deterministic() if deterministic else choice).sample().cpu().numpy(), None
