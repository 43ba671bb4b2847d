"""The command line ``hitmac site``: from a plan and a recording to a site that runs, and refusals."""

import json
import shlex

import numpy as np
import pytest

from hitmac.agents.deploy.site.command import main
from hitmac.envs import load_scenario
from hitmac.envs.simulator import Simulator
from tests.agents.deploy.site.test_plan import ROOM, feature
from tests.agents.deploy.site.test_recordings import SUMO, events

POINTS = "u,v,x,y\n0,0,0,10\n640,0,20,10\n640,480,20,0\n0,480,0,0\n"


@pytest.fixture
def site(tmp_path, monkeypatch, capsys):
    """Runs a command line in a folder with a plan, cameras, pairs of points and recordings; returns what it prints."""
    monkeypatch.chdir(tmp_path)
    features = [feature("wall", "Polygon", [ROOM]), feature("door", "Point", [4, 0], width=2)]
    (tmp_path / "plan.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    (tmp_path / "cameras.csv").write_text("name,x,y,heading\nnorth,0.2,9.8,-45\ndoor,19.8,0.2,135\n")
    (tmp_path / "points.csv").write_text(POINTS)
    lines = (f"{k},1,{100 + k},40,20,200\n{k},2,400,{100 + k},20,{200 + k}\n" for k in range(1, 101))
    (tmp_path / "day.txt").write_text("".join(lines))

    def run(line):
        main(shlex.split(line))
        return capsys.readouterr().out

    return run


def test_a_plan_and_a_recording_make_a_site_that_runs(site, tmp_path):
    printed = site("make plan.geojson --cameras cameras.csv --metres").splitlines()
    assert printed[0] == "site.yaml: 20.0 m x 10.0 m, 5 walls; --origin 10.0 5.0"
    assert printed[1].startswith("site.png: no camera can ever see ")
    printed = site("tracks day.txt --homography points.csv --origin 10 5 --fps 25 --site site.yaml --to day.csv")
    assert printed.endswith("day.csv: 190 positions of 2 targets; 10 outside the area are left out\n")
    # The foot of box 1 is at u = 111, v = 240 of 640 x 480, so at 20 * 111 / 640 - 10 and 0 m in the site.
    assert (tmp_path / "day.csv").read_text().splitlines()[1].startswith("0.0,1,-6.531,")
    printed = site("make plan.geojson --cameras cameras.csv --metres --tracks day.csv --to with.yaml").splitlines()
    assert printed[1].startswith("with.png: no camera can ever see ")
    assert printed[2] == "proposed: time_step: 0.12, max_speed: 1"
    saved = (tmp_path / "with.yaml").read_text()
    assert "zones" not in saved
    assert saved.startswith("# Recordings in the coordinates of plan.geojson: --origin 10.0 5.0\nnum_sensors: 2\n")
    scenario = load_scenario("with.yaml")
    assert (scenario.name, scenario.time_step, scenario.max_speed, scenario.num_targets) == ("with", 0.12, 1.0, 2)
    assert (scenario.sensor_names, scenario.walk) == (("north", "door"), "recorded")
    simulator = Simulator(scenario, seed=0)
    np.testing.assert_allclose(simulator.state.target_position[0, 0], (-6.531, 0), atol=1e-9)
    assert site("check with.yaml --tracks day.csv --to again.png").startswith("again.png: no camera")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "with.png").read_bytes()
    assert site("check with.yaml").startswith("with.png: no camera")
    (tmp_path / "still.csv").write_text("time,id,x,y\n" + "".join(f"{k / 5},a,1,2\n" for k in range(9)))
    site("make plan.geojson --cameras cameras.csv --metres --tracks still.csv --to still.yaml")
    assert load_scenario("still.yaml").max_speed == 1.5


