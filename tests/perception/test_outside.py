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
from torch.utils._pytree import tree_leaves, tree_map

from hitmac import perception
from hitmac.__main__ import main
from hitmac.agents.learned.checkpoint import checked_device

ROOT = Path(__file__).resolve().parents[2]
BATCH = Dim("batch", min=1, max=512)

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


class Selector(nn.Module):
    """Encoder of entities and selection head, as a policy has them."""

    def __init__(self, attention, none):
        super().__init__()
        self.encoder = perception.EntityEncoder(
            {"items": 3, "keys": 5}, 8, attention=attention, num_heads=2, num_frequencies=1
        )
        self.head = perception.SelectionHead(8, none=none)

    def forward(self, entities, masks):
        features = self.encoder(entities, masks)
        return self.head(features.global_feature, features.per_entity["items"], masks["items"]), features.global_feature


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


def entities(batch, items, keys):
    given = {"items": torch.randn(batch, items, 3), "keys": torch.randn(batch, keys, 5)}
    masks = {kind: torch.rand(x.shape[:-1]) > 0.3 for kind, x in given.items()}
    masks["items"][0] = masks["keys"][0] = False
    return given, masks


def of_lists(net, pairs, mask, targets):
    return tuple(net(pairs, mask, targets=targets))


def causal(net, x, there):
    return net(x, key_mask=there, causal=True)[0]


def encoder(over, **options):
    return perception.AgentTargetEncoder(6, 8, attend_over=over, **options)


# By form of the inputs: a shape, other shapes, and the sizes that vary.
SCENES = (3, 4, 5), [(7, 2, 9), (1, 30, 1)], {0: BATCH, 1: Dim("n", min=2, max=64), 2: Dim("m", min=1, max=64)}
SEQUENCES = (3, 5), [(7, 3), (1, 300)], {0: BATCH, 1: Dim("length", min=2, max=4096)}
KINDS = (3, 4, 5), [*SCENES[1], (2, 0, 3), (2, 3, 0)], {k: {0: BATCH, 1: Dim(k, min=0)} for k in ("items", "keys")}
# By name: the module, its inputs for a shape, their form, and whether ONNX takes it too.
CASES = {
    "agents": (lambda: encoder("agents", num_heads=2), scene, SCENES, False),
    "pairs": (lambda: encoder("pairs", pooling="max"), scene, SCENES, True),
    "axes": (lambda: encoder("axes", pooling="mean", num_blocks=2), scene, SCENES, True),
    "recurrent": (lambda: encoder("targets", encoder="recurrent"), scene, SCENES, True),
    "lists": (lambda: Call(encoder("axes"), of_lists), lists, SCENES, False),
    "critic": (lambda: perception.AMCCritic(8, 300), tokens, SEQUENCES, True),  # in two levels
    "causal": (lambda: Call(perception.EncoderBlock(8, 2, norm_first=True), causal), tokens, SEQUENCES, False),
    "positions": (lambda: perception.PositionalEncoding(8), lambda *shape: tokens(*shape)[:1], SEQUENCES, True),
    "entities": (lambda: Selector("transformer", none=True), entities, KINDS, True),
    "entities by tanh": (lambda: Selector("tanh", none=False), entities, KINDS, True),
}


def close(one, other):
    for a, b in zip(tree_leaves(one), tree_leaves(other), strict=True):
        torch.testing.assert_close(torch.as_tensor(a), b, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "agents")) for name in CASES])
def test_exported_and_onnx_are_eager_at_other_sizes(name, tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    build, make, (example, others, sizes), onnx = CASES[name]
    net, given = build().eval(), make(*example)
    sizes = (sizes,) * len(given)
    program = export(net, given, dynamic_shapes=(sizes,) if isinstance(net, Call) else sizes)
    forms = [program.module()]
    if onnx:
        import onnxruntime

        torch.onnx.export(program, dynamo=True, verbose=False).save(tmp_path / "net.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
        names = [one.name for one in session.get_inputs()]
        assert make is not entities or names == ["entities_items", "entities_keys", "masks_items", "masks_keys"]
        forms.append(lambda *x: session.run(None, dict(zip(names, (a.numpy() for a in tree_leaves(x)), strict=True))))
    for other in (make(*shape) for shape in others):
        for form in forms:
            close(form(*other), net(*other))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", ["agents", "pairs", "axes", "critic", "causal", "positions"])
def test_traced_and_saved_is_eager_at_other_sizes(name, tmp_path):
    build, make, (example, others, _), _ = CASES[name]
    net = build()
    torch.jit.save(torch.jit.trace(net, make(*example)), tmp_path / "net.pt")
    traced = torch.jit.load(tmp_path / "net.pt")
    for other in (make(*shape) for shape in others):
        close(traced(*other), net(*other))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agents", "lists", "critic", "recurrent", "causal", "entities", "entities by tanh"])
def test_compiled_is_eager_with_its_gradients(name):
    torch._dynamo.reset()
    build, make, (example, others, _), _ = CASES[name]
    net = build()
    lists = name == "lists"  # group their pairs by number
    compiled = torch.compile(net, backend="eager" if lists else "aot_eager", dynamic=True, fullgraph=not lists)
    # A size that equals a width of the network would be compiled as that constant.
    for given in (make(*shape) for shape in ((4, 6, 11) if len(example) == 3 else example, others[0], others[-1])):
        leaves = [x.requires_grad_() for x in tree_leaves(given) if x.is_floating_point()]
        found = [tree_leaves(call(*given)) for call in (compiled, net)]
        close(*found)
        totals = (sum(one.clamp(min=-100).square().sum() for one in each) for each in found)
        close(*(torch.autograd.grad(each, [*leaves, *net.parameters()], materialize_grads=True) for each in totals))


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("lists", "positions")])
def test_mapped_is_batched(name):
    build, make, (example, *_), _ = CASES[name]
    net, given = build(), make(*example)
    close(torch.func.vmap(net)(*given), net(*given))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["agents", "recurrent", "critic", "entities", "entities by tanh"])
def test_half_precision(name, dtype):
    build, make, (example, *_), _ = CASES[name]
    net, given = build(), make(16, *example[1:])
    expected = net(*given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = net(*given)
    half = net.to(dtype)(*tree_map(lambda x: x.to(dtype) if x.is_floating_point() else x, given))
    assert all(one.dtype == dtype for one in tree_leaves(half))
    for features in (under_autocast, half):
        for one, other in zip(tree_leaves(features), tree_leaves(expected), strict=True):
            kept = other > torch.finfo(torch.float32).min
            assert (one.float() - other)[kept].abs().max() < 0.05 * other[kept].abs().max() + 0.05


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same():
    for build, make, (example, *_), _ in CASES.values():
        net, given = build(), make(*example)
        on_gpu = copy.deepcopy(net).cuda()(*tree_map(torch.Tensor.cuda, given))
        close(tree_map(torch.Tensor.cpu, on_gpu), net(*given))


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
