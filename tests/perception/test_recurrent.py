"""The recurrent ablation: PyTorch's modules over the tokens that are there, mapped, compiled and exported."""

import pytest
import torch
from torch import nn

from hitmac.perception import AgentTargetEncoder, RecurrentLayer

LEADS = [(), (2,), (3, 2), (2, 1, 2)]


def layer():
    torch.manual_seed(0)
    return RecurrentLayer(4, 6).double()


def inputs(lead, length, masked):
    torch.manual_seed(length)
    x = torch.randn(*lead, length, 4, dtype=torch.float64)
    return x, torch.rand(*lead, length) > 0.4 if masked else None


def pytorchs(made, x, mask=None):
    """PyTorch's module over the tokens that are there, sequence by sequence."""
    theirs = nn.GRU(4, 3, batch_first=True, bidirectional=True).to(x.dtype)
    theirs.load_state_dict(made.gru.state_dict())
    mask = torch.ones(x.shape[:-1], dtype=torch.bool) if mask is None else mask
    rows = []
    for sequence, there in zip(x.reshape(-1, *x.shape[-2:]), mask.reshape(-1, mask.shape[-1]), strict=True):
        row = torch.zeros(x.shape[-2], 6, dtype=x.dtype)
        if there.any():
            row[there] = theirs(sequence[there])[0]
        rows.append(row)
    return torch.stack(rows).reshape(*x.shape[:-1], 6)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_it_is_pytorchs_over_what_is_there(length, masked):
    made = layer()
    for lead in LEADS:
        x, mask = inputs(lead, length, masked)
        z, total = made(x if mask is None else x.masked_fill(~mask.unsqueeze(-1), torch.nan), mask)
        expected = pytorchs(made, x, mask)
        torch.testing.assert_close(z, expected)
        torch.testing.assert_close(total, expected.sum(-2))


def test_checkpoints_and_the_start_are_pytorchs():
    torch.manual_seed(3)
    reference = nn.GRU(4, 3, batch_first=True, bidirectional=True)
    torch.manual_seed(3)
    made = RecurrentLayer(4, 6)
    ours = made.state_dict()
    assert list(ours) == [f"gru.{name}" for name in reference.state_dict()]
    for name, tensor in reference.state_dict().items():
        torch.testing.assert_close(ours[f"gru.{name}"], tensor, atol=0, rtol=0)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (0,), (2, 0, 3)])
def test_nothing_there_has_gradients(shape, masked):
    made = layer()
    x = torch.randn(*shape, 4, dtype=torch.float64, requires_grad=True)
    z, total = made(x, torch.zeros(shape, dtype=torch.bool) if masked else None)
    assert z.shape == (*shape, 6)
    assert total.shape == (*shape[:-1], 6)
    gradients = torch.autograd.grad(z.sum() + total.sum(), [x, *made.parameters()])
    assert not any(gradient.any() for gradient in gradients)


def test_derivatives_and_maps():
    made, (x, mask) = layer(), inputs((3,), 4, True)
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda tokens: made(tokens, mask), (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda tokens: made(tokens, mask)[0], (x,))
    plain = x.detach()
    for one, other in zip(torch.func.vmap(made)(plain, mask), made(plain, mask), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(torch.func.vmap(lambda tokens: made(tokens)[0])(plain), made(plain)[0])
    torch.testing.assert_close(
        torch.func.jacfwd(lambda tokens: made(tokens, mask)[1])(plain),
        torch.func.jacrev(lambda tokens: made(tokens, mask)[1])(plain),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(dtype):
    made, (x, mask) = layer(), inputs((2,), 5, True)
    expected = made(x, mask)[0]
    half = made.to(dtype)(x.to(dtype), mask)[0]
    assert half.dtype == dtype
    torch.testing.assert_close(half.double(), expected, atol=0.03, rtol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(made.float()(x.float(), mask)[0].double(), expected, atol=0.03, rtol=0)


@pytest.mark.slow
def test_compiled_is_eager():
    made = layer()
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    for length in (4, 2):
        x, mask = inputs((3,), length, True)
        ours, theirs = (x.clone().requires_grad_() for _ in range(2))
        one, other = compiled(ours, mask)[0], made(theirs, mask)[0]
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(
            *(torch.autograd.grad(z.square().sum(), t)[0] for z, t in ((one, ours), (other, theirs)))
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:# The axis name")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # PyTorch's own, in scan
def test_exported_is_eager_at_other_sizes(tmp_path):
    import onnxruntime
    from torch.export import Dim, export

    made = layer().float().eval()
    sizes = {0: Dim("batch", min=1, max=512), 1: Dim("length", min=2, max=4096)}
    example = (torch.randn(3, 5, 4), torch.rand(3, 5) > 0.3)
    exported = export(made, example, dynamic_shapes=(sizes, sizes)).module()
    with torch.no_grad():
        program = torch.onnx.export(
            made, example, dynamo=True, dynamic_shapes=(sizes, sizes), input_names=["x", "mask"],
            output_names=["z", "total"], verbose=False,
        )  # fmt: skip
    program.save(tmp_path / "recurrent.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "recurrent.onnx")
    for shape in ((2, 9), (7, 3)):
        x, mask = torch.randn(*shape, 4), torch.rand(shape) > 0.3
        expected = made(x, mask)
        by_onnx = session.run(None, {"x": x.numpy(), "mask": mask.numpy()})
        for results in (exported(x, mask), map(torch.as_tensor, by_onnx)):
            for one, other in zip(results, expected, strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # PyTorch's own, in scan
def test_a_recurrent_encoder_exports():
    from torch.export import Dim, export

    torch.manual_seed(0)
    net = AgentTargetEncoder(6, 8, encoder="recurrent").eval()
    sizes = {0: Dim("batch", min=1, max=512), 1: Dim("n", min=2, max=64), 2: Dim("m", min=2, max=64)}

    def scene(*shape):
        return torch.randn(*shape, 6), torch.rand(shape) > 0.3

    exported = export(net, scene(3, 4, 5), dynamic_shapes=(sizes, sizes)).module()
    given = scene(2, 6, 3)
    for one, other in zip(exported(*given), net(*given), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
