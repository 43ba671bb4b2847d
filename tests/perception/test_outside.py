"""The perception outside plain eager PyTorch: compiled, exported, ONNX, half precision, other libraries, plots."""

import copy
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.export import Dim, export

import hitmac.perception.fast_paths as fast_paths
from hitmac.perception import AgentTargetEncoder, AMCCritic, AttentionLayer, pad_scenes, plots, unpad_scenes

OVER = ["agents", "targets", "pairs", "axes"]
BATCH, AGENTS, TARGETS = Dim("batch", min=1, max=512), Dim("n", min=2, max=64), Dim("m", min=2, max=64)
SHAPES = ({0: BATCH, 1: AGENTS, 2: TARGETS}, {0: BATCH, 1: AGENTS, 2: TARGETS})
FEATURES = ["per_target", "per_agent", "global_feature"]


def encoder(**options):
    torch.manual_seed(0)
    return AgentTargetEncoder(6, 8, **options).eval()


def scene(batch, n, m):
    mask = torch.rand(batch, n, m) > 0.3
    mask[0, 0] = False  # an agent that is not there
    return torch.randn(batch, n, m, 6), mask


def close(one, other):
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("over", OVER)
def test_exported_is_eager_at_other_sizes(over):
    net = encoder(attend_over=over, pooling="mean", num_heads=2)
    exported = export(net, scene(3, 4, 5), dynamic_shapes=SHAPES).module()
    for size in ((7, 2, 9), (1, 30, 3)):
        given = scene(*size)
        close(exported(*given), net(*given))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:# The axis name")
