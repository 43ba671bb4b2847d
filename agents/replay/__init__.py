"""Replay: episodes of agents to look at, on a page that needs nothing else."""

from hitmac.agents.replay.page import save_replay
from hitmac.agents.replay.record import record

__all__ = ["record", "save_replay"]
