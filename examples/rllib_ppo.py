"""PPO of RLlib on the native vector environment, with the encoder as its RLModule.

``python examples/rllib_ppo.py`` FIGURE
"""

import time

import gymnasium
import ray
import tyro
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from hitmac.agents.evaluate import evaluate, table
from hitmac.agents.learned.rllib_module import AttentionRLModule
from hitmac.perception import EncoderConfig

BATCH = 4096


def main(total_steps: int = 60_000):
    config = (
        PPOConfig()
        .environment("hitmac:dsn/Coverage-v0")  # "hitmac:" imports the package in every worker
        .env_runners(
            num_env_runners=0,  # in this process; N: in so many workers
            num_envs_per_env_runner=128,
            gym_env_vectorize_mode=gymnasium.VectorizeMode.VECTOR_ENTRY_POINT,
            rollout_fragment_length=32,
        )
        .learners(num_learners=0)
        .rl_module(
            rl_module_spec=RLModuleSpec(
                AttentionRLModule, model_config={"encoder_config": EncoderConfig(weight_dim=64)}
            )
        )
        .training(
            gamma=0.95,
            lambda_=0.95,
            lr=1e-3,
            train_batch_size_per_learner=BATCH,
            minibatch_size=512,
            num_epochs=4,
            entropy_coeff=0.003,
            use_kl_loss=False,
            grad_clip=0.5,
        )
        .debugging(seed=10_000)  # the evaluation has the seeds from 0
    )
    algorithm = config.build_algo()
    updates = -(-total_steps // BATCH)
    for _ in range(updates):
        r = algorithm.train()
        print(r["env_runners"].get("episode_return_mean"), time.process_time())
    print(f"{updates * BATCH:,} steps, {time.process_time():.0f} s of processor time")
    print(table(evaluate([algorithm.get_module(), "greedy", "random", "still"], episodes=20, progress=False)))
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    tyro.cli(main)
