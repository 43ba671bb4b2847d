"""An evaluation is a function of its arguments: agent, scene and seed; and a film shows an episode of it."""

import itertools

import numpy as np
import pytest
import torch
from numba import njit

from hitmac.agents.baselines.levels import COORDINATORS, EXECUTORS, ScriptedExecutor
from hitmac.agents.baselines.rules import BatchRandom
from hitmac.agents.evaluate import evaluate, evaluate_executors
from hitmac.agents.evaluate.film import save_film
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.policy import started
from hitmac.agents.registry import SCRIPTED, Agent, load_agent, load_executor
from hitmac.envs import load_scenario
from hitmac.envs.kernels.streams import stream_integers, stream_keys, word
from hitmac.envs.render import Picture

NAMES = [*SCRIPTED, *(":".join(pair) for pair in itertools.product(COORDINATORS, EXECUTORS))]


def episodes(agent, scenario, **options):
    options = {"episodes": 4, "max_episode_steps": 13, "progress": False} | options
    result = evaluate([agent], scenario, **options)
    (found,) = result["agents"].values()
    del found["inference_ms"]
    return found["per_episode"]


@pytest.mark.parametrize("scenario", ["hit-mac", "random", "obstacles"])
@pytest.mark.parametrize("name", NAMES)
def test_an_evaluation_depends_on_nothing_but_its_arguments(name, scenario, monkeypatch):
    scenario = load_scenario(scenario)
    agent = load_agent(name, scenario)
    first = episodes(agent, scenario)
    np.random.seed(1)  # noqa: NPY002 - the global ones, which must not matter
    torch.manual_seed(1)
    assert episodes(agent, scenario) == first  # used before
    for at_once in (1, 3, 200):
        monkeypatch.setattr("hitmac.agents.evaluate.compare.SCENES_AT_ONCE", at_once)
        assert episodes(load_agent(name, scenario), scenario) == first
    third = episodes(agent, scenario, episodes=1, seed=2)
    assert third == {metric: values[2:3] for metric, values in first.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_film_shows_the_episode_of_that_seed(name, tmp_path, monkeypatch):
    scenario = load_scenario("hit-mac")
    shown = []

    def draw(self, simulator, b, *others):
        state = simulator.state
        shown.append(state.covered[b].sum() / state.present[b].sum())
        return np.zeros((8, 8, 3), np.uint8)

    monkeypatch.setattr(Picture, "draw", draw)
    agent = load_agent(name, scenario)
    evaluated = episodes(agent, scenario, seed=40)["coverage"][3]
    save_film(tmp_path / "film.gif", agent, "hit-mac", seed=43, sub_steps=13, every=1, size=64)
    assert np.mean(shown) == pytest.approx(evaluated, abs=1e-12)


def test_a_film_takes_names(tmp_path):
    save_film(tmp_path / "film.gif", "planner", "hit-mac-2x3", seed=0, sub_steps=2, size=64)
    assert (tmp_path / "film.gif").is_file()


@pytest.mark.parametrize("name", EXECUTORS)
def test_executors_are_evaluated_the_same_twice_and_in_any_batch(name):
    level = load_executor(name, "hit-mac-executor")
    options = {"max_episode_steps": 9, "progress": False}
    first, again = (evaluate_executors({name: level}, episodes=5, seed=6, **options) for _ in range(2))
    assert first == again
    alone = evaluate_executors({name: level}, episodes=1, seed=8, **options)
    of_third = {key: values[2:3] for key, values in first["agents"][name]["per_episode"].items()}
    assert alone["agents"][name]["per_episode"] == of_third


class Counter:
    """A coordinator with a state: at its k-th decision of an episode it assigns target k to every sensor."""

    def start(self, seeds):
        return (np.asarray(seeds, np.int64) % 5,)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        (count,) = state
        count = np.where(episode_start, 0, count)
        chosen = np.zeros(observation["mask"].shape, np.int8)
        np.put_along_axis(chosen, (count % chosen.shape[-1])[:, None, None], 1, -1)
        return chosen.reshape(len(chosen), -1), (count + 1,)


def test_the_levels_keep_a_state_of_their_own():
    executor = LevelPolicy(ScriptedExecutor(), ScriptedExecutor.features)
    agent = HierarchicalAgent("hit-mac", LevelPolicy(Counter(), ("distance",)), executor, decision=2)
    observation = {"pairs": np.zeros((2, 4, 5, 5), np.float32), "mask": np.ones((2, 4, 5), np.int8)}
    state, assigned = started(agent, [0, 2]), []
    for step in range(7):
        _, state = agent.predict(observation, state, np.array([False, step == 3]))
        assigned.append(state.assigned.any(1).argmax(-1).tolist())
    # Scene 1 begins an episode at step 3, decides then, and two steps later.
    assert assigned == [[0, 2], [0, 2], [1, 3], [1, 0], [2, 0], [2, 1], [3, 1]]


def test_random_numbers_come_from_the_row_and_the_count_alone():
    keys = stream_keys(np.array([7, 2**40]))
    drawn = stream_integers(keys, np.array([5, 0], np.uint64), 3, 10)
    called = njit(lambda key, count: word(key, count))
    for row, first in ((0, 5), (1, 0)):
        words = [int(called(keys[row], np.uint64(first + k))) for k in range(3)]
        assert drawn[row].tolist() == [int((w >> 11) / 2**53 * 10) for w in words]
    many = BatchRandom.start(np.arange(9), 0, "x")
    one = BatchRandom.start([4], 0, "x")
    for columns in (1, 7, 3):
        (numbers, many), (own, one) = many.integers(6, columns), one.integers(6, columns)
        assert own[0].tolist() == numbers[4].tolist()
    starts = [(4, 0, "x"), (4, 1, "x"), (4, 0, "y"), (5, 0, "x")]
    others = {BatchRandom.start([seed], own, why).integers(9, 12)[0].tobytes() for seed, own, why in starts}
    assert len(others) == 4  # another scene, another agent's seed, another purpose
    drawn, _ = BatchRandom.start(np.arange(4000), 0, "x").integers(3, 4)
    assert np.abs(np.bincount(drawn.ravel()) / drawn.size - 1 / 3).max() < 0.02
    assert np.abs(np.corrcoef(drawn.T)[~np.eye(4, dtype=bool)]).max() < 0.05


def test_agents_that_draw_are_told_the_seeds_of_their_scenes():
    """The k-th episode's numbers are those of seed + k; without seeds, row i has those of seed i."""
    agent = load_agent("random", "hit-mac").policy
    shown = {"pairs": np.zeros((3, 4, 5, 2), np.float32), "mask": np.ones((3, 4, 5), np.int8)}
    told, _ = agent.predict(shown, started(agent, [0, 1, 2]))
    np.testing.assert_array_equal(agent.predict(shown)[0], told)
    moved, _ = agent.predict(shown, started(agent, [1, 2, 3]))
    np.testing.assert_array_equal(moved[:2], told[1:])
    assert started(Agent("still", load_agent("still", "hit-mac").policy, ()).policy, [0]) is None
