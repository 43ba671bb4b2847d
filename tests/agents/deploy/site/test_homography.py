"""Homographies from pairs of points, and calibration files."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitmac.agents.deploy.site.homography import apply, fit, fit_file, read_homography
from hitmac.agents.deploy.site.plan import Frame

SQUARE = [(0, 0), (640, 0), (640, 480), (0, 480)]
MATRIX = [[0.01, 0.002, -3.0], [0.0, -0.02, 9.0], [0.0, 0.001, 1.0]]


def test_points_are_mapped_by_hand():
    # (200, 500): (2 + 1 - 3, -10 + 9) / (0.5 + 1)
    np.testing.assert_allclose(apply(np.array(MATRIX), [(200, 500), (0, 0)]), [(0, -2 / 3), (-3, 9)])


@given(st.lists(st.floats(-1, 1), min_size=8, max_size=8), st.integers(0, 100))
def test_a_homography_is_recovered_from_its_own_points(numbers, extra):
    a, b, c, d, e, f, g, h = numbers
    true = np.array([[0.02 + 0.005 * a, 0.005 * b, 10 * c], [0.005 * d, -0.02 + 0.005 * e, 10 * f],
                     [0.0002 * g, 0.0005 * h, 1.0]])  # fmt: skip
    pixels = np.concatenate((SQUARE, np.random.default_rng(extra).uniform((0, 0), (640, 480), (extra % 7, 2))))
    found = fit(pixels, apply(true, pixels))
    np.testing.assert_allclose(found / found[2, 2], true, rtol=1e-6, atol=1e-9)


def test_the_first_pixel_may_be_on_the_horizon():
    pixels = [(200, 200), (1000, 400), (1700, 1000), (1800, 500), (500, 200)]
    floor = [(-17.5, 25.0), (1.25, 12.5), (4.0, 5.0), (9.0, 10.0), (-10.0, 25.0)]
    np.testing.assert_allclose(apply(fit(pixels, floor), pixels), floor, rtol=1e-9)


def test_many_pairs_average_their_noise():
    generator = np.random.default_rng(0)
    pixels = generator.uniform((0, 200), (640, 480), (400, 2))
    true = apply(np.array(MATRIX), pixels)
    error = np.linalg.norm(apply(fit(pixels, true + generator.normal(0, 0.1, true.shape)), pixels) - true, axis=1)
    assert error.max() < 0.06  # of noise with a standard deviation of 0.1 in each axis
    assert error.max() > 0.0


@pytest.mark.parametrize(
    ("pixels", "says"),
    [
        (SQUARE[:3], "got 3 pairs of points; a homography requires at least four"),
        ([(0, 0), (640, 0), (0, 0), (0, 480)], "the pixels of pairs 1 and 3 are the same"),
        ([(0, 0), (320, 1), (640, 0), (0, 480)], "the pixels of pairs 1, 2, 3 are on a line"),
        ([(0, 0), (1, 1), (5, 5), (9, 0), (7, 7)], "the pixels of pairs 1, 2, 3, 5 are on a line"),
    ],
)
def test_degenerate_pairs_are_refused_by_name(pixels, says):
    floor = [(0, 0), (5, 0), (5, 8), (0, 8), (3, 3)][: len(pixels)]
    with pytest.raises(ValueError, match=says):
        fit(pixels, floor)
    if len(pixels) > 3:
        with pytest.raises(ValueError, match=says.replace("pixels", "places")):
            fit(floor, pixels)
    fit([*SQUARE, (320, 1)], [(0, 0), (5, 0), (5, 8), (0, 8), (3, 3)])  # three on a line, two off it


def test_residuals_are_metres_in_a_table_that_names_the_worst(tmp_path):
    pixels = np.array([*SQUARE, (320, 240), (100, 300), (500, 100), (200, 50)])
    floor = np.add(apply(np.diag((0.01, -0.01, 1.0)), pixels), (100, 50))
    floor[4] += (0.9, 0.0)
    path = tmp_path / "points.csv"
    path.write_text("x;y;u;v\n" + "".join(f"{x};{y};{u};{v}\n" for (u, v), (x, y) in zip(pixels, floor, strict=True)))
    matrix, table = fit_file(path, Frame((100.0, 50.0)))
    residual = np.linalg.norm(apply(matrix, pixels) - (floor - (100, 50)), axis=1)
    assert residual.argmax() == 4
    assert table.splitlines()[5].split() == ["5", "320.0", "240.0", "4.100", "-2.400", f"{residual[4]:.3f}"]
    assert table.endswith(f"worst: pair 5, {residual[4]:.3f} m")
    path.write_text("u,v,x,y\n0,0,0,2\n9,0,1,1\n9,9,1,0\n0,9,0,0\n")
    always = "\nfour pairs always fit exactly, right or wrong; a fifth shows their error"
    assert fit_file(path, Frame())[1].endswith(f" 0.000{always}")
    for text, says in (
        ("u,v,x\n1,2,3\n", "points.csv: the header is 'u, v, x'; it must name u, v, x, y once each"),
        ("u,v,x,y\n1,2,3,4\n1,2,three,4\n", "points.csv, line 3: x is 'three'; it must be a finite number"),
        ("u,v,x,y\n1,2,3,4\n1,2,3\n", "points.csv, line 3: it has more or fewer fields than the header"),
        ("u,v,x,y\n1,2,3,4\n", "points.csv is not a file of pairs of points: got 1 pairs of points"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=says):
            fit_file(path, Frame())


@pytest.mark.parametrize("swapped", [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2), (1, 3)])
@pytest.mark.parametrize("inside", [False, True])
def test_two_swapped_pairs_are_noticed_though_four_always_fit(inside, swapped, tmp_path):
    """No camera sees the two sides of its horizon, and none sees a floor from below."""
    pixels = np.array([*SQUARE[:3], (400, 160) if inside else SQUARE[3]], float)
    floor, path = apply(np.array(MATRIX), pixels), tmp_path / "points.csv"

    def said(places):
        rows = np.column_stack((pixels, places)).tolist()
        path.write_text("u v x y\n" + "".join(f"{u} {v} {x} {y}\n" for u, v, x, y in rows))
        try:
            return fit_file(path, Frame())[1]
        except ValueError as error:
            return str(error)

    assert "swapped" not in said(floor)
    floor[[*swapped]] = floor[[*swapped[::-1]]]
    assert "swapped" in said(floor)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_pixels_above_the_horizon_have_no_place(sign, tmp_path):
    """A camera 5 m over the floor with a focal length of 1000 pixels, also upside down; its horizon is at v = 400."""
    u, below = np.repeat([100.0, 500.0], 3), np.tile([200.0, 300.0, 380.0], 2)
    pixels, floor = np.stack((u, 400.0 + sign * below), 1), np.stack((5000.0 / below, 5.0 * (u - 320.0) / below), 1)
    rows = np.column_stack((pixels, floor)).tolist()
    (tmp_path / "points.csv").write_text("u,v,x,y\n" + "".join(f"{u},{v},{x},{y}\n" for u, v, x, y in rows))
    matrix, _ = fit_file(tmp_path / "points.csv", Frame())
    np.testing.assert_allclose(apply(matrix, pixels, below_horizon=True), floor, atol=1e-6)
    assert np.isnan(apply(matrix, [(320.0, 400.0 - sign * 100.0)], below_horizon=True)).all()
    assert np.isfinite(apply(matrix, [(320.0, 400.0 - sign * 100.0)])).all()


OPENCV = """%YAML:1.0
---
camera: !!opencv-matrix
   rows: 3
   cols: 4
   dt: d
   data: [ 1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0. ]
