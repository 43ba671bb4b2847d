"""Callback around the rollouts of a training run: clock, curve, progress bar, signals."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from tqdm import tqdm

from hitmac.agents.training.finite import check_finite
from hitmac.agents.training.resume import Progress
from hitmac.envs.apis.sb3_env import DirectionalSensorVecEnv


class TrainingProgress(BaseCallback):
    """Clock, curve, phases and progress bar of a training.

    A learner with phases says in its attribute ``phase``, a name, which one it is in.

    Args:
        progress: of the run, kept up to date.
        max_seconds: longest training time, earlier sittings of the run counted in; None: no limit.
        max_steps: most environment steps, earlier sittings counted in; None: no limit.
    """

    def __init__(self, progress: Progress, *, max_seconds: float | None, max_steps: int | None) -> None:
        super().__init__()
        self.progress = progress
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

    def _on_rollout_start(self) -> None:
        if phase := getattr(self.model, "phase", ""):
            self.progress.begin_phase(phase, self.model.num_timesteps)
        self._sums[:] = 0.0

    def _on_step(self) -> bool:
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


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C (or SIGTERM) sets; a second one interrupts as usual."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, frame: object) -> None:
        stop.set()
        restore()
        print("\nstopping after this update: evaluating and saving (Ctrl-C again to abort)", flush=True)

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        restore()
