"""Calibration of a camera from rows of pixels, the pose of its head, and places on the floor."""

import dataclasses
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from hitmac.agents.deploy.camera import View, axes, distorted, undistorted
from hitmac.agents.deploy.run.boxes import Boxes
from hitmac.agents.deploy.run.cameras import names_of
from hitmac.agents.deploy.run.detections import parse
from hitmac.envs.features import wrapped
from hitmac.envs.scenario import Scenario

COLUMNS = ("u", "v", "pan", "tilt", "zoom", "x", "y")
"""Columns of the rows: a pixel, pan and tilt of the device in degrees, its zoom, and the place that the pixel shows."""

APART, MOST = 1.0, 100
"""Longest time between two places of which one between them is taken, seconds; number of rows of people who walk."""

UNKNOWN = 0.5
"""Share of the deviation before the rows above which that after them counts as not determined."""

_HEIGHTS, _WIDTHS = (3.0, 6.0, 12.0), (0.5, 1.0, 2.5)  # of the starts: metres, focal lengths in pictures' widths
_BETTER = 9.0  # twice the difference of two likelihoods, in logarithms, above which a sign is determined
_LARGEST = 1e6  # number of a row
_WRONG = 6.0  # residual, in deviations, of a row that does not fit
_FAR, _LARGE = 1e3, 3.0  # residuals, in deviations, of a place that the pixel cannot show, and that begin to count less
_WORDS = {
    "zero": ("zero of pan", "degrees", 100.0),
    "tilt_zero": ("zero of tilt", "degrees", 60.0),
    "roll": ("roll", "degrees", 5.0),
    "distortion": ("distortion", "", 0.1),
    "height": ("height", "m", 6.0),
    "x": ("x", "m", 3.0),
    "y": ("y", "m", 3.0),
}
"""Words, unit and deviation before the rows of each parameter; of the logarithm of a focal length it is 1."""


class Calibration(NamedTuple):
    """Calibrated camera, and the lines that describe it."""

    view: View
    report: list[str]
    unknown: list[str]


def calibrate(
    rows: np.ndarray, view: View, *, height: float | None = None, find_position: bool = False, place_errors: Any = 0.0
) -> Calibration:
    """Fit the model of a camera to rows (k, 7) of :data:`COLUMNS`, by least squares from several starts.

    The residuals are differences in pixels, in units of their deviation by `pixel_error` and `angle_error` of the
    `view`; large ones count less (Cauchy's loss). Weak priors, :data:`_WORDS`, hold what the rows do not determine: a
    parameter whose deviation after the rows is over :data:`UNKNOWN` of that before, and a sign without which the rows
    are as likely, is reported as such. Each of few zooms has its own focal length; of many, the lowest, middle and
    highest have one. Raises ValueError for fewer than four rows, and for absurd numbers.

    Args:
        rows: (k, 7) numbers.
        view: picture and errors of the camera, its position, and the signs where the rows do not determine them.
        height: known height above the floor, metres; None: it is found.
        find_position: the position is only approximate, and is found.
        place_errors: (k,) standard deviations of the places, metres.
    """
    if len(rows) < 4:
        raise ValueError(f"got {len(rows)} rows; a calibration requires at least four")
    for k, column in np.argwhere(~(np.abs(rows) < _LARGEST)).tolist():
        raise ValueError(f"{COLUMNS[column]} of row {k + 1} is {rows[k, column]:g}; it must be under {_LARGEST:g}")
    problem = _Problem(rows, view, height, find_position, place_errors)
    best: dict[tuple[int, int], Any] = {}  # by the signs of pan and tilt
    for signs in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
        starts = [problem.start(*signs, h, w * view.picture[0]) for h, w in product(_HEIGHTS, _WIDTHS)]
        near = min((problem.solve(start, signs, "angles") for start in starts), key=lambda found: float(found.cost))
        best[signs] = problem.solve(near.x, signs, "pixels")
    kept = view.sign, view.tilt_sign
    signs = min(best, key=lambda pair: best[pair].cost - 0.5 * _BETTER * sum(np.equal(pair, kept)))
    found, unknown = best[signs], []
    for k, word in enumerate(("pan", "tilt")):
        other = min(own.cost for pair, own in best.items() if pair[k] != signs[k])
        if 2.0 * (other - found.cost) < _BETTER:
            unknown.append(f"sign of {word}")
    deviation = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)))
    report = []
    for name, value, own in zip(problem.names, found.x, deviation, strict=True):
        words, unit, before = _WORDS.get(name, (name, "pixels", 1.0))
        if unit == "pixels":
            value, own, before = math.exp(value), own * math.exp(value), math.exp(value)
        report.append(f"{words:<22} {value:10.4g} +- {own:.2g} {unit}".rstrip())
        if own > UNKNOWN * before:
            unknown.append(words)
    solved = problem.view(found.x, signs)
    pose = solved.zero + solved.sign * rows[:, 2], rows[:, 3], rows[:, 4]
    pixels, places = solved.pixels(rows[:, 5:], *pose), solved.floor(rows[:, :2], *pose)
    away = np.linalg.norm(pixels - rows[:, :2], axis=1), np.linalg.norm(places - rows[:, 5:], axis=1)
    table = [f"{'row':>4} {'u':>8} {'v':>8} {'x':>9} {'y':>9} {'residual, pixels':>17} {'metres':>8}"]
    for k, row in enumerate(np.column_stack((rows[:, (0, 1, 5, 6)], *away)), 1):
        table.append("{:4} {:8.1f} {:8.1f} {:9.3f} {:9.3f} {:17.2f} {:8.3f}".format(k, *row))
    table.append(f"median: {np.nanmedian(away[0]):.2f} pixels, {np.nanmedian(away[1]):.3f} m")
    error = problem.deviation(solved.focal_at(rows[:, 4]))
    if wrong := (np.flatnonzero(~(away[0] < _WRONG * error)) + 1).tolist():
        table.append(f"rows that do not fit the others: {', '.join(map(str, wrong))}; are they swapped?")
    return Calibration(solved, table + report, unknown)


