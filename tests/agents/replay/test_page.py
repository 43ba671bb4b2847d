"""Pages of recorded episodes, alone and in a browser."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from hitmac.agents import load_agent
from hitmac.agents.attention import attention_of
from hitmac.agents.evaluate import evaluate
from hitmac.agents.replay import record, save_replay
from hitmac.agents.replay.page import page
from hitmac.envs import load_scenario
from tests.agents.replay.browser import Browser
from tests.agents.replay.made import CITY, attention_to_all, played

SUB_STEPS = 40
KEYS = {" ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}


def test_a_page_is_small_and_needs_nothing_else(tmp_path):
    path = tmp_path / "watch.html"
    for agents, scenario, sub_steps, most in (
        ("pretrained:flat", "hit-mac", 300, 100_000), ("pretrained:any-size", "city-200x240", 20, 700_000)
    ):  # fmt: skip
        save_replay(path, [agents], scenario, seed=0, sub_steps=sub_steps)
        text = path.read_text()
        assert len(text) < most
        assert not re.search(r"https?://|@import|\bfetch\(|XMLHttpRequest|\beval\(|\son\w+=", text)
        assert "default-src 'none'" in text


def test_names_are_text_and_a_background_is_in_the_page(tmp_path):
    Image.new("RGB", (3000, 10), "red").save(tmp_path / "floor.png")
    scenario = load_scenario("hit-mac").replace(name="</script><b>", background=str(tmp_path / "floor.png"))
    text = page(scenario, 0, [record(load_agent("still", scenario), scenario, 0, 1)])
    assert "<b>" not in text
    assert text.count("</script>") == 2
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    assert data["scenario"] == "</script><b>"
    assert data["background"].startswith("data:image/png;base64,")
    assert len(data["background"]) < 10_000


@pytest.mark.parametrize(
    ("path", "agents", "message"), [("a.gif", ["still"], "must end in .html"), ("a.html", [], "agents is empty")]
)
def test_wrong_arguments_are_refused(path, agents, message):
    with pytest.raises(ValueError, match=message):
        save_replay(path, agents, "hit-mac", seed=0, sub_steps=1)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if reason := Browser.missing():
        pytest.skip(reason)
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def tab(browser):
    browser.errors.clear()
    browser.requests.clear()
    yield browser
    assert browser.errors == []
    assert [one for one in browser.requests if not one.startswith(("data:", "about:", "blob:"))] == [browser.opened]


def press(tab, key):
    tab.press(key, KEYS[key])


def frame(tab):
    return tab.run("document.getElementById('time').valueAsNumber")


def figures(tab, name):
    return tab.run(f"[...document.querySelectorAll('[data-figure=\"{name}\"]')].map((one) => one.textContent)")


def load(tab, path):
    tab.open(path)
    tab.wait_for("document.querySelector('#switches input') !== null")


def test_a_page_plays_the_evaluated_episodes(tab, tmp_path):
    names, path = ["pretrained:flat", "pretrained:hit-mac", "planner"], tmp_path / "watch.html"
    save_replay(path, names, "hit-mac", seed=5, sub_steps=SUB_STEPS)
    evaluated = evaluate(names, episodes=1, seed=5, max_episode_steps=SUB_STEPS, progress=False)["agents"]
    load(tab, path)
    assert tab.run("document.title") == "hit-mac, seed 5"
    assert figures(tab, "coverage") == ["-"] * 3
    tab.run("document.getElementById('play').click()")
    tab.wait_for("document.getElementById('time').valueAsNumber > 2")
    press(tab, " ")
    paused = frame(tab)
    press(tab, "ArrowRight")
    assert frame(tab) == paused + 1
    press(tab, "Home")
    assert frame(tab) == 0
    tab.run(
        "const time = document.getElementById('time'); time.value = time.max;"
        "time.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    assert frame(tab) == SUB_STEPS
    for figure in ("coverage", "rotation"):
        assert figures(tab, figure) == [f"{evaluated[name][figure]['mean']:.3f}" for name in names]

    x, y = tab.run(
        "player.then(({ cards: [card] }) => { const box = card.canvas.getBoundingClientRect();"
        "const [x, y] = card.scene.placeOf('sensor', 0, 2); return [box.left + x, box.top + y] })"
    )
    picture = "player.then((one) => one.cards[0].canvas.toDataURL())"
    before = tab.run(picture)
    tab.click(x, y)
    assert tab.run("document.getElementById('sensor').value") == "2"
    assert tab.run(picture) != before
    notes = tab.run("[...document.querySelectorAll('#scenes .note')].map((one) => one.textContent)")
    assert notes[0].startswith("Sensor 3: shares of its attention, at most ")
    assert notes[2] == "Sensor 3: this agent has no attention; green: the sensor sees the target."
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


def test_time_without_targets_does_not_count(tab, tmp_path):
    path, scenario = tmp_path / "watch.html", load_scenario("hit-mac").replace(leave_rate=0.6, return_rate=0.1)
    save_replay(path, ["still"], scenario, seed=5, sub_steps=SUB_STEPS)
    found = evaluate("still", scenario, episodes=1, seed=5, max_episode_steps=SUB_STEPS, progress=False)
    load(tab, path)
    press(tab, "End")
    assert figures(tab, "coverage") == [f"{found['agents']['still']['coverage']['mean']:.3f}"]
    assert f"{100 * found['empty']:.1f} % of them without targets" in tab.run("document.body.textContent")
    assert 0.2 < found["empty"] < 0.8


def test_a_click_in_a_city_shows_the_lists_of_a_sensor(tab, tmp_path):
    path = tmp_path / "watch.html"
    agent = load_agent("pretrained:any-size:nearest=5", CITY)
    save_replay(path, [agent], CITY, seed=0, sub_steps=8)
    load(tab, path)
    press(tab, "End")
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
        press(tab, key)
        tab.run("player.then((one) => one.choose(1))")
    painted = (
        "player.then((one) => one.cards.every(({ canvas }) => new Set(new Uint32Array("
        "canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size > 20))"
    )
    assert tab.run(painted)
