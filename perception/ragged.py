"""Padding of scenes of different sizes into one batch, and its inverse."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pad_scenes(scenes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Pad scenes with different numbers of agents and targets into one batch.

    Args:
        scenes: B tensors (n_b, m_b, d) of one width, dtype and device; n_b and m_b are 0 or more.

    Returns:
        The pairs (B, n, m, d), zero outside each scene, where n and m are the largest sizes; and the mask (B, n, m).

    Raises:
        ValueError: no scene, or a scene whose shape does not fit the others; the message names it.
    """
    if not scenes:
        raise ValueError("there is no scene to pad; give one or more")
    for number, scene in enumerate(scenes):
        if scene.ndim != 3 or scene.shape[-1] != scenes[0].shape[-1]:
            raise ValueError(
                f"scene {number} has shape {tuple(scene.shape)}; it must be (agents, targets, {scenes[0].shape[-1]})"
            )
    n, m = (max(scene.shape[axis] for scene in scenes) for axis in (0, 1))
    pairs = scenes[0].new_zeros(len(scenes), n, m, scenes[0].shape[-1])
    mask = torch.zeros(len(scenes), n, m, dtype=torch.bool, device=pairs.device)
    for row, there, scene in zip(pairs, mask, scenes, strict=True):
        row[: scene.shape[0], : scene.shape[1]] = scene
        there[: scene.shape[0], : scene.shape[1]] = True
    return pairs, mask


def unpad_scenes(per_target: Tensor, mask: Tensor) -> list[Tensor]:
    """Return the features (n_b, m_b, f) of each scene of a padded batch (B, n, m, f).

    In the mask (B, n, m), 0 and 1 in any dtype, the agents of a scene are the rows with any 1, and its targets the
    columns with any 1, in any position. A scene without agents or without targets is returned as (0, 0, f), since its
    mask is all 0.
    """
    return [row[there.any(1)][:, there.any(0)] for row, there in zip(per_target, mask != 0, strict=True)]
