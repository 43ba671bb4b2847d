"""Masks of 0 and 1 in any dtype, at every entrance."""

import gymnasium
import pytest
import torch
from torch.export import Dim, export

from hitmac import envs  # noqa: F401, registers the environments
from hitmac.perception import (
    AgentTargetEncoder,
    AMCCritic,
    AttentionLayer,
    EncoderBlock,
    FlatEncoder,
    MultiHeadAttention,
    RecurrentLayer,
    attend,
    pad_scenes,
    unpad_scenes,
)

DTYPES = [
    torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64,
    torch.float16, torch.bfloat16,
]  # fmt: skip
TOKENS = torch.tensor([[True, True, False, True], [False, True, True, False]])
PAIRS = torch.tensor([[[True, True, False, True], [False] * 4, [True] * 4], [[True, False, False, True]] * 3])

# What takes a mask, by name: the module, the shape of its input, the mask, the call.
ENTRANCES = {
    "AttentionLayer": (AttentionLayer(6, 8, num_heads=2), TOKENS, lambda net, x, mask: net(x, mask)),
    "RecurrentLayer": (RecurrentLayer(6, 8), TOKENS, lambda net, x, mask: net(x, mask)),
    "AMCCritic": (AMCCritic(6), TOKENS, lambda net, x, mask: net(x, mask)),
    "MultiHeadAttention": (MultiHeadAttention(6, 2), TOKENS, lambda net, x, mask: net(x, key_mask=mask)),
    "EncoderBlock": (EncoderBlock(6, 2), TOKENS, lambda net, x, mask: net(x, key_mask=mask)),
    "attend": (torch.nn.Identity(), TOKENS, lambda net, x, mask: attend(x, x, x, mask=mask.unsqueeze(-2))),
    "AgentTargetEncoder": (AgentTargetEncoder(6, 8), PAIRS, lambda net, x, mask: net(x, mask)),
    "FlatEncoder": (FlatEncoder(3, 4, 6, 8), PAIRS, lambda net, x, mask: net(x, mask)),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ENTRANCES)
def test_any_dtype_is_the_bool_mask(name, dtype):
    net, mask, call = ENTRANCES[name]
    x = torch.randn(*mask.shape, 6)
    expected, given = call(net, x, mask), call(net, x, mask.to(dtype))
    for one, other in zip(*((y if isinstance(y, tuple) else (y,)) for y in (given, expected)), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert torch.equal(one, other)
            assert one.dtype == other.dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_batch_comes_apart_by_a_mask_of_any_dtype(dtype):
    pairs, mask = pad_scenes([torch.randn(2, 3, 6), torch.randn(4, 1, 6)])
    for one, other in zip(unpad_scenes(pairs, mask.to(dtype)), unpad_scenes(pairs, mask), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("over", ["agents", "targets", "pairs", "axes"])
def test_the_encoder_takes_the_masks_of_our_environments(over):
    """Those of gymnasium's environments, and those of Stable-Baselines3's rollouts."""
    net = AgentTargetEncoder(8, 16, attend_over=over)
    batch = gymnasium.make_vec("dsn/Coverage-v0", num_envs=3, scenario="random")
    observation, _ = batch.reset(seed=0)
    pairs, mask = (torch.from_numpy(observation[name]) for name in ("pairs", "mask"))
    assert mask.dtype == torch.int8
    expected = net(pairs, mask.bool())
    for kind in (mask, mask.float()):
        assert all(torch.equal(one, other) for one, other in zip(net(pairs, kind), expected, strict=True))


@pytest.mark.slow
def test_a_mask_of_any_dtype_is_exported_compiled_and_mapped():
    net = AgentTargetEncoder(6, 8).eval()
    pairs, mask = torch.randn(*PAIRS.shape, 6), PAIRS.to(torch.int8)
    sizes = {0: Dim("batch", min=1, max=99), 1: Dim("n", min=2, max=99), 2: Dim("m", min=2, max=99)}
    expected = net(pairs, PAIRS)
    exported = export(
        net, (torch.randn(3, 5, 6, 6), torch.ones(3, 5, 6, dtype=torch.int8)), dynamic_shapes=(sizes,) * 2
    )
    compiled = torch.compile(net, backend="aot_eager", dynamic=True, fullgraph=True)
    mapped = torch.func.vmap(net)
    for call in (exported.module(), compiled, mapped):
        for one, other in zip(call(pairs, mask), expected, strict=True):
            torch.testing.assert_close(one, other)
