"""Zero and sign of the pan of a camera: it turns a little, and its answers are compared with what its picture shows."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from hitmac.agents.deploy.run.cameras import REST, Cameras, limited, names_of
from hitmac.agents.deploy.run.drivers import Onvif, Visca, read_cameras
from hitmac.agents.deploy.run.pictures import load_views
from hitmac.envs.features import wrapped
from hitmac.envs.files import whole_file
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import shortly

TURN = 5.0
"""Degrees of the turn, in a second."""

ROOM = 1.5 * TURN
"""Degrees to its limits that a camera must have on either side."""

_FLOW: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": 10**9}


def turned(camera: Onvif | Visca, name: str, heading: float, limits: Sequence[float]) -> tuple[float, int]:
    """Turn a camera by :data:`TURN` degrees, towards the middle of its pan; return its pan before, and 1 if that grows.

    Its `heading` must be :data:`ROOM` degrees inside its pan `limits`, since the way that it turns is unknown. It is
    supervised by :class:`~hitmac.agents.deploy.run.cameras.Cameras`, and so stops after the turn whatever it reports,
    and at any error. Raises ValueError unless it reports about such a turn.
    """
    if any(not abs(limited(way * ROOM, heading, limits, 1.0)) >= ROOM for way in (-1, 1)):
        far = f"{ROOM:g} degrees or more inside its pan_limits, {limits[0]:g} to {limits[1]:g}"
        raise ValueError(f"the heading of camera {name} is {heading:g}; it must be {far}")
    try:
        with contextlib.closing(camera):
            start = camera.heading()
    except Exception as error:  # of any library
        raise ValueError(f"camera {name} does not answer: {shortly(error, str)}") from None
    pan = (start - camera.zero) * camera.sign
    grows = 1 if pan < sum(camera.pan_range) / 2 else -1
    way, start, said = int(grows * camera.sign), float(wrapped(start)), list[str]()
    limits = min(start, start + way * TURN), max(start, start + way * TURN)
    alone = Scenario(num_sensors=1, sensor_names=(name,), pan_limits=(limits,))
    with contextlib.closing(Cameras([camera], alone, said.append, timeout=0.5)) as cameras:
        until = time.monotonic() + 1.0 + 2.0 * REST
        while time.monotonic() < until:
            cameras.order([way * TURN])
            time.sleep(0.1)
        found = float(wrapped(cameras.headings[0] - start))
    if said or not TURN / 2 <= way * found <= ROOM:
        said.append(f"camera {name} reports a turn of {found:.1f} degrees after orders to turn by {way * TURN:g}")
        raise ValueError(said[0])
    return pan, grows


def write_settings(path: Path, scenario: Scenario, i: int, settings: dict[str, Any]) -> None:
    """Change settings of sensor i in a file of cameras, or add them; all else in the file stays as it is.

    A setting is a number, or a mapping of settings, as `view`.

    Raises ValueError, and leaves the file, if the settings are not its own, as those of an anchor.
    """
    text = path.read_bytes().decode()
    expected = _settings(path, scenario)
    expected[i] |= settings
    root: Any = yaml.compose(text, yaml.SafeLoader)
    entry = next(value for key, value in root.value if key.value in (names_of(scenario)[i], str(i)))
    own, edits = {key.value: value for key, value in entry.value}, []
    for name, value in settings.items():
        new = f"{value:g}" if isinstance(value, int | float) else yaml.safe_dump(value, None, **_FLOW).strip()
        if name in own:
            start, end = own[name].start_mark.index, own[name].end_mark.index
            edits.append((start, start + len(text[start:end].rstrip()), new))
        else:  # before the others
            at, end = entry.start_mark.index + bool(entry.flow_style), "\n" + " " * entry.start_mark.column
            edits.append((at, at, f"{name}: {new}{', ' if entry.flow_style else end}"))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    with whole_file(path) as temporary:
        temporary.write_bytes(text.encode())
        if _settings(temporary, scenario) != expected:
            raise ValueError(f"{path} shares the settings of this camera with others; write {settings} there yourself")


def _settings(path: Path, scenario: Scenario) -> list[dict[str, Any]]:
    """Return the settings of every sensor in a valid file of cameras."""
    load_views(path, scenario)
    return read_cameras(path, scenario)
