"""Checkpoints: what is loaded is what was saved, on other scenes too; damaged ones are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from hitmac.agents import PolicyConfig, load_agent, load_policy, save_policy
from hitmac.agents.learned.checkpoint import build_policy
from hitmac.agents.policy import PerSensor
from hitmac.envs import DEFAULT_FEATURES, PAPER_FEATURES, load_scenario
from hitmac.envs.tasks import CoverageTask

HIT_MAC = load_scenario("hit-mac")
MANY = load_scenario("random").replace(num_targets=12)
FILES = ["config.json", "policy.safetensors"]


def config(**changes):
    own = {"policy": {"weight_dim": 8}, "features": DEFAULT_FEATURES, "scenario": HIT_MAC, "training_seeds": (5, 9)}
    return PolicyConfig(**own | changes)


def saved(folder, **changes):
    """Write the checkpoint of an untrained policy; return the policy and its configuration."""
    torch.manual_seed(0)
    own = config(**changes)
    policy = build_policy(own, own.scenario)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save_policy(folder, policy, own)
    return policy, own


def observed(scenario, features=DEFAULT_FEATURES, scenes=3):
    return CoverageTask(scenario, scenes, 0, features=features).observe()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "task": "Coordinator",
            "options": {"idle": "hold"},
            "policy": {"weight_dim": 8, "credit": "difference_rewards", "critic": "value_head"},
        },
    ],
)
def test_a_saved_policy_decides_as_before(changes, tmp_path):
    policy, own = saved(tmp_path, **changes)
    loaded, read = load_policy(tmp_path)
    assert read == own
    assert own.options == ({"decision": 10, "idle": "hold"} if changes else {"per_sensor": False})
    assert (loaded.credit == "difference_rewards") == bool(changes)
    shown = {key: torch.from_numpy(value) for key, value in observed(HIT_MAC, scenes=50).items()}
    with torch.no_grad():
        for one, other in zip(policy(shown, True), loaded(shown, True), strict=True):
            assert torch.equal(one, other)
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    scenario = load_scenario("hit-mac-6x9")
    actions, _ = load_policy(tmp_path, scenario)[0].predict(observed(scenario), deterministic=True)
    assert actions.shape == (3, 54 if changes else 6)


def test_a_policy_of_one_sensor_acts_for_all(tmp_path):
    policy, _ = saved(tmp_path, options={"per_sensor": True}, policy={"weight_dim": 8, "encoder": "mlp"})
    agent = load_agent(str(tmp_path), HIT_MAC)
    assert isinstance(agent.policy, PerSensor)
    shown = observed(HIT_MAC)
    actions, _ = agent.policy.predict(shown, deterministic=True)
    for i in range(4):
        own = {key: value[:, i] for key, value in shown.items()}
        np.testing.assert_array_equal(policy.predict(own, deterministic=True)[0], actions[:, i])
    load_agent(str(tmp_path), load_scenario("hit-mac-6x5"))
    with pytest.raises(ValueError, match="for 4 sensors and 5 targets; it does not fit 4 and 7"):
        load_agent(str(tmp_path), load_scenario("hit-mac-4x7"))


def test_a_policy_of_turns_keeps_the_views_of_lenses_and_one_that_zooms_needs_them(tmp_path):
    here = load_scenario("obstacles")
    for options in ({}, {"per_sensor": True}):
        saved(tmp_path / "turns", features=("distance", "bearing"), options=options)
        agent = load_agent(tmp_path / "turns", here)
        actions, _ = agent.policy.predict(observed(here, agent.features), deterministic=False)
        assert actions.shape == (3, 8)
        assert (actions[:, 4:] == 0).all()
    saved(tmp_path / "zooms", features=("distance",), scenario=here)
    with pytest.raises(ValueError, match=r"trained where lenses zoom; those of .*hit-mac' do not zoom"):
        load_policy(tmp_path / "zooms", "hit-mac")


def test_a_checkpoint_holds_what_is_shown(tmp_path):
    near = {"nearest": 3, "radius": 500.0, "neighbours": None}
    over = {"weight_dim": 8, "attend_over": "axes"}
    _, own = saved(tmp_path / "near", nearness=near, policy=over, scenario=MANY)
    saved(tmp_path / "all", policy=over, scenario=MANY)
    assert own.nearness == {"nearest": 3, "radius": 500.0}
    assert load_policy(tmp_path / "near")[1] == own
    assert "nearness" not in json.loads((tmp_path / "all/config.json").read_text())
    for name, scenario, expected in (
        (tmp_path / "near", MANY, own.nearness),
        (tmp_path / "near", MANY.replace(distance_scale=4000), {"nearest": 3, "radius": 1000.0}),
        (f"{tmp_path}/near:nearest=5", MANY, {"nearest": 5}),
        (tmp_path / "all", MANY, {}),
    ):
        assert dict(load_agent(name, scenario).nearness) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": {"attend_over": "pairs"}, "nearness": {"nearest": 3}}, "attend_over is 'pairs'; over the nearest"),
        ({"policy": {"encoder": "mlp"}, "nearness": {"nearest": 3}}, "a plain network"),
        ({"task": "Coordinator", "nearness": {"nearest": 3}}, "a policy for Coordinator"),
        ({"task": "Chess"}, "task is 'Chess'; it must be one of Coverage, Executor, Coordinator"),
        ({"task": "Executor", "options": {"idle": "hold"}}, "for Executor it may hold padding"),
    ],
)
def test_configurations_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "policy.safetensors").unlink(), "it has no policy.safetensors"),
        (lambda f: (f / "policy.safetensors").write_bytes(b"not a tensor"), "is not a whole safetensors file"),
        (lambda f: truncate(f / "policy.safetensors"), "is not a whole safetensors file"),
        (lambda f: edit(f, lambda t: t.pop("value_net.0.bias")), "lacks the tensor value_net.0.bias"),
        (lambda f: edit(f, lambda t: t.update(spy=torch.ones(1))), "holds the unknown tensor spy"),
        (lambda f: edit(f, lambda t: t.update({"value_net.0.bias": torch.ones(3)})), r"has shape \(3,\); it must be"),
        (lambda f: edit(f, lambda t: t["value_net.0.bias"].fill_(torch.nan)), "value_net.0.bias has a value"),
        (lambda f: (f / "config.json").write_text("{"), "is not a JSON file"),
        (lambda f: (f / "config.json").write_text("[]"), "is not the configuration of a policy"),
        (lambda f: configure(f, version=99), "has version 99; this program reads version 3"),
        (lambda f: configure(f, extra=1), "config.json: .*extra"),
        (lambda f: configure(f, features=["smell"]), "unknown feature smell"),
        (lambda f: configure(f, policy={"optimizer_class": "os.system"}), "policy is"),
        (lambda f: configure(f, policy={"weight_dim": -3}), "weight_dim is -3"),
        (lambda f: configure(f, policy={"encoder_config": {"weight_dim": 3}}), "expected an EncoderConfig"),
        (lambda f: configure(f, training_seeds=[1]), "config.json"),
    ],
)
def test_damaged_checkpoints_are_refused(tmp_path, damage, message):
    saved(tmp_path)
    damage(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_policy(tmp_path)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-10])


def edit(folder, change):
    tensors = safetensors.torch.load_file(folder / "policy.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "policy.safetensors")


def configure(folder, **changes):
    plain = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(plain | changes))


def test_saving_fails_without_leaving_half_a_file(tmp_path, monkeypatch):
    saved(tmp_path)
    before = (tmp_path / "policy.safetensors").read_bytes()

    def broken(path, content):
        path.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", broken)
    with pytest.raises(OSError, match="disk full"):
        saved(tmp_path, features=PAPER_FEATURES)
    assert (tmp_path / "policy.safetensors").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
