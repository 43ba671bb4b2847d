"""The live page: its server, and the page in a browser."""

import contextlib
import http.client
import json
from urllib.parse import urlsplit

import numpy as np
import pytest

from hitmac.agents.deploy.run import live as module
from hitmac.agents.deploy.run.live import Live
from hitmac.envs import load_scenario
from tests.agents.deploy.run.test_stills import jpeg

SCENARIO = load_scenario("hit-mac").replace(sensor_names=["north", "<b>east", "south", "west"])


def frame(live, **changes):
    """A frame of four cameras, of which the second does not answer."""
    by_hand = list(live.by_hand)
    return {
        "time": 1.8e9, "heading": [0.0, None, 180.0, -90.0], "view": [90.0] * 4, "reach": [800.0] * 4,
        "position": [[-500, 500], [500, 500], [500, -500], [-500, -500]],
        "tracks": [[100.0, 50.0, 400.0, 100.0, 900.0, 0.9, 7], [-300.0, 0.0, 100.0, 0.0, 100.0, 0.4, 8]],
        "detections": [[0, 90.0, 60.0]], "covered": 0.75, "paused": live.paused, "by_hand": by_hand,
        "left": [None] * len(by_hand), "moves": [0] * 4, "rests": [], "boxes": [], "messages": [], **changes,
    }  # fmt: skip


