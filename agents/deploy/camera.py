"""Model of a camera that turns, tilts and zooms: from pixels to places on the floor, with their errors, and back.

A pinhole with one radial distortion. In the axes of the camera (right, down, ahead), a point (x, y, z) has the pixel
``c + f d``, where c is the middle of the picture, f the focal length in pixels at the present zoom, and d the distorted
(x, y) / z. The division model, in which both directions have a closed form, is ``(x, y) / z = d / (1 + k |d|^2)``
(Fitzgibbon, Simultaneous linear estimation of multiple view geometry and lens distortion, CVPR 2001).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from hitmac.envs import validation
from hitmac.envs.features import is_inside
from hitmac.envs.validation import Fraction, NotNegative, Positive, Row, over

Pair = Annotated[tuple[float, float], Row(("u", "v"))]
Ends = Annotated[tuple[float, float], Row(("low", "high"))]
_EDGE = 0.004  # distance to the edge of the picture at which a box is cut by it, of its width and height
_HORIZON = 3.0  # standard deviations that a ray must be below the horizon
_ZOOM = 0.02  # share of the zoom by which it may be beyond the calibrated ones


def axes(heading: Any, tilt: Any, roll: Any) -> np.ndarray:
    """Return the axes (k, 3, 3) of cameras, rows right, down and ahead, in the site's frame with z upwards.

    Args:
        heading: (k,) degrees counter-clockwise, 0 along +x.
        tilt: (k,) degrees below the horizon.
        roll: (k,) degrees clockwise about the line of sight, as seen from behind the camera.
    """
    angles = np.radians(np.broadcast_arrays(heading, tilt, roll)).reshape(3, -1)
    (east, level, cos), (north, sunk, sin) = np.cos(angles), np.sin(angles)
    right = cos * north - sin * sunk * east, -cos * east - sin * sunk * north, -sin * level
    down = -cos * sunk * east - sin * north, -cos * sunk * north + sin * east, -cos * level
    return np.moveaxis(np.array((right, down, (level * east, level * north, -sunk))), -1, 0)


def undistorted(offset: np.ndarray, focal: Any, distortion: float) -> np.ndarray:
    """Return the directions (k, 3), with z = 1, of pixels (k, 2) from the middle; NaN for those of no direction."""
    d = offset / np.reshape(focal, (-1, 1))
    scale = 1.0 + distortion * (d**2).sum(-1, keepdims=True)
    return np.concatenate((d / np.where(scale > 0.0, scale, np.nan), np.ones_like(scale)), -1)


def distorted(direction: np.ndarray, focal: Any, distortion: float) -> np.ndarray:
    """Return the pixels (k, 2) from the middle of directions (k, 3); NaN for those behind, or that no pixel shows."""
    z = direction[:, 2:]
    plain = direction[:, :2] / np.where(z > 0.0, z, np.nan)
    root = 1.0 - 4.0 * distortion * (plain**2).sum(-1, keepdims=True)
    return np.reshape(focal, (-1, 1)) * plain * 2.0 / (1.0 + np.sqrt(np.where(root >= 0.0, root, np.nan)))


@dataclass(kw_only=True)
class Head(validation.Checked):
    """Pan-tilt head, with the heading zero + sign * pan, and the tilt tilt_zero + tilt_sign * its tilt."""

    zero: float = 0.0
    """Heading of the device's pan 0, degrees."""
    sign: float = -1.0
    """-1: the pan grows clockwise, as seen from above; 1: counter-clockwise, as of most devices upside down."""
    pan_range: Ends = (-180.0, 180.0)
    """Lowest and highest pan of the device, degrees, in ONVIF -1 and 1; an answer beyond is nonsense."""
    tilt_zero: float = 0.0
    """Tilt below the horizon at the device's tilt 0, degrees."""
    tilt_sign: float = -1.0
    """-1: the device's tilt grows upwards, as of most; 1: downwards."""
    tilt_range: Ends = (-90.0, 90.0)
    """Lowest and highest tilt of the device, degrees, in ONVIF -1 and 1; an answer beyond is nonsense."""

    def _rules_of_heads(self) -> validation.Rules:
        for name in ("sign", "tilt_sign"):
            yield name, getattr(self, name) in (-1, 1), "-1 or 1"
        for name in ("pan_range", "tilt_range"):
            low, high = getattr(self, name)
            yield name, low < high, "[low, high] with low under high"


