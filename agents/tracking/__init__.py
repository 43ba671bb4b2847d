"""Trackers of intermittently observed targets: particles and the Kalman filter."""

from hitmac.agents.tracking.kalman import KalmanTracker
from hitmac.agents.tracking.particles import ParticleTracker

__all__ = ["KalmanTracker", "ParticleTracker"]
