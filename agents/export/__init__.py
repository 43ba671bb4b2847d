"""Export of learned policies, to run where neither torch nor this package is: ``hitmac export``."""

from hitmac.agents.export.folder import export_agent

__all__ = ["export_agent"]
