import functools
import json
import logging
import math
import re
import socket
import sys
import time

import numpy as np
import pytest
import visca_over_ip
import zeep

from hitmac.agents.deploy.run.cameras import Cameras
from hitmac.agents.deploy.run.drivers import Onvif, Printed, Simulated, Visca, load_cameras
from hitmac.envs import Scenario, load_scenario
from tests.agents.deploy.run.camera_servers import Motor, OnvifServer, PlainViscaServer, ViscaServer

HALL = Scenario(num_sensors=2, placement="fixed", sensor_positions=[[0, 0], [1, 1]], pan_limits=[[0, 90], [170, 200]])


def test_a_simulated_camera_turns_as_ordered(monkeypatch):
    now = 5.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    camera = Simulated(start=30.0)
    camera.turn(10.0)
    now = 7.0
    assert camera.heading() == 50.0
    camera.turn(-5.0)
    now = 8.0
    assert camera.heading() == 45.0
    camera.close()
    now = 9.0
    assert camera.heading() == 45.0


def test_orders_are_printed_for_another_program(capsys):
    camera = Printed(camera="north")
    camera.turn(12.5)
    camera.close()
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [{"camera": "north", "rate": 12.5}, {"camera": "north", "rate": 0.0}]


def test_all_cameras_by_one_name_start_as_the_site_says():
    assert load_cameras("simulated", HALL) == [Simulated(start=45.0), Simulated(start=185.0)]
    site = load_scenario("examples/site/site.yaml")
    assert [camera.start for camera in load_cameras("stdout", site)] == list(site.sensor_headings)
    assert [camera.camera for camera in load_cameras("stdout", HALL)] == ["0", "1"]


def test_a_file_lists_the_driver_of_every_sensor(tmp_path, monkeypatch):
    monkeypatch.setenv("HALL_PASSWORD", "open sesame")
    file = tmp_path / "cameras.yaml"
    file.write_text(
        "1: {driver: visca, host: south, zero: 185, units_per_degree: 13.3, speeds: [1, 5, 20]}\n"
        "0: {driver: onvif, host: north, user: me, password_env: HALL_PASSWORD, sign: 1, pan_range: [-170, 170]}\n"
    )
    north, south = load_cameras(file, HALL)
    assert north == Onvif(host="north", user="me", password_env="HALL_PASSWORD", sign=1, pan_range=(-170.0, 170.0))
    assert south == Visca(host="south", zero=185.0, units_per_degree=13.3, speeds=[1, 5, 20])
    assert (north.port, south.port, south.highest_rate) == (80, 52381, 20.0)
    assert "sesame" not in repr(north)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1", "it holds no sensor; it must hold the settings of each sensor: 0, 1"),
        ("- {driver: simulated}", "it holds no sensor; it must hold the settings of each sensor: 0, 1"),
        ("0: {driver: simulated}", "it holds 0; it must hold the settings of each sensor: 0, 1"),
        ("{0: {driver: simulated}, 1: {driver: simulated}, south: {}}", "it holds 0, 1, south; it must hold"),
        ("[", "expected the node content"),
        ("{0: 3, 1: {}}", "camera 0: driver is None; it must be one of simulated, stdout, onvif, visca"),
        ("{0: {driver: simulated}, 1: }", "camera 1: driver is None; it must be one of simulated, stdout"),
        ("0: {driver: simulated} # \xfc", "'utf-8' codec can't decode byte 0xfc"),
        ("driver: onvive", "driver is 'onvive'; it must be one of"),
        ("driver: simulated, hots: a", "unknown setting hots: known are highest"),
        ("driver: onvif, password: a", "unknown setting password .did you mean password_env"),
        ("driver: simulated, highest_rate: 0", "highest_rate is 0.0; it must be over 0"),
        ("driver: visca, sign: 1", "host is ''; it must be a name or address"),
        ("driver: visca, host: a, sign: 0", "sign is 0.0; it must be -1 or 1"),
        ("driver: visca, host: a, pan_range: [1, 1]", "pan_range is .1.0, 1.0.; it must be .* low under high"),
        ("driver: visca, host: a, speeds: [2, 1]", "speeds is .2.0, 1.0.; it must be at most 24 increasing"),
        ("driver: onvif, host: a, user: b", "password_env is ''; no environment variable"),
    ],
)
def test_what_a_file_of_cameras_may_not_hold(text, words, tmp_path):
    file = tmp_path / "cameras.yaml"
    one = text.startswith("driver")
    file.write_bytes((f"{{0: {{{text}}}, 1: {{driver: stdout}}}}" if one else text).encode("latin-1"))
    with pytest.raises(ValueError, match=f"(?s){re.escape(str(file))}: {'camera 0: ' * one}.*{words}"):
        load_cameras(file, HALL)


