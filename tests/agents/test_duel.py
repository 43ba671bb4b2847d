"""Players of a duel: agents of sensors, learned targets, populations and their names."""

import copy
import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents import load_policy, save_policy
from hitmac.agents.duel import Population, SensorPlayer
from hitmac.agents.learned.recurrent import RECURRENT_FEATURES
from hitmac.agents.names import POPULATION, load_agent, load_opponent, members_of
from hitmac.agents.planning.evader import EvaderAgent
from hitmac.agents.registry import Agent
from hitmac.envs import Simulator, load_scenario
from hitmac.envs.base.streams import stream_keys
from hitmac.envs.tasks import CoverageTask, TransportTask
from hitmac.envs.tasks.base import flatten_sensors
from tests.agents.untrained import untrained

SMALL = load_scenario("mate-2v4-0").replace(episode_steps=40)


def scenes(seeds, draws=5):
    """Return what a population reads of a duel with these seeds."""
    places, draws = np.zeros((len(seeds), 2, 2)), np.full(len(seeds), draws, np.uint64)
    keys = stream_keys(np.array(seeds))
    return SimpleNamespace(state=SimpleNamespace(key=keys, draws=draws, sensor_position=places, target_position=places))


class Constant:
    """Player whose actions are its number, with a memory: in each scene, calls since the episode began."""

    def __init__(self, number):
        self.number, self.calls = number, np.zeros(0, int)

    def act(self, duel, starts, chosen=None):
        self.calls = np.zeros(len(starts), int) if len(self.calls) != len(starts) else self.calls
        self.calls = np.where(starts, 0, self.calls) + chosen
        return np.full((len(starts), 2, 2), float(self.number))

    def get_state(self):
        return {"calls": self.calls}

    def set_state(self, state):
        self.calls = state["calls"].copy()


def population(team="targets", weights=(1, 2, 1)):
    return Population(team, [Constant(number) for number in range(len(weights))], weights)


ALL = np.ones(4000, bool)


def drawn(one, duel, starts=ALL):
    return one.act(duel, starts, np.ones_like(starts))[:, 0, 0].astype(int)


def test_players_are_drawn_by_weight_from_the_seed_of_each_scene():
    seeds = np.arange(4000)
    found = drawn(population(), scenes(seeds))
    np.testing.assert_allclose(np.bincount(found) / 4000, [0.25, 0.5, 0.25], atol=0.03)  # 4 standard deviations
    np.testing.assert_array_equal(drawn(population(), scenes(seeds[7:9]), ALL[:2]), found[7:9])  # in another batch
    again, other = drawn(population(), scenes(seeds, 6)), drawn(population("sensors"), scenes(seeds))
    for independent in (again, other):  # the next episode, and the other team
        assert np.mean(independent == found) == pytest.approx(0.375, abs=0.03)
    assert set(drawn(population(weights=(0, 1)), scenes(seeds))) == {1}


def test_a_player_is_kept_for_its_episode_and_its_memory_is_of_its_own_scenes():
    one, duel = population(), scenes(range(50))
    first = drawn(one, duel, ALL[:50])
    later = drawn(one, scenes(range(50), 9), np.arange(50) < 20)  # 20 scenes begin another episode
    np.testing.assert_array_equal(later[20:], first[20:])
    assert (later[:20] != first[:20]).any()
    for number, player in enumerate(one.players):
        np.testing.assert_array_equal(player.calls[20:], 2 * (first[20:] == number))
        np.testing.assert_array_equal(player.calls[:20][later[:20] == number], 1)
    before, no, other = [player.calls.copy() for player in one.players], np.zeros(50, bool), population()
    other.set_state(one.get_state())
    for each in (one, other):  # which continues it
        np.testing.assert_array_equal(each.act(duel, no, np.arange(50) == 30)[30], first[30])
        changes = np.sum([player.calls - was for player, was in zip(each.players, before, strict=True)], 0)
        assert np.flatnonzero(changes).tolist() == [30]