def walked(
    path: Path, scenario: Scenario, views: Sequence[View | None], i: int, j: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (k, 7) of :data:`COLUMNS` for camera i, and deviations (k,) of their places, from people who walk.

    The file has lines of detections, as ``hitmac run`` takes them: boxes with `pan` and `tilt` of camera i, and places,
    or also such boxes, of camera j, which is calibrated. A row is a time at which each of both detects exactly one
    person; its place is that between the two of camera j around the time, at most :data:`APART` seconds apart. Of many
    rows, :data:`MOST` remain, evenly. Raises ValueError, which names the line, for an invalid one.
    """
    names, shown, seen = names_of(scenario), list[tuple[float, ...]](), list[tuple[float, ...]]()
    sources = {view.source: k for k, view in enumerate(views) if view and view.source}
    noise = float(np.sqrt(np.square(scenario.position_errors).mean()))
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            camera, when, given = parse(line, names, sources) if line.strip() else (-1, 0.0, [])
            view = views[camera]
            if camera not in (i, j):
                continue
            if when is None:
                raise ValueError("it has no time")
            if not isinstance(given, Boxes):
                seen += [(when, *map(float, given[0][:2]), noise)] if camera == j and len(given) == 1 else []
                continue
            if view is None or math.isnan(given.pan):
                raise ValueError(f"camera {names[camera]} has no view, or its boxes have no pan")
            box, (heading, tilt, zoom) = view.kept(given), view.pose(given)
            when -= view.latency or 0.0
            if len(box) != 1:
                continue
            if camera == i:
                pan = view.sign * (heading - view.zero)
                shown.append((when, (box[0, 0] + box[0, 2]) / 2, box[0, 3], pan, tilt, zoom))
            elif np.isfinite(row := view.place(box, heading, tilt, zoom)[0]).all():
                seen.append((when, *row[:2], math.sqrt((row[2] + row[4]) / 2)))
        except (ValueError, TypeError, LookupError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    if not (shown and seen):
        raise ValueError(f"{path} has no two times at which {names[i]} and {names[j]} detect one person each")
    own, other = np.array(sorted(shown)), np.array(sorted(seen))
    after = np.searchsorted(other[:, 0], own[:, 0])
    inside = (after > 0) & (after < len(other))
    gap = other[np.minimum(after, len(other) - 1), 0] - other[after - 1, 0]
    own = own[inside & (gap <= APART) & (own[:, 2] < 0.99 * views[i].picture[1])]  # type: ignore[union-attr]
    own = own[:: 1 + len(own) // MOST]
    x, y, deviations = (np.interp(own[:, 0], other[:, 0], other[:, k]) for k in (1, 2, 3))
    return np.column_stack((own[:, 1:], x, y)), deviations


class _Problem:
    """Least-squares problem of some rows: its parameters, their starts and its residuals."""

    def __init__(
        self, rows: np.ndarray, view: View, height: float | None, find_position: bool, place_errors: Any
    ) -> None:
        self._rows, self._view, self._height = rows, view, height
        self._position = np.array(view.position or (0.0, 0.0))
        away = np.linalg.norm(rows[:, 5:] - self._position, axis=1)
        self._angles = np.hypot(math.radians(view.angle_error), place_errors / np.maximum(away, 1.0))  # radians
        zooms = np.unique(rows[:, 4])
        if len(zooms) > max(len(rows) // 3, 1):
            zooms = np.unique(np.quantile(zooms, (0.0, 0.5, 1.0) if len(rows) > 8 else (0.0, 1.0)))
        self._zooms, self._middle = zooms, np.divide(view.picture, 2)
        self.names = ["zero", "tilt_zero", "roll", "distortion"] + ["height"] * (height is None)
        self.names += ["x", "y"] * find_position + [f"focal length at {zoom:g}" for zoom in zooms]

    def start(self, sign: int, tilt_sign: int, height: float, focal: float) -> np.ndarray:
        """Return parameters (p,): the zeros that fit the rows on average, with a height and a focal length."""
        u, v, pan, tilt, _, x, y = self._rows.T
        right, down = np.degrees(np.arctan((np.stack((u, v)) - self._middle[:, None]) / focal))
        away = np.stack((x, y)) - self._position[:, None]
        turn = np.radians(np.degrees(np.arctan2(*away[::-1])) + right - sign * pan)
        zero = math.degrees(math.atan2(np.sin(turn).mean(), np.cos(turn).mean()))
        sunk = np.degrees(np.arctan2(self._height or height, np.linalg.norm(away, axis=0)))
        own = {"zero": zero, "tilt_zero": np.mean(sunk - down - tilt_sign * tilt), "height": height}
        own |= {"x": self._position[0], "y": self._position[1], "roll": 0.0, "distortion": 0.0}
        return np.array([own.get(name, math.log(focal)) for name in self.names])

    def deviation(self, focal: np.ndarray) -> np.ndarray:
        """Return the standard deviations (k,) of the pixels of the rows."""
        return np.hypot(self._view.pixel_error, self._angles * focal)

    def solve(self, start: np.ndarray, signs: tuple[int, int], kind: str) -> Any:
        """Return the least-squares solution from a start, by residuals of a kind."""
        most = 200 if kind == "pixels" else 30
        return least_squares(self._residuals, start, x_scale="jac", max_nfev=most, args=(start, signs, kind))

    def _split(self, given: np.ndarray) -> tuple[dict[str, float], np.ndarray]:
        """Return the named parameters, and the focal lengths at the zooms."""
        own = dict(zip(self.names, given.tolist(), strict=True))
        own = {"height": self._height or 0.0, "x": self._position[0], "y": self._position[1]} | own
        return own, np.exp(np.clip(given[-len(self._zooms) :], 0.0, 14.0))

    def _residuals(self, given: np.ndarray, start: np.ndarray, signs: tuple[int, int], kind: str) -> np.ndarray:
        """Return the residuals (r,) of the rows, then those of the priors."""
        own, focal = self._split(given)
        u, v, pan, tilt, zoom, x, y = self._rows.T
        focal = np.interp(zoom, self._zooms, focal)
        turned = axes(own["zero"] + signs[0] * pan, own["tilt_zero"] + signs[1] * tilt, own["roll"])
        away = np.stack((x - own["x"], y - own["y"], np.full_like(x, -own["height"])), -1)
        seen = (turned @ away[..., None])[..., 0]
        offset = np.stack((u, v), -1) - self._middle
        if kind == "pixels":
            wrong = (distorted(seen, focal, own["distortion"]) - offset) / self.deviation(focal)[:, None]
        else:  # between the two directions, which is smooth also for places behind the camera
            shown = undistorted(offset, focal, own["distortion"])
            shown /= np.linalg.norm(shown, axis=-1, keepdims=True)
            wrong = (seen / np.linalg.norm(seen, axis=-1, keepdims=True) - shown) / math.radians(0.2)
        usual = dict(zip(self.names, start, strict=True)) | {"roll": 0.0, "distortion": 0.0, "height": 6.0}
        usual |= {"x": self._position[0], "y": self._position[1]}
        prior = [
            (own[name] - usual[name]) / _WORDS[name][2] if name in _WORDS
            else own[name] - math.log(0.9 * self._view.picture[0])
            for name in self.names
        ]  # fmt: skip
        wrong = np.nan_to_num(wrong, nan=_FAR).clip(-_FAR, _FAR).ravel()
        squared = (wrong / _LARGE) ** 2 + 1e-12
        return np.concatenate((wrong * np.sqrt(np.log1p(squared) / squared), prior))

    def view(self, given: np.ndarray, signs: tuple[int, int]) -> View:
        """Return the camera of a solution."""
        own, focal = self._split(given)
        low, high = self._view.pan_range
        zero = float(wrapped(own["zero"], -signs[0] * (low + high) / 2))  # with the middle of the pan near 0
        found: dict[str, Any] = {name: round(own[name], 5) for name in ("roll", "distortion", "height")}
        found |= {"zero": round(zero, 3), "tilt_zero": round(own["tilt_zero"], 3)}
        found |= {"sign": signs[0], "tilt_sign": signs[1]}
        found |= {"tilt": float(np.median(self._rows[:, 3])), "zoom": float(np.median(self._rows[:, 4]))}
        found["position"] = round(own["x"], 3), round(own["y"], 3)
        found["focal"] = tuple(zip(self._zooms.tolist(), focal.round(2).tolist(), strict=True))
        return dataclasses.replace(self._view, **found)
