"""Scenes of different sizes as one padded batch, and back."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.perception import pad_scenes, unpad_scenes

SIZES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4)
DTYPES = [torch.bool, torch.int8, torch.uint8, torch.float32]


@settings(deadline=None, max_examples=50)
@given(sizes=SIZES)
def test_there_and_back(sizes):
    scenes = [torch.randn(n, m, 3) for n, m in sizes]
    pairs, mask = pad_scenes(scenes)
    for scene, back in zip(scenes, unpad_scenes(pairs, mask), strict=True):
        torch.testing.assert_close(back, scene if scene.numel() else scene.new_zeros(0, 0, 3))


@settings(deadline=None, max_examples=50)
@given(data=st.data(), sizes=SIZES, dtype=st.sampled_from(DTYPES))
def test_scenes_that_stand_anywhere_come_back(data, sizes, dtype):
    """Every scene scattered over rows and columns of its own in a larger batch, with pairs of it missing."""
    pairs, mask = torch.full((len(sizes), 6, 6, 3), torch.nan), torch.zeros(len(sizes), 6, 6).to(dtype)
    expected = []
    for number, (n, m) in enumerate(sizes):
        rows = sorted(data.draw(st.permutations(range(6)))[:n])
        columns = sorted(data.draw(st.permutations(range(6)))[:m])
        scene = torch.randn(n, m, 3)
        there = torch.tensor(
            data.draw(st.lists(st.booleans(), min_size=n * m, max_size=n * m)), dtype=torch.bool
        ).reshape(n, m)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                pairs[number, row, column], mask[number, row, column] = scene[i, j], there[i, j]
        expected.append(scene[there.any(1)][:, there.any(0)])
    for back, scene in zip(unpad_scenes(pairs, mask), expected, strict=True):
        torch.testing.assert_close(back, scene)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_rows_that_are_there_and_no_others(dtype):
    mask = torch.zeros(1, 4, 3)
    mask[0, 1, 0] = mask[0, 3, 2] = 1
    per_target = torch.arange(12.0).reshape(1, 4, 3, 1)
    (back,) = unpad_scenes(per_target, mask.to(dtype))
    assert back.squeeze(-1).tolist() == [[3.0, 5.0], [9.0, 11.0]]
