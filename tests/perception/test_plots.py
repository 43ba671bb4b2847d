"""Plots of attention weights: heat maps, lines over a scene, films, the gallery."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hitmac.perception import plots

ATTENTION = np.array([[0.1, 0.8, 0.1], [0.5, 0.0, 0.5]])
AGENTS, TARGETS = np.array([[0, 0], [5, 5]]), np.array([[1, 2], [3, 4], [-5, 0]])
EXTENT = (-10, 10, -10, 10)


def test_a_heat_map_of_every_head(tmp_path):
    weights, labels = torch.rand(2, 6, 6), list("abcdef")
    figure = plots.heat_map(weights, rows=labels, columns=labels, title="pairs")
    assert [axis.get_title() for axis in figure.axes[:2]] == ["head 1", "head 2"]
    for text in (figure.axes[0].get_xticklabels(), figure.axes[1].get_yticklabels()):
        assert [label.get_text() for label in text] == labels
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), weights[1])
    np.testing.assert_allclose(plots.received(weights), weights.mean((0, 1)), rtol=1e-6)
    plots.save(figure, tmp_path / "map.png")
    assert [path.name for path in tmp_path.iterdir()] == ["map.png"]
    for path in ("map", "map.mp4"):
        with pytest.raises(ValueError, match=f"path is '{path}'; its name must end in one of .*\\.png"):
            plots.save(figure, path)


def test_thicker_lines_are_larger_weights():
    figure = plots.lines(ATTENTION, AGENTS, TARGETS, extent=EXTENT, picture=np.zeros((20, 20, 3), np.uint8))
    drawn = figure.axes[0].lines
    widths = np.array([line.get_linewidth() for line in drawn]).reshape(2, 3)
    np.testing.assert_array_equal(widths.argsort(axis=None), ATTENTION.argsort(axis=None))
    np.testing.assert_array_equal(drawn[4].get_xydata(), [AGENTS[1], TARGETS[1]])


def test_a_film_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    moving, weights = TARGETS[None] + np.arange(3)[:, None, None], ATTENTION[None].repeat(3, 0)
    plots.film(tmp_path / "film.gif", weights, AGENTS, moving, extent=EXTENT)
    with Image.open(tmp_path / "film.gif") as shown:
        assert shown.n_frames == 3
    monkeypatch.setattr(plots.os, "replace", lambda *paths: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plots.film(tmp_path / "other.gif", weights, AGENTS, moving, extent=EXTENT)
    assert [path.name for path in tmp_path.iterdir()] == ["film.gif"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: plots.film("film.png", ATTENTION[None], AGENTS, TARGETS[None], extent=EXTENT), "path is 'film.png'"),
        (lambda: plots.film("a.gif", ATTENTION, AGENTS, TARGETS, extent=EXTENT), r"weights have shape \(2, 3\)"),
        (lambda: plots.heat_map(torch.rand(2, 6, 6), rows=["a", "b"]), "rows has 2 labels; expected 6 for weights"),
        (lambda: plots.heat_map(torch.rand(3)), r"weights have shape \(3,\)"),
        (lambda: plots.lines(ATTENTION, TARGETS, AGENTS, extent=EXTENT), r"agents \(3, 2\), targets \(2, 2\)"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_the_code_of_the_gallery_writes_its_files(tmp_path, monkeypatch):
    folder = Path(plots.__file__).parent / "gallery"
    monkeypatch.chdir(tmp_path)
    for block in (folder / "README.md").read_text().split("```python\n")[1:]:
        exec(block.split("```")[0].replace("arange(12)", "arange(2)"), {})  # frames of the film
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in folder.iterdir()} - {"README.md"}
