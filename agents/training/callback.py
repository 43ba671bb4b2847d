"""Callback around the rollouts of a training run with Stable-Baselines3."""

from __future__ import annotations

import time

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from hitmac.agents.training.clock import TrainingClock
from hitmac.agents.training.finite import check_finite
from hitmac.agents.training.resume import Progress
from hitmac.agents.training.stopping import Stop
from hitmac.envs.apis.sb3_env import DirectionalSensorVecEnv

GRACE = 8.0
"""Seconds in which an update may end after the time limit or a signal, as the usual ones do; others are broken off."""


class TimeIsUpError(Exception):
    """Update that goes on after the time limit; it is broken off, and what it has learned stays."""


class UpdateGivenUpError(Exception):
    """Update that goes on after a signal; it is given up, since a resumed run makes the whole update."""


class TrainingProgress(TrainingClock, BaseCallback):
    """Clock, limits, curve, phases and progress bar of a training.

    An update that goes on for more than :data:`GRACE` seconds after the time limit ends in :class:`TimeIsUpError`, and
    after a signal in :class:`UpdateGivenUpError`: between two steps, and where the optimiser calls :meth:`check_time`,
    between two minibatches.

    A learner with phases says in its attribute ``phase``, a name, which one it is in.

    Args:
        progress, max_seconds, max_steps, stop: see :class:`~hitmac.agents.training.clock.TrainingClock`.
    """

    def __init__(self, progress: Progress, *, max_seconds: float | None, max_steps: int | None, stop: Stop) -> None:
        super().__init__(progress, max_seconds=max_seconds, max_steps=max_steps, stop=stop)
        self._sums = np.zeros(4)  # coverage, rotation, reward and steps of this rollout

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.model.num_timesteps

    def check_time(self) -> None:
        """Raise TimeIsUpError or UpdateGivenUpError if the training should have ended some time ago."""
        if self.stop.age > GRACE:
            raise UpdateGivenUpError
        seconds = self.progress.seconds + time.monotonic() - self._since
        if self.max_seconds is not None and seconds > self.max_seconds + GRACE:
            raise TimeIsUpError

    def _on_rollout_start(self) -> None:
        if phase := getattr(self.model, "phase", ""):
            self.progress.begin_phase(phase, self.model.num_timesteps)
        self._sums[:] = 0.0

    def _on_step(self) -> bool:
        self.check_time()
        assert isinstance(self.training_env, DirectionalSensorVecEnv)
        simulator = self.training_env.task.simulator
        check_finite("the reward", self.locals["rewards"])
        check_finite("the observation", self.locals["new_obs"]["pairs"])
        # With credit for every sensor, their rewards are parts of the team's.
        reward = self.locals["rewards"].sum(-1) if self.locals["rewards"].ndim > 1 else self.locals["rewards"]
        self._sums += (simulator.coverage.mean(), simulator.rotation.mean(), reward.mean(), 1)
        return True

    def _on_rollout_end(self) -> None:
        coverage, rotation, reward = (self._sums[:3] / self._sums[3]).tolist()
        for name, value in (("coverage", coverage), ("rotation", rotation), ("reward", reward)):
            self.logger.record(f"rollout/{name}", value)
        self.add_point(coverage, rotation, reward)
