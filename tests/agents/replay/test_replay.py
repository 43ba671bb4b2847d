"""The page of ``hitmac watch``: what it holds, and in a real browser how it plays."""

import base64
import gzip
import json
import re

import numpy as np
import pytest
from PIL import Image

from hitmac.agents import load_agent
from hitmac.agents.attention import attention_of, of_lists
from hitmac.agents.evaluate import evaluate
from hitmac.agents.evaluate.compare import Episodes
from hitmac.agents.replay import record, save_replay
from hitmac.agents.replay.page import page
from hitmac.agents.replay.record import pack
from hitmac.agents.watch import main
from hitmac.envs import load_scenario
from tests.agents.replay.browser import Browser

SUB_STEPS = 40


def unpacked(track):
    """The values (F, width) of a track, as the page reads them."""
    numbers = np.frombuffer(gzip.decompress(base64.b64decode(track["data"])), track["type"])
    whole = numbers.reshape(track["frames"], -1).cumsum(0, dtype=track["type"])
    return track["low"] + track["step"] * whole


def data_of(path):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text())[1])


def played(agent, scenario, seed, sub_steps=SUB_STEPS):
    """The live states of an episode, at the start and after each sub-step."""
    episode = Episodes(agent, scenario, [seed])
    yield episode
    for _ in episode.steps(sub_steps):
        yield episode


@pytest.mark.parametrize("dtype", ["uint8", "<u2"])
def test_what_is_packed_is_unpacked(dtype):
    values = np.random.default_rng(0).uniform(-3, 7, (30, 4, 2))
    step = 10 / np.iinfo(dtype).max
    packed = pack(values, dtype, -3.0, step)
    np.testing.assert_allclose(unpacked(packed), values.reshape(30, 8), atol=step / 2 * 1.001)
    same = pack(np.repeat(values[:1], 30, 0), dtype, -3.0, step)
    assert (packed["frames"], same["frames"]) == (30, 1)


@pytest.mark.parametrize("name", ["hit-mac", "obstacles", "volleyball-4"])
def test_a_record_holds_the_episode(name):
    scenario = load_scenario(name)
    agent = load_agent("nearest", scenario)
    made = record(agent, scenario, 7, SUB_STEPS)
    tracks = {name: unpacked(track) for name, track in made["tracks"].items()}
    half_width, half_height = scenario.extent

    def close(track, t, values, error):
        rows = tracks[track]
        np.testing.assert_allclose(rows[min(t, len(rows) - 1)], np.ravel(values), atol=error, rtol=0)

    for t, episode in enumerate(played(agent, scenario, 7)):
        state, known = episode.task.simulator.state, episode.task.simulator.known
        for track, values in (("sensor", state.sensor_position[0]), ("target", state.target_position[0])):
            close(f"{track} x", t, values[:, 0], half_width / 65535 * 1.001)
            close(f"{track} y", t, values[:, 1], half_height / 65535 * 1.001)
        wrapped = (tracks["heading"][min(t, len(tracks["heading"]) - 1)] - state.heading[0] + 180) % 360 - 180
        assert np.abs(wrapped).max() < 0.006
        close("view", t, state.field_of_view, 0.006)
        close("reach", t, np.sqrt(state.range_squared), 1e-4 * np.sqrt(state.range_squared.max()))
        for track in ("working", "present", "covered", "visible", "turned"):
            close(track, t, getattr(state, track)[0], 0)
        if known is not None:
            close("age", t, np.minimum(known.known_age[0, 0], 65535), 0)
            there = np.isfinite(known.known_age[0, 0])
            place = np.stack((tracks["known x"][t], tracks["known y"][t]), -1)
            np.testing.assert_allclose(place[there], known.known_position[0, 0][there], atol=half_width / 65535 * 1.001)
    assert made["frames"] == t + 1 == SUB_STEPS + 1
    assert made["discs"] == state.disc[0].tolist()
    assert ("age" in tracks) == (scenario.knowledge != "full")


