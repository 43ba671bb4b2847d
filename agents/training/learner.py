"""Learner of the default engine: its environments, teacher, clock, checks, and :class:`SB3Engine`, which updates it."""

import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor, nn
from tqdm import tqdm

from hitmac.agents.evaluate.statistics import ratio
from hitmac.agents.learned import checkpoint
from hitmac.agents.learned.checkpoint import PolicyConfig, checked_device, load_policy, save_policy, tensors_of
from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.names import load_executor, load_opponent
from hitmac.agents.planning.levels import AssignPlanned, PlannerExecutor, in_place
from hitmac.agents.registry import scripted_agent
from hitmac.agents.tracking.features import BELIEFS, BeliefObserver, check_features
from hitmac.agents.training.config import MAX_ENVS, CoordinatorOptions, ExecutorOptions, Options, policy_folder
from hitmac.agents.training.imitation import Imitation, RecurrentImitation
from hitmac.agents.training.ppo import PPO, RecurrentPPO
from hitmac.agents.training.resume import Progress, load_training, save_training, state_file
from hitmac.envs.scenario import Scenario
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

Learner = PPO | Imitation

FIRST_TRAINING_SEED = 2**40
"""First seed of the scenes of run 0; run s trains on FIRST_TRAINING_SEED + s * MAX_ENVS and up, and evaluations use
the seeds from 0."""

MEANS = ("coverage", "rotation", "reward")
"""Means over a rollout, for the curve."""

CRITIC = "value_net."
"""Beginning of the names of a critic's tensors."""

CRITIC_ALONE = 0.1
"""Share of a training by reward from the policy `start` in which only the critic learns: it may know nothing, as after
imitation, and would change the features of the actor."""

EXPLORING = 0.1
"""Share of the highest entropy to which a policy `start` is sharpened before it learns."""


# Learner and environments.


def build(options: Options, scenario: Scenario) -> tuple[Learner, DirectionalSensorVecEnv, PolicyConfig]:
    """Return the learner, its environments and the metadata of its checkpoints."""
    config, venv = policy_config(options, scenario), make_environments(options, scenario)
    rollout = options.rollout_steps * venv.num_envs
    shared: dict[str, Any] = {
        "policy_kwargs": config.arguments,
        "n_steps": options.rollout_steps,
        "n_epochs": options.epochs,
        "batch_size": min(options.batch_size, rollout),
        "learning_rate": options.learning_rate,
        "max_grad_norm": options.max_grad_norm,
        "seed": options.seed,
        "device": checked_device(options.device),
    }
    kind: Any
    if options.algorithm == "imitation":
        kind = RecurrentImitation if options.recurrent else Imitation
        shared |= {"teacher": teacher_of(options, scenario), "temperature": options.temperature}
    else:
        kind = RecurrentPPO if options.recurrent else PPO
        shared |= {
            "gamma": options.gamma,
            "gae_lambda": options.gae_lambda,
            "ent_coef": options.entropy,
            "normalize_values": options.normalize_values and options.engine == "sb3",
            "critic_apart": options.start is not None,
            "compiled": options.compiled,
        }
    if options.algorithm == "a2c":  # PPO with one gradient step on a rollout, whose ratios are 1
        shared |= {"n_epochs": 1, "batch_size": rollout}
        rms = {
            "optimizer_class": torch.optim.RMSprop,
            "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-5, "weight_decay": 0},
        }
        shared["policy_kwargs"] = config.arguments | rms
    with warnings.catch_warnings():  # the rows that are left over after the last minibatch are not used
        warnings.filterwarnings("ignore", "You have specified a mini-batch size")
        model = kind(config.kind, venv, **shared)
    # These replace the learner's seed at the next reset.
    venv.seed(config.training_seeds[0])
    return model, venv, config


def make_environments(options: Options, scenario: Scenario) -> DirectionalSensorVecEnv:
    """Return the environments for a training, which start at staggered times of their episodes."""
    scenario = options.practice(scenario)
    of_task = {name: getattr(options, name) for name in (*options.task.spec.options, *options.task_fields)}
    if options.opponent is not None:
        of_task["opponent"] = options.opponent
    if options.task.spec.role == "targets":
        of_task["per_sensor"] = True
    features = check_features(options.features)
    observed = observed_as(scenario, features)
    if isinstance(options, CoordinatorOptions):
        with checked_device(options.device):
            executor = load_executor(options.executor, scenario)
        own = observed_as(scenario, executor.features)
        of_task |= {
            "executor": "scripted" if options.executor == "scripted" else executor.policy,  # by name it has a kernel
            "executor_features": observed if executor.features == features else own,
            "padding": executor.padding,
        }
    if isinstance(options, ExecutorOptions) and options.coordinator is not None:
        with checked_device(options.device):
            coordinator, metadata = load_policy(policy_folder(options.coordinator))
        of_task |= {"coordinator": coordinator, "coordinator_features": metadata.features}
    if scenario.tracks:  # whose scenario defines the length of episodes
        scenario = scenario.replace(episode_steps=scenario.sub_steps_of(options.sub_steps))
    return DirectionalSensorVecEnv(
        options.task,
        options.num_envs,
        scenario,
        features=observed,
        max_episode_steps=options.episode_steps,
        credit=options.credit,
        frame_skip=options.held,
        stagger=True,
        end_infos=True,
        **of_task,
        **options.nearness,
    )


