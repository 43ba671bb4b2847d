"""Closed loops: by processes in real time, and on a played clock with what goes wrong in pixels."""

import json

import numpy as np
import pytest

from tests.agents.deploy.run.played import Played
from tests.agents.deploy.run.world import PICTURE, make_site
from tools.closed_loop import closed_loop


@pytest.mark.slow
def test_a_run_steers_cameras_of_which_one_fails_for_a_while():
    found = closed_loop("belief-planner-fast", ["examples/site/tracks/day-1.csv"], 0.4, faults=True, pixels=True)
    assert found["steps decided"] >= 0.9 * found["steps"]
    assert found["coverage"] >= found["simulated"] - 0.15
    assert found["beyond limits, degrees"] <= 2.0
    assert not any(found["rates after the end"])
    assert not found["secrets"]
    said = [line.partition(": camera 0 ")[2] for line in found["messages"]]
    first, last = [line for line in said if "work" in line][-2:]  # while it loads, a process may stall
    assert first.startswith("does not work:")
    assert last.startswith("works again")


@pytest.mark.slow
def test_a_run_that_does_not_start_ends_the_loop_with_its_reason():
    with pytest.raises(RuntimeError, match="unknown agent 'plannr'"):
        closed_loop("plannr", ["examples/site/tracks/day-1.csv"], 0.05)


SIZES = {5: (640, 360), 1: (640, 480)}
"""Sizes of the pictures of two cameras, of which one has another proportion."""


def changed(lines):
    """The lines of boxes of a step, some in pictures of another size, and those of camera 2 by a clock 2 s ahead."""
    given = [json.loads(line) for line in lines]
    for i, size in SIZES.items():
        boxes = np.reshape(given[i]["boxes"], (-1, 4)) * np.tile(np.divide(size, PICTURE), 2)
        given[i] |= {"boxes": boxes.tolist(), "size": size}
    given[2]["time"] += 2.0
    return [json.dumps(one).encode() for one in given]


def damage(world):
    """A lens sticks, one does not report its zoom, and a tilt is at its ends."""
    silent, stuck, ends = world.servers[0], *world.servers[3:5]
    stuck.stuck, silent.tells_zoom = True, False
    ends.tilt.stops = ends.tilt.pan - 1.0, ends.tilt.pan + 1.0


@pytest.mark.slow
def test_what_goes_wrong_in_pixels_is_told_and_the_others_go_on(tmp_path):
    site, played = make_site(["examples/site/tracks/day-6.csv"], 1.0, tmp_path, ptz=True), Played(changed, damage)
    frames, _ = played.run("belief-planner-fastest", site, tmp_path, 240, pixels=True)
    said = [line for frame in frames for line in frame["messages"]]
    for words in (
        "the boxes of camera 1 are refused: its picture is 640 x 480; it must be in proportion to 1920 x 1080",
        "the clock of camera 2 is off: by about +2",
        "camera 3 does not zoom as ordered: it reports ",
        "camera 0 does not report its zoom: its last known field of view counts",
        "camera 4 does not tilt as ordered: it reports ",
    ):
        assert len([line for line in said if line.startswith(words)]) == 1, (words, said)
    assert not any("does not work" in line for line in said)
    away = {i: [] for i in range(6)}  # of the places of each camera from the nearest of the people
    for k, frame in enumerate(frames):
        for camera, *place in frame["detections"]:
            away[camera].append(np.nanmin(np.linalg.norm(played.world.people[max(k - 1, 0)] - place, axis=-1)))
    assert not away.pop(1)
    assert max(np.median(own) for own in away.values() if len(own) > 10) < 0.7
    assert len(away[5]) > 10, {i: len(own) for i, own in away.items()}
    assert np.nanmean(played.coverage) > 0.25
    assert played.world.beyond() <= 2.0
