"""Plots of attention weights: heat maps, lines over a scene, films. Requires the extra ``plots``.

``python -m hitmac.perception.plots FOLDER`` writes the gallery of ``perception/gallery``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hitmac.perception.encoder import AgentTargetEncoder
from hitmac.perception.functional import ScaledDot, attend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray | Tensor
Extent = tuple[float, ...]  # left, right, bottom, top

_MISSING = "plots need matplotlib and Pillow: pip install 'hitmac[plots]'"


def pair_labels(num_agents: int, num_targets: int) -> list[str]:
    """Return labels ``1>a, 1>b, ..., 2>a, ...``: agents as numbers, targets as letters, in the order i * m + j."""
    return [f"{i + 1}>{_letter(j)}" for i in range(num_agents) for j in range(num_targets)]


def received(weights: Array) -> np.ndarray:
    """Return the attention (..., S) that each key receives: weights (..., h, L, S), mean over heads and queries."""
    return _as_array(weights).mean((-3, -2))


def heat_map(
    weights: Array,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
) -> Figure:
    """Draw weights as one heat map for each head.

    Args:
        weights: (L, S), or (h, L, S) for one heat map per head.
        rows: labels of the queries; None: numbers.
        columns: labels of the keys; None: numbers.
        title: title of the figure.

    Raises:
        ValueError: another shape of the weights, or a wrong number of labels.
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    heads = _as_array(weights)
    if heads.ndim not in (2, 3):
        raise ValueError(f"weights have shape {heads.shape}; they must be (L, S) or (heads, L, S)")
    heads = heads.reshape(-1, *heads.shape[-2:])
    _, length, keys = heads.shape
    for name, labels, number in (("rows", rows, length), ("columns", columns, keys)):
        if labels is not None and len(labels) != number:
            raise ValueError(f"{name} has {len(labels)} labels; weights of shape {heads.shape} need {number}")
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
    weights: Array,
    agents: Array,
    targets: Array,
    *,
    extent: Extent,
    picture: np.ndarray | None = None,
    title: str = "",
) -> Figure:
    """Draw attention as lines from agents to targets; a thicker line is a larger weight.

    Args:
        weights: (n, m), weight from agent i to target j, for instance :func:`received`.
        agents: positions (n, 2).
        targets: positions (m, 2).
        extent: (left, right, bottom, top) of the shown part of the scene, as :class:`hitmac.envs.render.Picture` has.
        picture: (height, width, 3), drawn behind the lines; it must show just that part.
        title: title of the figure.

    Raises:
        ValueError: shapes that do not fit.
        ModuleNotFoundError: matplotlib is missing; the message names the extra to install.
    """
    figure = _scene(extent)
    _draw_lines(figure.subplots(), _as_array(weights), _as_array(agents), _as_array(targets), extent, picture, title)
    return figure


def film(
    path: str | Path,
    weights: Array,
    agents: Array,
    targets: Array,
    *,
    extent: Extent,
    pictures: Sequence[np.ndarray] | None = None,
    frames_per_second: int = 10,
) -> None:
    """Write attention over time as an animated GIF of :func:`lines`; the file is written whole or not at all.

    Args:
        path: file of the film; its name must end in .gif.
        weights: (T, n, m).
        agents: (n, 2) or (T, n, 2).
        targets: (T, m, 2).
        extent: see :func:`lines`.
        pictures: T pictures, see :func:`lines`.
        frames_per_second: frame rate of the film.

    Raises:
        ValueError: shapes that do not fit, or another file extension.
        ModuleNotFoundError: matplotlib or Pillow is missing; the message names the extra to install.
    """
    if Path(path).suffix.lower() != ".gif":
        raise ValueError(f"path is {str(path)!r}; its name must end in .gif")
    weights, agents, targets = map(_as_array, (weights, agents, targets))
    if weights.ndim != 3 or len(weights) != len(targets) or len(weights) == 0:
        raise ValueError(
            f"weights have shape {weights.shape}, targets {targets.shape}; they must have the same length T, 1 or more"
        )
    figure = _scene(extent)
    try:
        from matplotlib.animation import FuncAnimation, PillowWriter
    except ModuleNotFoundError:  # Pillow, which the writer needs
        raise ModuleNotFoundError(_MISSING) from None
    axis, of_agents = figure.subplots(), np.broadcast_to(agents, (len(weights), *agents.shape[-2:]))

    def draw(frame: int) -> list[Any]:
        axis.clear()
        behind = None if pictures is None else pictures[frame]
        _draw_lines(axis, weights[frame], of_agents[frame], targets[frame], extent, behind, f"{frame}")
        return []

    animation = FuncAnimation(figure, draw, frames=len(weights))
    with _whole(Path(path)) as temporary:
        animation.save(temporary, writer=PillowWriter(fps=frames_per_second), dpi=80)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format of the file's extension, whole or not at all; a ValueError lists the known ones."""
    known = figure.canvas.get_supported_filetypes()
    if Path(path).suffix.lower().removeprefix(".") not in known:
        raise ValueError(f"path is {str(path)!r}; its name must end in one of .{', .'.join(known)}")
    with _whole(Path(path)) as temporary:
        figure.savefig(temporary, dpi=110)


