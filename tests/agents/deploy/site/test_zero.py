"""Zero and sign of cameras that are played: any way round, at a limit, that lie, and Ctrl-C."""

import time
from types import SimpleNamespace

import pytest

from hitmac.agents.deploy.site import zero
from hitmac.agents.deploy.site.command import main
from hitmac.envs import Scenario
from tests.agents.deploy.run.camera_servers import Motor, OnvifServer, ViscaServer

HALL = Scenario(
    num_sensors=2, sensor_names=["north", "south"], placement="fixed", sensor_positions=[[0, 0], [3, 4]],
    pan_limits=[[0, 90], [90, 270]],
)  # fmt: skip
CAMERAS = """# the hall
north: {driver: stdout} # by hand
1:
  driver: %s # at the door
  host: 127.0.0.1
  sign: -1
  port: %d
"""


ONVIF = "onvif\n  user: operator\n  password_env: HALL_PASSWORD"


@pytest.fixture
def find(tmp_path, monkeypatch):
    """Runs the command for the camera south of a server; returns the file of cameras before and after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HALL_PASSWORD", "open sesame")
    HALL.save("site.yaml")

    def find(server, line):
        before = CAMERAS % (ONVIF if isinstance(server, OnvifServer) else "visca", server.port)
        (tmp_path / "cameras.yaml").write_bytes(before.encode())
        try:
            main(["zero", *line.split()])
        finally:
            after = (tmp_path / "cameras.yaml").read_bytes().decode()
            assert [path.name for path in sorted(tmp_path.iterdir())] == ["cameras.yaml", "site.yaml"]
            if after == before:
                assert server.motor.rate == 0.0
        return before, after

    return find


@pytest.mark.parametrize(
    ("kind", "sign", "known", "heading"),
    [(OnvifServer, 1, "--towards -140", 220.0), (ViscaServer, -1, "--towards 0 4", 180.0)],
)
def test_a_camera_mounted_any_way_round_is_found(kind, sign, known, heading, find, monkeypatch, capsys):
    """At a pan of 10 degrees it turns towards 0: with the sign 1 clockwise, so that things move to the left."""
    answers = iter(["yes", "up", "left" if sign == 1 else "right"])
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    with kind(Motor(10.0)) as server:
        before, after = find(server, f"south {known}")
        place = (heading - sign * 10.0 + 180.0) % 360.0 - 180.0
        changed = before.replace("sign: -1", f"sign: {sign}").replace("1:\n", f"1:\n  zero: {place:g}\n")
        assert after == changed
        assert f"south has zero: {place:g}, sign: {sign}; before 0, -1" in capsys.readouterr().out
        assert 4.0 < 10.0 - server.motor.lowest <= 5.5
        assert (server.motor.highest, server.motor.rate) == (10.0, 0.0)


@pytest.mark.parametrize("lie", ["constant", "opposite"])
def test_a_camera_that_lies_turns_no_farther_and_changes_nothing(lie, find, capsys):
    with ViscaServer(Motor(10.0, lie=lie)) as server:
        with pytest.raises(SystemExit):
            find(server, "south --towards 180 --yes --moved left")
        assert "camera south does not turn as ordered: it reports" in capsys.readouterr().err
        assert 4.0 < server.motor.highest - server.motor.lowest <= 5.5


def test_ctrl_c_stops_the_camera(find, monkeypatch):
    with ViscaServer(Motor(10.0)) as server:

        def interrupted(seconds):
            if server.motor.wait_for(-5.0):
                raise KeyboardInterrupt

        monkeypatch.setattr(zero, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupted))
        with pytest.raises(KeyboardInterrupt):
            find(server, "south --towards 180 --yes")
        assert server.motor.orders[-1] == 0.0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("west --towards 180", "unknown camera 'west': known are north, south"),
        ("south", "--towards is (); it must be a heading, degrees, or the place x y"),
        ("south --towards 180 --moved up", "--moved is 'up'; it must be left or right"),
        ("0 --towards 45 --site hit-mac", "placement is areas; real cameras require fixed, with sensor_positions"),
        ("south --towards nan", "--towards is (nan,); it must be"),
        ("north --towards 45", "cameras.yaml: the driver of camera north has no zero; onvif and visca have"),
        ("south --towards 97 --yes", "south is 97; it must be 7.5 degrees or more inside its pan_limits, 90 to 270"),
        ("south --towards 180", "Turn camera south by 5 degrees? [yes/no] is not answered; see --yes and --moved"),
    ],
)
def test_nothing_turns_when_something_is_missing(line, says, find, capsys, monkeypatch):
    def no_terminal(question):
        raise EOFError

    monkeypatch.setattr("builtins.input", no_terminal)
    with ViscaServer(Motor(10.0)) as server:
        with pytest.raises(SystemExit):
            find(server, line)
        assert says in capsys.readouterr().err
        assert not any(server.motor.orders)


def test_settings_are_changed_in_place_and_shared_ones_are_not(tmp_path):
    path, own = tmp_path / "cameras.yaml", {"zero": -3.25, "sign": 1}
    for text, changed in (
        ("\ufeff{north: {driver: stdout},  1: {driver: visca, host: a, zero: 4}} # flow\n",
         "\ufeff{north: {driver: stdout},  1: {sign: 1, driver: visca, host: a, zero: -3.25}} # flow\n"),
        ("1:\r\n  host: a # door\r\n  sign: -1\r\n  driver: visca\r\nnorth: {driver: stdout}\r\n",
         "1:\r\n  zero: -3.25\n  host: a # door\r\n  sign: 1\r\n  driver: visca\r\nnorth: {driver: stdout}\r\n"),
    ):  # fmt: skip
        path.write_bytes(text.encode())
        zero.write_settings(path, HALL, 1, own)
        assert path.read_bytes().decode() == changed
    shared = "north: &a {driver: visca, host: a, zero: 0, sign: 1}\n1: *a\n"
    path.write_text(shared)
    with pytest.raises(
        ValueError, match=r"shares the settings .* with others; write {'zero': -3\.25, 'sign': 1} there yourself"
    ):
        zero.write_settings(path, HALL, 1, own)
    assert path.read_text() == shared
