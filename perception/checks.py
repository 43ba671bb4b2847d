"""Argument checks of this package, with uniform error messages."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from hitmac.perception.fast_paths import is_recorded, is_transformed


def is_whole(value: Any, least: int) -> bool:
    """Return True if `value` is a whole number, of Python or numpy, `least` or more."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_widths(**widths: int) -> list[int]:
    """Return the widths, each as an int; raise ValueError unless every one is a whole number, 1 or more."""
    for name, width in widths.items():
        if not is_whole(width, 1):
            raise ValueError(f"{name} is {width!r}; it must be a whole number, 1 or more")
    return [int(width) for width in widths.values()]


def check_heads(width: int, num_heads: int) -> int:
    """Return the number of heads as an int; raise ValueError unless they divide the width."""
    (heads,) = check_widths(num_heads=num_heads)
    if width % heads:
        raise ValueError(f"num_heads is {heads}; it must divide the width {width}")
    return heads


def check_share(name: str, value: float) -> None:
    """Raise ValueError unless `value` is in [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a number from 0 to under 1")


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise ValueError unless `value` is one of `known`; the message names them and the nearest one."""
    if not isinstance(value, str) or value not in list(known):  # an array is not comparable
        raise ValueError(f"{name} is {value!r}; it must be {one_of(known, value)}")


def one_of(known: Iterable[str], value: Any) -> str:
    """Describe a choice of names; suggest the nearest one to `value`."""
    known = list(known)
    near = get_close_matches(str(value), known, n=1)
    return f"one of {', '.join(known)}" + (f" (did you mean {near[0]}?)" if near else "")


def can_read(x: Tensor) -> bool:
    """Return True if the values of `x` may be checked: on a CPU, and not compiled, exported or mapped.

    Reading a value on an accelerator would wait for all of its work.
    """
    return not is_recorded() and x.device.type == "cpu" and type(x) is Tensor and not is_transformed()


def as_mask(mask: Tensor, name: str = "mask") -> Tensor:
    """Return a mask of 0 and 1 in any dtype as bool, True for 1.

    Raise TypeError if it is not a tensor, and ValueError for other values on a CPU, such as those of an additive mask.
    """
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name} is a {type(mask).__name__}; expected a tensor of 0 and 1")
    if mask.dtype == torch.bool:
        return mask
    valid = mask.bool()  # not by a comparison: older versions of ONNX Runtime have none of 8-bit integers
    if can_read(mask) and not torch.equal(valid.to(mask.dtype), mask):
        other = mask[(mask != 0) & (mask != 1)][0].item()
        raise ValueError(
            f"{name} holds {other}; expected 1 (valid) and 0 (absent); for an additive mask, pass {name} == 0"
        )
    return valid


def unless_full(mask: Tensor) -> Tensor | None:
    """Return a bool mask, or None if its values may be read and all are True: attention without a mask is faster.

    Most scenes are complete. A mask of no target is kept, since without any pair an agent is absent.
    """
    return None if can_read(mask) and mask.shape[-1] and bool(mask.all()) else mask


