"""Counter-based random numbers: one independent stream per scene, for the kernels.

A stream is a key and a counter. Its k-th word is ``mix(key + k * GOLDEN)`` in 64-bit arithmetic, the
SplitMix64 generator of Steele, Lea and Flood ("Fast splittable pseudorandom number generators",
OOPSLA 2014). A word depends only on key and counter, so a scene draws the same numbers in any batch and on any
thread.
"""

import math

import numpy as np

from hitmac.envs.base.compile import compiled, inlined
from hitmac.envs.base.state import DRAWS, DRAWS_BEFORE, KEY, TIME, TIME_BEFORE

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_ONE = np.uint64(1)
_TO_UNIT = 1.0 / (1 << 53)

MOST_DRAWS = 1000
"""Maximum number of draws of a number, place or move until one fits."""


@inlined
def mix(z):
    """Return the finalizer of SplitMix64, a bijection of 64-bit words in which every bit affects all bits."""
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@inlined
def word(key, counter):
    """Return the `counter`-th 64-bit word (counted from 0) of the stream `key`, both uint64."""
    return mix(key + (counter + _ONE) * GOLDEN)


@inlined
def uniform(key, counter):
    """Return the `counter`-th number of the stream `key` as a float64 in [0, 1)."""
    return np.float64(word(key, counter) >> _S11) * _TO_UNIT


@inlined
def integer(key, counter, low, high):
    """Return the `counter`-th number of the stream `key` as a whole number (float64) in [low, high], inclusive."""
    return np.floor(low + uniform(key, counter) * (high - low + 1.0))


@compiled
def draw_uniform(stream, b):
    """Draw the next number of scene b's stream, in [0, 1)."""
    counter = stream[DRAWS, b]
    stream[DRAWS, b] = counter + _ONE
    return uniform(stream[KEY, b], counter)


@compiled
def draw_integer(stream, b, low, high):
    """Draw the next number of scene b's stream, a whole number in [low, high], inclusive."""
    counter = stream[DRAWS, b]
    stream[DRAWS, b] = counter + _ONE
    return integer(stream[KEY, b], counter, low, high)


@compiled
def draw_between(stream, b, low, high, whole):
    """Draw the next number of scene b's stream: a whole number in [low, high], or a real number in [low, high)."""
    if whole:
        return draw_integer(stream, b, low, high)
    return low + (high - low) * draw_uniform(stream, b)


@inlined
def draw_point(state, p, b, left, right, low, high):
    """Draw x in [left, right] and y in [low, high], clipped to the arena, which rounding can leave."""
    x = draw_between(state.stream, b, left, right, p.whole_numbers)
    y = draw_between(state.stream, b, low, high, p.whole_numbers)
    return min(max(x, -p.half_width), p.half_width), min(max(y, -p.half_height), p.half_height)


def stream_keys(seeds: np.ndarray) -> np.ndarray:
    """Return the keys (uint64) of the streams of `seeds` (non-negative integers), element by element.

    Consecutive seeds give unrelated keys.
    """
    with np.errstate(over="ignore"):
        z = np.asarray(seeds).astype(np.uint64) * GOLDEN + GOLDEN
        return mix.py_func(mix.py_func(z))


def stream_integers(keys: np.ndarray, first: np.ndarray, columns: int, high: int) -> np.ndarray:
    """Return whole numbers (B, columns) int64, uniform over 0 to high - 1, from the streams `keys` (B,).

    Row b starts at number ``first[b]`` of its stream (uint64, counted from 0).
    """
    with np.errstate(over="ignore"):  # products wrap
        counters = first[:, None] + np.arange(1, columns + 1, dtype=np.uint64)
        words = mix.py_func(keys[:, None] + counters * GOLDEN)
    return ((words >> _S11) * _TO_UNIT * high).astype(np.int64)


_NOISE = np.uint64(0x6E6F697365)  # separates the stream of observation errors from that of the scene
_MESSAGES = np.uint64(0x6D657373616765)
_HEADINGS = np.uint64(0x68656164696E67)
_RULES = np.uint64(0x72756C6573)
_FIRST, _SECOND, _FOURTH = np.uint64(1), np.uint64(2), np.uint64(4)


@inlined
def _key_at(state, b, purpose, draws, time):
    """Return the key of a purpose in scene b after `draws` draws, at sub-step `time`."""
    return mix(mix(mix(state.stream[KEY, b] ^ purpose) + draws * GOLDEN) + np.uint64(time) * GOLDEN)


@inlined
def noise_key(state, b):
    """Return the key of the current observation errors of scene b, the same at every observation."""
    return _key_at(state, b, _NOISE, state.stream[DRAWS, b], state.scene[TIME, b])


@inlined
def message_key(state, b):
    """Return the key of the lost messages in the current sub-step of scene b."""
    return _key_at(state, b, _MESSAGES, state.stream[DRAWS, b], state.scene[TIME, b])


@inlined
def rule_key(state, b, team):
    """Return the key of the random numbers by which a team of scene b acts in the current sub-step."""
    return _key_at(state, b, _RULES + np.uint64(team), state.stream[DRAWS, b], state.scene[TIME, b])


@inlined
def position_error(state, b, deviation, pair):
    """Return the errors (x, y) of a target's position in scene b, two independent normal numbers."""
    return two_normals(deviation, noise_key(state, b), pair)


@inlined
def heading_error(state, b, deviation, i):
    """Return the error of the observed heading of sensor i of scene b, a normal number."""
    key = _key_at(state, b, _HEADINGS, state.stream[DRAWS, b], state.scene[TIME, b])
    return two_normals(deviation, key, np.uint64(i))[0]


@inlined
def two_normals(deviation, key, pair):
    """Return two independent normal numbers, by Box and Muller."""
    radius = deviation * math.sqrt(-2.0 * math.log(1.0 - uniform(key, _FOURTH * pair)))
    angle = 2.0 * math.pi * uniform(key, _FOURTH * pair + _FIRST)
    return radius * math.cos(angle), radius * math.sin(angle)


@inlined
def velocity_error(state, b, deviation, per_time, pair):
    """Return the errors (x, y) of a target's velocity: those of its positions after and before its last move.

    Call it only after a move.
    """
    x, y = two_normals(deviation, noise_key(state, b), pair)
    key = _key_at(state, b, _NOISE, state.stream[DRAWS_BEFORE, b], state.scene[TIME_BEFORE, b])
    before_x, before_y = two_normals(deviation, key, pair)
    return (x - before_x) * per_time, (y - before_y) * per_time


@inlined
def pair_number(state, i, j):
    """Return the number of the pair of sensor i and target j."""
    return np.uint64(i * state.target.shape[0] + j)


@inlined
def seen_and_noticed(state, missed_detections, i, j, b):
    """Return True if sensor i of scene b sees target j and does not miss it."""
    if missed_detections > 0.0:
        missed = uniform(noise_key(state, b), _FOURTH * pair_number(state, i, j) + _SECOND) < missed_detections
        return state.visible[i, j, b] and not missed
    return state.visible[i, j, b]


@inlined
def notice(state, missed_detections, i, j, first, last):
    """Set `scratch_mask` where sensor i sees target j and does not miss it."""
    for b in range(first, last):
        state.scratch_mask[b] = state.visible[i, j, b]
    if missed_detections > 0.0:
        pair = pair_number(state, i, j)
        for b in range(first, last):
            state.scratch_mask[b] &= uniform(noise_key(state, b), _FOURTH * pair + _SECOND) >= missed_detections
