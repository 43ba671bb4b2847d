"""Records of episodes: every quantity after each sub-step, packed."""

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.attention import attention_of
from hitmac.agents.deploy.replay import record
from hitmac.agents.deploy.replay.page import packed, record_log
from hitmac.agents.evaluate.compare import Episodes
from hitmac.agents.evaluate.film import tracked
from hitmac.agents.evaluate.logs import read_log
from hitmac.envs import load_scenario
from tests.agents.deploy.replay.made import CITY, attention_to_all, played, unpacked
from tests.agents.evaluate.test_logs import header, step, written


@pytest.mark.parametrize(("name", "steps"), [("belief x", 254), ("known x", 65534)])
def test_packing_rounds_to_half_a_step(name, steps):
    values = np.random.default_rng(0).uniform(-3, 7, (30, 4, 2))
    values[3, 1, 0] = np.nan
    np.testing.assert_allclose(unpacked(packed(name, values)), values.reshape(30, 8), atol=5.001 / steps)
    whole = np.random.default_rng(0).integers(65536, size=(30, 4))
    np.testing.assert_array_equal(unpacked(packed("age", whole)), whole)
    assert packed(name, np.repeat(values[:1], 30, 0))["frames"] == 1


@pytest.mark.parametrize(("name", "knowledge"), [("hit-mac", "own"), ("obstacles", "full"), ("volleyball-4", "full")])
def test_a_record_holds_the_episode(name, knowledge):
    scenario = load_scenario(name).replace(knowledge=knowledge)
    agent = load_agent("nearest", scenario)
    made = record(agent, scenario, 7, 20)
    series = {name: unpacked(one) for name, one in made["series"].items()}

    def close(name, t, values, error):
        rows = series[name]
        np.testing.assert_allclose(rows[min(t, len(rows) - 1)], np.ravel(values), atol=error, rtol=0)

    for t, episode in enumerate(played(agent, scenario, 7, 20)):
        state, known = episode.task.simulator.state, episode.task.simulator.known
        for axis, half in zip("xy", scenario.extent, strict=True):
            for kind, values in (("sensor", state.sensor_position[0]), ("target", state.target_position[0])):
                close(f"{kind} {axis}", t, values[:, "xy".index(axis)], half / 65535 * 1.001)
        wrapped = (series["heading"][min(t, len(series["heading"]) - 1)] - state.heading[0] + 180) % 360 - 180
        assert np.abs(wrapped).max() < 0.006
        close("view", t, state.field_of_view, 0.006)
        close("reach", t, np.sqrt(state.range_squared), 1e-4 * np.sqrt(state.range_squared.max()))
        close("coverage", t, episode.task.simulator.coverage, 1e-5)
        for name in ("working", "present", "covered", "visible", "turned"):
            close(name, t, getattr(state, name)[0], 0)
        if known is not None:
            ages = known.known_age[0]  # (n, m)
            close("age", t, np.minimum(ages.min(0), 65535), 0)
            place = np.stack((series["known x"][t], series["known y"][t]), -1)
            for j in np.flatnonzero(np.isfinite(ages.min(0))):
                latest = known.known_position[0, ages[:, j].argmin(), j]
                np.testing.assert_allclose(place[j], latest, atol=half / 65535 * 1.001)
    assert made["frames"] == t + 1 == 21
    assert made["discs"] == state.disc[0].tolist()
    assert ("age" in series) == (knowledge != "full")


def test_a_record_of_two_teams_holds_the_cargo():
    scenario = load_scenario("mate-2v4-0")
    agent = load_agent("still", scenario)
    made = record(agent, scenario, 2, 400)
    series = {name: unpacked(one) for name, one in made["series"].items()}
    for t, episode in enumerate(played(agent, scenario, 2, 400)):
        game = episode.task.simulator.game
        cargo = game.cargo
        np.testing.assert_array_equal(series["load"][t], cargo.weight[0])
        loaded = cargo.weight[0] > 0
        np.testing.assert_array_equal(series["goal"][t, loaded], cargo.goal[0, loaded])
        np.testing.assert_array_equal(series["awaiting"][t], cargo.awaiting[0])
        assert series["transport"][t, 0] == pytest.approx(game.transport_rate[0], abs=1e-5)
    assert cargo.delivered[0] > 4
    assert 0 < series["transport"][-1, 0] < 1


