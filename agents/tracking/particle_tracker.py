"""Particle filter for targets that are not always seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.agents.observed import as_numbers, check_finite, check_range, checked_number
from hitmac.agents.tracking.particle_kernels import COURSE, Belief, look_all, map_all, move_all, scatter_all, see_all
from hitmac.agents.tracking.walk_models import MODELS, ROWS, X, Y, walk_model
from hitmac.envs.errors import as_array, did_you_mean, is_among
from hitmac.envs.kernels.streams import stream_keys
from hitmac.envs.kernels.threads import Threads, cores
from hitmac.envs.load import load_scenario
from hitmac.envs.machine import check_memory
from hitmac.envs.magnitudes import MOST
from hitmac.envs.scenario import Scenario
from hitmac.envs.seeds import scene_seeds
from hitmac.envs.simulator import positive

_MOST_MOVES = 100_000  # of a call: it cannot be interrupted
_MOST_CELLS = 4096  # along a side


class ParticleTracker:
    """Belief about the positions of m targets in each of B scenes, as P weighted particles for each target.

    Between detections the particles walk as the targets are expected to:

    ======================= ============================================================================================
    ``goals``               to a goal, uniform in the arena, and then to the next, as HiT-MAC's targets do
    ``constant velocity``   straight ahead, swerving by the scenario's `wander`, reflected at the border
    ``random``              every move in a new direction
    ======================= ============================================================================================

    Speeds, noise and the other parameters of the walk are the scenario's. A detection replaces the belief about its
    target: all particles go to its position, with its velocity. A look that does not detect a target is information
    too: with the probability `d` of a detection in a view, Bayes' rule multiplies the weight of a particle inside by
    ``1 - d``. Particles are drawn again (systematic resampling) when their effective number, ``1 / sum(weight^2)``,
    falls under P / 2. At first, every target is anywhere in the scenario's `target_area`, uniformly.

    In a loop, call :meth:`move`, then :meth:`see`, then :meth:`look`. Source: Gordon, Salmond, Smith, "Novel approach
    to nonlinear/non-Gaussian Bayesian state estimation", IEE Proceedings F 1993.

    Args:
        scenario: the scenario of the targets: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a file.
        num_scenes: B, 1 or more.
        particles: P, 1 or more.
        model: the walk, out of :data:`~hitmac.agents.tracking.walk_models.MODELS`; None: the scenario's, and
            ``constant velocity`` for targets that bounce, evade or stand still.
        seed: scene b draws from the seed ``seed + b``, or from the b-th of a sequence, and is the same in any batch.
        num_threads: number of threads, 1 or more; None: the number of cores.

    Attributes:
        belief: the :class:`~hitmac.agents.tracking.particle_kernels.Belief`, all arrays.

    Raises:
        ValueError: an unknown model, or a number out of its range.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path = "hit-mac",
        num_scenes: int = 1,
        *,
        particles: int = 256,
        model: str | None = None,
        seed: int | Sequence[int] = 0,
        num_threads: int | None = None,
    ) -> None:
        self.scenario = load_scenario(scenario)
        b, m, p = positive("num_scenes", num_scenes), self.scenario.num_targets, positive("particles", particles)
        self._walk = walk_model(self.scenario)
        if model is not None:
            if not is_among(model, MODELS):
                known = ", ".join(MODELS)
                raise ValueError(f"model is {model!r}; it must be one of {known}{did_you_mean(model, MODELS)}")
            self._walk = self._walk._replace(model=MODELS.index(model))
        check_memory(8.0 * b * m * (ROWS + 1) * p, f"num_scenes is {b} and particles {p}, with {m} targets, which")
        stream = np.zeros((2, b), np.uint64)
        stream[0] = stream_keys(scene_seeds(seed, b))
        self.belief = Belief(np.zeros((b, m, ROWS, p)), np.zeros((b, m, p)), np.zeros((b, m, COURSE)), stream)
        self._threads = Threads(b, cores() if num_threads is None else positive("num_threads", num_threads), block=8)
        self.reset()

    @property
    def positions(self) -> np.ndarray:
        """(B, m, P, 2) positions of the particles."""
        return np.stack((self.belief.body[:, :, X], self.belief.body[:, :, Y]), -1)

    @property
    def weights(self) -> np.ndarray:
        """(B, m, P) weights of the particles, with the sum 1 for each target."""
        return self.belief.weight.copy()

    @property
    def mean(self) -> np.ndarray:
        """(B, m, 2) mean positions."""
        return (self.positions * self.belief.weight[..., None]).sum(-2)

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Forget all targets of the scenes of `mask` (B,) bool, or of all."""
        chosen = np.ones(len(self.belief.weight), np.bool_) if mask is None else mask
        self._run(scatter_all, self._walk, self.belief, self._shaped("mask", chosen, ()))

    def move(self, moves: int | np.ndarray = 1) -> None:
        """Move all particles.

        Args:
            moves: number of moves of the targets since the last call, (B,) or one for all scenes; 0 to 100,000.
        """
        given = as_array("moves", moves)
        if given.dtype.kind not in "iu" or given.shape not in ((), (len(self.belief.weight),)):
            raise ValueError(f"moves is {moves!r}; it must be a whole number, or one for each scene")
        check_range("moves", given, 0, _MOST_MOVES)
        number = np.broadcast_to(given.astype(np.int64), (len(self.belief.weight),))
        self._run(move_all, self._walk, self.belief, np.ascontiguousarray(number))

    def see(
        self, position: np.ndarray, seen: np.ndarray, velocity: np.ndarray | None = None, *, deviation: float = 0.0
    ) -> None:
        """Replace the belief about the targets that are seen.

        Args:
            position: (B, m, 2) measured positions; those of unseen targets are not read.
            seen: (B, m) bool.
            velocity: (B, m, 2) measured velocities, units per second; None or 0: unknown.
            deviation: standard deviation, in each axis, of the errors of the positions.
        """
        arrays = [self._shaped("position", position, (2,))]
        arrays.append(np.zeros_like(arrays[0]) if velocity is None else self._shaped("velocity", velocity, (2,)))
        seen = self._shaped("seen", seen, None)
        for name, array in zip(("position", "velocity"), arrays, strict=True):
            check_finite(name, array[seen])
        self._run(see_all, self._walk, self.belief, seen, *arrays, checked_number("deviation", deviation, 0.0, MOST))

    def look(self, views: np.ndarray, unseen: np.ndarray) -> None:
        """Take into account that views detect no target of `unseen`.

        Args:
            views: (B, n, 7) views of the sensors: x, y, cosine and sine of the heading, cosine of half the field of
                view (-2: all round), range squared, probability of a detection of a target in view (0: no look).
            unseen: (B, m) bool.
        """
        views = np.ascontiguousarray(as_numbers("views", views), np.float64)
        if views.ndim != 3 or (len(views), views.shape[2]) != (len(self.belief.weight), 7):
            raise ValueError(f"views has shape {views.shape}; it must be ({len(self.belief.weight)}, n, 7)")
        check_finite("views", views)
        unseen = self._shaped("unseen", unseen, None)
        self._run(look_all, self._walk, self.belief, unseen, views)

    def map(self, cells: int = 32) -> np.ndarray:
        """Return the probability (B, m, c, c) that a target is in each cell of a c x c grid over the arena, x first."""
        b, m, _ = self.belief.weight.shape
        cells = positive("cells", cells)
        check_range("cells", cells, 1, _MOST_CELLS)
        found = np.zeros((b, m, cells, cells))
        self._run(map_all, self._walk, self.belief, found)
        return found

    def _shaped(self, name: str, array: np.ndarray, last: tuple[int, ...] | None) -> np.ndarray:
        """Return bools of scenes (B,) if `last` is (), of targets (B, m) if it is None, else numbers (B, m, *last)."""
        b, m, _ = self.belief.weight.shape
        shape = (b,) if last == () else (b, m, *(last or ()))
        array = as_numbers(name, array)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}; it must be {shape}")
        return np.ascontiguousarray(array, np.bool_ if last in (None, ()) else np.float64)

    def _run(self, kernel: Callable, *arguments: Any) -> None:
        self._threads.run(kernel, *arguments)
