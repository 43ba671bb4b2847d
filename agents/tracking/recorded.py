"""Motion learned from recorded tracks, and targets that no sensor has seen yet. Compiled by numba.

A particle of a target is a place in a recorded track whose position and velocity are near the target's; from there it
moves as the track goes on, and ends with it. Targets not seen yet are an intensity: weighted particles whose sum is
their expected number.
"""

from typing import NamedTuple

import numpy as np

from hitmac.agents.tracking.particles import add_errors
from hitmac.agents.tracking.sight import chance_of_none
from hitmac.agents.tracking.walk_model import AIM_X, AIM_Y, PLACE, SPEED, STEP, X, Y
from hitmac.envs.base.compile import allocating, inlined
from hitmac.envs.base.streams import draw_uniform
from hitmac.envs.parts.recordings import recordings
from hitmac.envs.scenario import Scenario

NEAREST = 32  # places of a target's particles
_SPEED_WEIGHT = 2.0  # seconds; distance of two places for a difference of 1 unit per second
_ENDED = 1e18  # coordinates of an ended particle, out of every view


class Pieces(NamedTuple):
    """Places in recorded tracks, in order, one per sub-step of each track; without recorded motion T is 0."""

    position: np.ndarray  # (T, 2)
    velocity: np.ndarray  # (T, 2) units per second
    rest: np.ndarray  # (T,) int64: sub-steps until the track ends
    arrivals: np.ndarray  # (A,) int64: places where tracks begin, except at the start of a file
    expected: float  # mean number of targets
    rate: float  # arrivals per sub-step


class NewPieces(NamedTuple):
    """Recorded places of the new particles of detected targets."""

    pieces: Pieces
    places: np.ndarray  # (R, m, P) int64
    deviation: np.ndarray  # (R, m) standard deviation of the errors of detections


def no_pieces() -> Pieces:
    """Return the pieces of a scenario without recorded motion."""
    nothing = np.zeros(0, np.int64)
    return Pieces(np.zeros((0, 2)), np.zeros((0, 2)), nothing, nothing, 0.0, 0.0)


def read_pieces(scenario: Scenario) -> Pieces:
    """Return the places in a scenario's tracks; see :func:`~hitmac.envs.parts.recordings.read_recording`."""
    parts, arrivals, number, length = [], [], 0, 0
    for recording in recordings(scenario, scenario.past_tracks or scenario.tracks):
        length += recording.length
        for track in recording.tracks:
            gone = np.flatnonzero(np.isnan(track.place[:, 0]))
            for first, last in zip(np.r_[0, gone + 1], np.r_[gone, len(track.place)], strict=True):
                if first < last:
                    if track.first + first > 0:
                        arrivals.append(number)
                    parts.append(track.place[first:last])
                    number += last - first
    step = scenario.time_step
    velocity = [
        np.diff(part, axis=0, prepend=2 * part[:1] - part[1:2]) / step if len(part) > 1 else 0 * part for part in parts
    ]
    return Pieces(
        np.concatenate(parts), np.concatenate(velocity), np.concatenate([np.arange(len(part))[::-1] for part in parts]),
        np.array(arrivals, np.int64), number / length, len(arrivals) / length,
    )  # fmt: skip


