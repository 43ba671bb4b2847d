"""Encoders of agent-target features into per-target, per-agent and global features, and their configuration."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hitmac.perception.checks import check_choice, check_tokens, check_widths, is_whole, one_of
from hitmac.perception.fast_paths import is_recorded
from hitmac.perception.functional import FIXED_POOLINGS, Features, Weights, pool, xavier_linear, zero_masked
from hitmac.perception.recurrent import RecurrentLayer
from hitmac.perception.sparse import AllPairs, SparsePairs
from hitmac.perception.tanh_attention import AttentionLayer
from hitmac.perception.transformer import FourierFeatures


def over_agents(layers: Sequence[nn.Module], pairs: AllPairs, tokens: Tensor) -> tuple[Features, Weights]:
    """Attend over each agent's targets, ``z_ij = A(e_i1 .. e_im)_j``, then over the agents.

    An agent has the feature ``g_i + B(g_1 .. g_n)_i``, where ``g_i = sum over j of z_ij``, and takes the others into
    account.
    """
    per_target, per_agent, of_targets = pairs.within_agents(layers[0], tokens)
    of_others, global_feature, of_agents = pairs.between_agents(layers[1], per_agent)
    return Features(per_target, per_agent + of_others, global_feature), Weights(targets=of_targets, agents=of_agents)


def over_targets(layers: Sequence[nn.Module], pairs: AllPairs, tokens: Tensor) -> tuple[Features, Weights]:
    """Attend over each agent's own targets only, ``z_ij = A(e_i1 .. e_im)_j``."""
    per_target, per_agent, of_targets = pairs.within_agents(layers[0], tokens)
    global_feature = pool(per_agent, pairs.present, pairs.pooling)
    return Features(per_target, per_agent, global_feature), Weights(targets=of_targets)


def over_pairs(layers: Sequence[nn.Module], pairs: AllPairs, tokens: Tensor) -> tuple[Features, Weights]:
    """Attend over all n * m pairs as one sequence, ``z_ij = A(e_11 .. e_nm)_ij``, as the paper's coordinator does."""
    per_target, global_feature, of_pairs = pairs.within_scenes(layers[0], tokens)
    return Features(per_target, pairs.pool(per_target), global_feature), Weights(pairs=of_pairs)


def over_axes(layers: Sequence[nn.Module], pairs: AllPairs, tokens: Tensor) -> tuple[Features, Weights]:
    """Attend from each pair to the pairs of its agent and to those of its target; add both to its embedding.

    ``z_ij = e_ij + A(e_i1 .. e_im)_j + B(e_1j .. e_nj)_i``, equivariant to permutations of rows and columns (Hartford
    and others, "Deep models of interactions across sets", ICML 2018). The cost is n m (n + m) instead of (n m)^2.
    """
    of_agent, _, of_targets = pairs.within_agents(layers[0], tokens, pooled=False)
    of_target, of_agents = pairs.within_targets(layers[1], tokens)
    per_target = pairs.total(tokens, of_agent, of_target)
    per_agent = pairs.pool(per_target)
    global_feature = pool(per_agent, pairs.present, pairs.pooling)
    return Features(per_target, per_agent, global_feature), Weights(targets=of_targets, agents=of_agents)


class Attending(NamedTuple):
    """Way of attending."""

    attend: Callable[[Sequence[nn.Module], AllPairs, Tensor], tuple[Features, Weights]]  # of layers, pairs and tokens
    layers: tuple[str, ...] = ("attention",)  # names in the encoder
    takes_lists: bool = True  # supports lists of targets and neighbours
    by_target: bool = False  # attends between the pairs of a target


ATTEND_OVER: dict[str, Attending] = {
    "agents": Attending(over_agents, ("attention", "between_agents")),
    "targets": Attending(over_targets),
    "pairs": Attending(over_pairs, takes_lists=False),
    "axes": Attending(over_axes, ("attention", "between_agents"), by_target=True),
}
"""All ways of attending."""


