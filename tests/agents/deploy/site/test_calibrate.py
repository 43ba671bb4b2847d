"""Calibration against simulated cameras with known truth and noise, and its command line."""

import json

import numpy as np
import pytest
import yaml

from hitmac.agents.deploy.camera import View
from hitmac.agents.deploy.run.pictures import load_views
from hitmac.agents.deploy.site.calibrate import COLUMNS, calibrate
from hitmac.agents.deploy.site.command import main
from tests.agents.deploy.site.test_zero import HALL

TRUTH = View(
    height=5.5, position=(3, -2), focal=((1, 1400), (3, 4200)), distortion=-0.08, roll=1.5, tilt_zero=20, zero=70,
    sign=-1,
)  # fmt: skip


def rows_of(truth, number, random, *, noise=(2.0, 0.1), zooms=(1.0,), away=(6.0, 25.0), pans=(-60.0, 60.0)):
    """Rows of a camera that sees places at random pans and tilts."""
    found = []
    while len(found) < number:
        pan, zoom, far = random.uniform(*pans), random.choice(zooms), random.uniform(*away)
        heading = truth.zero + truth.sign * pan
        bearing = np.radians(heading + random.uniform(-25, 25))
        place = truth.position + far * np.array([np.cos(bearing), np.sin(bearing)])
        down = np.degrees(np.arctan2(truth.height, far)) + random.uniform(-8, 8)
        tilt = truth.tilt_sign * (down - truth.tilt_zero)
        pixel = truth.pixels(place, heading, tilt, zoom)[0]
        if (pixel > 10).all() and (pixel < np.array(truth.picture) - 10).all():
            shown = np.clip(pixel + noise[0] * random.normal(size=2), 0, truth.picture)
            found.append([*shown, *(np.array([pan, tilt]) + noise[1] * random.normal(size=2)), zoom, *place])
    return np.array(found)


def errors(view, rows):
    places = view.floor(rows[:, :2], view.zero + view.sign * rows[:, 2], rows[:, 3], rows[:, 4])
    return np.linalg.norm(places - rows[:, 5:], axis=1)


@pytest.mark.parametrize(("signs", "zooms", "unsure"), [((-1, 1), (1.0, 2.0, 3.0), False), ((1, -1), (1.0,), True)])
def test_twelve_rows_with_noise_place_targets_at_twenty_metres_within_a_quarter_metre(signs, zooms, unsure):
    random = np.random.default_rng(len(zooms))
    truth = View(**vars(TRUTH) | {"sign": signs[0], "tilt_sign": signs[1]})
    start = View(position=(4.0, -2.5) if unsure else truth.position)
    found = calibrate(rows_of(truth, 12, random, zooms=zooms), start, find_position=unsure)
    assert (found.view.sign, found.view.tilt_sign) == signs
    assert not {"zero of pan", "height", "x", "y", "sign of pan", "sign of tilt"} & {*found.unknown}
    others = rows_of(truth, 200, random, away=(20.0, 20.001), pans=(-170.0, 170.0))
    assert np.median(errors(found.view, others)) < 0.25


def test_what_the_rows_do_not_determine_is_said():
    rows = rows_of(TRUTH, 12, np.random.default_rng(0), pans=(10.0, 10.0001), noise=(1.0, 0.0))
    found = calibrate(rows, View(position=TRUTH.position))
    assert "sign of pan" in found.unknown
    assert found.view.sign == 1  # as before
    with pytest.raises(ValueError, match="got 3 rows; a calibration requires at least four"):
        calibrate(rows[:3], View())
    with pytest.raises(ValueError, match="pan of row 2 is 1e\\+09; it must be under 1e\\+06"):
        calibrate(np.where(np.arange(len(COLUMNS)) == 2, [[0.0], [1e9], [0.0], [0.0]], 1.0), View())
    assert {"distortion", "zero of tilt"} & {*calibrate(rows[:4], View(position=TRUTH.position)).unknown}


def test_two_rows_that_are_swapped_stand_out():
    rows = rows_of(TRUTH, 14, np.random.default_rng(1))
    rows[[3, 8], 5:] = rows[[8, 3], 5:]
    found = calibrate(rows, View(position=TRUTH.position))
    assert "rows that do not fit the others: 4, 9; are they swapped?" in found.report
    assert np.median(errors(found.view, rows_of(TRUTH, 100, np.random.default_rng(2), away=(20.0, 20.1)))) < 0.5


CAMERAS = """north: {driver: stdout} # by hand
1:
  driver: visca # at the door
  host: 127.0.0.1
  view:
    classes: [person]
    height: 9
  sign: 1
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Writes a site, its cameras and the rows of both."""
    monkeypatch.chdir(tmp_path)
    HALL.save("site.yaml")
    (tmp_path / "cameras.yaml").write_text(CAMERAS)
    for name, position in (("north", (0, 0)), ("south", (3, 4))):
        rows = rows_of(View(**vars(TRUTH) | {"position": position}), 12, np.random.default_rng(0))
        lines = [",".join(map(repr, row)) for row in rows.tolist()]
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    return tmp_path


