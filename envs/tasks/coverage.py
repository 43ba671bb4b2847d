"""Coverage task: every sensor turns at every sub-step."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from hitmac.envs.observation import feature_table
from hitmac.envs.scenario import decision_table
from hitmac.envs.tasks.base import SUB_STEPS, Task, TaskSpec, marginal_coverage
from hitmac.envs.validation import Choice, NotNegative

REWARDS = "coverage", "real_coverage", "duel"
"""Rewards of :class:`CoverageTask`; only the first is for scenarios without warehouses."""


@dataclass(kw_only=True, eq=False, repr=False)
class CoverageTask(Task):
    """Directional sensor coverage, ``dsn/Coverage-v0``: turn every sensor at every sub-step.

    n directional sensors (cameras, radars) in an arena turn, at fixed positions or on rails; m targets walk.
    A sensor sees a target within its range (inclusive) and field of view (exclusive), unless an obstacle blocks the
    view. The aim is to cover as many targets with as little turning as possible. The default scene is that of HiT-MAC
    (Xu, Zhong, Wang, NeurIPS 2020); :class:`hitmac.envs.Scenario` documents the parameters of all scenes.

    ## Action: ``MultiDiscrete([3] * k * n)``, with k decisions of each sensor

    The first n numbers are turns, then with `zoom` of the scenario n zooms, and so on. A failed sensor does nothing.

    {decision_table}

    Range^2 x field of view stays constant. Forward is away from the first corner of a rail. A sensor circles on a
    closed rail and stops at the ends of an open one. Moves and zooms cost nothing; a tilt counts as a turn, and both
    together as one.

    ## Tilt

    With `tilt_limits` of the scenario, a sensor at the height h that is tilted by t below the horizon sees the floor
    from the distance ``h / tan(t + v / 2)`` to ``h / tan(t - v / 2)``, or to its range if that is less, where v is the
    vertical field of view. It narrows with a zoom in proportion to the horizontal one. The range in the features is the
    far edge. They include `tilt`, `between_edges` and `beyond_edges`.

    ## Motors

    With `turn_rates` of the scenario, a turn commands a rate of the sensor's motor: ``turn_angle / time_step``, or the
    highest rate if that is lower; 0 commands a stop. With ``action: rate`` the action is ``Box(-1, 1, (n,))``, float32:
    shares of the highest rate, left over 0; with `tilt_limits` n shares of `tilt_step` follow, down over 0, which take
    effect at once. A command takes effect after `command_delay` sub-steps. One within the
    `dead_zone` counts as 0, others are limited to [lowest, highest]. The rate approaches the command by
    `acceleration`. A motor stops at a pan limit; a failed sensor stops at once, and commands due meanwhile are lost.
    Turned is a sensor whose heading has changed. `heading_noise` affects all features that depend on the heading, with
    an error for every sensor and sub-step. The features include `rate` and `pending_turn`.

    ## Observation: ``Dict``

    | key | space | meaning |
    |---|---|---|
    | `pairs` | Box, float32 (n, m, d) | d features of every pair of a sensor and a target |
    | `mask` | MultiBinary (n, m) | 1 where both are part of the episode, the sensor works and the target is present |

    Where the mask is 0, the features are 0, except those of the sensor's position, heading and rail, which are 0 only
    for a sensor that does not work. In `hit-mac` the mask is 1 throughout. The table below has the features.

    A scenario's `position_noise` affects all features that depend on the target's position, `missed_detections` affects
    `visible` and `others_seeing`. Every pair and sub-step has its own errors, the same in repeated observations. With
    `position_noise` a velocity is the difference of the two positions observed immediately before and after the
    target's last move, over `time_step`. In the first observation of an episode it is 0, as without noise. Its range
    is wider by ``18 * position_noise / (time_step * top speed)``, where the top speed is
    ``max_speed * (1 + speed_noise)``. Faster targets of recorded tracks are clipped to the range.

    With the options `nearest` (k), `radius` and `neighbours` (l) a sensor observes only the nearest targets, see
    :class:`~hitmac.envs.observation.Observer`: `pairs` (n, k', d), `mask` (n, k'), `targets` (n, k') int32, and
    `neighbours` (n, l') int32. With `discs` the observation has these too, (k, 3) float32.

    ## Partial knowledge

    By default sensors observe the positions of all targets, also behind walls, as in HiT-MAC. With another `knowledge`
    of the scenario, the observation of a sensor depends only on its own detections and the reports that it received.
    The last seen position and velocity of a target replace the true ones in all features of a pair. The expected
    position is the last seen one, extrapolated at the last seen velocity, inside the arena. `visible` is 1 where the
    sensor sees the target now, `others_seeing` is the number of others that report to see it. The mask is 1 for targets
    that were seen before, and not seen leaving since. Detections keep the errors of their sub-step. The positions and
    headings of all sensors are known.

    ## Detections without names

    With `identities` false in the scenario the observation has the detections of each sensor in place of pairs, see
    :class:`~hitmac.envs.parts.detections.DetectionObserver`, unless `features` is a function that makes an observer.

    ## Reward

    ``coverage - turn_cost * (sensors that turned) / n``, after the sub-step, where n is the number of sensors of the
    episode. The coverage is that of the present targets, by their values v_j, which `zones` and `target_values` of the
    scenario change from 1::

        coverage = sum of v_j over the targets that at least `seen_by` sensors see / sum of all v_j

    By default it is the share of the targets that a sensor sees. Where no value is present, it is 1.

    ## Duels

    With `warehouses` of the scenario the targets carry cargoes between them, :class:`hitmac.envs.Game`; the option
    `opponent` moves them. With ``action: rate`` the action is ``Box(-1, 1, (2n,))``: n shares of `turn_angle`, left
    over 0, then n of `zoom_step`, wider over 0. With ``reward="duel"`` the reward is the game's: that of
    :class:`TransportTask`, negative. With ``reward="real_coverage"`` the coverage in the reward is that of the targets
    with a bounty, so that decoys do not count. With ``features="entities"`` the observation is that of
    :class:`~hitmac.envs.entities.EntityObserver`. An episode terminates when all cargoes have arrived.

    ## Start and end of an episode

    The scenario's `placement` distributes the sensors, with random headings unless the scenario gives them. Targets
    start at random positions, or those of recorded `tracks`. An episode terminates in duels only. It is truncated
    after 1010 sub-steps, HiT-MAC's 101 decisions of 10 sub-steps, or the scenario's `episode_steps` if that is fewer,
    in duels after these; ``gymnasium.make(max_episode_steps=)`` only shortens it. ``reset(options=...)`` sets other
    positions and headings (:class:`hitmac.envs.wrappers.gym_env.DirectionalSensorEnv`). In `hit-mac` the targets make
    one extra move before the first of every ten sub-steps, as in the paper's decisions.

    ## Info

    | key | value |
    |---|---|
    | `coverage` | float, see Reward |
    | `turned` | int, number of sensors that turned in this sub-step |
    | `visible` | bool (m,), True for targets that at least `seen_by` sensors see |
    | `transport` | float, in duels only: share of the bounties so far that the targets have received |

    Args:
        scenario, num_envs, seed, features, nearest, radius, neighbours, num_threads, opponent: see :class:`Task`.
        turn_cost: cost of a sub-step in which all sensors turn, in units of coverage; 0 or more; default 0.04.
        reward: ``"coverage"``, or in duels ``"real_coverage"`` or ``"duel"``.
    """

    spec = TaskSpec(
        name="Coverage",
        episode_steps=SUB_STEPS,
        summary="turn every sensor at every sub-step, to cover the targets",
        options={"per_sensor": False},
    )
    turn_cost: NotNegative = 0.04
    reward: Annotated[str, Choice(REWARDS)] = "coverage"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward != "coverage" and not self.scenario.is_game:
            raise ValueError(f"reward is {self.reward!r}; it must be coverage in a scenario without warehouses")
        # In duels, the targets that had a bounty before the last step.
        self._owed = np.zeros((self.num_envs, self.scenario.num_targets), np.bool_)

    def step(
        self, action: np.ndarray, mask: np.ndarray | None = None, target_action: np.ndarray | None = None
    ) -> np.ndarray:
        """Advance by one sub-step; see :meth:`Task.step`.

        A `target_action` (B, m, 2) of :meth:`hitmac.envs.Simulator.step` takes the place of the opponent's.
        """
        chosen, checked = self.simulator.chosen(mask), self.checked(action)
        if target_action is None:
            target_action = self.opponent_action(chosen)
        simulator, game = self.simulator, self.simulator.game
        if self.reward == "duel":
            self._owed = game.cargo.bounty > 0.0
        simulator.advance(simulator.command(checked, chosen), chosen, target_action)
        if self.reward == "duel":
            return -game.target_reward
        coverage = game.real_coverage if self.reward == "real_coverage" else simulator.coverage
        return coverage - self.turn_cost * simulator.rotation

    def difference_rewards(self) -> np.ndarray | None:
        """Return what the last reward would have lost without each sensor's views and turn (B, n).

        It is the difference reward (Wolpert and Tumer, "Optimal payoff functions for members of collectives", Advances
        in Complex Systems 2001): for the coverage the share, by value, of the targets that no more than `seen_by`
        sensors see, this one among them, less ``turn_cost / n`` if it turned. With `seen_by` 1 the parts of all sensors
        sum to the reward, less the coverage by targets that several see. With the reward ``"duel"`` it is 1 for each
        target with a bounty that only this sensor sees, and 1 more if that target delivers, as its bounty is lower.
        """
        if type(self).step is not CoverageTask.step:  # another reward
            return super().difference_rewards()
        simulator, game = self.simulator, self.simulator.game
        if self.reward == "coverage":
            marginal = marginal_coverage(simulator)
        else:
            visible = simulator.state.visible
            by = 1 if self.reward == "duel" else self.scenario.seen_by  # a bounty falls by any view
            needed = visible & (visible.sum(1, keepdims=True) == by)  # whatever the target's value
            if self.reward == "duel":
                return (needed * (self._owed * (1.0 + (game.cargo.reward > 0.0)))[:, None]).sum(-1)
            owed = game.cargo.bounty > 0.0
            marginal = needed * (owed / np.maximum(owed.sum(1, keepdims=True), 1))[:, None]
        return marginal.sum(-1) - self.turn_cost * simulator.rotated / simulator.state.num_sensors[:, None]


CoverageTask.__doc__ = (inspect.getdoc(CoverageTask) or "").replace("{decision_table}", decision_table())
CoverageTask.__doc__ += f"\n\n## Features\n\n{feature_table()}\n"