class FlatEncoder(nn.Module):
    """Encoder without attention, for fixed numbers of agents n and targets m in a fixed order.

    Two linear layers with ReLU map each pair, two the concatenated pairs of each agent, two those of the scene, all
    with their masks.

    Args:
        num_agents, num_targets: n and m.
        feature_dim: d, width of a pair's features.
        weight_dim: f, width of the outputs.
    """

    def __init__(self, num_agents: int, num_targets: int, feature_dim: int, weight_dim: int) -> None:
        super().__init__()
        self.num_agents, self.num_targets, self.feature_dim, self.weight_dim = check_widths(
            num_agents=num_agents, num_targets=num_targets, feature_dim=feature_dim, weight_dim=weight_dim
        )
        of_pair = self.feature_dim + 1  # with its mask
        of_agent = self.num_targets * of_pair
        self.of_pair, self.of_agent, self.of_scene = (
            _relu_layers(width, self.weight_dim, self.weight_dim)
            for width in (of_pair, of_agent, self.num_agents * of_agent)
        )

    def forward(self, pairs: Tensor, mask: Tensor | None = None) -> Features:
        """Encode scenes as :class:`hitmac.perception.AgentTargetEncoder` does; absent pairs and agents are not zero."""
        mask = check_tokens(pairs, mask, self.feature_dim, "pairs", "agents, targets")
        if pairs.shape[-3:-1] != (self.num_agents, self.num_targets):
            raise ValueError(
                f"pairs has {pairs.shape[-3]} agents and {pairs.shape[-2]} targets, but this encoder expects "
                f"{self.num_agents} and {self.num_targets}"
            )
        valid = pairs.new_ones(pairs.shape[:-1]) if mask is None else mask.to(pairs.dtype)  # (..., n, m)
        tokens = torch.cat((zero_masked(pairs, mask), valid.unsqueeze(-1)), -1)  # (..., n, m, d + 1)
        of_agent = tokens.flatten(-2)
        return Features(self.of_pair(tokens), self.of_agent(of_agent), self.of_scene(of_agent.flatten(-2)))


def _relu_layers(*widths: int) -> nn.Sequential:
    """Build linear layers, each with a ReLU, from the first width through the others."""
    return nn.Sequential(*(layer for pair in pairwise(widths) for layer in (xavier_linear(*pair), nn.ReLU())))


_WHOLE_NUMBERS = {"num_heads": 1, "embed_layers": 1, "num_blocks": 1, "num_frequencies": 0, "weight_dim": 1}
"""Options that are whole numbers, each with its least value."""
_MOST = 2**12
"""Largest value of these options: a checkpoint of someone else could otherwise ask for a network without end."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Options of an encoder.

    Raises:
        ValueError: options out of range; the message names all of them.
    """

    encoder: str = "attention"
    """attention; recurrent, the paper's ablation with a bidirectional GRU; mlp, for fixed numbers of sensors and
    targets, with no option other than the width."""
    attend_over: str = "agents"
    """Axis of attention: agents, targets, pairs or axes."""
    pooling: str = "sum"
    """Pooling of features: sum, the paper's, mean or max."""
    num_heads: int = 1
    """Heads of the attention, a divisor of the width."""
    scaled: bool = False
    """Divide the attention scores by the square root of a head's width."""
    embed_layers: int = 1
    """Linear maps with a ReLU before the attention, 1 or more; the paper's coordinator has 2."""
    num_blocks: int = 1
    """Blocks of attention, 1 or more; the paper has 1."""
    num_frequencies: int = 0
    """Number of sines and of cosines appended to each input feature, 0 or more."""
    weight_dim: int = 64
    """Width of the encoder, 1 or more; even if recurrent."""

    def __post_init__(self) -> None:
        if problems := self.problems():
            raise ValueError("; ".join(f"{name} is {getattr(self, name)!r}; {what}" for name, what in problems.items()))
        for name in _WHOLE_NUMBERS:  # numpy's cannot be written as JSON
            object.__setattr__(self, name, int(getattr(self, name)))

    def problems(self) -> dict[str, str]:
        """Return the options out of range, each with a description of the allowed values."""
        found = {}
        for name, known in (("encoder", ENCODERS), ("attend_over", ATTEND_OVER), ("pooling", FIXED_POOLINGS)):
            if not isinstance(value := getattr(self, name), str) or value not in known:
                found[name] = f"it must be {one_of(known, value)}"
        for name, least in _WHOLE_NUMBERS.items():
            if not is_whole(getattr(self, name), least):
                found[name] = f"it must be a whole number, {least} or more"
            elif getattr(self, name) > _MOST:
                found[name] = f"it must be at most {_MOST}"
        if not isinstance(self.scaled, bool):
            found["scaled"] = "it must be True or False"
        if not found and self.encoder == "recurrent" and self.weight_dim % 2:
            found["weight_dim"] = "it must be even for a recurrent encoder"
        if not found and self.weight_dim % self.num_heads:
            found["num_heads"] = f"it must be a divisor of the width, {self.weight_dim}"
        return found

    def with_options(self, **options: Any) -> "EncoderConfig":
        """Return this configuration with some options changed; raise TypeError for unknown ones."""
        for name in options:
            if name not in self.__dict__:
                raise TypeError(f"unknown encoder option {name!r}; it must be {one_of(self.__dict__, name)}")
        return dataclasses.replace(self, **options)


