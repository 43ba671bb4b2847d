"""Parts of :mod:`tools.fuzz` for arrays and numbers: simulator, tasks, agents, trackers, networks, constructors."""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from hitmac import envs
from hitmac.agents import scripted_agent
from hitmac.agents.registry import SCRIPTED
from hitmac.agents.tracking import ParticleTracker
from hitmac.envs import FEATURES, TASKS, Memory, Scenario, Simulator, load_scenario, observe
from hitmac.envs.observation import Observer
from hitmac.envs.wrappers import gym_env, pettingzoo_env, sb3_env, vector_env
from hitmac.envs.wrappers.shell import Shell
from hitmac.perception import AgentTargetEncoder, EncoderConfig
from tools.fuzz_inputs import changed_array, changed_arrays, changed_parameters, junk

_LARGEST = 300  # pairs, discs, cells along a side, or delay of scenarios that are simulated
_HIT_MAC = load_scenario("hit-mac")


def _play(simulator: Simulator, steps: int = 12) -> None:
    """Advance; all observations must be finite and inside their space."""
    observer = Observer(simulator.scenario, tuple(FEATURES))
    low, high = observer.space["pairs"].low, observer.space["pairs"].high
    n = simulator.scenario.num_sensors
    for step in range(steps):
        simulator.step(np.full((simulator.num_envs, n), step % 3))
        pairs = observer.observe(simulator)["pairs"]
        assert np.isfinite(pairs).all(), "an observation is not finite"
        assert (pairs >= low - 1e-4 * np.abs(low)).all(), "an observation is below its space"
        assert (pairs <= high + 1e-4 * np.abs(high)).all(), "an observation is above its space"
        assert ((simulator.coverage >= 0) & (simulator.coverage <= 1)).all(), "a coverage is outside [0, 1]"


def scenario(parameters: dict[str, Any]) -> None:
    """Build a scenario and simulate it."""
    made = Scenario.from_dict(parameters)
    sizes = made.num_sensors * made.num_targets, made.random_discs, made.grid, made.message_delay
    if max(sizes) <= _LARGEST and not made.tracks:
        _play(Simulator(made, 2, 0))


@functools.cache
def _simulator() -> Simulator:
    simulator = Simulator("hit-mac", 2, 0)
    simulator.step(np.ones((2, 4), np.int64))
    return simulator


def state(arrays: dict[str, Any]) -> None:
    """Continue from a state."""
    simulator = _simulator()
    simulator.reset(seed=0)
    simulator.set_state(arrays)
    _play(simulator)


def place(given: tuple[dict[str, Any], Any, Any]) -> None:
    """Reset with options."""
    places, seed, mask = given
    simulator = _simulator()
    simulator.reset(seed=0)
    simulator.reset(seed=seed, mask=mask, options=places)
    _play(simulator)


@functools.cache
def _tasks() -> list[envs.Task]:
    return [task("mate-2v4-0" if task.team == "targets" else "hit-mac", 2, 0) for task in TASKS.values()]


@st.composite
def _actions(draw: Any) -> Any:
    number = draw(st.integers(0, len(_tasks()) - 1))
    return number, draw(changed_array(np.zeros((2, *_tasks()[number].action_space.shape), np.int64)))


def action(given: tuple[int, Any]) -> None:
    """Step a task."""
    number, actions = given
    task = _tasks()[number]
    task.reset(seed=0)
    task.step(actions)
    assert all(np.isfinite(array).all() for array in task.observe().values())


_AGENTS = [name for name in SCRIPTED if name not in ("random", "still", "exact")]


@functools.cache
def _playing(name: str) -> tuple[Any, dict[str, np.ndarray], Any]:
    """Return an agent, an observation and the agent's state before it."""
    agent = scripted_agent(name, _HIT_MAC)
    task = TASKS["Coverage"]("hit-mac", 2, 0, features=agent.features)
    _, memory = agent.predict(task.observe())
    task.step(np.ones((2, 4), np.int64))
    return agent, task.observe(), memory


@st.composite
def _observations(draw: Any) -> Any:
    name = draw(st.sampled_from(_AGENTS))
    starts = draw(st.one_of(st.none(), changed_array(np.array([True, False]))))
    return name, draw(changed_arrays(_playing(name)[1], 2)), starts


def agent(given: Any) -> None:
    """Decide, with the memory of the last call."""
    name, observation, starts = given
    agent, _, memory = _playing(name)
    decided, _ = agent.predict(observation, memory, starts, deterministic=True)
    assert ((decided >= 0) & (decided <= 2)).all()


_TRACKER = {
    "moves": np.array([1, 2]), "position": np.zeros((2, 5, 2)), "seen": np.ones((2, 5), np.bool_),
    "velocity": np.zeros((2, 5, 2)), "deviation": np.array(0.0), "views": np.ones((2, 4, 7)),
    "unseen": np.zeros((2, 5), np.bool_), "cells": np.array(4),
}  # fmt: skip


@functools.cache
def _tracker() -> ParticleTracker:
    return ParticleTracker("hit-mac", 2, particles=8)


def tracker(given: dict[str, Any]) -> None:
    """Track."""
    tracker = _tracker()
    tracker.reset()
    tracker.move(given["moves"])
    tracker.see(given["position"], given["seen"], given["velocity"], deviation=given["deviation"])
    tracker.look(given["views"], given["unseen"])
    assert np.isfinite(tracker.map(given["cells"])).all()


