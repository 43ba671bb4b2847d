"""Train an attention policy for directional sensor coverage, evaluate it and show what it learned.

``python train.py --help`` explains every option. A run leaves its results in ``runs/<name>/``.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure

from agents.attention_policy import AttentionPolicy
from agents.checkpoint import PolicyConfig, save_policy
from agents.command_line import parse, stop_on_bad_input
from agents.evaluate import evaluate, load_agent, save_evaluation, table
from agents.progress import TrainingProgress, stop_on_signal
from agents.report import RELEASED_COVERAGE, save_curve, save_film
from agents.resume import Progress, load_training, save_training
from envs.files import write_text
from envs.observation import DEFAULT_FEATURES, check_features
from envs.sb3_env import CoverageVecEnv
from envs.scenario import Scenario, load_scenario
from envs.tasks import SUB_STEPS

PROGRAM = "train.py"
DEFAULT_MINUTES = 9.0
# Far from the seeds of evaluations, which count from 0: a run with seed s trains on the scenes
# FIRST_TRAINING_SEED + s * MAX_ENVS and up.
FIRST_TRAINING_SEED = 2**40
MAX_ENVS = 2**16
# What may change when a run is resumed; all the rest is the run's own.
LIMITS = {"minutes", "total_steps", "save_every", "episodes", "run_dir", "resume"}


@dataclass(frozen=True)
class Options:
    """Train an attention policy with PPO, evaluate it beside the baselines, leave curves, a table and a film."""

    scenario: str = "hit-mac"
    """A preset's name (also with sizes: hit-mac-6x9) or the path of a YAML file."""
    minutes: float | None = None
    """Longest training time, minutes, over 0; 9 if total_steps is not given either."""
    total_steps: int | None = None
    """Most environment steps (sub-steps, over all scenes), 1 or more; a run limited by it alone is repeatable."""
    num_envs: int = 512
    """Scenes simulated side by side, 1 to 65536."""
    seed: int = 0
    """Seed of networks and scenes, 0 to 1000000."""
    run_dir: Path | None = None
    """Where the results go; a new directory. None: runs/ and the date and time."""
    resume: bool = False
    """Go on with the run in run_dir, from its last checkpoint and with its options."""
    features: tuple[str, ...] = DEFAULT_FEATURES
    """Observation features, by name; a wrong one lists the known."""
    turn_cost: float = 0.04
    """Cost in the reward if all sensors turn, in units of coverage, 0 or more."""
    episode_steps: int = SUB_STEPS
    """Length of an episode, sub-steps, 1 or more."""
    weight_dim: int = 64
    """Width of the encoder, 1 or more."""
    rollout_steps: int = 32
    """Sub-steps of each scene between two updates, 2 or more."""
    batch_size: int = 512
    """Samples in a gradient step, 2 or more."""
    epochs: int = 2
    """Passes over a rollout, 1 or more."""
    learning_rate: float = 1e-3
    """Of Adam at the start, over 0; it falls linearly to 0."""
    gamma: float = 0.97
    """Discount per sub-step, 0 to 1."""
    gae_lambda: float = 0.9
    """Lambda of the generalised advantage estimate, 0 to 1."""
    entropy: float = 0.003
    """Weight of the entropy bonus, 0 or more."""
    save_every: float = 15.0
    """Seconds of training between two checkpoints, 0 or more."""
    episodes: int = 200
    """Fresh episodes that the policy and the baselines are evaluated on, 1 or more; seeds 0 and up."""

    def check(self) -> None:
        """Raise ValueError for an option out of its range."""
        allowed = {
            "minutes": (self.minutes is None or 0 < self.minutes < math.inf, "over 0"),
            "total_steps": (self.total_steps is None or self.total_steps >= 1, "1 or more"),
            "num_envs": (1 <= self.num_envs <= MAX_ENVS, f"1 to {MAX_ENVS}"),
            "seed": (0 <= self.seed <= 1_000_000, "0 to 1000000"),
            "turn_cost": (0 <= self.turn_cost < math.inf, "0 or more"),
            "episode_steps": (self.episode_steps >= 1, "1 or more"),
            "weight_dim": (self.weight_dim >= 1, "1 or more"),
            "rollout_steps": (self.rollout_steps >= 2, "2 or more"),
            "batch_size": (self.batch_size >= 2, "2 or more"),
            "epochs": (self.epochs >= 1, "1 or more"),
            "learning_rate": (0 < self.learning_rate < math.inf, "over 0"),
            "gamma": (0 <= self.gamma <= 1, "0 to 1"),
            "gae_lambda": (0 <= self.gae_lambda <= 1, "0 to 1"),
            "entropy": (0 <= self.entropy < math.inf, "0 or more"),
            "save_every": (0 <= self.save_every < math.inf, "0 or more"),
            "episodes": (self.episodes >= 1, "1 or more"),
        }
        for name, (holds, what) in allowed.items():
            if not holds:
                raise ValueError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be {what}")
        check_features(self.features)
        if self.resume and self.run_dir is None:
            raise ValueError("--resume needs --run-dir, the directory of the run to go on with")


