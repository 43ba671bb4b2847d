"""Pictures of cameras: from the boxes that detectors find in them to places in the site."""

import dataclasses
from pathlib import Path
from typing import Any

from hitmac.agents.deploy.camera import View
from hitmac.agents.deploy.run.cameras import names_of
from hitmac.agents.deploy.run.drivers import DRIVERS
from hitmac.envs.files import parse_yaml, read_text
from hitmac.envs.scenario import Scenario
from hitmac.envs.validation import in_short, shortly


def load_views(kind: str | Path, scenario: Scenario) -> list[View | None]:
    """Return the settings `view` of every sensor in a file of cameras that are valid otherwise; None where it has none.

    Raises ``ValueError`` or ``TypeError``, which names the file, the camera and the setting.
    """
    names = names_of(scenario)
    given: Any = {} if kind in DRIVERS else parse_yaml(read_text(kind))
    views: list[View | None] = [None] * len(names)
    known = [field.name for field in dataclasses.fields(View)]
    for key, own in given.items():
        i = names.index(key) if key in names else key
        if not isinstance(section := own.get("view"), dict):
            if section is not None:
                raise ValueError(f"{kind}: camera {names[i]}: view is {shortly(section)}; it must be settings")
            continue
        shared = {name: own[name] for name in known if name in own}
        shared |= {"position": tuple(scenario.sensor_positions[i])} if scenario.sensor_positions else {}
        try:
            if unknown := section.keys() - set(known):
                raise ValueError(f"unknown setting {in_short(unknown, known)} of view: known are {', '.join(known)}")
            views[i] = View(**shared | section)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{kind}: camera {names[i]}: {error}") from None
    return views
