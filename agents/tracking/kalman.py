"""Kalman filter for intermittently observed targets."""

import numpy as np

from hitmac.envs.simulator import positive
from hitmac.envs.validation import Positive, convert


class KalmanTracker:
    """Belief about the positions of m targets in each of B scenes, as a normal distribution for each target.

    White noise of acceleration drives position x and velocity v, independently and with the same covariance matrix C of
    (x, v) in both axes:

        x' = x + t v,  v' = v,  C' = F C F^T + q Q,  F = [[1, t], [0, 1]],  Q = [[t^3 / 3, t^2 / 2], [t^2 / 2, t]].

    A detection z of standard deviation s has the gain ``K = C[:, 0] / (C[0, 0] + s^2)``: (x, v) changes by
    ``K (z - x)``, C by ``-K C[0, :]``. Looks without detections and the arena's border are ignored, since the result
    would not be normal; :class:`~hitmac.agents.tracking.ParticleTracker` uses both.
    Source: Bar-Shalom, Li, Kirubarajan, "Estimation with Applications to Tracking and Navigation", 2001, chapter 6.

    Args:
        num_scenes: B, 1 or more.
        num_targets: m, 1 or more.
        agility: q, power of the acceleration, units^2 / s^3, over 0.
        deviation: s, standard deviation of the errors of a detection, in each axis, units; over 0.
        arena: initial standard deviation of x about the middle: half the (longer) side of the arena.
        top_speed: initial standard deviation of v, units per second.

    Attributes:
        state: (B, m, 2, 2) mean (x, v) of each axis, axis last.
        covariance: (B, m, 2, 2) C.

    Raises:
        ValueError: an argument out of its range.
    """

    def __init__(
        self,
        num_scenes: int = 1,
        num_targets: int = 1,
        *,
        agility: float = 1000.0,
        deviation: float = 1.0,
        arena: float = 1250.0,
        top_speed: float = 100.0,
    ) -> None:
        b, m = positive("num_scenes", num_scenes), positive("num_targets", num_targets)
        self.agility, self.deviation = convert("agility", Positive, agility), convert("deviation", Positive, deviation)
        start = convert("arena", Positive, arena), convert("top_speed", Positive, top_speed)
        self._start = np.diag(np.square(start))
        self.state, self.covariance = np.zeros((b, m, 2, 2)), np.zeros((b, m, 2, 2))
        self.reset()

    @property
    def mean(self) -> np.ndarray:
        """(B, m, 2) mean positions."""
        return self.state[:, :, 0].copy()

    @property
    def spread(self) -> np.ndarray:
        """(B, m) standard deviation of the position, in each axis."""
        return np.sqrt(self.covariance[:, :, 0, 0])

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Forget all targets of the scenes of `mask` (B,) bool, or of all."""
        chosen = np.ones(len(self.state), np.bool_) if mask is None else mask
        self.state[chosen], self.covariance[chosen] = 0.0, self._start

    def move(self, seconds: float) -> None:
        """Predict the beliefs after some seconds."""
        t = float(seconds)
        step = np.array([[1.0, t], [0.0, 1.0]])
        noise = self.agility * np.array([[t**3 / 3, t**2 / 2], [t**2 / 2, t]])
        self.state = step @ self.state
        self.covariance = step @ self.covariance @ step.T + noise

    def see(self, position: np.ndarray, seen: np.ndarray) -> None:
        """Update the beliefs by measured positions (B, m, 2), only of the targets of `seen` (B, m) bool."""
        seen, shape = np.asarray(seen, np.bool_), self.state.shape[:2]
        if seen.shape != shape or np.shape(position) != (*shape, 2):
            raise ValueError(
                f"position and seen have shapes {np.shape(position)} and {seen.shape}; they must be {(*shape, 2)} and "
                f"{shape}"
            )
        state, covariance = self.state[seen], self.covariance[seen]
        gain = covariance[:, :, 0] / (covariance[:, :1, 0] + self.deviation**2)  # (k, 2)
        error = np.asarray(position, np.float64)[seen] - state[:, 0]
        self.state[seen] = state + gain[:, :, None] * error[:, None]
        self.covariance[seen] = covariance - gain[:, :, None] * covariance[:, None, 0]

    def map(self, arena: float | tuple[float, float], cells: int = 32) -> np.ndarray:
        """Return the probability (B, m, c, c) of each cell of a c x c grid over the arena, x first.

        `arena` is half its side, or half its width and half its height. The probability is the density in the middle of
        a cell times its area, scaled to the sum 1.
        """
        half = np.broadcast_to(np.asarray(arena, np.float64), 2)
        middle = ((np.arange(positive("cells", cells)) + 0.5) / cells * 2)[:, None] * half - half  # (c, 2)
        away = (middle - self.state[:, :, None, 0]) / self.spread[:, :, None, None]  # (B, m, c, 2)
        density = np.exp(-0.5 * away**2) + 1e-300
        found = density[..., :, None, 0] * density[..., None, :, 1]
        return found / found.sum((-2, -1), keepdims=True)