def test_a_record_holds_the_attention_and_the_assignments():
    scenario = load_scenario("hit-mac")
    agent = load_agent("pretrained:hit-mac", scenario)
    made = record(agent, scenario, 0, 12)
    assert made["levels"] == ["coordinator", "executor"]
    shown = {name: unpacked(made["series"][name]).reshape(-1, 4, 5)
             for name in ("assigned", "attention coordinator", "attention executor")}  # fmt: skip
    episode, decided = Episodes(agent, scenario, [0]), None
    for t in range(1, 13):
        found = attention_of(agent.policy, episode.task.observe(), episode.state, np.array([t == 1]))
        decided = found["coordinator"][0] if np.isfinite(found["coordinator"]).all() else decided
        next(episode.steps(1))
        np.testing.assert_allclose(shown["attention coordinator"][t], decided, atol=0.003)
        np.testing.assert_allclose(shown["attention executor"][t], found["executor"][0], atol=0.003)
        np.testing.assert_array_equal(shown["assigned"][t], episode.assigned[0])


def test_a_record_without_identities_holds_detections_and_tracks():
    scenario = load_scenario("hit-mac").replace(knowledge="full", identities=False)
    agent = load_agent("planner", scenario)
    series = {name: unpacked(one) for name, one in record(agent, scenario, 0, 6)["series"].items()}
    assert series["detections"].ravel().tolist() == [0] + 6 * [20]  # every sensor detects every target
    assert (series["tracks"][0], series["tracks"][-1]) == (0, 5)
    for t, episode in enumerate(played(agent, scenario, 0, 6)):
        detections, found = tracked(episode)
        for kind, places in (("detection", detections), ("track", found[0])):
            for axis in range(2 if t else 0):
                shown = series[f"{kind} {'xy'[axis]}"][t, : len(places)]
                np.testing.assert_allclose(shown, places[:, axis], atol=0.02)
        for name, (row, column) in {"xx": (0, 0), "xy": (0, 1), "yy": (1, 1)}.items() if t else ():
            values = series[f"track {name}"]
            error = np.ptp(values) / 65535
            np.testing.assert_allclose(values[t, : len(found[1])], found[1][:, row, column], atol=error)


def test_the_record_of_a_log_has_its_tracks_and_cameras(tmp_path):
    two = [[100.0, -50.0, 4.0, 1.0, 9.0, 0.9, 7.0], [-500.0, 0.0, 2500.0, 0.0, 2500.0, 0.25, 9.0]]
    away = step(2, tracks=[], heading=[None, 90], covered=None)
    lines = [header(), step(0), step(1, tracks=two, detections=[[1, 99.0, 0.0]]), away]
    made = record_log(read_log(written(tmp_path / "run.jsonl", lines)))
    assert (made["agent"], made["frames"], made["sensors"], made["targets"]) == ("still", 3, 2, 0)
    found = {name: unpacked(one) for name, one in made["series"].items()}
    assert found["tracks"].ravel().tolist() == [1, 2, 0]
    np.testing.assert_allclose(found["track y"], [[0, 0], [-50, 0], [0, 0]], atol=0.02)
    np.testing.assert_allclose(found["track yy"], [[4, 0], [9, 2500], [0, 0]], atol=0.05)
    np.testing.assert_allclose(found["track existence"], [[0.9, 0], [0.9, 0.25], [0, 0]], atol=1e-4)
    assert found["detections"].ravel().tolist() == [0, 1, 0]
    np.testing.assert_allclose(found["detection x"].ravel(), [0, 99, 0], atol=0.02)
    assert found["working"].tolist() == [[1, 1], [1, 1], [0, 1]]
    assert found["turned"].ravel().tolist() == [1]
    np.testing.assert_allclose(found["coverage"][:2], 0.5, atol=1e-4)
    assert np.isnan(found["coverage"][2])


