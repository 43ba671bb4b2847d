"""Export of learned policies, to run without torch and without this package: ``hitmac export``."""

from hitmac.agents.deploy.export.folder import export_agent

__all__ = ["export_agent"]
