"""Implementation of ``render()``: pictures, or a window."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from hitmac.envs.errors import is_among
from hitmac.envs.render import Picture
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import Task

RENDER_MODES = ("rgb_array", "human")


class Viewer:
    """Implementation of ``render()`` of the environments: pictures, or a window.

    Args:
        scenario: scenario of the scenes.
        render_mode: ``"rgb_array"``: pictures; ``"human"``: a window; None: nothing.
        frames_per_second: highest frame rate of the window.

    Raises:
        ValueError: another render mode.
        ModuleNotFoundError: Pillow or pygame is missing; the message names the extra to install.
    """

    def __init__(self, scenario: Scenario, render_mode: str | None, frames_per_second: int) -> None:
        if render_mode is not None and not is_among(render_mode, RENDER_MODES):
            raise ValueError(f"render_mode is {render_mode!r}; it must be None or one of {', '.join(RENDER_MODES)}")
        self.render_mode = render_mode
        self._frames_per_second = frames_per_second
        self._picture = Picture(scenario) if render_mode else None
        self._window: Any = None
        self._clock: Any = None
        if render_mode == "human":
            try:
                import pygame  # noqa: F401 - checked here, used when the window opens
            except ModuleNotFoundError:
                raise ModuleNotFoundError("a window needs pygame: pip install 'hitmac[render]'") from None

    def render(self, task: Task, b: int) -> np.ndarray | None:
        """Return scene `b` of a task as (height, width, 3) uint8; None with a window or without a render mode."""
        if self._picture is None:
            return None
        picture = self._picture.of_task(task, b)
        if self.render_mode == "rgb_array":
            return picture
        import pygame

        if self._window is None:
            pygame.display.init()
            self._window = pygame.display.set_mode(self._picture.shape[::-1])
            pygame.display.set_caption(task.scenario.name)
            self._clock = pygame.time.Clock()
        pygame.event.pump()
        self._window.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        pygame.display.flip()
        self._clock.tick(self._frames_per_second)
        return None

    def show(self, task: Task, b: int) -> None:
        """Update the window, if there is one."""
        if self.render_mode == "human":
            self.render(task, b)

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            import pygame

            pygame.display.quit()
            self._window = self._clock = None


_DISPLAYS = ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
_UNSEEN_DRIVERS = ("offscreen", "dummy", "evdev")


def check_display(remedy: str = "--film out.gif") -> None:
    """Raise an OSError that names the remedy, a command for a film, if no display shows a window; requires pygame.

    An environment with ``render_mode="human"`` still runs without a display, as gymnasium's own environments do: SDL
    draws into memory. Setting ``SDL_VIDEODRIVER`` allows that here too.
    """
    import pygame

    try:
        # Without a display the drivers would print warnings: do not try them.
        if sys.platform.startswith("linux") and not any(map(os.environ.get, _DISPLAYS)):
            raise pygame.error("DISPLAY is not set")
        pygame.display.init()
        if pygame.display.get_driver() in _UNSEEN_DRIVERS and not os.environ.get("SDL_VIDEODRIVER"):
            pygame.display.quit()
            raise pygame.error("no screen found")
    except pygame.error as error:
        raise OSError(f"there is no display for a window ({error}); write a film instead: {remedy}") from None