def observed_as(scenario: Scenario, features: tuple[str, ...]) -> Any:
    """Return features for a task, or where they need a memory a function that returns their observer."""
    believed = features == BELIEFS or not scenario.identities
    return partial(BeliefObserver, features=features) if believed else features


def warm_up(venv: DirectionalSensorVecEnv) -> None:
    """Compile the kernels of the environments, before any clock starts."""
    venv.reset()
    venv.step(np.stack([venv.action_space.sample() for _ in range(venv.num_envs)]))


def teacher_of(options: Options, scenario: Scenario) -> Any:
    """Return the planner as a teacher for the role of the task."""
    scenario = options.practice(scenario)
    role, chosen = options.task.spec.role, {"turn_cost": options.planner_turn_cost}
    planner: Any
    if role == "targets":
        return load_opponent(options.teacher, scenario, role)
    if role == "agent":
        return scripted_agent(options.teacher, scenario, **chosen)
    if scenario.is_game:
        planner = scripted_agent(options.teacher, scenario, **chosen)
        return AssignPlanned(scenario, planner=planner) if role == "coordinator" else planner
    kind = AssignPlanned if role == "coordinator" else PlannerExecutor
    planning = AssignPlanned.planning if role == "coordinator" else {}
    planner = scripted_agent(options.teacher, in_place(scenario), **planning | chosen)
    return kind(scenario, planner=planner)


def policy_config(options: Options, scenario: Scenario) -> PolicyConfig:
    """Return the metadata of the checkpoints of a training."""
    first_seed = FIRST_TRAINING_SEED + options.seed * MAX_ENVS
    return PolicyConfig(
        policy={
            "encoder_config": options.encoder_config,
            "critic": options.critic,
            "credit": "team" if options.acts_alone else options.credit,
            "memory": "recurrent" if options.recurrent else "none",
        },
        features=check_features(options.features),
        scenario=scenario,
        training_seeds=(first_seed, first_seed + options.num_envs - 1),
        task=options.task.spec.name,
        options={name: getattr(options, name) for name in options.task.spec.options},
        nearness=options.nearness,
    )


def take_weights(policy: nn.Module, start: str) -> None:
    """Copy the weights of the policy `start` to `policy`, whose critic keeps its own if it is of another kind."""
    path = checkpoint.checkpoint_folder(policy_folder(start)) / "policy.safetensors"
    own, found = tensors_of(policy), checkpoint.read_tensors(path)
    critics = [{name: tensor.shape for name, tensor in one.items() if name.startswith(CRITIC)} for one in (own, found)]
    if critics[0] != critics[1]:
        found = {name: tensor for name, tensor in found.items() if name not in critics[1]}
        found |= {name: own[name] for name in critics[0]}
    checkpoint.put_tensors(policy, found, path)


def entropy_on(policy: AttentionPolicy, observation: Any) -> float:
    """Return a policy's mean entropy on the observations of rows as a share of the highest of those who can choose."""
    with torch.no_grad():
        logits = policy.action_net(*policy.encode(obs_as_tensor(observation, policy.device)))
        even = logits.where(logits <= torch.finfo(logits.dtype).min, 0.0)
        entropy, highest = (policy.distribution_of(one).entropy().sum() for one in (logits, even))  # type: ignore
    return float(entropy / highest.clamp(min=1e-9))


def sharpen(policy: AttentionPolicy, observation: Any) -> None:
    """Multiply a policy's logits until its entropy on an observation is :data:`EXPLORING`, if it is higher.

    The best actions stay the same. Imitation leaves logits of which samples cover much less than the best actions, so
    that learning from them would first have to find those again.
    """
    head: Any = policy.action_net
    last: Any = head.query if hasattr(head, "query") else head[0][-1]
    with torch.no_grad():
        for _ in range(40):  # by a factor of 7,500 at most
            if entropy_on(policy, observation) <= EXPLORING:
                break
            last.weight *= 1.25
            last.bias *= 1.25