def test_a_record_holds_the_attention_and_the_assignments():
    scenario = load_scenario("hit-mac")
    agent = load_agent("pretrained:hit-mac", scenario)
    made = record(agent, scenario, 0, 12)
    assert made["levels"] == ["coordinator", "executor"]
    shown = {name: unpacked(track).reshape(-1, 4, 5) for name, track in made["tracks"].items() if name in (
        "assigned", "attention coordinator", "attention executor"
    )}  # fmt: skip
    episode, decided = Episodes(agent, scenario, [0]), None
    for t in range(1, 13):
        found = attention_of(agent.policy, episode.task.observe(), episode.state, np.array([t == 1]))
        decided = found["coordinator"][0] if np.isfinite(found["coordinator"]).all() else decided
        next(episode.steps(1))
        np.testing.assert_allclose(shown["attention coordinator"][t], decided, atol=0.003)
        np.testing.assert_allclose(shown["attention executor"][t], found["executor"][0], atol=0.003)
        np.testing.assert_array_equal(shown["assigned"][t], episode.assigned[0])


def pairs_of(tracks, name, n, m):
    """The table (F, n, m) that the lists of a record stand for."""
    lists = tracks[f"{name} targets"]
    frames = len(lists)
    targets = lists.reshape(frames, n, -1).astype(int)
    values = tracks[name].reshape(targets.shape) if name in tracks else np.ones(targets.shape)
    table = np.zeros((frames, n, m + 1))
    np.put_along_axis(table, np.minimum(targets, m), values, -1)
    return table[..., :m]


CITY = load_scenario("city-130x140")


def attention_to_all(agent, episode):
    """The attention (n, m) that the lists of an agent's next decision stand for."""
    shown = episode.task.observe()
    return of_lists(attention_of(agent.policy, shown)["policy"], shown["targets"], CITY.num_targets)[0]