def test_sensors_are_listed_by_their_names(tmp_path):
    hall = HALL.replace(sensor_names=["north", "1"])
    file = tmp_path / "cameras.yaml"
    file.write_text("{1: {driver: stdout}, north: {driver: simulated, start: 3}}")
    assert load_cameras(file, hall) == [Simulated(start=3.0), Printed(camera="1", start=185.0)]


class Wire:
    """Socket that notes what is sent, and answers from a list; None is a message that gets lost."""

    def __init__(self, *answers):
        self.sent, self.answers = [], [one and bytes.fromhex(one) for one in answers]

    def connect(self, address):
        self.address = address

    def send(self, message):
        self.sent.append(message.hex(" "))

    def settimeout(self, seconds):
        pass

    def recv(self, size):
        if (answer := self.answers.pop(0)) is None:
            raise TimeoutError
        return answer

    def close(self):
        self.sent.append("closed")


def visca(monkeypatch, *answers, **options):
    wire = Wire(*answers)
    monkeypatch.setattr(socket, "socket", lambda *_: wire)
    return Visca(host="north", **options), wire


RESET, RESET_DONE = "02 00 00 01 00 00 00 00 01", "02 01 00 01 00 00 00 00 01"
MOVED, DONE, ZERO = "90 41 ff", "90 51 ff", "90 50 00 00 00 00 00 00 00 00 ff"
UNKNOWN = "90 60 02 ff"


def numbered(*payloads, first=1):
    """Answers with a header, numbered from the first on."""
    heads = (f"01 11 00 {len(one.split()):02x} 00 00 00 {k:02x}" for k, one in enumerate(payloads, first))
    return [f"{head} {one}" for head, one in zip(heads, payloads, strict=True)]


def inquiry(number):
    return f"01 10 00 05 00 00 00 {number:02x} 81 09 06 12 ff"  # Pan-tiltPosInq


@pytest.mark.parametrize(
    ("answer", "pan"),
    [
        ("90 50 00 00 09 00 00 00 00 00 ff", 10.0),  # 0x0090 = 144 = 14.4 * 10
        ("90 50 0f 0f 07 00 00 00 00 00 ff", -10.0),
        ("90 50 00 07 08 00 0f 0f 0f 0f ff", 1920 / 14.4),
        ("90 50 00 00 00 09 00 0f 00 00 00 ff", 10.0),  # five digits, of newer cameras
        ("90 50 0f 0f 0f 07 00 00 00 00 00 ff", -10.0),
    ],
)
def test_visca_asks_for_the_position(answer, pan, monkeypatch):
    camera, wire = visca(monkeypatch, RESET_DONE, *numbered(answer), zero=30.0)
    assert camera.heading() == pytest.approx(30.0 - pan)
    assert wire.address == ("north", 52381)
    assert wire.sent == [RESET, inquiry(1)]


@pytest.mark.parametrize(
    ("rate", "drive"),
    [
        (0.0, "01 01 03 03"),
        (-12.5, "05 01 02 03"),  # clockwise: to the right, the fifth of 24 speeds up to 60
        (14.9, "05 01 01 03"),
        (60.0, "18 01 01 03"),
        (1000.0, "18 01 01 03"),
        (2.4, "01 01 03 03"),  # slower than the slowest
    ],
)
def test_visca_turns_at_the_fastest_speed_that_is_not_above_the_rate(rate, drive, monkeypatch):
    for answer, sign in ((MOVED, -1), (DONE, 1)):
        camera, wire = visca(monkeypatch, *numbered(answer), sign=sign)
        camera.turn(-sign * rate)
        assert wire.sent[1:] == [f"01 00 00 09 00 00 00 01 81 01 06 01 {drive} ff"]


