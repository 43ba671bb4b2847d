"""Checkpoints: what is loaded is what was saved, on other scenes too; damaged ones are refused."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch

from hitmac.agents import load_agent, load_policy, pretrained, save_policy
from hitmac.agents.learned.recurrent import RECURRENT_FEATURES
from hitmac.envs import load_scenario
from tests.agents.untrained import config_of, observed, untrained

MANY = load_scenario("random").replace(num_targets=12)


def saved(folder, *arguments, **options):
    """Write the checkpoint of an untrained policy; return the policy and its configuration."""
    policy, config = untrained(*arguments, noise=0.3, **options)
    save_policy(folder, policy, config)
    return policy, config


@pytest.mark.parametrize(
    ("task", "given", "options", "policy"),
    [
        ("Coverage", {}, {"per_sensor": False}, {}),
        ("Coverage", {}, {"per_sensor": False}, {"memory": "recurrent", "features": RECURRENT_FEATURES}),
        (
            "Coordinator", {"idle": "hold"}, {"decision": 10, "idle": "hold"},
            {"credit": "difference_rewards", "critic": "value_head"},
        ),
    ],
)  # fmt: skip
def test_a_saved_policy_decides_as_before_and_at_other_sizes(task, given, options, policy, tmp_path):
    made, config = saved(tmp_path, "hit-mac", task, given, **policy)
    loaded, read = load_policy(tmp_path)
    assert (read, config.options, type(loaded)) == (config, options, type(made))
    assert loaded.credit == policy.get("credit", "team")
    shown = observed(scenes=50, features=config.features)
    one, other = (own.predict(shown, deterministic=True)[0] for own in (made, loaded))
    np.testing.assert_array_equal(one, other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "policy.safetensors"]
    larger, shown = load_policy(tmp_path, "hit-mac-6x9")[0], observed("hit-mac-6x9", features=config.features)
    assert larger.predict(shown)[0].shape == (3, 54 if task == "Coordinator" else 6)


def test_loading_draws_no_random_numbers():
    """A resumed training loads its executor after its random numbers are restored."""
    before = torch.get_rng_state()
    load_policy(pretrained.FOLDER / "flat")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_float64")
def test_a_policy_is_loaded_where_numbers_are_of_another_type():
    assert load_policy(pretrained.FOLDER / "flat")[0].predict(observed())[0].shape == (3, 4)


def test_a_policy_of_one_sensor_acts_for_all(tmp_path):
    policy, _ = saved(tmp_path, options={"per_sensor": True}, encoder="mlp")
    shown = observed()
    actions, _ = load_agent(tmp_path, "hit-mac").policy.predict(shown, deterministic=True)
    for i in range(4):
        own = {key: value[:, i] for key, value in shown.items()}
        np.testing.assert_array_equal(policy.predict(own, deterministic=True)[0], actions[:, i])
    load_agent(tmp_path, "hit-mac-6x5")
    with pytest.raises(ValueError, match="for 4 sensors and 5 targets, but the scenario has 4 and 7"):
        load_agent(tmp_path, "hit-mac-4x7")


def test_a_policy_of_turns_keeps_the_views_of_lenses_and_one_that_zooms_needs_them(tmp_path):
    here = load_scenario("obstacles")
    for options in ({}, {"per_sensor": True}):
        saved(tmp_path / "turns", features=("distance", "bearing"), options=options)
        agent = load_agent(tmp_path / "turns", here)
        actions, _ = agent.policy.predict(observed(here, features=agent.features), deterministic=False)
        assert actions.shape == (3, 8)
        assert (actions[:, 4:] == 0).all()
    saved(tmp_path / "zooms", here, features=("distance",))
    with pytest.raises(ValueError, match=r"trained where lenses zoom; those of .*hit-mac' do not zoom"):
        load_policy(tmp_path / "zooms", "hit-mac")


def test_a_checkpoint_holds_what_is_shown(tmp_path):
    near = {"nearest": 3, "radius": 500.0}
    _, own = saved(tmp_path / "near", MANY, nearness=near | {"neighbours": None}, attend_over="axes")
    saved(tmp_path / "all", MANY, attend_over="axes")
    assert own.nearness == near
    assert load_policy(tmp_path / "near")[1] == own
    assert "nearness" not in json.loads((tmp_path / "all/config.json").read_text())
    for name, scenario, expected in (
        ("near", MANY, near),
        ("near", MANY.replace(distance_scale=4000), {"nearest": 3, "radius": 1000.0}),
        ("near:nearest=5", MANY, {"nearest": 5}),
        ("all", MANY, {}),
    ):
        assert dict(load_agent(f"{tmp_path}/{name}", scenario).nearness) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attend_over": "pairs", "nearness": {"nearest": 3}}, "attend_over is 'pairs'; over the nearest"),
        ({"encoder": "mlp", "nearness": {"nearest": 3}}, "a plain network"),
        ({"task": "Coordinator", "nearness": {"nearest": 3}}, "a policy for Coordinator"),
        ({"task": "Chess"}, "task is 'Chess'; it must be one of Coverage, Executor, Coordinator"),
        ({"task": "Executor", "options": {"idle": "hold"}}, "for Executor it may hold padding"),
        ({"memory": "lstm"}, "memory is 'lstm'"),
        ({"wieght_dim": 8}, r"policy holds wieght_dim \(did you mean weight_dim\?\); it may hold enc"),
        ({"critic": 5}, "critic is 5; it must be one of amc, "),
        ({"credit": {}}, "credit is {}; it must be one of team, "),
    ],
)
def test_configurations_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        config_of(**options)


def test_a_policy_of_another_configuration_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match=r"policy of this config: .* has shape .*; it must be"):
        save_policy(tmp_path / "new", untrained(weight_dim=8)[0], config_of(weight_dim=16))
    assert not (tmp_path / "new").exists()


def configure(**changes):
    def change(folder):
        plain = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(plain | changes))

    return change


def edit(change):
    def changed(folder):
        tensors = safetensors.torch.load_file(folder / "policy.safetensors")
        change(tensors)
        safetensors.torch.save_file(tensors, folder / "policy.safetensors")

    return changed


def cut(folder):
    path = folder / "policy.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "policy.safetensors").unlink(), "it has no policy.safetensors"),
        (cut, "is not a whole safetensors file"),
        (edit(lambda tensors: tensors.pop("value_net.0.bias")), "lacks the tensor value_net.0.bias"),
        (edit(lambda tensors: tensors.update(spy=torch.ones(1))), "holds the unknown tensor spy"),
        (edit(lambda tensors: tensors.update({"value_net.0.bias": torch.ones(3)})), r"shape \(3,\); it must be \(8,\)"),
        (edit(lambda tensors: tensors["value_net.0.bias"].fill_(torch.nan)), "value_net.0.bias has a value"),
        (edit(lambda tensors: tensors.update({"value_net.0.bias": torch.ones(8).double() * 1e39})), "has a value"),
        (edit(lambda tensors: tensors.update({"value_net.0.bias": torch.ones(8).cfloat()})), "is torch.complex64; it"),
        (lambda folder: (folder / "config.json").write_text("{"), "is not a JSON file"),
        (lambda folder: (folder / "config.json").write_text("[]"), "is not the configuration of a policy"),
        (configure(version=99), "has version 99; this program reads version 3"),
        (configure(extra=1), "config.json: it holds extra; it may hold policy, "),
        (configure(features=["smell"]), "unknown feature smell"),
        (configure(policy={"optimizer_class": "os.system"}), "policy holds optimizer_class; it may hold"),
        (configure(policy={"weight_dim": -3}), "weight_dim is -3"),
        (configure(policy={"encoder_config": {"weight_dim": 3}}), "expected an EncoderConfig"),
        (configure(policy={"weight_dim": 4096, "num_blocks": 99}), "policy.safetensors lacks the tensor"),
        (configure(policy={"critic": 5}), "config.json: critic is 5"),
        (configure(training_seeds=[1]), "config.json"),
        (configure(training_seeds=["a", {}]), r"config.json: training_seeds is \('a', {}\); it must hold two whole"),
    ],
)
def test_damaged_checkpoints_are_refused(tmp_path, damage, message):
    saved(tmp_path)
    damage(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_policy(tmp_path)
