"""Adapters for other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitmac.perception.encoder import AgentTargetEncoder

if TYPE_CHECKING:
    from tensordict.nn import TensorDictModule


def tensordict_module(
    encoder: AgentTargetEncoder,
    in_keys: tuple[str, ...] = ("pairs", "mask"),
    out_keys: tuple[str, str, str] = ("per_target", "per_agent", "global_feature"),
) -> TensorDictModule:
    """Wrap an encoder as a TensorDict module, for TorchRL.

    Args:
        encoder: the encoder to wrap.
        in_keys: keys of the pairs (..., n, m, d), and optionally of the mask, in a TensorDict.
        out_keys: keys under which the three features are stored.

    Raises:
        ValueError: other than 1 or 2 `in_keys`, or other than 3 `out_keys`.
        ModuleNotFoundError: tensordict is missing; the message names the extra to install.
    """
    if len(in_keys) not in (1, 2) or len(out_keys) != 3:
        raise ValueError(f"in_keys are {in_keys} and out_keys {out_keys}; give 1 or 2 in_keys and 3 out_keys")
    try:
        from tensordict.nn import TensorDictModule
    except ModuleNotFoundError:
        raise ModuleNotFoundError("TensorDict modules need tensordict: pip install 'hitmac[tensordict]'") from None
    return TensorDictModule(encoder, in_keys=list(in_keys), out_keys=list(out_keys))
