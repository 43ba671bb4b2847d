import json
import re
import time

import pytest

from hitmac.agents.run.drivers import Onvif, Printed, Simulated, Visca, load_cameras, open_cameras
from hitmac.envs import Scenario, load_scenario

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


REFUSED_FILES = {
    "1": "holds int; it must hold the settings of each sensor once: 0, 1",
    "0: {driver: simulated}": "holds 0; it must hold the settings of each sensor once: 0, 1",
    "{0: {driver: simulated}, 1: {driver: simulated}, south: {}}": "holds 0, 1, south; it must hold",
    "[": "is not a YAML file",
    "{0: {driver: simulated}, 1: 3}": "camera 1: driver is None; it must be one of simulated, stdout, onvif, visca",
    "{0: {driver: stdout}, 1: {driver: onvive}}": "camera 1: driver is 'onvive'; it must be one of",
}
REFUSED_SETTINGS = {
    "driver: simulated, hots: a": "unknown setting hots: known are highest",
    "driver: onvif, password: a": "unknown setting password .did you mean password_env",
    "driver: simulated, highest_rate: 0": "highest_rate is 0.0; it must be over 0",
    "driver: simulated, start: x, highest_rate: x": "highest_rate is 'x'.*\n.*camera 0: start is 'x'",
    "driver: visca, sign: 1": "host ''.*a camera needs a host",
    "driver: visca, host: a, sign: 0": "sign 0.*needs a host, the sign -1 or 1",
    "driver: visca, host: a, pan_range: [1, 1]": "pan_range .1.0, 1.0.: .* low under high",
    "driver: visca, host: a, speeds: [2, 1]": "speeds .2.0, 1.0.*must be at most 24 and increase",
    "driver: visca, host: a, units_per_degree: 0": "units_per_degree 0: .* not 0",
    "driver: onvif, host: a, user: b": "password_env is ''; no environment variable",
    "driver: onvif, host: a, digest: plain": "digest is 'plain'; it must be message or http",
    "driver: onvif, host: a, port: 70000": "port is 70000; it must be 1 to 65535",
}
REFUSED = REFUSED_FILES | {
    f"{{0: {{{own}}}, 1: {{driver: stdout}}}}": REFUSED_SETTINGS[own] for own in REFUSED_SETTINGS
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_file_of_cameras_may_not_hold(text, tmp_path):
    file = tmp_path / "cameras.yaml"
    file.write_text(text)
    camera = ".*camera 0: .*" * (text not in REFUSED_FILES)
    with pytest.raises((ValueError, TypeError), match=f"(?s){re.escape(str(file))}.*{camera}{REFUSED[text]}"):
        load_cameras(file, HALL)


def test_a_site_opens_with_one_call():
    cameras = open_cameras("simulated", HALL, timeout=1.0)
    cameras.close()
    assert cameras.headings.shape == (2,)
    assert not cameras.messages()
