"""Films show the evaluated episodes, and their files have the names of agents and scenarios."""

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.evaluate import evaluate, save_film
from hitmac.agents.evaluate.film import save_films
from hitmac.envs import load_scenario
from hitmac.envs.render import Picture
from hitmac.envs.tasks import CoverageTask


@pytest.mark.parametrize("name", ["random", "planner", "assign-randomly:random"])
def test_a_film_shows_the_episode_of_its_seed(name, tmp_path, monkeypatch):
    scenario, captions = load_scenario("hit-mac").replace(leave_rate=0.6, return_rate=0.1), []
    monkeypatch.setattr(Picture, "draw", lambda *given: captions.append(given[3]) or np.zeros((8, 8, 3), np.uint8))
    found = evaluate(name, scenario, episodes=4, seed=40, max_episode_steps=13, progress=False)
    save_film(tmp_path / "film.gif", name, scenario, seed=43, sub_steps=13, every=1, size=64)
    (result,) = found["agents"].values()
    assert found["empty"] > 0.1
    assert captions[-1] == f"{name}   coverage so far {result['per_episode']['coverage'][3]:.3f}   sub-step 13"


def test_a_film_shows_the_knowledge_of_the_sensors(tmp_path):
    films = []
    for knowledge in ("full", "shared", "full"):
        scenario = load_scenario("hit-mac").replace(knowledge=knowledge)
        save_film(tmp_path / "film.gif", "still", scenario, seed=0, sub_steps=60, every=60, size=200)
        films.append((tmp_path / "film.gif").read_bytes())
    assert films[0] == films[2] != films[1]


def test_a_film_shows_assignments(tmp_path, monkeypatch):
    drawn, draw = [], Picture.draw
    monkeypatch.setattr(Picture, "draw", lambda *arguments: drawn.append(arguments[-1]) or draw(*arguments))
    for name in ("assign-in-range", "nearest"):
        save_film(tmp_path / "film.gif", name, "hit-mac", seed=0, sub_steps=2, every=1, size=64)
    in_range = CoverageTask("hit-mac", 1, 0, features=["in_range"]).observe()["pairs"][0, ..., 0]
    np.testing.assert_array_equal(drawn[0], in_range)
    assert drawn[2:] == [None, None]


def test_films_of_several_agents_and_scenarios_have_their_names(tmp_path):
    scenes = [load_scenario(name) for name in ("hit-mac-2x3", "random-2x3")]
    still, planner = load_agent("still", scenes[0]), load_agent("planner:turn_cost=0.5", scenes[0])
    again = planner._replace(run="another training")
    one = save_films(tmp_path / "a.gif", [(scenes[0], [still])], seed=0, sub_steps=2)
    two = save_films(tmp_path / "b.gif", [(scenes[0], [still, planner, again])], seed=0, sub_steps=2)
    both = save_films(tmp_path / "c.gif", [(scene, [still]) for scene in scenes], seed=0, sub_steps=2)
    assert [path.name for path in one + two + both] == [
        "a.gif", "b-still.gif", "b-planner-turn-cost=0.5.gif", "c-hit-mac-2x3.gif", "c-random-2x3.gif"
    ]  # fmt: skip
    assert all(path.is_file() for path in one + two + both)
    with pytest.raises(ValueError, match=r"two films would be .*d-still.gif"):
        save_films(tmp_path / "d.gif", [(scenes[0], [still, still._replace(name="still!")])], seed=0, sub_steps=2)


def test_another_ending_is_refused_at_once():
    with pytest.raises(ValueError, match=r"path is 'film.avi'; its name must end in .gif or .mp4"):
        save_film("film.avi", None, None, seed=0)
