"""RGB pictures of scenes."""

import contextlib
import functools
import importlib.util
import math
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.envs.base.state import State
from hitmac.envs.files import check_output, whole_file
from hitmac.envs.parts.arena import OVER_VIEWS
from hitmac.envs.parts.cargo import BROWN
from hitmac.envs.parts.knowledge import Known
from hitmac.envs.parts.obstacles import GREY
from hitmac.envs.scenario import PARTS, Scenario
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks import Task

_LANCZOS = 1  # PIL.Image.Resampling.LANCZOS
_SMOOTH = 2  # drawing at this scale and then reducing smooths the edges
_BACKGROUND, _FRAME, _TEXT = (250, 250, 247), (120, 120, 120), (40, 40, 40)
_VIEW, _VIEW_EDGE, _ASSIGNED = (66, 122, 196, 46), (66, 122, 196, 130), (120, 70, 150, 150)
_SENSOR, _FAILED, _SEEN, _UNSEEN, _KNOWN = (27, 62, 115), (160, 160, 160), (34, 139, 74), (208, 57, 43), (120, 70, 150)
_DETECTION, _TRACK = (200, 120, 0), (120, 70, 150)
# Part of every palette, since they are too small to be chosen.
_MARKS = (_SEEN, _UNSEEN, _SENSOR, _KNOWN, _DETECTION, BROWN)
_LARGEST = 4096  # pixels of a side; in twice the size, a picture takes 200 MB while it is drawn
_MOST_NUMBERED = 80  # sensors or targets with readable numbers
_FADED = 100.0  # sub-steps in which the mark of a last known position fades to a third