def main() -> None:
    """Train, evaluate, report."""
    with stop_on_bad_input(PROGRAM):
        options, scenario, run_dir = prepare()
        model, venv, config = build(options, scenario)
        state = run_dir / "checkpoint" / "training.safetensors"
        progress = load_training(state, model, venv) if options.resume and state.is_file() else Progress()
    train(options, model, venv, config, progress, run_dir)
    report(options, scenario, progress, run_dir)
    print(f"\n{model.num_timesteps} steps in {progress.seconds / 60:.1f} minutes of training; left in {run_dir}/:")
    for path in sorted(path for path in run_dir.rglob("*") if path.is_file() and not path.name.startswith(".")):
        print(f"  {path.relative_to(run_dir)}")


def prepare() -> tuple[Options, Scenario, Path]:
    """Read and check the options and make the run's directory, or find the one to go on with."""
    options = parse(Options, PROGRAM)
    options.check()
    for module in ("matplotlib", "PIL", "tensorboard"):
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"training needs {module}: pip install 'hitmac[train]'")
    if options.resume:
        return _resumed(options)
    scenario = load_scenario(options.scenario)
    if options.minutes is None and options.total_steps is None:
        options = dataclasses.replace(options, minutes=DEFAULT_MINUTES)
    run_dir = options.run_dir or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    if run_dir.exists():
        raise FileExistsError(f"{run_dir} exists; name a new directory, or go on with that run by adding --resume")
    # The directory appears with its configuration in it, so that whatever exists can be resumed.
    unborn = run_dir.with_name(f".{run_dir.name}.{os.getpid()}")
    unborn.mkdir(parents=True)
    plain = {name: value for name, value in dataclasses.asdict(options).items() if name not in ("run_dir", "resume")}
    plain["features"] = list(options.features)
    written = {"options": plain, "scenario": scenario.to_dict()}
    write_text(unborn / "config.yaml", yaml.safe_dump(written, sort_keys=False, default_flow_style=None))
    unborn.rename(run_dir)
    return options, scenario, run_dir


