"""Observations of the nearest targets, made of those of all by a plain loop: the reference of other tests."""

import numpy as np


def nearest_of(pairs, mask, distance, k, radius=np.inf):
    """Return pairs (B, n, k', d), mask and targets (B, n, k') of the k nearest valid targets within `radius`.

    Given are pairs (B, n, m, d), mask and distances (B, n, m) of all targets.
    """
    b, n, m, d = pairs.shape
    k = min(k, m)
    if k == m:  # every target keeps its place
        kept = (mask != 0) & (distance <= radius)
        return pairs * kept[..., None], kept.astype(mask.dtype), np.where(kept, np.arange(m, dtype=np.int32), -1)
    near = np.zeros((b, n, k, d), pairs.dtype), np.zeros((b, n, k), mask.dtype), np.full((b, n, k), -1, np.int32)
    for scene, i in np.ndindex(b, n):
        valid = [j for j in range(m) if mask[scene, i, j] and distance[scene, i, j] <= radius]
        for place, j in enumerate(sorted(sorted(valid, key=lambda j, row=distance[scene, i]: row[j])[:k])):
            near[0][scene, i, place], near[1][scene, i, place] = pairs[scene, i, j], 1
            near[2][scene, i, place] = j
    return near
