"""Cameras that turn themselves, from detections, without end."""
