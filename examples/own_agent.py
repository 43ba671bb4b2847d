"""An agent of your own against the baselines, on the same episodes.

``python examples/own_agent.py`` FIGURE

``hitmac evaluate --agents examples.own_agent:Unclaimed,nearest,greedy`` does the same from the command line.
"""

import time

import numpy as np
import tyro

from hitmac.agents.evaluate import evaluate, table

STAY, LEFT, RIGHT = 0, 1, 2


class Unclaimed:
    """Every sensor turns towards the nearest target that no other sensor sees, and stays while it sees that one."""

    features = ("bearing", "distance", "visible", "others_seeing")  # the features that it observes, of every pair

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        bearing, distance, visible, others = np.moveaxis(observation["pairs"], -1, 0)  # each (B, n, m)
        cost = distance + 10.0 * (others > 0)  # those that others see come last
        cost = np.where(observation["mask"], cost, np.inf)
        chosen = cost.argmin(-1, keepdims=True)
        towards, seen = (np.take_along_axis(x, chosen, -1)[..., 0] for x in (bearing, visible))
        stays = (seen > 0) | ~observation["mask"].any(-1)
        return np.where(stays, STAY, np.where(towards > 0, LEFT, RIGHT)), None


def main(episodes: int = 50):
    print(table(evaluate([Unclaimed(), "nearest", "greedy", "random"], episodes=episodes, progress=False)))
    print(f"{time.process_time():.0f} s of processor time")


if __name__ == "__main__":
    tyro.cli(main)