class Picture:
    """Renderer of scenes as RGB pictures.

    Fields of view are blue wedges, sensors numbered dark squares (grey if failed), rails grey lines, seen targets green
    discs, unseen targets red rings, obstacles and blocks grey, zones yellow, assignments purple lines. With partial
    knowledge, purple discs, which fade with age, are the last known positions of unseen targets. The scenario's
    background is stretched over the arena, below all of them. In crowded scenes, sensors have no numbers.

    Args:
        scenario: scenario of the scenes.
        size: longer side of the picture, pixels; 64 to 4096; default 600. A square arena has a square picture.

    Attributes:
        shape: height and width of the picture, pixels.
        extent: (left, right, bottom, top) of the whole picture with its margins, in units of the arena.

    Raises ``ValueError`` for another size or an invalid background, ``FileNotFoundError`` for a missing one.
    """

    def __init__(self, scenario: Scenario, size: int = 600) -> None:
        if not 64 <= size <= _LARGEST:
            raise ValueError(f"size is {size}; it must be 64 to {_LARGEST} pixels")
        if importlib.util.find_spec("PIL") is None:
            raise ModuleNotFoundError("pictures require Pillow: pip install 'hitmac[render]'")
        self.scenario = scenario
        self._full = size * _SMOOTH
        self._margin = 0.06 * self._full
        half_width, half_height = scenario.extent
        self._scale = (self._full - 2 * self._margin) / (2 * max(half_width, half_height))
        width, height = (round((2 * half * self._scale + 2 * self._margin) / _SMOOTH) for half in scenario.extent)
        self.shape = height, width
        edges = -0.5 * width, 0.5 * width, -0.5 * height, 0.5 * height
        self.extent = tuple(_SMOOTH * edge / self._scale for edge in edges)
        inside = [math.ceil(side * _SMOOTH - 2 * self._margin) for side in (width, height)]
        self._background = (
            read_background(scenario.background).resize(inside, _LANCZOS) if scenario.background else None
        )
        self._walls = scenario.all_walls
        parts = [part for part in PARTS if hasattr(part, "shapes")]
        self._shapes = sorted((shape for part in parts for shape in part.shapes(scenario)), key=lambda one: one.layer)
        # Half the size of a sensor or target, smaller in crowded scenes.
        crowd = max(scenario.num_sensors, scenario.num_targets)
        self._unit = max(0.011 * self._full * min(1.0, math.sqrt(16 / crowd)), _SMOOTH)
        self._numbered = crowd <= _MOST_NUMBERED
        numbers = [str(i + 1) for i in range(scenario.num_sensors)]
        self._names = [*map(_drawable, scenario.sensor_names or numbers, numbers)]
        self._wall_width = max(1, min(3 * _SMOOTH, round(0.6 * self._unit)))

    def of_task(self, task: Task, b: int) -> np.ndarray:
        """Draw scene `b` of a task, with its assignments if it has any; see :meth:`draw`."""
        return self.draw(task.simulator, b, assigned=None if task.assigned is None else task.assigned[b])

    def draw(
        self,
        simulator: Simulator,
        b: int,
        caption: str | None = None,
        assigned: np.ndarray | None = None,
        detections: np.ndarray | None = None,
        tracks: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Draw scene `b` of a simulator; return the picture (height, width, 3) uint8.

        The `caption` is a line of text above the scene; None: coverage and sub-step. Assignments `assigned` (n, m) bool
        are drawn as lines from sensors to targets, `detections` (q, 2) as crosses, and `tracks`, means (k, 2) and
        covariances (k, 2, 2), as ellipses of two standard deviations.
        """
        from PIL import Image, ImageDraw

        state = simulator.state
        height, width = (side * _SMOOTH for side in self.shape)
        picture = Image.new("RGB", (width, height), _BACKGROUND)
        corner, unit = self._margin, self._unit
        if self._background is not None:
            picture.paste(self._background, (round(corner), round(corner)), self._background)
        draw = ImageDraw.Draw(picture, "RGBA")
        draw.rectangle((corner, corner, width - corner, height - corner), outline=_FRAME, width=_SMOOTH)
        self._draw_shapes(draw, -math.inf, OVER_VIEWS)
        sensors = np.flatnonzero(np.arange(state.heading.shape[1]) < state.num_sensors[b])
        targets = np.flatnonzero(state.present[b])
        sensor_at, target_at = self._places(state.sensor_position[b]), self._places(state.target_position[b])
        self._views(draw, state, b, sensors[state.working[b, sensors]])
        self._obstacles(draw, state.disc[b])
        if assigned is not None:
            for i, j in np.argwhere(assigned[:, targets]):
                draw.line((*sensor_at[i], *target_at[targets[j]]), fill=_ASSIGNED, width=_SMOOTH)
        for i in sensors:
            x, y = sensor_at[i]
            colour = _SENSOR if state.working[b, i] else _FAILED
            draw.rectangle(self._mark(x, y), fill=colour)
            if self._numbered:
                font = _font(max(10, round(2.8 * unit)))
                half = font.getlength(self._names[i]) / 2.0
                x = max(half, min(width - half, x))  # inside the picture
                below = y - 1.4 * unit - font.size < 0.8 * corner  # above, it would be in the caption
                y, anchor = (y + 1.4 * unit, "mt") if below else (y - 1.4 * unit, "ms")
                draw.text((x, y), self._names[i], fill=colour, font=font, anchor=anchor)
        if simulator.known is not None:
            self._known(draw, simulator.known, b)
        for j in targets:
            if state.covered[b, j]:
                draw.ellipse(self._mark(*target_at[j]), fill=_SEEN)
            else:
                ring = max(1, round(0.45 * unit))
                draw.ellipse(self._mark(*target_at[j]), fill=_BACKGROUND, outline=_UNSEEN, width=ring)
            if simulator.game and simulator.game.cargo.weight[b, j]:
                x, y = target_at[j]
                draw.rectangle(self._mark(x, y, 0.5), fill=BROWN)
        for x, y in [] if detections is None else self._places(detections):
            draw.line((x - 1.5 * unit, y, x + 1.5 * unit, y), fill=_DETECTION, width=2 * _SMOOTH)
            draw.line((x, y - 1.5 * unit, x, y + 1.5 * unit), fill=_DETECTION, width=2 * _SMOOTH)
        if tracks is not None:
            values, axes = np.linalg.eigh(tracks[1])
            angle = np.linspace(0.0, 2.0 * np.pi, 37)
            circle = np.stack((np.cos(angle), np.sin(angle)), -1)
            spread = 2.0 * axes * np.sqrt(np.maximum(values, 0.0))[:, None]
            for ellipse in self._places(tracks[0][:, None] + circle @ spread.swapaxes(1, 2)):
                draw.line([tuple(point) for point in ellipse], fill=_TRACK, width=2 * _SMOOTH, joint="curve")
        if caption is None:
            coverage = f"coverage {state.coverage[b]:.2f}" if len(targets) else "no targets"
            caption = f"{coverage}   sub-step {state.time[b]}"
        size = round(0.032 * self._full)
        room = 0.98 * width / max(_font(size).getlength(caption), 1.0)
        font = _font(max(1, int(size * min(1.0, room))))
        draw.text((width / 2, self._margin / 2), caption, fill=_TEXT, font=font, anchor="mm")
        return np.asarray(picture.reduce(_SMOOTH))

    def _places(self, positions: np.ndarray) -> Any:
        """Return the pixels of points (..., 2) of the arena; y points up in the arena and down in the picture."""
        height, width = (side * _SMOOTH for side in self.shape)
        x, y = width / 2 + positions[..., 0] * self._scale, height / 2 - positions[..., 1] * self._scale
        return np.stack((x, y), -1).tolist()

    def _mark(self, x: float, y: float, share: float = 1.0) -> tuple[float, float, float, float]:
        """Return the box of the mark of a sensor or a target, or of a smaller one."""
        half = share * self._unit
        return x - half, y - half, x + half, y + half

    def _known(self, draw: Any, known: Known, b: int) -> None:
        """Draw the last known position of every unseen target, of the row that saw it last."""
        age = np.where(known.known_left[b], np.inf, known.known_age[b])  # (r, m)
        for j, row in enumerate(age.argmin(0)):
            if 0.0 < age[row, j] < np.inf:
                shade = round(255 / (1.0 + 2.0 * age[row, j] / _FADED))
                draw.ellipse(self._mark(*self._places(known.known_position[b, row, j])), fill=(*_KNOWN, shade))

    def _obstacles(self, draw: Any, discs: np.ndarray) -> None:
        for (x, y), radius in zip(self._places(discs[:, :2]), discs[:, 2] * self._scale, strict=True):
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=GREY)
        self._draw_shapes(draw, OVER_VIEWS, math.inf)

    def _draw_shapes(self, draw: Any, low: float, high: float) -> None:
        """Draw the shapes of the layers from `low` on, under `high`."""
        for kind, layer, places, fill, outline, width in self._shapes:
            if low <= layer < high:
                points = [tuple(place) for place in self._places(np.array(places))]
                width = width * _SMOOTH or self._wall_width
                if kind == "line":
                    draw.line(points, fill=fill, width=width, joint="curve")
                elif kind == "polygon":
                    draw.polygon(points, fill=fill)
                else:
                    (left, bottom), (right, top) = points
                    draw.rectangle((left, top, right, bottom), fill=fill, outline=outline, width=width)

    def _views(self, draw: Any, state: State, b: int, sensors: np.ndarray) -> None:
        """Draw the views of sensors of scene b: wedges, up to a near edge, without the parts behind obstacles."""
        position, view, discs = state.sensor_position[b, sensors], state.field_of_view[b, sensors], state.disc[b]
        reach = np.sqrt(state.range_squared[b, sensors])
        edge = np.zeros_like(reach) if state.near_squared is None else np.sqrt(state.near_squared[b, sensors])
        parts = np.linspace(-0.5, 0.5, 121)
        angles = np.radians(state.heading[b, sensors, None] + view[:, None] * parts)
        rays = np.stack([np.cos(angles), np.sin(angles)], -1)  # (s, r, 2)
        rim = np.repeat(reach[:, None], len(parts), 1)
        if len(discs) + len(self._walls):
            low = np.minimum(self._walls[:, :2], self._walls[:, 2:])
            high = np.maximum(self._walls[:, :2], self._walls[:, 2:])
            for k, (place, far) in enumerate(zip(position, reach, strict=True)):
                walls = self._walls[((low <= place + far) & (high >= place - far)).all(-1)]
                near = discs[(np.abs(discs[:, :2] - place) <= far + discs[:, 2:]).all(-1)]
                rim[k] = np.minimum(rim[k], _free(place, rays[k], near, walls))
        rims = self._places(position[:, None] + rim[..., None] * rays)
        inner = self._places(position[:, None] + np.minimum(edge[:, None], rim)[..., None] * rays)
        for middle, outer, own, opening, hole in zip(self._places(position), rims, inner, view, edge, strict=True):
            corners = [*own[::-1], *outer] if hole else outer if opening == 360 else [middle, *outer]
            draw.polygon([tuple(corner) for corner in corners], fill=_VIEW, outline=_VIEW_EDGE)


@functools.cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _drawable(name: str, number: str) -> str:
    """Return a name without its accents, or the number for letters that Pillow's font lacks."""
    plain = "".join(one for one in unicodedata.normalize("NFKD", name) if not unicodedata.combining(one))
    return plain if plain.isascii() else number


def read_background(path: str) -> Any:
    """Read a picture with its transparency; requires the extra ``render``."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a background requires Pillow: pip install 'hitmac[render]'") from None
    try:
        with Image.open(path) as picture:
            return picture.convert("RGBA")
    except FileNotFoundError:
        raise FileNotFoundError(f"background is {path!r}; there is no such file") from None
    except (OSError, Image.DecompressionBombError, SyntaxError, ValueError) as error:
        raise ValueError(f"background is {path!r}; it must be a picture that Pillow reads: {error}") from None


def _free(position: np.ndarray, rays: np.ndarray, discs: np.ndarray, walls: np.ndarray) -> np.ndarray:
    """Return the distances (r,) from `position` along unit rays (r, 2) to the first disc (k, 3) or wall (w, 4)."""
    free = np.full(len(rays), np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        for x, y, radius in discs:
            centre = np.array([x, y]) - position
            along = rays @ centre
            depth = radius**2 - (centre @ centre - along**2)
            meets = along - np.sqrt(depth)
            free = np.where((depth > 0) & (meets > 0), np.minimum(free, meets), free)
        start, run = walls[:, None, :2] - position, walls[:, None, 2:] - walls[:, None, :2]  # (w, 1, 2)
        cross = rays[:, 0] * run[..., 1] - rays[:, 1] * run[..., 0]
        meets = (start[..., 0] * run[..., 1] - start[..., 1] * run[..., 0]) / cross
        place = (start[..., 0] * rays[:, 1] - start[..., 1] * rays[:, 0]) / cross
        inside = (meets > 0) & (place >= 0) & (place <= 1)
    return np.minimum(free, np.where(inside, meets, np.inf).min(0, initial=np.inf))


def check_film(name: str, path: str | Path) -> None:
    """Raise an error unless a film, .gif or .mp4, can be written to `path`, the argument `name` of the caller."""
    check_output(name, path, ".gif", ".mp4")
    if Path(path).suffix.lower() == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ModuleNotFoundError("an MP4 film requires imageio-ffmpeg: pip install 'hitmac[render]'")


def save_png(path: str | Path, picture: np.ndarray) -> None:
    """Write an RGB picture as PNG; raise ValueError if `path` does not end in .png."""
    check_output("path", path, ".png")
    with whole_file(path) as temporary:
        _quantized([picture], 128)[0].save(temporary, format="PNG", optimize=True)


def save_pictures(path: str | Path, pictures: Iterable[np.ndarray], frames_per_second: float = 50 / 3) -> None:
    """Write RGB pictures (height, width, 3) of one size as a film, atomically.

    A .gif loops, with durations in steps of 10 ms, and keeps all pictures in memory, to choose its colours; a .mp4 is
    H.264 video of any length. Raises the errors of :func:`check_film`.
    """
    check_film("path", path)
    with whole_file(path) as temporary:
        if Path(path).suffix.lower() == ".mp4":
            _write_mp4(temporary, pictures, frames_per_second)
            return
        first, *others = _quantized([*pictures], 64)
        duration = 1000 / frames_per_second
        first.save(temporary, save_all=True, append_images=others, duration=duration, loop=0, format="GIF")


def _quantized(pictures: Sequence[np.ndarray], colours: int) -> list[Any]:
    """Quantize pictures to one palette, to avoid flicker, that includes the colours of the marks."""
    from PIL import Image

    some = Image.fromarray(np.concatenate(pictures[:: max(1, len(pictures) // 4)]))
    found = some.quantize(colours - len(_MARKS)).getpalette() or []
    values = [*found[: 3 * (colours - len(_MARKS))], *(value for mark in _MARKS for value in mark)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*values, *values[-3:] * (256 - len(values) // 3)])
    return [Image.fromarray(one).quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures]


def _write_mp4(path: Path, pictures: Iterable[np.ndarray], frames_per_second: float) -> None:
    """Write pictures as MP4; players need an even height and width, so odd ones repeat their last row or column."""
    import imageio_ffmpeg

    pictures = iter(pictures)
    first = next(pictures)
    height, width = first.shape[:2]
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (width + width % 2, height + height % 2),
        fps=frames_per_second,
        codec="libx264",
        quality=8,
        macro_block_size=2,
        ffmpeg_log_level="error",
        output_params=["-movflags", "+faststart", "-threads", "1"],
    )
    with contextlib.closing(writer):
        writer.send(None)
        for picture in chain([first], pictures):
            even = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
            writer.send(np.ascontiguousarray(even))
