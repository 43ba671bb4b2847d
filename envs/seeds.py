"""Seeds of scenes: checked, one for each, or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hitmac.envs.errors import as_array, shortly
from hitmac.envs.ranges import is_whole


def scene_seeds(seed: int | Sequence[int], num_envs: int) -> np.ndarray:
    """Return the seed of each scene, (B,) uint64: ``seed + i``, or the i-th of a sequence."""
    single = as_array("seed", seed).ndim == 0
    seeds: list[Any] = [seed] if single else list(seed)  # type: ignore[arg-type]
    for one in seeds:
        checked_seed(one)
    if single:
        seeds = [int(seeds[0]) + i for i in range(num_envs)]
    if len(seeds) != num_envs:
        raise ValueError(f"got {len(seeds)} seeds for {num_envs} scenes; give one each, or a single number")
    return np.array(seeds, np.uint64)


def checked_seed(seed: int, name: str = "seed") -> int:
    """Return `seed`; raise ValueError, with `name`, unless it is a whole number from 0 to 2^63 - 1."""
    if not is_whole(seed) or not 0 <= seed < 2**63:
        raise ValueError(f"{name} is {shortly(seed)}; it must be a whole number from 0 to 2^63 - 1")
    return int(seed)


def random_seed() -> int:
    """Draw a seed from the operating system's entropy."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) >> 2
