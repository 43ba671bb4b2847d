"""Connect Four of PettingZoo, by entities and a selection: Stable-Baselines3's PPO with ``hitmac.agents.EntityPolicy``.

The pieces of both players are entities of two kinds, from none to 21 of each. The policy selects one of the columns
that are not full, the candidates. The opponent plays at random, and begins in half of the games. PettingZoo's Connect
Four needs pygame, ``pip install 'hitmac[train,pettingzoo,render]'``.

``python examples/sb3_select.py`` wins 0.966 of 500 games (the middle column 0.918, random 0.512) after 81,920 steps,
74 s on a 2-core AMD EPYC, no GPU.
"""

import time
from types import SimpleNamespace

import gymnasium
import numpy as np
import tyro
from gymnasium import spaces
from pettingzoo.classic import connect_four_v3
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from hitmac.agents import EntityPolicy

KINDS = {"own": 1, "mine": 21, "theirs": 21, "columns": 7}  # the largest number of each
PLACES = np.stack(np.meshgrid(np.linspace(1, -1, 6), np.linspace(-1, 1, 7), indexing="ij"), -1)  # (6, 7, 2): y, x


class ConnectFour(gymnasium.Env):
    observation_space = spaces.Dict(
        {kind: spaces.Box(-1, 1, (number, 2), np.float32) for kind, number in KINDS.items()}
        | {f"{kind}_mask": spaces.MultiBinary(number) for kind, number in KINDS.items()}
    )
    action_space = spaces.Discrete(7)

    def __init__(self):
        self.game = connect_four_v3.raw_env()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.game.reset()
        if self.np_random.random() < 0.5:
            self.reply()
        self.player = self.game.agent_selection
        return self.observe(), {}

    def step(self, action):
        self.game.step(int(action))
        if not self.game.terminations[self.player]:
            self.reply()
        over = self.game.terminations[self.player]
        return self.observe(), float(self.game.rewards[self.player]) if over else 0.0, over, False, {}

    def reply(self):
        allowed = self.game.observe(self.game.agent_selection)["action_mask"]
        self.game.step(int(self.np_random.choice(np.flatnonzero(allowed))))

    def observe(self):
        board, allowed = self.game.observe(self.player).values()
        heights = board.any(-1).sum(0)  # (7,)
        tops = np.stack((heights / 3 - 1, PLACES[0, :, 1]), -1)
        rows = [[[heights.sum() / 42, 1]], PLACES[board[..., 0] > 0], PLACES[board[..., 1] > 0], tops[allowed > 0]]
        shown = {}
        for (kind, number), entities in zip(KINDS.items(), rows, strict=True):
            places = np.flatnonzero(allowed) if kind == "columns" else np.arange(len(entities))
            shown[kind], shown[f"{kind}_mask"] = np.zeros((number, 2), np.float32), np.zeros(number, np.int8)
            shown[kind][places], shown[f"{kind}_mask"][places] = entities, 1
        return shown


def rule(score):
    return SimpleNamespace(predict=lambda x, **_: ((score(x["columns"]) + 9 * x["columns_mask"]).argmax(1), None))


def main(total_steps: int = 80_000, episodes: int = 500):
    network = {"candidates": "columns", "weight_dim": 32, "num_heads": 2, "embed_layers": 2, "num_frequencies": 2}
    games, options = make_vec_env(ConnectFour, 16, seed=10_000), {"n_steps": 128, "batch_size": 256, "n_epochs": 4}
    ppo = PPO(EntityPolicy, games, 1e-3, gamma=0.98, policy_kwargs=network, seed=0, **options).learn(total_steps)
    print(f"{ppo.num_timesteps:,} steps, {time.process_time():.0f} s of processor time")
    draws = np.random.default_rng(0)
    rules = {"random": rule(lambda x: draws.random(x.shape[:2])), "the middle": rule(lambda x: -abs(x[..., 1]))}
    for name, policy in {"learned": ppo, **rules}.items():
        game = make_vec_env(ConnectFour, 1, seed=0)
        rewards, _ = evaluate_policy(policy, game, episodes, return_episode_rewards=True)
        print(f"{name} wins {np.mean(np.array(rewards) > 0):.3f}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
