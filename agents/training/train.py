"""Training by Stable-Baselines3: updates, points of the curve and checkpoints, until a limit or a signal."""

from __future__ import annotations

import importlib
import math
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger, configure
from torch import Tensor, nn
from tqdm import tqdm

from hitmac.agents.learned.checkpoint import PolicyConfig, save_policy
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.policy import Policy
from hitmac.agents.training.config import take_weights
from hitmac.agents.training.curve import CurveEvaluation
from hitmac.agents.training.jobs import Job
from hitmac.agents.training.learner import Learner, build, learned_policy
from hitmac.agents.training.report import entropy_share
from hitmac.agents.training.resume import Progress, load_training, rescue, save_training
from hitmac.envs.scenario import Scenario
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from hitmac.signals import SIGNALS

_MODULES = {"sb3": "hitmac.agents.training.train", "rllib": "hitmac.agents.training.rllib.engine"}


class EngineFailedError(RuntimeError):
    """Engine that cannot go on; the message says why in one line."""


class Session(Protocol):
    """Training of a run in this process, as it stands."""

    progress: Progress

    @property
    def steps(self) -> int:
        """Environment steps so far."""

    @property
    def entropy(self) -> float | None:
        """Mean entropy of the policy at the end as a share of the highest; None where it says nothing."""


class Engine(Protocol):
    """Functions of an engine."""

    def begin(self, options: Job, scenario: Scenario, run_dir: Path) -> Any:
        """Return the :class:`Sitting` to train."""

    def train(self, options: Job, scenario: Scenario, run_dir: Path, sitting: Any) -> tuple[Any, bool]:
        """Return the sitting after the training, and whether the user stopped it."""


def engine_of(options: Job) -> Engine:
    """Return the engine that the options name."""
    return importlib.import_module(_MODULES[options.engine])


def state_file(run_dir: Path) -> Path:
    """Return the place of the training's state in a run."""
    return run_dir / "checkpoint" / "training.safetensors"


def compile_kernels(options: Job, scenario: Scenario) -> None:
    """Take a step in environments like those of the training: no kernel is compiled while the clock runs."""
    print("compiling, if it is the first time: a minute or more that does not count as training", flush=True)
    venv = options.make(scenario)
    venv.reset()
    venv.step(np.stack([venv.action_space.sample() for _ in range(venv.num_envs)]))


def curve_of(
    options: Job, policy: Policy, config: PolicyConfig, progress: Progress, fraction: Callable[[int, float], float]
) -> CurveEvaluation:
    """Return the evaluation that adds points to the training's curve."""
    return CurveEvaluation(
        options.trained(policy, config),
        config.scenario,
        progress,
        fraction,
        points=options.curve_points,
        sub_steps=options.sub_steps,
        episodes=options.episodes,
    )


class _Leave(KeyboardInterrupt):
    """End of a function of :meth:`Stop.leaves`; where Python drops it, the function goes on to its own end."""


class Stop:
    """Request to stop, which a signal makes.

    Attributes:
        number: number of the signal; 0: none has come.
    """

    def __init__(self) -> None:
        self.number = 0
        self._since = 0.0
        self._leaving = False
        self._leave: _Leave | None = None

    def is_set(self) -> bool:
        """Return whether the signal has come."""
        return self.number > 0

    @property
    def age(self) -> float:
        """Seconds since the signal; 0 before it."""
        return time.monotonic() - self._since if self.number else 0.0

    def set(self, number: int) -> None:
        """Make the request; leave the function of :meth:`leaves`."""
        self.number, self._since = number, time.monotonic()
        if self._leaving:
            self._leave = _Leave()
            raise self._leave

    def leaves(self, function: Callable[[], None]) -> None:
        """Call a function that computes something for the user only, and leave it when the signal comes."""
        try:
            self._leaving = True
            function()
        except KeyboardInterrupt as interrupt:
            if interrupt is not self._leave:
                raise
        finally:
            self._leaving = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Yield a request to stop that the first Ctrl-C, SIGTERM or SIGHUP makes; a second one interrupts as usual."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *SIGNALS)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, frame: object) -> None:
        restore()
        if number not in (signal.SIGINT, signal.SIGTERM):
            _detach_output()
        with suppress(OSError):  # not by print, which the signal may have interrupted
            os.write(1, b"\nstopping after this update: evaluating and saving (Ctrl-C again to abort)\n")
        stop.set(number)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN or number in (signal.SIGINT, signal.SIGTERM):  # nohup ignores SIGHUP
            signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        restore()


