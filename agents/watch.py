"""Command line ``hitmac watch``: an agent plays episode after episode, in a window."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from hitmac.agents.command_line import parse, stop_on_bad_input
from hitmac.agents.evaluate.episodes import fitted
from hitmac.agents.hierarchy import assignment_of
from hitmac.agents.policy import started
from hitmac.agents.registry import Agent, load_agent
from hitmac.envs.load import load_scenario
from hitmac.envs.ranges import over
from hitmac.envs.render import Picture
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import SUB_STEPS, CoverageTask
from hitmac.envs.window import check_display

PROGRAM = "hitmac watch"

_BARS = (("coverage", (34, 139, 74)), ("rotation", (66, 122, 196)))
_BAR, _FREE, _INK = 22, (226, 226, 220), (40, 40, 40)  # pixels of a bar; colours


@dataclass(frozen=True)
class Options:
    """Watch an agent play, in a window.

    Keys: space pauses, the right arrow goes on by a sub-step while paused, n begins the next episode, q and Esc quit.
    """

    agent: str = "pretrained:flat"
    """Agent, as agents.evaluate takes it: planner, pretrained:NAME, the directory of a run."""
    scenario: str = "hit-mac"
    """Scenario: a preset's name (also with sizes: hit-mac-6x9), the path of a YAML file, or a run."""
    seed: int = 0
    """Seed of the first episode; the k-th has seed + k."""
    tracks: tuple[str, ...] = ()
    """CSV files of recorded tracks, in place of the scenario's own; each episode follows one of them."""
    sub_steps_per_second: Annotated[float, over(0)] = 20.0
    """Speed."""


class Episode:
    """Episode of an agent in one scene.

    Args:
        agent: the agent.
        scenario: the scenario, of whole episodes (:func:`hitmac.agents.evaluate.episodes.fitted`).
        seed: seed of the episode.
        sub_steps: length of the episode.
    """

    def __init__(self, agent: Agent, scenario: Scenario, seed: int, sub_steps: int) -> None:
        self.agent, self.seed, self.sub_steps, self.sub_step = agent, seed, sub_steps, 0
        self.task = CoverageTask(scenario, 1, seed, features=agent.features)
        self.state = started(agent.policy, [seed])
        self.total = np.zeros(2)  # of coverage and rotation

    def step(self) -> None:
        """Play a sub-step."""
        starts = np.array([self.sub_step == 0])
        action, self.state = self.agent.policy.predict(self.task.observe(), self.state, starts, deterministic=True)
        self.task.step(action)
        self.sub_step += 1
        self.total += self.task.simulator.coverage[0], self.task.simulator.rotation[0]

    @property
    def means(self) -> np.ndarray:
        """(2,) coverage and rotation, means over the sub-steps so far."""
        return self.total / max(self.sub_step, 1)

    def draw(self, picture: Picture) -> np.ndarray:
        """Return a picture of the scene."""
        assigned = assignment_of(self.agent.policy, self.state)
        known = self.task.simulator.known
        caption = f"{self.agent.name}   seed {self.seed}   sub-step {self.sub_step}"
        return picture.draw(
            self.task.simulator.state, 0, caption, None if assigned is None else assigned[0], known
        )  # fmt: skip


class Player:
    """Window in which an agent plays episode after episode.

    Args:
        agent: the agent.
        scenario: the scenario.
        seed: seed of the first episode; the k-th has ``seed + k``.
        sub_steps_per_second: speed.
    """

    def __init__(self, agent: Agent, scenario: Scenario, seed: int, sub_steps_per_second: float) -> None:
        import pygame

        self.agent, self._pause = agent, 1.0 / sub_steps_per_second
        self._scenario, self._sub_steps = fitted(scenario, SUB_STEPS)
        self.episode = Episode(agent, self._scenario, seed, self._sub_steps)
        self.paused = False
        self._picture = Picture(scenario)
        height, width = self._picture.shape
        pygame.display.init()
        pygame.font.init()
        self._window = pygame.display.set_mode((width, height + _BAR * len(_BARS)))
        pygame.display.set_caption(f"{agent.name} on {scenario.name}")
        self._font = pygame.font.Font(None, _BAR)

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
            self.show()

    def next_episode(self) -> None:
        """Begin the next episode and show its start."""
        self.episode = Episode(self.agent, self._scenario, self.episode.seed + 1, self._sub_steps)
        self.show()

    def show(self) -> None:
        """Draw the scene, and below it bars of coverage and rotation."""
        import pygame

        picture = self.episode.draw(self._picture)
        height, width, _ = picture.shape
        self._window.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        for row, ((name, colour), share) in enumerate(zip(_BARS, self.episode.means, strict=True)):
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and not given[0].startswith("-"):
        given.insert(0, "--agent")
    options = parse(Options, PROGRAM, given)
    with stop_on_bad_input(PROGRAM):
        if not 0 < options.sub_steps_per_second < math.inf:
            raise ValueError(f"--sub-steps-per-second is {options.sub_steps_per_second}; it must be a number, over 0")
        pygame = _pygame(options.scenario)
        scenario = load_scenario(options.scenario)
        if options.tracks:
            scenario = scenario.replace(tracks=options.tracks)
        agent = load_agent(options.agent, scenario)
    try:
        Player(agent, scenario, options.seed, options.sub_steps_per_second).run()
    except KeyboardInterrupt:
        pass
    finally:
        pygame.quit()


def _pygame(scenario: str) -> Any:
    """Return pygame, with a display; raise an error that names the remedy."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a window needs pygame: pip install 'hitmac[render]'") from None
    check_display(f"hitmac scenarios {scenario} --film out.gif")
    return pygame


if __name__ == "__main__":
    main()
