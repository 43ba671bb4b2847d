"""A scene as an RGB picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from envs.physics import State
from envs.scenario import Scenario

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

_SMOOTH = 2  # the picture is drawn this much larger and then reduced, which smooths the edges
_BACKGROUND = (250, 250, 247)
_FRAME = (120, 120, 120)
_VIEW = (66, 122, 196, 46)
_VIEW_EDGE = (66, 122, 196, 130)
_SENSOR = (27, 62, 115)
_SEEN = (34, 139, 74)
_UNSEEN = (208, 57, 43)
_TEXT = (40, 40, 40)


class Picture:
    """Draws scenes: fields of view as wedges, seen targets as green discs, unseen ones as red rings.

    Args:
        scenario: what the scenes are.
        size: height and width of the picture, pixels; 64 or more.

    Raises:
        ValueError: a size under 64.
        ModuleNotFoundError: Pillow is missing; the message names the extra to install.
    """

    def __init__(self, scenario: Scenario, size: int = 480) -> None:
        if size < 64:
            raise ValueError(f"size is {size}; a picture is 64 pixels or more across")
        try:
            import PIL.Image
            import PIL.ImageDraw
            import PIL.ImageFont
        except ModuleNotFoundError:
            raise ModuleNotFoundError("pictures need Pillow: pip install 'hitmac[render]'") from None
        self._pil = PIL
        self.scenario = scenario
        self.size = size
        self._full = size * _SMOOTH
        self._margin = 0.06 * self._full
        self._scale = (self._full - 2 * self._margin) / (2 * scenario.arena)
        self._font = PIL.ImageFont.load_default(size=round(0.032 * self._full))

    def draw(self, state: State, b: int, caption: str | None = None) -> np.ndarray:
        """Scene `b` of a batch, as (size, size, 3) uint8.

        Args:
            state: the batch's state.
            b: which scene.
            caption: the line above the scene; None shows the coverage and the sub-step.
        """
        picture = self._pil.Image.new("RGB", (self._full, self._full), _BACKGROUND)
        draw = self._pil.ImageDraw.Draw(picture, "RGBA")
        corner, far = self._margin, self._full - self._margin
        draw.rectangle((corner, corner, far, far), outline=_FRAME, width=_SMOOTH)
        unit = 0.011 * self._full
        for position, heading in zip(state.sensor_position[b], state.heading[b], strict=True):
            self._wedge(draw, self._place(position), heading)
        for number, position in enumerate(state.sensor_position[b]):
            x, y = self._place(position)
            draw.rectangle((x - unit, y - unit, x + unit, y + unit), fill=_SENSOR)
            draw.text((x, y - 1.4 * unit), str(number + 1), fill=_SENSOR, font=self._font, anchor="ms")
        for position, covered in zip(state.target_position[b], state.covered[b], strict=True):
            x, y = self._place(position)
            box = (x - unit, y - unit, x + unit, y + unit)
            if covered:
                draw.ellipse(box, fill=_SEEN)
            else:
                draw.ellipse(box, fill=_BACKGROUND, outline=_UNSEEN, width=round(0.45 * unit))
        if caption is None:
            caption = f"coverage {state.num_covered[b] / state.covered.shape[1]:.2f}   sub-step {state.time[b]}"
        draw.text((self._full / 2, self._margin / 2), caption, fill=_TEXT, font=self._font, anchor="mm")
        return np.asarray(picture.reduce(_SMOOTH))

    def _place(self, position: np.ndarray) -> tuple[float, float]:
        """Where a point of the arena stands in the picture; y points up in the arena, down in the picture."""
        middle = self._full / 2
        return middle + float(position[0]) * self._scale, middle - float(position[1]) * self._scale

    def _wedge(self, draw: ImageDraw, centre: tuple[float, float], heading: float) -> None:
        view = self.scenario.field_of_view
        radius = self.scenario.sensing_range * self._scale
        angles = [math.radians(heading + view * (k / 24 - 0.5)) for k in range(25)]
        rim = [(centre[0] + radius * math.cos(a), centre[1] - radius * math.sin(a)) for a in angles]
        draw.polygon(rim if view == 360 else [centre, *rim], fill=_VIEW, outline=_VIEW_EDGE)
