"""Mathematics as MathML, which browsers draw without a script, a font or a network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

_logger = logging.getLogger(__name__)


def mathml(node: nodes.Element, *, as_block: bool = False) -> str:
    """Return a formula as MathML, or its source with a warning where the converter does not know a command."""
    try:
        return latex2mathml.tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        _logger.warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{node.astext()}</code>"


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the renderer ``mathml`` to Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))  # type: ignore[arg-type]
    return {"parallel_read_safe": True}
