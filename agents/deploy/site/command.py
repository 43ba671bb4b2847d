"""Command line ``hitmac site``: make a site from a plan, convert recordings, calibrate cameras, check all of them."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.agents.command_line import Forms, run_form
from hitmac.agents.deploy.camera import View
from hitmac.agents.deploy.run.cameras import names_of
from hitmac.agents.deploy.run.command import running
from hitmac.agents.deploy.run.drivers import Onvif, Visca, load_cameras, read_cameras
from hitmac.agents.deploy.run.pictures import load_views, shared_with
from hitmac.agents.deploy.site.calibrate import COLUMNS, calibrate, walked
from hitmac.agents.deploy.site.check import check, proposed, read_recorded
from hitmac.agents.deploy.site.homography import apply, fit_file, read_homography
from hitmac.agents.deploy.site.plan import Frame, number, read_columns, read_plan
from hitmac.agents.deploy.site.recordings import ENDINGS, READERS, write_recorded
from hitmac.agents.deploy.site.zero import TURN, turned, write_settings
from hitmac.envs import validation
from hitmac.envs.features import wrapped
from hitmac.envs.files import check_output, dump_yaml, write_text
from hitmac.envs.parts.sensors import limits_of
from hitmac.envs.scenario import Scenario, load_scenario, portable
from hitmac.envs.validation import NotNegative, convert, did_you_mean

PROGRAM = "hitmac site"
WAYS = {"left": -1, "right": 1}
"""Ways that the things in a picture move, and the sign of the turn of its camera, counter-clockwise from above."""
WALKING = {"time_step": 0.2, "min_speed": 0.5, "max_speed": 1.5}
"""Parameters of a site without tracks: people who walk."""


@dataclass(frozen=True)
class Make:
    """Make site.yaml from a plan in GeoJSON and a table of cameras, then check it."""

    plan: Path = Path("plan.geojson")
    """GeoJSON whose features have the property kind: wall, door, zone or camera. As the first
    argument, it needs no --plan."""
    cameras: Path | None = None
    """CSV file of cameras: x, y, name, heading, field_of_view, range, pan_low, pan_high and turn_angle."""
    metres: bool = False
    """The plan is in metres, not in longitude and latitude."""
    margin: float = 0.0
    """Width of a border around the plan, metres."""
    tracks: tuple[str, ...] = ()
    """CSV files of recorded tracks in the frame of the site."""
    to: Path = Path("site.yaml")
    """File of the scenario; the picture is beside it."""


@dataclass(frozen=True)
class Convert:
    """Convert a recording to the tracks of a site."""

    recording: Path = Path("recording.txt")
    """MOTChallenge text, SUMO's FCD (.xml, .xml.gz), CSV, JSON of Frigate's events, or lines of DeepStream (.jsonl).
    As the first argument, it needs no --recording."""
    format: str = ""
    """Format: mot, sumo, csv, frigate or deepstream; empty: by the ending, with .txt as mot."""
    camera: str = ""
    """Camera of the site whose view, in --cameras, leads from its pictures to the floor, in place of a homography."""
    cameras: Path = Path("cameras.yaml")
    """File of the cameras, as of hitmac run."""
    pose: tuple[float, float, float] = (0.0, 0.0, 1.0)
    """Pan, tilt and zoom of this camera, which stands still."""
    homography: Path | None = None
    """From the picture to the floor: CSV of pairs of points, u, v, x, y, or a file of a 3 x 3 matrix."""
    origin: tuple[float, float] = (0.0, 0.0)
    """Origin of the site, as hitmac site make prints it; the file of hitmac site homography has it already."""
    geographic: bool = False
    """Positions, or those of the pairs of points, are longitude and latitude."""
    fps: float = 0.0
    """Frames per second of MOTChallenge text; rows per second made of Frigate's paths."""
    picture: tuple[int, int] = (0, 0)
    """Width and height of the homography's picture, pixels, for Frigate, whose positions are shares of them."""
    columns: str = ""
    """Other names of the columns of a CSV file, such as time=t,id=track, or numbers without a header."""
    site: str = ""
    """Site; positions outside of its area are left out."""
    to: Path = Path("tracks.csv")
    """File of the tracks."""


@dataclass(frozen=True)
class Homography:
    """Fit the homography of a camera to pairs of points, and show its residuals."""

    points: Path = Path("points.csv")
    """CSV file with a row for each of four or more pairs: pixel u, v, and place x, y as in the plan. As the first
    argument, it needs no --points."""
    origin: tuple[float, float] = (0.0, 0.0)
    """Origin of the site, as hitmac site make prints it."""
    geographic: bool = False
    """Places are longitude and latitude."""
    to: Path = Path("homography.json")
    """File of the 3 x 3 matrix, from pixels to the frame of the site."""