@pytest.mark.parametrize("over", OVER)
def test_onnx_is_eager_at_other_sizes(over, tmp_path, caplog):
    import onnxruntime

    caplog.set_level(logging.ERROR)
    net = encoder(attend_over=over)
    program = torch.onnx.export(
        net, scene(3, 4, 5), dynamo=True, dynamic_shapes=SHAPES, input_names=["pairs", "mask"], output_names=FEATURES,
        verbose=False,
    )  # fmt: skip
    program.save(tmp_path / "encoder.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "encoder.onnx")
    for size in ((7, 2, 9), (1, 30, 3)):
        pairs, mask = scene(*size)
        close(session.run(FEATURES, {"pairs": pairs.numpy(), "mask": mask.numpy()}), net(pairs, mask))


def test_the_critic_exports_too():
    net = AMCCritic(8).eval()
    length = Dim("length", min=2, max=4096)
    shapes = ({0: BATCH, 1: length}, {0: BATCH, 1: length})
    exported = export(net, (torch.randn(3, 5, 8), torch.rand(3, 5) > 0.3), dynamic_shapes=shapes).module()
    z, mask = torch.randn(2, 9, 8), torch.rand(2, 9) > 0.3
    torch.testing.assert_close(exported(z, mask), net(z, mask))


@pytest.mark.slow
@pytest.mark.parametrize("over", OVER)
def test_compiled_is_eager(over):
    net = encoder(attend_over=over)
    compiled = torch.compile(net, backend="aot_eager", dynamic=True)
    for size in ((3, 4, 5), (2, 6, 3)):
        pairs, mask = scene(*size)
        ours, theirs = (pairs.clone().requires_grad_() for _ in range(2))
        one, two = compiled(ours, mask), net(theirs, mask)
        close(one, two)
        sum(f.square().sum() for f in one).backward()
        sum(f.square().sum() for f in two).backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_half_precision():
    net, (pairs, mask) = encoder(), scene(16, 4, 5)
    expected = net(pairs, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = net(pairs, mask)
    half = copy.deepcopy(net).to(torch.bfloat16)(pairs.to(torch.bfloat16), mask)
    for features in (under_autocast, half):
        for one, other in zip(features, expected, strict=True):
            assert one.isfinite().all()
            assert (one.float() - other).abs().max() < 0.05 * other.abs().max() + 0.05
    assert half.per_target.dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert AMCCritic(8)(under_autocast.per_target.flatten(1, 2).detach()).isfinite().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same():
    net, (pairs, mask) = encoder(), scene(16, 4, 5)
    on_gpu = copy.deepcopy(net).cuda()(pairs.cuda(), mask.cuda())
    for one, other in zip(on_gpu, net(pairs, mask), strict=True):
        torch.testing.assert_close(one.cpu(), other, atol=1e-4, rtol=1e-4)
    critic, z = AMCCritic(8), torch.randn(4, 20, 8)
    torch.testing.assert_close(copy.deepcopy(critic).cuda()(z.cuda()).cpu(), critic(z), atol=1e-4, rtol=1e-4)


def test_the_one_function_of_three_maps_is_the_three_maps(monkeypatch):
    torch.manual_seed(0)
    layer = AttentionLayer(6, 8).double()
    x = torch.randn(3, 5, 6, dtype=torch.float64, requires_grad=True)
    inputs = [x, *layer.parameters()]
    results = []
    for bound in (1, 10**9):
        monkeypatch.setattr(fast_paths, "_TANH_FROM", bound)
        z, global_feature = layer(x)
        results.append([z, global_feature, *torch.autograd.grad(z.pow(3).sum() + global_feature.sin().sum(), inputs)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
    monkeypatch.setattr(fast_paths, "_TANH_FROM", 1)
    assert torch.autograd.gradcheck(lambda tokens: layer(tokens), (x,))
    assert torch.autograd.gradgradcheck(lambda tokens: layer(tokens)[0], (x,))


def test_functional_transforms(monkeypatch):
    monkeypatch.setattr(fast_paths, "_TANH_FROM", 1)
    net, x = AttentionLayer(6, 8).double(), torch.randn(4, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(lambda one: net(one)[1])(x), net(x)[1])
    one_by_one = torch.func.vmap(torch.func.grad(lambda one: net(one)[1].square().sum()))(x)
    together = torch.func.grad(lambda all_: net(all_)[1].square().sum())(x)
    torch.testing.assert_close(one_by_one, together)


def test_tensordict():
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule

    net, (pairs, mask) = encoder(), scene(3, 4, 5)
    module = TensorDictModule(net, ["pairs", "mask"], list(FEATURES))
    filled = module(TensorDict({"pairs": pairs, "mask": mask}, batch_size=[3]))
    close([filled[name] for name in FEATURES], net(pairs, mask))


@pytest.mark.parametrize("over", OVER)
def test_scenes_of_different_sizes(over):
    net = encoder(attend_over=over)
    scenes = [torch.randn(n, m, 6) for n, m in ((2, 3), (4, 1), (1, 5))]
    pairs, mask = pad_scenes(scenes)
    assert pairs.shape == (3, 4, 5, 6)
    features = net(pairs, mask)
    for alone, per_target in zip(scenes, unpad_scenes(features.per_target, mask), strict=True):
        torch.testing.assert_close(per_target, net(alone).per_target)
    for number, alone in enumerate(scenes):
        torch.testing.assert_close(features.global_feature[number], net(alone).global_feature)
    empty, none = pad_scenes([torch.randn(0, 4, 6), torch.randn(2, 0, 6)])
    assert empty.shape == (2, 2, 4, 6)
    assert not none.any()
    with pytest.raises(ValueError, match="there is no scene to pad"):
        pad_scenes([])
    with pytest.raises(ValueError, match=r"scene 1 has shape \(2, 3, 5\); it must be \(agents, targets, 6\)"):
        pad_scenes([torch.zeros(2, 3, 6), torch.zeros(2, 3, 5)])


@pytest.mark.parametrize("over", OVER)
def test_the_encoders_weights(over):
    net = encoder(attend_over=over, num_heads=2)
    pairs, mask = scene(3, 4, 5)
    features, weights = net(pairs, mask, need_weights=True)
    close(features, net(pairs, mask))
    shapes = {"agents": (3, 2, 4, 4), "targets": (3, 4, 2, 5, 5), "pairs": (3, 2, 20, 20)}
    if over == "axes":
        shapes["agents"] = (3, 5, 2, 4, 4)  # of every target
    both = ["targets", "agents"]
    there = {"agents": both, "targets": ["targets"], "pairs": ["pairs"], "axes": both}[over]
    for name, value in weights._asdict().items():
        assert (value is not None) == (name in there)
        if value is not None:
            assert value.shape == shapes[name]
            sums = value.sum(-1)
            assert torch.isclose(sums, torch.tensor(1.0)).logical_or(sums == 0).all()


def test_plots(tmp_path):
    weights = torch.rand(2, 6, 6)
    labels = list("abcdef")
    figure = plots.heat_map(weights, rows=labels, columns=labels, title="pairs")
    assert [axis.get_title() for axis in figure.axes[:2]] == ["head 1", "head 2"]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == labels
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), weights[1])
    plots.save(figure, tmp_path / "map.png")
    picture = np.zeros((20, 20, 3), np.uint8)
    attention = np.array([[0.1, 0.8, 0.1], [0.5, 0.0, 0.5]])
    agents, targets = np.array([[0, 0], [5, 5]]), np.array([[1, 2], [3, 4], [-5, 0]])
    figure = plots.lines(attention, agents, targets, extent=(-10, 10, -10, 10), picture=picture)
    widths = np.array([line.get_linewidth() for line in figure.axes[0].lines]).reshape(2, 3)
    np.testing.assert_array_equal(widths.argsort(axis=None), attention.argsort(axis=None))
    moving = targets[None] + np.arange(3)[:, None, None]
    plots.film(tmp_path / "film.gif", attention[None].repeat(3, 0), agents, moving, extent=(-10, 10, -10, 10))
    with Image.open(tmp_path / "film.gif") as shown:
        assert shown.n_frames == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film.gif", "map.png"]
    np.testing.assert_allclose(plots.received(weights), weights.mean((0, 1)), rtol=1e-6)
    for path in ("film.mp4", "film", "film.png"):
        with pytest.raises(ValueError, match=f"path is '{path}'; its name must end in .gif"):
            plots.film(path, attention[None], agents, moving, extent=(-10, 10, -10, 10))
    for path in ("map", "map.mp4"):
        with pytest.raises(ValueError, match=f"path is '{path}'; its name must end in one of .*\\.png"):
            plots.save(figure, path)
    with pytest.raises(ValueError, match=r"rows has 2 labels; weights of shape .* need 6"):
        plots.heat_map(weights, rows=["a", "b"])
    with pytest.raises(ValueError, match=r"weights have shape \(3,\)"):
        plots.heat_map(torch.rand(3))
    with pytest.raises(ValueError, match="they must be"):
        plots.lines(attention, targets, agents, extent=(-10, 10, -10, 10))


def test_the_code_of_the_gallery_writes_its_files(tmp_path, monkeypatch):
    folder = Path(__file__).parents[2] / "perception" / "gallery"
    monkeypatch.chdir(tmp_path)
    exec((folder / "README.md").read_text().split("```python\n")[1].split("```")[0], {})
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.name for path in folder.iterdir()} - {"README.md", "trained.png", "trained-coordinator.png"}
    assert all(path.stat().st_size > 1000 for path in tmp_path.iterdir())
