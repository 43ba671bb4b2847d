"""Homographies: 3 x 3 matrices from the pixels of a camera at one heading to places on the floor."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.agents.deploy.site.plan import Frame, number, read_columns, reading
from hitmac.envs.files import parse_yaml, read_table, read_text

NEAR_A_LINE = 0.005
"""Points are on a line if they are nearer to it than this share of the largest distance between two of them."""


def fit(pixels: Any, floor: Any) -> np.ndarray:
    """Return the homography (3, 3) that maps pixels (k, 2) to places (k, 2) on the floor, by the normalised DLT.

    Its norm is 1, since a pixel (0, 0) on the horizon has no other scale.
    It is the last right singular vector of the equations ``place x (H pixel) = 0``, in which both sets of points have
    mean 0 and mean distance sqrt(2). Source: Hartley and Zisserman, Multiple View Geometry in Computer Vision (2nd
    edition, 2004), section 4.4.

    Raises ValueError for fewer than four pairs, and if all points except one are the same or on a line.
    """
    pixels, floor = (np.asarray(points, np.float64).reshape(-1, 2) for points in (pixels, floor))
    if len(pixels) < 4:
        raise ValueError(f"got {len(pixels)} pairs of points; a homography requires at least four")
    for name, points in (("pixels", pixels), ("places", floor)):
        offset = points[None] - points[:, None]  # (k, k, 2)
        away = np.linalg.norm(offset, axis=-1)
        for a, b in np.argwhere(np.triu(away == 0.0, 1)):
            raise ValueError(f"the {name} of pairs {a + 1} and {b + 1} are the same; each pair must have its own")
        if len(line := _line_through_most(offset, away)) >= len(points) - 1:
            pairs = ", ".join(map(str, line + 1))
            raise ValueError(f"the {name} of pairs {pairs} are on a line; two pairs or more must be off it")
    to_pixels, to_floor = _normalisation(pixels), _normalisation(floor)
    (u, v), (x, y) = apply(to_pixels, pixels).T, apply(to_floor, floor).T
    one, zero = np.ones_like(u), np.zeros_like(u)
    of_x = np.stack((u, v, one, zero, zero, zero, -x * u, -x * v, -x), 1)
    of_y = np.stack((zero, zero, zero, u, v, one, -y * u, -y * v, -y), 1)
    matrix = np.linalg.svd(np.concatenate((of_x, of_y)))[2][-1].reshape(3, 3)
    matrix = np.linalg.inv(to_floor) @ matrix @ to_pixels
    return matrix / np.linalg.norm(matrix)


def _line_through_most(offset: np.ndarray, away: np.ndarray) -> np.ndarray:
    """Return the points on the line through the two that are farthest apart, or if more, with either of them left out.

    If all points except one are on a line, one of these is it. `offset` (k, k, 2) leads from point to point, and `away`
    (k, k) is its length.
    """
    found = np.empty(0, int)
    ends = divmod(int(away.argmax()), len(away))
    for without in ((), ends[:1], ends[1:]):
        left = away.copy()
        left[[*without]] = left[:, [*without]] = 0.0
        a, b = divmod(int(left.argmax()), len(away))
        aside = np.abs(offset[a, b, 0] * offset[a, :, 1] - offset[a, b, 1] * offset[a, :, 0]) / away[a, b]
        line = np.flatnonzero(aside <= NEAR_A_LINE * away.max())
        found = line if len(line) > len(found) else found
    return found


def _normalisation(points: np.ndarray) -> np.ndarray:
    """Return the similarity (3, 3) after which points (k, 2) have mean 0 and mean distance sqrt(2)."""
    middle = points.mean(0)
    scale = np.sqrt(2.0) / np.linalg.norm(points - middle, axis=1).mean()
    return np.array([[scale, 0.0, -scale * middle[0]], [0.0, scale, -scale * middle[1]], [0.0, 0.0, 1.0]])


def apply(matrix: np.ndarray, points: Any, *, below_horizon: bool = False) -> np.ndarray:
    """Return the points (k, 2) to which a homography (3, 3) maps points (k, 2).

    With `below_horizon`, pixels on the other side of the horizon than those that were fitted give NaN.
    """
    mapped = np.asarray(points, np.float64).reshape(-1, 2) @ matrix[:, :2].T + matrix[:, 2]
    if below_horizon:
        mapped[mapped[:, 2] <= 0.0] = np.nan
    return mapped[:, :2] / mapped[:, 2:]


def fit_file(path: Path, frame: Frame) -> tuple[np.ndarray, str]:
    """Return the homography to the site of a CSV file of pairs (u, v, x, y), and a table of residuals in metres.

    Its sign is that with which the third coordinate of these pixels is over 0, as on all of their side of the horizon.
    """
    names = ("u", "v", "x", "y")
    rows = [[number(where, name, row[name]) for name in names] for where, row in read_columns(path, names)]
    pixels, floor = np.split(np.array(rows).reshape(-1, 4), 2, 1)
    floor = frame.place(floor)
    with reading(path, "a file of pairs of points"):
        matrix = fit(pixels, floor)
        depth = pixels @ matrix[2, :2] + matrix[2, 2]  # its sign changes at the horizon
        if depth.min() <= 0.0 <= depth.max():
            raise ValueError("the horizon would lie between the pixels, so that two pairs are swapped or one is wrong")
    residual = np.linalg.norm(apply(matrix, pixels) - floor, axis=1)
    lines = [f"{'pair':>4} {'u':>8} {'v':>8} {'x':>9} {'y':>9} {'residual, m':>12}"]
    for k, row in enumerate(np.column_stack((pixels, floor, residual)), 1):
        lines.append("{:4} {:8.1f} {:8.1f} {:9.3f} {:9.3f} {:12.3f}".format(k, *row))
    if np.linalg.det(matrix) * depth[0] > 0.0:  # v grows downwards, y to the north
        lines.append("this is a mirror image; unless the picture is one, two pairs, or x and y, are swapped")
    worst = f"worst: pair {residual.argmax() + 1}, {residual.max():.3f} m"
    always = "four pairs always fit exactly, right or wrong; a fifth shows their error"
    return math.copysign(1.0, depth[0]) * matrix, "\n".join([*lines, worst if len(rows) > 4 else always])


def read_homography(path: Path) -> tuple[np.ndarray, Frame, bool]:
    """Return the 3 x 3 matrix of a file, the frame to which it leads, and True if its sign is that of our own.

    The file is JSON, YAML, NumPy or text. Of several matrices, that named homography or H counts. In JSON and YAML it
    is three rows, or a matrix of OpenCV.
    The frame is that of the plan, unless the file has an `origin`, as ``hitmac site homography`` writes it. No code
    runs. Raises ValueError unless there is one such matrix, with an inverse, which is not that of a camera's lens.
    """
    with reading(path, "a calibration file"):
        if path.suffix == ".npy":
            value = np.load(path, allow_pickle=False)
        else:  # JSON is YAML; OpenCV's tag and the line of its version are not
            lines = [line for line in read_text(path).splitlines() if not line.startswith("%YAML")]
            value = parse_yaml("\n".join(lines).replace("!!opencv-matrix", ""))
        if isinstance(value, str):  # YAML has dropped comments and lines
            rows = [row for _, row in read_table(path)] if {";", "\t"} & {*value} else None
            value = rows or value.replace(",", " ").split()
        given = value if isinstance(value, dict) else {}
        frame = Frame()
        if "geographic" in given:  # as ``hitmac site homography`` writes it
            x, y = (number(str(path), "origin", part) for part in given["origin"])
            frame = Frame((x, y), given["geographic"] is True)
    found = _matrices("", value)
    found = [one for one in found if one[0].lower() in ("homography", "h")] or found
    if len(found) != 1 or not np.linalg.cond(found[0][1]) < 1e15:
        names = ", ".join(f"{name} {matrix.tolist()}" for name, matrix in found) or "no matrix"
        raise ValueError(f"{path} has {names}; it must have one of 3 x 3 numbers with an inverse, or named homography")
    matrix = found[0][1]
    (fx, _, cx), (below, fy, cy), last = matrix.tolist()
    if min(fx, fy, cx, cy) > 10.0 and [below, *last] == [0.0, 0.0, 0.0, 1.0]:  # no pixel shows as many metres
        lens = f"the intrinsic matrix of a lens, with the focal lengths {fx:g} and {fy:g} pixels"
        raise ValueError(f"{path} has {lens}; it must have a homography, from pixels to the floor")
    return matrix, frame, "geographic" in given


def _matrices(name: str, value: Any) -> list[tuple[str, np.ndarray]]:
    """Return the 3 x 3 matrices in nested mappings, with their names."""
    if isinstance(value, dict) and "data" not in value:
        return [found for key, inner in value.items() for found in _matrices(str(key), inner)]
    try:
        matrix = np.array(value["data"] if isinstance(value, dict) else value, np.float64).reshape(3, 3)
    except (TypeError, ValueError, OverflowError):
        return []
    return [(name, matrix)] if np.isfinite(matrix).all() else []
