"""Devices on which networks compute, by name."""

from __future__ import annotations

import torch


def checked_device(name: str, label: str = "device") -> torch.device:
    """Return the device of a name.

    Args:
        name: ``"cpu"``; ``"cuda"``, ``"cuda:1"``, ``"mps"`` or another of PyTorch's accelerators; ``"auto"``: an
            accelerator if there is one, else the CPU.
        label: name of the argument in the message.

    Raises:
        ValueError: the name is no device's, or this machine, or this build of PyTorch, has none of that name.
    """
    kind, count = _accelerators()
    if name == "auto":
        return torch.device(kind if count else "cpu")
    there = ["cpu", *(f"{kind}:{index}" for index in range(count))]
    if name not in (*there, *([kind] if count else ())):
        raise ValueError(f"{label} is {name}; on this machine it must be auto or one of {', '.join(there)}")
    return torch.device(name)


def _accelerators() -> tuple[str, int]:
    """Return the kind of the accelerators that there are, and their number."""
    if not hasattr(torch, "accelerator"):  # before PyTorch 2.6
        return "cuda", torch.cuda.device_count()
    kind = torch.accelerator.current_accelerator()
    return (kind.type, torch.accelerator.device_count()) if kind and torch.accelerator.is_available() else ("cuda", 0)