def take_encoder_config(options: dict[str, Any]) -> EncoderConfig:
    """Remove the encoder's options from keyword arguments: ``encoder_config``, and single ones that override it."""
    config = options.pop("encoder_config", None) or EncoderConfig()
    if not isinstance(config, EncoderConfig):
        raise TypeError(f"encoder_config is {config!r}; expected an EncoderConfig")
    return config.with_options(**{name: options.pop(name) for name in config.__dict__ if name in options})


def feature_layers(feature_dim: int, config: EncoderConfig) -> nn.Sequential:
    """Build the layers that embed features of a width, equation (5)."""
    inputs = feature_dim * (1 + 2 * config.num_frequencies)
    layers = _relu_layers(inputs, *[config.weight_dim] * config.embed_layers)
    return layers.insert(0, FourierFeatures(config.num_frequencies)) if config.num_frequencies else layers


def _layers(config: EncoderConfig) -> list[nn.Module]:
    """Build the layers of the way of attending: HiT-MAC's attention, or the paper's ablation, the GRU."""
    kind: type[nn.Module] = RecurrentLayer
    options: dict[str, Any] = {"pooling": config.pooling}
    if config.encoder == "attention":
        kind, options = AttentionLayer, options | {"num_heads": config.num_heads, "scaled": config.scaled}
    return [kind(config.weight_dim, config.weight_dim, **options) for _ in ATTEND_OVER[config.attend_over].layers]


