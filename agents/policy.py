"""Protocol of all agents, Stable-Baselines3's ``predict`` in batches, and checks of observations."""

import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from torch import nn

from hitmac.envs.deployment import check_nearness
from hitmac.envs.observation import DEFAULT_FEATURES, check_features, registered
from hitmac.envs.parts.game import RulePlayer
from hitmac.envs.parts.sensors import LEFT, RIGHT, STAY
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks.base import flatten_sensors, unflatten_sensors
from hitmac.envs.validation import as_array, shortly
from hitmac.perception.released import ReleasedCoordinator, ReleasedExecutor

Observation = dict[str, np.ndarray]
State = tuple[Any, ...] | None
Starts = np.ndarray | None


class Policy(Protocol):
    """Protocol of a policy, an object that chooses actions.

    A policy that draws random numbers or has an initial state may have a method ``start(seeds)``, which returns the
    state for the first call, for scenes with these seeds (B,). Its decisions are then a function of the scene.
    """

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, State]:
        """Choose the actions in a batch of scenes.

        Args:
            observation: observation of the environment, every array with the scene axis first.
            state: state returned by the last call; None in the first call.
            episode_start: (B,) bool, the scenes in which an episode begins.
            deterministic: take the best action instead of sampling.

        Returns:
            The actions, scene axis first, and the state for the next call.
        """
        ...


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Context in which PyTorch computes in the calling thread only.

    The networks are small: PyTorch's threads would mostly wait for each other, and sums would depend on the number of
    cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def pair_of(answer: Any, name: str) -> tuple[np.ndarray, State]:
    """Return the answer of the ``predict`` of the agent `name`; raise TypeError unless it is a pair."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise TypeError(
            f"predict() of {name} returned {type(answer).__name__}; it must return the tuple (actions, state), with "
            "the state None for an agent without a memory"
        )
    return answer


def started(policy: Policy, seeds: Sequence[int] | np.ndarray) -> State:
    """Return a policy's initial state for scenes with these seeds (B,); None for a policy without ``start``."""
    start = getattr(policy, "start", None)
    return start(np.asarray(seeds)) if callable(start) else None


def named_arrays(name: str, state: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a state with their names: NAME/0, NAME/1/0, ...

    A state is a tuple of arrays, such tuples or None, for which the array is empty, (0,).
    """
    if state is None or isinstance(state, np.ndarray):
        yield name, np.zeros(0) if state is None else state
    else:
        for number, part in enumerate(state):
            yield from named_arrays(f"{name}/{number}", part)


def nested_arrays(name: str, arrays: Mapping[str, Any]) -> Any:
    """Return the state that :func:`named_arrays` names."""
    if name in arrays:
        return None if arrays[name].shape == (0,) else arrays[name]
    number = len({one[len(name) + 1 :].split("/")[0] for one in arrays if one.startswith(f"{name}/")})
    return tuple(nested_arrays(f"{name}/{part}", arrays) for part in range(number))


class Adapted:
    """Policy whose observations or actions a subclass adapts; its random numbers and tracks stay its own."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        vars(self).update({name: getattr(policy, name) for name in ("start", "estimate") if hasattr(policy, name)})

    def _shown(self, observation: Observation) -> Observation:
        return observation

    def _meant(self, actions: np.ndarray) -> np.ndarray:
        return actions

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, State]:
        """Act as :class:`Policy` specifies."""
        actions, state = self.policy.predict(self._shown(observation), state, episode_start, deterministic)
        return self._meant(np.asarray(actions)), state


