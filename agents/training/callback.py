"""Callback around the rollouts of a training run: clock, limits, curve, progress bar."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from tqdm import tqdm

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


class TrainingProgress(BaseCallback):
    """Clock, limits, curve, phases and progress bar of a training.

    An update that goes on for more than :data:`GRACE` seconds after the time limit ends in :class:`TimeIsUpError`, and
    after a signal in :class:`UpdateGivenUpError`: between two steps, and where the optimiser calls :meth:`check_time`,
    between two minibatches.

    A learner with phases says in its attribute ``phase``, a name, which one it is in.

    Args:
        progress: of the run, kept up to date.
        max_seconds: longest training time, earlier sittings of the run counted in; None: no limit.
        max_steps: most environment steps, earlier sittings counted in; None: no limit.
        stop: request to stop.
    """

    def __init__(self, progress: Progress, *, max_seconds: float | None, max_steps: int | None, stop: Stop) -> None:
        super().__init__()
        self.progress, self.stop = progress, stop
        self.max_seconds, self.max_steps = max_seconds, max_steps
        self._since = time.monotonic()
        self._bar = tqdm(
            total=100,
            file=sys.stdout,
            mininterval=0.5 if sys.stdout.isatty() else 10.0,  # a log needs no more
            bar_format="training {percentage:3.0f}% |{bar:30}| {elapsed} < {remaining} {postfix}",
        )
        self._sums = np.zeros(4)  # coverage, rotation, reward and steps of this rollout

    @property
    def fraction(self) -> float:
        """Share of the training that is done, 0 to 1."""
        return self.fraction_at(self.model.num_timesteps, self.progress.seconds)

    def fraction_at(self, steps: int, seconds: float) -> float:
        """Return the share of the training, 0 to 1, that these steps and seconds are, by the limit that is nearer."""
        by_time = seconds / self.max_seconds if self.max_seconds else 0.0
        by_steps = steps / self.max_steps if self.max_steps else 0.0
        return min(1.0, max(by_time, by_steps))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock while something else is done."""
        self.tick()
        try:
            yield
        finally:
            self._since = time.monotonic()

    def tick(self) -> None:
        """Add the time since the last call to the training time."""
        now = time.monotonic()
        self.progress.seconds += now - self._since
        self._since = now

    def close(self) -> None:
        """End the bar."""
        self._bar.close()

    def outlook(self, steps: int, seconds: float) -> str:
        """Return what the training will come to if it goes on like an update with these steps and seconds, in words."""
        left = math.inf if self.max_seconds is None else max(self.max_seconds - self.progress.seconds, 0.0)
        if self.max_steps is not None:
            until = max(self.max_steps - self.model.num_timesteps, 0) * seconds / steps
            if until <= left:
                return f"at this speed about {_duration(until)} more of training until {self.max_steps:,} steps"
        whole = self.model.num_timesteps + left * steps / seconds
        return f"at this speed about {whole:,.0f} steps in {_duration(self.progress.seconds + left)} of training"

    def write(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(line)

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
        check_finite("the reward", self.locals["rewards"], self.num_timesteps)
        check_finite("the observation", self.locals["new_obs"]["pairs"], self.num_timesteps)
        # With credit for every sensor, their rewards are parts of the team's.
        reward = self.locals["rewards"].sum(-1) if self.locals["rewards"].ndim > 1 else self.locals["rewards"]
        self._sums += (simulator.coverage.mean(), simulator.rotation.mean(), reward.mean(), 1)
        return True

    def _on_rollout_end(self) -> None:
        self.tick()
        coverage, rotation, reward = (self._sums[:3] / self._sums[3]).tolist()
        self.progress.curve.append((self.num_timesteps, self.progress.seconds, coverage, rotation, reward))
        for name, value in (("coverage", coverage), ("rotation", rotation), ("reward", reward)):
            self.logger.record(f"rollout/{name}", value)
        steps = f"{self.num_timesteps / 1e6:.2f}M steps"
        self._bar.set_postfix_str(f"{steps}, coverage {coverage:.3f}, rotation {rotation:.2f}", refresh=False)
        self._bar.update(100 * self.fraction - self._bar.n)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:,.1f} minutes"