class AgentTargetEncoder(nn.Module):
    """Encoder of n agents' features of m targets, with the tanh-projected attention of HiT-MAC.

    The features x of each pair pass through linear layers with a ReLU, ``e = max(0, W x + b)``, equation (5), then
    through attention in one of the ways of :data:`hitmac.perception.encoder.ATTEND_OVER`: over each agent's targets,
    then over the agents (``"agents"``); over each agent's own ``"targets"`` only; over all n * m ``"pairs"`` as one
    sequence, as in the paper's coordinator; from each pair along both ``"axes"``, to those of its agent and its target.

    Each further block (Vaswani and others, NeurIPS 2017) attends, with its own layers, over
    ``z + W2 relu(W1 (z + a))``, where z is the pair's feature and a its agent's after the previous block. An agent can
    thus take into account how the others treat a target.

    The encoder accepts any n and m at run time. Permuting agents or targets permutes the outputs in the same way,
    except with the encoder ``"recurrent"``, whose outputs depend on the order.

    Args:
        feature_dim: d, width of a pair's features.
        weight_dim: f, width of the outputs; None: that of `config`.
        config: the options; None: the defaults of :class:`EncoderConfig`.
        **options: single options of :class:`EncoderConfig`, which override those of `config`. The encoder ``"mlp"`` is
            not one of this class but :class:`hitmac.perception.FlatEncoder`.

    Raises:
        TypeError: an unknown option.
    """

    def __init__(
        self, feature_dim: int, weight_dim: int | None = None, *, config: EncoderConfig | None = None, **options: Any
    ) -> None:
        super().__init__()
        if weight_dim is not None:
            options["weight_dim"] = weight_dim
        config = (config or EncoderConfig()).with_options(**options)
        (feature_dim,) = check_widths(feature_dim=feature_dim)
        check_choice("encoder", config.encoder, ("attention", "recurrent"))
        self.config, self.feature_dim, self.weight_dim = config, feature_dim, config.weight_dim
        self.attend_over, self.pooling = config.attend_over, config.pooling
        self.embed = feature_layers(feature_dim, config)
        for name, layer in zip(ATTEND_OVER[config.attend_over].layers, _layers(config), strict=True):
            self.add_module(name, layer)
        self.later_blocks = nn.ModuleList(_Block(config) for _ in range(config.num_blocks - 1))

    def forward(
        self,
        pairs: Tensor,
        mask: Tensor | None = None,
        *,
        targets: Tensor | None = None,
        neighbours: Tensor | None = None,
        need_weights: bool = False,
        need_pairs: bool = True,
    ) -> Features | tuple[Features, Weights]:
        """Encode a batch of scenes.

        With `targets`, each agent has a list of k targets, such as the nearest, instead of all m; the result equals
        that of all pairs with a mask that is 1 for the listed ones. With `neighbours`, ``"agents"`` attends from each
        agent to those in its list, which should include itself. The cost then grows with the lists.

        Args:
            pairs: (..., n, m, feature_dim) with any number of leading axes, or none; n and m are 0 or more.
            mask: (..., n, m), 0 and 1 in any dtype (int8 in the environments, float32 in Stable-Baselines3); 1 marks a
                valid pair. None: all are valid. An agent without a valid pair counts as absent.
            targets: (..., n, k), whole numbers: the target at each place of `pairs` (..., n, k, feature_dim) and
                `mask`, without repetition; -1 marks an empty place. None: place j is target j.
            neighbours: (..., n, l), whole numbers: the agents near each agent, without repetition; -1 marks an empty
                place. None: all.
            need_weights: also return the attention weights.
            need_pairs: False: with `targets`, omit the features per target, (..., n, 0, f), which saves time.

        Returns:
            :class:`Features`, zero for absent pairs and agents; with `need_weights` also the :class:`Weights` of the
            last block.

        Raises:
            ValueError: `targets` for an encoder that attends over ``"pairs"``, `neighbours` for one that does not
                attend over ``"agents"``; on a CPU, a list that repeats an index, or neighbours of n or more.
            TypeError: `targets` or `neighbours` are no whole numbers.
        """
        mask = check_tokens(pairs, mask, self.feature_dim, "pairs", "agents, targets")
        if not is_recorded() and pairs.shape[-2] == 0:  # no agent has a pair
            mask = pairs.new_empty(pairs.shape[:-1], dtype=torch.bool)
        way = ATTEND_OVER[self.attend_over]
        scenes = AllPairs(mask, self.pooling, need_weights)
        if neighbours is not None and self.attend_over != "agents":
            raise ValueError(f"neighbours is given, but attend_over={self.attend_over!r} does not use it")
        if targets is not None or neighbours is not None:
            if not way.takes_lists:
                known = ", ".join(name for name, each in ATTEND_OVER.items() if each.takes_lists)
                raise ValueError(
                    f"attend_over is {self.attend_over!r}, one sequence of all pairs of a scene; with targets it must "
                    f"be one of {known}"
                )
            scenes = SparsePairs(scenes, pairs, targets, neighbours, way.by_target)
        tokens = scenes.embed(self.embed, pairs)  # (..., n, m, f)
        features, weights = way.attend([getattr(self, name) for name in way.layers], scenes, tokens)
        for block in self.later_blocks:
            tokens = scenes.embed_features(block, features)
            features, weights = way.attend(block.layers, scenes, tokens)  # type: ignore[arg-type]
        features = features._replace(per_target=scenes.pairs(features.per_target, need_pairs))
        return (features, weights) if need_weights else features


class _Block(nn.Module):
    """Further block: a feed-forward network for each pair, and the layers of the way of attending."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.weight_dim
        self.feed_forward = nn.Sequential(xavier_linear(width, width), nn.ReLU(), xavier_linear(width, width))
        self.layers = nn.ModuleList(_layers(config))

    def forward(self, per_target: Tensor, of_agent: Tensor) -> Tensor:
        """Return the tokens to attend over, from the features of the pairs and of their agents."""
        return per_target + self.feed_forward(per_target + of_agent)


class EncoderKind(NamedTuple):
    """Kind of encoder."""

    build: Callable[[EncoderConfig, int, int, int], nn.Module]  # of the options, n, m and the width d of a pair
    any_size: bool = True  # accepts any n and m at run time


_of_sequences = EncoderKind(lambda config, n, m, feature_dim: AgentTargetEncoder(feature_dim, config=config))
ENCODERS = {
    "attention": _of_sequences,
    "recurrent": _of_sequences,
    "mlp": EncoderKind(lambda config, n, m, d: FlatEncoder(n, m, d, config.weight_dim), any_size=False),
}
"""All kinds of encoder."""
