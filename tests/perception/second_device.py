"""Second device ``second``, for machines that have none: it computes on the processor, and mixes with nothing.

A tensor there has a storage of no bytes; the tensor that holds its numbers is found by it. Every operation of PyTorch
goes through :func:`_compute`, which refuses tensors of two devices as an accelerator does. A process has one such
device for good, so :mod:`tests.perception.on_second_device` runs in a process of its own.
"""

from collections import deque
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend


class _Module(_DummyBackendModule):
    """Module of the device, as ``torch.cuda`` is; its random numbers are the processor's."""

    def get_rng_state(self, device: Any) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any) -> None:
        torch.set_rng_state(state)


_setup_privateuseone_for_python_backend("second", _Module())
torch.__future__.set_swap_module_params_on_conversion(True)  # a module's parameters stay the optimizer's, as on a GPU

SECOND = torch.device("second:0")
_CPU = torch.device("cpu")
_COPIES = ("aten::_to_copy", "aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize")
_numbers: dict[int, Tensor] = {}  # by storage; that of a tensor which is gone is replaced when its place is used again
# The storages of the last tensors: autograd adds up gradients in place where nothing else holds a storage, and the
# numbers of a view are those of another tensor.
_recent: deque[torch.UntypedStorage] = deque(maxlen=10_000)


def _on_second(numbers: Tensor) -> Tensor:
    """Return a tensor of the second device that holds these numbers."""
    tensor = torch._C._acc.create_empty_tensor(numbers.size(), numbers.dtype)
    storage = tensor.untyped_storage()
    _recent.append(storage)
    _numbers[storage._cdata] = numbers
    return tensor


def _numbers_of(tensor: Tensor) -> Tensor:
    """Return the numbers of a tensor of the second device, which may be a view of another."""
    numbers = _numbers[tensor.untyped_storage()._cdata]
    if tensor.size() == numbers.size() and tensor.storage_offset() == 0 and tensor.is_contiguous():
        return numbers
    return numbers.contiguous().as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _put(tensor: Tensor, numbers: Tensor) -> None:
    """Let a tensor of the second device hold these numbers; an empty one takes their shape."""
    if tensor.size() == numbers.size():
        _numbers_of(tensor).copy_(numbers)
    else:
        tensor.data = _on_second(numbers.contiguous())


def _compute(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute an operation on the numbers of its tensors."""
    name = operation.name().split(".")[0]
    outputs = [kwargs.pop(argument.name) for argument in operation._schema.arguments if argument.is_out]
    given, structure = pytree.tree_flatten((args, kwargs))
    tensors = [one for one in (*given, *outputs) if isinstance(one, Tensor)]
    if len({one.device for one in tensors if one.ndim or one.device == SECOND}) > 1 and name not in _COPIES:
        raise RuntimeError(f"{name} of tensors on cpu and second")
    owners: dict[int, Tensor] = {}
    target, plain = None, []
    for one in given:
        if isinstance(one, Tensor) and one.device == SECOND:
            numbers = _numbers_of(one)
            owners[id(numbers)], one = one, numbers
        elif isinstance(one, torch.device):
            target, one = one, _CPU
        plain.append(one)
    inner, named = pytree.tree_unflatten(plain, structure)
    if name == "aten::_copy_from":
        inner[1].copy_(inner[0])
        return args[1]
    if name in ("aten::as_strided", "aten::view") and not inner[0].is_contiguous():
        inner = (inner[0].contiguous(), *inner[1:])
    result = operation.overloadpacket(*inner, **named)  # the overload for a number as well as for its tensor
    if target == _CPU and name == "aten::_to_copy":
        return result
    if outputs:
        for tensor, numbers in zip(outputs, result if isinstance(result, tuple) else (result,), strict=True):
            _put(tensor, numbers)
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def placed(one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        return owners[id(one)] if id(one) in owners else _on_second(one)

    return pytree.tree_map(placed, result)


_library = torch.library.Library("_", "IMPL")
_library.fallback(_compute, "PrivateUse1")
