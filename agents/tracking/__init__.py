"""Trackers: of intermittently observed targets by particles or the Kalman filter, and of detections without names."""

from hitmac.agents.tracking.feed import DetectionFeed
from hitmac.agents.tracking.particles import ParticleTracker
from hitmac.agents.tracking.tracks import Tracks

__all__ = ["DetectionFeed", "ParticleTracker", "Tracks"]