_MEASURED = {
    "sensor_position": np.zeros((4, 2)), "heading": np.zeros(4), "target_position": np.ones((5, 2)),
    "target_before": np.ones((5, 2)), "age": np.zeros(5), "seen": np.ones((4, 5), np.bool_),
    "field_of_view": np.full(4, 90.0), "along": np.zeros(4),
}  # fmt: skip


def measured(given: dict[str, Any]) -> None:
    """Compute an observation from measurements."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        observe(_HIT_MAC, tuple(FEATURES), **given)
        Memory("shared").see(given["target_position"])


_SHELLS: dict[str, Callable[..., object]] = {
    "single": gym_env.DirectionalSensorEnv,
    "vector": vector_env.DirectionalSensorVectorEnv,
    "rows": sb3_env.DirectionalSensorVecEnv,
    "parallel": pettingzoo_env.DirectionalSensorParallelEnv,
}
_MAKERS: dict[str, Callable[..., object]] = {
    "simulator": Simulator,
    "observer": functools.partial(Observer, _HIT_MAC),
    **{one.spec.name: one for one in TASKS.values()},
    **{name: functools.partial(shell, "Coverage") for name, shell in _SHELLS.items()},
    "tracker": functools.partial(ParticleTracker, _HIT_MAC),
    **{name: functools.partial(scripted_agent, name, _HIT_MAC) for name in SCRIPTED},
}


@functools.cache
def _options_of(name: str) -> tuple[str, ...]:
    """Return the names of a constructor's arguments, except those that take whole objects."""
    function = SCRIPTED.get(name, _MAKERS[name])
    kept = {"scenario", "task", "simulator", "executor", "coordinator", "options", "self", "scene"}
    kinds = [one for one in getattr(function, "__mro__", (function,)) if one is not object]
    if name in _SHELLS:  # options of the shell and of the task
        kinds = [_SHELLS[name], Shell._set_task, TASKS["Coverage"]]
    found = {
        one.name
        for kind in kinds
        for one in inspect.signature(kind).parameters.values()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    return tuple(sorted(found - kept))


_MADE = st.sampled_from(list(_MAKERS)).flatmap(
    lambda name: st.tuples(st.just(name), st.dictionaries(st.sampled_from(_options_of(name)), junk, max_size=2))
)


def constructor(given: tuple[str, dict[str, Any]]) -> None:
    """Construct, except with sizes that rightly take long; a refused name of an argument is no fault."""
    name, options = given
    if any(isinstance(value, int) and 10**5 < value < 2**31 for value in options.values()):
        return
    try:
        _MAKERS[name](**options)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise


_OPTIONS = {
    name: st.one_of(junk, st.sampled_from(["pairs", "mean", "dot", "mlp", 4])) for name in vars(EncoderConfig())
}


@st.composite
def _encoders(draw: Any) -> Any:
    names = draw(st.lists(st.sampled_from(sorted(_OPTIONS)), max_size=2, unique=True))
    options = {name: draw(_OPTIONS[name]) for name in names}
    arrays = {"pairs": np.zeros((2, 3, 4, 6), np.float32), "mask": np.ones((2, 3, 4), np.bool_)}
    return options, draw(changed_arrays(arrays, 1))


def encoder(given: Any) -> None:
    """Encode, except with sizes that rightly take much memory."""
    options, arrays = given
    if any(isinstance(value, int | float) and value > 64 for value in options.values()):
        return
    made = AgentTargetEncoder(6, config=EncoderConfig(**{"weight_dim": 8} | options))
    pairs, mask = arrays["pairs"], arrays["mask"]
    if isinstance(pairs, np.ndarray) and pairs.dtype.kind in "fiub":  # PyTorch itself refuses other types
        pairs = torch.from_numpy(np.ascontiguousarray(pairs, np.float32))
    if isinstance(mask, np.ndarray) and mask.dtype.kind in "fib":
        mask = torch.from_numpy(np.ascontiguousarray(mask))
    made(pairs, mask)


def _places() -> st.SearchStrategy[Any]:
    places = {"sensor_position": np.zeros((2, 4, 2)), "heading": np.zeros((2, 4)), "target_position": np.ones((5, 2)),
              "target_tracks": np.zeros((3, 5, 2))}  # fmt: skip
    some = st.one_of(changed_arrays(places, 2), st.dictionaries(st.sampled_from([*places, "along", "x"]), junk), junk)
    mask = st.one_of(st.none(), changed_array(np.array([True, False])))
    return st.tuples(some, st.one_of(st.none(), st.integers(0, 9), junk), mask)


KERNEL_PARTS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], object]]] = {
    "scenario": (changed_parameters(), scenario),
    "state": (st.deferred(lambda: changed_arrays(_simulator().get_state())), state),
    "place": (_places(), place),
    "action": (_actions(), action),
    "agent": (_observations(), agent),
    "tracker": (changed_arrays(_TRACKER, 2), tracker),
    "measured": (changed_arrays(_MEASURED, 2), measured),
    "constructor": (_MADE, constructor),
    "encoder": (_encoders(), encoder),
}
