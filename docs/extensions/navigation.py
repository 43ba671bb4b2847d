"""Sidebar of the site. It is kept here, so that the pages have no directives and read well on a code host."""

from __future__ import annotations

from sphinx.application import Sphinx

from extensions.repository_pages import PAGES
from hitmac.envs import TASKS

NAVIGATION = {
    "Begin": ["tutorial", "README <project/readme>"],
    "Learn and compare": ["train", "evaluation", "benchmark", "scale", "results", "pretrained/index"],
    "Simulate": ["environments", "duel", "examples", "speed"],
    "Turn cameras": ["site", "cameras", "detections", "pixels", "deploy", "run"],
    "Encode": ["encoder", "mathematics", "project/gallery"],
    "Extend": ["extend"],
    "Reference": ["reference/perception", "reference/envs", "reference/agents"],
    "Project": ["paper", "project/changelog", "project/contributing", "project/tools", "project/recordings"],
}
"""Pages under each caption: all of them, of which the build warns otherwise."""

BELOW = {
    "environments": [f"environments/{task.lower()}" for task in TASKS],
    "pretrained/index": [page for page in PAGES.values() if page.startswith("pretrained/")],
}
"""Pages below another one."""


def trees(page: str) -> str:
    """Return the tables of contents of a page, as Markdown; that of the front page is the sidebar."""
    if page in BELOW:
        return tree(BELOW[page])
    if page != "index":
        return ""
    return "".join(tree(pages, caption) for caption, pages in NAVIGATION.items())


def tree(pages: list[str], caption: str = "") -> str:
    """Return a table of contents, as Markdown."""
    lines = ["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *pages, "```", ""]
    return "\n".join(f"/{line}" if line in pages and "<" not in line else line for line in lines)


def _add(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] += trees(page)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the tables of contents to a page when it is read."""
    app.connect("source-read", _add)
    return {"parallel_read_safe": True}
