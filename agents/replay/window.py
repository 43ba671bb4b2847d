"""Window in which an agent plays episode after episode. Requires the extra ``render``."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from hitmac.agents.evaluate.episodes import Episodes, fitted
from hitmac.agents.registry import Agent
from hitmac.envs.render import Picture, check_display
from hitmac.envs.scenario import Scenario

_BARS = (("coverage", (34, 139, 74)), ("rotation", (66, 122, 196)))
_BAR, _FREE, _INK = 22, (226, 226, 220), (40, 40, 40)  # pixels of a bar; colours


class Player:
    """Window in which an agent plays episode after episode.

    Args:
        agent: the agent.
        scenario: the scenario.
        seed: seed of the first episode; the k-th has ``seed + k``.
        sub_steps: length of an episode, at most what the scenario allows.
        sub_steps_per_second: speed.
    """

    def __init__(
        self, agent: Agent, scenario: Scenario, seed: int, sub_steps: int, sub_steps_per_second: float
    ) -> None:
        import pygame

        self.agent, self._pause = agent, 1.0 / sub_steps_per_second
        self._scenario, self._sub_steps = fitted(scenario, sub_steps)
        self._begin(seed)
        self.paused = False
        self._picture = Picture(scenario)
        height, width = self._picture.shape
        pygame.display.init()
        pygame.font.init()
        self._window = pygame.display.set_mode((width, height + _BAR * len(_BARS)))
        pygame.display.set_caption(f"{agent.name} on {scenario.name}")
        self._font = pygame.font.Font(None, _BAR)

    @property
    def means(self) -> np.ndarray:
        """(2,) coverage and rotation, means over the sub-steps so far."""
        return self._total / max(self.episode.sub_step, 1)

    def run(self) -> None:
        """Play until the user quits."""
        self.show()
        then = time.monotonic() + self._pause
        while self._handle_events():
            if self.paused or time.monotonic() < then:
                time.sleep(0.005)
                continue
            then = time.monotonic() + self._pause
            self.go_on()

    def go_on(self) -> None:
        """Play and show a sub-step; after the last one, begin the next episode."""
        if self.episode.sub_step >= self._sub_steps:
            self.next_episode()
        else:
            self.episode.step()
            simulator = self.episode.task.simulator
            self._total += simulator.coverage[0], simulator.rotation[0]
            self.show()

    def next_episode(self) -> None:
        """Begin the next episode and show its start."""
        self._begin(self.seed + 1)
        self.show()

    def _begin(self, seed: int) -> None:
        self.seed, self.episode, self._total = seed, Episodes(self.agent, self._scenario, [seed]), np.zeros(2)

    def show(self) -> None:
        """Draw the scene, and below it bars of coverage and rotation."""
        import pygame

        simulator, assigned = self.episode.task.simulator, self.episode.assigned
        caption = f"{self.agent.name}   seed {self.seed}   sub-step {self.episode.sub_step}"
        picture = self._picture.draw(
            simulator.state, 0, caption, None if assigned is None else assigned[0], simulator.known
        )
        height, width, _ = picture.shape
        self._window.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        for row, ((name, colour), share) in enumerate(zip(_BARS, self.means, strict=True)):
            top = height + row * _BAR
            self._window.fill(_FREE, (0, top, width, _BAR))
            self._window.fill(colour, (0, top, round(width * share), _BAR - 2))
            self._window.blit(self._font.render(f"{name} {share:.3f}", True, _INK), (6, top + 3))
        pygame.display.flip()

    def _handle_events(self) -> bool:
        """Do what the keys say; return False to quit."""
        import pygame

        for event in pygame.event.get():
            key = event.key if event.type == pygame.KEYDOWN else None
            if event.type == pygame.QUIT or key in (pygame.K_q, pygame.K_ESCAPE):
                return False
            if key == pygame.K_SPACE:
                self.paused = not self.paused
            elif key == pygame.K_RIGHT and self.paused:
                self.go_on()
            elif key == pygame.K_n:
                self.next_episode()
        return True


def pygame_with_display(scenario: str) -> Any:
    """Return pygame, with a display; raise an error that names the remedy."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a window needs pygame: pip install 'hitmac[render]'") from None
    check_display(f"hitmac scenarios {scenario} --film out.gif")
    return pygame
