"""Sidebar of the site. It is kept here, so that the pages have no directives and read well on a code host."""

from __future__ import annotations

from sphinx.application import Sphinx

from extensions.files import DOCS
from extensions.repository_pages import PAGES
from hitmac.envs import TASKS

NAVIGATION = {
    "Begin": ["tutorial", "README <project/readme>"],
    "Simulate": ["environments", "site", "cameras", "detections", "duel"],
    "Learn and compare": ["evaluation", "scale", "results", "pretrained/index", "deploy"],
    "Encode": ["encoder", "mathematics", "project/gallery"],
    "Extend": ["extend"],
    "Reference": ["reference/perception", "reference/envs", "reference/agents"],
    "Project": ["paper", "speed", "project/changelog", "project/contributing", "project/tools", "project/recordings"],
}
"""Pages under each caption; a page of docs/ that is not listed stands under "Extend"."""

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
    listed = {shown for pages in NAVIGATION.values() for shown in pages}
    others = sorted({path.stem for path in DOCS.glob("*.md")} - listed - {"index"})
    return "".join(
        tree([*pages, *(others if caption == "Extend" else [])], caption) for caption, pages in NAVIGATION.items()
    )


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
