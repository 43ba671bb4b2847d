"""Files of films: animated GIF, and MP4."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitmac.envs.files import check_ending, whole_file
from hitmac.envs.render import palette_of

ENDINGS = (".gif", ".mp4")
"""Endings of films."""

FRAMES_PER_SECOND = 50 / 3


def check_film(name: str, path: str | Path) -> None:
    """Raise an error unless a film can be written to `path`, the argument `name` of the caller.

    Raises:
        ValueError: `path` ends neither in .gif nor in .mp4.
        ModuleNotFoundError: an MP4 film needs imageio-ffmpeg, which is not installed.
    """
    check_ending(name, path, *ENDINGS)
    if Path(path).suffix.lower() == ".mp4":
        _ffmpeg()


def save_pictures(
    path: str | Path, pictures: Sequence[np.ndarray], frames_per_second: float = FRAMES_PER_SECOND
) -> None:
    """Write RGB pictures (height, width, 3) of one size as a film, whole or not at all.

    Args:
        path: file of the film. Ending in .gif: a GIF that plays again and again; in .mp4: H.264 video.
        pictures: the pictures, one or more.
        frames_per_second: pictures a second; a GIF rounds the time between two to 10 ms.

    Raises:
        ValueError, ModuleNotFoundError: see :func:`check_film`.
    """
    check_film("path", path)
    (save_gif if Path(path).suffix.lower() == ".gif" else save_mp4)(path, pictures, frames_per_second)


def save_gif(path: str | Path, pictures: Sequence[np.ndarray], frames_per_second: float = FRAMES_PER_SECOND) -> None:
    """Write RGB pictures as a looping animated GIF; raise ValueError if `path` does not end in .gif."""
    check_ending("path", path, ".gif")
    from PIL import Image

    # One palette for all frames avoids flicker and makes the file smaller.
    palette = palette_of(Image.fromarray(np.concatenate(pictures[:: max(1, len(pictures) // 4)])), 64)
    frames = [Image.fromarray(one).quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures]
    with whole_file(path) as temporary:
        frames[0].save(
            temporary, save_all=True, append_images=frames[1:], duration=1000 / frames_per_second, loop=0, format="GIF"
        )


def save_mp4(path: str | Path, pictures: Sequence[np.ndarray], frames_per_second: float = FRAMES_PER_SECOND) -> None:
    """Write RGB pictures as MP4; raise ValueError if `path` does not end in .mp4.

    Players want an even height and width, so that an odd one gets a last row or column twice.
    """
    check_ending("path", path, ".mp4")
    height, width = pictures[0].shape[:2]
    odd = ((0, height % 2), (0, width % 2), (0, 0))
    with whole_file(path) as temporary:
        writer = _ffmpeg().write_frames(
            str(temporary),
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
            for picture in pictures:
                writer.send(np.ascontiguousarray(np.pad(picture, odd, mode="edge")))


def _ffmpeg() -> Any:
    """Return the package that holds ffmpeg."""
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError:
        raise ModuleNotFoundError("an MP4 film needs imageio-ffmpeg: pip install 'hitmac[render]'") from None
    return imageio_ffmpeg
