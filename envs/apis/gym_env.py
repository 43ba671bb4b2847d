"""Gymnasium environments of one scene."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from envs.render import RENDER_MODES, Viewer
from envs.tasks import CoordinatorTask, CoverageTask, ExecutorTask, Task


class DirectionalSensorEnv(gymnasium.Env):
    """One scene of a task as a ``gymnasium.Env``; base class of the environments.

    ``reset(options=...)`` takes any of ``sensor_position`` (n, 2), ``heading`` (n,) in degrees,
    ``target_position`` (m, 2) and ``target_tracks`` (K, m, 2), the positions after the targets' 1st, 2nd, ... move.
    When the tracks end, the episode is truncated. All positions must be inside the arena.

    Args:
        task: class of the task.
        scenario: a :class:`~envs.scenario.Scenario`, a preset's name or a YAML file's path; None: the task's default.
        render_mode: ``"rgb_array"``: `render` returns pictures; ``"human"``: a window shows every step; or None.
        **options: options of the task (see :mod:`envs.tasks`).
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 20}

    def __init__(
        self, task: type[Task], scenario: Any = None, *, render_mode: str | None = None, **options: Any
    ) -> None:
        if scenario is not None:
            options["scenario"] = scenario
        self.task = task(num_envs=1, num_threads=1, **options)
        self.scenario = self.task.scenario
        self.features = self.task.observer.features
        self.observation_space = self.task.observation_space
        self.action_space = self.task.action_space
        self.render_mode = render_mode
        self._viewer = Viewer(self.scenario, render_mode, self.metadata["render_fps"])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode; without a seed, continue the scene's random stream."""
        super().reset(seed=seed)
        self.task.reset(seed=seed, options=options)
        self._viewer.show(self.task, 0)
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict]:
        """Advance by one step; an action of the wrong shape, type or range is an error before anything moves."""
        reward = self.task.step(np.asarray(action)[None])
        self._viewer.show(self.task, 0)
        return self._observation(), float(reward[0]), False, bool(self.task.simulator.track_ended[0]), self._info()

    def render(self) -> np.ndarray | None:
        """Return an RGB picture (height, width, 3) uint8; None with a window or without a render mode."""
        return self._viewer.render(self.task, 0)

    def close(self) -> None:
        """Close the window, if there is one."""
        self._viewer.close()

    def _observation(self) -> dict[str, np.ndarray]:
        return {key: value[0] for key, value in self.task.observe().items()}

    def _info(self) -> dict[str, Any]:
        return {key: value[0] if value.ndim > 1 else value[0].item() for key, value in self.task.info().items()}


