"""Replay: recorded episodes on a self-contained web page."""

from hitmac.agents.replay.page import save_replay
from hitmac.agents.replay.record import record

__all__ = ["record", "save_replay"]
