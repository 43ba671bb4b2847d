"""The gymnasium shell around one scene."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from envs.render import Picture
from envs.tasks import CoverageTask


class CoverageEnv(gymnasium.Env):
    """Directional sensor coverage, ``dsn/Coverage-v0``.

    n directional sensors (cameras, radars) stand still in a square arena and turn; m targets walk about.
    A sensor sees a target that is within its range and within its field of view. All sensors turn at every
    sub-step, to cover as many targets with as little turning as possible. The scene and its numbers are
    those of HiT-MAC (Xu, Zhong, Wang, NeurIPS 2020); see :class:`envs.Scenario` for each of them.

    ## Action: ``MultiDiscrete([3] * n)``

    | number | what the sensor does |
    |---|---|
    | 0 | stays |
    | 1 | turns left (counter-clockwise) by `turn` (5 deg) |
    | 2 | turns right (clockwise) by `turn` |

    ## Observation: ``Dict``

    | key | space | what it is |
    |---|---|---|
    | `pairs` | Box, float32 (n, m, d) | d features of every pair of a sensor and a target |
    | `mask` | MultiBinary (n, m) | 1 where the pair exists (in this task all do) |

    The features are chosen by name:

    | feature | range | meaning |
    |---|---|---|
    | `sensor_id` | 0 to 1 | i / n, the paper's |
    | `target_id` | 0 to 1 | j / m, the paper's |
    | `bearing` | -1 to 1 | bearing / 180 deg, the paper's |
    | `distance` | 0 up | distance / `distance_scale` (2000), the paper's |
    | `bearing_sin`, `bearing_cos` | -1 to 1 | sine and cosine of the bearing |
    | `in_range` | 0 or 1 | the target is within the sensing range |
    | `visible` | 0 or 1 | the sensor sees the target |
    | `others_seeing` | 0 to n - 1 | how many other sensors see the target |
    | `radial_velocity` | -1 to 1 | the target's speed away from the sensor / top speed, in its last move |
    | `tangential_velocity` | -1 to 1 | its speed around the sensor, counter-clockwise / top speed |

    ## Reward

    ``coverage - turn_cost * (sensors that turned) / n``, after the sub-step, where coverage is the share of
    the targets that at least one sensor sees.

    ## Start and end of an episode

    Sensors are dealt out at random over the scenario's areas, with random headings; targets start at random.
    An episode never terminates; ``gymnasium.make`` truncates it after 1010 sub-steps, the 101 decisions of
    10 sub-steps of HiT-MAC (``max_episode_steps=``). Under the `hit-mac` scenario the targets make one extra
    move before the first of every ten sub-steps, as in the paper's decisions.

    ## Info

    | key | value |
    |---|---|
    | `coverage` | float, share of the targets that are seen |
    | `turned` | int, sensors that turned in this sub-step |
    | `visible` | bool (m,), which targets are seen |

    ## Arguments

    | argument | default | meaning |
    |---|---|---|
    | `scenario` | `"hit-mac"` | a `Scenario`, a preset's name (also with sizes: `"hit-mac-6x9"`) or a YAML file |
    | `features` | `envs.DEFAULT_FEATURES` | names from the table above |
    | `turn_cost` | 0.04 | cost if all sensors turn, in units of coverage |
    | `render_mode` | None | `"rgb_array"`: `render()` gives an RGB picture (needs the extra `render`) |

    ## Versions

    * v0: first.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, scenario: Any = "hit-mac", *, render_mode: str | None = None, **options: Any) -> None:
        check_render_mode(render_mode)
        self.task = CoverageTask(scenario, num_envs=1, num_threads=1, **options)
        self.scenario = self.task.scenario
        self.features = self.task.observer.features
        self.observation_space = self.task.observation_space
        self.action_space = self.task.action_space
        self.render_mode = render_mode
        self._picture = Picture(self.scenario) if render_mode else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode; without a seed it goes on in the scene's random stream."""
        super().reset(seed=seed)
        self.task.reset(seed=seed)
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict]:
        """One sub-step; an action of the wrong shape, type or range is an error before anything moves."""
        reward = self.task.step(np.asarray(action)[None])
        return self._observation(), float(reward[0]), False, False, self._info()

    def render(self) -> np.ndarray | None:
        """The scene as an RGB picture (height, width, 3) uint8; None without a render mode."""
        return None if self._picture is None else self._picture.draw(self.task.simulator.state, 0)

    def _observation(self) -> dict[str, np.ndarray]:
        return {key: value[0] for key, value in self.task.observe().items()}

    def _info(self) -> dict[str, Any]:
        info = self.task.info()
        return {"coverage": float(info["coverage"][0]), "turned": int(info["turned"][0]), "visible": info["visible"][0]}


def check_render_mode(render_mode: str | None) -> None:
    """Raise ValueError unless the render mode is one that there is."""
    known = CoverageEnv.metadata["render_modes"]
    if render_mode is not None and render_mode not in known:
        raise ValueError(f"render_mode is {render_mode!r}; it must be None or one of {', '.join(known)}")
