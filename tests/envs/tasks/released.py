"""Scenes of the task tests: starts of the released program's recordings, and one placed sensor."""

import numpy as np

from hitmac.envs import Scenario

ONE = Scenario(num_sensors=1, num_targets=2, walk="still", start_heading="target", extra_move_every=0)


def start(record, tracks):
    """Options of a reset to the start of a recording, after which the targets follow its moves."""
    return {
        "sensor_position": record["sensor_position"],
        "heading": record["heading0"],
        "target_position": record["target0"],
        "target_moves": tracks,
    }


def assert_same_angles(ours, theirs):
    """Equal up to whole turns: the released program sometimes wraps its headings."""
    np.testing.assert_allclose((ours - theirs + 180) % 360, 180, atol=1e-9)


def placed(task, heading, targets, tracks=None):
    """Reset a task of ONE to a sensor in the origin and targets that stay, or follow their tracks."""
    options = {"sensor_position": [(0, 0)], "heading": [heading], "target_position": targets}
    task.reset(options=options | ({} if tracks is None else {"target_moves": tracks}))
    return task
