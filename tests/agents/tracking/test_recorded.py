"""Motion learned from recorded tracks: by hand, and on the worked site."""

from pathlib import Path

import numpy as np
import pytest

from hitmac.agents.evaluate import evaluate
from hitmac.agents.tracking.beliefs import Beliefs
from hitmac.agents.tracking.recorded import PieceFinder, read_pieces
from hitmac.envs import Scenario, Simulator, load_scenario
from hitmac.envs.observation import Observer
from tests.envs.scenes import write_tracks

SITE = Path(__file__).parents[3] / "examples" / "site"


def written(path, tracks):
    """Write tracks {id: (first time, places)}, a row per second; return the path."""
    rows = [
        f"{first + k},{name},{x},{y}" for name, (first, places) in tracks.items() for k, (x, y) in enumerate(places)
    ]
    return write_tracks(path, *rows)


def hall(tracks, **changes):
    options = {
        "num_sensors": 1, "num_targets": 4, "arena": 100, "time_step": 1, "knowledge": "shared", "placement": "fixed",
        "sensor_positions": [(0, 0)], "sensor_headings": [0], "sensing_range": 200, "field_of_view": 90,
        "whole_numbers": False, "max_speed": 20, "tracks": tracks,
    }  # fmt: skip
    return Scenario(**options | changes)


def believe(scenario, particles, steps):
    """Yield the beliefs after every observation of sensors that do not turn, and the simulator."""
    believed, simulator, state = Beliefs(scenario, particles), Simulator(scenario, 1, 0), None
    for _ in range(steps):
        shown = Observer(scenario, Beliefs.features).observe(simulator)
        scene, state = believed.update(shown["pairs"], shown["mask"] != 0, state)
        yield scene, simulator
        simulator.step(np.zeros((1, 1), int))


def test_places_velocities_and_arrivals_are_those_of_the_files(tmp_path):
    one = written(tmp_path / "1.csv", {"a": (0, [(0, 0), (2, 0), (4, 1)]), "b": (3, [(9, 9), (9, 8)])})
    pieces = read_pieces(hall([one]))
    assert pieces.position.tolist() == [[0, 0], [2, 0], [4, 1], [9, 9], [9, 8]]
    assert pieces.velocity.tolist() == [[2, 0], [2, 0], [2, 1], [0, -1], [0, -1]]
    assert pieces.rest.tolist() == [2, 1, 0, 1, 0]
    assert pieces.arrivals.tolist() == [3]  # the first is present from the start
    assert (pieces.expected, pieces.rate) == (5 / 5, 1 / 5)


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_a_target_walks_on_as_those_who_walked_the_same_way(tmp_path, noise):
    """People go along +x to (30, 0) and turn left there; others come back straight along y = 1."""
    corner = [(x, 0) for x in range(0, 31, 2)] + [(30, y) for y in range(2, 40, 2)]
    back = [(x, 1) for x in range(60, -60, -2)]
    past = written(tmp_path / "past.csv", {"a": (0, corner), "b": (0, back)})
    now = written(tmp_path / "now.csv", {"z": (0, [(x, y - 3) for x, y in corner[5:]])})
    scenario = hall([past]).following([now])
    scenario = scenario.replace(sensor_positions=[(-5, -3)], sensing_range=25, position_noise=noise)
    places = PieceFinder(scenario).nearest(np.array([[15.0, 0.5, 2, 0, 0], [15, 0.5, -2, 0, 0]]), np.ones(2, bool), 3)
    assert (places[0] < len(corner)).all()
    assert (places[1] >= len(corner)).all()

    *_, (scene, simulator) = believe(scenario, 32, 14)
    assert not simulator.state.visible.any()
    there = scene.belief.weight[0, 0] > 0
    assert there.any()
    place = np.moveaxis(scene.belief.body[0, 0, :2], 0, -1)[there]
    assert np.abs(place.mean(0) - simulator.state.target_position[0, 0]).max() < 5


def test_unseen_targets_are_as_many_as_recorded_except_in_view(tmp_path):
    """Of six people who stand for ever, evenly over the hall, those in a quarter of it would be seen."""
    angle = np.radians([10, 30, 100, 190, 220, 280])
    stand = {str(k): (0, [(50 * np.cos(a), 50 * np.sin(a))] * 9) for k, a in enumerate(angle)}
    arrive = {"late": (4, [(-50, 0), (-49, 0)])}
    past = written(tmp_path / "past.csv", stand | arrive)
    none = written(tmp_path / "none.csv", {"z": (0, [(-80, 80)] * 60)})
    scenario = hall([past]).following([none])
    sums = []
    for scene, _ in believe(scenario, 400, 40):
        weight, (x, y) = scene.belief.weight[0, -1], scene.belief.body[0, -1, :2]
        assert (weight[(weight > 0) & (x > abs(y))] == 0).all()
        sums.append(weight.sum())
    assert not scene.present.any()
    expected = read_pieces(scenario).expected
    assert expected == pytest.approx((6 * 9 + 2) / 9)
    assert sums[0] == pytest.approx(expected * 4 / 6, rel=0.15)
    assert sums[-1] == pytest.approx(2 / 9, abs=0.15)  # only those who arrived in the last two sub-steps


def test_a_target_whose_track_would_have_ended_is_forgotten(tmp_path):
    past = written(tmp_path / "past.csv", {"a": (0, [(x, 0) for x in range(0, 40, 2)])})
    now = written(tmp_path / "now.csv", {"z": (0, [(x, -3 * x) for x in range(0, 30, 2)])})
    scenario = hall([past]).following([now]).replace(sensor_positions=[(-5, 0)])
    present = [scene.present[0, 0] for scene, _ in believe(scenario, 16, 14)]
    assert (present[0], present[-1]) == (True, False)


@pytest.mark.parametrize("knowledge", ["full", "shared"])
def test_on_the_worked_site_plans_cover_more_than_the_nearest(knowledge):
    """Learned from days 1 to 4, evaluated on day 5."""
    days = [str(SITE / "tracks" / f"day-{day}.csv") for day in range(1, 6)]
    scenario = (
        load_scenario(SITE / "site.yaml").replace(tracks=days[:4]).following(days[4:]).replace(knowledge=knowledge)
    )
    agents = "nearest", "belief-planner-fast"
    nearest, planned = evaluate(agents, scenario, episodes=4, seed=9_000_000_000, progress=False)["agents"].values()
    assert planned["coverage"]["mean"] > nearest["coverage"]["mean"] + 0.03
    assert planned["rotation"]["mean"] < 0.6 * nearest["rotation"]["mean"]
