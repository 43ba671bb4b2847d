"""Film of an episode."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hitmac.agents.evaluate.compare import Episodes, fitted
from hitmac.agents.evaluate.statistics import mean_of
from hitmac.agents.names import load_agent
from hitmac.agents.policy import Policy
from hitmac.agents.registry import Agent
from hitmac.envs.render import Picture, check_film, save_pictures
from hitmac.envs.scenario import Scenario, load_scenario
from hitmac.envs.tasks import SUB_STEPS


def save_film(
    path: str | Path,
    agent: Agent | Policy | str | Path,
    scenario: Scenario | str | Path,
    *,
    seed: int,
    sub_steps: int = SUB_STEPS,
    every: int = 5,
    size: int = 400,
) -> None:
    """Film one episode as GIF or MP4, with a frame every `every` sub-steps and assignments as lines.

    `agent` and `scenario` are those of :func:`hitmac.agents.load_agent`. The episode has `sub_steps` sub-steps, limited
    by the scenario; the longer side of the film has `size` pixels. Raises ValueError if `path` does not end in .gif or
    .mp4, and ModuleNotFoundError for an MP4 film without imageio-ffmpeg.
    """
    check_film("path", path)
    scenario = load_scenario(scenario)
    agent = load_agent(agent, scenario)
    scenario, sub_steps = fitted(scenario, sub_steps)
    save_pictures(path, pictures(agent, scenario, seed, sub_steps, size, every, captioned=True))


def pictures(
    agent: Agent, scenario: Scenario, seed: int, sub_steps: int, size: int, every: int = 1, *, captioned: bool = False
) -> Iterator[np.ndarray]:
    """Play an episode; yield a picture every `every` sub-steps and after the last.

    The scenario is that of :func:`~hitmac.agents.evaluate.compare.fitted`. If `captioned`, the picture also shows the
    agent's name, its coverage so far, and its assignments.
    """
    picture, episode, coverage = Picture(scenario, size), Episodes(agent, scenario, [seed]), []
    simulator = episode.task.simulator
    for step in episode.steps(sub_steps):
        coverage.append(simulator.observed_coverage[0])
        if step % every == 0 or step == sub_steps:
            caption = assigned = None
            if captioned:
                so_far = mean_of(np.array(coverage), 0)
                shown = "-" if np.isnan(so_far) else f"{so_far:.3f}"
                caption = f"{agent.name}   coverage so far {shown}   sub-step {step}"
                assigned = None if episode.assigned is None else episode.assigned[0]
            yield picture.draw(simulator, 0, caption, assigned, *tracked(episode))


def tracked(episode: Episodes) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return the last detections (q, 2), and the means (k, 2) and covariances (k, 2, 2) of the tracks.

    If each sensor has its own tracks, they are the first sensor's.
    """
    detections, tracks = np.empty((0, 2)), (np.empty((0, 2)), np.empty((0, 2, 2)))
    if "detections" in episode.observation:
        detections = episode.observation["detections"][0][episode.observation["mask"][0] != 0][:, :2]
        if estimate := getattr(episode.agent.policy, "estimate", None):
            found = estimate(episode.state)
            shown = found.label[0, 0] > 0
            tracks = found.place[0, 0, shown], found.covariance[0, 0, shown]
    return detections, tracks


def films_of(path: Path, teams: Sequence[tuple[Scenario, Sequence[Agent]]]) -> dict[Path, tuple[Agent, Scenario]]:
    """Return the files of films of each agent, of several trainings the first, in its scenario.

    The names of several agents or scenarios are added to that of `path`. Raises the errors of :func:`save_film` and of
    :class:`~hitmac.envs.render.Picture` before any episode is played, and ValueError for two films of one name.
    """
    several = len({agent.name for _, agents in teams for agent in agents}) > 1
    films: dict[Path, tuple[Agent, Scenario]] = {}
    for scenario, agents in teams:
        Picture(scenario)
        firsts = {agent.name: agent for agent in reversed(agents)}
        for agent in reversed(firsts.values()):
            names = [agent.name] * several + [scenario.name] * (len(teams) > 1)
            added = "".join("-" + re.sub(r"([^\w.=]|_)+", "-", one).strip("-") for one in names)
            file = path.with_stem(path.stem + added)
            if file in films:
                raise ValueError(f"two films would be {file}; give the agents and scenarios other names")
            check_film("film", file)
            films[file] = agent, scenario
    return films