def gallery(folder: str | Path) -> list[Path]:
    """Write the gallery, an 8 x 8 picture as four tokens and an encoder's attention over a scene; return its files."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    one = [[0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 1, 1, 0]]
    two = [[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0]]
    patches = torch.tensor([one, two, one, two], dtype=torch.float32)
    picture = _figure((4, 4.2))
    whole = patches.unflatten(0, (2, 2)).permute(0, 2, 1, 3).reshape(8, 8)
    picture.subplots().imshow(whole.numpy(), cmap="Greys")
    picture.suptitle("an 8 x 8 picture of four 4 x 4 patches", fontsize=10)
    flat = patches.flatten(1)
    of_patches = attend(flat, flat, flat, score=ScaledDot(), need_weights=True)[1]
    assert of_patches is not None

    torch.manual_seed(0)
    agents, start = torch.tensor([[-600.0, -500], [600, -500], [0, 700]]), torch.rand(5, 2) * 1600 - 800
    targets = start + torch.arange(12)[:, None, None] * torch.randn(5, 2) * 40  # (12, 5, 2)
    offset = (targets[:, None] - agents[:, None]) / 1000  # (12, 3, 5, 2)
    with torch.no_grad():
        encoder = AgentTargetEncoder(3, 32, num_heads=2)
        _, weights = encoder(torch.cat((8 * offset, offset.norm(dim=-1, keepdim=True)), -1), need_weights=True)
    seen, extent, names = received(weights.targets), (-1000, 1000, -1000, 1000), list("abcde")
    figures = {
        "picture.png": picture,
        "picture-weights.png": heat_map(of_patches, title="attention between the patches"),
        "targets-weights.png": heat_map(weights.targets[0, 0], rows=names, columns=names, title="agent 1, its targets"),
        "agents-weights.png": heat_map(weights.agents[0], title="between the agents"),
        "lines.png": lines(seen[0], agents, start, extent=extent, title="attention received"),
    }
    for name, figure in figures.items():
        save(figure, folder / name)
    film(folder / "film.gif", seen, agents, targets, extent=extent)
    return [folder / name for name in (*figures, "film.gif")]


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` once written and is deleted on failure."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _figure(size: tuple[float, float]) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError(_MISSING) from None
    return Figure(figsize=size, layout="constrained")


def _scene(extent: Extent) -> Figure:
    """Return a figure for a scene, with room for a title."""
    left, right, bottom, top = extent
    scale = 5 / max(right - left, top - bottom)
    return _figure((scale * (right - left), scale * (top - bottom) + 0.2))


def _as_array(values: Array) -> np.ndarray:
    return values.detach().cpu().float().numpy() if isinstance(values, Tensor) else np.asarray(values, np.float64)


def _letter(number: int) -> str:
    """Return the name of a target: a, b, ..., z, aa, ab, ..."""
    return (_letter(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


def _draw_lines(
    axis: Axes,
    weights: np.ndarray,
    agents: np.ndarray,
    targets: np.ndarray,
    extent: Extent,
    picture: np.ndarray | None,
    title: str,
) -> None:
    if weights.ndim != 2 or agents.shape != (weights.shape[0], 2) or targets.shape != (weights.shape[1], 2):
        raise ValueError(
            f"weights have shape {weights.shape}, agents {agents.shape}, targets {targets.shape}; "
            "they must be (n, m), (n, 2) and (m, 2)"
        )
    shares = weights / max(float(weights.max(initial=0.0)), 1e-12)
    for (i, j), share in np.ndenumerate(shares):
        ends = np.stack((agents[i], targets[j])).T
        axis.plot(*ends, color="#784696", lw=0.3 + 5 * share, alpha=0.25 + 0.6 * share)
    if picture is not None:
        axis.imshow(picture, extent=extent)  # type: ignore[arg-type]
    else:
        axis.scatter(*agents.T, marker="s", color="#1b3e73", zorder=3)
        axis.scatter(*targets.T, color="#228b4a", zorder=3)
        for labels, places in ((range(1, len(agents) + 1), agents), (map(_letter, range(len(targets))), targets)):
            for label, place in zip(labels, places, strict=True):
                axis.annotate(str(label), place, xytext=(5, 5), textcoords="offset points")
    axis.set(xlim=extent[:2], ylim=extent[2:], aspect="equal", xticks=[], yticks=[])
    axis.set_title(title, fontsize=10)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hitmac.perception.plots FOLDER")
    for file in gallery(sys.argv[1]):
        print(file)
