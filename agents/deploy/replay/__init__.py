"""Replay: recorded episodes on a self-contained web page."""

from hitmac.agents.deploy.replay.page import record, save_replay

__all__ = ["record", "save_replay"]
