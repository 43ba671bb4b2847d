"""Atomic operations on the elements of int64 arrays, for counters that threads share."""

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import intrinsic

_INDEX_AND_NUMBER = (types.Array(types.int64, 1, "C"), types.int64, types.int64)


def _element(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Return the pointer to element ``arguments[1]`` of the array ``arguments[0]``."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]])


@intrinsic
def _add(typing_context, array, index, number):
    """Add `number` to element `index` of an array; return the element from before."""

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw("add", _element(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(*_INDEX_AND_NUMBER), generate


@intrinsic
def _load(typing_context, array, index):
    """Return element `index` of an array as other threads have left it."""

    def generate(context, builder, signature, arguments):
        element = _element(context, builder, signature, arguments)
        return builder.load_atomic(element, "seq_cst", 8)

    return types.int64(*_INDEX_AND_NUMBER[:2]), generate


atomic_add: Callable[..., Any] = _add
atomic_load: Callable[..., Any] = _load