# The clock and the checks of every engine.


OVERDUE = 8.0
"""Seconds after the time limit at which an unfinished rollout or update is cut."""


class TrainingError(RuntimeError):
    """Training that cannot continue. Its last checkpoint is kept."""


class TrainingClock:
    """Clock, limits and progress bar of a training; times and points are those of the whole run, over all resumes."""

    def __init__(self, options: Options, engine: Any) -> None:
        self.progress, self._options, self._engine = engine.progress, options, engine
        self._steps, self._seconds = options.total_steps, None if options.minutes is None else 60 * options.minutes
        self._since = time.monotonic()
        self.bar = tqdm(
            total=100,
            file=sys.stdout,
            mininterval=0.5 if os.isatty(1) else 10.0,  # a log needs no more
            bar_format="training {percentage:3.0f}% |{bar:30}| {elapsed} < {remaining} {postfix}",
        )

    @property
    def is_overdue(self) -> bool:
        """True from :data:`OVERDUE` seconds after the time limit."""
        seconds = self.progress.seconds + time.monotonic() - self._since
        return self._seconds is not None and seconds > self._seconds + OVERDUE

    @property
    def fraction(self) -> float:
        """Completed share of the training, 0 to 1."""
        return self.fraction_at(self._engine.steps, self.progress.seconds)

    def fraction_at(self, steps: int, seconds: float) -> float:
        """Return the share of the training, 0 to 1, after these steps and seconds, by the nearer limit."""
        by_time = seconds / self._seconds if self._seconds else 0.0
        return min(1.0, max(by_time, steps / self._steps if self._steps else 0.0))

    @property
    def rates(self) -> tuple[float, float]:
        """Present learning rate and weight of the entropy bonus."""
        return self._options.rates(self.fraction)

    def tick(self, *, paused: bool = False) -> None:
        """Add the time since the last call to the training time, unless it was a pause."""
        since, self._since = self._since, time.monotonic()
        if not paused:
            self.progress.seconds += self._since - since

    def add_point(self, coverage: float, rotation: float, reward: float) -> None:
        """Add the means over a rollout to the curve of the exploring policy, and show them on the progress line."""
        self.tick()
        self.progress.curve.append((self._engine.steps, self.progress.seconds, coverage, rotation, reward))
        steps = f"{self._engine.steps / 1e6:.2f}M steps"
        self.bar.set_postfix_str(f"{steps}, exploring: coverage {coverage:.3f}, rotation {rotation:.2f}", refresh=False)
        self.bar.update(100 * self.fraction - self.bar.n)

    def close(self) -> None:
        """Tick, and end the progress line, also after a rollout that was cut."""
        self.tick()
        self.bar.update(100 * self.fraction - self.bar.n)
        self.bar.close()


def check_finite(what: str, values: np.ndarray, first: int) -> None:
    """Raise :class:`TrainingError` if any of the values (B, ...), of the scenes from `first` on, is not finite."""
    finite = np.isfinite(values)
    if not finite.all():
        row, *place = (int(axis) for axis in np.argwhere(~finite)[0])
        at = f" at {place}" if place else ""
        raise TrainingError(f"{what} of scene {first + row} holds {values[(row, *place)]}{at}")


def check_outputs(policies: Sequence[AttentionPolicy]) -> None:
    """Make the heads of the policies raise :class:`TrainingError` for outputs that are not finite.

    Within an update, which reads no number back from the device, :func:`check_update` finds them at its end.
    """

    def check(head: nn.Module, inputs: object, output: Tensor) -> None:
        if torch.is_grad_enabled():
            return
        finite = output.isfinite()
        if not finite.all():
            place = tuple((~finite).nonzero()[0].tolist())
            raise TrainingError(f"the policy's {type(head).__name__} gives {output[place].item()} at {list(place)}")

    for policy in policies:
        policy.action_net.register_forward_hook(check)
        policy.value_net.register_forward_hook(check)


def check_update(policy: AttentionPolicy, logged: Mapping[str, Any]) -> None:
    """Raise :class:`TrainingError` unless weights, logged losses, and outputs for a random observation are finite."""
    weights = [name for name, weight in policy.named_parameters() if not weight.isfinite().all()]
    losses = [name for name, one in logged.items() if name.endswith(("loss", "deviation")) and not np.isfinite(one)]
    if weights or losses:
        what = f"the weight {weights[0]}" if weights else f"{losses[0]}, {float(logged[losses[0]])},"
        raise TrainingError(f"{what} is not finite after the update")
    policy.observation_space.seed(0)
    sample = policy.observation_space.sample()
    for name in {"targets", "neighbours"} & sample.keys():  # lists without repetitions
        sample[name][:] = np.arange(sample[name].shape[-1])
    observation, _ = policy.obs_to_tensor(sample)
    with torch.no_grad():
        encoded = policy.encode(observation)
        policy.action_net(*encoded), policy.value_net(*encoded)