def test_the_command_writes_what_it_finds_and_keeps_the_rest(site, capsys):
    main(["calibrate", "south.csv"])
    printed = capsys.readouterr().out
    assert "median: " in printed
    assert "height" in printed
    assert printed.endswith("cameras.yaml: south has the view found, and its zeros and signs\n")
    text = (site / "cameras.yaml").read_text()
    assert "# by hand" in text
    assert "# at the door" in text
    own = yaml.safe_load(text)[1]
    assert own["view"]["classes"] == ["person"]
    assert own["zero"] == pytest.approx(70, abs=0.5)
    assert (own["sign"], own["tilt_sign"]) == (-1, -1)
    assert own["tilt_zero"] == pytest.approx(20, abs=0.5)  # of the driver, which also tilts by it
    assert not {"zero", "tilt_zero", "tilt_sign"} & own["view"].keys()
    assert "position" not in own["view"]
    assert load_views(site / "cameras.yaml", HALL)[1].height == pytest.approx(5.5, abs=0.2)
    main(["calibrate", "north.csv", "--picture", "1920", "1080", "--height", "5.5"])
    assert "its driver has no zero: its program must turn to the heading" in capsys.readouterr().out
    north, south = load_views(site / "cameras.yaml", HALL)
    assert (north.height, north.position) == (5.5, (0.0, 0.0))
    assert north.zero == pytest.approx(70, abs=0.5)  # for messages with a pan
    assert south.tilt_zero == pytest.approx(20, abs=0.5)
    assert south.classes == ("person",)


def walk(random, south, seconds=60.0):
    """Lines of two cameras, each of which turns after one person; sometimes another is near."""
    lines, north = [], View(**vars(TRUTH) | {"position": (0.0, 0.0)})
    for k in range(int(2 * seconds)):
        time = 1.7e9 + k / 2
        place = np.array([10 + 8 * np.sin(k / 9), 4 + 7 * np.cos(k / 5)])
        for name, view, when in (("north", north, time), ("south", south, time + 0.2)):
            here = place if name == "north" else place + 0.4 * random.normal(size=2) * (k % 10 == 0)
            away = here - view.position
            heading = np.degrees(np.arctan2(*away[::-1])) + random.uniform(-15, 15)
            tilt = view.tilt_sign * (np.degrees(np.arctan2(view.height, np.linalg.norm(away))) - view.tilt_zero)
            u, v = view.pixels(here, heading, tilt, 1.0)[0] + 2 * random.normal(size=2)
            boxes = [[u - 20, max(v - 90, 0.0), u + 20, v]] * (2 if k % 7 == 0 else 1)
            if 0 < u < 1900 and 0 < v < 1070:
                pose = {"pan": view.sign * (heading - view.zero), "tilt": tilt, "zoom": 1.0}
                lines.append(json.dumps({"camera": name, "time": when, "boxes": boxes} | pose))
    return "\n".join(lines) + "\n"


def test_people_who_walk_calibrate_a_camera_by_another(site, error_of, capsys):
    south = View(height=6, position=(3, 4), focal=((1, 1300),), tilt_zero=25, sign=1)
    view = {"height": 6.0, "focal": [[1, 1300]], "tilt_zero": 25, "latency": 0.2}
    cameras = {"north": {"driver": "stdout"}, "south": {"driver": "visca", "host": "a", "sign": 1, "view": view}}
    (site / "cameras.yaml").write_text(yaml.safe_dump(cameras))
    (site / "both.jsonl").write_text(walk(np.random.default_rng(0), south))
    line = "calibrate both.jsonl --camera north --seen-by south --picture 1920 1080"
    main(line.split())
    assert "zero of pan" in capsys.readouterr().out
    found = load_views(site / "cameras.yaml", HALL)[0]
    assert found.height == pytest.approx(TRUTH.height, abs=0.2)
    others = rows_of(View(**vars(TRUTH) | {"position": (0.0, 0.0)}), 200, np.random.default_rng(1), away=(20.0, 20.001))
    places = found.floor(others[:, :2], 70.0 - others[:, 2], others[:, 3], 1.0)
    assert np.median(np.linalg.norm(places - others[:, 5:], axis=1)) < 0.4
    (site / "both.jsonl").write_text('{"camera": "south", "time": 1, "boxes": [[1, 2, 3, 4]]}\n')
    assert "both.jsonl, line 1: camera south has no view, or its boxes have no pan" in error_of(main, *line.split())


