"""The loop of a training: updates, points of the curve and checkpoints, until a limit or a signal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from torch import Tensor, nn
from tqdm import tqdm

from hitmac.agents.learned.checkpoint import save_policy
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.training.config import Options
from hitmac.agents.training.curve import CurveEvaluation
from hitmac.agents.training.learner import build, learned_policy, make_environments, take_weights
from hitmac.agents.training.report import entropy_share, in_training
from hitmac.agents.training.resume import Progress, load_training, save_training, state_file
from hitmac.envs.scenario import Scenario
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

if TYPE_CHECKING:
    from hitmac.agents.training.rllib.engine import RLlibEngine

Engine = Union["SB3Engine", "RLlibEngine"]

OVERDUE = 8.0
"""Seconds after the time limit at which a rollout ends within itself; shorter ones are finished."""


class TrainingError(RuntimeError):
    """Training that cannot continue; what its last checkpoint holds is kept."""


class NotFiniteError(TrainingError):
    """NaN or infinity in a training."""


def make_engine(options: Options, scenario: Scenario, run_dir: Path) -> Engine:
    """Return the engine that the options name, as the last checkpoint of the run has it, or a fresh one.

    The kernels are compiled before, in environments like those of the training, so that no clock runs while they are.
    """
    print("compiling, if it is the first time: a minute or more that does not count as training", flush=True)
    venv = make_environments(options, scenario)
    venv.reset()
    venv.step(np.stack([venv.action_space.sample() for _ in range(venv.num_envs)]))
    if options.engine == "rllib":
        from hitmac.agents.training.rllib.engine import RLlibEngine

        return RLlibEngine(options, scenario, run_dir)
    return SB3Engine(options, scenario, run_dir)


def train(options: Options, scenario: Scenario) -> tuple[Engine, bool]:
    """Train until a limit or the user stops it, and leave a checkpoint in the run's directory.

    Checkpoints are saved, and the user stops it, between two updates only, so that a resumed run is the uninterrupted
    one.

    Returns:
        The engine after the training, and whether the user stopped it.

    Raises:
        TrainingError: a number is not finite, a file cannot be written, or the engine fails.
    """
    run_dir = options.run_dir
    assert run_dir is not None
    with np.errstate(all="ignore"):  # a training ends at numbers that are not finite
        engine = make_engine(options, scenario, run_dir)
        try:
            with stop_on_signal() as stop, finite_outputs(engine.policies):
                _train(options, engine, run_dir, stop)
        except NotFiniteError as error:
            raise NotFiniteError(f"step {engine.steps}: {error}") from None
        except OSError as error:
            raise TrainingError(str(error)) from None
        except (ValueError, TypeError) as error:  # no wrong option, so that it needs its traceback
            raise RuntimeError(f"the training failed at step {engine.steps}") from error
        finally:
            engine.close()
    return engine, stop.is_set()


def _train(options: Options, engine: Engine, run_dir: Path, stop: Stop) -> None:
    progress, clock = engine.progress, TrainingClock(options, engine)
    trained = in_training(options, engine.policies[0], engine.config)
    curve = CurveEvaluation(options, trained, engine.config.scenario, progress, clock.fraction_at)
    saved = progress.seconds
    try:
        while clock.fraction < 1.0 and not stop.is_set():
            clock.tick()
            curve(engine.steps)
            clock.start()
            if stop.is_set():
                break
            engine.update(clock)
            clock.tick()
            if progress.seconds - saved >= options.save_every:
                engine.save(run_dir)
                saved = progress.seconds
    finally:
        clock.close()
    engine.save(run_dir)  # before the last point, which may take a while
    curve(engine.steps, final=True)
    engine.save(run_dir)


class Stop(threading.Event):
    """Request to stop, which a signal makes.

    Attributes:
        number: number of the signal; 0: none has come.
    """

    number = 0


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Yield a request to stop that the first Ctrl-C or SIGTERM makes; a second one interrupts as usual."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield stop
        return

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, frame: object) -> None:
        restore()
        with suppress(OSError):  # not by print, which the signal may have interrupted
            os.write(1, b"\nstopping after this update: evaluating and saving (Ctrl-C again to abort)\n")
        stop.number = number
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        restore()


class TrainingClock:
    """Clock, limits and progress bar of a training; its times and points are those of all sittings of the run."""

    def __init__(self, options: Options, engine: Engine) -> None:
        self.options, self.progress, self._engine = options, engine.progress, engine
        self._since = time.monotonic()
        self._bar = tqdm(
            total=100,
            file=sys.stdout,
            mininterval=0.5 if sys.stdout.isatty() else 10.0,  # a log needs no more
            bar_format="training {percentage:3.0f}% |{bar:30}| {elapsed} < {remaining} {postfix}",
        )

    @property
    def fraction(self) -> float:
        """Share of the training that is done, 0 to 1."""
        return self.fraction_at(self._engine.steps, self.progress.seconds)

    def fraction_at(self, steps: int, seconds: float) -> float:
        """Return the share of the training, 0 to 1, that these steps and seconds are, by the limit that is nearer."""
        by_time = seconds / self.options.max_seconds if self.options.max_seconds else 0.0
        by_steps = steps / self.options.total_steps if self.options.total_steps else 0.0
        return min(1.0, max(by_time, by_steps))

    def start(self) -> None:
        """Start the clock again after a pause."""
        self._since = time.monotonic()

    def tick(self) -> None:
        """Add the time since the last call to the training time."""
        now = time.monotonic()
        self.progress.seconds += now - self._since
        self._since = now

    @property
    def is_overdue(self) -> bool:
        """True from :data:`OVERDUE` seconds after the time limit."""
        limit = self.options.max_seconds
        return limit is not None and self.progress.seconds + time.monotonic() - self._since > limit + OVERDUE

    def close(self) -> None:
        """Stop the clock and end the bar."""
        self.tick()
        self._bar.close()

    def write(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(line)

    def add_point(self, coverage: float, rotation: float, reward: float) -> None:
        """Add the means over a rollout to the curve of the exploring policy, and show them beside the bar."""
        self.tick()
        self.progress.curve.append((self._engine.steps, self.progress.seconds, coverage, rotation, reward))
        steps = f"{self._engine.steps / 1e6:.2f}M steps"
        self._bar.set_postfix_str(f"{steps}, coverage {coverage:.3f}, rotation {rotation:.2f}", refresh=False)
        self._bar.update(100 * self.fraction - self._bar.n)


def check_finite(what: str, values: np.ndarray, scenes: np.ndarray | None = None) -> None:
    """Raise :class:`NotFiniteError` if one of the values (B, ...) is not finite, with the scene of its row."""
    finite = np.isfinite(values)
    if not finite.all():
        row, *place = (int(axis) for axis in np.argwhere(~finite)[0])
        at = f" at {place}" if place else ""
        scene = row if scenes is None else scenes[row]
        raise NotFiniteError(f"{what} of scene {scene} holds {values[(row, *place)]}{at}")


@contextmanager
def finite_outputs(policies: Sequence[AttentionPolicy]) -> Iterator[None]:
    """Raise :class:`NotFiniteError` where an output of a policy's heads is not finite."""

    def check(head: nn.Module, inputs: object, output: Tensor) -> None:
        finite = output.isfinite()
        if not finite.all():
            place = tuple((~finite).nonzero()[0].tolist())
            raise NotFiniteError(f"the policy's {type(head).__name__} gives {output[place].item()} at {list(place)}")

    heads = [head for policy in policies for head in (policy.action_net, policy.value_net)]
    hooks = [head.register_forward_hook(check) for head in heads]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def check_update(policy: AttentionPolicy, logged: Mapping[str, Any]) -> None:
    """Raise :class:`NotFiniteError` unless weights, what is logged under the name of a loss, and outputs are finite.

    The outputs, which :func:`finite_outputs` checks, are those for an observation that is drawn from the observation
    space, always the same.
    """
    weights = [name for name, weight in policy.named_parameters() if not weight.isfinite().all()]
    losses = [name for name, loss in logged.items() if name.endswith("loss") and not np.isfinite(loss)]
    if weights or losses:
        what = f"the weight {weights[0]}" if weights else f"{losses[0]}, {float(logged[losses[0]])},"
        raise NotFiniteError(f"{what} is not finite after the update")
    policy.observation_space.seed(0)
    observation, _ = policy.obs_to_tensor(policy.observation_space.sample())
    with torch.no_grad():
        encoded = policy.encode(observation)
        policy.action_net(*encoded), policy.value_net(*encoded)