class PerSensor:
    """Policy for scenes that applies a policy of a single sensor, without its state, to every sensor.

    That policy observes ``pairs`` (B * n, m, d) and ``mask`` (B * n, m), and returns actions (B * n,), or (B * n, k)
    with k decisions of a sensor.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, None]:
        """Act as :class:`Policy` specifies; the actions are (B, k n), with k decisions of a sensor."""
        actions, _ = self.policy.predict(flatten_sensors(observation), deterministic=deterministic)
        decisions = 1 if actions.ndim == 1 else actions.shape[-1]
        return unflatten_sensors(actions, observation["mask"].shape[1], decisions), None


def padded_actions(actions: np.ndarray, own: Sequence[str], decisions: Sequence[str]) -> np.ndarray:
    """Return actions (..., k n) of the k decisions `own` as (..., d n) of the d decisions of a scenario.

    Missing decisions are 0, which keeps the field of view or the position; decisions that the scenario lacks are
    dropped.
    """
    if tuple(own) == tuple(decisions):
        return actions
    taken = dict(zip(own, np.split(actions, len(own), -1), strict=True))
    return np.concatenate([taken.get(name, np.zeros_like(taken["turn"])) for name in decisions], -1)


def rates_of(actions: np.ndarray, scenario: Scenario) -> np.ndarray:
    """Return the rates (..., n), degrees per second, that the first n numbers of actions command.

    Whole numbers are turns, at ``turn_angle / time_step`` or the highest rate if that is lower; floating-point numbers
    are shares of the highest rate.
    """
    first, highest = actions[..., : scenario.num_sensors], scenario.rates[1]
    if first.dtype.kind == "f":
        return first * highest
    rates = np.minimum(scenario.of_each_sensor("turn_angle") / scenario.time_step, highest)
    return rates * ((first == LEFT) * 1.0 - (first == RIGHT))


def shares_of(actions: np.ndarray, scenario: Scenario) -> np.ndarray:
    """Return actions (..., k n) as the shares that the action ``rate`` consists of; shares are returned unchanged.

    Without warehouses a turn is a share of the highest rate, see :func:`rates_of`; zooms, tilts, and with warehouses
    turns are 1 or -1.
    """
    if actions.dtype.kind == "f":
        return actions
    n, shares = scenario.num_sensors, (actions == LEFT) * 1.0 - (actions == RIGHT)
    if scenario.is_game:
        shares[..., n:] *= -1.0  # wider over 0
    else:
        shares[..., :n] = rates_of(actions, scenario) / scenario.rates[1]
    return shares


def units_of(scenario: Scenario) -> np.ndarray:
    """Return the shares (k, n) that the action 1 of each of a scenario's k decisions is, see :func:`shares_of`."""
    steps = np.ones((len(scenario.decisions), scenario.num_sensors), np.int64)
    return shares_of(steps.reshape(1, -1), scenario).reshape(steps.shape)