@dataclass(kw_only=True)
class View(Head):
    """Camera of a site and what its detector sends; an invalid setting raises ``ValueError`` or ``TypeError``.

    ``hitmac site calibrate`` writes it into the file of the cameras, as the setting `view`. The settings of the head
    are those of the driver, if it has them.
    """

    picture: Annotated[tuple[float, float], over(0, None, "pixels")] = (1920.0, 1080.0)
    """Width and height of the calibrated picture, pixels."""
    height: Positive = 5.0
    """Height of the camera above the floor, metres."""
    position: Annotated[tuple[float, ...], Row(("x", "y"))] | None = None
    """Place of the camera in the site, metres. Left out: its `sensor_positions`."""
    focal: tuple[Annotated[tuple[float, float], Row(("zoom", "pixels"))], ...] = ((1.0, 1500.0),)
    """Focal lengths in pixels at zooms that rise, in the device's unit; linear between them, unknown beyond."""
    distortion: float = 0.0
    """Radial distortion k; under 0 for lenses that bend straight lines outwards."""
    roll: float = 0.0
    """Roll, degrees clockwise."""
    sign: float = 1.0
    tilt: float = 0.0
    """Tilt of the device, degrees, where nothing reports it."""
    zoom: float | None = None
    """Zoom of the device where nothing reports it. Left out: the first of `focal`."""
    pixel_error: Positive = 2.0
    """Standard deviation of the edges of boxes, pixels."""
    angle_error: NotNegative = 0.1
    """Standard deviation of pan and tilt, degrees."""
    above: NotNegative = 0.0
    """0: the middle of a box's lower edge is on the floor. Over 0: that of its upper edge is so many metres above."""
    latency: float | None = None
    """Seconds from the picture to the time that its detections state, or else to their arrival. Left out: 0, until it
    is found from turns."""
    source: str = ""
    """Name of the camera in what its detector sends. Empty: the name of the sensor."""
    detect: Annotated[tuple[float, ...], over(0, None, "pixels")] = ()
    """Width and height of the pictures of a detector that sends pixels without their size. Empty: `picture`."""
    events: bool = False
    """The detector sends a message only when something changes, as Frigate; in between the camera counts as looking."""
    classes: tuple[str, ...] = ()
    """Classes of boxes that count. Empty: all."""
    confidence: Fraction = 0.0
    """Least confidence of a box that counts."""
    ignore: tuple[tuple[Pair, ...], ...] = ()
    """Polygons in the calibrated picture; a box whose foot is in one does not count."""

    def _rules_of_views(self) -> validation.Rules:
        zooms = [zoom for zoom, _ in self.focal]
        rising = bool(zooms) and zooms == sorted({*zooms}) and min(pixels for _, pixels in self.focal) > 0.0
        yield "focal", rising, "pairs of a zoom and pixels over 0, the zooms rising"
        sized = len(self.detect) in (0, 2) and self._scale(self.detect or self.picture) is not None
        yield "detect", sized, f"a width and a height in the proportion of the picture, {self._size}"
        yield "ignore", all(len(polygon) > 2 for polygon in self.ignore), "polygons of three or more points"

    @property
    def _size(self) -> str:
        return "{:g} x {:g}".format(*self.picture)

    def _scale(self, size: Any) -> np.ndarray | None:
        """Return the factors (2,) to the calibrated picture; None for a size of another proportion."""
        scale = np.divide(self.picture, size)
        return None if abs(scale[0] / scale[1] - 1.0) > 0.01 else scale

    def kept(self, given: Any) -> np.ndarray:
        """Return the boxes (k, 4) of a message that count: left, top, right, bottom in the calibrated picture, pixels.

        The message has `box` (K, 4), `label` and `score` (K,), and `size`: (1, 1) means shares of the picture, None the
        size `detect`. Raises ValueError for a size in another proportion, and for boxes that leave the picture.
        """
        box = self._scaled(given.box, given.size)
        return box[self.counts(self.foot(box), given.label, given.score)]

    def counts(self, feet: np.ndarray, label: Sequence[str], score: Sequence[float]) -> np.ndarray:
        """Return the mask (k,) of boxes that count, of their feet (k, 2), see :meth:`foot`, labels and scores (k,)."""
        good = np.array([
            score >= self.confidence and (not self.classes or label in self.classes)
            for score, label in zip(score, label, strict=True)
        ], np.bool_)  # fmt: skip
        for polygon in self.ignore:
            good &= ~is_inside(np.array(polygon), 0, len(polygon), *feet.T)
        return good

    def _scaled(self, boxes: np.ndarray, size: Any) -> np.ndarray:
        given = size or self.detect or self.picture
        scale = np.array(self.picture) if tuple(given) == (1, 1) else self._scale(given)
        if scale is None:
            raise ValueError(f"its picture is {given[0]:g} x {given[1]:g}; it must be in proportion to {self._size}")
        boxes, slack = boxes * np.tile(scale, 2), 0.02 * np.array(self.picture)
        inside = (boxes >= -np.tile(slack, 2)) & (boxes <= np.tile(self.picture + slack, 2))
        if not (inside.all() and (boxes[:, :2] <= boxes[:, 2:]).all()):
            raise ValueError(f"it has boxes that leave the picture of {self._size}, or without an area; give its size")
        return boxes

    def focal_at(self, zoom: Any) -> np.ndarray:
        """Return the focal length (k,) in pixels at zooms (k,); NaN beyond the calibrated zooms."""
        zooms, pixels = np.array(self.focal).T
        slack = _ZOOM * max(float(np.ptp(zooms)), abs(zooms[-1]))
        within = (zoom >= zooms[0] - slack) & (zoom <= zooms[-1] + slack)
        return np.where(within, np.interp(zoom, zooms, pixels), np.nan)

    def pose(self, given: Any, known: Any = (math.nan,) * 3) -> tuple[float, float, float]:
        """Return the heading of a message with `pan`, `tilt` and `zoom`, and tilt and zoom of the device.

        Where the message has none (NaN), it is the `known` one, and the view's `tilt` or `zoom` where that is NaN too.
        """
        pan, tilt = given.pan, given.tilt
        if given.normalized:
            (left, right), (low, high) = self.pan_range, self.tilt_range
            pan, tilt = left + (pan + 1.0) / 2.0 * (right - left), low + (tilt + 1.0) / 2.0 * (high - low)
        own = np.array([self.zero + self.sign * pan, tilt, given.zoom])
        usual = math.nan, self.tilt, self.focal[0][0] if self.zoom is None else self.zoom
        heading, tilt, zoom = np.where(np.isnan(own), np.where(np.isnan(known), usual, known), own).tolist()
        return heading, tilt, zoom

    def floor(self, pixels: Any, heading: Any, tilt: Any, zoom: Any, above: float = 0.0) -> np.ndarray:
        """Return the places (k, 2) of pixels (k, 2) on the floor, or on a plane `above` it; NaN over the horizon.

        The `heading` (k,) is in the site's frame, `tilt` and `zoom` (k,) are the device's, all or single numbers.
        """
        return self._hits(self._rays(pixels, heading, tilt, zoom), above)

    def _hits(self, ray: np.ndarray, above: float) -> np.ndarray:
        """Return the places (k, 2) where rays (k, 3) from the camera meet the floor, or a plane `above` it."""
        down = -ray[:, 2:]
        away = (self.height - above) / np.where(down * (self.height - above) > 0.0, down, np.nan)
        return np.array(self.position or (0.0, 0.0)) + away * ray[:, :2]

    def pixels(self, places: Any, heading: Any, tilt: Any, zoom: Any, above: float = 0.0) -> np.ndarray:
        """Return the pixels (k, 2) of places (k, 2) on the floor, or `above` it; NaN for those behind the camera."""
        away = np.asarray(places, np.float64).reshape(-1, 2) - (self.position or (0.0, 0.0))
        away = np.concatenate((away, np.full((len(away), 1), above - self.height)), -1)
        turned = axes(heading, self.tilt_zero + self.tilt_sign * np.asarray(tilt), self.roll)
        return np.divide(self.picture, 2) + distorted((turned @ away[..., None])[..., 0], self.focal_at(zoom),
                                                      self.distortion)  # fmt: skip

    def _rays(self, pixels: Any, heading: Any, tilt: Any, zoom: Any) -> np.ndarray:
        """Return the directions (k, 3) of pixels (k, 2), in the site's frame."""
        offset = np.asarray(pixels, np.float64).reshape(-1, 2) - np.divide(self.picture, 2)
        turned = axes(heading, self.tilt_zero + self.tilt_sign * np.asarray(tilt), self.roll)
        return (undistorted(offset, self.focal_at(zoom), self.distortion)[:, None] @ turned)[:, 0]

    def bearings(self, boxes: np.ndarray, tilt: float, zoom: float) -> np.ndarray:
        """Return the bearings (k,) of boxes (k, 4) from the camera's heading, degrees counter-clockwise."""
        ray = self._rays(self.foot(boxes), 0.0, tilt, zoom)
        return np.degrees(np.arctan2(ray[:, 1], ray[:, 0]))

    def foot(self, boxes: np.ndarray) -> np.ndarray:
        """Return the pixels (k, 2) of boxes (k, 4) that have a place: the middles of their lower, or upper, edges."""
        return np.stack(((boxes[:, 0] + boxes[:, 2]) / 2, boxes[:, 1 if self.above else 3]), -1)

    def place(self, boxes: np.ndarray, heading: float, tilt: float, zoom: float, moved: Any = (0.0, 0.0)) -> np.ndarray:
        """Return rows (k, 5) of x, y, xx, xy, yy: the places of boxes (k, 4) and the covariances of their errors.

        They follow, to first order, from the errors of the pixels, `pixel_error`, where the edge of the picture cuts
        the box half its width or height; and from those of pan and tilt, `angle_error`, and what they `moved`, degrees
        (pan, tilt), in the error of the latency. A row is NaN if its ray is over the horizon, or may be.
        """
        at, (width, height) = self.foot(boxes), self.picture
        size = boxes[:, 2:] - boxes[:, :2]
        edge = boxes[:, 1] <= _EDGE * height if self.above else boxes[:, 3] >= (1.0 - _EDGE) * height
        cut = np.stack(((boxes[:, 0] <= _EDGE * width) | (boxes[:, 2] >= (1.0 - _EDGE) * width), edge), -1)
        errors = np.empty((len(boxes), 4))
        errors[:, :2] = np.where(cut, np.maximum(size / 2, self.pixel_error), self.pixel_error)
        errors[:, 2:] = np.radians(np.hypot(self.angle_error, moved))
        ray, place, slope = self._slopes(at, heading, tilt, zoom)
        slope *= errors[..., None]
        covariance = slope.swapaxes(-1, -2) @ slope
        rows = np.column_stack((place, covariance[:, (0, 0, 1), (0, 1, 1)]))
        below = np.arctan2(-math.copysign(1.0, self.height - self.above) * ray[:, 2], np.hypot(ray[:, 0], ray[:, 1]))
        least = _HORIZON * np.hypot(self.pixel_error / self.focal_at(zoom), errors[:, 3])
        return np.where((below > least)[:, None], rows, np.nan)

    def _slopes(self, pixels: np.ndarray, heading: float, tilt: float, zoom: float) -> tuple[np.ndarray, ...]:
        """Return the rays (k, 3) and places (k, 2) of pixels (k, 2), and the derivatives (k, 4, 2) of the places.

        They are those with respect to u, v, and heading and tilt in radians.
        """
        focal, k = self.focal_at(zoom), self.distortion
        turned = axes(heading, self.tilt_zero + self.tilt_sign * tilt, self.roll)[0]
        offset = pixels - np.divide(self.picture, 2)
        ray, d = undistorted(offset, focal, k) @ turned, offset / focal
        scale = 1.0 + k * (d**2).sum(-1)[:, None, None]
        change = np.empty((len(pixels), 4, 3))  # of the ray
        change[:, :2] = (np.eye(2) / scale - 2.0 * k * d[:, :, None] * d[:, None] / scale**2) / focal @ turned[:2]
        east, north = math.cos(math.radians(heading)), math.sin(math.radians(heading))
        change[:, 2] = ray @ [(0.0, 1.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 0.0, 0.0)]  # turned about the vertical
        change[:, 3] = ray @ [(0.0, 0.0, -east), (0.0, 0.0, -north), (east, north, 0.0)]  # about the level line
        place, sunk = self._hits(ray, self.above), -ray[:, 2:, None]
        away = place - np.array(self.position or (0.0, 0.0))
        slope = ((self.height - self.above) * change[..., :2] + away[:, None] * change[..., 2:]) / sunk
        return ray, place, slope