# --- names ---


@given(
    st.dictionaries(
        st.sampled_from(["greedy", "planner:turn_cost=0.5", "runs/a+b", "x:y=1", "a=b"]), st.integers(1, 99), min_size=2
    )
)
@settings(max_examples=40, deadline=None)
def test_a_population_is_the_sum_of_its_weighted_names(weights):
    text = "+".join(f"{name}={weight / 4}" for name, weight in weights.items())
    found = members_of(text, "targets")
    assert list(found) == list(weights)
    assert list(found.values()) == pytest.approx([weight / sum(weights.values()) for weight in weights.values()])


@pytest.mark.parametrize("text", ["", "[]", '{"targets": [1]}', '{"sensors": {}}', '{"targets": {"greedy": "x"}}'])
def test_a_damaged_population_is_refused(text, tmp_path):
    (tmp_path / POPULATION).write_text(text)
    with pytest.raises(ValueError, match=rf"{POPULATION} is not a population: "):
        load_opponent(tmp_path, SMALL, "targets")


def test_a_directory_is_its_population_and_joins_others(tmp_path):
    (tmp_path / "targets-1").mkdir()
    listed = {"sensors": {"mate:greedy": 1}, "targets": {"greedy": 1, "targets-1": 3, "random": 0}}
    (tmp_path / POPULATION).write_text(json.dumps(listed))
    own = str(tmp_path / "targets-1")
    assert members_of(tmp_path, "targets") == {"greedy": 0.25, own: 0.75}
    assert members_of(tmp_path, "sensors") == {"mate:greedy": 1.0}
    assert members_of(f"{tmp_path}=1+greedy=1", "targets") == {"greedy": 0.625, own: 0.375}
    assert members_of("planner:turn_cost=0.5", "sensors") == {"planner:turn_cost=0.5": 1.0}


