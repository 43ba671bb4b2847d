"""The encoder as an RLModule of RLlib."""

import importlib.util

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from hitmac.perception import EncoderConfig

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="RLlib is not installed")


@pytest.fixture(scope="module")
def module():
    """Makes the module of an environment."""
    from hitmac.agents.training.rllib.module import AttentionRLModule

    def make(env, action_space=None):
        torch.manual_seed(0)
        return AttentionRLModule(
            observation_space=env.observation_space,
            action_space=action_space or env.action_space,
            model_config={"encoder_config": EncoderConfig(weight_dim=16)},
        )

    return make


@pytest.fixture
def scenes():
    """Observations of three scenes with other numbers of sensors and targets."""
    vector = gymnasium.make_vec("dsn/Coverage-v0", num_envs=3, scenario="random")
    return vector, {key: torch.as_tensor(array) for key, array in vector.reset(seed=3)[0].items()}


def test_a_sensor_without_any_pair_stays_with_certainty(module, scenes):
    vector, seen = scenes
    net = module(gymnasium.make("dsn/Coverage-v0", scenario="random"))
    output = net.forward_train({"obs": seen})
    absent = ~seen["mask"].any(-1)
    assert absent.any()
    turns = output["action_dist_inputs"].unflatten(-1, (-1, 3)).softmax(-1)
    assert (turns[absent] == torch.tensor([1.0, 0.0, 0.0])).all()
    assert (turns[~absent] > 0.1).all()
    choice = net.action_dist_cls.from_logits(output["action_dist_inputs"])
    action = choice.sample()
    assert action.shape == vector.action_space.shape
    assert torch.isfinite(choice.logp(action)).all()
    assert torch.isfinite(choice.entropy()).all()


def test_values_are_those_of_the_global_feature(module, scenes):
    _, seen = scenes
    net = module(gymnasium.make("dsn/Coverage-v0", scenario="random"))
    given = net.compute_values({"obs": seen}, net.forward_train({"obs": seen})["embeddings"])
    assert given.shape == (3,)
    torch.testing.assert_close(net.compute_values({"obs": seen}), given)


def test_it_is_an_agent(module, scenes):
    _, seen = scenes
    net = module(gymnasium.make("dsn/Coverage-v0", scenario="random"))
    observation = {key: tensor.numpy() for key, tensor in seen.items()}
    best, state = net.predict(observation, deterministic=True)
    np.testing.assert_array_equal(best, net.predict(observation, deterministic=True)[0])
    drawn = [net.predict(observation)[0] for _ in range(5)]
    assert state is None
    assert best.shape == drawn[0].shape == observation["mask"].shape[:2]
    assert any((one != best).any() for one in drawn)


def test_other_spaces_are_refused(module):
    env = gymnasium.make("dsn/Coverage-v0")
    with pytest.raises(ValueError, match=r"the action space is Box.*;.* it must be MultiBinary"):
        module(env, spaces.Box(0.0, 1.0))
