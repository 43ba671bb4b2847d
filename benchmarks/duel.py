"""Speed of the game of two teams."""

import time

import numpy as np


def duel() -> None:
    from hitmac.envs import Simulator

    print(
        "\nsteps/s of mate-4v8-9, random actions of both teams, of one thread per second of processor time; best of 5"
    )
    print("(MATE: 469, one scene, one core)")
    for batch, threads in ((1, 1), (64, 1), (1024, 1), (1024, 2)):
        game = Simulator("mate-4v8-9", batch, seed=0, num_threads=threads)
        rng = np.random.default_rng(0)
        actions, moves = rng.uniform(-5, 5, (16, batch, 4, 2)), rng.uniform(-20, 20, (16, batch, 8, 2))
        clock = time.process_time if threads == 1 else time.perf_counter
        steps, rates = max(16, 65_536 // batch), []
        for _ in range(6):
            began = clock()
            for step in range(steps):
                game.step(actions[step % 16], target_action=moves[step % 16])
            rates.append(steps * batch / (clock() - began))
        print(f"  batch {batch:>5}, {threads} threads: {max(rates[1:]):>10,.0f}")