@pytest.mark.parametrize(("name", "message"), [
    ("greedy=0.5+random", r"population is 'greedy=0.5\+random'; it must have the form A=0.5\+B=0.5"),
    ("greedy=0+random=0", "with a weight over 0"),
    ("gredy", r"unknown team of targets 'gredy' \(did you mean greedy\?\): known are random, naive, greedy, heuristic"),
    ("runs/none", "no such directory: runs/none"),
])  # fmt: skip
def test_names_that_are_refused(name, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_opponent(name, SMALL, "targets")


# --- agents of sensors ---


def test_an_agent_plays_as_in_its_own_task():
    agent = load_agent("greedy", SMALL)
    task, player = CoverageTask(SMALL, 3, 0, features=agent.features), SensorPlayer(agent, SMALL)
    starts = np.ones(3, bool)
    for _ in range(5):
        own = task.simulator.command(agent.policy.predict(task.observe())[0], starts)
        np.testing.assert_array_equal(player.act(task.simulator, starts), own)
        task.simulator.step(own)
    some = np.array([False, True, False])
    np.testing.assert_array_equal(player.act(task.simulator, ~starts, some)[1], player.act(task.simulator, ~starts)[1])
    assert player.get_state() == {}


@pytest.mark.parametrize("name", ["random", "belief-planner-fastest"])
def test_a_player_goes_on_with_another_number_of_scenes(name):
    """A match of many episodes is played in batches, of which the last may be smaller."""
    player = SensorPlayer(load_agent(name, SMALL), SMALL)
    for scenes in (3, 2):
        assert player.act(Simulator(SMALL, scenes, 0), np.ones(scenes, bool)).shape == (scenes, 2, 2)


def player_of(name, scenario):
    if name != "recurrent":
        return load_opponent(name, scenario, "sensors")
    policy, config = untrained(scenario, features=RECURRENT_FEATURES, memory="recurrent", noise=0.1)
    return SensorPlayer(Agent(name, policy, config.features), scenario)


# A memory without random numbers, one with them in levels, and random numbers alone.
@pytest.mark.parametrize("name", ["recurrent", "assign-all", "random"])
def test_decisions_in_an_episode_depend_on_that_episode_alone(name):
    scenario = load_scenario("hit-mac-3x2").replace(knowledge="shared")
    duel, yes, no = Simulator(scenario, 3, 0), np.ones(3, bool), np.zeros(3, bool)
    player, starts = player_of(name, scenario), yes
    for step in range(8):
        action = player.act(duel, starts)
        if step == 4:
            fresh = player_of(name, scenario)
            np.testing.assert_array_equal(fresh.act(duel, yes)[1], action[1])
            resumed = player_of(name, scenario)
            resumed.set_state({key: array.copy() for key, array in player.get_state().items()})
        if step > 4:
            np.testing.assert_array_equal(fresh.act(duel, starts)[1], action[1])
            np.testing.assert_array_equal(resumed.act(duel, starts), action)
        duel.step(action)
        starts = no
        if step == 3:
            starts = np.array([False, True, False])
            duel.reset(mask=starts)
    assert player.get_state()


def test_an_opponent_does_not_go_on_in_a_scene_that_waits():
    both, alone = (TransportTask(SMALL, scenes, 0, opponent="belief-planner-fastest") for scenes in (2, 1))
    moves = np.random.default_rng(0).integers(0, 17, (30, 1, 4))
    for move in moves:
        alone.step(move)
        both.step(move.repeat(2, 0))
        both.step(move.repeat(2, 0), np.array([False, True]))
    np.testing.assert_array_equal(both.simulator.state.heading[0], alone.simulator.state.heading[0])
    assert (both.simulator.state.time == (30, 60)).all()


# --- learned targets ---


def test_a_saved_policy_plays_the_best_move_of_every_target_also_at_other_sizes(tmp_path):
    policy, config = untrained(SMALL, "Transport", features=("entities",), noise=1.0)
    save_policy(tmp_path, policy, config)
    for size in (SMALL, "mate-4v8-9"):
        task = TransportTask(size, 3, 0)
        rows = flatten_sensors(task.observe())
        best = load_policy(tmp_path, size)[0].predict(rows, deterministic=True)[0].reshape(3, -1)
        assert len(np.unique(best)) > 1
        player, everyone = load_opponent(tmp_path, size, "targets"), np.ones(3, bool)
        steps = player.act(task.simulator, everyone)
        np.testing.assert_array_equal(steps, task.displacements(best))
        some = np.array([True, False, True])
        np.testing.assert_allclose(player.act(task.simulator, everyone, some)[some], steps[some])
    with pytest.raises(ValueError, match="was trained for Transport; it plays the targets of a game of two teams"):
        load_agent(tmp_path, SMALL)


def test_a_copy_goes_on_with_the_memory_of_its_opponent_and_environments_share_none():
    """Also a pickled one; the player that was given does not change."""
    player = EvaderAgent(SMALL)
    fresh = player.get_state()
    task, other = CoverageTask(SMALL, 2, 0, opponent=player), CoverageTask(SMALL, 2, 9, opponent=player)
    still = np.zeros((2, 4), int)
    for _ in range(5):
        task.step(still)
    alike = copy.deepcopy(task), pickle.loads(pickle.dumps(task))
    for _ in range(20):
        for one in (task, other, *alike):
            one.step(still)
    for one in alike:
        np.testing.assert_equal(one.simulator.get_state(), task.simulator.get_state())
        np.testing.assert_equal(one.opponent.get_state(), task.opponent.get_state())
    np.testing.assert_equal(player.get_state(), fresh)
    alone = CoverageTask(SMALL, 2, 9, opponent="evader")
    for _ in range(20):
        alone.step(still)
    np.testing.assert_equal(other.simulator.get_state(), alone.simulator.get_state())
