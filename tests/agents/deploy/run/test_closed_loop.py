"""Closed loops: by processes in real time, and on a played clock with what goes wrong in pixels."""

import json

import numpy as np
import pytest

from tests.agents.deploy.run.played import Played
from tests.agents.deploy.run.world import make_site
from tools.closed_loop import closed_loop

DAY = ["examples/site/tracks/day-6.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("pixels", [False, True])
def test_a_run_steers_cameras_of_which_one_fails_for_a_while(pixels):
    found = closed_loop("belief-planner-fast", ["examples/site/tracks/day-1.csv"], 0.4, faults=True, pixels=pixels)
    assert found["steps decided"] >= 0.9 * found["steps"]
    assert found["coverage"] >= found["simulated"] - 0.15
    assert found["beyond limits, degrees"] <= 2.0
    assert not any(found["rates after the end"])
    assert not found["secrets"]
    said = [line for line in found["messages"] if "camera 0" in line][-2:]  # while it loads, a process may stall
    first, last = (line.partition("camera 0 ")[2] for line in said)
    assert first.startswith("does not work:")
    assert last.startswith("works again")


def rescaled(size):
    """A change of lines: boxes in pixels of pictures of another size, which they state."""

    def change(lines):
        given = [json.loads(line) for line in lines]
        for one in given:
            one["boxes"] = (np.reshape(one["boxes"], (-1, 4)) * np.tile(np.divide(size, (1920, 1080)), 2)).tolist()
            one["size"] = size
        return [json.dumps(one).encode() for one in given]

    return change


def play(tmp_path, minutes, *changes, **options):
    """The coverage, the detections (k, 3), the messages and the world of a loop from pixels."""
    site, played = make_site(DAY, minutes, tmp_path, ptz=True), Played(*changes)
    frames, _ = played.run("belief-planner-fastest", site, tmp_path, int(240 * minutes), pixels=True, **options)
    said = [line for frame in frames for line in frame["messages"]]
    return np.nanmean(played.coverage), [row for frame in frames for row in frame["detections"]], said, played.world


def test_boxes_of_pictures_of_another_size_have_the_same_places(tmp_path):
    covered, rows, said, _ = play(tmp_path, 0.2)
    assert len(rows) > 20
    assert not said
    assert play(tmp_path, 0.2, rescaled((640, 360)))[0] == pytest.approx(covered, abs=1e-9)
    _, rows, said, _ = play(tmp_path, 0.05, rescaled((640, 480)))
    assert not rows
    assert said[0].endswith("are refused: its picture is 640 x 480; it must be in proportion to 1920 x 1080")


@pytest.mark.slow
def test_a_camera_that_fails_and_a_clock_that_is_off_are_told_and_the_others_go_on(tmp_path):
    covered, _, said, world = play(tmp_path, 1.0, faults=True)
    assert covered > 0.3
    assert world.beyond() <= 2.0
    assert any(line.startswith("the clock of camera 1 is off: by about") for line in said)
    for i in (0, 1, 2):
        assert any(line.startswith(f"camera {i} does not work: ") for line in said)
        assert any(line.startswith(f"camera {i} works again") for line in said)


@pytest.mark.slow
def test_lenses_that_stick_or_fall_silent_and_a_tilt_at_its_end_are_told_and_boxes_have_places(tmp_path):
    def damage(world):
        stuck, silent, ends = world.servers[:3]
        stuck.stuck, silent.zoom = True, None
        ends.tilt.stops = ends.tilt.pan - 1.0, ends.tilt.pan + 1.0

    covered, rows, said, _ = play(tmp_path, 1.0, lambda lines: lines, damage)
    assert covered > 0.3
    assert {row[0] for row in rows} == {0, 1, 2, 3, 4, 5}
    assert any(line.startswith("camera 0 does not zoom as ordered: it reports 90 degrees, not") for line in said)
    assert "camera 1 does not report its zoom: its last known field of view counts" in said
    assert any(line.startswith("camera 2 does not tilt as ordered: it reports") for line in said)
