"""Command line ``hitmac run``, with cameras that turn in the computer alone."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from hitmac.agents.deploy.replay.page import record_log
from hitmac.agents.deploy.run.command import main, running
from hitmac.agents.evaluate.logs import evaluate_log, read_log
from hitmac.envs import load_scenario
from tests.agents.deploy.run.fakes import SITE, detecting

OWN = SITE.replace(time_step=0.05)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site's file in the current folder."""
    monkeypatch.chdir(tmp_path)
    OWN.save("site.yaml")
    return tmp_path


def rehearsed(*arguments, minutes):
    """Run with detections of simulated people; return what the log holds."""
    main(["random", "--detections", "simulated", "--minutes", str(minutes), "--log", "run.jsonl", *arguments])
    return read_log("run.jsonl")


def test_a_site_gets_the_form_of_real_detections():
    plain = load_scenario("hit-mac").replace(placement="fixed", sensor_positions=[(0, 0)] * 4, whole_numbers=False)
    scenario, assumed = running(plain)
    assert (scenario.identities, scenario.knowledge, scenario.position_noise) == (False, "shared", 16.0)
    assert assumed == ", assumed position_noise=16 missed_detections=0.1 false_detections=0.02"
    scenario, assumed = running(plain.replace(missed_detections=0.3, knowledge="own"))
    assert (scenario.position_noise, scenario.missed_detections, scenario.knowledge, assumed) == (0, 0.3, "shared", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--site", "none.yaml"], "none.yaml: No such file or directory"),
        (["--cameras", "none.yaml"], "none.yaml: No such file or directory"),
        (["--detections", "udp://127.0.0.1"], "udp://HOST:PORT"),
        (["--site", "hit-mac"], "placement is areas; real cameras require fixed, with sensor_positions"),
        (["--log", "site.yaml"], "site.yaml exists, and is not a log of hitmac run"),
        (["--port", "70000"], "port"),
        (["--set", "turn_angle=0"], "turn_angle"),
        (["--minutes=-1"], "minutes"),
        (["--paused"], "--paused is given; it requires --port"),
    ],
)
def test_wrong_options_end_in_one_line(arguments, words, site, error_of):
    assert words in error_of(main, "random", *arguments)


def test_a_run_of_simulated_detections_writes_a_log(site, capsys):
    run = rehearsed("--log-detections", minutes=0.01)
    said = capsys.readouterr()
    assert not said.out  # which is for the orders of the driver stdout
    assert re.match(r"\d\d:\d\d:\d\d hitmac run: random for 0, 1; log: run.jsonl\n", said.err)
    assert run.agent == "random"
    assert run.scenario.sensor_positions == OWN.sensor_positions
    assert run.scenario.sensor_names == ("0", "1")  # also in a replay
    assert len(run.time) >= 3
    assert (run.orders != 0).any()
    assert str(site) not in (site / "run.jsonl").read_text()