@dataclass(frozen=True)
class Check:
    """Draw a site with all that its cameras can see, and list what is odd."""

    site: str = "site.yaml"
    """YAML file of the site. As the first argument, it needs no --site."""
    tracks: tuple[str, ...] = ()
    """CSV files of recorded tracks in place of the site's."""
    columns: str = ""
    """Other names of their columns, such as time=t,id=track. Empty: the site's."""
    to: Path | None = None
    """File of the picture, .png. Left out: the site's name with .png."""


@dataclass(frozen=True)
class Zero:
    """Find the zero and the sign of a camera: turn it by 5 degrees, and write both into the file of the cameras."""

    camera: str = ""
    """Name of the camera. As the first argument, it needs no --camera."""
    site: str = "site.yaml"
    """YAML file of the site."""
    cameras: Path = Path("cameras.yaml")
    """File of the cameras, as of hitmac run."""
    towards: tuple[float, ...] = ()
    """Present heading of the camera, degrees, or the place x y in the site that is in the middle of its picture."""
    moved: str = ""
    """Way that the things in the upright picture move as it turns, left or right. Empty: asks."""
    yes: bool = False
    """Turn without asking."""


@dataclass(frozen=True)
class Calibrate:
    """Find height, angles and focal lengths of a camera, and write them into the file of the cameras."""

    rows: Path = Path("camera.csv")
    """CSV file with a row for each of four or more points on the floor: pixel u, v, pan, tilt and zoom of the device,
    and place x, y as in the plan. With --seen-by a file of lines of detections. As the first
    argument, it needs no --rows."""
    camera: str = ""
    """Name of the camera. Empty: the name of the file of rows."""
    seen_by: str = ""
    """Name of a calibrated camera, whose lines show where the people are that this camera sees at the same time."""
    site: str = "site.yaml"
    """YAML file of the site."""
    cameras: Path = Path("cameras.yaml")
    """File of the cameras, as of hitmac run."""
    picture: tuple[int, int] = (0, 0)
    """Width and height of the picture, pixels. Left out: that of the camera's present view."""
    height: NotNegative = 0.0
    """Height of the camera above the floor, metres; 0: it is found."""
    find_position: bool = False
    """The camera's place in the site is only approximate, and is found."""
    origin: tuple[float, float] = (0.0, 0.0)
    """Origin of the site, as hitmac site make prints it."""
    geographic: bool = False
    """Places are longitude and latitude."""


def make_site(options: Make) -> None:
    """Write a site; then check it."""
    check_output("--to", options.to, ".yaml", ".yml")
    parameters, frame, odd = read_plan(options.plan, options.cameras, options.metres, options.margin)
    parameters |= WALKING
    if options.tracks:
        step, speed = proposed([read_recorded(path) for path in options.tracks])
        moving = {"max_speed": speed} if speed else {}  # else all stand still
        parameters |= {"time_step": step, "min_speed": 0.0, **moving, "tracks": options.tracks}
    scenario = Scenario.from_dict({"name": options.to.stem, **parameters})
    every = portable(scenario, options.to.parent)
    saved = {name: value for name, value in every.items() if name in parameters and value != []}
    origin = "--origin {!r} {!r}".format(*frame.origin) + " --geographic" * frame.geographic
    write_text(options.to, f"# Recordings in the coordinates of {options.plan.name}: {origin}\n{dump_yaml(saved)}")
    width, height = scenario.extent
    print(f"{options.to}: {2 * width:.1f} m x {2 * height:.1f} m, {len(scenario.walls)} walls; {origin}")
    _report(scenario, options.to.with_suffix(".png"), odd)