class CoverageEnv(DirectionalSensorEnv):
    """Directional sensor coverage, ``dsn/Coverage-v0``.

    n directional sensors (cameras, radars) at fixed positions in a square arena turn; m targets walk.
    A sensor sees a target that is within its range (inclusive) and within its field of view (exclusive), unless an
    obstacle blocks the view. All sensors turn at every sub-step, to cover as many targets with as little turning
    as possible. The default scene is that of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020). :class:`envs.Scenario` documents
    every parameter, including sensors that differ, zoom, fail and err, obstacles, targets that leave and return and
    walk in other ways, and numbers of sensors and targets that vary from episode to episode.

    ## Action: ``MultiDiscrete([3] * n)``, or ``MultiDiscrete([3] * 2n)`` in a scenario with `zoom`

    | index | value | action |
    |---|---|---|
    | i | 0 | sensor i stays |
    | i | 1 | sensor i turns left (counter-clockwise) by `turn` (5 deg) |
    | i | 2 | sensor i turns right (clockwise) by `turn` |
    | n + i | 0 | sensor i keeps its field of view |
    | n + i | 1 | sensor i narrows it by `zoom_step`; range^2 x field of view stays constant |
    | n + i | 2 | sensor i widens it by `zoom_step` |

    A failed sensor does nothing.

    ## Observation: ``Dict``

    | key | space | meaning |
    |---|---|---|
    | `pairs` | Box, float32 (n, m, d) | d features of every pair of a sensor and a target |
    | `mask` | MultiBinary (n, m) | 1 where both are part of the episode, the sensor works and the target is present |

    Where the mask is 0, the features are 0. In `hit-mac` the mask is 1 throughout. The features are chosen by name:

    | feature | range | meaning |
    |---|---|---|
    | `sensor_id` | 0 to 1 | i / n, the paper's |
    | `target_id` | 0 to 1 | j / m, the paper's |
    | `bearing` | -1 to 1 | bearing / 180 deg, the paper's |
    | `distance` | 0 up | distance / `distance_scale` (2000), the paper's |
    | `bearing_sin`, `bearing_cos` | -1 to 1 | sine and cosine of the bearing |
    | `in_range` | 0 or 1 | the target is within the sensing range |
    | `visible` | 0 or 1 | the sensor sees the target |
    | `others_seeing` | 0 to n - 1 | number of other sensors that see the target |
    | `radial_velocity` | -1 to 1 | the target's speed away from the sensor / top speed, in its last move (0 before) |
    | `tangential_velocity` | -1 to 1 | the same around the sensor, counter-clockwise |
    | `field_of_view` | 0 to 1 | the sensor's field of view / 360 deg |
    | `sensing_range` | 0 up | the sensor's range / `distance_scale` |
    | `turn` | 0 to 1 | angle that the sensor turns in a sub-step / 180 deg |

    A scenario's `position_noise` affects all features that depend on the target's position, `missed_detections` affects
    `visible` and `others_seeing`. Every pair and sub-step has its own errors, which do not change when it is observed
    again. With `position_noise` a velocity is the difference of the two positions observed immediately before and after
    the target's last move, over `time_step`. In the first observation of an episode it is 0, as without noise. Its
    range is wider by ``18 * position_noise / (time_step * top speed)``.

    The top speed is the scenario's, ``max_speed * (1 + speed_noise)``. A target that follows recorded tracks may be
    faster: velocities out of range are clipped.

    ## Reward

    ``coverage - turn_cost * (sensors that turned) / n``, after the sub-step, where coverage is the share of the present
    targets that at least one sensor sees (1 if no target is present), and n is the number of sensors of the episode.

    ## Start and end of an episode

    The scenario's `placement` distributes the sensors at random over its areas, over a grid, or over the arena. Their
    headings are random. Targets start at random positions.
    An episode never terminates; ``gymnasium.make`` truncates it after 1010 sub-steps, the 101 decisions of
    10 sub-steps of HiT-MAC (``max_episode_steps=``). ``reset(options=...)`` sets other positions and headings
    (:class:`DirectionalSensorEnv`). In the `hit-mac` scenario the targets make one extra move before the first of
    every ten sub-steps, as in the paper's decisions.

    ## Info

    | key | value |
    |---|---|
    | `coverage` | float, share of the present targets that are seen |
    | `turned` | int, number of sensors that turned in this sub-step |
    | `visible` | bool (m,), True for targets that are seen |

    ## Arguments

    | argument | default | meaning |
    |---|---|---|
    | `scenario` | `"hit-mac"` | a `Scenario`, a preset's name (also with sizes: `"hit-mac-6x9"`) or a YAML file |
    | `features` | `envs.DEFAULT_FEATURES` | names from the table above |
    | `turn_cost` | 0.04 | cost of a sub-step in which all sensors turn, in units of coverage |
    | `render_mode` | None | `"rgb_array"`: `render()` returns an RGB picture; `"human"`: a window (extra `render`) |

    ## Versions

    * v0: first version.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(CoverageTask, **options)


class ExecutorEnv(DirectionalSensorEnv):
    """HiT-MAC's executor task, ``dsn/Executor-v0``: every sensor keeps its own goal targets in view.

    Source: Xu, Zhong, Wang, NeurIPS 2020, section 4, and the behaviour of its released program ("Pose-v0").

    ## Action: ``MultiDiscrete([3] * n)``

    0 stay, 1 left, 2 right, and zooms in a scenario with `zoom`, as in ``dsn/Coverage-v0``.

    ## Observation: ``Dict``

    | key | space | meaning |
    |---|---|---|
    | `pairs` | Box, float32 (n, m, d) | each sensor's goal targets, packed to the front of its m rows, then zeros |
    | `mask` | MultiBinary (n, m) | 1 throughout; with `padding="masked"`, 1 for the packed rows |

    The features are those of ``dsn/Coverage-v0``; by default the paper features.

    ## Reward

    The reward of sensor i is the mean over its goals of ``1 - centring * abs(bearing) / (field_of_view / 2)`` if it
    sees the target, else -1; 0 if it has no goal or has failed; less `turn_cost` if it turned. The environment's reward
    is the mean over the sensors of the episode; ``info["rewards"]`` holds the reward of each sensor.

    ## Start and end of an episode

    Targets start in the middle of the arena and sensor i faces target i. At first every target is a goal of
    every sensor. After every tenth step, once its reward is taken, the goals become the targets in range.
    ``gymnasium.make`` truncates after 101 steps.

    ## Info

    | key | value |
    |---|---|
    | `coverage`, `turned`, `visible` | as in ``dsn/Coverage-v0`` |
    | `rewards` | float (n,), reward of each sensor |
    | `assigned` | bool (n, m), goals of each sensor |

    ## Arguments

    | argument | default | meaning |
    |---|---|---|
    | `scenario` | `"hit-mac-executor"` | a `Scenario`, a preset's name (also with sizes) or a YAML file |
    | `features` | `envs.PAPER_FEATURES` | names of features |
    | `turn_cost` | 0.01 | cost of a turn for the sensor |
    | `centring` | 1.0 | loss of a goal seen at the edge of the view instead of in its middle, 0 to 1 |
    | `goals_every` | 10 | steps between two choices of goals |
    | `goal_share` | 1.0 | probability that a target in range becomes a goal, 0 to 1 |
    | `padding` | `"attended"` | layout of the goals; `"masked"`: mask 0 for zero rows; `"unfiltered"`: all rows |
    | `row_id` | False | `target_id` is the index of the goal's row / m, as where an executor is used, not j / m |
    | `render_mode` | None | `"rgb_array"` or `"human"` |

    ## Versions

    * v0: first version.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(ExecutorTask, **options)


