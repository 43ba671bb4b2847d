"""The policy as an RLModule of RLlib."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from hitmac.perception import EncoderConfig

pytest.importorskip("ray.rllib", reason="RLlib is not installed: pip install 'hitmac[rllib]'")

from hitmac.agents.training.rllib.module import AttentionRLModule


def module(env, action_space=None):
    torch.manual_seed(0)
    return AttentionRLModule(
        observation_space=env.observation_space,
        action_space=action_space or env.action_space,
        model_config={"encoder_config": EncoderConfig(weight_dim=16)},
    )


def test_it_plays_scenes_of_varying_sizes():
    """A sensor without any pair stays with certainty; actions are independent; it is an agent."""
    vector = gymnasium.make_vec("dsn/Coverage-v0", num_envs=3, scenario="random")
    seen, _ = vector.reset(seed=3)
    net = module(gymnasium.make("dsn/Coverage-v0", scenario="random"))
    output = net.forward_train({"obs": {key: torch.as_tensor(array) for key, array in seen.items()}})
    turns = output["action_dist_inputs"].unflatten(-1, (-1, 3)).softmax(-1)
    absent = ~seen["mask"].any(-1)
    assert absent.any()
    assert (turns[absent] == torch.tensor([1.0, 0.0, 0.0])).all()
    assert (turns[~absent] > 0.1).all()
    choice = net.action_dist_cls.from_logits(output["action_dist_inputs"])
    action = choice.sample()
    assert action.shape == vector.action_space.shape
    torch.testing.assert_close(choice.logp(action), turns.log().gather(-1, action.unsqueeze(-1)).sum((-1, -2)))
    best, state = net.predict(seen, deterministic=True)
    assert state is None
    np.testing.assert_array_equal(best, turns.argmax(-1).numpy())
    assert any((net.predict(seen)[0] != best).any() for _ in range(5))


def test_other_spaces_are_refused():
    with pytest.raises(ValueError, match=r"the action space is Box.*;.* it must be MultiBinary"):
        module(gymnasium.make("dsn/Coverage-v0"), spaces.Box(0.0, 1.0))
