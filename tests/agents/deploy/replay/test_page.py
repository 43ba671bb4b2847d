"""Pages of recorded episodes, alone and in a browser."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from hitmac.agents import load_agent
from hitmac.agents.deploy.replay import record, save_replay
from hitmac.agents.deploy.replay.page import page, record_log
from hitmac.agents.evaluate import evaluate
from hitmac.agents.evaluate.logs import read_log
from hitmac.envs import load_scenario
from tests.agents.deploy.replay.made import CITY, attention_to_all, played
from tests.agents.deploy.replay.test_record import steered_log
from tests.agents.deploy.run.fakes import UNIX

SUB_STEPS = 40


def test_a_page_is_small_and_needs_nothing_else(tmp_path):
    save_replay(tmp_path / "watch.html", ["pretrained:flat"], "hit-mac", seed=0, sub_steps=300)
    text = (tmp_path / "watch.html").read_text()
    assert len(text) < 100_000
    assert not re.search(r"https?://|@import|\bfetch\(|XMLHttpRequest|\beval\(|\son\w+=", text)
    assert "default-src 'none'" in text


def test_names_are_text_and_a_background_is_in_the_page(tmp_path):
    Image.new("RGB", (3000, 10), "red").save(tmp_path / "floor.png")
    scenario = load_scenario("hit-mac").replace(name="</script><b>", background=str(tmp_path / "floor.png"))
    text = page(scenario, "any", [record(load_agent("still", scenario), scenario, 0, 1)])
    assert "<b>" not in text
    assert text.count("</script>") == 2
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    assert data["scenario"] == "</script><b>"
    assert data["background"].startswith("data:image/png;base64,")
    assert len(data["background"]) < 10_000


def test_a_missing_background_is_an_error_before_any_episode(tmp_path, monkeypatch):
    monkeypatch.setattr("hitmac.agents.deploy.replay.page.record", None)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        save_replay(tmp_path / "a.html", ["still"], load_scenario("hit-mac").replace(background="absent.png"), seed=0)


def press(browser, key):
    browser.run(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}))")


def frame(browser):
    return browser.run("document.getElementById('time').valueAsNumber")


def figures(browser, name):
    return browser.run(f"[...document.querySelectorAll('[data-figure=\"{name}\"]')].map((one) => one.textContent)")


@pytest.fixture
def show(browser, tmp_path):
    """Opens the page of agents in a scenario, on one seed."""

    def save_and_open(agents, scenario, seed, sub_steps):
        save_replay(tmp_path / "watch.html", agents, scenario, seed=seed, sub_steps=sub_steps)
        browser.open((tmp_path / "watch.html").resolve().as_uri())
        browser.wait_for("document.querySelector('#switches input') !== null")

    return save_and_open


def test_a_page_plays_the_evaluated_episodes(browser, show):
    names = ["pretrained:flat", "pretrained:hit-mac", "planner"]
    evaluated = evaluate(names, episodes=1, seed=5, max_episode_steps=SUB_STEPS, progress=False)["agents"]
    show(names, "hit-mac", 5, SUB_STEPS)
    assert browser.run("document.title") == "hit-mac, seed 5"
    assert figures(browser, "coverage") == ["-"] * 3
    browser.run("document.getElementById('play').click()")
    browser.wait_for("document.getElementById('time').valueAsNumber > 2")
    press(browser, " ")
    paused = frame(browser)
    press(browser, "ArrowRight")
    assert frame(browser) == paused + 1
    press(browser, "Home")
    assert frame(browser) == 0
    browser.run(
        "const time = document.getElementById('time'); time.value = time.max;"
        "time.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    assert frame(browser) == SUB_STEPS
    for figure in ("coverage", "rotation"):
        assert figures(browser, figure) == [f"{evaluated[name][figure]['mean']:.3f}" for name in names]

    click = (
        "player.then(({ cards: [card] }) => { const box = card.canvas.getBoundingClientRect();"
        "const [x, y] = card.scene.placeOf('sensor', 0, 2); const at = { clientX: box.left + x, clientY: box.top + y };"
        "card.canvas.dispatchEvent(new MouseEvent('click', at)) })"
    )
    picture = "player.then((one) => one.cards[0].canvas.toDataURL())"
    before = browser.run(picture)
    browser.run(click)
    assert browser.run("document.getElementById('sensor').value") == "2"
    assert browser.run(picture) != before
    notes = browser.run("[...document.querySelectorAll('#scenes .note')].map((one) => one.textContent)")
    assert notes[0].startswith("Sensor 3: shares of its attention, at most ")
    assert notes[2] == "Sensor 3: this agent has no attention; green: the sensor sees the target."
    share = f"one.pair('attention policy', {SUB_STEPS}, 2, j)"
    sum_of = f"[0, 1, 2, 3, 4].reduce((sum, j) => sum + {share}, 0)"
    assert browser.run(f"player.then(({{ episodes: [one] }}) => {sum_of})") == pytest.approx(1, abs=0.02)
    browser.run(click)
    assert browser.run("document.getElementById('sensor').value") == "-1"


def test_a_page_of_one_camera_has_its_name_and_true_words(browser, show):
    scenario = load_scenario("hit-mac-1x1").replace(
        placement="fixed", sensor_positions=[[0, 0]], sensor_names=['Tür <b>"2"'], walk="still"
    )
    show(["still"], scenario, 0, 50)
    assert browser.run("document.getElementById('about').textContent").startswith("1 sensor, 1 target, 50 sub-steps. ")
    assert browser.run("document.getElementById('sensor').lastChild.textContent") == 'Tür <b>"2"'
    browser.run("player.then((one) => one.choose(0))")
    assert 'Sensor Tür <b>"2": this agent' in browser.run("document.body.textContent")
    (window,) = {re.search(r"mean of (\d+) sub-steps", note)[1] for note in browser.run(
        "[...document.querySelectorAll('#curves .note')].map((one) => one.textContent).slice(0, 2)"
    )}  # fmt: skip
    single = "Array.from({ length: 51 }, (_, t) => Number(t === 25))"
    averaged = browser.run(f"[...movingMeans(Float64Array.from({single}), WINDOW)]")
    np.testing.assert_allclose([one for one in averaged if one], 1 / int(window))
    assert np.count_nonzero(averaged) == int(window)
    first = "Float64Array.from({ length: 51 }, (_, t) => Number(t === 1))"
    chart = f"new Curves(null, [{{ frames: 51, now: {first}, mean: meansSoFar({first}) }}], 'now', 'mean')"
    assert browser.run(f"{chart}.top") == 1  # of the mean so far, which begins at 1


def test_time_without_targets_does_not_count(browser, show):
    zone = {"zones": [[(-1250, -1250), (1250, -1250), (-1250, 1250)]], "zone_values": [3]}
    scenario = load_scenario("hit-mac").replace(leave_rate=0.6, return_rate=0.1, **zone)
    found = evaluate("still", scenario, episodes=1, seed=5, max_episode_steps=SUB_STEPS, progress=False)
    show(["still"], scenario, 5, SUB_STEPS)
    press(browser, "End")
    assert figures(browser, "coverage") == [f"{found['agents']['still']['coverage']['mean']:.3f}"]
    assert f"{100 * found['empty']:.1f} % of them without targets" in browser.run("document.body.textContent")
    assert 0.2 < found["empty"] < 0.8
    context = "{ beginPath() {}, stroke() {}, moveTo: (x) => drawn.push(-x), lineTo: (x) => drawn.push(x) }"
    chart = f"Object.assign(Object.create(Curves.prototype), {{ context: {context}, place: (frame) => [frame, 0] }})"
    line = f"(() => {{ const drawn = []; {chart}.line([NaN, 0, 1, NaN, 1, 0], 1, 5, 1, 1); return drawn; }})()"
    assert browser.run(line) == [-1, 2, -4, 5]  # a gap, not a line through it


@pytest.mark.slow
def test_a_click_in_a_city_shows_the_lists_of_a_sensor(browser, show):
    agent = load_agent("pretrained:any-size:nearest=5", CITY)
    show([agent], CITY, 0, 8)
    press(browser, "End")
    *_, episode = played(agent, CITY, 0, 7)
    found = attention_to_all(agent, episode)
    sensor, attended = np.unravel_index(found.argmax(), found.shape)
    browser.run(f"player.then((one) => one.choose({sensor}))")
    pair = f"'attention policy', 8, {sensor}, {attended}"
    share = browser.run(f"player.then(({{ episodes: [one] }}) => one.pair({pair}))")
    assert abs(share - found.max()) < 0.003
    assert attended in browser.run("player.then(({ cards: [card] }) => card.strip.targets)")
    assert browser.run("player.then(({ cards: [card] }) => card.stripCanvas.height)") < 700


@pytest.mark.parametrize("name", ["volleyball-4", "obstacles", "random", "large", "detections", "mate-2v4-0"])
def test_every_kind_of_scene_is_drawn(name, browser, show):
    nameless = {"identities": False, "knowledge": "full"} if name == "detections" else {}
    scenario = load_scenario("hit-mac" if nameless else name).replace(**nameless)
    changes = {"failure_rate": 0.1, "recovery_rate": 0.2, "leave_rate": 0.1}
    if name == "random":
        scenario = scenario.replace(zoom=(30, 120), return_rate=0.2, **changes)
    first = "belief-planner-fast" if scenario.rails else "planner" if nameless else "nearest"
    agents = [first, "assign-in-range"]
    show(agents[: 1 if scenario.rails or nameless else 2], scenario, 1, 15)
    for key in ("End", "ArrowLeft", "Home"):
        press(browser, key)
        browser.run("player.then((one) => one.choose(1))")
    painted = (
        "player.then((one) => one.cards.every(({ canvas }) => new Set(new Uint32Array("
        "canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size > 20))"
    )
    assert browser.run(painted)
    assert len(figures(browser, "transport")) == 2 * bool(scenario.warehouses)
    marks = browser.run("[...document.querySelectorAll('.legend li')].map((one) => one.textContent)")
    assert ("sensor that does not answer" in marks) == (name == "random")


def test_a_replay_of_a_run_shows_who_steered_and_the_messages_so_far(browser, tmp_path):
    run = read_log(steered_log(tmp_path))
    (tmp_path / "watch.html").write_text(page(run.scenario, "hall", [record_log(run)], private=run.private))
    browser.open((tmp_path / "watch.html").resolve().as_uri())
    browser.wait_for("document.querySelectorAll('#cameras li').length === 2")
    states = "[...document.querySelectorAll('#cameras .state')].map((one) => one.textContent)"
    lines = "[...document.querySelectorAll('#messages li')].map((one) => one.lastChild.textContent)"
    assert (browser.run(states)[0], browser.run(lines)) == ("0°, moves in the last hour: 2", [])
    texts = "['title', 'about', 'now'].map((id) => byId(id).textContent)"
    start = browser.run(f"new Date({1000 * UNIX}).toLocaleString()")
    assert browser.run(texts) == ["hall", "2 sensors, 2 sub-steps.", start]
    assert start.endswith(browser.run("player.then((one) => one.curves[0].ends[0])"))
    browser.run("player.then((one) => one.choose(1))")
    assert browser.run("player.then((one) => one.cards[0].attention.hidden)")  # it is of targets
    press(browser, "ArrowRight")
    assert browser.run(states)[1] == "180°, by hand, 8 s left, moves in the last hour: 1"
    assert browser.run(lines) == ["<b>it rests", "camera west moves"]
    assert not browser.run(texts)[2].endswith("paused")
    press(browser, "End")
    assert browser.run(texts)[2].endswith(", paused")
    assert browser.run(states) == ["0°, by hand, moves in the last hour: 3", "180°, rests, moves in the last hour: 2"]
    assert browser.run("[...document.querySelectorAll('.legend li')].some((one) => one.textContent === 'private zone')")
    many = "Array.from({ length: 60 }, (_, k) => [0, 0, String(k)])"  # as of a camera that fails for hours
    browser.run(f"player.then((one) => {{ one.logged[0].episode.messages = {many}; one.set({{}}) }})")
    assert browser.run(lines) == [str(k) for k in range(59, 9, -1)]
