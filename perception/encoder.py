"""Encoders of agent-target features into per-target, per-agent and global features, and their configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from hitmac.perception.checks import check_choice, check_tokens, check_widths, is_whole, one_of
from hitmac.perception.fast_paths import in_chunks, is_plain
from hitmac.perception.functional import FIXED_POOLINGS, Features, Weights, is_recorded, pool, zero_masked
from hitmac.perception.recurrent import RecurrentLayer
from hitmac.perception.sparse import Listed, between, list_pairs, within
from hitmac.perception.tanh_attention import AttentionLayer
from hitmac.perception.transformer import FourierFeatures

if TYPE_CHECKING:
    from tensordict.nn import TensorDictModule

Layers = Sequence[nn.Module]


class Attending(NamedTuple):
    """Way of attending."""

    attend: Callable[[Layers, Tensor, Tensor | None, str, bool], tuple[Features, Weights]]
    """Function from the layers and the embedded pairs to the features and the weights."""
    layers: tuple[str, ...] = ("attention",)
    """Names of its layers in the encoder, and so in its tensors."""
    listed: Callable[[Layers, Listed, Tensor, str, bool], tuple[Features, Weights]] | None = None
    """Function for listed pairs; None: they cannot be attended over in this way."""
    columns: bool = False
    """Pairs of the same target attend to each other."""


def over_agents(
    layers: Layers, embedded: Tensor, mask: Tensor | None, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend over each agent's targets, then over the agents, so that each agent takes the others into account."""
    per_target, per_agent, of_targets = _apply(layers[0], embedded, mask, need_weights)
    of_others, global_feature, of_agents = _apply(layers[1], per_agent, _present(mask), need_weights)
    return Features(per_target, per_agent + of_others, global_feature), Weights(targets=of_targets, agents=of_agents)


