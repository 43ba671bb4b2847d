"""Sines and cosines: of places in a Transformer, and of features at the encoder's entrance."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim, export

from hitmac.perception import AgentTargetEncoder, PositionalEncoding, TokenEmbedding

ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-7, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def places_by_hand(length, width):
    """Sine and cosine of every place, column by column, in double precision."""
    places, table = np.arange(length), np.empty((length, width))
    for column in range(width):
        angles = places / 10000.0 ** (2 * (column // 2) / width)
        table[:, column] = np.cos(angles) if column % 2 else np.sin(angles)
    return torch.from_numpy(table)


def features_by_hand(x, num_frequencies):
    """(..., d) -> (..., d * (1 + 2 K)) in double precision."""
    angles = np.pi * x.double().unsqueeze(-1).numpy() * np.arange(1, num_frequencies + 1)
    return torch.cat((x.double(), *(torch.from_numpy(wave(angles)).flatten(-2) for wave in (np.sin, np.cos))), -1)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("width", [1, 2, 5, 64])
def test_places_are_right_to_the_rounding_of_the_type(width, dtype):
    expected = places_by_hand(20000, width)
    module = PositionalEncoding(width).to(dtype)
    for found in (
        module(torch.zeros(20000, width, dtype=dtype)),
        PositionalEncoding(width)(torch.zeros(20000, width, dtype=dtype)),  # the module's own type does not matter
        module.encoding(20000, dtype=dtype),
    ):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, atol=ROUNDING[dtype], rtol=0)
    assert module.encoding(3).dtype == torch.float32


@pytest.mark.parametrize("lead", [(), (2,), (3, 2)])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_places_with_any_leading_axes(length, lead):
    x = torch.randn(*lead, length, 6)
    torch.testing.assert_close(PositionalEncoding(6)(x), x + places_by_hand(length, 6).float())


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("num_frequencies", [1, 3, 8])
def test_waves_of_features_are_right_to_the_rounding_of_the_type(num_frequencies, dtype):
    waves = AgentTargetEncoder(4, 8, num_frequencies=num_frequencies).to(dtype).embed[0]
    x = (torch.rand(3, 50, 4) * 2 - 1).to(dtype)
    found = waves(x)
    assert found.dtype == dtype
    # In single precision an angle itself is rounded, by its last bit.
    atol = max(ROUNDING[dtype], 2.0**-23 * np.pi * num_frequencies if dtype != torch.float64 else 0.0)
    torch.testing.assert_close(found.double(), features_by_hand(x, num_frequencies), atol=atol, rtol=0)


def test_waves_carry_gradients():
    waves = AgentTargetEncoder(4, 8, num_frequencies=2).embed[0]
    assert torch.autograd.gradcheck(waves, (torch.randn(3, 4, dtype=torch.float64, requires_grad=True),))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(TokenEmbedding(10, 16), PositionalEncoding(16)), (2, 7)),
        (lambda: AgentTargetEncoder(4, 8, num_frequencies=3), (2, 3, 5, 4)),
    ],
)
def test_a_load_into_an_empty_module_is_whole(make, shape):
    made = make()
    x = torch.randn(shape) if len(shape) > 2 else torch.randint(10, shape)
    with torch.device("meta"):
        empty = make()
    empty = empty.to_empty(device="cpu")
    for tensor in (*empty.parameters(), *empty.buffers()):
        nn.init.constant_(tensor, torch.nan)  # whatever was in memory
    empty.load_state_dict(made.state_dict())
    for one, other in zip(empty(x), made(x), strict=True):
        torch.testing.assert_close(one, other, atol=0, rtol=0)


def test_places_compile_and_export_at_other_lengths(tmp_path):
    import onnxruntime

    module = PositionalEncoding(6).eval()
    sizes = {0: Dim("batch", min=1, max=64), 1: Dim("length", min=2, max=4096)}
    example = (torch.randn(2, 5, 6),)
    exported = export(module, example, dynamic_shapes=(sizes,)).module()
    program = torch.onnx.export(module, example, dynamo=True, dynamic_shapes=(sizes,), input_names=["x"], verbose=False)
    program.save(tmp_path / "places.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "places.onnx")
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=True)
    x = torch.randn(3, 3000, 6)
    by_onnx = torch.as_tensor(session.run(None, {"x": x.numpy()})[0])
    for found in (exported(x), compiled(x), by_onnx):
        torch.testing.assert_close(found, x + places_by_hand(3000, 6).float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("scaled", [True, False])
def test_tokens_with_and_without_the_factor(scaled):
    torch.manual_seed(0)
    embedding = TokenEmbedding(1000, 16, scaled=scaled)
    tokens = torch.tensor([[1, 2], [999, 1]])
    torch.testing.assert_close(embedding(tokens), embedding.table.weight[tokens] * (4 if scaled else 1))
    assert embedding(torch.arange(1000)).var().item() == pytest.approx(1.0, rel=0.05)
