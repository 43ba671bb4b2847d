"""Motors that turn the sensors with a delay, by commanded rates, and errors of headings. Compiled by numba."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from hitmac.envs import validation
from hitmac.envs.base import state as at
from hitmac.envs.base.compile import inlined, kernel
from hitmac.envs.base.formulas import coasted, follow_command
from hitmac.envs.base.state import KernelState
from hitmac.envs.base.streams import heading_error
from hitmac.envs.base.threads import blocks
from hitmac.envs.features import Motor, motor_of
from hitmac.envs.parts import arena
from hitmac.envs.parts.sensors import LEFT, RIGHT, rotate
from hitmac.envs.validation import Choice, NotNegative, Range

COMMANDED = -1  # in place of the turn of a sensor whose motor has been given a rate


@dataclass(frozen=True, kw_only=True)
class Parameters(arena.Parameters):
    """Parameters of the motors."""

    turn_rates: Annotated[float | tuple[float, ...], Range(0)] = 0.0
    """Highest rate of the sensors' motors, or [lowest, highest], degrees per second. A turn commands turn_angle per
    time_step, or the highest rate if that is lower. 0: no motors, a sensor turns by turn_angle at once."""
    acceleration: NotNegative = 0.0
    """Acceleration of the motors, degrees per second squared; 0: a rate is reached at once."""
    command_delay: Annotated[int, Range(0, 1000)] = 0
    """Sub-steps from a command to its effect on the motor."""
    dead_zone: NotNegative = 0.0
    """Highest commanded rate at which a motor does not move, degrees per second."""
    heading_noise: NotNegative = 0.0
    """Standard deviation of the error of a sensor's observed heading, degrees."""
    action: Annotated[str, Choice(("turn", "rate"))] = "turn"
    """Action of a sensor: `turn`: stay, left or right; `rate`: a share in [-1, 1] of the highest rate, left over
    0, and with `tilt_limits` a share of `tilt_step`, down over 0; with warehouses shares of `turn_angle` and
    `zoom_step`."""

    def _rules_of_motors(self: Any) -> validation.Rules:
        given = self.turn_rates if isinstance(self.turn_rates, tuple) else (0.0, self.turn_rates)
        lowest, highest = self.rates if self.turn_rates and len(given) == 2 else (0.0, 0.0)
        yield "turn_rates", len(given) == 2 and lowest <= highest, "the highest rate, or [lowest, highest]"
        yield "acceleration", highest or not self.acceleration, "0 without turn_rates"
        yield "command_delay", highest or not self.command_delay, "0 without turn_rates"
        moves = not self.dead_zone or self.dead_zone < highest
        yield "dead_zone", moves, f"0, or under the highest of turn_rates ({highest:g})"
        turns = self.action == "turn" or self.is_game
        yield "action", turns or highest, "turn without turn_rates"
        yield "action", turns or not (self.zoom or self.rails), "turn with zoom or rails"

    @property
    def rates(self: Any) -> tuple[float, float]:
        """Lowest and highest rate of the motors, degrees per second; (0, inf) without motors."""
        lowest, highest = self.turn_rates if isinstance(self.turn_rates, tuple) else (0.0, self.turn_rates)
        return (lowest, highest) if highest else (0.0, math.inf)


class Motors(NamedTuple):
    """Motors that turn the sensors; rates are in degrees per second, positive counter-clockwise."""

    command: np.ndarray  # (D + 1, n, B) commanded rates; that of sub-step t is at t % (D + 1), for a delay of D
    law: Motor


def delay_of(scenario: Any) -> int:
    """Return the sub-steps until a turn takes effect: of its command, and half of its way to the rate."""
    if not scenario.acceleration:
        return scenario.command_delay
    rate = min(scenario.of_each_sensor("turn_angle").max() / scenario.time_step, scenario.rates[1])
    return scenario.command_delay + round(0.5 * rate / scenario.acceleration / scenario.time_step)


def allocate(scenario: Any, num_envs: int, padded: int) -> dict[str, Any]:
    """Return the arrays of this part, see :mod:`hitmac.envs.parts`: motors at rest."""
    if not scenario.turn_rates:
        return {}
    command = np.zeros((scenario.command_delay + 1, scenario.num_sensors, padded))
    return {"motors": Motors(command, motor_of(scenario))}


@inlined
def drive(state, poses, motors, time_step, action, first, last):
    """Turn every working sensor i by its motor, within its limits, where it stops.

    ``action[b, i]`` commands a rate, which takes effect with a delay. A failed sensor stops at once, and the commands
    that would take effect are lost.
    """
    sensor, slots = state.sensor, motors.command.shape[0]
    for i in range(sensor.shape[0]):
        low, high = -np.inf, np.inf
        if poses is not None:
            low, high = poses.pan_limit[i, 0], poses.pan_limit[i, 1]
        for b in range(first, last):
            now, command = state.scene[at.TIME, b] % slots, motors.command[:, i, b]
            if action[b, i] != COMMANDED:
                way = (action[b, i] == LEFT) * 1.0 - (action[b, i] == RIGHT) * 1.0
                command[now] = way * sensor[i, at.TURN, b] / time_step
            heading, rate, angle = sensor[i, at.HEADING, b], 0.0, 0.0
            if state.working[i, b]:  # the next slot holds the oldest command, which takes effect now
                rate, angle = follow_command(motors.law, time_step, sensor[i, at.RATE, b], command[(now + 1) % slots])
            # At a limit the motor stops at once.
            if (heading + angle < low and angle < 0.0) or (heading + angle > high and angle > 0.0):
                angle, rate = (low if angle < 0.0 else high) - heading, 0.0
            state.rotated[i, b] = angle != 0.0
            sensor[i, at.HEADING, b] = heading + angle
            rotate(sensor, i, b, math.radians(angle))
            sensor[i, at.RATE, b], pending = rate, 0.0  # of the commands on their way, and then without any
            for k in range(2, slots + 1):
                rate, angle = follow_command(motors.law, time_step, rate, command[(now + k) % slots])
                pending += angle
            sensor[i, at.PENDING, b] = pending + coasted(motors.law, rate)


@kernel
def misread_headings(rows, deviation, sensor, share):
    """Rotate the directions in a copy of the sensors' rows by the errors of observed headings."""
    state = KernelState(*rows)
    for low, high in blocks(sensor.shape[2], share):
        for i in range(sensor.shape[0]):
            for b in range(low, high):
                rotate(sensor, i, b, math.radians(heading_error(state, b, deviation, i)))