def test_visca_repeats_what_got_lost_and_ignores_answers_to_earlier_messages(monkeypatch):
    answers = [*numbered(ZERO, first=2), *numbered(DONE, first=2), "00", *numbered(ZERO, first=4)]
    camera, wire = visca(monkeypatch, None, None, *answers)
    assert camera.heading() == 0.0
    assert wire.sent == [RESET, inquiry(1), inquiry(2), inquiry(3)]
    assert camera.heading() == 0.0
    assert wire.sent[4:] == [inquiry(4)]
    wire.answers = [None] * 3
    with pytest.raises(TimeoutError, match=r"no answer in 0\.4 s"):
        camera.heading()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (UNKNOWN, "the answer is 90 60 02 ff, an error of VISCA"),
        ("ff", "the answer is ff, an error"),
        (DONE, "the answer 90 51 ff holds no pan"),
        ("90 50 00 10 00 00 00 00 00 00 ff", "holds no pan"),
        ("90 50 04 00 00 00 00 00 00 00 ff", "the pan is 1137.78 degrees, beyond -180 to 180"),
    ],
)
def test_visca_answers_that_are_nonsense(answer, reason, monkeypatch):
    camera, _ = visca(monkeypatch, *numbered(answer))
    with pytest.raises(ValueError, match=reason):
        camera.heading()