def _detach_output() -> None:
    """Let what is printed to a terminal, which has been closed, go nowhere."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


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


class NotFiniteError(ArithmeticError):
    """Training has met NaN or infinity; what was saved before is still good."""


def check_finite(what: str, values: np.ndarray) -> None:
    """Raise :class:`NotFiniteError` if any of the values (B, ...), the first axis that of the scenes, is not finite."""
    if (place := not_finite(values)) is not None:
        raise not_finite_error(what, place[0], values, place)


def not_finite_error(what: str, scene: object, values: np.ndarray, place: tuple[int, ...]) -> NotFiniteError:
    """Return the error of a value of a scene, whose place (scene, ...) in the values is given."""
    at = f" at {list(place[1:])}" if place[1:] else ""
    return NotFiniteError(f"{what} of scene {scene} holds {values[place]}{at}")


def not_finite(values: np.ndarray) -> tuple[int, ...] | None:
    """Return the place of the first value that is not finite; None if all are."""
    finite = np.isfinite(values)
    return None if finite.all() else tuple(int(axis) for axis in np.argwhere(~finite)[0])


@contextmanager
def finite_training(steps: Callable[[], int], *policies: AttentionPolicy) -> Iterator[None]:
    """Raise :class:`NotFiniteError` where a policy's output is not finite, and name the step in each of them.

    Args:
        steps: returns the environment steps so far.
        *policies: policies that learn or are evaluated.
    """
    hooks = [
        head.register_forward_hook(lambda head, _, output: _check_output(head, output))
        for policy in policies
        for head in (policy.action_net, policy.value_net)
    ]
    try:
        yield
    except NotFiniteError as error:
        raise NotFiniteError(f"step {steps()}: {error}") from None
    finally:
        for hook in hooks:
            hook.remove()


def _check_output(head: nn.Module, output: Tensor) -> None:
    values = output.detach().cpu().numpy()
    if (place := not_finite(values)) is not None:
        raise NotFiniteError(f"the policy's {type(head).__name__} gives {values[place]} at {list(place)}")


@contextmanager
def finite_update(logger: Logger, *policies: AttentionPolicy) -> Iterator[None]:
    """Raise :class:`NotFiniteError` if an update leaves a loss that is logged, or one of the policies, not finite."""

    def check() -> None:
        for policy in policies:
            check_update(policy, logger.name_to_value)

    try:
        yield
    except NotFiniteError:
        check()  # a weight says more than what comes of it
        raise
    check()


def check_update(policy: AttentionPolicy, logged: Mapping[str, Any]) -> None:
    """Raise :class:`NotFiniteError` unless weights, what is logged under the name of a loss, and outputs are finite.

    The outputs are those for an observation that is drawn from the observation space, always the same.
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
        for head in (policy.action_net, policy.value_net):
            _check_output(head, head(*encoded))


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
        progress, max_seconds, max_steps, stop: see :class:`~hitmac.agents.training.train.TrainingClock`.
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


@dataclass
class SB3Session:
    """Training of a run in this process, as it stands."""

    model: Learner
    venv: DirectionalSensorVecEnv
    config: PolicyConfig
    progress: Progress

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.model.num_timesteps

    @property
    def policies(self) -> tuple[AttentionPolicy, ...]:
        """The policy that learns, and what is learned if that is another, as the average of imitation."""
        assert isinstance(self.model.policy, AttentionPolicy)
        return tuple(dict.fromkeys((self.model.policy, learned_policy(self.model))))

    @property
    def entropy(self) -> float | None:
        """Entropy of a policy that learns from reward, as a share of the highest."""
        return entropy_share(self.model)

    def save(self, run_dir: Path) -> None:
        """Write a checkpoint; before the first update there is nothing to go on from, and it holds the policy alone."""
        save_policy(run_dir / "checkpoint", learned_policy(self.model), self.config)
        if self.model.num_timesteps:
            save_training(state_file(run_dir), self.model, self.venv, self.progress)