class RolloutCallback(BaseCallback):
    """Means of coverage, rotation and reward over a rollout, and checks; with a clock also points of the curve.

    `first_row` is the number of the first row among those of all environments of a training.
    """

    model: Any

    def __init__(self, clock: TrainingClock | None = None, *, first_row: int = 0) -> None:
        super().__init__()
        self._clock, self._first_row = clock, first_row

    def _on_rollout_start(self) -> None:
        self._sums, self._numbers = np.zeros(3), np.zeros(3)  # of coverage, rotation and reward in this rollout

    def _on_step(self) -> bool:
        env: Any = self.training_env
        check_finite("the reward", self.locals["rewards"], self._first_row)
        for part in self.locals["new_obs"].values():
            if part.dtype.kind == "f":
                check_finite("the observation", part, self._first_row)
        self._sums += np.nan_to_num(env.coverage).mean(), env.rotation.mean(), env.rewards.mean()
        self._numbers += 1 - np.isnan(env.coverage).mean(), 1, 1
        return self._clock is None or not self._clock.is_overdue

    def _on_rollout_end(self) -> None:
        means = ratio(self._sums, self._numbers).tolist()
        self.means = dict(zip(MEANS, means, strict=True))
        for name, value in self.means.items():
            self.logger.record(f"rollout/{name}", value)
        if self._clock is not None:
            self._clock.add_point(**self.means)


class SB3Engine:
    """Learner of Stable-Baselines3's kind in this process, with its scenes and its progress.

    The first of `policies` is saved and evaluated; the last learns. They differ where weights are averaged.
    """

    def __init__(self, options: Options, scenario: Scenario, run_dir: Path) -> None:
        self.options, self.progress, self._run_dir = options, Progress(), run_dir
        self.model, self._venv, self.config = build(options, scenario)
        learned: Any = getattr(self.model, "learned", self.model.policy)
        self.policies: tuple[Any, ...] = tuple(dict.fromkeys((learned, self.model.policy)))
        if state_file(run_dir).is_file():
            self.progress = load_training(state_file(run_dir), self.model, self._venv)
        elif options.start is not None:
            for policy in self.policies:
                take_weights(policy, options.start)
            if not isinstance(self.model, Imitation):
                scenes = make_environments(options, scenario)
                scenes.seed(self.config.training_seeds[0])
                sharpen(self.model.policy, scenes.reset())
        self.model.set_logger(configure(str(run_dir / "tensorboard"), ["tensorboard"]))

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.model.num_timesteps

    @property
    def entropy(self) -> float | None:
        """See :func:`entropy_on`; None by imitation, with a memory, and before the first update."""
        if isinstance(self.model, Imitation | RecurrentPPO) or self.model._last_obs is None:
            return None
        return entropy_on(self.model.policy, self.model._last_obs)

    def update(self, clock: TrainingClock) -> None:
        """Collect a rollout and learn from it, with the learning rate and entropy bonus of the clock."""
        rate, entropy = clock.rates  # of the beginning of the rollout: at its end the last rate would be 0
        self.model.lr_schedule = lambda _: rate
        self.model.overdue = lambda: clock.is_overdue  # type: ignore[union-attr]  # by imitation, at every step
        self.model.ent_coef = entropy  # type: ignore[union-attr]  # without effect by imitation
        adapts = self.options.start is not None and not isinstance(self.model, Imitation)
        for name, weight in self.model.policy.named_parameters():
            weight.requires_grad_(name.startswith(CRITIC) or not adapts or clock.fraction >= CRITIC_ALONE)
        steps = self.options.rollout_steps * self._venv.num_envs
        try:
            self.model.learn(steps, RolloutCallback(clock), reset_num_timesteps=False)
        finally:  # also after an error, whose cause a weight may show
            for policy in self.policies:
                check_update(policy, self.model.logger.name_to_value)

    def save(self) -> None:
        """Write a checkpoint; before the first update, when nothing can be resumed, only the policy."""
        save_policy(self._run_dir / "checkpoint", self.policies[0], self.config)
        if self.steps:
            save_training(state_file(self._run_dir), self.model, self._venv, self.progress)

    def close(self) -> None:
        """Do nothing: the engine has no processes."""