def test_visca_counts_again_with_a_device_that_has_lost_count(monkeypatch):
    camera, wire = visca(monkeypatch, "02 01 00 02 00 00 00 01 0f 01", *numbered(MOVED))
    with pytest.raises(ConnectionError, match="lost count"):
        camera.turn(0.0)
    camera.close()
    stop = "01 00 00 09 00 00 00 01 81 01 06 01 01 01 03 03 ff"
    assert wire.sent == [RESET, stop, "closed", RESET, stop, "closed"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a second address of this machine")
def test_the_server_that_plays_a_camera_understands_another_client():
    motor = Motor(10.0)
    with ViscaServer(motor, host="127.0.0.2") as server:
        client = visca_over_ip.Camera("127.0.0.2", server.port)
        assert client.get_pantilt_position() == (144, 0)
        client.pantilt(-12, 0)
        assert motor.wait_for(-30.0)
        client.close_connection()


@functools.cache
def described(path):
    """The description of a service of ONVIF, which takes longer to read than a test."""
    return zeep.wsdl.Document(path, zeep.Transport())


@pytest.fixture
def servers(monkeypatch):
    monkeypatch.setenv("HALL_PASSWORD", "open sesame")
    monkeypatch.setattr("onvif.operator.Client", lambda wsdl, **options: zeep.Client(described(wsdl), **options))
    with OnvifServer(Motor(-20.0)) as onvif, ViscaServer(Motor(10.0)) as visca:
        yield onvif, visca


def onvif(server, **options):
    login = {"user": "operator", "password_env": "HALL_PASSWORD"}
    return Onvif(host="127.0.0.1", port=server.port, **login, **options)


def test_onvif_moves_and_stops_with_a_timeout_of_the_device(servers):
    server, motor = servers[0], servers[0].motor
    camera = onvif(server, zero=30.0)
    assert camera.heading() == pytest.approx(50.0)
    camera.turn(-30.0)
    assert motor.orders == [30.0]
    assert motor._coming[-1][1] == 0.0
    assert motor._coming[-1][0] == pytest.approx(time.monotonic() + 2.0, abs=1.0)
    camera.turn(1000.0)
    camera.close()
    assert motor.orders == [30.0, -60.0, 0.0]


def test_onvif_names_what_is_wrong(servers, monkeypatch):
    port = servers[0].port
    with pytest.raises(Exception, match="not authorized"):
        Onvif(host="127.0.0.1", port=port).heading()
    monkeypatch.setenv("HALL_PASSWORD", "guessed")
    with pytest.raises(Exception, match="not authorized") as refused:
        onvif(servers[0]).heading()
    assert "guessed" not in str(refused.value)
    monkeypatch.setitem(sys.modules, "onvif", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hitmac\[cameras\]'"):
        Onvif(host="127.0.0.1", port=port).heading()


@pytest.mark.parametrize("refused", [(), ("Timeout",), ("Stop",), ("Timeout", "Stop")])
def test_onvif_goes_round_what_a_device_refuses(refused, servers):
    server, motor = servers[0], servers[0].motor
    camera = onvif(server)
    for known in ((), refused):
        server.refused = known
        camera.turn(-30.0)
        lasts = motor._coming[-1][0] - time.monotonic()
        assert math.isinf(lasts) == ("Timeout" in known)
        camera.turn(0.0)
    assert motor.orders == [30.0, 0.0] * 2
    server.refused = ("ContinuousMove", "RelativeMove", "AbsoluteMove")
    with pytest.raises(Exception, match="refused"):
        camera.turn(-30.0)


def ptz(server, **options):
    return onvif(server, zero=30.0, tilt_zero=10.0, zooms=[(0, 60), (1, 10)], **options)


@pytest.mark.parametrize("refused", [(), ("ContinuousMove",), ("ContinuousMove", "RelativeMove")])
@pytest.mark.parametrize("units", ["normalized", "degrees"])
def test_onvif_turns_tilts_and_zooms_by_what_the_device_offers(units, refused, servers):
    """Steps of a tenth of a second take the place of a rate."""
    server = servers[0]
    server.motor.jump(-20.0)
    server.degrees, server.refused = units == "degrees", refused
    camera = ptz(server, units=units)
    assert camera.pose() == pytest.approx((50.0, 10.0, 60.0))
    for _ in range(3):
        camera.pose()
        camera.move(-30.0, 20.0)  # clockwise, which the device counts positive, and down, which it counts negative
        assert camera.steps == bool(refused)
    if refused:
        assert camera.pose()[:2] == pytest.approx((41.0, 16.0))
    else:
        assert (server.motor.orders[-1], server.tilt.orders[-1]) == pytest.approx((30.0, -20.0))
    camera.zoom(30.0)
    assert server.zoom == pytest.approx(np.interp(1 / np.tan(np.radians(15)), 1 / np.tan(np.radians([30, 5])), [0, 1]))
    assert camera.pose()[2] == pytest.approx(30.0)
    camera.close()
    assert (server.motor.orders[-1], server.tilt.orders[-1]) == (0.0, 0.0)


def test_one_refusal_of_onvif_changes_nothing_for_good(servers):
    server = servers[0]
    camera = onvif(server)
    for refused, steps in ((("ContinuousMove",), True), ((), False), (("ContinuousMove",), True), ((), False)):
        server.refused = refused
        camera.heading()
        camera.turn(20.0)
        assert camera.steps == steps


def test_one_garbled_answer_of_visca_changes_nothing_for_good(monkeypatch):
    camera, _ = visca(monkeypatch, RESET_DONE, *numbered(MOVED, UNKNOWN, MOVED, MOVED))
    for steps in (False, True, False):
        camera.answer = 0.0, 0.0, math.nan
        camera.move(20.0, 0.0)
        assert camera.steps == steps


def test_onvif_without_a_status_counts_as_where_it_was_sent(servers):
    server = servers[0]
    server.refused = ("GetStatus",)
    with pytest.raises(Exception, match="refused"):
        ptz(server).pose()
    camera = ptz(server, status=False, preset="parking")
    assert camera.pose() == pytest.approx((30.0, 10.0, 60.0))
    assert (server.motor.pan, server.tilt.pan, server.zoom) == (0.0, 0.0, 0.0)
    camera.move(-30.0, 20.0)
    camera.zoom(20.0)
    assert camera.pose() == pytest.approx((27.0, 12.0, 20.0))
    assert (server.motor.pan, server.tilt.pan) == pytest.approx((3.0, -2.0))
    camera.close()
    assert server.motor.pan == 90.0


def test_onvif_names_answers_in_other_units_and_parts_that_are_missing(servers):
    server = servers[0]
    server.zoom = None
    assert math.isnan(ptz(server).pose()[2])
    server.degrees = True
    with pytest.raises(ValueError, match="the answer is in SphericalPositionSpaceDegrees, but units is normalized"):
        ptz(server).pose()
    server.names_space = False
    with pytest.raises(ValueError, match="the answer is -20, 0, beyond -1 to 1; units may have to be degrees"):
        ptz(server).pose()
    server.degrees, server.zoom = False, 7.0
    with pytest.raises(ValueError, match="the zoom is 7, beyond 0 to 1"):
        ptz(server).pose()
    server.tilt.jump(80.0)
    server.degrees = True
    with pytest.raises(ValueError, match="the tilt is 80 degrees, beyond -60 to 60"):
        ptz(server, units="degrees", tilt_range=(-60, 60)).pose()


def test_visca_turns_tilts_and_zooms(monkeypatch):
    pose, zooms = "90 50 00 00 09 00 0f 0f 07 00 ff", [(0, 60), (0x4000, 10)]  # pan 10, tilt -10 degrees
    answers = numbered(pose, "90 50 02 00 00 00 ff", *[MOVED] * 4)
    camera, wire = visca(monkeypatch, RESET_DONE, *answers, zooms=zooms, tilt_zero=5.0, preset="3")
    focal = np.interp(0x2000, [0, 0x4000], 1 / np.tan(np.radians([30, 5])))
    assert camera.pose() == pytest.approx((-10.0, 15.0, 2 * np.degrees(np.arctan(1 / focal))))
    camera.move(-12.5, 5.0)
    camera.zoom(10.0)
    camera.close()
    assert [line[24:] for line in wire.sent[1:-1]] == [
        "81 09 06 12 ff", "81 09 04 47 ff", "81 01 06 01 05 02 02 02 ff", "81 01 04 47 04 00 00 00 ff",
        "81 01 06 01 01 01 03 03 ff", "81 01 04 3f 02 03 ff",
    ]  # fmt: skip
    camera, _ = visca(monkeypatch, *numbered(pose, UNKNOWN), zooms=zooms)
    assert math.isnan(camera.pose()[2])  # it does not know the inquiry
    with pytest.raises(ValueError, match="preset is 'door'; it must be a number from 0 to 254"):
        Visca(host="north", preset="door")


def test_visca_moves_by_steps_where_a_device_knows_no_drive(monkeypatch):
    """Absolute positions, a tenth of a second away, with four or five digits of the pan; at rest none."""
    for pan, number in (("00 00 09 00", "00 00 06 05"), ("00 00 00 09 00", "00 00 00 06 05")):
        pose = f"90 50 {pan} 0f 0f 07 00 ff"  # pan 10, tilt -10 degrees
        camera, wire = visca(monkeypatch, RESET_DONE, *numbered(pose, *[UNKNOWN, MOVED] * 3))
        camera.heading()
        for _ in range(3):
            camera.move(30.0, 20.0)  # counter-clockwise and down, by 3 and 2 degrees
            assert camera.steps
        camera.move(0.0, 0.0)
        speeds = "18 17" if len(pan.split()) == 4 else "18 00"  # newer devices have one speed for both
        assert camera.steps
        assert [line[24:] for line in wire.sent[2:]] == 3 * [
            "81 01 06 01 0c 08 01 02 ff", f"81 01 06 02 {speeds} {number} 0f 0f 05 03 ff",
        ]  # fmt: skip
    camera, wire = visca(monkeypatch, *numbered("90 61 41 ff"))  # it cannot now, as without power
    with pytest.raises(ValueError, match="an error of VISCA"):
        camera.move(30.0, 0.0)
    assert not camera.steps


def test_what_a_device_answers_reaches_the_pictures(servers, tmp_path):
    """Its own tilt and zoom, by which pixels have places."""
    for server, end in zip(servers, (1, 0x4000), strict=True):
        server.tilt.jump(-12.0)
        server.zoom = end / 2
    site = HALL.replace(zoom=[20, 60], field_of_view=60, tilt_limits=[[0, 50]], mount_height=3)
    login = "user: operator, password_env: HALL_PASSWORD"
    file = tmp_path / "cameras.yaml"
    file.write_text(
        f"0: {{driver: onvif, host: 127.0.0.1, port: {servers[0].port}, {login}, zooms: [[0, 60], [1, 20]]}}\n"
        f"1: {{driver: visca, host: 127.0.0.1, port: {servers[1].port}, zooms: [[0, 60], [0x4000, 20]]}}\n"
    )
    cameras = Cameras(load_cameras(file, site), site, print, timeout=9.0)
    try:
        for i, zoom in enumerate((0.5, 0x2000)):
            end = time.monotonic() + 20.0
            while not len(past := cameras.past(i)):
                assert time.monotonic() < end
                time.sleep(0.02)
            np.testing.assert_allclose(past[-1, 2:], (-12.0, zoom), atol=0.04)
    finally:
        cameras.close()


def test_the_zooms_of_a_device_reach_as_far_as_the_sites(tmp_path):
    hall = HALL.replace(zoom=[20, 60], field_of_view=60, tilt_limits=[[10, 50]], mount_height=3)
    file = tmp_path / "cameras.yaml"
    text = "0: {driver: onvif, host: a, zooms: [[0, 60], [1, 30]]}\n1: {driver: simulated}\n"
    for written, words in (
        (text, "camera 0: zooms is .*; it must reach from 60 to 20 degrees, the site's zoom"),
        (text.replace("[1, 30]", "[1, 90]"), "zooms is .*increasing positions and decreasing fields of view"),
        (text.replace("zooms", "tilt_sign: 2, zooms"), "tilt_sign is 2.0; it must be -1 or 1"),
    ):
        file.write_text(written)
        with pytest.raises(ValueError, match=words):
            load_cameras(file, hall)
    file.write_text(text.replace("[1, 30]", "[1, 10]"))
    assert load_cameras(file, hall)[1].pose() == pytest.approx((185.0, 30.0, 60.0))


def test_onvif_says_that_the_clock_of_the_device_is_wrong(servers, monkeypatch):
    monkeypatch.setenv("HALL_PASSWORD", "guessed")
    servers[0].ahead = 3600.0
    with pytest.raises(PermissionError, match=r"not authorized; the clock of the device is \+3(600|599) s off"):
        onvif(servers[0]).heading()


def test_visca_without_a_header_over_tcp():
    with PlainViscaServer(Motor(-20.0)) as server:
        camera = Visca(host="127.0.0.1", port=server.port, framing="plain", transport="tcp", zero=30.0)
        assert camera.heading() == pytest.approx(50.0)
        for rate in (-30.0, 0.0, -30.0):  # the answers "done" come later
            camera.turn(rate)
            assert abs(camera.heading() - 50.0) < 5.0
        server.hangs_up = True
        with pytest.raises(ConnectionError, match="the device has closed the connection"):
            camera.heading()
        server.hangs_up = False
        camera.close()
        assert server.motor.orders == [30.0, 0.0, 30.0, 0.0]
        server.shutdown()


def test_visca_with_answers_that_all_have_one_number(monkeypatch):
    (done,), (position,) = numbered(DONE), numbered(ZERO)
    camera, wire = visca(monkeypatch, RESET_DONE, done, done, position, framing="unnumbered")
    camera.turn(0.0)
    assert camera.heading() == 0.0
    assert not wire.answers
    with pytest.raises(ValueError, match="it must be plain with transport tcp"):
        Visca(host="north", transport="tcp")


def until(true, cameras, said, rates, lines=0):
    """Order rates until something is true and so many lines have been said; return and forget them."""
    end = time.monotonic() + 20.0
    while not true() or len(said) < lines:
        assert time.monotonic() < end, said
        cameras.order(rates)
        time.sleep(0.02)
    lines = sorted(said)
    said.clear()
    return lines


def fail_and_recover(fault, servers, cameras, said, rates):
    """Let two of three cameras fail for a while."""
    for server in servers:
        server.fault = fault
    lines = until(lambda: np.isnan(cameras.headings[:2]).all(), cameras, said, rates, lines=2)
    assert [line[:24] for line in lines] == ["camera 0 does not work: ", "camera 1 does not work: "]
    if fault == "nonsense":  # orders still arrive
        assert all(server.motor.wait_for(0.0) for server in servers)
    assert np.isfinite(cameras.headings[2])
    for server in servers:
        server.fault = None
    lines = until(lambda: np.isfinite(cameras.headings).all(), cameras, said, rates, lines=2)
    assert [line[:21] for line in lines] == ["camera 0 works again,", "camera 1 works again,"]
    turns = lambda: all(server.motor.rate * rate < 0.0 for server, rate in zip(servers, rates, strict=False))  # noqa: E731
    assert not until(turns, cameras, said, rates)  # clockwise


def test_cameras_that_fail_one_way_after_the_other(servers, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    hall = Scenario(num_sensors=3, pan_limits=[[-30, 90], [150, 230], [-180, 180]])
    login = "user: operator, password_env: HALL_PASSWORD"
    (tmp_path / "cameras.yaml").write_text(
        f"0: {{driver: onvif, host: 127.0.0.1, port: {servers[0].port}, {login}, zero: 30}}\n"
        f"1: {{driver: visca, host: 127.0.0.1, port: {servers[1].port}, zero: 200}}\n"
        "2: {driver: simulated}\n"
    )
    drivers, said = load_cameras(tmp_path / "cameras.yaml", hall), []
    cameras = Cameras(drivers, hall, said.append, timeout=0.6)
    assert not until(lambda: np.isfinite(cameras.headings).all(), cameras, said, [0.0, 0.0, 0.0])
    np.testing.assert_allclose(cameras.headings, [50.0, 190.0, 0.0], atol=1.0)
    for k, fault in enumerate(("silent", "late", "nonsense")):
        fail_and_recover(fault, servers, cameras, said, np.array([6.0, -6.0, 1.0]) * (-1) ** k)
    assert all(server.motor.wait_for(0.0) for server in servers)  # without orders
    cameras.close()
    assert not said
    printed = caplog.text + "".join(capfd.readouterr()) + repr(drivers)
    assert "sesame" not in printed
