"""Plans in GeoJSON and tables of cameras."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitmac.agents.deploy.site.plan import Frame, read_plan, without
from hitmac.envs import Scenario, load_scenario

HALL = Path(__file__).parents[4] / "examples/site"
ROOM = [[0, 0], [20, 0], [20, 10], [0, 10], [0, 0]]
CAMERAS = "name,x,y\nnorth,1,9\n"


def feature(kind, shape, coordinates, **properties):
    geometry = {"type": shape, "coordinates": coordinates}
    return {"type": "Feature", "properties": {"kind": kind, **properties}, "geometry": geometry}


@pytest.fixture
def read(tmp_path):
    """Reads a plan of features, in metres unless said otherwise, with a table of cameras."""

    def read(features, cameras=CAMERAS, metres=True, margin=0.0):
        plan, table = tmp_path / "plan.geojson", tmp_path / "cameras.csv"
        plan.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        table.write_text(cameras)
        return read_plan(plan, table if cameras else None, metres, margin)

    return read


def test_the_plan_and_the_cameras_of_the_hall_are_those_of_its_site():
    own, frame, notes = read_plan(HALL / "plan.geojson", HALL / "cameras.csv", True, 0.0)
    site = load_scenario(HALL / "site.yaml")
    assert (frame.origin, notes) == ((0.0, 0.0), [])
    assert sorted(map(tuple, own["walls"])) == sorted(site.walls)
    for name in ("arena", "sensor_positions", "sensor_headings", "sensing_range", "field_of_view", "pan_limits"):
        np.testing.assert_array_equal(own[name], getattr(site, name))


def test_walls_in_metres_are_centred(read):
    features = [
        feature("wall", "Polygon", [ROOM]),
        feature("wall", "LineString", [[12, 0, 3.5], [12, 6, 3.5]]),  # with an altitude
        feature("wall", "MultiLineString", [[[1, 1], [2, 1]], [[1, 2], [1, 2], [2, 2]]]),  # a point twice
        feature("wall", "MultiPolygon", [[[[5, 5], [6, 5], [6, 6], [5, 5]]]]),
    ]
    parameters, frame, odd = read(features)
    assert (frame, odd) == (Frame((10.0, 5.0)), [])
    assert parameters["arena"] == [10, 5]
    assert parameters["walls"] == [
        [-10, -5, 10, -5], [10, -5, 10, 5], [10, 5, -10, 5], [-10, 5, -10, -5], [2, -5, 2, 1],
        [-9, -4, -8, -4], [-9, -3, -8, -3], [-5, 0, -4, 0], [-4, 0, -4, 1], [-4, 1, -5, 0],
    ]  # fmt: skip
    assert parameters["sensor_positions"] == [[-9, 4]]
    assert read(features, margin=1.5)[0]["arena"] == [11.5, 6.5]
    Scenario.from_dict(parameters)


def test_longitude_and_latitude_become_metres_about_the_middle(read):
    """The radii of curvature of the WGS 84 ellipsoid at 48 degrees give the metres of small differences."""
    pytest.importorskip("pyproj", reason="the extra site")
    features = [feature("wall", "LineString", [[11.57, 47.9995], [11.571, 48.0005]])]
    parameters, frame, _ = read(features, "longitude,latitude\n11.5701,48\n", metres=False)
    sine, squared = math.sin(math.radians(48)), 0.00669437999014
    normal = 6378137 / math.sqrt(1 - squared * sine**2)
    meridian = 6378137 * (1 - squared) / (1 - squared * sine**2) ** 1.5
    east, north = (math.radians(0.0005) * radius for radius in (normal * math.cos(math.radians(48)), meridian))
    np.testing.assert_allclose(frame.origin, (11.5705, 48.0), rtol=1e-12)
    np.testing.assert_allclose(parameters["walls"], [[-east, -north, east, north]], atol=2e-3)
    np.testing.assert_allclose(parameters["sensor_positions"], [[-0.8 * east, 0]], atol=2e-3)
    np.testing.assert_allclose(parameters["arena"], [east, north], atol=2e-3)
    np.testing.assert_array_equal(np.isnan(frame.place([(math.nan, math.nan), (11.57, 48)])), [[1, 1], [0, 0]])


def test_doors_are_cut_out_of_walls(read):
    features = [
        feature("wall", "Polygon", [ROOM]),
        feature("door", "Point", [4, 0], width=2),
        feature("door", "Point", [20, 0]),  # at a corner, half a metre of either wall
        feature("door", "LineString", [[20, 4], [20, 6]]),
        feature("door", "Point", [10, 5]),
    ]
    parameters, _, odd = read(features)
    walls = sorted(parameters["walls"])
    assert walls == sorted(
        [[-10, -5, -7, -5], [-5, -5, 9.5, -5], [10, -4.5, 10, -1], [10, 1, 10, 5], [10, 5, -10, 5], [-10, 5, -10, -5]]
    )
    (line,) = odd
    assert line.endswith("feature 5: the door is on no wall")


@given(*[st.floats(-5, 5)] * 6, st.floats(0.1, 8))
def test_what_a_door_leaves_of_a_wall_is_beyond_half_its_width(x1, y1, x2, y2, x, y, width):
    wall = np.array([[x1, y1, x2, y2]])
    if math.dist(wall[0, :2], wall[0, 2:]) > 0.01:
        left = without(wall, np.array([x, y]), width)
        share = np.linspace(0, 1, 50)[:, None, None]
        points = left[:, :2] + share * (left[:, 2:] - left[:, :2])
        assert (np.linalg.norm(points - (x, y), axis=-1) >= width / 2 - 1e-6).all()
        whole = wall[:, :2] + np.linspace(0, 1, 2001)[:, None] * (wall[:, 2:] - wall[:, :2])
        beyond = (np.linalg.norm(whole - (x, y), axis=-1) > width / 2).mean() * math.dist(wall[0, :2], wall[0, 2:])
        assert np.linalg.norm(left[:, 2:] - left[:, :2], axis=1).sum() == pytest.approx(beyond, abs=0.02)


def test_cameras_are_features_and_rows_with_defaults(read):
    features = [feature("wall", "Polygon", [ROOM]),
                feature("camera", "Point", [2, 3], name="hall", range=30, heading=45, colour="red")]  # fmt: skip
    table = "Name;Longitude;Latitude;pan_low;pan_high;field_of_view;feild_of_view\n;4;5;-90;0;60;1\neast;19;9;;;;\n"
    parameters, _, odd = read(features, table)
    assert parameters["sensor_names"] == ["hall", "1", "east"]
    assert parameters["sensor_positions"] == [[-8, -2], [-6, 0], [9, 4]]
    assert parameters["sensor_headings"] == [45, -45, 0]
    assert parameters["pan_limits"] == [[-180, 180], [-90, 0], [-180, 180]]
    assert parameters["sensing_range"] == [30, 20, 20]
    assert parameters["field_of_view"] == [90, 60, 90]
    assert parameters["turn_angle"] == [5, 5, 5]
    assert odd == ["cameras: colour is not used", "cameras: feild_of_view is not used (did you mean field_of_view?)"]
    assert read(features, "")[0]["sensor_names"] == ["hall"]
    odd = read(features[:1], "x,y\n30,5\n10,10.5\n")[2]
    assert [line.partition(": ")[2] for line in odd] == ["the camera is 10.0 m outside the plan"]
    Scenario.from_dict(parameters)


@pytest.mark.parametrize(
    "table",
    [
        "name,x,y,range\nnorth,1.5,9,8\n",
        "\ufeffname; x ;y;range\r\nnorth;1,5;9,0;8\r\n",
        "y\trange\tname\tx\n9\t 8\tnorth\t1,5\n",
        "name   x y  range\nnorth 1.5  9 8 \n",
        'name,x,y,range,"seen; notes"\nnorth, 1.5,9,8,\n,,,,\n',
    ],
)
def test_tables_have_any_separator_decimal_commas_and_blanks(table, read):
    own, frame, notes = read([feature("wall", "Polygon", [ROOM])], table)
    np.testing.assert_allclose(np.add(own["sensor_positions"], frame.origin), [[1.5, 9.0]])
    assert (own["sensing_range"], own["sensor_names"]) == ([8.0], ["north"])
    assert all("seen; notes is not used" in note for note in notes)


def test_zones_are_outer_rings_with_their_values(read):
    hole = [[13, 1], [14, 1], [14, 2], [13, 1]]
    zones = [feature("zone", "Polygon", [[[12, 0], [20, 0], [20, 6], [12, 0]], hole], value=2.5),
             feature("zone", "Polygon", [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]], value="0")]  # fmt: skip
    parameters, _, (note,) = read([WALL, *zones])
    assert note.endswith("feature 2: the holes of the zone are filled")
    assert parameters["zones"] == [[[2, -5], [10, -5], [10, 1]], [[-10, -5], [-8, -5], [-8, -3], [-10, -3]]]
    assert parameters["zone_values"] == [2.5, 0]
    Scenario.from_dict(parameters)


WALL = feature("wall", "Polygon", [ROOM])


@pytest.mark.parametrize(
    ("features", "cameras", "says"),
    [
        ([WALL], "", "has no feature of the kind camera; give --cameras"),
        ([3], CAMERAS, "feature 1 is not a feature of a plan: AttributeError"),
        ([feature("wall", "LineString", [])], CAMERAS, "feature 1 .* its LineString has no coordinates"),
        ([feature("wall", "LineString", [[0, 0], [1, "2"], [1, None]])], CAMERAS, "y is None; it must be a finite"),
        ([feature("wall", "LineString", [[0, 0], [1, 10**400]])], CAMERAS, "y is 10+.*; it must be a finite"),
        ([WALL, feature("door", "Point", [4, 0], width="wide")], CAMERAS, "feature 2: width is 'wide'; it must be a f"),
        ([WALL, feature("zone", "Polygon", [ROOM])], CAMERAS, "feature 2: value is None; it must be a finite number"),
        ([], "x,y\n1,2\n5,2\n", "the plan and its cameras are on a line, in an area without a width; give --margin"),
        ([WALL], "name,x\nnorth,3\n", "cameras.csv: the header is 'name, x'; it must name x, y once each"),
        ([WALL], "x,y,heading\n1,2,north\n", "cameras.csv, line 2: heading is 'north'; it must be a finite number"),
        ([WALL], "x,y,pan_low\n1,2,-90\n", "line 2: it has one of pan_low and pan_high; give both or neither"),
    ],
)
def test_what_is_wrong_is_named(features, cameras, says, read):
    with pytest.raises(ValueError, match=says):
        read(features, cameras)


def test_metres_as_longitude_and_latitude_are_refused(read, tmp_path):
    pytest.importorskip("pyproj", reason="the extra site")
    with pytest.raises(ValueError, match=r"no longitude and latitude within 50 km of \(10, 5\).*give --metres"):
        read([WALL], metres=False)
    with pytest.raises(ValueError, match="no longitude and latitude"):
        read([feature("wall", "LineString", [[0, 400], [20, 410]])], metres=False)
    for text in ("{", "[]", '{"type": "FeatureCollection"}', '{"type": "FeatureCollection", "features": null}'):
        (tmp_path / "no.geojson").write_text(text)
        with pytest.raises(ValueError, match=r"no.geojson is not GeoJSON, a FeatureCollection"):
            read_plan(tmp_path / "no.geojson", None, True, 0.0)


def test_rings_that_are_not_closed_are_closed(read):
    parameters, _, odd = read(
        [feature("wall", "Polygon", [ROOM[:-1]]), feature("zone", "Polygon", [ROOM[:3]], value=2)]
    )
    assert len(parameters["walls"]) == 4
    assert [len(zone) for zone in parameters["zones"]] == [3]
    assert [line.partition(": ")[2] for line in odd] == ["a ring that is not closed is closed"] * 2


def test_what_is_not_of_a_plan_is_left_out_and_named(read):
    square, nothing = [[[2, 2], [4, 2], [4, 4], [2, 2]]], {"type": "GeometryCollection", "geometries": []}
    features = [
        feature("wall", "Polygon", [ROOM]),
        feature("wal", "LineString", ROOM),
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}},
        {"type": "Feature", "properties": {"kind": "door"}, "geometry": None},
        {"type": "Feature", "properties": {"kind": "wall"}, "geometry": nothing},
        feature("zone", "Point", [1, 2]),
        feature("zone", "MultiPolygon", [square, [[[6, 6], [8, 6], [8, 8], [6, 6]]]], value=3),
        feature("door", "MultiPoint", [[5, 0], [10, 10]]),
        feature(["wall"], "LineString", ROOM),
    ]
    parameters, _, odd = read(features)
    assert [line.partition("feature ")[2] for line in odd] == [
        "2 is left out: its kind is 'wal' (did you mean wall?), not one of wall, door, zone, camera",
        "3 is left out: its kind is None, not one of wall, door, zone, camera",
        "4 is left out: a door must be a Point or LineString or MultiPoint or MultiLineString, not without a geometry",
        "5 is left out: a wall must be a LineString or MultiLineString or Polygon or MultiPolygon, not "
        "GeometryCollection",
        "6 is left out: a zone must be a Polygon or MultiPolygon, not Point",
        "9 is left out: its kind is ['wall'] (did you mean wall?), not one of wall, door, zone, camera",
    ]
    assert (len(parameters["walls"]), parameters["zone_values"]) == (6, [3, 3])


def test_a_declared_coordinate_system_is_converted(tmp_path):
    """A room of 20 x 10 m near 48 degrees north, in Web Mercator, whose metres are 1.49 times as long there."""
    pyproj = pytest.importorskip("pyproj", reason="the extra site")
    to_web = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:3857", always_xy=True)
    room = [(11.57 + x / 74_600, 48.0 + y / 111_200) for x, y in ROOM]
    plan = {"type": "FeatureCollection", "crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::3857"}}}
    plan["features"] = [
        feature("wall", "Polygon", [[to_web.transform(*point) for point in room]]),
        feature("camera", "Point", to_web.transform(*room[0])),
    ]
    (tmp_path / "web.geojson").write_text(json.dumps(plan))
    for metres in (True, False):
        parameters, frame, _ = read_plan(tmp_path / "web.geojson", None, metres, 0.0)
        assert frame.geographic
        np.testing.assert_allclose(parameters["arena"], [10, 5], rtol=0.01)
    tables = [("x,y", to_web.transform(*room[2])), ("latitude,longitude", room[2][::-1])]
    for header, place in tables:
        (tmp_path / "cameras.csv").write_text("{}\n{!r},{!r}\n".format(header, *place))
        parameters, _, _ = read_plan(tmp_path / "web.geojson", tmp_path / "cameras.csv", True, 0.0)
        np.testing.assert_allclose(parameters["sensor_positions"], [(-10, -5), (10, 5)], rtol=0.01)
    plan["crs"]["properties"]["name"] = "urn:x"
    (tmp_path / "web.geojson").write_text(json.dumps(plan))
    with pytest.raises(ValueError, match="its crs is 'urn:x', which is unknown"):
        read_plan(tmp_path / "web.geojson", None, True, 0.0)