def test_a_homography_has_a_file_that_gives_the_same_tracks(site, tmp_path, error_of):
    assert "four pairs always fit" in site("homography points.csv --origin 10 5")
    site("tracks day.txt --homography points.csv --origin 10 5 --fps 25")
    (tmp_path / "upper.CSV").write_text(POINTS)
    site("tracks day.txt --homography upper.CSV --origin 10 5 --fps 25 --to upper.csv")
    assert (tmp_path / "upper.csv").read_text() == (tmp_path / "tracks.csv").read_text()
    for origin in ("", "--origin 10 5"):  # which is applied once
        site(f"tracks day.txt --homography homography.json {origin} --fps 25 --to from-file.csv")
        assert (tmp_path / "from-file.csv").read_text() == (tmp_path / "tracks.csv").read_text()
    line = "tracks day.txt --homography homography.json --origin 10 6 --fps 25 --to no.csv"
    assert "homography.json" in error_of(main, *line.split())
    # A matrix to the coordinates of the plan is moved by the origin.
    site("homography points.csv --to plan.json")
    site("tracks day.txt --homography plan.json --origin 10 5 --fps 25")
    moved, known = (np.genfromtxt(name, delimiter=",", skip_header=1) for name in ("tracks.csv", "from-file.csv"))
    np.testing.assert_allclose(moved, known, atol=1.1e-3)


def test_the_format_is_that_of_the_ending_and_shares_are_of_the_picture(site, tmp_path):
    (tmp_path / "fcd.xml").write_text(SUMO)
    (tmp_path / "other.csv").write_text("t,id,x,y\n0,a,1,2\n1,a,2,2\n")
    (tmp_path / "events.json").write_text(json.dumps(events()))
    for line, row in (
        ("tracks fcd.xml --origin 1 -2", "0.0,vehicle:3,0.500,0.000"),
        ("tracks other.csv --columns time=t", "0.0,a,1.000,2.000"),
        ("tracks day.txt --format mot --fps 10 --homography points.csv", "0.0,1,3.469,5.000"),
        ("tracks events.json --fps 2 --picture 640 480 --homography points.csv", "100.5,1.5-a,10.500,1.500"),
    ):
        site(line)
        assert (tmp_path / "tracks.csv").read_text().splitlines()[1] == row, line


def test_positions_in_longitude_and_latitude_are_placed_about_the_origin(site, tmp_path):
    pytest.importorskip("pyproj", reason="the extra site")
    (tmp_path / "fcd.xml").write_text(SUMO.replace('"1.50" y="-2"', '"11.571" y="48.0"').split("<person")[0]
                                      + "</timestep></fcd-export>")  # fmt: skip
    site("tracks fcd.xml --origin 11.57 48.0 --geographic")
    assert (tmp_path / "tracks.csv").read_text() == "time,id,x,y\n0.0,vehicle:3,74.625,0.000\n"


def test_the_forms_are_listed(site, capsys):
    for line in ("", "--help"):
        with pytest.raises(SystemExit) as end:
            site(line)
        assert not end.value.code
        listed = capsys.readouterr().out
        assert listed.startswith("usage: hitmac site FORM [OPTIONS]\n")
        assert listed.count("\n  ") == 6


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("mak", "unknown form 'mak' (did you mean make?): known are make, tracks, homography, calibrate, zero, check"),
        ("make plan.geojson", "plan.geojson has no feature of the kind camera; give --cameras"),
        ("make plan.geojson --to site.png", "--to is 'site.png'; its name must end in .yaml or .yml"),
        ("tracks day.txt --to day.xml", "--to is 'day.xml'; its name must end in .csv"),
        ("tracks day.avi", "--format is ''; it must be one of mot, sumo, csv, frigate, deepstream"),
        ("tracks day.txt --format mott", "--format is 'mott' (did you mean mot?); it must be one of mot, sumo"),
        ("tracks day.txt --fps 25", "--format mot requires --fps, over 0, and --homography, from the picture"),
        ("tracks e.json --fps 5 --homography points.csv", "--format frigate requires --picture, the size"),
        ("homography points.csv --to out.yaml", "--to is 'out.yaml'; its name must end in .json"),
        ("check site.yaml --to site.gif", "--to is 'site.gif'; its name must end in .png"),
        ("make plans.geojson", "plans.geojson: No such file or directory"),
        ("check hit-mac", "placement is areas; a site requires fixed, with sensor_positions"),
    ],
)
def test_a_bad_command_line_ends_with_one_line_and_no_file(line, says, site, error_of):
    error = error_of(main, *shlex.split(line))
    assert error.startswith("hitmac site: error: ")
    assert says in error
