"""PPO of RLlib on the native vector environment, with the encoder as its RLModule.

``python examples/rllib_ppo.py`` covers 0.791 (greedy 0.716) after 81,920 steps, 68 s on a 2-core AMD EPYC, no GPU.

RLlib asks for gymnasium's default autoreset, at the next step, which is that of ``dsn/Coverage-v0`` too. It counts what
would have followed a time limit.
"""

import time

import gymnasium
import ray
import tyro
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from hitmac.agents.evaluate import evaluate, table
from hitmac.agents.training.rllib.module import AttentionRLModule
from hitmac.perception import EncoderConfig

NUM_ENVS, ROLLOUT = 128, 32


def main(total_steps: int = 80_000):
    batch = NUM_ENVS * ROLLOUT
    updates = -(-total_steps // batch)
    network = RLModuleSpec(AttentionRLModule, model_config={"encoder_config": EncoderConfig(weight_dim=64)})
    config = (
        PPOConfig()
        .environment("hitmac:dsn/Coverage-v0")  # with the module to import, since a worker is a process of its own
        .env_runners(
            num_env_runners=0,  # in this process; or the number of workers, each with so many scenes
            num_envs_per_env_runner=NUM_ENVS,
            rollout_fragment_length=ROLLOUT,
            gym_env_vectorize_mode=gymnasium.VectorizeMode.VECTOR_ENTRY_POINT,
        )
        .rl_module(rl_module_spec=network)
        .training(
            lr=[[0, 1e-3], [updates * batch, 0.0]],
            gamma=0.95,
            lambda_=0.95,
            train_batch_size_per_learner=batch,
            minibatch_size=512,
            num_epochs=3,
            entropy_coeff=0.003,
            vf_loss_coeff=0.1,
            use_kl_loss=False,
            grad_clip=0.5,
        )
        .debugging(seed=10_000)  # the evaluation has the seeds from 0
    )
    ray.init("local", include_dashboard=False, log_to_driver=False, num_cpus=1)
    algorithm = config.build_algo()
    for _ in range(updates):
        algorithm.train()
    print(f"{updates * batch:,} steps, {time.process_time():.0f} s of processor time")
    print(table(evaluate([algorithm.get_module(), "greedy", "random", "still"], episodes=20, progress=False)))
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
