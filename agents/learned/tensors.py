"""Tensors of a policy, to and from files of safetensors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import nn

from hitmac.envs.files import regular_file, whole_file
from hitmac.perception import EncoderConfig

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def tensors_of(policy: nn.Module) -> dict[str, torch.Tensor]:
    """Return every tensor of the policy once; Stable-Baselines3 lists a shared encoder under three names."""
    return {name: parameter.detach() for name, parameter in policy.named_parameters()}


@contextmanager
def tensor_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path for safetensors to write to, as :func:`hitmac.envs.files.whole_file` does.

    Raises:
        OSError: the file could not be written, which safetensors has an error of its own for.
    """
    try:
        with whole_file(path) as temporary:
            yield temporary
    except safetensors.SafetensorError as error:
        if found := re.search(r"\(os error (\d+)\)|Os { code: (\d+)", str(error)):
            number = int(found[1] or found[2])
            raise OSError(number, os.strerror(number), str(path)) from None
        raise OSError(f"{path}: {error}") from None


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file, or raise ValueError."""
    try:
        return safetensors.torch.load_file(regular_file(path))
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None


def put_tensors(policy: nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Copy `tensors`, read from `path`, into the policy, or raise ValueError and leave it unchanged."""
    own = tensors_of(policy)
    if missing := [name for name in own if name not in tensors]:
        raise ValueError(f"{path} lacks the tensor {missing[0]}")
    if extra := [name for name in tensors if name not in own]:
        raise ValueError(f"{path} holds the tensor {extra[0]}, which the policy does not have")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise ValueError(f"{path}: {name} has shape {tuple(tensor.shape)}; it must be {tuple(own[name].shape)}")
        if tensor.dtype not in _FLOATS or not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} holds something that is not a finite number")
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def check_size(encoder: EncoderConfig, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Raise ValueError if the tensors are too few or too small for the network, before it is made."""
    longest = max((max(tensor.shape, default=1) for tensor in tensors.values()), default=0)
    layers, width = encoder.embed_layers + encoder.num_blocks, max(encoder.weight_dim, encoder.num_frequencies)
    if layers > len(tensors) or width > longest:
        raise ValueError(
            f"{path} holds {len(tensors)} tensors of at most {longest} rows or columns; config.json describes a "
            f"network of {layers} layers and the width {width}"
        )