def steps_of(actions: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return shares (..., k n) as the actions 1 and 2 that are their `units` (k,) and the opposites.

    A share of up to half a unit is 0. The units are those of the scenario that the shares are for.
    """
    sizes = len(units), actions.shape[-1] // len(units)
    parts = actions.reshape(*actions.shape[:-1], *sizes) / units[:, None]
    return np.where(parts > 0.5, LEFT, np.where(parts < -0.5, RIGHT, STAY)).reshape(actions.shape)


def settings_of(actions: np.ndarray, scenario: Scenario) -> dict[str, np.ndarray]:
    """Return the changes (..., n) of tilts and fields of view in a sub-step, degrees, that actions decide on.

    They are ``tilt``, down over 0, and ``zoom``, wider over 0, of those that the scenario's sensors have.
    """
    if actions.shape[-1] != len(scenario.decisions) * scenario.num_sensors:  # turns alone
        return {}
    by_share = actions.dtype.kind == "f"
    steps = {"tilt": scenario.tilt_step, "zoom": scenario.zoom_step if by_share else -scenario.zoom_step}
    found = {}
    for name, part in zip(scenario.decisions, np.split(actions, len(scenario.decisions), -1), strict=True):
        if name in steps:
            found[name] = steps[name] * (part if by_share else (part == 1) * 1.0 - (part == 2))
    return found


class Rates(Adapted):
    """Policy with actions as shares, for the action ``rate``; see :func:`shares_of`."""

    def __init__(self, policy: Policy, scenario: Scenario) -> None:
        super().__init__(policy)
        self._scenario = scenario

    def _meant(self, actions: np.ndarray) -> np.ndarray:
        return shares_of(actions, self._scenario)


class FittedActions(Adapted):
    """Policy that was trained in one scenario, with the decisions of another; in place of shares also with its turns.

    See :func:`padded_actions` and :func:`steps_of`.
    """

    def __init__(self, policy: Policy, trained: Scenario, scenario: Scenario) -> None:
        super().__init__(policy)
        self.trained, self._decisions = trained, scenario.decisions
        by_steps = (trained.action, scenario.action) == ("rate", "turn")
        self._units = units_of(trained).mean(-1) if by_steps else None

    def _meant(self, actions: np.ndarray) -> np.ndarray:
        actions = actions.reshape(len(actions), -1)
        if self._units is not None:
            actions = steps_of(actions, self._units)
        return padded_actions(actions, self.trained.decisions, self._decisions)


class Memoryless(Adapted):
    """Baseline for partial knowledge: a policy for which all targets out of sight are masked.

    Its observation `features` are those of the policy, followed by ``seen_now``.
    """

    def __init__(self, policy: Policy, features: Sequence[str]) -> None:
        super().__init__(policy)
        self.features = (*(name for name in features if name != "seen_now"), "seen_now")
        self._columns = [self.features.index(name) for name in features]

    def _shown(self, observation: Observation) -> Observation:
        pairs = observation["pairs"]
        in_sight = observation["mask"] * (pairs[..., -1] != 0)
        return {**observation, "pairs": pairs[..., self._columns], "mask": in_sight}


class RuleAgent(RulePlayer):
    """Sensors of a duel that act by one of MATE's rules, on the duel itself in place of observations."""

    features = ("distance",)

    def predict(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raise ValueError."""
        raise ValueError(f"mate:{self.rule} acts on a simulated duel; it takes no observations")


class ReleasedPolicy:
    """Greedy policy of a network of the released HiT-MAC: assignments (B, n * m) of 0 and 1, or turns (B,)."""

    def __init__(self, net: ReleasedCoordinator | ReleasedExecutor) -> None:
        self.net = net.eval().to(torch.get_default_device())

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, None]:
        """Act as :class:`Policy` specifies; the mask is ignored."""
        with torch.no_grad():
            logits, _ = self.net(torch.as_tensor(observation["pairs"], device=next(self.net.parameters()).device))
        return logits.argmax(-1).cpu().numpy(), None


Size = tuple[int | None, ...]
"""Sizes of an observation's axes after the first: n and m, or for rows m alone; None: any size from 1."""


def check_parts(observation: Any) -> None:
    """Raise ValueError unless an observation has the parts `pairs` and `mask`."""
    if not isinstance(observation, Mapping) or not {"pairs", "mask"} <= observation.keys():
        raise ValueError(f"the observation is {shortly(observation)}; it must be a dict of pairs and mask")


def check_size(mask: np.ndarray, size: Size) -> None:
    """Raise ValueError unless the mask of an observation has the given size."""
    own = mask.shape[1:]
    if len(own) != len(size) or not all(n >= 1 and most in (None, n) for n, most in zip(own, size, strict=True)):
        first, *others = ("scenes", "sensors", "targets") if len(size) == 2 else ("rows", "targets")
        names = [f"{n or '1 or more'} {name}" for n, name in zip(size, others, strict=True)]
        hint = f"; give mask[None] and pairs[None] for one of the {first}" if mask.ndim == len(size) else ""
        raise ValueError(f"mask has shape {mask.shape}; it must be ({', '.join((first, *names))}){hint}")


def checked_observation(pairs: Any, mask: Any, features: Sequence[str], size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Return the features (B, n, m, d), or (R, m, d), and the bool mask of an observation, contiguous.

    Raises ``ValueError`` for an array of another shape or type, or a number that is not finite.
    """
    pairs, mask = (np.require(as_array(*one), requirements=["C", "W"]) for one in (("pairs", pairs), ("mask", mask)))
    check_size(mask, size)
    if pairs.ndim < 1 or pairs.shape[-1] != len(features) or pairs.dtype.kind != "f":
        raise ValueError(
            f"pairs have shape {pairs.shape} and type {pairs.dtype}; their last axis must hold the {len(features)} "
            f"features {', '.join(features)} as floating-point numbers"
        )
    if mask.shape != pairs.shape[:-1] or mask.dtype.kind not in "biuf":
        raise ValueError(f"mask is {mask.dtype} of shape {mask.shape}; it must be 0 or 1, of shape {pairs.shape[:-1]}")
    check_finite("pairs", pairs)
    return pairs, mask if mask.dtype == np.bool_ else mask != 0


def checked_lists(targets: Any, mask: Any, num_targets: int) -> np.ndarray:
    """Return the listed targets (B, n, k) of an observation, contiguous int32; raise ValueError if they are invalid."""
    targets, mask = np.require(as_array("targets", targets), requirements=["C", "W"]), np.asarray(mask)
    if targets.shape != mask.shape or targets.dtype.kind not in "iu":
        raise ValueError(
            f"targets are {targets.dtype} of shape {targets.shape}; they must be whole numbers, of shape {mask.shape}"
        )
    low, high = targets.min(initial=-1), targets.max(initial=-1)
    if low < -1 or high >= num_targets or (targets[mask != 0] < 0).any():
        raise ValueError(f"targets hold a number that is not from 0 to {num_targets - 1}, or -1 in an empty place")
    return targets.astype(np.int32, copy=False)


def check_finite(name: str, numbers: np.ndarray) -> None:
    """Raise ValueError unless all numbers are finite."""
    if not (finite := np.isfinite(numbers)).all():
        raise ValueError(f"{name} holds {numbers[~finite].flat[0]}; every number must be finite")


def checked_starts(episode_start: Any, number: int) -> np.ndarray:
    """Return the first steps of episodes, (B,) bool; False for None; raise ValueError for any other array."""
    if episode_start is None:
        return np.zeros(number, np.bool_)
    starts = as_array("episode_start", episode_start)
    if starts.shape != (number,) or starts.dtype != np.bool_:
        raise ValueError(
            f"episode_start is {starts.dtype} of shape {starts.shape}; it must be bool of shape ({number},)"
        )
    return starts


def copied_state(state: tuple[np.ndarray, ...], shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return copies of a state's arrays; raise ValueError unless the first has this shape, as for these scenes."""
    if np.shape(state[0]) != shape:
        raise ValueError(
            f"state belongs to other scenes: its first array has shape {np.shape(state[0])}; expected {shape}"
        )
    return [array.copy() for array in state]


NEARNESS = ("nearest", "radius", "neighbours")
"""Options of :class:`hitmac.envs.observation.Observer` for the nearest targets."""

LARGE = 2**14
"""Number of pairs from which on a scene is large: agents that support it observe only the nearest targets."""


def is_large(scenario: Scenario) -> bool:
    """Return True if the scenario has :data:`LARGE` pairs or more."""
    return scenario.num_sensors * scenario.num_targets >= LARGE


def farthest_reach(scenario: Scenario) -> float:
    """Return the largest sensing range, in the scenario's units."""
    return float(scenario.of_each_sensor("sensing_range").max())


def checked_nearness(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in :data:`NEARNESS` that are not None; raise ValueError for an invalid one."""
    if unknown := set(options) - set(NEARNESS):
        raise ValueError(f"unknown option {min(unknown)!r}: known are {', '.join(NEARNESS)}")
    given = dict(zip(NEARNESS, check_nearness(*map(options.get, NEARNESS)), strict=True))
    return {name: float(value) if name == "radius" else value for name, value in given.items() if value is not None}


def declared(policy: Any, default: tuple[str, ...] = DEFAULT_FEATURES) -> Any:
    """Return the observation of a policy's attribute ``features``; the default without one.

    It is a sequence of features, the name of one, of a set or of a registered observer, or a function that returns the
    observer of a scenario. Raises ``ValueError`` for anything else; in a network, a module of this name means something
    else.
    """
    features = getattr(policy, "features", None)
    if features is None or isinstance(features, nn.Module) or inspect.ismethod(features):
        features = default
    features = registered(features)
    return features if callable(features) else check_features(features)


def has_learned(policy: Any) -> bool:
    """Return True if a policy was trained: its attribute ``trained``, or without one, whether it has a network."""
    return bool(getattr(policy, "trained", networks_of(policy)))


def digest(policy: Any) -> str:
    """Return an identifier of a policy: a hash of its class and networks, or the object's id without networks."""
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
