"""The protocol that all agents share, learned or scripted: Stable-Baselines3's ``predict``, batched."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Policy(Protocol):
    """Whatever decides on actions."""

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Decide for a batch of scenes.

        Args:
            observation: the environment's, every array with the scene axis first.
            state: what the last call returned; None at first.
            episode_start: (B,) bool, the scenes in which an episode begins.
            deterministic: take the best action rather than draw one.

        Returns:
            Actions, scene axis first, and the state to hand to the next call.
        """
        ...