def test_a_record_of_a_large_scene_holds_lists():
    agent = load_agent("pretrained:any-size:nearest=5", CITY)
    made = record(agent, CITY, 0, 6)
    tracks = {name: unpacked(track) for name, track in made["tracks"].items()}
    assert not {"visible", "assigned"} & set(tracks)
    assert max(track.shape[1] for track in tracks.values()) <= 130 * max(5, tracks["visible targets"].shape[1] // 130)
    shown, attended = pairs_of(tracks, "visible", 130, 140), pairs_of(tracks, "attention policy", 130, 140)
    assert not attended[0].any()
    for t, episode in enumerate(played(agent, CITY, 0, 6)):
        np.testing.assert_array_equal(shown[t], episode.task.simulator.state.visible[0])
        if t < 6:
            np.testing.assert_allclose(attended[t + 1], attention_to_all(agent, episode), atol=0.003)
    assert shown.any()
    assert attended.any()


def test_a_scene_in_which_nothing_is_seen_has_empty_lists():
    scenario = CITY.replace(sensing_range=0.001)
    made = record(load_agent("still", scenario), scenario, 0, 2)
    assert unpacked(made["tracks"]["visible targets"]).size == 0


def test_the_page_of_a_city_is_small(tmp_path):
    path = tmp_path / "watch.html"
    save_replay(path, ["pretrained:any-size"], "city-200x240", seed=0, sub_steps=20)
    assert path.stat().st_size < 700_000


def test_beliefs_are_where_the_particles_are():
    scenario = load_scenario("hit-mac").replace(knowledge="shared")
    agent = load_agent("belief-planner-fast", scenario)
    tracks = {name: unpacked(track) for name, track in record(agent, scenario, 1, 20)["tracks"].items()}
    for t, episode in enumerate(played(agent, scenario, 1, 20)):
        if t:
            points = np.stack((tracks["belief x"][t], tracks["belief y"][t]), -1).reshape(5, -1, 2)
            age = tracks["age"][t]
            assert (points[age == 0] > 1250).all()  # nowhere: it is seen
            for j in np.flatnonzero(age > 0):
                mean = (episode.state.body[0, 0, j, :2] * episode.state.weight[0, 0, j]).sum(-1)
                spread = episode.state.body[0, 0, j, :2].std(-1).max()
                assert np.abs(points[j].mean(0) - mean).max() < 0.8 * spread + 20
    assert (age > 0).any()


def test_the_page_is_small_and_needs_nothing_else(tmp_path):
    path = tmp_path / "watch.html"
    save_replay(path, ["pretrained:flat"], "hit-mac", seed=0)
    text = path.read_text()
    assert len(text) < 300_000  # 1010 sub-steps of 4 sensors and 5 targets
    assert not re.search(r"https?://|@import|\bfetch\(|XMLHttpRequest|\beval\(|\son\w+=", text)
    assert "default-src 'none'" in text


def test_names_are_text_and_a_background_is_in_the_page(tmp_path):
    Image.new("RGB", (3000, 10), "red").save(tmp_path / "floor.png")
    scenario = load_scenario("hit-mac").replace(name="</script><b>", background=str(tmp_path / "floor.png"))
    text = page(scenario, 0, [record(load_agent("still", scenario), scenario, 0, 1)])
    assert "<b>" not in text
    assert text.count("</script>") == 2
    (tmp_path / "page.html").write_text(text)
    data = data_of(tmp_path / "page.html")
    assert data["scenario"] == "</script><b>"
    assert data["background"].startswith("data:image/png;base64,")
    assert len(data["background"]) < 10_000
    (tmp_path / "floor.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"background is .*; it must be a picture that Pillow reads"):
        page(scenario, 0, [])


def test_the_command_writes_the_page_and_opens_it_where_there_is_a_display(tmp_path, monkeypatch, capsys):
    opened, path = [], tmp_path / "watch.html"
    monkeypatch.setattr("webbrowser.open", opened.append)
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    main(["still", "nearest", "--sub-steps", "5", "--seed", "3", "--to", str(path)])
    assert capsys.readouterr().out == f"{path}: still, nearest; {path.stat().st_size / 1000:.0f} kB\n"
    data = data_of(path)
    assert (data["seed"], data["speed"]) == (3, 20.0)
    assert [(one["agent"], one["frames"]) for one in data["episodes"]] == [("still", 6), ("nearest", 6)]
    assert not opened
    monkeypatch.setenv("DISPLAY", ":0")
    main(["--agents", "still", "--sub-steps", "5", "--no-open", "--to", str(path)])
    assert not opened
    main(["still", "--sub-steps", "5", "--to", str(path)])
    assert opened == [path.as_uri()]


# In the browser ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tab(tmp_path):
    if reason := Browser.missing():
        pytest.skip(reason)
    browser = Browser(tmp_path / "profile")
    yield browser
    browser.close()
    assert browser.errors == []
    assert [one for one in browser.requests if not one.startswith(("data:", "about:", "blob:"))] == [browser.opened]


def figures(tab, name):
    return tab.run(f"[...document.querySelectorAll('[data-figure=\"{name}\"]')].map((one) => one.textContent)")


def frame(tab):
    return tab.run("document.getElementById('time').valueAsNumber")


def load(tab, path):
    tab.open(path)
    tab.wait_for("document.querySelector('#switches input') !== null")


def test_the_page_plays_what_is_evaluated(tab, tmp_path):
    names, path = ["pretrained:flat", "pretrained:hit-mac", "planner"], tmp_path / "watch.html"
    main([*names, "--sub-steps", str(SUB_STEPS), "--seed", "5", "--to", str(path), "--no-open"])
    evaluated = evaluate(names, episodes=1, seed=5, max_episode_steps=SUB_STEPS, progress=False)["agents"]
    load(tab, path)
    assert tab.run("document.title") == "hit-mac, seed 5"
    assert figures(tab, "coverage") == ["-"] * 3
    tab.run("document.getElementById('play').click()")
    tab.wait_for("document.getElementById('time').valueAsNumber > 2")
    tab.press(" ", 32, " ")
    paused = frame(tab)
    assert tab.run("document.getElementById('play').ariaLabel") == "Play"
    tab.press("ArrowRight", 39)
    assert frame(tab) == paused + 1
    tab.press("Home", 36)
    assert frame(tab) == 0
    tab.run(
        "const time = document.getElementById('time'); time.value = time.max;"
        "time.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    assert frame(tab) == SUB_STEPS
    for figure in ("coverage", "rotation"):
        assert figures(tab, figure) == [f"{evaluated[name][figure]['mean']:.3f}" for name in names]


def test_a_click_on_a_sensor_shows_what_it_attends_to(tab, tmp_path):
    path = tmp_path / "watch.html"
    save_replay(path, ["pretrained:flat", "planner"], "hit-mac", seed=5, sub_steps=SUB_STEPS)
    load(tab, path)
    tab.press("End", 35)
    x, y = tab.run(
        "player.then(({ cards: [card] }) => { const box = card.canvas.getBoundingClientRect();"
        "const [x, y] = card.scene.placeOf('sensor', 0, 2); return [box.left + x, box.top + y] })"
    )
    hash_of = "player.then((one) => one.cards[0].canvas.toDataURL())"
    before = tab.run(hash_of)
    tab.click(x, y)
    assert tab.run("document.getElementById('sensor').value") == "2"
    assert tab.run(hash_of) != before
    notes = tab.run("[...document.querySelectorAll('#scenes .note')].map((one) => one.textContent)")
    assert notes[0].startswith("Sensor 3: shares of its attention, at most ")
    assert notes[1] == "Sensor 3: this agent has no attention; green: the sensor sees the target."
    shares = tab.run(
        "player.then(({ episodes: [one] }) =>"
        f"Array.from({{ length: 5 }}, (_, j) => one.pair('attention policy', {SUB_STEPS}, 2, j)))"
    )
    agent, scenario = load_agent("pretrained:flat", "hit-mac"), load_scenario("hit-mac")
    *_, episode = played(agent, scenario, 5, SUB_STEPS - 1)
    expected = attention_of(agent.policy, episode.task.observe())["policy"][0, 2]
    np.testing.assert_allclose(shares, expected, atol=0.003)
    tab.click(x, y)
    assert tab.run("document.getElementById('sensor').value") == "-1"


def test_a_click_in_a_city_shows_the_lists_of_a_sensor(tab, tmp_path):
    path = tmp_path / "watch.html"
    agent = load_agent("pretrained:any-size:nearest=5", CITY)
    save_replay(path, [agent], CITY, seed=0, sub_steps=8)
    load(tab, path)
    tab.press("End", 35)
    *_, episode = played(agent, CITY, 0, 7)
    found = attention_to_all(agent, episode)
    sensor = int(found.max(-1).argmax())
    tab.run(f"player.then((one) => one.choose({sensor}))")
    attended = int(found[sensor].argmax())
    share = tab.run(f"player.then(({{ episodes: [one] }}) => one.pair('attention policy', 8, {sensor}, {attended}))")
    assert abs(share - found[sensor, attended]) < 0.003
    rows = tab.run("player.then(({ cards: [card] }) => card.strip.targets)")
    assert attended in rows
    assert rows == sorted(rows)
    assert len(rows) < 30
    assert tab.run("player.then(({ cards: [card] }) => card.stripCanvas.height)") < 700


@pytest.mark.parametrize("name", ["volleyball-4", "obstacles", "random", "large"])
def test_every_kind_of_scene_is_drawn(name, tab, tmp_path):
    path = tmp_path / "watch.html"
    scenario = load_scenario(name)
    if name == "random":
        scenario = scenario.replace(
            zoom=(30, 120), failure_rate=0.1, recovery_rate=0.2, leave_rate=0.1, return_rate=0.2
        )
    agents = ["belief-planner-fast" if scenario.knowledge == "shared" else "nearest", "assign-in-range"]
    save_replay(path, agents[: 1 if scenario.rails else 2], scenario, seed=1, sub_steps=15)
    load(tab, path)
    for key in ("End", "ArrowLeft", "Home"):
        tab.press(key, {"End": 35, "ArrowLeft": 37, "Home": 36}[key])
        tab.run("player.then((one) => one.choose(1))")
    painted = (
        "player.then((one) => one.cards.every(({ canvas }) => new Set(new Uint32Array("
        "canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size > 20))"
    )
    assert tab.run(painted)
