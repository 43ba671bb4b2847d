"""Players of a duel: agents of either team by name, and populations of them."""

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hitmac.agents.baselines.evader import EvaderAgent
from hitmac.agents.learned.checkpoint import load_policy
from hitmac.agents.policy import Policy, RuleAgent, State, named_arrays, nested_arrays, pair_of, started
from hitmac.agents.registry import Agent, constructor_options, load_agent
from hitmac.envs.duel import RulePlayer
from hitmac.envs.entities import EntityObserver
from hitmac.envs.files import read_text
from hitmac.envs.kernels.duel_rules import RULES
from hitmac.envs.kernels.entities import MOVES
from hitmac.envs.kernels.streams import stream_integers, stream_keys
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.tasks.base import OPPONENTS, flatten_sensors, make_observer
from hitmac.envs.validation import did_you_mean

POPULATION = "population.json"
"""File of a directory of ``hitmac train duel`` with the agents of both teams and their weights."""

_MEMBER = re.compile(r"(.+?)=(\d+\.?\d*|\.\d+)(?:\+|$)")


class Player(Protocol):
    """Protocol of a player, an object that decides for one team of a duel.

    Its decisions in an episode depend on that episode alone. With a memory it has methods ``get_state()``, which
    returns arrays by name, and ``set_state(arrays)``, so that a training against it can be resumed.
    """

    def act(self, duel: Any, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Decide in a batch of scenes.

        Args:
            duel: the :class:`hitmac.envs.duel.Duel`.
            starts: (B,) bool, the scenes in which an episode begins.
            chosen: (B,) bool, the scenes to decide for; in the others the result is arbitrary. None: all.

        Returns:
            (B, n, 2) turns and zooms of the sensors, degrees; or (B, m, 2) steps of the targets.
        """
        ...


def episode_seeds(duel: Any) -> np.ndarray:
    """Return a seed (B,) uint64 of the episode that begins in each scene, from the scene's own random stream."""
    return stream_keys(duel.state.key ^ stream_keys(duel.state.draws))


class SensorPlayer:
    """Agent of the sensors as a player, with its best actions; it observes the duel as it would its own task."""

    def __init__(self, agent: Agent, scenario: Scenario) -> None:
        self.agent = agent
        self._state: State = None
        self._remembers = True  # until a decision leaves no state
        self._observer = make_observer(scenario, agent.features, **agent.nearness)

    def act(self, duel: Any, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Decide as :class:`Player` specifies; an agent without a memory decides for the chosen scenes only."""
        observation = self._observer.observe(duel)
        if starts.any():
            self._state = _restarted(self._state, started(self.agent.policy, episode_seeds(duel)), starts)
        rows = np.arange(len(starts)) if chosen is None or self._remembers else np.flatnonzero(chosen)
        shown = {name: array[rows] for name, array in observation.items()}
        answer = self.agent.policy.predict(shown, self._state, starts[rows], deterministic=True)
        taken, self._state = pair_of(answer, self.agent.name)
        self._remembers = self._state is not None
        action = np.zeros((len(starts), *taken.shape[1:]), taken.dtype)
        action[rows] = taken
        return duel.command(action, starts)

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the memory as arrays by name."""
        return dict(named_arrays("state", self._state or ()))

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a memory of :meth:`get_state`."""
        self._state, self._remembers = nested_arrays("state", state) or None, True


def _restarted(state: Any, fresh: Any, starts: np.ndarray) -> Any:
    """Return a state with the rows, and the types, of `fresh` where episodes start; a scene has one row or several."""
    if state is None or fresh is None:
        return fresh if state is None else state
    if isinstance(fresh, np.ndarray):
        rows = np.repeat(starts, len(fresh) // len(starts))
        return np.where(rows.reshape(-1, *[1] * (fresh.ndim - 1)), fresh, state)
    parts = [_restarted(*pair, starts) for pair in zip(state, fresh, strict=True)]
    return type(fresh)(*parts) if hasattr(fresh, "_fields") else tuple(parts)


class TargetPlayer:
    """Policy of one target as a player: every target of a game takes its best move."""

    def __init__(self, policy: Policy, scenario: Scenario) -> None:
        self.policy = policy
        self._observer = EntityObserver(scenario, "targets")

    def act(self, duel: Any, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Decide as :class:`Player` specifies."""
        scenes = np.arange(duel.num_envs) if chosen is None else np.flatnonzero(chosen)
        shown = {name: array[scenes] for name, array in self._observer.observe(duel).items()}
        moves = np.zeros(duel.state.target_position.shape[:2], np.int64)
        moves[scenes] = self.policy.predict(flatten_sensors(shown), deterministic=True)[0].reshape(len(scenes), -1)
        return MOVES[moves] * duel.state.speed[..., None] * duel.scenario.time_step


class Population:
    """Players of one team with weights; each episode is played by one of them, drawn by weight.

    The draw is a function of :func:`episode_seeds`, so that a scene does not depend on its batch.
    """

    def __init__(self, team: str, players: Sequence[Player], weights: Sequence[float]) -> None:
        self.team, self.players = team, tuple(players)
        ends = np.cumsum(weights)
        self._ends = ends / ends[-1]
        self._drawn = np.zeros(0, np.int64)  # (B,) the player of each scene

    def act(self, duel: Any, starts: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Decide as :class:`Player` specifies."""
        if starts.any():
            keys = stream_keys(episode_seeds(duel) ^ np.uint64(zlib.crc32(self.team.encode())))
            share = stream_integers(keys, np.zeros_like(keys), 1, 2**53)[:, 0] / 2**53
            drawn = np.searchsorted(self._ends, share, "right")
            self._drawn = drawn if starts.all() else np.where(starts, drawn, self._drawn)
        action = np.zeros_like(duel.state.sensor_position if self.team == "sensors" else duel.state.target_position)
        for number, player in enumerate(self.players):
            own = (self._drawn == number) & (True if chosen is None else chosen)
            if own.any():
                action[own] = player.act(duel, starts & own, own)[own]
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


def members_of(name: str | Path, team: str) -> dict[str, float]:
    """Return the weights of the agents of one team by name: of a population, or 1 for any other agent.

    Raises ``ValueError`` for a population of another form or whose file cannot be read, or weights that are all 0.
    """
    text, path = str(name), Path(name) / POPULATION
    if path.is_file():
        try:
            listed = json.loads(read_text(path))[team]
            parts = [(within(path.parent, one), float(weight)) for one, weight in listed.items()]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path} is not a population: {error!r}") from None
    elif found := _MEMBER.findall(text) if "+" in text else []:
        parts = [(one, float(weight)) for one, weight in found]
        if "+".join(f"{one}={weight}" for one, weight in found) != text or not any(weight for _, weight in parts):
            raise ValueError(f"population is {text!r}; it must have the form A=0.5+B=0.5, with a weight over 0")
    else:
        return {text: 1.0}
    total, members = sum(weight for _, weight in parts), dict[str, float]()
    for one, weight in parts:
        for member, share in members_of(one, team).items() if weight else ():
            members[member] = members.get(member, 0.0) + share * weight / total
    return members


def within(folder: Path, name: str) -> str:
    """Return the path of an agent in a folder, or its name if the folder has none."""
    return str(folder / name) if (folder / name).is_dir() else name


def load_opponent(name: Any, scenario: Scenario | str | Path, team: str) -> Player:
    """Load the player of a name for one team of a duel.

    ==================== =====================================================================================
    ``greedy``           rule of MATE for the targets: ``random``, ``naive``, ``greedy``, ``heuristic``
    ``evader:decoys=1``  :class:`hitmac.agents.baselines.evader.EvaderAgent`, with or without options
    ``mate:greedy``      the same for the sensors
    ``belief-planner``   for the sensors any name of :func:`hitmac.agents.load_agent`
    ``runs/x``           run or checkpoint of a policy of the team
    ``A=0.5+B=0.5``      population: names with weights; a player is drawn for every episode
    ``runs/duel``        population of the team in a directory of ``hitmac train duel``
    ==================== =====================================================================================

    An object with ``act``, see :class:`Player`, is returned unchanged.

    Raises:
        ValueError: an unknown name (the message lists the known ones), or a run of the other team.
        FileNotFoundError: the name is a path, without a directory.
    """
    if callable(getattr(name, "act", None)):
        return name
    scenario = load_scenario(scenario)
    members = members_of(name, team)
    players = [_player(one, scenario, team) for one in members]
    return players[0] if len(players) == 1 else Population(team, players, [*members.values()])


def _player(name: str, scenario: Scenario, team: str) -> Player:
    """Load the player of a name that is not a population."""
    if team == "sensors":
        agent = load_agent(name, scenario)
        return agent.policy if isinstance(agent.policy, RuleAgent) else SensorPlayer(agent, scenario)
    if name in RULES[team]:
        return RulePlayer(team, name)
    first, *given = name.split(":")
    if first == "evader":
        return EvaderAgent(scenario, **constructor_options(name, given, EvaderAgent))
    if Path(name).is_dir():
        policy, config = load_policy(name, scenario)
        if config.role != "targets":
            raise ValueError(f"{name} was trained for {config.task}; expected a policy of targets")
        return TargetPlayer(policy, scenario)
    if "/" in name:
        raise FileNotFoundError(f"no such directory: {name}")
    names = (*RULES[team], "evader")
    raise ValueError(
        f"unknown team of targets {name!r}{did_you_mean(name, names)}: known are {', '.join(names)}, folders of "
        "checkpoints or runs, and populations, A=0.5+B=0.5"
    )


OPPONENTS.append(load_opponent)