class PieceFinder:
    """Search for the recorded places nearest to targets, in position and velocity.

    The distance of two places is that of (x, y, 2 s * vx, 2 s * vy).
    """

    def __init__(self, scenario: Scenario) -> None:
        from scipy.spatial import cKDTree  # here, since its import takes half a second

        self.pieces = read_pieces(scenario)
        self._tree = cKDTree(self._points(self.pieces.position, self.pieces.velocity))

    def nearest(self, known: np.ndarray, chosen: np.ndarray, number: int) -> np.ndarray:
        """Return places (..., number) int64 near the chosen reports `known` (..., 5), the nearest first."""
        k = min(number, NEAREST, len(self.pieces.rest))
        found = np.zeros((*chosen.shape, number), np.int64)
        _, nearest = self._tree.query(self._points(known[chosen, :2], known[chosen, 2:4]), np.arange(1, k + 1))
        found[chosen] = nearest[:, np.arange(number) * k // number]
        return found

    @staticmethod
    def _points(position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        return np.concatenate((position, _SPEED_WEIGHT * velocity), -1)


@inlined
def _head(pieces, body, p, place):
    """Take the velocity of a recorded place for particle p."""
    velocity_x, velocity_y = pieces.velocity[place, 0], pieces.velocity[place, 1]
    speed = np.sqrt(velocity_x * velocity_x + velocity_y * velocity_y)
    body[PLACE, p], body[SPEED, p], body[STEP, p] = place, speed, 0.0
    body[AIM_X, p] = velocity_x / speed if speed > 0.0 else 0.0
    body[AIM_Y, p] = velocity_y / speed if speed > 0.0 else 0.0


@inlined
def _begin(pieces, body, p, place):
    """Put particle p at a recorded place."""
    body[X, p], body[Y, p] = pieces.position[place, 0], pieces.position[place, 1]
    _head(pieces, body, p, place)


@allocating
def take_pieces(new, belief, r, j, x, y):
    """Replace the belief about a target by a detection at (x, y), with particles at recorded places.

    They are shifted to (x, y), and spread by the standard deviation of its errors.
    """
    body = belief.body[r, j]
    for p in range(body.shape[1]):
        body[X, p], body[Y, p] = x, y
        _head(new.pieces, body, p, new.places[r, j, p])
    add_errors(belief, r, j, new.deviation[r, j])
    belief.weight[r, j] = 1.0 / body.shape[1]


@allocating
def follow_pieces(pieces, belief, r, j):
    """Move all particles of a target once; the weight of one whose track ends becomes 0."""
    body, weight = belief.body[r, j], belief.weight[r, j]
    for p in range(weight.shape[0]):
        place = int(body[PLACE, p])
        if weight[p] > 0.0 and pieces.rest[place] > 0:
            body[X, p] += pieces.position[place + 1, 0] - pieces.position[place, 0]
            body[Y, p] += pieces.position[place + 1, 1] - pieces.position[place, 1]
            _head(pieces, body, p, place + 1)
        else:
            weight[p], body[X, p], body[Y, p] = 0.0, _ENDED, _ENDED


@allocating
def miss_recorded(belief, r, j, watch):
    """Multiply the weights by the probability that no sensor of `watch` detects a target; return the share left."""
    body, weight, before, left = belief.body[r, j], belief.weight[r, j], 0.0, 0.0
    for p in range(weight.shape[0]):
        before += weight[p]
    for p in range(weight.shape[0]):
        if weight[p] > 0.0:
            weight[p] *= chance_of_none(watch, body[X, p], body[Y, p])
            left += weight[p]
    return left / before if before > 0.0 else 0.0


@allocating
def start_unseen(pieces, belief, r, j):
    """Distribute the expected number of unseen targets evenly over random recorded places."""
    body, weight = belief.body[r, j], belief.weight[r, j]
    for p in range(weight.shape[0]):
        _begin(pieces, body, p, int(pieces.rest.shape[0] * draw_uniform(belief.stream, r)))
        weight[p] = pieces.expected / weight.shape[0]


@allocating
def add_arrivals(pieces, belief, r, j, time):
    """Let unseen targets arrive: every few sub-steps, the lightest particle moves to the beginning of a random track.

    Arrivals in the mean duration of a track take half of the particles.
    """
    body, weight = belief.body[r, j], belief.weight[r, j]
    if pieces.arrivals.shape[0] > 0:
        every = max(int(2.0 * pieces.expected / (pieces.rate * weight.shape[0])), 1)
        if time % every == 0:
            p = weight.argmin()
            _begin(pieces, body, p, pieces.arrivals[int(pieces.arrivals.shape[0] * draw_uniform(belief.stream, r))])
            weight[p] += pieces.rate * every
