"""Sensors and targets that are linked by lists of the nearest targets, for the planner. Compiled by numba."""

from typing import NamedTuple

import numpy as np

from hitmac.agents.baselines.words import size
from hitmac.envs.kernels.compiled import allocating


class Links(NamedTuple):
    """Links of a scene: the sensors that list each target, and where."""

    targets: np.ndarray  # (n, k) int32: the target in each place of a sensor's list
    there: np.ndarray  # (n, k) bool: the places that are valid
    before: np.ndarray  # (n, k) int32: its place in the sensor's list of the last observation; -1: none
    first: np.ndarray  # (m + 1,) int64: number of each target's first link
    sensor: np.ndarray  # (n * k,) int32: sensor of each link, in rising order for each target
    place: np.ndarray  # (n * k,) int32: place of the target in that sensor's list


@allocating
def link(targets, mask, old_targets, old_mask, m):
    """Return the links of lists (n, k) of m targets."""
    n, k = mask.shape
    first = np.zeros(m + 1, np.int64)
    before = np.full((n, k), -1, np.int32)
    for i in range(n):
        old = 0
        for s in range(k):
            if mask[i, s] == 0:
                continue
            j = targets[i, s]
            first[j + 1] += 1
            for one in range(k):  # mostly in the next place
                if old_mask[i, (old + one) % k] and old_targets[i, (old + one) % k] == j:
                    old = (old + one) % k
                    before[i, s] = old
                    break
    for j in range(m):
        first[j + 1] += first[j]
    sensor, place, filled = np.empty(n * k, np.int32), np.empty(n * k, np.int32), first[:-1].copy()
    for i in range(n):
        for s in range(k):
            if mask[i, s]:
                e = filled[targets[i, s]]
                sensor[e], place[e] = i, s
                filled[targets[i, s]] = e + 1
    return Links(targets, mask, before, first, sensor, place)


@allocating
def farthest_link(pairs, links, j):
    """Return the sensor farthest from target j that lists it, and its place there now and in the last observation.

    Sensors that listed it in the last observation too come first. Without any, all three are -1.
    """
    distance = 2  # number of the feature
    best, place, old_place = -1, -1, -1
    for e in range(links.first[j], links.first[j + 1]):
        i, s = links.sensor[e], links.place[e]
        before = links.before[i, s]
        better = best < 0 or (before >= 0) > (old_place >= 0)
        same = (before >= 0) == (old_place >= 0)
        if better or (same and pairs[i, s, distance] > pairs[best, place, distance]):
            best, place, old_place = i, s, before
    return best, place, old_place


@allocating
def covered_by_others(links, i, samples, covers, covered):
    """Write the samples (H + 1, W) of the targets that sensor i lists which other sensors cover, in its own order.

    Args:
        links: links of the scene.
        i: number of the sensor.
        samples: number of samples of a target; as many targets as fit share a word, from bit 0 on.
        covers: (n, H + 1, W) samples that each sensor's plan covers, of the targets that it lists.
        covered: (H + 1, W) result.
    """
    covered[:] = 0
    per_word, everyone = 64 // samples, ~np.uint64(0) >> np.uint64(64 - samples)
    for s in range(links.targets.shape[1]):
        j = links.targets[i, s]
        if not links.there[i, s]:
            continue
        word, shift = s // per_word, np.uint64(s % per_word * samples)
        for e in range(links.first[j], links.first[j + 1]):
            other = links.sensor[e]
            if other != i:
                from_word, from_shift = links.place[e] // per_word, np.uint64(links.place[e] % per_word * samples)
                for h in range(1, covered.shape[0]):
                    covered[h, word] |= ((covers[other, h, from_word] >> from_shift) & everyone) << shift


@allocating
def covered_by_all(links, samples, covers, h):
    """Return the number of samples of all targets that any sensor covers at look h."""
    per_word, everyone = 64 // samples, ~np.uint64(0) >> np.uint64(64 - samples)
    number = 0
    for j in range(links.first.shape[0] - 1):
        members = np.uint64(0)
        for e in range(links.first[j], links.first[j + 1]):
            place = links.place[e]
            members |= covers[links.sensor[e], h, place // per_word] >> np.uint64(place % per_word * samples)
        number += size(members & everyone)
    return number
