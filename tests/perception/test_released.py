"""Networks of the published program: its recorded outputs, and checkpoints good and bad."""

import re

import pytest
import torch

from hitmac.perception import AMCCritic, AttentionLayer
from hitmac.perception.released import from_tensors, load_released

COORDINATOR = {
    "encoder.features.0": (8, 4), "encoder.features.2": (8, 8), "attention.Q": (8, 8), "attention.K": (8, 8),
    "attention.V": (8, 8), "actor.actor_linear": (2, 8), "ShapleyVcritic.critic_linear": (1, 16),
    "ShapleyVcritic.attention.Q": (8, 8), "ShapleyVcritic.attention.K": (8, 8), "ShapleyVcritic.attention.V": (8, 8),
}  # fmt: skip
EXECUTOR = {
    "attention.Q": (8, 4), "attention.K": (8, 4), "attention.V": (8, 4), "actor.actor_linear": (3, 8),
    "critic.critic_linear": (1, 8),
}  # fmt: skip


def tensors_of(shapes):
    weights = {f"{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    return weights | {f"{name}.bias": torch.randn(shape[0]) for name, shape in shapes.items()}


def part(tensors, name):
    return {key.removeprefix(name): value for key, value in tensors.items() if key.startswith(name)}


def linear(tensors, name, x):
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def test_the_coordinator_is_the_published_one(recording):
    record = recording("hitmac_coordinator_net.npz")
    net = from_tensors({k.removeprefix("weight/"): v for k, v in record.items() if k.startswith("weight/")})
    observation = torch.from_numpy(record["obs"])
    with torch.no_grad():
        logits, value = net(observation)
        z, global_feature = net.attention(net.encoder(observation.flatten(1, 2)))
        torch.testing.assert_close(net(observation[3])[1], value[3])
    for ours, name in ((logits, "logits"), (value.unsqueeze(-1), "value"), (z, "per_target")):
        torch.testing.assert_close(ours, torch.from_numpy(record[name]), atol=1e-5, rtol=0)
    torch.testing.assert_close(global_feature, torch.from_numpy(record["global_feature"]), atol=1e-5, rtol=1e-5)


def test_checkpoints_by_the_equations_of_the_networks(tmp_path):
    tensors, x, layer = tensors_of(EXECUTOR), torch.randn(3, 2, 5, 4), AttentionLayer(4, 8)
    layer.load_state_dict(part(tensors, "attention."))
    total = layer(x)[1]
    torch.save({"model": tensors}, tmp_path / "e.pth")
    logits, value = load_released(tmp_path / "e.pth")(x)
    torch.testing.assert_close(logits, linear(tensors, "actor.actor_linear", total).relu())
    torch.testing.assert_close(value, linear(tensors, "critic.critic_linear", total).squeeze(-1))
    tensors, x = tensors_of(COORDINATOR), torch.randn(2, 3, 5, 4)
    layer, critic = AttentionLayer(8, 8), AMCCritic(8)
    layer.load_state_dict(part(tensors, "attention."))
    critic.attention.load_state_dict(part(tensors, "ShapleyVcritic.attention."))
    critic.linear.load_state_dict(part(tensors, "ShapleyVcritic.critic_linear."))
    embedded = linear(tensors, "encoder.features.0", x.flatten(1, 2)).relu()
    z, _ = layer(linear(tensors, "encoder.features.2", embedded).relu())
    torch.save(tensors, tmp_path / "c.pth")
    logits, value = load_released(tmp_path / "c.pth")(x)
    torch.testing.assert_close(logits, linear(tensors, "actor.actor_linear", z).relu())
    torch.testing.assert_close(value, critic(z))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"attention.Q.bias": None}, r"Missing key\(s\) in state_dict: \"attention.Q.bias\""),
        ({"encoder.features.0.weight": torch.zeros(4)}, r"encoder.0.weight has shape \(4,\); it must have two axes"),
        ({"colour.weight": torch.zeros(1)}, r"Unexpected key\(s\) in state_dict: \"colour.weight\""),
        ({"actor.actor_linear.weight": torch.zeros(3, 8)}, r"size mismatch for actor.weight"),
        ({"attention.V.bias": torch.full((8,), torch.nan)}, "attention.V.bias holds a number that is not finite"),
        ({"attention.V.bias": torch.full((8,), 1e300, dtype=torch.float64)}, "V.bias holds a number"),
        ({"encoder.0.bias": torch.zeros(8)}, "encoder.features.0.bias and encoder.0.bias are the same tensor"),
        ({"encoder.features.0.weight": torch.zeros(()).expand(10**7, 10**7)}, "size mismatch for encoder.0.bias"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        from_tensors({k: v for k, v in (tensors_of(COORDINATOR) | change).items() if v is not None})


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch evil",)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_files_that_hold_other_things_are_refused_and_run_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="absent"):
        load_released("absent.pth")
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04 cut")
    contents = {"evil": {"model": Evil()}, "list": [1, 2], "whole": {"a": torch.zeros(3, dtype=torch.int64)}}
    contents["numbered"] = {0: torch.zeros(1)}
    contents["expanded"] = {"attention.Q.weight": torch.zeros(()).expand(10**7, 10**7)}
    contents["nested"] = {"attention.Q.weight": torch.nested.as_nested_tensor([torch.zeros(2), torch.zeros(3)])}
    for name, content in contents.items():
        torch.save(content, f"{name}.pth")
    for name in ("cut", *contents):
        with pytest.raises(ValueError, match=re.escape(f"{name}.pth")):
            load_released(f"{name}.pth")
    assert not (tmp_path / "evil").exists()
