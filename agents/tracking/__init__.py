"""Trackers of targets that are not always seen: particles, and the Kalman filter."""

from hitmac.agents.tracking.kalman_tracker import KalmanTracker
from hitmac.agents.tracking.particle_tracker import ParticleTracker

__all__ = ["KalmanTracker", "ParticleTracker"]