@pytest.fixture
def serve():
    """Starts pages, and closes them."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(contextlib.closing(Live(SCENARIO, **options)))


@pytest.fixture
def live(serve):
    return serve()


@pytest.fixture
def clock(monkeypatch):
    """The server's time, set by the test."""
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def ask(live, method="GET", path="", body=None, **headers):
    """Return the status and the body of an answer; `path` follows the token, or is whole."""
    parts = urlsplit(live.address)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    connection.request(method, path if path.startswith("/") else parts.path + path, body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def order(live, hands, page="a", **more):
    status, body = ask(live, "POST", "order", json.dumps({"page": page, "hands": hands, **more}))
    assert status == 200
    return json.loads(body)["held"]


def test_only_the_page_itself_gives_orders(live):
    valid = json.dumps({"page": "a", "hands": {"0": 5}, "paused": True})
    refused = {
        "no token": (404, {"path": "/order"}),
        "another token": (404, {"path": "/" + "x" * 22 + "/order"}),
        "a file": (404, {"path": "../../../../etc/passwd"}),
        "too large": (413, {"body": "x" * (2**14 + 1)}),
        "no size": (413, {"Content_Length": "many"}),
        "not JSON": (400, {"body": "{"}),
        "not an order": (400, {"body": "[]"}),
        "no such camera": (400, {"body": valid.replace('"0"', '"4"')}),
        "a negative camera": (400, {"body": valid.replace('"0"', '"-1"')}),
        "no rate": (400, {"body": valid.replace("5", "NaN")}),
        "no size at all": (413, {"Content_Length": "9" * 5000}),
        "no number that a rate can be": (400, {"body": valid.replace("5", "9" * 400)}),
        "no text": (400, {"body": b"\xff"}),
    }
    for why, (status, request) in refused.items():
        assert ask(live, "POST", **{"path": "order", "body": valid} | request)[0] == status, why
    assert (live.paused, live.by_hand) == (False, {})
    assert ask(live, "POST", "order", valid)[0] == 200
    assert (live.paused, live.by_hand) == (True, {0: 5.0})


def test_only_the_page_is_served(live):
    assert ask(live)[0] == 200
    for path in ("/", "page.css", "../live.py", "order"):
        assert ask(live, path=path)[0] == 404, path
    assert ask(live, "DELETE")[0] == 501


def test_a_camera_stops_without_renewal_and_is_given_back(live, clock):
    assert order(live, {2: -12.5, 0: 0}) == [2, 0]
    clock[0] = 0.9
    assert live.by_hand == {2: -12.5, 0: 0.0}
    clock[0] = 1.1
    assert live.by_hand == {2: 0.0, 0: 0.0}
    assert order(live, {2: 3}) == [2]
    clock[0] = 2.0
    assert live.by_hand == {2: 3.0}
    clock[0] = 6.0
    assert live.by_hand == {2: 0.0}
    clock[0] = 6.2
    assert live.by_hand == {}


def test_the_first_page_to_take_a_camera_has_it(live, clock):
    order(live, {1: 4})
    assert order(live, {1: -9, 3: 2}, "b") == [3]
    assert live.by_hand == {1: 4.0, 3: 2.0}
    assert order(live, {}) == []
    assert order(live, {1: -9, 3: 2}, "b", paused=True) == [1, 3]
    assert live.paused
    order(live, {}, "b", paused=False)
    assert (live.paused, live.by_hand) == (False, {})


def test_a_camera_that_is_not_turned_for_its_time_is_given_back(serve, clock):
    live = serve(returns=[3.0, np.inf, 3.0, 3.0])
    assert order(live, {0: 5, 1: 0}) == [0, 1]
    for clock[0] in (1.0, 2.0):
        assert order(live, {0: 0, 1: 0}) == [0, 1]
    assert live.left == {0: 1.0, 1: np.inf}
    order(live, {0: -5, 1: 0})
    for clock[0] in (3.0, 4.0, 4.9):
        assert order(live, {0: 0, 1: 0}) == [0, 1]
    clock[0] = 5.1
    assert live.by_hand == {1: 0.0}
    assert order(live, {0: 0, 1: 0}) == [1]  # a page that has it still
    assert order(live, {0: 0, 1: 0}) == [0, 1]  # taken again


class Shot:
    """Stills of the third camera."""

    cameras, picture = [2], jpeg("blue", (64, 36))

    def last(self, i):
        return self.picture


def test_only_pictures_of_cameras_that_have_one_are_served(serve):
    live = serve(stills=Shot())
    assert ask(live, path="picture/2") == (200, Shot.picture)
    for path in ("picture/1", "picture/", "picture/2/", "picture/../order", "/picture/2"):
        assert ask(live, path=path)[0] == 404, path
    live.stills.picture = b""
    assert ask(live, path="picture/2") == (204, b"")


def test_a_new_page_has_the_last_frame_and_the_messages(live):
    for number in range(60):
        live.publish(frame(live, time=float(number), messages=[f"message {number}"]))
    found = json.loads(ask(live, "POST", "order", '{"page": "a", "hands": {}}')[1])["frame"]
    assert found["time"] == 59.0
    assert found["messages"] == [[float(number), f"message {number}"] for number in range(10, 60)]


@pytest.mark.parametrize("port", ["in use", 2**16])
def test_a_port_that_cannot_be_opened_is_named(live, port):
    port = urlsplit(live.address).port if port == "in use" else port
    with pytest.raises(OSError, match=rf"^the page cannot listen on 127\.0\.0\.1:{port}: .+$"):
        Live(SCENARIO, port)


@pytest.fixture
def tab(live, clock, browser):  # the browser leaves the page before the server ends
    """A page at which nothing expires while the machine is busy."""
    live.publish(frame(live))
    browser.open(live.address)
    browser.wait_for("document.querySelectorAll('#cameras li').length === 4")
    browser.run("live.then((page) => { page.renew = () => void page.send() })")
    return browser


def shown(tab, live, expression, **changes):
    """Publish frames, as the loop does, until an expression on the page is true."""
    for _ in range(6000):
        live.publish(frame(live, **changes))
        if tab.run(f"live.then((page) => Boolean({expression}))"):
            return
        tab.run("new Promise((resolve) => setTimeout(resolve, 20))")
    raise AssertionError(f"never true: {expression}")


def until(tab, condition):
    """Wait, while the page runs, until a condition on the server holds."""
    for _ in range(6000):
        if condition():
            return
        tab.run("new Promise((resolve) => setTimeout(resolve, 10))")
    raise AssertionError("the condition never held")


def key(tab, kind, name):
    tab.send("Input.dispatchKeyEvent", type=kind, key=name, code=name)


BUTTON = "document.querySelectorAll('#cameras li')[{}].querySelectorAll('button')[{}]"
TAKE, TURN_LEFT, STOP, TURN_RIGHT, GIVE_BACK = range(5)


def test_a_frame_appears(tab, live):
    shown(tab, live, "page.frame.time === 1.8e9 + 7", time=1.8e9 + 7, messages=["camera <i>east</i>: no answer"])
    text = "document.getElementById('{}').textContent"
    shown(tab, live, f"{text.format('now')}.includes('2 tracks, coverage 0.75')")
    assert tab.run(text.format("silent")) == "No answer: <b>east"
    assert tab.run(text.format("title")) == "hit-mac"
    assert tab.run("[...document.querySelectorAll('[role=img]')].every((one) => one.ariaLabel)")
    assert tab.run("document.querySelectorAll('b b, i i').length") == 0
    states = "[...document.querySelectorAll('#cameras .state')].map((one) => one.textContent.split(', ')[0]).join()"
    assert tab.run(states) == "0°,does not answer,180°,-90°"
    shown(tab, live, f"{text.format('messages')}.endsWith('camera <i>east</i>: no answer')")
    shown(tab, live, f"{text.format('silent')} === ''", heading=[-0.3, 444.0, -540.0, -179.7])
    shown(tab, live, f"{states} === '0°,84°,180°,180°'", heading=[-0.3, 444.0, -540.0, -179.7])


def test_a_view_without_new_frames_does_not_look_live(tab, live):
    stale = "document.getElementById('main').classList.contains('stale')"
    shown(tab, live, "page.frame.time === 1.8e9")
    assert not tab.run(stale)
    tab.run("live.then((page) => { page.received -= 5000; page.late() })")
    assert tab.run(stale)
    shown(tab, live, f"!{stale}", time=1.8e9 + 1)
    live.token = "that of the next run"
    tab.run("live.then((page) => { page.received -= 5000; return page.send().then(() => page.late()) })")
    tab.wait_for("document.getElementById('now').textContent.startsWith('This run has ended')")
    assert all("404" in error for error in tab.errors)
    tab.errors.clear()


def test_messages_are_added_the_latest_first(tab, live):
    lines = "[...document.querySelectorAll('#messages li')].map((one) => one.lastChild.textContent)"
    for number in range(1, 53):
        live.publish(frame(live, messages=[f"message {number}"]))
        if number < 4:
            shown(tab, live, f"{lines}.length === {number}")
    shown(tab, live, f"{lines}[0] === 'message 52'")
    assert tab.run(lines) == [f"message {number}" for number in range(52, 2, -1)]


def test_tracks_and_detections_are_drawn_where_they_are(tab, live):
    """The picture without them differs along the ellipse's axes and at the cross, and nowhere else."""
    row = [300.0, -200.0, 150.0**2, 0.0, 50.0**2, 1.0, 0]  # half axes 300 and 100
    turned = [300.0, -200.0, 100.0**2, 0.9 * 80 * 100, 80.0**2, 1.0, 0]
    pixel = (
        "(() => {{ const {{ scene }} = page; const scale = scene.canvas.width / scene.width;"
        "const [x, y] = scene.place({}, {}).map((one) => Math.round(one * scale));"
        "const context = document.createElement('canvas').getContext('2d');"
        "context.drawImage(scene.canvas, 2 - x, 2 - y); const around = context.getImageData(0, 0, 5, 5).data;"
        "return around.some((one, k) => k % 4 === 1 && one < 170) }})()"  # green, low in the colours of both
    )
    gone = {"heading": [None] * 4, "detections": []}
    for tracks, on, off in (
        ([row], [(600, -200), (0, -200), (300, -100)], [(300, -200), (300, 100)]),
        ([turned], [(300 + 190, -200 + 146)], [(300 + 190, -200 - 146)]),  # along the axis of most variance
    ):
        shown(tab, live, "page.frame.tracks.length === 0", tracks=[], **gone)
        assert not any(tab.run(f"live.then((page) => {pixel.format(*place)})") for place in on)
        shown(tab, live, " && ".join(pixel.format(*place) for place in on), tracks=tracks, **gone)
        assert not any(tab.run(f"live.then((page) => {pixel.format(*place)})") for place in off)
    shown(tab, live, pixel.format(-700, 300), tracks=[], **gone | {"detections": [[2, -700.0, 300.0]]})


def test_states_and_zones_are_shown(tab, live):
    states = "[...document.querySelectorAll('#cameras .state')].map((one) => one.textContent).join('; ')"
    given = {"by_hand": [0, 2], "left": [None, 12.0], "moves": [1, 2, 3, 4], "rests": [3]}
    words = (
        "0°, by hand elsewhere, moves in the last hour: 1; does not answer, moves in the last hour: 2; "
        "180°, by hand elsewhere, 12 s left, moves in the last hour: 3; -90°, rests, moves in the last hour: 4"
    )
    shown(tab, live, f"{states} === {json.dumps(words)}", **given)
    assert tab.run("document.getElementById('with-pictures').hidden")


def test_a_picture_is_shown_with_its_boxes(serve, clock, browser):
    live = serve(stills=Shot(), private=[[[0, 0], [100, 0], [100, 100]]])
    live.publish(frame(live, boxes=[[2, 0.25, 0.25, 0.75, 0.75], [1, 0, 0, 1, 1]]))
    browser.open(live.address)
    browser.wait_for("document.querySelector('#pictures figcaption')?.textContent === 'south'")
    pixel = (
        "(() => {{ const context = document.createElement('canvas').getContext('2d');"
        "context.drawImage(document.querySelector('#pictures canvas'), 0, 0);"
        "return [...context.getImageData({}, {}, 1, 1).data.slice(0, 3)] }})()"
    )
    browser.wait_for(f"{pixel.format(16, 18)}[0] > 100")  # the left side of the box
    assert browser.run(pixel.format(32, 18))[2] > 200  # blue inside
    assert browser.run(pixel.format(1, 1))[2] > 200  # the box of another camera is not here
    assert browser.run("[...document.querySelectorAll('.legend li')].some((one) => one.textContent === 'private zone')")


def test_pause(tab, live):
    tab.run("document.getElementById('pause').click()")
    until(tab, lambda: live.paused)
    shown(tab, live, "document.getElementById('pause').textContent === 'Resume'")
    shown(tab, live, "document.getElementById('now').textContent.endsWith('paused')")
    key(tab, "keyDown", " ")
    until(tab, lambda: not live.paused)


def test_a_camera_by_hand_turns_while_a_key_is_pressed(tab, live, clock):
    tab.run(BUTTON.format(2, TAKE) + ".click()")
    until(tab, lambda: live.by_hand == {2: 0.0})
    shown(tab, live, f"{BUTTON.format(2, TAKE)}.hidden")
    tab.run("document.getElementById('rate').value = 20")
    key(tab, "keyDown", "ArrowLeft")
    until(tab, lambda: live.by_hand == {2: 20.0})
    clock[0] += 4.5
    until(tab, lambda: live.by_hand == {2: 20.0})  # the page renews it
    key(tab, "keyUp", "ArrowLeft")
    until(tab, lambda: live.by_hand == {2: 0.0})
    tab.run(BUTTON.format(0, TAKE) + ".click()")
    until(tab, lambda: live.by_hand == {2: 0.0, 0: 0.0})
    tab.run("live.then((page) => page.choose(2))")
    tab.run(BUTTON.format(0, TURN_LEFT) + ".focus()")  # of another camera than the chosen one
    key(tab, "keyDown", "ArrowRight")
    until(tab, lambda: live.by_hand == {2: -20.0, 0: 0.0})
    key(tab, "keyUp", "ArrowRight")
    until(tab, lambda: live.by_hand == {2: 0.0, 0: 0.0})
    tab.run(BUTTON.format(0, GIVE_BACK) + ".click()")
    key(tab, "keyDown", "ArrowRight")
    until(tab, lambda: live.by_hand == {2: -20.0})
    tab.run("window.dispatchEvent(new Event('blur'))")
    until(tab, lambda: live.by_hand == {2: 0.0})
    tab.run(BUTTON.format(2, GIVE_BACK) + ".click()")
    until(tab, lambda: live.by_hand == {})


def test_a_camera_turns_while_its_button_is_pressed(tab, live):
    for camera in (0, 3):
        tab.run(BUTTON.format(camera, TAKE) + ".click()")
    until(tab, lambda: live.by_hand == {0: 0.0, 3: 0.0})
    shown(tab, live, f"!{BUTTON.format(3, TURN_RIGHT)}.parentElement.hidden")
    tab.run(f"{BUTTON.format(0, TURN_RIGHT)}.scrollIntoView()")
    # Each time, the button pressed before loses the focus.
    for way, rate, released in ((TURN_RIGHT, -10.0, {"x": 3}), (TURN_LEFT, 10.0, {}), (TURN_RIGHT, -10.0, {})):
        box = tab.run(f"{BUTTON.format(0, way)}.getBoundingClientRect().toJSON()")
        mouse = {"x": box["x"] + 5, "y": box["y"] + 5, "button": "left", "clickCount": 1}
        tab.send("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        until(tab, lambda rate=rate: live.by_hand == {0: rate, 3: 0.0})
        tab.run("new Promise((resolve) => setTimeout(resolve, 50))")
        assert tab.run("live.then((page) => page.hands.get(0))") == np.sign(rate)
        tab.send("Input.dispatchMouseEvent", type="mouseReleased", **mouse | released)
        until(tab, lambda: live.by_hand == {0: 0.0, 3: 0.0})
    tab.run(BUTTON.format(3, TURN_LEFT) + ".focus()")
    key(tab, "keyDown", "Enter")
    until(tab, lambda: live.by_hand == {0: 0.0, 3: 10.0})
    key(tab, "keyUp", "Enter")
    until(tab, lambda: live.by_hand == {0: 0.0, 3: 0.0})


def test_a_camera_of_another_page_cannot_be_taken(tab, live):
    order(live, {1: 0}, "other")
    shown(tab, live, f"{BUTTON.format(1, TAKE)}.disabled")
    tab.run("live.then((page) => page.take(1))")
    order(live, {1: 0}, "other")
    shown(tab, live, "!page.hands.size")


def test_a_page_without_a_server_loses_its_cameras(tab, live):
    tab.run(BUTTON.format(2, TAKE) + ".click()")
    until(tab, lambda: live.by_hand == {2: 0.0})
    tab.run("live.then((page) => { page.answered -= 5000; Live.prototype.renew.call(page) })")
    assert tab.run("live.then((page) => page.hands.size)") == 0
    shown(tab, live, f"!{BUTTON.format(2, TAKE)}.hidden")


def test_every_button_has_a_name(tab):
    names = tab.run("[...document.querySelectorAll('button')].map((one) => one.ariaLabel || one.textContent)")
    assert names.pop() == "Pause"
    assert len(names) == len(set(names)) == 20
    assert all(len(name) > 3 for name in names)
