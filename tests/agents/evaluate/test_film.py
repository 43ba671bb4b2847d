"""Films show the evaluated episodes, and their files have the names of agents and scenarios."""

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.evaluate import evaluate, save_film
from hitmac.agents.evaluate.film import films_of
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


def test_a_film_shows_assignments(tmp_path, monkeypatch):
    drawn, draw = [], Picture.draw
    monkeypatch.setattr(Picture, "draw", lambda *arguments: drawn.append(arguments[4]) or draw(*arguments))
    for name in ("assign-in-range", "nearest"):
        save_film(tmp_path / "film.gif", name, "hit-mac", seed=0, sub_steps=2, every=1, size=64)
    in_range = CoverageTask("hit-mac", 1, 0, features=["in_range"]).observe()["pairs"][0, ..., 0]
    np.testing.assert_array_equal(drawn[0], in_range)
    assert drawn[2:] == [None, None]


def test_a_film_shows_detections_and_tracks(tmp_path, monkeypatch):
    drawn, draw = [], Picture.draw
    monkeypatch.setattr(Picture, "draw", lambda *given: drawn.append((given, draw(*given))) or drawn[-1][1])
    scenario = load_scenario("hit-mac").replace(knowledge="full", identities=False)
    save_film(tmp_path / "film.gif", "planner", scenario, seed=0, sub_steps=6, every=6, size=200)
    (_, simulator, *_, detections, (means, covariances)), picture = drawn[0]
    assert detections.shape == (20, 2)  # every sensor detects every target
    assert (means.shape, covariances.shape) == ((5, 2), (5, 2, 2))
    apart = np.linalg.norm(means[:, None] - simulator.state.target_position[0], axis=-1)
    assert (apart.min(1) < 30).all()  # they have moved once or twice since
    assert (Picture(scenario, 200).draw(simulator, 0, "") != picture)[60:].any()


def test_films_of_several_agents_and_scenarios_have_their_names(tmp_path):
    scenes = [load_scenario(name) for name in ("hit-mac-2x3", "random-2x3")]
    still, planner = load_agent("still", scenes[0]), load_agent("planner:turn_cost=0.5", scenes[0])
    films = []
    for teams in ([(scenes[0], [still, planner, planner._replace(run="another")])], [(one, [still]) for one in scenes]):
        for path, film in films_of(tmp_path / "film.gif", teams).items():
            save_film(path, *film, seed=0, sub_steps=2)
            films.append(path)
    names = "film-still.gif", "film-planner-turn-cost=0.5.gif", "film-hit-mac-2x3.gif", "film-random-2x3.gif"
    assert [path.name for path in films if path.is_file()] == list(names)
    with pytest.raises(ValueError, match=r"two films would be .*d-still.gif"):
        films_of(tmp_path / "d.gif", [(scenes[0], [still, still._replace(name="still!")])])
    with pytest.raises(OSError, match="File name too long"):
        films_of(tmp_path / "e.gif", [(scenes[0], [still, still._replace(name=300 * "a")])])