def convert_recording(options: Convert) -> None:
    """Write the recording of another program as one of the site."""
    check_output("--to", options.to, ".csv")
    kind = options.format or ENDINGS.get(options.recording.suffix.lower(), "")
    if kind not in READERS:
        raise ValueError(f"--format is {kind!r}{did_you_mean(kind, READERS)}; it must be one of {', '.join(READERS)}")
    pictured = kind in ("mot", "frigate", "deepstream")
    if pictured and not ((options.fps > 0 or kind == "deepstream") and (options.homography or options.camera)):
        words = "--homography, from the picture to the floor, or --camera, which has a view"
        raise ValueError(f"--format {kind} requires --fps, over 0, and {words}")
    if options.camera and (options.homography or not (pictured and options.site)):
        words = "--site, and boxes in pictures: --format mot, frigate or deepstream"
        raise ValueError(f"--camera stands in place of --homography, and requires {words}")
    if kind == "frigate" and not options.camera and min(options.picture) < 1:
        raise ValueError("--format frigate requires --picture, the size of the homography's picture, width and height")
    frame, matrix, signed = Frame(options.origin, options.geographic), np.eye(3), True
    if options.homography and options.homography.suffix.lower() == ".csv":
        matrix, residuals = fit_file(options.homography, frame)
        frame = Frame()  # the matrix leads to the site
        print(residuals)
    elif options.homography:
        matrix, own, signed = read_homography(options.homography)
        if own != Frame() and frame not in (own, Frame()):
            raise ValueError(f"--origin and --geographic are not those of {options.homography}; leave them out")
        frame = frame if own == Frame() else Frame()
    pixels = options.picture if kind == "frigate" else (1, 1)
    area = load_scenario(options.site).extent if options.site else (math.inf, math.inf)
    rows = READERS[kind](options.recording, options.fps, options.columns)

    def on_floor(rows: Any) -> np.ndarray:
        points = np.multiply([row[:2] for row in rows], pixels)
        return frame.place(apply(matrix, points, below_horizon=signed))

    place = _seen(options, kind) if options.camera else on_floor
    count, ids, outside, absent = write_recorded(options.to, rows, place, area)
    found = f"{count:,} positions of {ids:,} targets; {outside:,} outside the area are left out"
    print(f"{options.to}: {found}" + f"; {absent:,} rows have no place" * bool(absent))


def _seen(options: Convert, kind: str) -> Callable[[Any], np.ndarray]:
    """Return the function from boxes in pictures of the camera to places (k, 2), NaN for those that do not count."""
    scenario, _ = running(load_scenario(options.site))
    if (view := load_views(options.cameras, scenario)[_index(options.camera, scenario)]) is None:
        raise ValueError(f"{options.cameras}: camera {options.camera} has no view; hitmac site calibrate finds one")
    if view.above and kind == "frigate":
        raise ValueError(f"above of camera {options.camera} is {view.above:g}; Frigate's paths, of feet, require 0")
    view = dataclasses.replace(view, classes=()) if kind == "mot" else view  # it names none
    (pan, tilt, zoom), size = options.pose, (1, 1) if kind == "frigate" else view.detect or view.picture
    if np.isnan(view.focal_at(zoom)):
        known = f"{view.focal[0][0]:g} to {view.focal[-1][0]:g}"
        raise ValueError(f"--pose has the zoom {zoom:g}; the calibrated zooms of camera {options.camera} are {known}")
    scale = np.divide(view.picture, size)

    def place(rows: Any) -> np.ndarray:
        x, bottom, top, label, score = zip(*rows, strict=True)
        feet = np.column_stack((x, top if view.above else bottom)) * scale
        places = view.floor(feet, view.zero + view.sign * pan, tilt, zoom, view.above)
        return np.where(view.counts(feet, label, score)[:, None], places, np.nan)

    return place


def fit_homography(options: Homography) -> None:
    """Write the homography of pairs of points, and print its residuals."""
    check_output("--to", options.to, ".json")
    matrix, residuals = fit_file(options.points, Frame(options.origin, options.geographic))
    found = {"homography": matrix.tolist(), "origin": options.origin, "geographic": options.geographic}
    write_text(options.to, json.dumps(found) + "\n")
    print(f"{residuals}\n{options.to}")


def check_site(options: Check) -> None:
    """Draw a site, and print what is odd."""
    to = options.to or Path(f"{Path(options.site).stem}.png")
    check_output("--to", to, ".png")
    _report(load_scenario(options.site).following(options.tracks, options.columns), to, [])


