"""Speed of training by RLlib beside the default engine, in turns, and where its time goes."""

import dataclasses
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROUNDS = 4


def rllib(rounds: int = ROUNDS) -> None:
    """Print the steps per second of both engines, and the shares of the parts of an update."""
    import gymnasium
    import ray
    import torch
    from ray.rllib.algorithms.ppo import PPO, PPOConfig
    from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    from hitmac import envs
    from hitmac.agents.learned.policy import AttentionPolicy
    from hitmac.agents.training.config import CoverageRewardOptions
    from hitmac.agents.training.learner import build
    from hitmac.agents.training.rllib import engine
    from hitmac.agents.training.rllib.cluster import connect
    from hitmac.agents.training.rllib.module import AttentionRLModule
    from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
    from hitmac.envs.wrappers.vector_env import DirectionalSensorVectorEnv

    options, scenario = CoverageRewardOptions(engine="rllib"), envs.load_scenario("hit-mac")
    torch.set_num_threads(1)
    connect("local", num_cpus=4)
    updates: dict[str, Callable[[], Any]] = {}

    model, venv, _ = build(options, scenario)
    model._setup_learn(10**9)
    steps = options.rollout_steps * venv.num_envs

    def update() -> None:
        model.learn(steps, reset_num_timesteps=False)

    updates["Stable-Baselines3"] = update
    clock: Any = SimpleNamespace(fraction=0.0, rates=options.rates(0.0), add_point=lambda **means: None)
    for number in range(3):
        chosen = dataclasses.replace(options, num_env_runners=number)
        trained = engine.RLlibEngine(chosen, scenario, Path(tempfile.mkdtemp()))
        updates[f"RLlib, {number} env runners"] = partial(trained.update, clock)
    network = {"encoder_config": options.encoder_config, "critic": options.critic}
    plain = (
        PPOConfig()
        .environment("hitmac:dsn/Coverage-v0", env_config={"turn_cost": options.turn_cost, "scenario": scenario})
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=options.num_envs,
            rollout_fragment_length=options.rollout_steps,
            gym_env_vectorize_mode=gymnasium.VectorizeMode.VECTOR_ENTRY_POINT,
        )
        .rl_module(rl_module_spec=RLModuleSpec(AttentionRLModule, model_config=network))
        .training(
            minibatch_size=options.batch_size,
            num_epochs=options.epochs,
            train_batch_size_per_learner=steps,
            use_kl_loss=False,
        )
    )
    updates["RLlib with its own env runner"] = PPO(config=plain).train

    parts: dict[str, float] = defaultdict(float)
    timed(DirectionalSensorVecEnv, "step_wait", "scenes", parts)
    timed(DirectionalSensorVectorEnv, "step", "scenes", parts)
    timed(AttentionRLModule, "forward_exploration", "network in the rollout", parts)
    timed(AttentionPolicy, "forward", "network in the rollout", parts)
    timed(engine.SceneEnvRunner, "sample", "rollout", parts)
    timed(SingleAgentEnvRunner, "sample", "rollout", parts)
    timed(PPOTorchLearner, "_make_batch_if_necessary", "batch and advantages", parts)
    timed(PPOTorchLearner, "_update", "gradient steps", parts)
    timed(PPOTorchLearner, "update", "learner", parts)

    walls, works = defaultdict(list), defaultdict(list)
    shares: dict[str, dict[str, float]] = {}
    for number in range(rounds + 1):
        for name, train in updates.items():
            parts.clear()
            began, worked = time.perf_counter(), time.process_time()
            train()
            if number:
                walls[name].append(time.perf_counter() - began)
                works[name].append(time.process_time() - worked)
                if works[name][-1] == min(works[name]):
                    shares[name] = dict(parts)
    print(f"\nsteps/s of an update of {steps:,} steps, coverage-ppo with its defaults; fastest of {rounds}, in turns")
    for name in updates:
        print(f"  {name:<30} {steps / min(walls[name]):>8,.0f} {min(works[name]):>8.2f} s of this process")
        for part, seconds in sorted(shares[name].items(), key=lambda one: -one[1]):
            print(f"      {part:<26} {100 * seconds / min(works[name]):>5.0f} %")
    ray.shutdown()


def timed(kind: type, name: str, part: str, parts: dict[str, float]) -> None:
    """Add the processor time of a method to that of a part."""
    method = getattr(kind, name)

    def measured(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        try:
            return method(*args, **kwargs)
        finally:
            parts[part] += time.process_time() - began

    setattr(kind, name, measured)


if __name__ == "__main__":
    rllib()
