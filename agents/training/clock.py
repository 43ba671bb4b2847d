"""Clock of a training: its limits, its curve, its progress bar."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from hitmac.agents.training.resume import Progress
from hitmac.agents.training.stopping import Stop


class TrainingClock:
    """Clock, limits, curve and progress bar of a training, whatever learns in it.

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

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        raise NotImplementedError

    @property
    def fraction(self) -> float:
        """Share of the training that is done, 0 to 1."""
        return self.fraction_at(self.steps, self.progress.seconds)

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
            until = max(self.max_steps - self.steps, 0) * seconds / steps
            if until <= left:
                return f"at this speed about {_duration(until)} more of training until {self.max_steps:,} steps"
        whole = self.steps + left * steps / seconds
        return f"at this speed about {whole:,.0f} steps in {_duration(self.progress.seconds + left)} of training"

    def write(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(line)

    def add_point(self, coverage: float, rotation: float, reward: float) -> None:
        """Add the means over a rollout to the curve of the exploring policy, and show them beside the bar."""
        self.tick()
        self.progress.curve.append((self.steps, self.progress.seconds, coverage, rotation, reward))
        steps = f"{self.steps / 1e6:.2f}M steps"
        self._bar.set_postfix_str(f"{steps}, coverage {coverage:.3f}, rotation {rotation:.2f}", refresh=False)
        self._bar.update(100 * self.fraction - self._bar.n)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:,.1f} minutes"
