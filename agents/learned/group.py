"""Policies that multi-agent libraries trained for the sensors as one group, such as BenchMARL's.

A folder holds ``policy.safetensors`` and ``config.json``; loading one runs no code.
"""

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hitmac.agents.learned.checkpoint import FILES, check_tensors, put_tensors, read_tensors, write_files
from hitmac.agents.learned.policy import beside_global, perceptron
from hitmac.agents.policy import Observation, Starts, State, padded_actions
from hitmac.envs.files import read_text
from hitmac.envs.observation import check_features
from hitmac.envs.scenario import DECISIONS, Scenario
from hitmac.envs.tasks.base import decisions_of, rows_of_sensors
from hitmac.envs.validation import shortly
from hitmac.perception import AgentTargetEncoder, EncoderConfig

FORMAT, VERSION = "hitmac-group-policy", 1
ACTIVATIONS = {kind.__name__: kind for kind in (nn.Tanh, nn.ReLU, nn.ELU, nn.GELU, nn.SiLU)}


class GroupEncoder(nn.Module):
    """The encoder on the observations of a group, with a perceptron for the outputs.

    An agent's outputs are those of its feature and the global one, so the agents are not independent of each other;
    pooled outputs are those of the global feature.

    Args:
        feature_dim: d, width of a target's features.
        outputs: k, number of outputs.
        config: options of the encoder.
        pooled: one output for the whole group.
    """

    def __init__(self, feature_dim: int, outputs: int, config: EncoderConfig, pooled: bool = False) -> None:
        super().__init__()
        self.feature_dim, self.pooled, width = feature_dim, pooled, config.weight_dim
        self.encoder = AgentTargetEncoder(feature_dim, config=config)
        self.head = perceptron(width if pooled else 2 * width, width, outputs, gain=0.1)

    def forward(self, rows: Tensor) -> Tensor:
        """Return (..., n, k), pooled (..., k), of the rows (..., n, m (d + 1)) of agents, as of ``rows_of_sensors``."""
        shown = rows.unflatten(-1, (-1, self.feature_dim + 1))
        features = self.encoder(shown[..., :-1], shown[..., -1])
        return self.head(features.global_feature if self.pooled else beside_global(features))


def perceptron_of(widths: list[int], activation: str) -> nn.Sequential:
    """Return linear layers of these widths, with an activation between them: Tanh, ReLU, ELU, GELU or SiLU."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Metadata of a policy for a group: all except its tensors."""

    algorithm: str
    """Algorithm of the training."""
    scenario: str
    """Name of the scenario of the training."""
    features: tuple[str, ...]
    """Features of a target in the observation."""
    decisions: tuple[str, ...]
    """Decisions of a sensor, as :attr:`hitmac.envs.Scenario.decisions`."""
    continuous: bool
    """Outputs are the decisions, whose tanh is rounded; otherwise they are values of the 3^k choices."""
    network: dict[str, Any]
    """``{"widths": [...], "activation": ...}`` of :func:`perceptron_of`, or the options of the encoder."""
    training_seeds: tuple[int, int]
    """First and last seed of the training scenes."""

    def __post_init__(self) -> None:
        if not {"turn"} <= set(self.decisions) <= set(DECISIONS):
            raise ValueError(f"decisions is {self.decisions!r}; it must hold turn, and no other than {list(DECISIONS)}")
        if not isinstance(self.continuous, bool):
            raise ValueError(f"continuous is {self.continuous!r}; it must be True or False")

    def build(self) -> nn.Module:
        """Return the network, untrained."""
        if "widths" in self.network:
            return perceptron_of(**self.network)
        outputs = len(self.decisions) if self.continuous else 3 ** len(self.decisions)
        return GroupEncoder(len(self.features), outputs, EncoderConfig(**self.network))


class GroupPolicy:
    """Policy that takes the best choice of every sensor.

    Raises:
        ValueError: a plain network for another number of targets than the scenario's.
    """

    def __init__(self, net: nn.Module, config: GroupConfig, scenario: Scenario) -> None:
        self.net, self.config, self.scenario, self.features = net, config, scenario, config.features
        self.training_seeds, width = config.training_seeds, len(config.features) + 1
        inputs = config.network.get("widths", [scenario.num_targets * width])[0]
        if inputs != scenario.num_targets * width:
            raise ValueError(
                f"{config.algorithm} was trained for {inputs // width} targets; scenario {scenario.name!r} has "
                f"{scenario.num_targets}"
            )

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, None]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies, always with the best action."""
        rows = torch.as_tensor(rows_of_sensors(observation), device=next(self.net.parameters()).device)
        with torch.no_grad():
            found = self.net(rows)
        choices = (found.tanh() if self.config.continuous else found.argmax(-1)).numpy(force=True)
        chosen = decisions_of(choices, len(self.config.decisions))
        chosen = chosen * observation["mask"].any(-1, keepdims=True)  # a sensor without any pair stays
        actions = chosen.swapaxes(1, 2).reshape(len(chosen), -1)
        return padded_actions(actions, self.config.decisions, self.scenario.decisions), None


def save_group_policy(folder: Path, net: nn.Module, config: GroupConfig) -> None:
    """Write a policy to `folder`, see :func:`~hitmac.agents.learned.checkpoint.write_files`."""
    write_files(folder, {"format": FORMAT, "version": VERSION} | dataclasses.asdict(config), net)


def load_group_policy(folder: Path, scenario: Scenario) -> GroupPolicy:
    """Load the policy of a folder.

    Raises:
        FileNotFoundError: no such policy.
        ValueError: a damaged file, named with the reason, or a policy that does not fit the scenario.
    """
    config_file, tensors = (folder / name for name in FILES)
    for path in (config_file, tensors):
        if not path.is_file():
            raise FileNotFoundError(f"{folder} is not a policy of a group: it has no {path.name}")
    try:
        plain = json.loads(read_text(config_file))
        if (plain.pop("format"), plain.pop("version")) != (FORMAT, VERSION):
            raise ValueError(f"its format must be {FORMAT}, version {VERSION}")
        parts = {name: tuple(plain[name]) for name in ("decisions", "training_seeds")}
        config = GroupConfig(**plain | parts | {"features": check_features(plain["features"])})
        with torch.device("meta"):  # without memory: a configuration may ask for more than there is
            empty = config.build()
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{config_file} is not that of a policy of a group: {shortly(repr(error))}") from None
    check_tensors(empty, found := read_tensors(tensors), tensors)
    put_tensors(net := config.build(), found, tensors)
    return GroupPolicy(net.eval(), config, scenario)
