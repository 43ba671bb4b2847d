"""Knowledge of the targets from own detections and from messages of other sensors. Compiled by numba.

With full knowledge, a state has no :class:`Knowledge`.
"""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from hitmac.envs.base import state as at
from hitmac.envs.base.compile import allocating, compiled, inlined
from hitmac.envs.base.state import X, Y
from hitmac.envs.base.streams import message_key, notice, pair_number, position_error, uniform, velocity_error
from hitmac.envs.deployment import KNOWLEDGE
from hitmac.envs.parts import arena
from hitmac.envs.parts.arena import scaled
from hitmac.envs.validation import Choice, Count, Fraction, Natural, NotNegative


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of the knowledge."""

    knowledge: Annotated[str, Choice(KNOWLEDGE)] = "full"
    """Knowledge of the targets: `full`: the positions of all, as in HiT-MAC; `shared`: what any sensor sees;
    `neighbours`: what the sensor sees itself and what others report; `own`: what it sees itself. Of an unseen target
    the last seen position and velocity, and their age, are known."""
    communication_range: NotNegative = scaled(1000.0)
    """Largest distance between two sensors that exchange reports, with `neighbours`."""
    hops: Count = 1
    """Largest number of links that a report travels, with `neighbours`; a failed sensor forwards nothing."""
    message_loss_rate: Fraction = 0.0
    """Probability that the messages of a sub-step over a link, in one direction, are lost, with `neighbours`."""
    message_delay: Natural = 0
    """Sub-steps from a detection to its arrival at other sensors, with `neighbours`."""


class Knowledge(NamedTuple):
    """Knowledge of the targets, in the layout of the kernels.

    It has r rows: one for each sensor, or a single one shared by all. Sets of sensors are bits of W words: sensor i is
    bit i % 64 of word i // 64. S is the delay of messages in sub-steps.
    """

    known: np.ndarray  # (r, m, 5, B)
    seeing: np.ndarray  # (r, m, B) int16
    left: np.ndarray  # (r, m, B) bool
    noticed: np.ndarray  # (n, m, B) bool
    reported: np.ndarray  # (S, m, W, B) uint64
    report: np.ndarray  # (S, n, m, 4, B)
    # Undefined between two calls:
    seers: np.ndarray  # (m, W, B) uint64: sensors whose reports of the target arrive
    heard: np.ndarray  # (n, W, B) uint64: sensors whose messages reach the sensor


class Known(NamedTuple):
    """Knowledge of the targets in a batch of B scenes.

    It has r rows: one for each sensor, or 1 if all share their detections. Reports take S sub-steps to arrive.
    """

    known_position: np.ndarray  # (B, r, m, 2) last known position
    known_velocity: np.ndarray  # (B, r, m, 2) velocity there, units per second
    known_age: np.ndarray  # (B, r, m) sub-steps since then; inf: never seen
    known_seeing: np.ndarray  # (B, r, m) int16: sensors that report the target, the sensor itself included
    known_left: np.ndarray  # (B, r, m) bool: the target was seen leaving and has not been seen since
    noticed: np.ndarray  # (B, n, m) bool: sensor i detects target j
    reported: np.ndarray  # (B, S, m, W) uint64: sensors that have reported each target, as bits
    report: np.ndarray  # (B, S, n, m, 4) position and velocity in the reports


_ZERO, _ONE = np.uint64(0), np.uint64(1)


def allocate(scenario: Any, num_envs: int, padded: int) -> dict[str, Any]:
    """Return the arrays of this part, see :mod:`hitmac.envs.parts`; none if targets have no identities."""
    if scenario.knowledge == "full" or not scenario.identities:
        return {}
    n, m = scenario.num_sensors, scenario.num_targets
    rows = 1 if scenario.knowledge == "shared" else n
    messages = scenario.knowledge == "neighbours"
    slots, words = (scenario.message_delay, (n - 1) // 64 + 1) if messages else (0, 0)
    knowledge = Knowledge(
        known=np.zeros((rows, m, 5, padded)),
        seeing=np.zeros((rows, m, padded), np.int16),
        left=np.zeros((rows, m, padded), np.bool_),
        noticed=np.zeros((n, m, padded), np.bool_),
        reported=np.zeros((slots, m, words, padded), np.uint64),
        report=np.zeros((slots, n, m, 4, padded)),
        seers=np.zeros((m, words, padded), np.uint64),
        heard=np.zeros((n, words, padded), np.uint64),
    )
    return {"knowledge": knowledge}


@inlined
def popcount(members):
    """Return the number of bits of a uint64 that are set."""
    members = members - ((members >> np.uint64(1)) & np.uint64(0x5555555555555555))
    members = (members & np.uint64(0x3333333333333333)) + ((members >> np.uint64(2)) & np.uint64(0x3333333333333333))
    members = (members + (members >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (members * np.uint64(0x0101010101010101)) >> np.uint64(56)


@inlined
def _first(members):
    """Return the number of the lowest bit of a uint64, not 0, that is set."""
    return popcount((members & (~members + _ONE)) - _ONE)


@inlined
def row_of(known, i):
    """Return the row of the knowledge of sensor i: its own, or the shared one."""
    return i if known.shape[0] > 1 else 0


@inlined
def place_of(state, knowledge, i, j, b):
    """Return whether sensor i of scene b knows a place of target j, and its x and y."""
    if knowledge is None:
        return state.present[j, b], state.target[j, X, b], state.target[j, Y, b]
    row = row_of(knowledge.known, i)
    known = knowledge.known[row, j]
    there = (known[at.AGE, b] < np.inf) & (not knowledge.left[row, j, b])
    return there, known[X, b], known[Y, b]


@allocating
def forget(knowledge, b):
    """Clear the knowledge of all sensors of scene b."""
    if knowledge is not None:
        knowledge.known[..., b] = 0.0
        knowledge.known[:, :, at.AGE, b] = np.inf
        knowledge.left[..., b] = False
        knowledge.reported[..., b] = _ZERO


@compiled
def _measure(state, p, i, j, first, last):
    """Write position and velocity of target j, as sensor i measures them, into rows 0 to 3 of `scratch`."""
    pair = pair_number(state, i, j)
    for row in range(at.MOTION):
        for b in range(first, last):
            state.scratch[row, b] = state.target[j, row, b]
    for b in range(first, last):
        if state.scratch_mask[b]:
            x, y = position_error(state, b, p.position_noise, pair)
            state.scratch[X, b] += x
            state.scratch[Y, b] += y
            if state.scene[at.TIME_BEFORE, b] >= 0:
                x, y = velocity_error(state, b, p.position_noise, 1.0 / p.time_step, pair)
                state.scratch[at.VELOCITY_X, b] += x
                state.scratch[at.VELOCITY_Y, b] += y


@inlined
def _look(state, p, knowledge, first, last):
    """Update the knowledge from detections; shared knowledge takes those of the first sensor that sees a target."""
    known, new = knowledge.known, state.scratch_mask
    for j in range(state.target.shape[0]):
        for i in range(state.sensor.shape[0]):
            r = row_of(known, i)
            if i < known.shape[0]:
                age = known[r, j, at.AGE]
                if p.departures:
                    for b in range(first, last):  # a target that leaves in view is known to have left
                        knowledge.left[r, j, b] |= (age[b] == 0.0) & (not state.present[j, b])
                for b in range(first, last):
                    age[b] += 1.0
                for b in range(first, last):
                    knowledge.seeing[r, j, b] = 0
            notice(state, p.missed_detections, i, j, first, last)
            for b in range(first, last):
                knowledge.noticed[i, j, b] = new[b]
            for b in range(first, last):
                new[b] &= knowledge.seeing[r, j, b] == 0
            for b in range(first, last):
                knowledge.seeing[r, j, b] += knowledge.noticed[i, j, b]
            measured = state.target[j]
            if p.position_noise > 0.0:
                _measure(state, p, i, j, first, last)
                measured = state.scratch
            # Reading both values before choosing lets the compiler vectorise the loop.
            for row in range(at.MOTION):
                for b in range(first, last):
                    before, now = known[r, j, row, b], measured[row, b]
                    known[r, j, row, b] = now if new[b] else before
            for b in range(first, last):
                before = known[r, j, at.AGE, b]
                known[r, j, at.AGE, b] = 0.0 if new[b] else before
            if p.departures:
                for b in range(first, last):
                    knowledge.left[r, j, b] &= not new[b]


@inlined
def _connect(state, p, knowledge, first, last):
    """Set bit i of `heard[k]` if a message from sensor i reaches sensor k directly."""
    n = state.sensor.shape[0]
    farthest = p.communication_range * p.communication_range
    for k in range(n):
        for w in range(knowledge.heard.shape[1]):
            for b in range(first, last):
                knowledge.heard[k, w, b] = _ZERO
        for i in range(n):
            if i != k:
                heard, bit = knowledge.heard[k, i // 64], np.uint64(i % 64)
                for b in range(first, last):
                    dx = state.sensor[i, X, b] - state.sensor[k, X, b]
                    dy = state.sensor[i, Y, b] - state.sensor[k, Y, b]
                    near = state.working[k, b] & (dx * dx + dy * dy <= farthest)
                    heard[b] |= np.uint64(near) << bit
                if p.message_loss_rate > 0.0:
                    link = np.uint64(k * n + i)
                    for b in range(first, last):
                        arrives = uniform(message_key(state, b), link) >= p.message_loss_rate
                        heard[b] &= ~(np.uint64(not arrives) << bit)


@allocating
def _relay(knowledge, hops, first, last):
    """Add to `heard[k]` the sensors whose messages reach sensor k over 2 to `hops` links."""
    n, words = knowledge.heard.shape[0], knowledge.heard.shape[1]
    link, heard = np.empty((n, words), np.uint64), np.empty((n, words), np.uint64)
    for b in range(first, last):
        for k in range(n):
            for w in range(words):
                link[k, w] = knowledge.heard[k, w, b]
        for _ in range(1, hops):  # each pass adds the senders that are one link farther
            for k in range(n):
                for w in range(words):
                    heard[k, w] = knowledge.heard[k, w, b]
            more = False
            for k in range(n):
                for through in range(n):
                    if link[k, through // 64] >> np.uint64(through % 64) & _ONE:
                        for w in range(words):
                            new = heard[through, w] & ~knowledge.heard[k, w, b]
                            if w == k // 64:
                                new &= ~(_ONE << np.uint64(k % 64))  # its own messages, returned
                            more |= new != _ZERO
                            knowledge.heard[k, w, b] |= new
            if not more:
                break


@inlined
def _hear(state, knowledge, k, j, first, last):
    """Update the knowledge of target j at sensor k from newer reports."""
    known, report, slots = knowledge.known, knowledge.report, knowledge.reported.shape[0]
    for w in range(knowledge.seers.shape[1]):
        seers, heard = knowledge.seers[j, w], knowledge.heard[k, w]
        for b in range(first, last):
            knowledge.seeing[k, j, b] += np.int16(popcount(seers[b] & heard[b]))
        for b in range(first, last):
            # A report is `slots` sub-steps old when it arrives; younger knowledge stays.
            if (seers[b] & heard[b] != _ZERO) & (known[k, j, at.AGE, b] > slots):
                i = np.int64(_first(seers[b] & heard[b])) + 64 * w
                for row in range(at.MOTION):
                    if slots > 0:
                        known[k, j, row, b] = report[state.scene[at.TIME, b] % slots, i, j, row, b]
                    else:
                        known[k, j, row, b] = known[i, j, row, b]
                known[k, j, at.AGE, b] = slots
                knowledge.left[k, j, b] = False


@compiled
def _exchange(state, p, knowledge, first, last):
    """Send reports of the noticed targets, and update the knowledge from reports that arrive, S sub-steps later."""
    noticed, seers, reported = knowledge.noticed, knowledge.seers, knowledge.reported
    slots = reported.shape[0]
    _connect(state, p, knowledge, first, last)
    if p.hops > 1:
        _relay(knowledge, p.hops, first, last)
    for j in range(seers.shape[0]):
        for w in range(seers.shape[1]):
            for b in range(first, last):
                seers[j, w, b] = _ZERO
        for i in range(noticed.shape[0]):
            for b in range(first, last):
                seers[j, i // 64, b] |= np.uint64(noticed[i, j, b]) << np.uint64(i % 64)
    if slots > 0:  # what is seen now is sent, and what was sent S sub-steps ago arrives
        for b in range(first, last):
            slot = state.scene[at.TIME, b] % slots
            for j in range(seers.shape[0]):
                for w in range(seers.shape[1]):
                    seers[j, w, b], reported[slot, j, w, b] = reported[slot, j, w, b], seers[j, w, b]
    for k in range(knowledge.known.shape[0]):
        for j in range(knowledge.known.shape[1]):
            _hear(state, knowledge, k, j, first, last)
    if slots > 0:  # the reports of this sub-step replace those that have arrived
        for b in range(first, last):
            slot = state.scene[at.TIME, b] % slots
            for i in range(noticed.shape[0]):
                for j in range(noticed.shape[1]):
                    if noticed[i, j, b]:
                        for row in range(at.MOTION):
                            knowledge.report[slot, i, j, row, b] = knowledge.known[i, j, row, b]


@compiled
def learn(state, p, knowledge, first, last):
    """Update the knowledge of the sensors by one sub-step, from detections and messages.

    Call it after visibility is computed and the time has advanced.
    """
    if knowledge is not None:
        _look(state, p, knowledge, first, last)
        if p.hops > 0:
            _exchange(state, p, knowledge, first, last)
