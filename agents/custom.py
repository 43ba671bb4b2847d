"""Custom policies: any object with ``predict``, from any importable module."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from typing import Any

import torch
from torch import nn

from hitmac.agents.policy import Policy
from hitmac.envs.observation import DEFAULT_FEATURES, check_features
from hitmac.envs.scenario import Scenario

_IMPORT = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")


def is_import(name: str) -> bool:
    """Return True if `name` has the form ``my_module:MyPolicy``."""
    return _IMPORT.fullmatch(name) is not None


def import_policy(name: str, scenario: Scenario) -> Policy:
    """Import the policy ``my_module:MyPolicy`` from the current directory or an installed package.

    A class or function is called with the scenario if it takes one (a parameter of that name, or the only parameter
    without a default), else without arguments. An object with ``predict`` is used as it is.

    Raises:
        ValueError: no such module or class, more than one parameter without a default, or no ``predict``.
    """
    found = _IMPORT.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not a policy to import; it must have the form my_module:MyPolicy")
    module = _module(found[1], name)
    if not hasattr(module, found[2]):
        raise ValueError(f"{name}: the module {found[1]} has no {found[2]}")
    policy: Any = getattr(module, found[2])
    if inspect.isclass(policy) or not hasattr(policy, "predict"):
        if not callable(policy):
            raise ValueError(f"{name} is {policy!r}; it must be a class or an object with predict()")
        policy = policy(**_arguments(policy, name, scenario))
    if not callable(getattr(policy, "predict", None)):
        raise ValueError(f"{name} is {policy!r}, which has no predict()")
    return policy


def declared(policy: Any, default: tuple[str, ...] = DEFAULT_FEATURES) -> tuple[str, ...]:
    """Return the observation features of a policy's attribute ``features``; the default without one."""
    features = getattr(policy, "features", None)  # a network may use the name for something else
    return check_features(features if isinstance(features, tuple | list) else default)


def has_learned(policy: Any) -> bool:
    """Return True if a policy was trained: its attribute ``trained``, or without one, whether it holds a network."""
    return bool(getattr(policy, "trained", bool(networks_of(policy))))


def digest(policy: Any) -> str:
    """Return an identifier of a policy: a hash of its class and networks, or without networks that of the object."""
    networks = networks_of(policy)
    if not networks:
        return str(id(policy))
    found = hashlib.sha256(type(policy).__qualname__.encode())
    for network in networks:
        for name, tensor in network.state_dict().items():
            found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
            found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def networks_of(policy: Any, depth: int = 5) -> list[nn.Module]:
    """Return the networks of a policy, those of its levels in order."""
    if isinstance(policy, nn.Module):
        return [policy]
    parts = [getattr(policy, name, None) for name in ("policy", "net", "coordinator", "executor")] if depth else []
    return [network for part in parts if part is not None for network in networks_of(part, depth - 1)]


def _module(module: str, name: str) -> Any:
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    try:
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(name=module)
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # the module exists, and one that it imports does not
        raise ValueError(f"{name}: there is no module {module} here, and none is installed") from None


def _arguments(policy: Any, name: str, scenario: Scenario) -> dict[str, Scenario]:
    """Return the keyword arguments for a class or function: the scenario if it takes one, else none."""
    parameters = inspect.signature(policy).parameters
    several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    needed = [one for one, how in parameters.items() if how.default is how.empty and how.kind not in several]
    if len(needed) > 1:
        raise ValueError(f"{name} requires {', '.join(needed)}; it may require only the scenario")
    return dict.fromkeys(needed or {"scenario"} & parameters.keys(), scenario)
