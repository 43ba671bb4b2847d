"""Replay: episodes of agents to look at, as a page that needs nothing else, and in a window."""

from hitmac.agents.replay.page import save_replay
from hitmac.agents.replay.record import record

__all__ = ["record", "save_replay"]