def begin(options: Job, scenario: Scenario, run_dir: Path) -> SB3Session:
    """Build a training as the last checkpoint of the run has it, or if there is none, a fresh one."""
    model, venv, config = build(options, scenario)
    progress = Progress()
    if state_file(run_dir).is_file():
        progress = load_training(state_file(run_dir), model, venv)
    elif options.start is not None:
        take_weights(model.policy, options.start)
        take_weights(learned_policy(model), options.start)
    return SB3Session(model, venv, config, progress)


def train(options: Job, scenario: Scenario, run_dir: Path, sitting: SB3Session) -> tuple[SB3Session, bool]:
    """Train until a limit or the user stops it, and leave a checkpoint.

    Checkpoints are saved, and the user stops it, between two updates only, so that a resumed run is the uninterrupted
    one; an update that would take too long is given up, and what remains is the last checkpoint. The time limit may
    break off an update.

    Returns:
        The training as it was saved, and whether the user stopped it.
    """

    def save() -> None:
        check()
        sitting.save(run_dir)

    elsewhere = rescue(run_dir, lambda folder: save_policy(folder, learned_policy(sitting.model), sitting.config))
    finite = finite_training(lambda: sitting.steps, *sitting.policies)
    with stop_on_signal() as stop, elsewhere as check, finite:
        try:
            _update(options, sitting, run_dir, save, stop)
        except UpdateGivenUpError:
            sitting = begin(options, scenario, run_dir)
            print(f"this update would take too long; back to the last checkpoint, {sitting.model.num_timesteps} steps")
        save()  # before the last point, which may take a while
        last = _curve(options, sitting, lambda *_: 1.0)
        stop.leaves(lambda: last(sitting.model.num_timesteps, final=True))
        save()
    return sitting, stop.is_set()


def _update(options: Job, sitting: SB3Session, run_dir: Path, save: Callable[[], None], stop: Stop) -> None:
    """Update the policy until a limit or a signal; raise UpdateGivenUpError in one that goes on after that."""
    model, progress = sitting.model, sitting.progress
    model.set_logger(configure(str(run_dir / "tensorboard"), ["tensorboard"]))
    callback = TrainingProgress(progress, max_seconds=options.max_seconds, max_steps=options.total_steps, stop=stop)
    callback.init_callback(model)
    model.policy.optimizer.register_step_pre_hook(lambda *_: callback.check_time())
    curve = _curve(options, sitting, callback.fraction_at)

    def rate(_: float) -> float:
        """Return the learning rate now; it and the entropy's weight follow the clock or the steps."""
        learning_rate, model.ent_coef = options.rates(callback.fraction)
        return learning_rate

    model.lr_schedule = rate
    saved, told = progress.seconds, False
    try:
        while callback.fraction < 1.0 and not stop.is_set():
            with callback.paused():
                stop.leaves(lambda: curve(model.num_timesteps))
            if stop.is_set():
                break
            steps, seconds = model.num_timesteps, progress.seconds
            with finite_update(model.logger, *sitting.policies), suppress(TimeIsUpError):
                model.learn(options.rollout_steps * sitting.venv.num_envs, callback, reset_num_timesteps=False)
            callback.tick()
            if not told and callback.fraction < 1.0:
                callback.write(callback.outlook(model.num_timesteps - steps, progress.seconds - seconds))
                told = True
            if progress.seconds - saved >= options.save_every:
                save()
                saved = progress.seconds
    finally:
        callback.tick()
        callback.close()


def _curve(options: Job, sitting: SB3Session, fraction: Callable[[int, float], float]) -> CurveEvaluation:
    """Return the evaluation that adds points to the training's curve."""
    return curve_of(options, learned_policy(sitting.model), sitting.config, sitting.progress, fraction)
