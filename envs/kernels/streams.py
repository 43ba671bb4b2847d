"""Counter-based random numbers: one independent stream per scene, for the kernels.

A stream is a key and a counter. Its k-th word is ``mix(key + k * GOLDEN)`` in 64-bit arithmetic, the
SplitMix64 generator of Steele, Lea and Flood ("Fast splittable pseudorandom number generators",
OOPSLA 2014). Because a word depends on nothing but key and counter, a scene draws the same numbers
whatever batch it is in and whichever thread computes it.
"""

import numpy as np

from envs.kernels.compiled import compiled, inlined
from envs.kernels.state import DRAWS, KEY

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_ONE = np.uint64(1)
_TO_UNIT = 1.0 / (1 << 53)


@inlined
def mix(z):
    """The finalizer of SplitMix64: a bijection of the 64-bit words that spreads every bit over all."""
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@inlined
def word(key, counter):
    """The `counter`-th 64-bit word (counted from 0) of the stream `key`, both uint64."""
    return mix(key + (counter + _ONE) * GOLDEN)


@inlined
def uniform(key, counter):
    """The `counter`-th number of the stream `key` as a float64 in [0, 1)."""
    return np.float64(word(key, counter) >> _S11) * _TO_UNIT


@inlined
def integer(key, counter, low, high):
    """The `counter`-th number of the stream `key` as a whole number (float64) in [low, high], both included."""
    return np.floor(low + uniform(key, counter) * (high - low + 1.0))


@compiled
def draw_uniform(stream, b):
    """The next number of scene b's stream, in [0, 1)."""
    counter = stream[DRAWS, b]
    stream[DRAWS, b] = counter + _ONE
    return uniform(stream[KEY, b], counter)


@compiled
def draw_integer(stream, b, low, high):
    """The next number of scene b's stream, a whole number in [low, high], both included."""
    counter = stream[DRAWS, b]
    stream[DRAWS, b] = counter + _ONE
    return integer(stream[KEY, b], counter, low, high)


@compiled
def draw_between(stream, b, low, high, whole):
    """The next number of scene b's stream in [low, high]: a whole one, or any."""
    if whole:
        return draw_integer(stream, b, low, high)
    return low + (high - low) * draw_uniform(stream, b)


def stream_keys(seeds: np.ndarray) -> np.ndarray:
    """The keys (uint64) of the streams that belong to `seeds` (non-negative integers), element by element.

    Seeds that follow each other give keys that have nothing in common.
    """
    with np.errstate(over="ignore"):
        z = np.asarray(seeds).astype(np.uint64) * GOLDEN + GOLDEN
        return mix.py_func(mix.py_func(z))


def stream_integers(keys: np.ndarray, first: np.ndarray, columns: int, high: int) -> np.ndarray:
    """Whole numbers (B, columns) int64, uniform over 0 to high - 1, from the streams `keys` (B,).

    Row b has the numbers from the ``first[b]``-th of its stream on (uint64, counted from 0).
    """
    with np.errstate(over="ignore"):  # a product that is too large wraps
        counters = first[:, None] + np.arange(1, columns + 1, dtype=np.uint64)
        words = mix.py_func(keys[:, None] + counters * GOLDEN)
    return ((words >> _S11) * _TO_UNIT * high).astype(np.int64)