class CoordinatorEnv(DirectionalSensorEnv):
    """HiT-MAC's coordinator task, ``dsn/Coordinator-v0``: assign targets to sensors every ten sub-steps.

    Source: Xu, Zhong, Wang, NeurIPS 2020, section 4, and the behaviour of its released program ("Pose-v1").

    ## Action: ``MultiBinary(n * m)``

    1 at index i * m + j assigns target j to sensor i, for one decision of ten sub-steps. During the decision an
    executor turns the sensors, and zooms if it decides on zooms; the scripted executor does not zoom.

    ## Observation: ``Dict``

    `pairs` and `mask` as in ``dsn/Coverage-v0``, after the last sub-step; by default the paper features.

    ## Reward

    The mean over the ten sub-steps of the coverage, or of -0.1 where no sensor sees a target assigned to it.

    ## Decision

    Each of the ten sub-steps has three parts: the executor turns every sensor, given the current positions of the
    targets; the targets move; the sub-step is rewarded. A sensor without assigned targets turns at random. The extra
    moves of the scenario (`extra_move_every`) precede the executor's observation: in `hit-mac` the targets move once at
    the start of a decision.

    ## Start and end of an episode

    As in ``dsn/Coverage-v0``; ``gymnasium.make`` truncates after 101 decisions.

    ## Info

    | key | value |
    |---|---|
    | `coverage`, `visible` | after the last sub-step, as in ``dsn/Coverage-v0`` |
    | `turned` | float, number of sensors that turned per sub-step, mean over the decision |
    | `sub_rewards` | float (10,), rewards of the sub-steps |
    | `assigned` | bool (n, m), assignment of the decision |

    ## Arguments

    | argument | default | meaning |
    |---|---|---|
    | `scenario` | `"hit-mac"` | a `Scenario`, a preset's name (also with sizes) or a YAML file |
    | `features` | `envs.PAPER_FEATURES` | names of features |
    | `executor` | `"scripted"` | or a policy with `predict`, called in one batch for all sensors of all scenes |
    | `executor_features` | `envs.PAPER_FEATURES` | features that such a policy observes |
    | `padding` | `"attended"` | layout of the assigned targets for such a policy, as in ``dsn/Executor-v0`` |
    | `idle` | `"random"` | turns of a sensor without assigned targets; `"holds"`: it stays |
    | `decision` | 10 | sub-steps of a decision |
    | `render_mode` | None | `"rgb_array"` or `"human"` |

    ## Versions

    * v0: first version.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(CoordinatorTask, **options)
