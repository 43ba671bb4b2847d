"""Packed series as the page reads them, and episodes played again."""

import base64
import gzip

import numpy as np

from hitmac.agents.attention import attention_of
from hitmac.agents.evaluate.compare import Episodes
from hitmac.envs import load_scenario
from tests.agents.untrained import of_lists

CITY = load_scenario("city-130x140")


def unpacked(series):
    """Values (F, width) of a series; NaN for the largest of numbers that are not whole."""
    numbers = np.frombuffer(gzip.decompress(base64.b64decode(series["data"])), series["type"])
    whole = numbers.reshape(series["frames"], -1).cumsum(0, dtype=series["type"])
    none = (whole == np.iinfo(whole.dtype).max) & (series["step"] != 1)
    return np.where(none, np.nan, series["low"] + series["step"] * whole)


def played(agent, scenario, seed, sub_steps):
    """Live states of an episode, at the start and after each sub-step."""
    episode = Episodes(agent, scenario, [seed])
    yield episode
    for _ in episode.steps(sub_steps):
        yield episode


def attention_to_all(agent, episode):
    """Attention (n, m) of an agent's next decision, from its lists."""
    shown = episode.task.observe()
    return of_lists(attention_of(agent.policy, shown)["policy"], shown["targets"], CITY.num_targets)[0]
