"""Observations of the nearest targets, and neighbours of sensors."""

from __future__ import annotations

import math

import numpy as np

from hitmac.envs.kernels.cells import make_cells
from hitmac.envs.kernels.observe_near import Index, Shown, index_scenes, observe_near
from hitmac.envs.scenario import Scenario
from hitmac.envs.simulator import Simulator


class Nearest:
    """Part of :class:`~hitmac.envs.observation.Observer` that observes the nearest targets.

    Args:
        scenario: the scenario of the simulators to observe.
        codes: (d,) index of every feature in the table.
        of_sensor: (d,) bool, the feature is the sensor's alone.
        counted: the number of sensors that see each target is observed.
        nearest, radius, neighbours: those of the observer, checked.
    """

    def __init__(
        self,
        scenario: Scenario,
        codes: np.ndarray,
        of_sensor: np.ndarray,
        *,
        counted: bool,
        nearest: int,
        radius: float | None,
        neighbours: int | None,
    ) -> None:
        n, m = scenario.num_sensors, scenario.num_targets
        self._codes, self._of_sensor = codes, of_sensor
        self._shape = n, min(nearest, m), len(codes)
        self._listed = 0 if neighbours is None else min(neighbours, n)
        self._limit = math.inf if radius is None else radius * radius
        full = scenario.knowledge == "full"
        self._sorted = m if full and nearest < m else 0
        self._counted = m if full and counted else 0
        self._cells = make_cells(scenario, max(n, m))

    def observe(self, simulator: Simulator, scales: np.ndarray) -> dict[str, np.ndarray]:
        """Return new arrays ``pairs``, ``mask``, ``targets`` and, if they are asked for, ``neighbours``."""
        scenes, grid = simulator.num_envs, simulator.rows.grid
        n, slots, d = self._shape
        shown = Shown(
            pairs=np.empty((scenes, n, slots, d), np.float32),
            mask=np.empty((scenes, n, slots), np.int8),
            targets=np.empty((scenes, n, slots), np.int32),
            neighbours=np.empty((scenes, n, self._listed), np.int32),
        )
        listed = n if self._listed else 0
        starts = scenes, self._cells.columns * self._cells.rows + 2
        index = Index(
            cells=self._cells,
            start=np.empty(starts, np.int32),
            target=np.empty((scenes, self._sorted), np.int32),
            target_x=np.empty((scenes, self._sorted)),
            target_y=np.empty((scenes, self._sorted)),
            seeing=np.empty((scenes, self._counted), np.int32),
            seen=np.empty((scenes, n, 0), np.int32) if grid is None else grid.seen,
            num_seen=np.ones((scenes, n), np.int32) if grid is None else grid.num_seen,
            sensor_start=np.empty(starts, np.int32),
            sensor=np.empty((scenes, listed), np.int32),
            sensor_x=np.empty((scenes, listed)),
            sensor_y=np.empty((scenes, listed)),
            reach=np.empty((scenes, listed)),
            longest=np.empty(scenes),
        )
        state = simulator.observed
        simulator.threads.run(index_scenes, state._replace(knowledge=None), simulator.scenario.missed_detections, index)
        simulator.sensor_threads.run(
            observe_near, state, scales, self._codes, self._of_sensor, index, self._limit, shown
        )
        observed = shown._asdict()
        if not self._listed:
            del observed["neighbours"]
        return observed