def check_tokens(
    x: Tensor, mask: Tensor | None, feature_dim: int, name: str, axes: str, mask_name: str = "mask"
) -> Tensor | None:
    """Return the mask as bool; raise unless x is (..., *axes, feature_dim) and the mask (..., *axes)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; expected a tensor of features")
    if x.ndim < len(axes.split()) + 1 or x.shape[-1] != feature_dim:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected (..., {axes}, {feature_dim})")
    if mask is None:
        return None
    mask = as_mask(mask, mask_name)
    if mask.shape != x.shape[:-1]:
        raise ValueError(f"{mask_name} has shape {tuple(mask.shape)}; it must have shape {tuple(x.shape[:-1])}")
    if mask.device != x.device:
        raise ValueError(f"{mask_name} is on {mask.device}, {name} on {x.device}; both must be on one device")
    return mask


def check_index(name: str, index: Tensor, shape: tuple[int | str, ...]) -> None:
    """Raise unless an index tensor holds whole numbers and has the shape, in which "any" allows any length."""
    if not isinstance(index, Tensor):
        raise TypeError(f"{name} is a {type(index).__name__}; expected a tensor of whole numbers")
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"{name} is {index.dtype}; expected whole numbers, -1 for none")
    if index.ndim != len(shape) or any(b != "any" and a != b for a, b in zip(index.shape, shape, strict=True)):
        raise ValueError(f"{name} has shape {tuple(index.shape)}; it must have shape ({', '.join(map(str, shape))})")


def check_entries(name: str, index: Tensor, valid: Tensor, number: float = float("inf")) -> None:
    """Raise ValueError if a list (..., k) on a CPU repeats an entry that is valid, or one is `number` or more."""
    if can_read(index):
        entries = torch.where(valid, index.to(torch.int64), -1).sort(-1).values
        if (beyond := entries >= number).any():
            raise ValueError(f"{name} holds {entries[beyond][0]}; expected indices under {number}, -1 in empty places")
        repeated = (entries[..., 1:] == entries[..., :-1]) & (entries[..., 1:] >= 0)
        if repeated.any():
            place = tuple(repeated.nonzero()[0, :-1].tolist())
            raise ValueError(
                f"{name} holds {entries[..., 1:][repeated][0]} twice in list {place}; expected each index once, "
                "and -1 in empty places"
            )


def check_attended(query: Tensor, key: Tensor, value: Tensor, causal: bool, widths: Sequence[Any] = ()) -> None:
    """Raise ValueError unless query (..., L, d_q), key (..., S, d_k) and value (..., S, d_v) fit; causal: L is S."""
    given = {"query": query, "key": key, "value": value}
    for (name, x), width in zip(given.items(), widths or ["width"] * 3, strict=True):
        if x.ndim < 2 or (widths and x.shape[-1] != width):
            raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be (..., length, {width})")
    length, keys = query.shape[-2], key.shape[-2]
    if value.shape[-2] != keys:
        raise ValueError(f"value has shape {tuple(value.shape)}; expected (..., {keys}, width), like key")
    if causal and length != keys:
        raise ValueError(f"causal attention requires as many keys ({keys}) as queries ({length})")


def broadcasts(shape: Sequence[int], full: Sequence[Any]) -> bool:
    """Return True if a shape broadcasts to a full one, without making it larger."""
    sizes = zip(reversed(shape), reversed(full), strict=False)
    return len(shape) <= len(full) and all(a == b or a == 1 for a, b in sizes)  # `in` fails for symbolic sizes


def check_pairs(mask: Tensor, length: int, keys: int, lead: Sequence[int] | None = None) -> Tensor:
    """Return a mask as bool with at least two axes; raise ValueError unless it broadcasts to (*lead, length, keys).

    Without `lead`, the other axes are any.
    """
    mask = as_mask(mask)
    wide = mask.unsqueeze(0) if mask.ndim == 1 else mask
    full: tuple[Any, ...] = ("...", length, keys)
    shape = wide.shape[-2:]
    if lead is not None:
        full, shape = (*lead, length, keys), wide.shape
    if wide.ndim < 2 or not broadcasts(shape, full):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; it must broadcast to ({', '.join(map(str, full))}), from each query "
            f"to each key, in all heads. For a mask of the keys, (..., {keys}), use key_mask of MultiHeadAttention"
        )
    return wide


def check_keys(key_mask: Tensor, length: int, keys: int, lead: Sequence[int]) -> Tensor:
    """Return a mask of the keys as bool; raise ValueError unless it is (..., keys) and broadcasts to (*lead, keys)."""
    key_mask = as_mask(key_mask, "key_mask")
    if key_mask.ndim < 1 or key_mask.shape[-1] != keys or not broadcasts(key_mask.shape, (*lead, keys)):
        raise ValueError(
            f"key_mask has shape {tuple(key_mask.shape)}; it must be {(*lead, keys)}. For a mask from each query to "
            f"each key, (..., {length}, {keys}), use mask"
        )
    return key_mask


def check_finite(x: Tensor, name: str = "x") -> Tensor:
    """Return `x`; raise ValueError with the index of its first non-finite number. No layer calls it."""
    bad = (~x.isfinite()).nonzero()
    if len(bad):
        place = tuple(bad[0].tolist())
        raise ValueError(f"{name} holds {x[place].item()} at {place}, the first of {len(bad)}; all must be finite")
    return x
