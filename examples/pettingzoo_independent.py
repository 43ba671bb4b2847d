"""Independent learners on PettingZoo: every sensor learns by itself, by advantage actor-critic, with its own network.

``python examples/pettingzoo_independent.py`` FIGURE
"""

import time

import numpy as np
import torch
import tyro
from torch import nn
from torch.distributions import Categorical

from hitmac.agents.evaluate import evaluate, table
from hitmac.envs import parallel_env
from hitmac.perception import AgentTargetEncoder

NUM_SCENES, ROLLOUT, GAMMA, ENTROPY, LEARNING_RATE = 32, 10, 0.9, 0.003, 2e-3


class Learner(nn.Module):
    """One sensor's turns and value, from what it observes itself."""

    def __init__(self, feature_dim, width=32):
        super().__init__()
        self.encoder = AgentTargetEncoder(feature_dim, width)
        self.actor, self.critic = nn.Linear(width, 3), nn.Linear(width, 1)

    def forward(self, pairs, mask):  # (..., m, d), (..., m)
        own = self.encoder(pairs.unsqueeze(-3), mask.unsqueeze(-2)).global_feature  # a scene with one sensor
        return Categorical(logits=self.actor(own)), self.critic(own).squeeze(-1)


class Sensors:
    """The learners as an agent of `evaluate`."""

    def __init__(self, learners):
        self.learners, self.trained = learners, True

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        pairs, mask = (torch.as_tensor(observation[key]).unbind(1) for key in ("pairs", "mask"))  # of each sensor
        return np.stack(
            [learner(*own)[0].mode for learner, *own in zip(self.learners, pairs, mask, strict=True)], 1
        ), None


def main(total_steps: int = 200_000):
    torch.manual_seed(0)
    scenes = [parallel_env("Coverage") for _ in range(NUM_SCENES)]
    sensors = scenes[0].possible_agents
    learners = [Learner(len(scenes[0].features)) for _ in sensors]
    optimizers = [torch.optim.Adam(learner.parameters(), LEARNING_RATE) for learner in learners]
    updates = -(-total_steps // (NUM_SCENES * ROLLOUT))
    seen = [scene.reset(seed=10_000 + b)[0] for b, scene in enumerate(scenes)]  # the evaluation has the seeds from 0

    def of(sensor):
        return [torch.as_tensor(np.stack([one[sensor][key] for one in seen])) for key in ("pairs", "mask")]

    for _ in range(updates):
        steps, rewards = [], np.zeros((ROLLOUT, len(sensors), NUM_SCENES), np.float32)
        for t in range(ROLLOUT):
            shown = [of(sensor) for sensor in sensors]
            with torch.no_grad():
                actions = [learner(*own)[0].sample() for learner, own in zip(learners, shown, strict=True)]
            steps.append([(*own, action) for own, action in zip(shown, actions, strict=True)])
            for b, scene in enumerate(scenes):
                seen[b], reward, *_ = scene.step(
                    {sensor: int(turn[b]) for sensor, turn in zip(sensors, actions, strict=True)}
                )
                rewards[t, :, b] = list(reward.values())
        for i, (learner, optimizer) in enumerate(zip(learners, optimizers, strict=True)):
            with torch.no_grad():  # an episode is truncated where a rollout ends: both go on with the value
                following = learner(*of(sensors[i]))[1]
            returns = torch.as_tensor(rewards[:, i])
            for t in reversed(range(ROLLOUT)):
                returns[t] += GAMMA * (returns[t + 1] if t + 1 < ROLLOUT else following)
            pairs, mask, action = (torch.stack(x) for x in zip(*(step[i] for step in steps), strict=True))
            turns, value = learner(pairs, mask)
            gain = returns - value.detach()
            loss = -(turns.log_prob(action) * gain).mean() + 0.5 * (returns - value).square().mean()
            optimizer.zero_grad()
            (loss - ENTROPY * turns.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(learner.parameters(), 0.5)
            optimizer.step()
        if not scenes[0].agents:  # all episodes have the same length, a multiple of ROLLOUT
            seen = [scene.reset()[0] for scene in scenes]
    print(f"{updates * ROLLOUT * NUM_SCENES:,} steps, {time.process_time():.0f} s of processor time")
    print(table(evaluate([Sensors(learners), "greedy", "random", "still"], episodes=20, progress=False)))


if __name__ == "__main__":
    tyro.cli(main)
