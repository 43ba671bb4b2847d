"""Players of a duel: agents of either team by name, and populations of them."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hitmac.agents.policy import Policy, State, named_arrays, nested_arrays, pair_of, started
from hitmac.agents.registry import Agent
from hitmac.envs.base.streams import stream_integers, stream_keys
from hitmac.envs.entities import EntityObserver
from hitmac.envs.kernels.entities import MOVES
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks.base import flatten_sensors, make_observer, with_rows


class Player(Protocol):
    """Protocol of a player, an object that decides for one team of a duel.

    Its decisions in an episode depend on that episode alone. With a memory it has methods ``get_state()``, which
    returns arrays by name, and ``set_state(arrays)``, so that a training against it can be resumed.
    """

    def act(self, simulator: Any, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Decide in a batch of scenes.

        Args:
            simulator: the :class:`hitmac.envs.Simulator`.
            starts: (B,) bool, the scenes in which an episode begins.
            chosen: (B,) bool, the scenes to decide for; in the others the result is arbitrary. None: all.

        Returns:
            (B, n, 2) turns and zooms of the sensors, degrees; or (B, m, 2) steps of the targets.
        """
        ...


def episode_seeds(simulator: Any) -> np.ndarray:
    """Return a seed (B,) uint64 of the episode that begins in each scene, from the scene's own random stream."""
    return stream_keys(simulator.state.key ^ stream_keys(simulator.state.draws))


class SensorPlayer:
    """Agent of the sensors as a player, with its best actions; it observes the duel as it would its own task."""

    def __init__(self, agent: Agent, scenario: Scenario) -> None:
        self.agent = agent
        self._state: State = None
        self._remembers = True  # until a decision leaves no state
        self._observer = make_observer(scenario, agent.features, **agent.nearness)

    def act(self, simulator: Any, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Decide as :class:`Player` specifies; an agent without a memory decides for the chosen scenes only."""
        observation = self._observer.observe(simulator)
        if starts.any():
            fresh = started(self.agent.policy, episode_seeds(simulator))
            self._state = fresh if starts.all() else with_rows(self._state, fresh, starts)
        rows = np.arange(len(starts)) if chosen is None or self._remembers else np.flatnonzero(chosen)
        shown = {name: array[rows] for name, array in observation.items()}
        answer = self.agent.policy.predict(shown, self._state, starts[rows], deterministic=True)
        taken, state = pair_of(answer, self.agent.name)
        self._remembers = state is not None
        going = None if chosen is None or chosen.all() else chosen
        self._state = state if going is None or state is None else with_rows(self._state, state, going)
        action = np.zeros((len(starts), *taken.shape[1:]), taken.dtype)
        action[rows] = taken
        return simulator.command(action, starts)

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the memory as arrays by name."""
        return dict(named_arrays("state", self._state or ()))

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a memory of :meth:`get_state`."""
        self._state, self._remembers = nested_arrays("state", state) or None, True


class TargetPlayer:
    """Policy of one target as a player: every target of a game takes its best move."""

    def __init__(self, policy: Policy, scenario: Scenario) -> None:
        self.policy = policy
        self._observer = EntityObserver(scenario, "targets")

    def act(self, simulator: Any, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Decide as :class:`Player` specifies."""
        scenes = np.arange(simulator.num_envs) if chosen is None else np.flatnonzero(chosen)
        shown = {name: array[scenes] for name, array in self._observer.observe(simulator).items()}
        moves = np.zeros(simulator.state.target_position.shape[:2], np.int64)
        moves[scenes] = self.policy.predict(flatten_sensors(shown), deterministic=True)[0].reshape(len(scenes), -1)
        return MOVES[moves] * simulator.state.speed[..., None] * simulator.scenario.time_step


class Population:
    """Players of one team with weights; each episode is played by one of them, drawn by weight.

    The draw is a function of :func:`episode_seeds`, so that a scene does not depend on its batch.
    """

    def __init__(self, team: str, players: Sequence[Player], weights: Sequence[float]) -> None:
        self.team, self.players = team, tuple(players)
        ends = np.cumsum(weights)
        self._ends = ends / ends[-1]
        self._drawn = np.zeros(0, np.int64)  # (B,) the player of each scene

    def act(self, simulator: Any, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Decide as :class:`Player` specifies."""
        if starts.any():
            keys = stream_keys(episode_seeds(simulator) ^ np.uint64(zlib.crc32(self.team.encode())))
            share = stream_integers(keys, np.zeros_like(keys), 1, 2**53)[:, 0] / 2**53
            drawn = np.searchsorted(self._ends, share, "right")
            self._drawn = drawn if starts.all() else np.where(starts, drawn, self._drawn)
        state = simulator.state
        action = np.zeros_like(state.sensor_position if self.team == "sensors" else state.target_position)
        for number, player in enumerate(self.players):
            own = (self._drawn == number) & (True if chosen is None else chosen)
            if own.any():
                action[own] = player.act(simulator, starts & own, own)[own]
        return action

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the drawn players, and the memories of all players, as arrays by name."""
        arrays = {"drawn": self._drawn}
        for number, player in enumerate(self.players):
            arrays |= memory_of(player, str(number))
        return arrays

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a state of :meth:`get_state`."""
        self._drawn = state["drawn"].copy()
        for number, player in enumerate(self.players):
            set_memory(player, str(number), state)


def memory_of(player: Player, name: str) -> dict[str, np.ndarray]:
    """Return the memory of a player as arrays, with names that begin with NAME/; {} without a memory."""
    memory = player.get_state() if hasattr(player, "get_state") else {}
    return {f"{name}/{key}": array for key, array in memory.items()}


def set_memory(player: Player, name: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Continue from the memory that :func:`memory_of` returned, out of `arrays`."""
    if hasattr(player, "set_state"):
        own = f"{name}/"
        player.set_state({key.removeprefix(own): array for key, array in arrays.items() if key.startswith(own)})