def steered_log(folder):
    """The log of three steps in which people steer, a camera rests, and messages come."""
    start = header() | {"private": [[[0, 0], [300, 0], [300, 300]]]}
    steered = step(1, by_hand=[1], left=[7.5], moves=[3, 1], messages=["camera west moves", "<b>it rests"])
    last = step(2, by_hand=[0], left=[None], rests=[1], moves=[3, 2], paused=True)
    lines = [start, step(0, moves=[2, 1]), steered, last]
    return written(folder / "run.jsonl", lines)


def test_the_record_of_a_log_has_states_and_messages(tmp_path):
    run = read_log(steered_log(tmp_path))
    made = record_log(run)
    found = {name: unpacked(one) for name, one in made["series"].items()}
    assert found["by hand"].tolist() == [[0, 0], [0, 1], [1, 0]]
    np.testing.assert_allclose(found["left"], [[np.nan, np.nan], [np.nan, 7.5], [np.nan, np.nan]], atol=1e-3)
    assert found["rests"].tolist() == [[0, 0], [0, 0], [0, 1]]
    assert found["moves"].tolist() == [[2, 1], [3, 1], [3, 2]]
    assert [(frame, text) for frame, _, text in made["messages"]] == [(1, "camera west moves"), (1, "<b>it rests")]
    assert run.private == [[[0.0, 0.0], [300.0, 0.0], [300.0, 300.0]]]


def table_of(series, name, n, m):
    """Table (F, n, m) of the lists in a record."""
    lists = series[f"{name} targets"]
    targets = lists.reshape(len(lists), n, -1).astype(int)
    values = series[name].reshape(targets.shape) if name in series else np.ones(targets.shape)
    table = np.zeros((len(lists), n, m + 1))
    np.put_along_axis(table, np.minimum(targets, m), values, -1)
    return table[..., :m]


def test_a_record_of_a_large_scene_holds_lists():
    agent = load_agent("pretrained:any-size:nearest=5", CITY)
    series = {name: unpacked(one) for name, one in record(agent, CITY, 0, 6)["series"].items()}
    assert not {"visible", "assigned"} & set(series)
    shown, attended = table_of(series, "visible", 130, 140), table_of(series, "attention policy", 130, 140)
    assert attended.any(axis=(1, 2)).tolist() == [False] + 6 * [True]
    assert shown.any()
    for t, episode in enumerate(played(agent, CITY, 0, 6)):
        np.testing.assert_array_equal(shown[t], episode.task.simulator.state.visible[0])
        if t < 6:
            np.testing.assert_allclose(attended[t + 1], attention_to_all(agent, episode), atol=0.003)


def test_beliefs_are_where_the_particles_are():
    scenario = load_scenario("hit-mac").replace(knowledge="shared")
    agent = load_agent("belief-planner-fastest", scenario)
    series = {name: unpacked(one) for name, one in record(agent, scenario, 1, 20)["series"].items()}
    for t, episode in enumerate(played(agent, scenario, 1, 20)):
        points = np.stack((series["belief x"][t], series["belief y"][t]), -1).reshape(5, -1, 2)
        age = series["age"][t]
        assert t == 0 or np.isnan(points[age == 0]).all()
        for j in np.flatnonzero(age > 0) if t else ():
            beliefs = episode.state.beliefs
            body, weight = beliefs.body[0, 0, j, :2], beliefs.weight[0, 0, j]
            assert np.abs(points[j].mean(0) - (body * weight).sum(-1)).max() < 0.8 * body.std(-1).max() + 20
    assert (age > 0).any()
