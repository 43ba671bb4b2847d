"""Base of all environments: a task, the length of its episodes, and its pictures, as arrays or in a window."""

import importlib.util
from typing import Annotated, Any

import numpy as np
from gymnasium.error import ResetNeeded

from hitmac.envs.render import Picture
from hitmac.envs.tasks import Task, make_task
from hitmac.envs.validation import Choice, convert

METADATA: dict[str, Any] = {"render_modes": ["rgb_array", "human"], "render_fps": 20}
"""Render modes and frame rate of the environments, as in gymnasium."""


class Shell:
    """Base of the environments around a task.

    Args of all shells:
        task: name in :data:`hitmac.envs.TASKS`, class, or a :class:`~hitmac.envs.tasks.Task`.
        scenario: a :class:`~hitmac.envs.scenario.Scenario`, a preset's name or a YAML file's path; None: the task's
            default.
        num_envs: B, number of scenes; 1 or more. An existing task has its own.
        max_episode_steps: steps after which an episode is truncated, 1 or more, at most the scenario's `episode_steps`;
            None: the task's default.
        render_mode: ``"rgb_array"``: pictures; ``"human"``: a window shows every step of the first scene; or None.
        **options: options of the task (see :mod:`hitmac.envs.tasks`).

    Raises ``ValueError`` or ``TypeError`` for an option out of its range, and ``ModuleNotFoundError``, which names the
    extra to install, where Pillow or pygame is missing. A step before the first reset raises gymnasium's
    ``ResetNeeded``.
    """

    metadata = METADATA
    begun = False  # True from the first reset on

    def _set_task(
        self, *scene: Any, max_episode_steps: int | None = None, render_mode: str | None = None, **options: Any
    ) -> Task:
        convert("render_mode", Annotated[str, Choice(METADATA["render_modes"])] | None, render_mode)
        if render_mode == "human" and importlib.util.find_spec("pygame") is None:
            raise ModuleNotFoundError("a window requires pygame: pip install 'hitmac[render]'")
        self.task = made = make_task(*scene, **options)
        self.scenario, self.features = made.scenario, made.observer.features
        self.max_episode_steps = made.episode_steps(max_episode_steps)
        self.render_mode = render_mode
        self._picture = Picture(made.scenario) if render_mode else None
        self._window: Any = None
        return made

    def _set_scene(self, *scene: Any, **options: Any) -> Task:
        """Set a task of a single scene."""
        made = self._set_task(*scene, **options)
        if made.num_envs != 1:
            raise ValueError(f"num_envs is {made.num_envs}; a {type(self).__name__} has 1 scene")
        return made

    def _check_begun(self) -> None:
        if not self.begun:
            raise ResetNeeded("step() is called before reset(); call reset() first")

    def _drawn(self, b: int = 0) -> np.ndarray | None:
        """Return a picture of scene `b`, (height, width, 3) uint8; None with a window or without a render mode."""
        return self._picture.of_task(self.task, b) if self._picture and self.render_mode == "rgb_array" else None

    def _show(self) -> None:
        """Update the window, if there is one, with the first scene."""
        if self.render_mode != "human" or self._picture is None:
            return
        import pygame

        if self._window is None:
            pygame.display.init()
            self._window = pygame.display.set_mode(self._picture.shape[::-1]), pygame.time.Clock()
            pygame.display.set_caption(self.scenario.name)
        window, clock = self._window
        pygame.event.pump()
        window.blit(pygame.surfarray.make_surface(self._picture.of_task(self.task, 0).swapaxes(0, 1)), (0, 0))
        pygame.display.flip()
        clock.tick(METADATA["render_fps"])

    def render(self) -> Any:
        """Return an RGB picture (height, width, 3) uint8; None with a window, which is updated, or without a mode."""
        self._show()
        return self._drawn()

    def close(self, **kwargs: Any) -> None:
        """Close the window, if it is open."""
        if self._window is not None:
            import pygame

            pygame.display.quit()
            self._window = None
