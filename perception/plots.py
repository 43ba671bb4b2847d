"""Plots of attention weights: heat maps, lines over a scene, films.

All raise ``ValueError`` for mismatched shapes, and ``ModuleNotFoundError`` without the extra ``plots``.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

Array = np.ndarray | Tensor
Extent = tuple[float, ...]  # left, right, bottom, top


def received(weights: Array) -> np.ndarray:
    """Return the attention (..., S) that each key receives: mean of weights (..., h, L, S) over heads and queries."""
    return _as_array(weights).mean((-3, -2))


def heat_map(
    weights: Array, *, rows: Sequence[str] | None = None, columns: Sequence[str] | None = None, title: str = ""
) -> "Figure":
    """Draw weights as one heat map for each head.

    Args:
        weights: (L, S), or (h, L, S) for one heat map per head.
        rows: labels of the queries; None: numbers.
        columns: labels of the keys; None: numbers.
        title: title of the figure.
    """
    heads = _as_array(weights)
    if heads.ndim not in (2, 3):
        raise ValueError(f"weights have shape {heads.shape}; they must be (L, S) or (heads, L, S)")
    heads = heads.reshape(-1, *heads.shape[-2:])
    length, keys = heads.shape[1:]
    for name, labels, number in (("rows", rows, length), ("columns", columns, keys)):
        if labels is not None and len(labels) != number:
            raise ValueError(f"{name} has {len(labels)} labels; expected {number} for weights of shape {heads.shape}")
    side = min(7.0, max(2.4, 0.32 * max(length, keys)))
    figure = _figure((side * len(heads) + 1.2, side + 0.6))
    axes = figure.subplots(1, len(heads), squeeze=False)[0]
    for number, (axis, head) in enumerate(zip(axes, heads, strict=True), 1):
        image = axis.imshow(head, vmin=0, vmax=max(float(heads.max()), 1e-12), cmap="Blues")
        axis.set_xticks(range(keys), columns or range(1, keys + 1), rotation=90 if keys > 8 else 0, fontsize=7)
        axis.set_yticks(range(length), rows or range(1, length + 1), fontsize=7)
        axis.set(xlabel="key", ylabel="query")
        if len(heads) > 1:
            axis.set_title(f"head {number}", fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8)
    figure.suptitle(title, fontsize=10)
    return figure


def lines(
    weights: Array, agents: Array, targets: Array, *, extent: Extent, picture: np.ndarray | None = None, title: str = ""
) -> "Figure":
    """Draw attention as lines from agents to targets; a thicker line is a larger weight.

    Args:
        weights: (n, m), weight from agent i to target j, for instance :func:`received`.
        agents: positions (n, 2).
        targets: positions (m, 2).
        extent: (left, right, bottom, top) of the shown part of the scene, see :class:`hitmac.envs.render.Picture`.
        picture: (height, width, 3), drawn behind the lines; it must show exactly that part.
        title: title of the figure.
    """
    weights, agents, targets = map(_as_array, (weights, agents, targets))
    if weights.ndim != 2 or agents.shape != (weights.shape[0], 2) or targets.shape != (weights.shape[1], 2):
        raise ValueError(
            f"weights have shape {weights.shape}, agents {agents.shape}, targets {targets.shape}; "
            "they must be (n, m), (n, 2) and (m, 2)"
        )
    left, right, bottom, top = extent
    scale = 5 / max(right - left, top - bottom)
    figure = _figure((scale * (right - left), scale * (top - bottom) + 0.2))  # with room for a title
    axis = figure.subplots()
    shares = weights / max(float(weights.max(initial=0.0)), 1e-12)
    for (i, j), share in np.ndenumerate(shares):
        ends = np.stack((agents[i], targets[j])).T
        axis.plot(*ends, color="#784696", lw=0.3 + 5 * share, alpha=0.25 + 0.6 * share)
    if picture is not None:
        axis.imshow(picture, extent=extent)  # type: ignore[arg-type]
    else:
        for places, marker, color in ((agents, "s", "#1b3e73"), (targets, "o", "#228b4a")):
            axis.scatter(*places.T, marker=marker, color=color, zorder=3)
            for number, place in enumerate(places, 1):
                axis.annotate(str(number), place, xytext=(5, 5), textcoords="offset points", color=color)
    axis.set(xlim=extent[:2], ylim=extent[2:], aspect="equal", xticks=[], yticks=[])
    axis.set_title(title, fontsize=10)
    return figure


def film(path: str | Path, weights: Array, agents: Array, targets: Array, *, extent: Extent) -> None:
    """Write attention over time as an animated GIF of :func:`lines`, whole or not at all.

    Args:
        path: file of the film; its name must end in .gif.
        weights: (T, n, m).
        agents: (n, 2) or (T, n, 2).
        targets: (T, m, 2).
        extent: see :func:`lines`.
    """
    if Path(path).suffix.lower() != ".gif":
        raise ValueError(f"path is {str(path)!r}; its name must end in .gif")
    weights, agents, targets = map(_as_array, (weights, agents, targets))
    if weights.ndim != 3 or len(weights) != len(targets) or len(weights) == 0:
        raise ValueError(
            f"weights have shape {weights.shape}, targets {targets.shape}; they must have the same length T, 1 or more"
        )
    agents, frames = np.broadcast_to(agents, (len(weights), *agents.shape[-2:])), []
    for time in range(len(weights)):
        figure = lines(weights[time], agents[time], targets[time], extent=extent, title=f"{time}")
        frames.append(_image(figure))
    with _whole(Path(path)) as temporary:
        frames[0].save(temporary, save_all=True, append_images=frames[1:], duration=100, loop=0)  # ms


def save(figure: "Figure", path: str | Path) -> None:
    """Write a figure, whole or not at all, in the format of the file's extension; ValueError for an unknown one."""
    known = figure.canvas.get_supported_filetypes()
    if Path(path).suffix.lower().removeprefix(".") not in known:
        raise ValueError(f"path is {str(path)!r}; its name must end in one of .{', .'.join(known)}")
    with _whole(Path(path)) as temporary:
        figure.savefig(temporary, dpi=110)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` once written and is deleted on failure."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _figure(size: tuple[float, float]) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("plots require matplotlib: pip install 'hitmac[plots]'") from None
    return Figure(figsize=size, layout="constrained")


def _image(figure: "Figure") -> "Image":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL.Image import fromarray

    figure.set_dpi(80)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _as_array(values: Array) -> np.ndarray:
    return values.detach().cpu().float().numpy() if isinstance(values, Tensor) else np.asarray(values, np.float64)