def over_targets(
    layers: Layers, embedded: Tensor, mask: Tensor | None, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend over each agent's own targets only."""
    per_target, per_agent, of_targets = _apply(layers[0], embedded, mask, need_weights)
    global_feature = pool(per_agent, _present(mask), pooling)
    return Features(per_target, per_agent, global_feature), Weights(targets=of_targets)


def over_pairs(
    layers: Layers, embedded: Tensor, mask: Tensor | None, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend over all n * m pairs as one sequence, as the paper's coordinator does."""
    sequence = None if mask is None else mask.flatten(-2)  # (..., n * m)
    z, global_feature, of_pairs = _apply(layers[0], embedded.flatten(-3, -2), sequence, need_weights)
    per_target = z.unflatten(-2, embedded.shape[-3:-1])
    return Features(per_target, pool(per_target, mask, pooling), global_feature), Weights(pairs=of_pairs)


def over_axes(
    layers: Layers, embedded: Tensor, mask: Tensor | None, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend from every pair over the pairs of its agent and over those of its target, and add both to its embedding.

    Such layers are equivariant to permutations of rows and columns (Hartford and others, "Deep models of interactions
    across sets", ICML 2018). The cost is n m (n + m) instead of (n m)^2.
    """
    of_agent, _, of_targets = _apply(layers[0], embedded, mask, need_weights)
    columns = None if mask is None else mask.mT  # (..., m, n)
    of_target, _, of_agents = _apply(layers[1], embedded.transpose(-2, -3), columns, need_weights)
    per_target = zero_masked(embedded + of_agent + of_target.transpose(-2, -3), mask)
    per_agent = pool(per_target, mask, pooling)
    global_feature = pool(per_agent, _present(mask), pooling)
    return Features(per_target, per_agent, global_feature), Weights(targets=of_targets, agents=of_agents)


def listed_agents(
    layers: Layers, listed: Listed, embedded: Tensor, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend over each agent's listed targets, then over the agents near it."""
    per_target, of_targets = within(layers[0], embedded, listed.rows, need_weights)
    per_agent, present = listed.pool(per_target, pooling), listed.present
    if listed.neighbours is None:
        of_others, global_feature, of_agents = _apply(
            layers[1], per_agent.unflatten(0, present.shape), present, need_weights
        )
        of_others = of_others.flatten(0, 1)
    else:
        of_others, of_agents = between(layers[1], per_agent, listed, need_weights)
        of_others = zero_masked(of_others, present.flatten())
        global_feature = pool(of_others.unflatten(0, present.shape), present, pooling)
        if of_agents is not None:  # (B n, h, l)
            of_agents = of_agents.unflatten(0, present.shape).transpose(1, 2) * present[:, None, :, None]
    return Features(per_target, per_agent + of_others, global_feature), Weights(targets=of_targets, agents=of_agents)


def listed_targets(
    layers: Layers, listed: Listed, embedded: Tensor, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend over each agent's own listed targets only."""
    per_target, of_targets = within(layers[0], embedded, listed.rows, need_weights)
    per_agent, present = listed.pool(per_target, pooling), listed.present
    global_feature = pool(per_agent.unflatten(0, present.shape), present, pooling)
    return Features(per_target, per_agent, global_feature), Weights(targets=of_targets)


def listed_axes(
    layers: Layers, listed: Listed, embedded: Tensor, pooling: str, need_weights: bool
) -> tuple[Features, Weights]:
    """Attend from every listed pair over those of its agent and those of its target, and add both to its embedding."""
    assert listed.columns is not None
    of_agent, of_targets = within(layers[0], embedded, listed.rows, need_weights)
    of_target, of_agents = within(layers[1], embedded, listed.columns, need_weights)
    if torch.is_grad_enabled() or is_recorded():
        per_target = embedded + of_agent + of_target
    else:
        per_target = of_target.add_(of_agent).add_(embedded)  # in place: new memory costs more than the sum
    per_agent, present = listed.pool(per_target, pooling), listed.present
    global_feature = pool(per_agent.unflatten(0, present.shape), present, pooling)
    return Features(per_target, per_agent, global_feature), Weights(targets=of_targets, agents=of_agents)


ATTEND_OVER: dict[str, Attending] = {
    "agents": Attending(over_agents, ("attention", "between_agents"), listed_agents),
    "targets": Attending(over_targets, listed=listed_targets),
    "pairs": Attending(over_pairs),
    "axes": Attending(over_axes, ("attention", "between_agents"), listed_axes, columns=True),
}
"""All ways of attending."""


def _apply(
    layer: nn.Module, tokens: Tensor, mask: Tensor | None, need_weights: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the layer's outputs, their pooled feature and the weights, None if they are not asked for."""
    outputs, pooled, *weights = layer(tokens, mask, need_weights=need_weights)
    return outputs, pooled, weights[0] if weights else None


def _present(mask: Tensor | None) -> Tensor | None:
    """Return which agents (..., n) have a valid pair."""
    return None if mask is None else mask.any(-1)


class FlatEncoder(nn.Module):
    """Encoder of n agents' features of m targets without attention, for one fixed n and m.

    Two linear layers with ReLU, which all agents share, map an agent's m concatenated pairs, each with its mask. Two
    others map the n * m pairs of the scene. The outputs depend on the order of agents and targets.

    Args:
        num_agents, num_targets: n and m.
        feature_dim: d, width of a pair's features.
        weight_dim: f, width of the outputs.

    Raises:
        ValueError: a number under 1.
    """

    def __init__(self, num_agents: int, num_targets: int, feature_dim: int, weight_dim: int) -> None:
        super().__init__()
        check_widths(num_agents=num_agents, num_targets=num_targets, feature_dim=feature_dim, weight_dim=weight_dim)
        self.num_agents, self.num_targets = num_agents, num_targets
        self.feature_dim, self.weight_dim = feature_dim, weight_dim
        width = num_targets * (feature_dim + 1)
        self.of_pair = _relu_layers(feature_dim + 1, weight_dim)
        self.of_agent = _relu_layers(width, weight_dim)
        self.of_scene = _relu_layers(num_agents * width, weight_dim)

    def forward(self, pairs: Tensor, mask: Tensor | None = None) -> Features:
        """Encode scenes as :class:`hitmac.perception.AgentTargetEncoder` does; raise ValueError for another n or m."""
        mask = check_tokens(pairs, mask, self.feature_dim, axes=2)
        if pairs.shape[-3:-1] != (self.num_agents, self.num_targets):
            raise ValueError(
                f"pairs are of {pairs.shape[-3]} agents and {pairs.shape[-2]} targets; "
                f"this encoder is for {self.num_agents} and {self.num_targets}"
            )
        there = pairs.new_ones(pairs.shape[:-1]) if mask is None else mask.to(pairs.dtype)  # (..., n, m)
        tokens = torch.cat((zero_masked(pairs, mask), there.unsqueeze(-1)), -1)  # (..., n, m, d + 1)
        of_agent = tokens.flatten(-2)
        return Features(self.of_pair(tokens), self.of_agent(of_agent), self.of_scene(of_agent.flatten(-2)))

    def extra_repr(self) -> str:
        """Return the text that ``print`` shows."""
        return f"num_agents={self.num_agents}, num_targets={self.num_targets}"


def _relu_layers(width: int, hidden: int) -> nn.Sequential:
    """Build two linear layers, each with a ReLU."""
    layers = nn.Sequential()
    for inputs in (width, hidden):
        linear = nn.Linear(inputs, hidden)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers.extend((linear, nn.ReLU()))
    return layers


OLD_NAMES = {"frequencies": "num_frequencies", "layer": "encoder"}
"""Earlier names of encoder options, which keyword arguments and files may still use."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Options of an encoder.

    Raises:
        ValueError: options out of their range; the message names each with its value and what is allowed.
    """

    encoder: str = "attention"
    """attention; recurrent, the paper's ablation with a bidirectional GRU; mlp, only for the numbers of sensors and
    targets that it was trained on, which has no option other than the width."""
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
    """Number of sines and of cosines appended to every feature before them, 0 or more."""
    weight_dim: int = 64
    """Width of the encoder, 1 or more; even if recurrent."""

    def __post_init__(self) -> None:
        if problems := self.problems():
            raise ValueError("; ".join(f"{name} is {getattr(self, name)!r}; {what}" for name, what in problems.items()))

    def problems(self) -> dict[str, str]:
        """Return for every option that is out of its range the words that say what is allowed."""
        found = {}
        for name, known in (("encoder", ENCODERS), ("attend_over", ATTEND_OVER), ("pooling", FIXED_POOLINGS)):
            if not (isinstance(value := getattr(self, name), str) and value in known):
                found[name] = f"it must be {one_of(known, value)}"
        for name in ("num_heads", "embed_layers", "num_blocks", "num_frequencies", "weight_dim"):
            if not is_whole(getattr(self, name), least := 0 if name == "num_frequencies" else 1):
                found[name] = f"it must be a whole number, {least} or more"
        if not isinstance(self.scaled, bool):
            found["scaled"] = "it must be True or False"
        if not {"weight_dim", "encoder"} & found.keys() and self.encoder == "recurrent" and self.weight_dim % 2:
            found["weight_dim"] = "it must be even for a recurrent encoder"
        if not {"weight_dim", "num_heads"} & found.keys() and self.weight_dim % self.num_heads:
            found["num_heads"] = f"it must be a divisor of the width, {self.weight_dim}"
        return found

    def with_options(self, **options: Any) -> EncoderConfig:
        """Return this configuration with some options changed; also by earlier names.

        Raises:
            TypeError: unknown options.
            ValueError: options out of their range.
        """
        options = {OLD_NAMES.get(name, name): value for name, value in options.items()}
        known = [field.name for field in dataclasses.fields(EncoderConfig)]
        if unknown := [name for name in options if name not in known]:
            raise TypeError(f"unknown encoder option {unknown[0]!r}; it must be {one_of(known, unknown[0])}")
        return dataclasses.replace(self, **options)


def take_encoder_config(options: dict[str, Any]) -> EncoderConfig:
    """Remove the encoder's options from keyword arguments and return them as one configuration.

    They are ``encoder_config``, if given, and over it every option by its own name.

    Raises:
        TypeError: `encoder_config` is no :class:`EncoderConfig`.
        ValueError: options out of their range.
    """
    config = options.pop("encoder_config", None) or EncoderConfig()
    if not isinstance(config, EncoderConfig):
        raise TypeError(f"encoder_config is {config!r}; expected an EncoderConfig")
    names = {field.name for field in dataclasses.fields(EncoderConfig)} | OLD_NAMES.keys()
    return config.with_options(**{name: options.pop(name) for name in names & options.keys()})


def attention_layer(config: EncoderConfig) -> nn.Module:
    """Build HiT-MAC's tanh-projected attention."""
    width, heads = config.weight_dim, config.num_heads
    return AttentionLayer(width, width, pooling=config.pooling, num_heads=heads, scaled=config.scaled)


def recurrent_layer(config: EncoderConfig) -> nn.Module:
    """Build the paper's ablation, a bidirectional GRU, which depends on the order of agents and targets."""
    return RecurrentLayer(config.weight_dim, config.weight_dim, pooling=config.pooling)


LAYERS: dict[str, Callable[[EncoderConfig], nn.Module]] = {"attention": attention_layer, "recurrent": recurrent_layer}
"""Layers over a sequence of :class:`AgentTargetEncoder`, by the kind of encoder."""


class AgentTargetEncoder(nn.Module):
    """Encoder of n agents' features of m targets, with the tanh-projected attention of HiT-MAC.

    Every pair's features pass through linear layers with a ReLU, and then through attention in one of the ways of
    :data:`hitmac.perception.encoder.ATTEND_OVER`:

    - ``"agents"``: over each agent's targets, then over the agents, so that each agent takes the others into account;
    - ``"targets"``: over each agent's own targets only;
    - ``"pairs"``: over all n * m pairs as one sequence, as in the paper's coordinator;
    - ``"axes"``: from every pair over the pairs of its agent, and over the pairs of its target.

    With more than one block, the next one attends, with layers of its own, over ``z + W2 relu(W1 (z + a))``, where z is
    the pair's feature and a its agent's by the block before. So an agent can take into account what the others will do
    about a target. Source: blocks of a transformer (Vaswani and others, "Attention is all you need", NeurIPS 2017).

    The encoder accepts any n and m at run time. Permuting agents or targets permutes the outputs in the same way.

    Args:
        feature_dim: d, width of a pair's features.
        weight_dim: f, width of the outputs; None: that of `config`.
        config: the options; None: the defaults of :class:`EncoderConfig`.
        **options: single options of :class:`EncoderConfig`, which replace those of `config`; with the encoder
            ``"recurrent"`` the outputs depend on the order of agents and targets.

    Raises:
        ValueError: an option out of its range, or the encoder ``"mlp"``, which is
            :class:`hitmac.perception.FlatEncoder`.
        TypeError: an unknown option.
    """

    def __init__(
        self,
        feature_dim: int,
        weight_dim: int | None = None,
        *,
        config: EncoderConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if weight_dim is not None:
            options["weight_dim"] = weight_dim
        config = (config or EncoderConfig()).with_options(**options)
        check_widths(feature_dim=feature_dim)
        check_choice("encoder", config.encoder, LAYERS)
        self.config, self.feature_dim, self.weight_dim = config, feature_dim, config.weight_dim
        self.attend_over, self.pooling = config.attend_over, config.pooling
        self.embed = nn.Sequential()
        if config.num_frequencies:
            self.embed.append(FourierFeatures(config.num_frequencies))
        inputs = feature_dim * (1 + 2 * config.num_frequencies)
        for width in (inputs, *[config.weight_dim] * (config.embed_layers - 1)):
            self.embed.extend((_linear(width, config.weight_dim), nn.ReLU()))
        for name in ATTEND_OVER[config.attend_over].layers:
            self.add_module(name, LAYERS[config.encoder](config))
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

        With `targets`, an agent's pairs are a list of k targets, such as the nearest, and not all m. The result is that
        of all pairs with a mask that is 1 for the listed ones. With `neighbours`, ``"agents"`` attends from each agent
        to those of its list, which should hold itself, and not to all. The cost then grows with the lists.

        Args:
            pairs: (..., n, m, feature_dim) with any number of leading axes, or none; n and m are 0 or more.
            mask: (..., n, m), 0 and 1 in any dtype (the environments' int8, Stable-Baselines3's float32); 1 marks a
                valid pair. None: all are valid. An agent without any valid pair counts as absent.
            targets: (..., n, k), whole numbers: the target of every place of `pairs` and `mask`, which are then
                (..., n, k, feature_dim) and (..., n, k). No agent lists a target twice; -1 in an empty place. None:
                place j is target j.
            neighbours: (..., n, l), whole numbers: the agents near each agent, -1 in an empty place. None: all.
            need_weights: also return the attention weights.
            need_pairs: False: with `targets`, leave out the features per target, (..., n, 0, f), which saves time.

        Returns:
            :class:`Features`, zero for absent pairs and agents, and with `need_weights` also :class:`Weights`, those of
            the last block.

        Raises:
            ValueError: the last axis is not feature_dim, the mask's shape is not (..., n, m), that of `targets` or
                `neighbours` does not fit it, or `targets` is given to an encoder that attends over ``"pairs"``.
            TypeError: the mask, `targets` or `neighbours` is not a tensor of the right kind.
        """
        mask = check_tokens(pairs, mask, self.feature_dim, axes=2)
        way = ATTEND_OVER[self.attend_over]
        if targets is not None or (neighbours is not None and self.attend_over == "agents"):
            if way.listed is None:
                raise ValueError(
                    f"targets is given, and attend_over is {self.attend_over!r}, which makes one sequence of all pairs "
                    f"of a scene; with targets it must be {one_of((k for k, v in ATTEND_OVER.items() if v.listed), '')}"
                )
            columns = way.columns
            listed = list_pairs(pairs, mask, targets, neighbours, columns=columns, every_place=need_weights)
            features, weights = self._over_lists(pairs, listed, way, need_weights, need_pairs)
            return (features, weights) if need_weights else features
        embedded = self.embed(zero_masked(pairs, mask))  # (..., n, m, f)
        layers = [getattr(self, name) for name in way.layers]
        features, weights = way.attend(layers, embedded, mask, self.pooling, need_weights)
        for block in self.later_blocks:
            tokens = block(features.per_target, features.per_agent.unsqueeze(-2))
            features, weights = way.attend(block.layers, tokens, mask, self.pooling, need_weights)  # type: ignore[arg-type]
        return (features, weights) if need_weights else features

    def _over_lists(
        self, pairs: Tensor, listed: Listed, way: Attending, need_weights: bool, need_pairs: bool
    ) -> tuple[Features, Weights]:
        """Encode listed pairs."""
        assert way.listed is not None
        layers = [getattr(self, name) for name in way.layers]
        at_once = torch.is_grad_enabled() or not is_plain(pairs, self)
        tokens = in_chunks(self.embed, listed.take(pairs), at_once=at_once)
        found, weights = way.listed(layers, listed, tokens, self.pooling, need_weights)
        for block in self.later_blocks:
            following = partial(block, per_agent=found.per_agent)
            tokens = in_chunks(following, found.per_target, listed.agent, at_once=at_once)
            found, weights = way.listed(block.layers, listed, tokens, self.pooling, need_weights)  # type: ignore[arg-type]
        return listed.features(found, need_pairs), listed.weights(weights)

    def extra_repr(self) -> str:
        """Return the text that ``print`` shows."""
        return f"attend_over={self.attend_over!r}, pooling={self.pooling!r}"


class _Block(nn.Module):
    """Block after the first: a feed-forward network for every pair, and the layers of the way of attending."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.weight_dim
        self.feed_forward = nn.Sequential(_linear(width, width), nn.ReLU(), _linear(width, width))
        self.layers = nn.ModuleList(LAYERS[config.encoder](config) for _ in ATTEND_OVER[config.attend_over].layers)

    def forward(self, per_target: Tensor, of_agent: Tensor, per_agent: Tensor | None = None) -> Tensor:
        """Return the tokens; `of_agent` holds the features of the pairs' agents, or their rows in `per_agent`."""
        of_agent = of_agent if per_agent is None else per_agent.index_select(0, of_agent)
        return per_target + self.feed_forward(per_target + of_agent)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """Build a linear map that starts Xavier-uniform, with biases 0."""
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


class EncoderKind(NamedTuple):
    """Kind of encoder."""

    build: Callable[[EncoderConfig, int, int, int], nn.Module]
    """Function from the options, n, m and the width d of a pair's features to the encoder."""
    any_size: bool = True
    """The encoder takes any n and m at run time."""


def sequence_encoder(config: EncoderConfig, num_agents: int, num_targets: int, feature_dim: int) -> nn.Module:
    """Build an encoder out of layers over sequences."""
    return AgentTargetEncoder(feature_dim, config=config)


def flat_encoder(config: EncoderConfig, num_agents: int, num_targets: int, feature_dim: int) -> nn.Module:
    """Build a plain network over all pairs at once, the baseline for attention."""
    return FlatEncoder(num_agents, num_targets, feature_dim, config.weight_dim)


ENCODERS = {name: EncoderKind(sequence_encoder) for name in LAYERS} | {"mlp": EncoderKind(flat_encoder, any_size=False)}
"""All kinds of encoder."""


def tensordict_module(
    encoder: AgentTargetEncoder,
    in_keys: tuple[str, ...] = ("pairs", "mask"),
    out_keys: tuple[str, str, str] = ("per_target", "per_agent", "global_feature"),
) -> TensorDictModule:
    """Wrap an encoder as a TensorDict module, for TorchRL.

    Args:
        encoder: the encoder to wrap.
        in_keys: keys of the pairs (..., n, m, d), and optionally of the mask, in a TensorDict.
        out_keys: keys under which the three features are stored.

    Raises:
        ValueError: other than 1 or 2 `in_keys`, or other than 3 `out_keys`.
        ModuleNotFoundError: tensordict is missing; the message names the extra to install.
    """
    if len(in_keys) not in (1, 2) or len(out_keys) != 3:
        raise ValueError(f"in_keys are {in_keys} and out_keys {out_keys}; give 1 or 2 in_keys and 3 out_keys")
    try:
        from tensordict.nn import TensorDictModule
    except ModuleNotFoundError:
        raise ModuleNotFoundError("TensorDict modules need tensordict: pip install 'hitmac[tensordict]'") from None
    return TensorDictModule(encoder, in_keys=list(in_keys), out_keys=list(out_keys))