def test_recordings_of_a_camera_that_stands_still_become_tracks_by_its_view(site, error_of, capsys):
    cameras = {"north": {"driver": "visca", "host": "a", "zero": 70, "view": {"height": 5, "tilt_zero": 30}},
               "south": {"driver": "stdout"}}  # fmt: skip
    (site / "cameras.yaml").write_text(yaml.safe_dump(cameras))
    (site / "day.txt").write_text("1,1,900,400,40,200,1\n2,1,910,400,40,210,1\n1,2,900,0,40,20,1\n")
    one = {"sensorId": "0", "@timestamp": "1970-01-01T00:00:02Z", "objects": ["5|900|400|940|600|person"]}
    (site / "day.jsonl").write_text(json.dumps(one) + "\n")
    view = load_views("cameras.yaml", HALL)[0]
    expected = view.floor([920, 600], 70.0 - 5.0, 0.0, 1.0)[0]  # VISCA's sign is -1
    for line, first in (("day.txt --fps 10", "0.0,1"), ("day.jsonl", "2.0,5")):
        main(["tracks", *line.split(), "--camera", "north", "--site", "site.yaml", "--pose", "5", "0", "1"])
        assert (site / "tracks.csv").read_text().splitlines()[1] == f"{first},{expected[0]:.3f},{expected[1]:.3f}"
    assert capsys.readouterr().out.endswith("tracks.csv: 1 positions of 1 targets; 0 outside the area are left out\n")
    for line, says in (
        ("--camera south --site site.yaml", "camera south has no view"),
        ("--camera north", "--site"),
        ("--camera north --site site.yaml --homography h.json", "in place of --homography"),
        ("--camera north --site site.yaml --pose 5 0 4", "the zoom 4; the calibrated zooms of camera north are 1 to 1"),
    ):
        assert says in error_of(main, "tracks", "day.jsonl", *line.split())


def test_recordings_have_the_boxes_that_count_by_their_view(site, error_of, capsys):
    view = {"height": 5, "tilt_zero": 30, "above": 1.7, "confidence": 0.5, "classes": ["person"],
            "ignore": [[[0, 0], [300, 0], [300, 1080], [0, 1080]]]}  # fmt: skip
    cameras = {"north": {"driver": "visca", "host": "a", "zero": 70, "view": view}, "south": {"driver": "stdout"}}
    (site / "cameras.yaml").write_text(yaml.safe_dump(cameras))
    (site / "day.txt").write_text("1,1,900,400,40,200,.9\n1,2,100,400,40,200,.9\n1,3,900,400,40,200,.1\n")
    boxes = ["1|900|400|940|600|person", "2|100|400|140|600|person", "3|900|400|940|600|person|.1", "4|0|0|940|600|car"]
    one = {"sensorId": "0", "@timestamp": "1970-01-01T00:00:00Z", "objects": boxes}
    (site / "day.jsonl").write_text(json.dumps(one) + "\n")
    x, y = load_views("cameras.yaml", HALL)[0].floor([920, 400], 70.0, 0.0, 1.0, 1.7)[0]
    common = "--camera north --site site.yaml --pose 0 0 1"
    for line, absent in (("day.txt --fps 10", 2), ("day.jsonl", 3)):
        main(["tracks", *line.split(), *common.split()])
        assert (site / "tracks.csv").read_text().splitlines()[1] == f"0.0,1,{x:.3f},{y:.3f}"
        assert f": 1 positions of 1 targets; 0 outside the area are left out; {absent} rows" in capsys.readouterr().out
    assert "above of camera north is 1.7" in error_of(main, "tracks", "a.json", "--fps", "2", *common.split())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("north.csv", "--picture must be the size of the picture, width and height, for a camera without a view"),
        ("nort.csv", "unknown camera 'nort' (did you mean north?): known are north, south"),
        ("south.csv --picture 640 480", "line 2: the pixel is ["),
        ("south.csv --height -1", "--height is -1.0; it must be 0 or more"),
    ],
)
def test_a_calibration_that_is_refused_changes_nothing(line, says, site, error_of):
    assert says in error_of(main, "calibrate", *line.split())
    assert (site / "cameras.yaml").read_text() == CAMERAS


@pytest.mark.parametrize(
    ("section", "says"),
    [("3", "view is 3; it must be settings"), ("{heigth: 3}", "unknown setting heigth (did you mean height?) of view"),
     ("{height: x}", "height is 'x'")],
)  # fmt: skip
def test_a_view_that_is_invalid_is_named_with_its_camera(section, says, tmp_path):
    path = tmp_path / "cameras.yaml"
    path.write_text(f"north: {{driver: stdout, view: {section}}}\nsouth: {{driver: stdout}}\n")
    with pytest.raises((ValueError, TypeError)) as refused:
        load_views(path, HALL)
    assert f"camera north: {says}" in str(refused.value)
