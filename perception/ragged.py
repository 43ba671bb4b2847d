"""Scenes of different sizes as one padded batch, and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pad_scenes(scenes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """One batch out of scenes of different numbers of agents and targets.

    Args:
        scenes: B tensors (n_b, m_b, d) of one width, type and device; n_b and m_b from 0 up.

    Returns:
        The pairs (B, n, m, d) with zeros behind each scene, n and m being the largest, and the mask (B, n, m).

    Raises:
        ValueError: no scene, or one whose shape does not fit the others; the message names it.
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
    """The features (n_b, m_b, f) of each scene of a padded batch (B, n, m, f).

    By the mask (B, n, m), of 0 and 1 in any dtype, the agents of a scene are the rows that hold any 1, its targets the
    columns that do, wherever they stand. A scene without agents or without targets comes back as (0, 0, f), since
    nothing of it is left in the mask.
    """
    return [row[there.any(1)][:, there.any(0)] for row, there in zip(per_target, mask != 0, strict=True)]