class RolloutCallback(BaseCallback):
    """Checks of a rollout, and its means for the curve of the exploring policy."""

    def __init__(self, clock: TrainingClock) -> None:
        super().__init__()
        self._clock = clock
        self._sums = np.zeros(4)  # coverage, rotation, reward and steps of this rollout

    def _on_rollout_start(self) -> None:
        self._sums[:] = 0.0

    def _on_step(self) -> bool:
        assert isinstance(self.training_env, DirectionalSensorVecEnv)
        simulator, rewards = self.training_env.task.simulator, self.locals["rewards"]
        check_finite("the reward", rewards)
        check_finite("the observation", self.locals["new_obs"]["pairs"])
        # With credit for every sensor, their rewards are parts of the team's.
        reward = rewards.sum(-1) if rewards.ndim > 1 else rewards
        self._sums += (simulator.coverage.mean(), simulator.rotation.mean(), reward.mean(), 1)
        return not self._clock.is_overdue

    def _on_rollout_end(self) -> None:
        means = (self._sums[:3] / self._sums[3]).tolist()
        for name, value in zip(("coverage", "rotation", "reward"), means, strict=True):
            self.logger.record(f"rollout/{name}", value)
        self._clock.add_point(*means)


class SB3Engine:
    """Learner of Stable-Baselines3's kind in this process, with its scenes and its progress.

    :func:`train` uses any engine with these members; :class:`hitmac.agents.training.rllib.engine.RLlibEngine` is one.
    """

    def __init__(self, options: Options, scenario: Scenario, run_dir: Path) -> None:
        self.options, self.progress = options, Progress()
        self.model, self._venv, self.config = build(options, scenario)
        if state_file(run_dir).is_file():
            self.progress = load_training(state_file(run_dir), self.model, self._venv)
        elif options.start is not None:
            for policy in self.policies:
                take_weights(policy, options.start)
        self.model.set_logger(configure(str(run_dir / "tensorboard"), ["tensorboard"]))

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.model.num_timesteps

    @property
    def policies(self) -> tuple[AttentionPolicy, ...]:
        """The policy to save and evaluate, and the one that learns if it is another, as with an average of weights."""
        assert isinstance(self.model.policy, AttentionPolicy)
        return tuple(dict.fromkeys((learned_policy(self.model), self.model.policy)))

    @property
    def entropy(self) -> float | None:
        """Mean entropy of the policy after the last update as a share of the highest; None where it is not rewarded."""
        return entropy_share(self.model)

    def update(self, clock: TrainingClock) -> None:
        """Collect a rollout and learn from it."""

        def rate(_: float) -> float:
            """Return the learning rate now; it and the entropy's weight follow the clock or the steps."""
            learning_rate, self.model.ent_coef = self.options.rates(clock.fraction)
            return learning_rate

        self.model.lr_schedule = rate
        steps = self.options.rollout_steps * self._venv.num_envs
        try:
            self.model.learn(steps, RolloutCallback(clock), reset_num_timesteps=False)
        except NotFiniteError:
            self._check()  # a weight says more than what comes of it
            raise
        self._check()

    def _check(self) -> None:
        for policy in self.policies:
            check_update(policy, self.model.logger.name_to_value)

    def save(self, run_dir: Path) -> None:
        """Write a checkpoint; before the first update there is nothing to resume, and it holds the policy alone."""
        save_policy(run_dir / "checkpoint", self.policies[0], self.config)
        if self.steps:
            save_training(state_file(run_dir), self.model, self._venv, self.progress)

    def close(self) -> None:
        """End the processes of the engine."""
