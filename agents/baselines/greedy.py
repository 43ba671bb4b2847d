"""Greedy agent: sensor by sensor towards the most targets that no earlier sensor sees."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hitmac.agents.baselines.rule import MOST_TURNS, RulePolicy
from hitmac.agents.nearness import farthest_reach
from hitmac.envs.kernels.physics import LEFT, RIGHT, STAY


class GreedyAgent(RulePolicy):
    """Agent whose sensors turn towards the heading that sees most of the targets that no earlier sensor will see.

    The sensors choose one after the other. Headings are whole numbers of turns away, at most 10,000, and ties go to the
    nearest heading. The agent assumes that targets stand still, and that sensors turn all round, without pan limits.
    """

    features: ClassVar[tuple[str, ...]] = ("bearing", "distance", "field_of_view", "sensing_range", "turn")

    def near(self) -> dict[str, Any]:
        """Return the targets in range, 16 at most."""
        return {"nearest": 16, "radius": farthest_reach(self.scenario)}

    def act(self, pairs: np.ndarray, mask: np.ndarray, targets: np.ndarray | None = None) -> np.ndarray:
        """Return the turn (B, n) towards each sensor's heading."""
        bearing, distance, view, reach, turn = np.moveaxis(pairs.astype(np.float64), -1, 0)
        in_range = (distance <= reach) & mask.astype(bool)  # (B, n, m)
        actions = np.zeros(pairs.shape[:2], np.int64)
        if targets is None:
            targets = np.broadcast_to(np.arange(pairs.shape[2]), mask.shape)
        scenes = np.arange(len(pairs))
        open_targets = np.ones((len(pairs), targets.max(initial=0) + 1), bool)
        for i in range(pairs.shape[1]):
            # The features of a masked pair are 0; any other pair holds those of the sensor.
            half_view, step = 180 * view[:, i].max(-1), 180 * turn[:, i].max(-1)
            most = int(min(np.ceil(180 / step.min(initial=180, where=step > 0)), MOST_TURNS))
            steps = np.array(sorted(range(-most, most + 1), key=abs))  # nearest first
            off = 180 * bearing[:, i, None] - (steps * step[:, None])[:, :, None]  # (B, steps, m)
            sees = (np.abs((off + 180) % 360 - 180) < half_view[:, None, None]) & in_range[:, i, None]
            listed = targets[:, i]  # (B, k)
            still_open = open_targets[scenes[:, None], listed]
            best = (sees & still_open[:, None]).sum(-1).argmax(-1)  # (B,), the first of equals
            actions[:, i] = np.where(steps[best] > 0, LEFT, np.where(steps[best] < 0, RIGHT, STAY))
            scene, place = np.nonzero(sees[scenes, best])
            open_targets[scene, listed[scene, place]] = False
        return actions