H: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ 1.0e-02, 0.002, -3., 0., -0.02,
       9., 0., 0.001, 1. ]
"""
FILES = {
    "rows.json": json.dumps(MATRIX),
    "named.json": json.dumps({"intrinsics": np.eye(3).tolist(), "north": {"homography": MATRIX}, "fps": 25}),
    "rows.yaml": "north:\n  - [0.01, 0.002, -3]\n  - [0, -0.02, 9]\n  - [0, 1e-3, 1]\n",
    "opencv.yml": OPENCV,
    "rows.txt": "0.01 0.002 -3\n0 -0.02 9\n0 0.001 1\n",
    "numpy.txt": "# homography\n0.01 0.002 -3\n0 -0.02 9\n0 0.001 1\n",
    "mixed.txt": "0.01, 0.002 -3\n0 -0.02, 9\n0, 0.001, 1\n",
    "foreign.json": json.dumps({"H": MATRIX, "origin": "top-left"}),
    "commas.txt": "0.01,0.002,-3\n0,-0.02,9\n0,0.001,1\n",
    "decimal.txt": "\ufeff0,01; 0,002;-3\n0;-0,02;9\n0;1,0e-3;1\n",
}


@pytest.mark.parametrize("name", [*FILES, "matrix.npy"])
def test_calibration_files_of_every_form_hold_the_same_matrix(name, tmp_path):
    path = tmp_path / name
    if name in FILES:
        path.write_text(FILES[name])
    else:
        np.save(path, np.array(MATRIX))
    matrix, frame, own = read_homography(path)
    np.testing.assert_array_equal(matrix, MATRIX)
    assert (frame, own) == (Frame(), False)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", "{", "a.json is not a calibration file"),
        ("a.json", "[[1, 0], [0, 1]]", "a.json has no matrix; it must have one of 3 x 3 numbers with an inverse"),
        ("a.json", json.dumps({"p": MATRIX, "q": MATRIX}), r"a.json has p \[\[0.01.*, q \[\[.*or named homography"),
        ("a.txt", "1 2 3 4 5 6 7 8 9", r"has  \[\[1.0, 2.0, 3.0\].*with an inverse"),
        ("a.yaml", "!!python/object/apply:os.system ['echo']", "a.yaml is not a calibration file"),
        ("a.yaml", "- [1, 0, 0]\n- [0, .nan, 0]\n- [0, 0, 1]\n", "has no matrix"),
        ("a.json", '{"K": [[812.5, 0, 320], [0, 810, 240], [0, 0, 1]]}', "intrinsic matrix of a lens, with the focal "
         "lengths 812.5 and 810 pixels; it must have a homography, from pixels to the floor"),
        ("a.json", json.dumps({"H": MATRIX, "origin": ["a", 1], "geographic": False}),
         "origin is 'a'; it must be a finite number"),
        ("a.json", json.dumps([[10**400, 0, 0], [0, 1, 0], [0, 0, 1]]), "has no matrix"),
        ("a.json", json.dumps({"H": MATRIX, "origin": 3, "geographic": False}), "a.json is not a calibration file"),
        ("a.npy", np.array([{}], object), "a.npy is not a calibration file: Object arrays cannot be loaded"),
        ("a.npy", b"", "a.npy is not a calibration file"),
    ],
)  # fmt: skip
def test_other_files_are_refused_without_running_code(name, content, says, tmp_path):
    path = tmp_path / name
    if isinstance(content, np.ndarray):
        np.save(path, content)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=says):
        read_homography(path)
