"""Checks of a site: what cameras can ever see, and each odd thing in a small site."""

import numpy as np
import pytest
from PIL import Image

from hitmac.agents.deploy.site import check as module
from hitmac.agents.deploy.site.check import check, proposed, read_recorded, visible
from hitmac.envs import Scenario

STEADY = [(k, 1, -4 + 0.5 * k, 2) for k in range(12)]
"""A target that walks past the wall of the site, half a metre in a second."""


def site(**changes):
    """Return a room with a wall and two cameras that see most of it."""
    parameters = {
        "num_sensors": 2, "num_targets": 1, "arena": (10, 5), "placement": "fixed",
        "sensor_positions": [(-9, 4), (9, -4)], "sensor_headings": [0, 180], "sensing_range": 30, "field_of_view": 60,
        "pan_limits": [(-90, 0), (90, 180)], "walls": [(0, -5, 0, 0)], "time_step": 0.5, "max_speed": 0.6,
    }  # fmt: skip
    return Scenario(**parameters | changes)


@pytest.fixture
def tracks(tmp_path):
    """Writes rows of time, id, x and y, as a file of tracks."""

    def write(rows):
        path = tmp_path / "day.csv"
        path.write_text("time,id,x,y\n" + "".join(f"{t},{name},{x},{y}\n" for t, name, x, y in rows))
        return str(path)

    return write


def test_a_camera_can_see_all_within_its_limits_and_half_its_view():
    scenario = site(
        num_sensors=1, sensor_positions=[(0, 0)], sensor_headings=[30], pan_limits=[(30, 50)], field_of_view=20,
        sensing_range=4, walls=[(2, -1, 2, 2)],
    )  # fmt: skip
    angle = np.radians([19, 21, 40, 59, 61, 220])
    (seen,) = visible(scenario, 1.9 * np.stack((np.cos(angle), np.sin(angle)), 1))
    assert seen.tolist() == [False, True, True, True, False, False]
    (seen,) = visible(scenario, np.array([(2.1, 1.8), (2.2, 2.6), (2.69, 2.81), (2.83, 2.95)]))
    assert seen.tolist() == [False, True, True, False]  # behind the wall, past its end, in range, out of range
    for limits in ((), [(-180, 180)], [(170, 190)]):
        (seen,) = visible(scenario.replace(pan_limits=limits, sensor_headings=()), np.array([(-1.0, 0.1), (0.1, 1.0)]))
        assert seen.tolist() == [True, limits != [(170, 190)]]


@pytest.mark.parametrize(
    ("changes", "away", "expected"),
    [
        ({"zoom": (15, 60), "sensing_range": 4}, [7.9, 8.1], [True, False]),  # 4 m * sqrt(60 / 15)
        ({"tilt_limits": [(10, 70)], "mount_height": 3, "vertical_view": 20}, [0.5, 0.55, 9.0], [False, True, True]),
    ],
)  # fmt: skip
def test_a_camera_can_see_all_within_its_tilts_and_zooms(changes, away, expected):
    scenario = site(num_sensors=1, sensor_positions=[(0, 0)], sensor_headings=[0], pan_limits=(), walls=(), **changes)
    assert visible(scenario, np.array([(x, 0.0) for x in away])).tolist() == [expected]


def test_shares_are_those_of_the_area_and_of_the_positions(tmp_path, tracks):
    scenario = site(
        num_sensors=1, arena=(8, 8), sensor_positions=[(0, 0)], sensor_headings=[45], pan_limits=[(45, 45)],
        field_of_view=90, walls=(), max_speed=1, tracks=tracks([(k, 1, 5.5 - k, 2) for k in range(8)]),
    )  # fmt: skip
    facts, odd = check(scenario, tmp_path / "site.png")
    assert facts[0] == "no camera can ever see 75.0% of the area and 25.0% of the recorded positions"
    assert odd == []
    with Image.open(tmp_path / "site.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    middle = np.array(pixels.shape[:2]) // 2
    reds = [pixels[middle[0] - 150 * up, middle[1] + 150 * right] for up, right in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
    assert [bool(red[0] - red[2] > 20) for red in reds] == [False, True, True, True]


@pytest.mark.parametrize(
    ("changes", "rows", "says"),
    [
        ({}, STEADY, []),
        ({"sensor_positions": [(-9, 4), (0.03, -2)]}, STEADY,
         ["camera 1 is 0.030 m from a wall, which hides its view; mount it 0.05 m away or more"]),
        ({"sensor_names": ("hall", "east"), "sensor_positions": [(-9, 4), (9.9, -4.9)],
          "pan_limits": [(-90, 0), (-45, -45)], "sensor_headings": [0, -45]},
         STEADY, ["camera east sees nothing: walls hide what is in its range, or its limits lead out of the area"]),
        ({}, [(k, 1, -2.75 + 0.5 * k, -2) for k in range(12)],
         ["day.csv: 1 moves through walls; first of target 1 at 5 s"]),
        ({}, [(k, name, (-0.2, 0.2)[k], y) for name, y in (("a", 0.1), ("b", -0.1), ("c", -4.9)) for k in range(2)],
         ["day.csv: 2 moves through walls; first of target b at 0 s"]),  # a moves past the end of the wall
        ({}, [*STEADY, (12, 1, 7, 2)],
         ["day.csv: 1 moves faster than 1.44 m/s, twice the speed of the scenario; first of target 1 at 11 s"]),
        ({}, [*STEADY, *((20 + k, 1, 1, 2) for k in range(3))],
         ["day.csv: 1 time steps jump, over 1.5 times 1 s; first of target 1 at 11 s"]),
        ({}, [*STEADY, (10, 2, 1, 2), (11, 2, 1, 2), (72, 2, 1, 2)],
         ["day.csv: 1 ids return after more than 60 s, perhaps as other targets; first of target 2 at 11 s"]),
        ({}, [*STEADY, (7, 2, -3, 4.9), (8, 2, -3, 5.1)],
         ["day.csv: 1 positions outside the area, +-10 x +-5; first of target 2 at 8 s"]),
    ],
)  # fmt: skip
def test_each_odd_thing_is_a_line(changes, rows, says, tmp_path, tracks, monkeypatch):
    monkeypatch.setattr(module, "_draw", lambda *_: None)
    _, odd = check(site(tracks=tracks(rows), **changes), tmp_path / "site.png")
    assert [line.replace(f"{tmp_path}/", "") for line in odd] == says


@pytest.mark.parametrize(
    ("interval", "step", "speed"), [(0.04, 0.12, 1.0), (0.2, 0.2, 1.0), (1.0, 0.5, 1.0), (1.2, 0.4, 1.0)]
)
def test_the_time_step_and_the_speed_are_proposed(interval, step, speed, tracks):
    """Noise of 5 cm hardly changes speeds over half a second."""
    generator = np.random.default_rng(0)
    times = interval * np.arange(200)
    rows = [(t, name, t if name else 0, generator.normal(0, 0.05)) for name in (0, 1) for t in times if t % 9 < 7]
    path = tracks([(round(t, 4), name, x, y) for t, name, x, y in rows])
    found = proposed([read_recorded(path)])
    assert found[0] == step
    assert speed <= found[1] <= 1.5 * speed
    with pytest.raises(ValueError, match="has no target that is present for half a second; ids must not change"):
        proposed([read_recorded(tracks([(k, k, 0, 0) for k in range(9)]))])
