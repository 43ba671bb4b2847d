"""The policy that selects an entity: by what an actor observes, whatever the order of the rest."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hitmac.agents.learned.entities import EntityPolicy
from hitmac.perception import SelectionHead

KINDS = {"own": (1, 3), "moves": (17, 4), "sensors": (5, 6), "discs": (2, 2)}


def built(**options):
    """A policy with random weights, and an observation of 6 targets, as tensors; sensor 4 and disc 1 are absent."""
    parts = {}
    for kind, (count, width) in KINDS.items():
        parts |= {kind: spaces.Box(-3, 3, (count, width)), f"{kind}_mask": spaces.MultiBinary(count)}
    space = spaces.Dict(parts, seed=0)
    torch.manual_seed(0)
    number, _ = KINDS.get(options.get("candidates", "moves"), (17, None))
    policy = EntityPolicy(space, spaces.Discrete(number), lambda _: 1e-3, weight_dim=8, **options)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    shown = {name: torch.tensor(np.stack([space.sample()[name] for _ in range(6)])) for name in space}
    for kind in KINDS:
        shown[f"{kind}_mask"][:] = 1
    shown["sensors_mask"][:, 4] = shown["discs_mask"][:, 1] = 0
    return policy, shown


def test_moves_that_are_masked_are_never_taken():
    policy, shown = built()
    shown["moves_mask"][:, 3:] = 0
    assert policy.get_distribution(shown).distribution.probs[:, 3:].max() == 0
    actions, values, log_prob = policy(shown)
    assert actions.max() < 3
    torch.testing.assert_close(policy.evaluate_actions(shown, actions)[:2], (values, log_prob))


def test_values_of_a_critic_apart_have_no_gradient_in_the_encoder():
    policy, shown = built()
    for apart in (False, True):
        policy.zero_grad()
        values, _, _ = policy.evaluate_features(*policy.encode(shown), torch.zeros(6), critic_apart=apart)
        values.sum().backward()
        assert any(weight.grad is not None for weight in policy.features_extractor.parameters()) != apart


def test_a_policy_without_training_takes_all_moves_alike():
    torch.manual_seed(0)
    policy, shown = built()
    fresh = EntityPolicy(policy.observation_space, policy.action_space, lambda _: 1e-3)
    assert fresh.get_distribution(shown).entropy().min() > 0.99 * np.log(17)


def test_logits_and_value_by_their_parts():
    """A pointer from the feature of the actor and that of the scene together, and a perceptron on it."""
    policy, shown = built(pooling="max", num_blocks=2)
    assert (policy.features_extractor.encoder.pooling, len(policy.features_extractor.encoder.blocks)) == ("max", 2)
    entities, masks = ({kind: shown[kind + end] for kind in KINDS} for end in ("", "_mask"))
    features, scene = policy.features_extractor.encoder(entities, masks)
    actor = features["own"].squeeze(1) + scene
    logits = SelectionHead.forward(policy.action_net, actor, features["moves"], masks["moves"])
    torch.testing.assert_close(policy.logits(shown)[:, 0, 0], logits)
    first, relu, last = policy.value_net
    torch.testing.assert_close(policy.predict_values(shown), last(relu(first(actor))))


def test_a_kind_without_a_mask_is_valid_and_other_candidates_are_selected(tmp_path):
    policy, shown = built(candidates="sensors")
    with_masks = policy.logits(shown)
    assert with_masks.shape == (6, 1, 1, 5)
    assert (with_masks[..., 4] == torch.finfo(torch.float32).min).all()
    unmasked = {name: x for name, x in shown.items() if name != "moves_mask"}
    torch.testing.assert_close(policy.logits(unmasked), with_masks)
    policy.save(tmp_path / "policy.pt")
    torch.testing.assert_close(EntityPolicy.load(tmp_path / "policy.pt").logits(shown), with_masks)


@pytest.mark.parametrize(("parts", "action", "options", "says"), [
    ({}, spaces.Discrete(5), {}, r"for 17 entities of the kind moves it must be Discrete\(17\)"),
    ({}, spaces.Discrete(20), {}, r"is Discrete\(20\); for 17 entities"),
    ({}, spaces.Discrete(17, start=1), {}, r"it must be Discrete\(17\)"),
    ({}, spaces.MultiDiscrete([17]), {}, r"the action space is MultiDiscrete\(\[17\]\)"),
    ({"own": None}, spaces.Discrete(17), {}, "it must have one entity of the kind own"),
    ({"own": spaces.Box(-1, 1, (2, 3))}, spaces.Discrete(17), {}, "it must have one entity of the kind own"),
    ({}, spaces.Discrete(17), {"candidates": "move"}, r"candidates is 'move'; .* \(did you mean moves\?\)"),
    ({}, spaces.Discrete(17), {"net_arch": [64]}, "net_arch would have no effect"),
    ({}, spaces.Discrete(17), {"attend_over": "axes"}, "unexpected keyword argument 'attend_over'"),
])  # fmt: skip
def test_spaces_and_arguments_that_do_not_fit_are_refused(parts, action, options, says):
    whole = {kind: spaces.Box(-3, 3, shape) for kind, shape in KINDS.items()} | parts
    space = spaces.Dict({kind: one for kind, one in whole.items() if one is not None})
    with pytest.raises((ValueError, TypeError), match=says):
        EntityPolicy(space, action, lambda _: 1e-3, **options)


def test_a_mask_of_other_numbers_is_refused():
    """Such as one that VecNormalize has scaled."""
    policy, shown = built()
    shown["sensors_mask"] = shown["sensors_mask"] * 0.5 - 0.1
    with pytest.raises(ValueError, match="sensors_mask holds"):
        policy(shown)
