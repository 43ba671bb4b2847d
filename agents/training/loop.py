"""Training by Stable-Baselines3: updates, points of the curve and checkpoints, until a limit or a signal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stable_baselines3.common.logger import configure

from hitmac.agents.learned.attention_policy import AttentionPolicy
from hitmac.agents.learned.checkpoint import PolicyConfig, save_policy
from hitmac.agents.training.callback import TimeIsUpError, TrainingProgress, UpdateGivenUpError
from hitmac.agents.training.curve import CurveEvaluation
from hitmac.agents.training.engines import curve_of, state_file
from hitmac.agents.training.finite import finite_training, finite_update
from hitmac.agents.training.learner import Learner, build, learned_policy
from hitmac.agents.training.remarks import entropy_share
from hitmac.agents.training.rescue import rescue
from hitmac.agents.training.resume import Progress, load_training, save_training
from hitmac.agents.training.roles import Job
from hitmac.agents.training.start import take_weights
from hitmac.agents.training.stopping import Stop, stop_on_signal
from hitmac.envs.apis.sb3_env import DirectionalSensorVecEnv
from hitmac.envs.scenario import Scenario


@dataclass
class Sitting:
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


def begin(options: Job, scenario: Scenario, run_dir: Path) -> Sitting:
    """Build a training as the last checkpoint of the run has it, or if there is none, a fresh one."""
    model, venv, config = build(options, scenario)
    progress = Progress()
    if state_file(run_dir).is_file():
        progress = load_training(state_file(run_dir), model, venv)
    elif options.start is not None:
        take_weights(model.policy, options.start)
        take_weights(learned_policy(model), options.start)
    return Sitting(model, venv, config, progress)


def train(options: Job, scenario: Scenario, run_dir: Path, sitting: Sitting) -> tuple[Sitting, bool]:
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


def _update(options: Job, sitting: Sitting, run_dir: Path, save: Callable[[], None], stop: Stop) -> None:
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


def _curve(options: Job, sitting: Sitting, fraction: Callable[[int, float], float]) -> CurveEvaluation:
    """Return the evaluation that adds points to the training's curve."""
    return curve_of(options, learned_policy(sitting.model), sitting.config, sitting.progress, fraction)
