"""Random numbers: published words, uniform numbers, unrelated streams."""

import numpy as np
from numba import njit

from hitmac.envs.base.streams import integer, stream_keys, uniform, word


def test_words_are_those_of_splitmix64():
    """The published first outputs of SplitMix64 for the seed 1234567."""
    called = njit(lambda key, count: word(key, count))
    assert [int(called(np.uint64(1234567), np.uint64(k))) for k in range(5)] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


def test_compiled_numbers_are_uniform():
    @njit
    def draw(key, count):
        out = np.empty((2, count))
        for k in range(count):
            out[0, k] = uniform(key, np.uint64(k))
            out[1, k] = integer(key, np.uint64(k), -2.0, 2.0)
        return out

    real, whole = draw(np.uint64(7), 100_000)
    assert real.min() >= 0
    assert real.max() < 1
    # The Kolmogorov-Smirnov distance stays below 1.63 / sqrt(n) in 99 of 100 samples.
    distance = np.abs(np.sort(real) - (np.arange(100_000) + 0.5) / 100_000).max()
    assert distance < 1.63 / np.sqrt(100_000)
    values, counts = np.unique(whole, return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert np.abs(counts - 20_000).max() < 600


def test_neighbouring_seeds_give_unrelated_streams():
    keys = stream_keys(np.arange(1000, dtype=np.uint64))
    assert len(set(keys.tolist())) == 1000
    flipped = np.bitwise_count(keys[1:] ^ keys[:-1])
    assert 30 < flipped.mean() < 34
