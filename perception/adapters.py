"""The encoder in other libraries' clothes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perception.encoder import AgentTargetEncoder

if TYPE_CHECKING:
    from tensordict.nn import TensorDictModule


def tensordict_module(
    encoder: AgentTargetEncoder,
    in_keys: tuple[str, ...] = ("pairs", "mask"),
    out_keys: tuple[str, str, str] = ("per_target", "per_agent", "global_feature"),
) -> TensorDictModule:
    """The encoder as a TensorDict module, for TorchRL.

    Args:
        encoder: what encodes.
        in_keys: where the pairs (..., n, m, d), and perhaps the mask, stand in a TensorDict.
        out_keys: where to put the three features.

    Raises:
        ValueError: other numbers of keys.
        ModuleNotFoundError: tensordict is missing; the message names the extra to install.
    """
    if len(in_keys) not in (1, 2) or len(out_keys) != 3:
        raise ValueError(f"keys are {in_keys} and {out_keys}; give 1 or 2 to read and 3 to write")
    try:
        from tensordict.nn import TensorDictModule
    except ModuleNotFoundError:
        raise ModuleNotFoundError("TensorDict modules need tensordict: pip install 'hitmac[tensordict]'") from None
    return TensorDictModule(encoder, in_keys=list(in_keys), out_keys=list(out_keys))
