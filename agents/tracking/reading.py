"""Observations, as beliefs read them: views of the sensors, and what is known of the targets."""

from __future__ import annotations

import numpy as np

from hitmac.agents.tracking.reports import Reports
from hitmac.agents.tracking.views import VIEW_CHANCE, VIEW_RANGE, VIEW_X, VIEW_Y
from hitmac.envs.scenario import Scenario

FEATURES = (
    "bearing_sin",
    "bearing_cos",
    "distance",
    "radial_velocity",
    "tangential_velocity",
    "age",
    "sensor_x",
    "sensor_y",
    "heading_sin",
    "heading_cos",
)
"""Features of the observation that are read."""

(
    _SIN, _COS, _DISTANCE, _RADIAL, _TANGENTIAL, _AGE, _X, _Y, _HEADING_SIN, _HEADING_COS,
) = range(10)  # fmt: skip
_ROUNDED, _ERRORS = 1e-6, 3.0  # of half the sides of the arena, and of the deviation of observed positions
_OBSTRUCTED = 0.9
"""Chance that no obstacle hides a target in view, where a scenario has obstacles: beliefs do not know them."""


class Reader:
    """Reader of the observations of a scenario, features (B, n, m, 10) and masks (B, n, m).

    Args:
        scenario: the scenario.

    Attributes:
        alone: True if every sensor knows what it observes alone.
        rows: g, rows of knowledge of a scene: n if `alone`, else 1. R is B * g.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.alone = scenario.knowledge in ("neighbours", "own")
        self.rows = scenario.num_sensors if self.alone else 1
        self._all_known = scenario.knowledge == "full"
        view = scenario.of_each_sensor("field_of_view")
        self._half_view_cosine = np.where(view < 360.0, np.cos(np.radians(0.5 * view)), -2.0)
        self._range_squared = scenario.of_each_sensor("sensing_range") ** 2

    def views(self, pairs: np.ndarray) -> np.ndarray:
        """Return the views (R, n, 7) of the sensors, with the chances that they report to the rows."""
        pose = pairs[:, :, 0].astype(np.float64)
        cos, sin = pose[..., _HEADING_COS], pose[..., _HEADING_SIN]
        working = cos**2 + sin**2 > 0.5
        half = np.broadcast_to(self._half_view_cosine, cos.shape)
        half_width, half_height = self.scenario.extent
        x, y = half_width * pose[..., _X], half_height * pose[..., _Y]
        views = np.stack((x, y, cos, sin, half, self._range_squared * working, working), -1)
        views = np.repeat(views, self.rows, 0)
        views[..., VIEW_CHANCE] = self._chances(x, y, working).reshape(-1, x.shape[1])
        return views

    def knowledge(self, pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return what the rows know (R, m, 5) of all targets."""
        pose = pairs[:, :, 0]
        if not self.alone:  # all sensors show the same; the first that works is as good as any
            first = np.argmax(mask, 1)[:, None]  # (B, 1, m)
            pairs, mask = np.take_along_axis(pairs, first[..., None], 1), np.take_along_axis(mask, first, 1)
            pose = np.take_along_axis(pose[:, :, None], first[..., None], 1)
        return self._located(pairs, mask, pose).reshape(-1, mask.shape[-1], 5)

    def _located(self, pairs: np.ndarray, mask: np.ndarray, pose: np.ndarray) -> np.ndarray:
        """Return places, velocities and ages (..., n, m, 5) of the targets of pairs (..., n, m, 10).

        Args:
            pairs: their features.
            mask: (..., n, m) bool, the valid pairs.
            pose: (..., n, 10) or (..., n, m, 10) features that show the pose of the sensor.
        """
        scenario, (half_width, half_height) = self.scenario, self.scenario.extent
        pose = (pose if pose.ndim == pairs.ndim else pose[..., None, :]).astype(np.float64)
        x, y, c, s = (
            half_width * pose[..., _X],
            half_height * pose[..., _Y],
            pose[..., _HEADING_COS],
            pose[..., _HEADING_SIN],
        )
        shown = pairs.astype(np.float64)
        # Unit vector of the line of sight, from the heading's and the bearing's.
        east = c * shown[..., _COS] - s * shown[..., _SIN]
        north = s * shown[..., _COS] + c * shown[..., _SIN]
        away = scenario.distance_scale * shown[..., _DISTANCE]
        radial, tangential = (scenario.top_speed * shown[..., k] for k in (_RADIAL, _TANGENTIAL))
        age = np.where(mask, np.rint(100 * shown[..., _AGE]), np.inf)
        velocity = radial * east - tangential * north, radial * north + tangential * east
        return np.stack((x + away * east, y + away * north, *velocity, age), -1)

    def reports(self, pairs: np.ndarray, mask: np.ndarray, targets: np.ndarray, views: np.ndarray) -> Reports:
        """Return what the sensors' lists tell."""
        every, scenario = views.reshape(len(mask), self.rows, -1, 7)[:, 0], self.scenario
        away = scenario.distance_scale * pairs[..., _DISTANCE].astype(np.float64)
        farthest = np.where(mask, away, 0.0).max(-1)
        # What is as far as the farthest may not be listed. Observations are rounded, and have errors.
        farthest = farthest - _ROUNDED * sum(scenario.extent) - _ERRORS * scenario.position_noise
        within = np.where(mask.all(-1), np.maximum(farthest, 0.0), np.inf)
        within = np.where((every[..., VIEW_RANGE] > 0.0) & (not self._all_known), within, 0.0)
        return Reports(
            np.ascontiguousarray(self._located(pairs, mask, pairs[:, :, 0])), targets, mask,
            np.ascontiguousarray(every[..., VIEW_X : VIEW_Y + 1]), within,
        )  # fmt: skip

    def looks(self, views: np.ndarray, within: np.ndarray) -> np.ndarray:
        """Return the views (R, n, 7) with the ranges in which the lists would show what is seen."""
        if self._all_known:
            return views
        looks, n = views.copy(), views.shape[1]
        if self.alone:  # all in range of the view must be within the reach of the row's own list
            own = views[np.arange(len(views)), np.arange(len(views)) % n][:, None]
            reach = np.where(own[..., VIEW_RANGE] > 0.0, within.reshape(-1, 1), np.inf)  # else it has no list
            apart = np.hypot(views[..., VIEW_X] - own[..., VIEW_X], views[..., VIEW_Y] - own[..., VIEW_Y])
            most = np.maximum(reach - apart, 0.0)
        else:
            most = within
        looks[..., VIEW_RANGE] = np.minimum(looks[..., VIEW_RANGE], most**2)
        return looks

    def _chances(self, x: np.ndarray, y: np.ndarray, working: np.ndarray) -> np.ndarray:
        """Return the probability (B, g, n) that a sensor detects a target in view and that the row is told at once."""
        scenario = self.scenario
        chance = 1.0 - scenario.missed_detections
        if scenario.discs or scenario.random_discs or scenario.walls or scenario.blocks:
            chance *= _OBSTRUCTED
        detects = chance * working[:, None, :]  # (B, 1, n)
        if not self.alone:
            return detects
        told = np.broadcast_to(np.eye(self.rows), (len(working), self.rows, self.rows))
        if scenario.knowledge == "neighbours" and scenario.message_delay == 0:
            squared = (x[:, :, None] - x[:, None]) ** 2 + (y[:, :, None] - y[:, None]) ** 2
            near = squared <= scenario.communication_range**2  # the other links only add reports
            told = np.maximum(told, near * (1.0 - scenario.message_loss_rate))
        return detects * told
