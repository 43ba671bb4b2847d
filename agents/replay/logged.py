"""Packed record of a logged run for a page."""

from typing import Any

import numpy as np

from hitmac.agents.evaluate.logs import Run
from hitmac.agents.replay.record import packed


def record_log(run: Run) -> dict[str, Any]:
    """Return the record of a run, in the form of :func:`hitmac.agents.replay.record.record`, without targets."""
    steps, n = run.heading.shape
    places = np.broadcast_to(np.array(run.scenario.sensor_positions), (steps, n, 2))
    values = {
        "sensor x": places[..., 0],
        "sensor y": places[..., 1],
        "heading": np.nan_to_num(run.heading),
        "view": run.view,
        "reach": np.broadcast_to(run.scenario.of_each_sensor("sensing_range"), (steps, n)),
        "working": ~np.isnan(run.heading),
        "turned": (np.nan_to_num(run.orders) != 0.0).sum(-1, keepdims=True),
        "coverage": run.covered[:, None],
        **_listed("tracks", "track", ("x", "y", "xx", "xy", "yy", "existence"), run.tracks),
        **_listed("detections", "detection", ("", "x", "y"), run.detections),
    }
    return {
        "agent": run.agent, "frames": steps, "sensors": n, "targets": 0, "discs": run.scenario.discs, "levels": [],
        "tracks": packed(values, run.scenario),
    }  # fmt: skip


def _listed(name: str, one: str, columns: tuple[str, ...], rows: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the numbers (F, 1) of rows and each column of them, (F, k), padded with 0."""
    number = np.array([[len(row)] for row in rows])
    table = np.zeros((len(rows), number.max(), len(columns)))
    for k, row in enumerate(rows):
        table[k, : len(row)] = row[:, : len(columns)]
    return {name: number} | {f"{one} {column}": table[..., j] for j, column in enumerate(columns) if column}