def _resumed(asked: Options) -> tuple[Options, Scenario, Path]:
    """The options of the run to go on with; only its limits may be given anew."""
    assert asked.run_dir is not None
    path = asked.run_dir / "config.yaml"
    if not path.is_file():
        raise FileNotFoundError(f"{asked.run_dir} is no run to resume: it has no config.yaml")
    try:
        written: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        saved = Options(**{**written["options"], "features": tuple(written["options"]["features"])})
        saved.check()
        scenario = Scenario.from_dict(written["scenario"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not the configuration of a run: {error}") from None
    options = parse(Options, PROGRAM, default=saved)
    options.check()
    for field in dataclasses.fields(Options):
        was, now = getattr(saved, field.name), getattr(options, field.name)
        if field.name not in LIMITS and was != now:
            name = field.name.replace("_", "-")
            raise ValueError(f"--{name} is {now}, but the run in {asked.run_dir} has {was}; it cannot be changed")
    return options, scenario, asked.run_dir


def build(options: Options, scenario: Scenario) -> tuple[PPO, CoverageVecEnv, PolicyConfig]:
    """The learner, its scenes, and what a checkpoint says of them."""
    first_seed = FIRST_TRAINING_SEED + options.seed * MAX_ENVS
    config = PolicyConfig(
        policy={"weight_dim": options.weight_dim},
        features=options.features,
        scenario=scenario,
        training_seeds=(first_seed, first_seed + options.num_envs - 1),
    )
    venv = CoverageVecEnv(
        options.num_envs,
        scenario,
        features=options.features,
        turn_cost=options.turn_cost,
        max_episode_steps=options.episode_steps,
        stagger=True,
    )
    model = PPO(
        AttentionPolicy,
        venv,
        policy_kwargs=config.policy,
        n_steps=options.rollout_steps,
        batch_size=min(options.batch_size, options.rollout_steps * options.num_envs),
        n_epochs=options.epochs,
        learning_rate=options.learning_rate,
        gamma=options.gamma,
        gae_lambda=options.gae_lambda,
        ent_coef=options.entropy,
        seed=options.seed,
        device="cpu",
    )
    venv.seed(first_seed)  # PPO has just given the scenes its own seed, and they start with the next reset
    return model, venv, config


def train(
    options: Options, model: PPO, venv: CoverageVecEnv, config: PolicyConfig, progress: Progress, run_dir: Path
) -> None:
    """Train until a limit is reached or the user stops it, and leave a checkpoint."""
    model.set_logger(configure(str(run_dir / "tensorboard"), ["tensorboard"]))

    def save() -> None:
        save_policy(run_dir / "checkpoint", model.policy, config)
        save_training(run_dir / "checkpoint" / "training.safetensors", model, venv, progress)

    with stop_on_signal() as stop:
        callback = TrainingProgress(
            progress,
            max_seconds=options.minutes and 60 * options.minutes,
            max_steps=options.total_steps,
            stop=stop,
            save=save,
            save_every=options.save_every,
        )
        # The learning rate follows the clock or the steps, whichever ends the run.
        model.lr_schedule = lambda _: options.learning_rate * (1.0 - callback.fraction)
        to_go = max(0, options.total_steps - model.num_timesteps) if options.total_steps else sys.maxsize // 2
        model.learn(to_go, callback, reset_num_timesteps=False)
    save()


def report(options: Options, scenario: Scenario, progress: Progress, run_dir: Path) -> None:
    """Evaluate the trained policy beside the baselines; write and print what came of it."""
    trained = load_agent(str(run_dir), scenario)._replace(name="trained")
    agents = [trained, *(load_agent(name, scenario) for name in ("random", "still", "nearest"))]
    evaluation = evaluate(agents, scenario, episodes=options.episodes, max_episode_steps=options.episode_steps)
    save_evaluation(run_dir / "evaluation.json", evaluation)
    means = {name: result["coverage"]["mean"] for name, result in evaluation["agents"].items()}
    if scenario == load_scenario("hit-mac"):
        means["released HiT-MAC"] = RELEASED_COVERAGE
    steps, seconds, coverage, _ = np.array(progress.curve).reshape(-1, 4).T
    save_curve(run_dir / "curve.png", steps, seconds / 60, coverage, means)
    save_film(run_dir / "episode.gif", trained, scenario, seed=evaluation["seeds"][0], sub_steps=options.episode_steps)
    print(f"\n{table(evaluation)}")


if __name__ == "__main__":
    main()