def test_a_run_that_is_started_again_stays_paused_and_counts_its_moves(site, error_of, capsys):
    before = rehearsed(minutes=0.02)
    assert before.moves[-1].any()
    with open("run.jsonl") as file:
        header, *steps = map(json.loads, file)
    steps[0]["begun"], steps[-1]["begun"], steps[-1]["paused"] = [0, 1], [1], True
    (site / "run.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (header, *steps)))
    arguments = ["--detections", "simulated", "--minutes", "0.01", "--log", "run.jsonl"]
    assert "run.jsonl ends with a pause; it requires --port" in error_of(main, "random", *arguments)
    run = rehearsed("--port", "0", minutes=0.01)
    later = slice(len(before.time), None)
    assert len(run.time) > later.start
    assert run.paused[later].all()
    assert not run.orders[later].any()
    assert (run.moves[later] == sum(np.isin([0, 1], one.get("begun", [])) for one in steps)).all()
    assert re.search("the run continues; its last step was [0-9]+ s ago", str(run.messages))
    assert "running, paused; page" in capsys.readouterr().err


def test_cameras_that_tilt_and_zoom_are_rehearsed_logged_and_shown(site, capsys):
    parts = ["zoom=[30, 120]", "zoom_step=20", "tilt_limits=[[10, 70]]", "mount_height=4", "tilt_step=10"]
    run = rehearsed(*(word for part in parts for word in ("--set", part)), minutes=0.02)
    assert len(run.time) >= 3
    assert (run.tilt != run.tilt[0]).any()
    assert ((run.tilt >= 10) & (run.tilt <= 70)).all()
    assert (run.view != run.view[0]).any()
    assert 0.0 <= evaluate_log(run)["rotation"] <= 1.0
    shown = record_log(run)["series"]
    assert shown.keys() >= {"near", "reach", "view"}
    assert "does not work" not in capsys.readouterr().err


def test_what_operators_set_is_kept_logged_and_shown(site, capsys, monkeypatch):
    """A camera with few moves, one that must not look ahead, and a third place that no heading spares."""
    monkeypatch.setenv("VIEWER_PASSWORD", "open sesame")
    around = "[[-901, -1], [-899, -1], [-899, 1]]"
    west = f"{{moves_an_hour: 1, private: [{{zone: {around}, hours: 00:00-00:01, days: [mon]}}]}}"
    east = "{private: [{zone: [[600, -100], [700, -100], [700, 100], [600, 100]]}]}"
    still = "{picture: 'http://127.0.0.1:9/jpg', user: viewer, password_env: VIEWER_PASSWORD}"
    (site / "cameras.yaml").write_text(
        f"0: {{driver: simulated, operation: {west}, page: {still}}}\n1: {{driver: simulated, operation: {east}}}\n"
    )
    run = rehearsed("--cameras", "cameras.yaml", "--port", "0", minutes=0.1)
    assert "camera 0 has no heading that spares its private zones, as on mon 00:00" in capsys.readouterr().err
    assert run.moves[-1, 0] == 1
    assert run.moves[-1, 1] > 3
    assert len(run.private) == 2
    away = np.abs((run.heading[len(run.heading) // 2 :, 1] - 180.0 + 180.0) % 360.0 - 180.0)
    assert away.min() > 45.0 + np.degrees(np.arctan2(100, 200))  # from a start at 180 degrees
    text = (site / "run.jsonl").read_text()
    assert "sesame" not in text
    assert "127.0.0.1:9" not in text


def test_a_run_can_start_paused(site, capsys):
    run = rehearsed("--port", "0", "--paused", minutes=0.01)
    assert ": running, paused; page: http://127.0.0.1:" in capsys.readouterr().err
    assert len(run.time) >= 3
    assert not run.orders.any()


def test_a_failed_start_leaves_no_log_and_names_cameras_that_do_not_answer(site, error_of, capsys):
    visca = "{driver: visca, host: 127.0.0.1, port: 9}"
    (site / "cameras.yaml").write_text(f"0: {visca}\n1: {visca}\n")
    line = "random --cameras cameras.yaml --log run.jsonl --detections udp://192.0.2.1:5005"
    assert "udp://192.0.2.1:5005" in error_of(main, *line.split())
    rehearsed("--cameras", "cameras.yaml", minutes=0.001)
    assert capsys.readouterr().err.count("does not answer yet: ") == 2


@pytest.mark.slow
def test_orders_follow_detections_by_udp_until_a_signal_and_neither_they_nor_passwords_are_logged(site):
    secret = {**os.environ, "HITMAC_MQTT_PASSWORD": "sesame"}
    lines = [json.dumps({"camera": camera, "detections": [[123.25, -77.5]]}).encode() for camera in range(2)]
    command = [sys.executable, "-m", "hitmac", "run", "random", "--log", "run.jsonl", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with detecting(*lines, b"{garbled 123.25") as (host, port):
        command += ["--detections", f"udp://{host}:{port}", "--cameras", "stdout"]
        with subprocess.Popen(command, env=secret, **pipes) as process:
            try:
                for _ in range(16):  # several steps
                    json.loads(process.stdout.readline())
                process.send_signal(signal.SIGTERM)
                orders = [json.loads(line) for line in process.stdout.read().splitlines()]
                said = process.stderr.read().splitlines()
                assert process.wait(30) == 0
            finally:
                process.kill()
    assert {order["camera"]: order["rate"] for order in orders} == {"0": 0.0, "1": 0.0}
    assert any("page: http://127.0.0.1:" in line for line in said)
    assert sum("lines of detections are invalid: it is not JSON" in line for line in said) == 1
    text = (site / "run.jsonl").read_text()
    assert "lines of detections are invalid" in text
    assert text.endswith("\n")
    read_log("run.jsonl")
    assert '"detections"' not in text
    assert "123.25" not in "".join(said)
    for hidden in ("garbled", "sesame", socket.gethostname()):
        assert hidden not in text + "".join(said)
