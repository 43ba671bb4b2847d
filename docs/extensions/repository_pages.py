"""Pages from files outside of docs/, such as the README, and links to them.

The repository's Markdown links by relative paths, as a code host shows them. A link to a file that is a page of the
site leads to the page here. A link to any other file, such as an example, leads to a copy of the file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from sphinx.application import Sphinx

from extensions.files import DOCS, ROOT, write

PAGES = {
    "README.md": "project/readme",
    "CHANGELOG.md": "project/changelog",
    "CONTRIBUTING.md": "project/contributing",
    "perception/gallery/README.md": "project/gallery",
    "tests/data/README.md": "project/recordings",
    "tools/README.md": "project/tools",
    **{
        str(PurePosixPath(card.relative_to(ROOT))): f"pretrained/{card.parent.name}"
        for card in sorted((ROOT / "agents" / "pretrained").glob("*/card.md"))
    },
}
"""Names of the pages of files outside of docs/."""

_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def relinked(text: str, file: str, page: str) -> str:
    """Return the Markdown of a file with its links as those of a page.

    Args:
        text: the Markdown.
        file: path of the file in the repository, from which its links go.
        page: name of the page on the site.
    """

    def link(found: re.Match[str]) -> str:
        path = os.path.normpath(PurePosixPath(file).parent / found[1])
        target = DOCS / f"{PAGES[path]}.md" if path in PAGES else ROOT / path
        return f"]({os.path.relpath(target, (DOCS / page).parent)}{found[2] or ''})"

    return _LINK.sub(link, text)


def pretrained_page() -> str:
    """Return the page that lists the pretrained policies, each with the first paragraph of its card, as Markdown."""
    rows = [
        "# Pretrained policies",
        "",
        "They come with the package, under these names.",
        "",
        "| name | what it is |",
        "|---|---|",
    ]
    for file, page in PAGES.items():
        if page.startswith("pretrained/"):
            title, about = (ROOT / file).read_text(encoding="utf-8").split("\n\n")[:2]
            rows.append(
                f"| [`pretrained:{title.removeprefix('# ')}`]({Path(page).name}.md) | {' '.join(about.split())} |"
            )
    return "\n".join([*rows, ""])


def _write_pages(app: Sphinx, config: object) -> None:
    write(DOCS / "pretrained" / "index.md", pretrained_page())
    for file, page in PAGES.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        write(DOCS / f"{page}.md", relinked(text, file, page))


def _relink(app: Sphinx, page: str, source: list[str]) -> None:
    path = Path("docs", f"{page}.md")
    if path.parent == Path("docs"):  # one that is kept, not one that the build wrote
        source[0] = relinked(source[0], str(path), page)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before the build looks for pages, and mend the links of the others when they are read."""
    app.connect("config-inited", _write_pages)
    app.connect("source-read", _relink)
    return {"parallel_read_safe": True}
