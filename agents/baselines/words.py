"""Sets of sampled futures as bits of 64-bit words, for the planner. Compiled by numba."""

import numpy as np

from hitmac.envs.kernels.compiled import allocating, inlined


@inlined
def size(members):
    """Return the number of bits of a uint64 that are set."""
    members = members - ((members >> np.uint64(1)) & np.uint64(0x5555555555555555))
    members = (members & np.uint64(0x3333333333333333)) + ((members >> np.uint64(2)) & np.uint64(0x3333333333333333))
    members = (members + (members >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int32((members * np.uint64(0x0101010101010101)) >> np.uint64(56))


@allocating
def alone(covers, window, samples, shares):
    """Write the share (n, m) of the samples of a target in which a sensor covers it while no other sensor does.

    Args:
        covers: (n, H + 1, W) samples that each sensor's plan covers at each sub-step.
        window: sub-steps that count, from the first on; at most H.
        samples: number of samples of a target; as many targets as fit share a word, from bit 0 on.
        shares: (n, m) result.
    """
    n, m = shares.shape
    targets_per_word, everyone = 64 // samples, ~np.uint64(0) >> np.uint64(64 - samples)
    own = np.zeros((n, covers.shape[2]), np.uint64)
    for h in range(1, window + 1):
        for w in range(covers.shape[2]):
            once, twice = np.uint64(0), np.uint64(0)
            for i in range(n):
                twice |= once & covers[i, h, w]
                once |= covers[i, h, w]
            for i in range(n):
                own[i, w] |= covers[i, h, w] & ~twice
    for i in range(n):
        for j in range(m):
            members = own[i, j // targets_per_word] >> np.uint64(j % targets_per_word * samples)
            shares[i, j] = size(members & everyone) / samples
