"""Pictures of cameras for the page, from servers that the test plays."""

import base64
import hashlib
import io
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image

from hitmac.agents.deploy.run import stills as module
from hitmac.agents.deploy.run.log import Faults
from hitmac.agents.deploy.run.stills import Still, Stills


def jpeg(colour="red", size=(64, 36)):
    written = io.BytesIO()
    Image.new("RGB", size, colour).save(written, "JPEG")
    return written.getvalue()


JPEG = jpeg()
LARGE = b"\xff\xd8" + bytes(2**20) + b"\xff\xd9"
PART = b"--frame\r\nContent-Type: image/jpeg\r\n\r\n" + JPEG + b"\r\n"


GONE, DENIED = {"status": 404}, {"status": 401}
ANSWERS = {
    "still": {"body": JPEG},
    "stream": {"kind": "multipart/x-mixed-replace; boundary=frame", "more": PART, "pause": 0.01},
    "text": {"body": b"<html>", "kind": "text/html"},
    "huge": {"body": JPEG, "more": bytes(2**20)},
    "slow": {"body": b"\xff", "more": b"\xff", "pause": 0.05},
    "malformed": DENIED | {"WWW_Authenticate": 'Digest realm=, nonce="abc"'},
    "gone": GONE,
    "elsewhere": {"status": 302, "Location": "http://127.0.0.2:9/still"},
    "nearby": {"status": 302, "Location": "/still"},
}


class Camera(BaseHTTPRequestHandler):
    """Camera whose path says what it answers: one of ANSWERS, or as the method of its name does."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization", "")))
        name = self.path.strip("/")
        self.answer(**ANSWERS[name]) if name in ANSWERS else getattr(self, name)()

    def answer(self, body=b"", kind="image/jpeg", status=200, more=b"", pause=0.0, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        while more:
            self.wfile.write(more)
            time.sleep(pause)

    def silent(self):
        time.sleep(2.0)

    def chunks(self):
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=x\r\n\r\n--x\r\n\r\n")
        for first in range(0, len(LARGE), 1460):  # as packets arrive
            self.wfile.write(LARGE[first : first + 1460])
            self.wfile.flush()
        self.wfile.write(b"\r\n--x")

    def basic(self):
        good = "Basic " + base64.b64encode(b"viewer:open sesame").decode()
        known = self.headers.get("Authorization") == good
        self.answer(**ANSWERS["still"] if known else DENIED | {"WWW_Authenticate": 'Basic realm="camera"'})

    def digest(self):
        one, two = (hashlib.md5(text.encode()).hexdigest() for text in ("viewer:camera:open sesame", "GET:/digest"))
        good = hashlib.md5(f"{one}:abc:{two}".encode()).hexdigest()
        known = f'response="{good}"' in self.headers.get("Authorization", "")
        asks = DENIED | {"WWW_Authenticate": 'Digest realm="camera", nonce="abc"'}
        self.answer(**ANSWERS["still"] if known else asks)

    def log_message(self, *_):
        pass


@pytest.fixture
def camera():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Camera)
    server.asked, server.handle_error = [], lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for name, value in {"WAIT": 0.5, "WHOLE": 0.7, "EVERY": 0.05, "PAUSE": 0.05, "LOOKED": 0.3}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setenv("VIEWER_PASSWORD", "open sesame")


@pytest.mark.parametrize("path", ["still", "stream", "nearby", "basic", "digest"])
def test_a_picture_is_fetched_from_an_address_of_jpeg_or_mjpeg(path, camera):
    login = {"user": "viewer", "password_env": "VIEWER_PASSWORD"}
    assert Still(picture=f"{camera.address}/{path}", **login).fetch() == JPEG
    known = [authorization for _, authorization in camera.asked if authorization]
    assert len(known) == (path in ("basic", "digest"))  # a password is given only where it is asked for


def test_a_large_picture_of_many_packets_is_searched_once(camera, monkeypatch):
    monkeypatch.setattr(module, "WHOLE", 5.0)
    assert Still(picture=f"{camera.address}/chunks").fetch() == LARGE


def test_an_answer_that_no_library_expects_is_told_and_ends_nothing(camera):
    faults = Faults()
    still = Still(picture=f"{camera.address}/malformed", user="viewer", password_env="VIEWER_PASSWORD")
    stills = Stills([still], ["north"], faults)
    waited(lambda: stills.last(0) == b"" and len(camera.asked) > 2)
    stills.close()
    assert [line.partition(":")[0] for line in faults.messages()] == ["the picture of camera north cannot be had"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("text", "the answer is no JPEG picture"),
        ("huge", "it has more than 4 MB"),
        ("slow", "it is not there after"),
        ("silent", "timed out"),
        ("gone", "Not Found"),
        ("elsewhere", "it is at another host"),
    ],
)
def test_what_is_no_picture_is_an_error_in_time(path, words, camera):
    start = time.monotonic()
    with pytest.raises((OSError, ValueError), match=words):
        Still(picture=f"{camera.address}/{path}").fetch()
    assert time.monotonic() - start < 30.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"picture": "file:///etc/passwd"}, "picture is 'file:///etc/passwd'; it must be an address, http://HOST/PATH"),
        ({"picture": "http://"}, "it must be an address"),
        ({"picture": "http://a:x/"}, "it must be an address"),
        ({"picture": "http://a/b c"}, "it must be an address"),
        ({"picture": "http://[a/"}, "it must be an address"),
        ({"picture": "http://me:secret@a/"}, "picture has a user or a password; give them as user and password_env"),
        ({"picture": "http://a/", "user": "me", "password_env": "NONE_SUCH"}, "password_env is 'NONE_SUCH'"),
    ],
)
def test_settings_of_pictures_are_checked(settings, words):
    with pytest.raises(ValueError, match=words) as error:
        Still(**settings)
    assert "secret" not in str(error.value)


def waited(condition):
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_pictures_are_fetched_while_someone_looks_and_a_failure_is_told_once(camera, monkeypatch):
    faults = Faults()
    stills = Stills([None, Still(picture=f"{camera.address}/still")], ["north", "south"], faults)
    time.sleep(0.3)
    assert (camera.asked, stills.cameras) == ([], [1])
    waited(lambda: stills.last(1) == JPEG)
    waited(lambda: stills._last == {} or time.sleep(0.1))  # nobody looks
    number = len(camera.asked)
    time.sleep(0.4)
    assert len(camera.asked) <= number + 1
    with monkeypatch.context() as broken:
        broken.setitem(ANSWERS, "still", GONE)
        waited(lambda: stills.last(1) == b"" and len(camera.asked) > number + 4)
    waited(lambda: stills.last(1) == JPEG)
    stills.close()
    said = faults.messages()
    assert said[0] == "the picture of camera south cannot be had: Not Found"
    assert said[1:] == ["the picture of camera south is there again"]
