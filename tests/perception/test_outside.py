"""Perception outside plain eager PyTorch: compiled, exported, in ONNX, half precision, other devices."""

import copy
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.utils import backend_registration

from hitmac.__main__ import main
from hitmac.agents.learned.checkpoint import checked_device
from hitmac.perception import AgentTargetEncoder, AMCCritic, EncoderBlock, PositionalEncoding

ROOT = Path(__file__).resolve().parents[2]
BATCH, LENGTH = Dim("batch", min=1, max=512), Dim("length", min=2, max=4096)
SIZES = {0: BATCH, 1: Dim("n", min=2, max=64), 2: Dim("m", min=1, max=64)}

pytestmark = [  # PyTorch's own, of torch.onnx and of scan
    pytest.mark.filterwarnings("ignore:# The axis name"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


class Call(nn.Module):
    """Module with its options, called with tensors alone."""

    def __init__(self, module, call):
        super().__init__()
        self.module, self.call = module, call

    def forward(self, *given):
        return self.call(self.module, *given)


def scene(batch, n, m):
    mask = torch.rand(batch, n, m) > 0.3
    mask[0, 0] = False  # an absent agent
    return torch.randn(batch, n, m, 6), mask.to(torch.int8)


def lists(batch, n, k):
    targets = torch.rand(batch, n, k + 3).argsort(-1)[..., :k].contiguous()
    targets[..., -1][torch.rand(batch, n) > 0.5] = -1
    return torch.randn(batch, n, k, 6), targets >= 0, targets


def tokens(batch, length):
    return torch.randn(batch, length, 8), torch.rand(batch, length) > 0.3


def of_lists(net, pairs, mask, targets):
    return tuple(net(pairs, mask, targets=targets))


def causal(net, x, there):
    return net(x, key_mask=there, causal=True)[0]


def encoder(over, **options):
    return AgentTargetEncoder(6, 8, attend_over=over, **options)


SCENES, SEQUENCES = (3, 4, 5), (3, 5)
# By name: the module, its inputs for a shape, the shape of the example, and whether ONNX takes it too.
CASES = {
    "agents": (lambda: encoder("agents", num_heads=2), scene, SCENES, False),
    "pairs": (lambda: encoder("pairs", pooling="max"), scene, SCENES, True),
    "axes": (lambda: encoder("axes", pooling="mean", num_blocks=2), scene, SCENES, True),
    "recurrent": (lambda: encoder("targets", encoder="recurrent"), scene, SCENES, True),
    "lists": (lambda: Call(encoder("axes"), of_lists), lists, SCENES, False),
    "critic": (lambda: AMCCritic(8, 300), tokens, SEQUENCES, True),  # in two levels
    "causal": (lambda: Call(EncoderBlock(8, 2, norm_first=True), causal), tokens, SEQUENCES, False),
    "positions": (lambda: PositionalEncoding(8), lambda *shape: tokens(*shape)[:1], SEQUENCES, True),
}


def outputs(found):
    return [torch.as_tensor(one) for one in ([found] if isinstance(found, torch.Tensor) else found)]


def close(one, other):
    for a, b in zip(outputs(one), outputs(other), strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


def inputs_of(make, example):
    """Inputs of two other sizes."""
    return [make(*shape) for shape in (((7, 2, 9), (1, 30, 1)) if len(example) == 3 else ((7, 3), (1, 300)))]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "agents")) for name in CASES])
def test_exported_and_onnx_are_eager_at_other_sizes(name, tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    build, make, example, onnx = CASES[name]
    net, given = build().eval(), make(*example)
    sizes = (SIZES if len(example) == 3 else {0: BATCH, 1: LENGTH},) * len(given)
    program = export(net, given, dynamic_shapes=(sizes,) if isinstance(net, Call) else sizes)
    forms = [program.module()]
    if onnx:
        import onnxruntime

        torch.onnx.export(program, dynamo=True, verbose=False).save(tmp_path / "net.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
        names = [one.name for one in session.get_inputs()]
        forms.append(lambda *given: session.run(None, dict(zip(names, (x.numpy() for x in given), strict=True))))
    for other in inputs_of(make, example):
        for form in forms:
            close(form(*other), net(*other))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("lists", "recurrent")])
def test_traced_and_saved_is_eager_at_other_sizes(name, tmp_path):
    build, make, example, _ = CASES[name]
    net = build()
    torch.jit.save(torch.jit.trace(net, make(*example)), tmp_path / "net.pt")
    traced = torch.jit.load(tmp_path / "net.pt")
    for other in inputs_of(make, example):
        close(traced(*other), net(*other))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agents", "lists", "critic", "recurrent", "causal"])
def test_compiled_is_eager_with_its_gradients(name):
    torch._dynamo.reset()
    build, make, example, _ = CASES[name]
    net = build()
    lists = name == "lists"  # group their pairs by number
    compiled = torch.compile(net, backend="eager" if lists else "aot_eager", dynamic=True, fullgraph=not lists)
    for x, *rest in (make(*example), inputs_of(make, example)[0]):
        x.requires_grad_()
        found = [outputs(call(x, *rest)) for call in (compiled, net)]
        close(*found)
        close(*(torch.autograd.grad(sum(one.square().sum() for one in each), x) for each in found))


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("lists", "positions")])
def test_mapped_is_batched(name):
    build, make, example, _ = CASES[name]
    net, given = build(), make(*example)
    close(torch.func.vmap(net)(*given), net(*given))


@pytest.mark.parametrize("kind", ["attention", "recurrent"])
def test_half_precision(kind):
    net, (pairs, mask) = encoder("agents", encoder=kind), scene(16, 4, 5)
    expected = net(pairs, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = net(pairs, mask)
        value = AMCCritic(8)(under_autocast.per_target.flatten(1, 2).detach())
    assert value.isfinite().all()
    half = copy.deepcopy(net).to(torch.bfloat16)(pairs.to(torch.bfloat16), mask)
    value = AMCCritic(8).to(torch.bfloat16)(half.per_target.flatten(1, 2))
    assert half.per_target.dtype == value.dtype == torch.bfloat16
    for features in (under_autocast, half):
        for one, other in zip(features, expected, strict=True):
            assert (one.float() - other).abs().max() < 0.05 * other.abs().max() + 0.05


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same():
    for build, make, example, _ in CASES.values():
        net, given = build(), make(*example)
        on_gpu = copy.deepcopy(net).cuda()(*(x.cuda() for x in given))
        close([one.cpu() for one in outputs(on_gpu)], net(*given))


def test_auto_prefers_an_accelerator_and_absent_devices_are_refused(monkeypatch, capsys):
    for name in ("cuda:7", "mars", "", "cpu:x", "meta"):
        with pytest.raises(ValueError, match=r"--device is .* auto or one of cpu"):
            checked_device(name, "--device")
    monkeypatch.setattr(sys, "argv", ["hitmac", "evaluate", "--agents", "still", "--device", "mars"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "device is mars; on this machine it must be auto or one of cpu" in line
    assert checked_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 0)
    assert checked_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    assert checked_device("auto") == torch.device("cuda")
    assert checked_device("cuda:1") == torch.device("cuda:1")
    for name in ("cuda:2", "mps"):
        with pytest.raises(ValueError, match=f"device is {name}; .* auto or one of cpu, cuda:0"):
            checked_device(name)


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this version of PyTorch cannot have a device written in Python",
)
def test_everything_on_a_second_device():
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore"]
    command = [sys.executable, "-m", "pytest", *options, "tests/perception/on_second_device.py"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-5000:]
