"""Placement of labels in a figure, next to their points and with the least overlap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Value(NamedTuple):
    """Mean of a metric and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


def name_points(
    figure: Figure,
    axis: Axes,
    labels: Mapping[str, tuple[str, str]],
    points: Mapping[str, tuple[Value, Value]],
    levels: Mapping[str, float],
    stairs: np.ndarray,
    lines: Iterable[np.ndarray] = (),
) -> None:
    """Write each label (text, colour) next to its point or level, where it overlaps least with everything drawn.

    Drawn are the points and levels, the `stairs` (k, 2) and the `lines`, each through points (k, 2).
    """
    figure.draw_without_rendering()  # fixes the position of the axis, and with it all overlaps
    frame = axis.bbox
    taken: list[np.ndarray] = []  # boxes of drawn objects: left, bottom, right, top; pixels

    def take(start: tuple[float, float], end: tuple[float, float], margin: float = 3) -> None:
        corners = axis.transData.transform([start, end])
        taken.append(np.concatenate((corners.min(0) - margin, corners.max(0) + margin)))

    def write(name: str, anchors: np.ndarray, sides: np.ndarray, gaps: np.ndarray) -> None:
        """Write a label at the best of k places, given by anchors, sides and gaps (k, 2), the preferred first."""
        words, colour = labels[name]
        text = axis.text(0, 0, words, color=colour, fontsize=9.5, zorder=4, ha="center", va="center", transform=None)
        half = np.array(text.get_window_extent().size) / 2
        centres = anchors + sides * (half + gaps)
        boxes = np.concatenate((centres - half, centres + half), -1)
        others = np.array(taken)[:, None]
        shared = np.minimum(boxes[:, 2:], others[..., 2:]) - np.maximum(boxes[:, :2], others[..., :2])
        outside = (frame.min - boxes[:, :2]).clip(0).sum(-1) + (boxes[:, 2:] - frame.max).clip(0).sum(-1)
        best = np.argmin(shared.clip(0).prod(-1).sum(0) + 100 * outside + 2 * np.arange(len(centres)))
        taken.append(boxes[best])
        x, y = axis.transAxes.inverted().transform(centres[best])
        text.set(x=x, y=y, transform=axis.transAxes)

    for x, y in points.values():
        take((x.low, y.mean), (x.high, y.mean))
        take((x.mean, y.low), (x.mean, y.high))
        take((x.mean, y.mean), (x.mean, y.mean), 6)
    for (a, b), (c, d) in pairwise(stairs):
        take((a, b), (c, b))
        take((c, b), (c, d))
    for line in lines:
        places = np.linspace(0, len(line) - 1, 24 * len(line))
        for x, y in zip(*(np.interp(places, np.arange(len(line)), column) for column in line.T), strict=True):
            take((x, y), (x, y))
    for level in levels.values():
        take((axis.get_xlim()[0], level), (axis.get_xlim()[1], level))
    around = np.array([(1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1)])
    for name, (x, y) in points.items():
        gaps = np.repeat((7, 12, 18, 26, 36), len(around))[:, None]
        write(name, axis.transData.transform((x.mean, y.mean)), np.tile(around, (5, 1)), gaps)
    along = np.repeat(np.linspace(1, 0, 9), 2)  # from the right to the left, above and below
    for name, level in levels.items():
        anchors = np.stack((frame.x0 + along * frame.width, np.full(18, axis.transData.transform((0, level))[1])), -1)
        write(name, anchors, np.stack((1 - 2 * along, np.tile((1, -1), 9)), -1), np.full((18, 1), 4))


def spread(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Return positions (k,) at least a gap apart, in the order of the wanted ones, with least squared displacement.

    Less i gaps for the i-th, the positions need only be non-decreasing, so neighbours that decrease are pooled to their
    mean.
    """
    order = np.argsort(wanted, kind="stable")
    pools: list[list[float]] = []  # sum, number
    for value in wanted[order] - gap * np.arange(len(wanted)):
        pools.append([float(value), 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, number = pools.pop()
            pools[-1] = [pools[-1][0] + total, pools[-1][1] + number]
    places = np.empty(len(wanted))
    places[order] = np.repeat([s / k for s, k in pools], [int(k) for _, k in pools]) + gap * np.arange(len(wanted))
    return places
