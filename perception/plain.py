"""Checks that a module computes only what its class writes, so that a faster equivalent may take its place."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from hitmac.perception.functional import is_recorded, is_transformed

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(x: Tensor, *modules: nn.Module) -> bool:
    """Return True in eager mode on a CPU, without transforms, and where the modules and theirs have no hooks."""
    return (
        not is_recorded()  # first: the size of an example must not decide for all sizes
        and type(x) in (Tensor, nn.Parameter)
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and not _has_any_global_hook()
        and not any(getattr(part, hooks) for module in modules for part in module.modules() for hooks in _HOOKS)
        and not is_transformed(x, *(parameter for module in modules for parameter in module.parameters()))
    )


def are_plain_maps(x: Tensor, maps: tuple[nn.Linear, ...]) -> bool:
    """Return True if each map of x is plain and only ``x W^T + b``: no subclass, plain tensors of the dtype of x."""
    return is_plain(x, *maps) and all(
        type(linear) is nn.Linear  # a parametrised module has another class
        and "forward" not in vars(linear)
        and all(type(one) in (Tensor, nn.Parameter) and one.dtype == x.dtype for one in (linear.weight, linear.bias))
        for linear in maps
    )