def calibrate_camera(options: Calibrate) -> None:
    """Write the view of a camera, and print how it fits the rows."""
    height = convert("--height", NotNegative, options.height)
    scenario, _ = running(load_scenario(options.site))
    i = _index(options.camera or options.rows.stem, scenario)
    drivers, views = load_cameras(options.cameras, scenario), load_views(options.cameras, scenario)
    if (view := views[i]) is None:
        if min(options.picture) < 1:
            raise ValueError("--picture must be the size of the picture, width and height, for a camera without a view")
        view = View(**shared_with(drivers[i], scenario, i))
    view = dataclasses.replace(view, picture=options.picture) if min(options.picture) > 0 else view
    errors: Any = 0.0
    if options.seen_by:
        views[i] = view
        rows, errors = walked(options.rows, scenario, views, i, _index(options.seen_by, scenario))
    else:
        rows = _rows(options, view)
    known: dict[str, Any] = {"height": height or None, "find_position": options.find_position}
    view, report, unknown = calibrate(rows, view, place_errors=errors, **known)
    print("\n".join(report + [f"the rows do not determine the {one}" for one in unknown]))
    own = read_cameras(options.cameras, scenario)[i].get("view") or {}
    keys = ["picture", "height", "focal", "distortion", "roll", "tilt", "zoom"] + ["position"] * options.find_position
    angles = ["zero", "sign", "tilt_zero", "tilt_sign"]
    found = {key: validation.plain(getattr(view, key)) for key in keys + angles}
    settings: dict[str, Any] = {}
    if isinstance(drivers[i], Onvif | Visca):
        settings = {key: found.pop(key) for key in angles}
        own = {key: value for key, value in own.items() if key not in angles}
    else:
        print(f"its driver has no zero: its program must turn to the heading {view.zero:g} + {view.sign:g} * pan")
    write_settings(options.cameras, scenario, i, settings | {"view": own | found})
    name, also = names_of(scenario)[i], ", and its zeros and signs" * bool(settings)
    print(f"{options.cameras}: {name} has the view found{also}")


def _rows(options: Calibrate, view: View) -> np.ndarray:
    """Return the rows (k, 7) of a file, whose places are in the plan."""
    found = []
    for where, row in read_columns(options.rows, COLUMNS):
        found.append([number(where, name, row[name]) for name in COLUMNS])
        if not all(0.0 <= pixel <= most for pixel, most in zip(found[-1], view.picture, strict=False)):
            raise ValueError(f"{where}: the pixel is {found[-1][:2]}; the picture is {validation.plain(view.picture)}")
    rows = np.array(found).reshape(-1, len(COLUMNS))
    rows[:, 5:] = Frame(options.origin, options.geographic).place(rows[:, 5:])
    return rows


def _index(camera: str, scenario: Scenario) -> int:
    """Return the index of a camera by its name."""
    names = names_of(scenario)
    if camera not in names:
        raise ValueError(f"unknown camera {camera!r}{did_you_mean(camera, names)}: known are {', '.join(names)}")
    return names.index(camera)


def find_zero(options: Zero) -> None:
    """Turn a camera, and write its zero and its sign."""
    scenario, _ = running(load_scenario(options.site))
    names, place, moved = names_of(scenario), options.towards, options.moved
    i = _index(options.camera, scenario)
    if not (len(place) in (1, 2) and np.isfinite(place).all()):
        raise ValueError(
            f"--towards is {place}; it must be a heading, degrees, or the place x y of what is in the middle"
        )
    if moved not in ("", *WAYS):
        raise ValueError(f"--moved is {moved!r}; it must be left or right")
    away = np.subtract(place, scenario.sensor_positions[i])
    heading = place[0] if len(place) == 1 else math.degrees(math.atan2(away[1], away[0]))
    camera = load_cameras(options.cameras, scenario)[i]
    if not isinstance(camera, Onvif | Visca):
        raise ValueError(f"{options.cameras}: the driver of camera {names[i]} has no zero; onvif and visca have")
    if not options.yes and _ask(f"Turn camera {names[i]} by {TURN:g} degrees? [yes/no] ") != "yes":
        raise ValueError("the camera is not turned; answer yes, or give --yes")
    pan, grows = turned(camera, names[i], heading, limits_of(scenario)[i])
    while moved not in WAYS:
        moved = _ask("Which way did the things in the upright picture move? [left/right] ")
    sign = WAYS[moved] * grows
    zero = round(float(wrapped(heading - sign * pan)), 2)
    write_settings(options.cameras, scenario, i, {"zero": zero, "sign": sign})
    print(f"{options.cameras}: {names[i]} has zero: {zero:g}, sign: {sign}; before {camera.zero:g}, {camera.sign:g}")


def _ask(question: str) -> str:
    try:
        return input(question).strip().lower()
    except EOFError:
        raise ValueError(f"{question.strip()} is not answered; see --yes and --moved") from None


def _report(scenario: Scenario, picture: Path, odd: list[str]) -> None:
    facts, found = check(scenario, picture)
    print("\n".join([f"{picture}: {facts[0]}", *facts[1:], *(f"odd: {line}" for line in odd + found)]))


FORMS: Forms = {
    "make": (Make, make_site, "--plan"),
    "tracks": (Convert, convert_recording, "--recording"),
    "homography": (Homography, fit_homography, "--points"),
    "calibrate": (Calibrate, calibrate_camera, "--rows"),
    "zero": (Zero, find_zero, "--camera"),
    "check": (Check, check_site, "--site"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    run_form(PROGRAM, FORMS, arguments)
