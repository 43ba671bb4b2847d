"""Exported policies on tracks."""

import numpy as np
import pytest

from hitmac.agents.deploy.export.folder import site_of
from hitmac.agents.deploy.export.run import Agent
from hitmac.agents.deploy.run.command import ExportedPolicy, exported_agent
from hitmac.agents.policy import rates_of
from tests.agents.deploy.export.made import copied
from tests.agents.deploy.run.fakes import NAMES, SITE, Fleet, made, played, scan


@pytest.fixture
def folder(flat, tmp_path):
    """Folder of an exported policy for the site."""
    return copied(flat, tmp_path / "policy", site=site_of(SITE.replace(false_detections=0, pan_limits=())))


def test_the_targets_of_an_exported_policy_are_the_tracks_that_probably_exist(folder):
    times = [SITE.time_step * k for k in range(100)]
    places = [[[-500.0 + 60.0 * t, 80.0 * t], *([[300.0, -50.0 * t]] if 2 < t < 4 else [])] for t in times]
    lines = [(t + 0.05, scan(name, t, own)) for t, own in zip(times, places, strict=True) for name in NAMES]
    loop, _, _ = made(lines, agent=exported_agent(str(folder), SITE), fleet=Fleet(turns=True))
    loop.warm_up()
    frames, alone = played(loop, 40), Agent(folder)
    names, orders = [], []
    for frame in frames:
        likely = [row for row in frame["tracks"] if row[5] >= 0.5]
        ids = [row[6] for row in likely]
        cameras = {"sensor_position": SITE.sensor_positions, "heading": np.array(frame["heading"])}
        turns = alone.decide([row[:2] for row in likely], ids, alone.memory.rows.keys() - set(ids), **cameras)
        orders.append(rates_of(turns[0], SITE).tolist())
        names.append(len(ids))
    assert [frame["orders"] for frame in frames] == orders
    assert {1, 2} <= set(names)
    assert len({tuple(order) for order in orders}) > 1


def test_a_policy_of_other_sensors_and_another_folder_are_none(folder, tmp_path):
    with pytest.raises(ValueError, match=r"is a policy for 2 sensors, but the site has 3"):
        ExportedPolicy(
            folder, SITE.replace(num_sensors=3, sensor_positions=[(0, 0)] * 3, sensor_headings=(), pan_limits=())
        )
    assert exported_agent("belief-planner", SITE) is None
    assert exported_agent(str(tmp_path), SITE) is None
