"""Model of a camera: geometry by hand, both directions, and covariances against samples."""

import numpy as np
import pytest

from hitmac.agents.deploy.camera import View
from hitmac.agents.deploy.run.boxes import Boxes

PLAIN = View(picture=(1000, 800), height=5, focal=((1, 1000), (2, 2000)))
LENS = View(picture=(1000, 800), height=4, position=(3, -2), focal=((1, 1000),), distortion=-0.1, roll=4, tilt_zero=30)


def test_places_by_hand():
    """At 45 degrees the middle shows what is as far away as the camera is high; 45 degrees aside is as far aside."""
    np.testing.assert_allclose(PLAIN.floor([500, 400], 0, -45, 1), [[5, 0]], atol=1e-9)
    np.testing.assert_allclose(PLAIN.floor([500, 400], 90, -45, 2), [[0, 5]], atol=1e-9)
    np.testing.assert_allclose(PLAIN.floor([1500, 1400], 0, 0, 1), [[5, -5]], atol=1e-9)  # right is south
    np.testing.assert_allclose(PLAIN.floor([500, 1400], 0, 0, 1, above=2), [[3, 0]], atol=1e-9)
    np.testing.assert_allclose(PLAIN.floor([500, 2400], 0, 0, 2), [[5, 0]], atol=1e-9)
    tilted = View(picture=(1000, 800), height=5, focal=((1, 1000),), tilt_zero=10, tilt_sign=1)
    np.testing.assert_allclose(tilted.floor([500, 400], 0, 35, 1), [[5, 0]], atol=1e-9)
    rolled = View(picture=(1000, 800), height=5, focal=((1, 1000),), roll=90)  # clockwise: right is down
    np.testing.assert_allclose(rolled.floor([1500, 400], 0, 0, 1), [[5, 0]], atol=1e-9)
    assert np.isnan(PLAIN.floor([500, 300], 0, 0, 1)).all()  # over the horizon
    assert np.isnan(PLAIN.pixels([[-5, 0]], 0, 0, 1)).all()  # behind
    assert np.isnan(PLAIN.floor([500, 700], 0, 0, 3)).all()  # beyond the calibrated zooms


def test_pixels_and_places_are_inverse():
    random = np.random.default_rng(0)
    pixels, heading = random.uniform((0, 300), (1000, 800), (50, 2)), random.uniform(-180, 180, 50)
    tilt = random.uniform(-10, 5, 50)
    for above in (0.0, 1.7):
        places = LENS.floor(pixels, heading, tilt, 1, above)
        np.testing.assert_allclose(LENS.pixels(places, heading, tilt, 1, above), pixels, atol=1e-8)


def test_covariances_are_those_of_samples():
    box, random = np.array([[480.0, 100.0, 520.0, 600.0]]), np.random.default_rng(0)
    x, y, *covariance = LENS.place(box, 20.0, 5.0, 1.0, moved=(0.3, 0.0))[0]
    pixels = LENS.foot(box) + random.normal(0, 2.0, (20000, 2))
    angles = random.normal((20.0, 5.0), (np.hypot(0.1, 0.3), 0.1), (20000, 2))
    sampled = np.cov(LENS.floor(pixels, *angles.T, 1.0).T)
    np.testing.assert_allclose(covariance, sampled[(0, 0, 1), (0, 1, 1)], rtol=0.05, atol=2e-5)
    np.testing.assert_allclose([(x, y)], LENS.floor(LENS.foot(box), 20, 5, 1))


def test_a_box_that_the_picture_cuts_is_less_certain_and_one_at_the_horizon_has_no_place():
    boxes = np.array([[480, 300, 520, 700], [480, 400, 520, 800], [0, 300, 40, 700], [480, 100, 520, 405.0]])
    rows = PLAIN.place(boxes, 0.0, 0.0, 1.0)
    assert rows[1, 2] > 100 * rows[0, 2]
    assert rows[2, 4] > 50 * rows[0, 4]
    assert np.isnan(rows[3]).all()
    heads = View(picture=(1000, 800), height=5, focal=((1, 1000),), above=1.7)
    np.testing.assert_allclose(heads.place(np.array([[480.0, 730, 520, 800]]), 0.0, 0.0, 1.0)[0, :2], [10, 0])


def test_boxes_of_another_size_are_scaled_or_refused():
    box = np.array([[100.0, 100, 200, 300]])

    def kept(box, size):
        return PLAIN.kept(Boxes(box, [""], [1.0], size))

    np.testing.assert_allclose(kept(box, None), box)
    np.testing.assert_allclose(kept(box / 2, (500, 400)), box)
    np.testing.assert_allclose(kept(box / [1000, 800, 1000, 800], (1, 1)), box)
    with pytest.raises(ValueError, match="its picture is 640 x 480; it must be in proportion to 1000 x 800"):
        kept(box, (640, 480))
    for wrong in (box * 10, box[:, ::-1], np.full((1, 4), np.nan)):
        with pytest.raises(ValueError, match="boxes that leave the picture of 1000 x 800"):
            kept(wrong, None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"height": 0}, "height is 0.0; it must be over 0"),
        ({"focal": [[2, 900], [1, 800]]}, r"focal is \[\[2.0, 900.0\], \[1.0, 800.0\]\]; it must be pairs of a zoom"),
        ({"focal": []}, r"focal is \[\]; it must be pairs"),
        ({"detect": [640, 480]}, r"detect is \[640.0, 480.0\]; it must be a width and a height in the proportion"),
        ({"ignore": [[[0, 0], [1, 1]]]}, "polygons of three or more points"),
        ({"tilt_sign": 0}, "tilt_sign is 0.0; it must be -1 or 1"),
        ({"sign": 2}, "sign is 2.0; it must be -1 or 1"),
    ],
)
def test_invalid_settings_are_named(settings, words):
    with pytest.raises((ValueError, TypeError), match=words):
        View(**settings)
