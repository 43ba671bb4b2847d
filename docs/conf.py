"""Configuration of the documentation site: ``make docs`` builds it in docs/_build/html, without a network."""

import sys
from pathlib import Path

from sphinx.ext.autodoc.mock import MockFinder

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]
sys.meta_path.insert(0, MockFinder(["ray"]))  # large, and no docstring needs it

import hitmac  # noqa: E402

project = "hitmac"
author = "The hitmac authors"
version = release = hitmac.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "extensions.mathml",
    "extensions.markdown_docstrings",
    "extensions.repository_pages",
    "extensions.environment_pages",
    "extensions.reference_pages",
    "extensions.navigation",
]
exclude_patterns = ["_build"]
root_doc = "index"

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]  # as a code host shows formulas
myst_heading_anchors = 4
highlight_language = "sh"  # of blocks that name no language: commands

default_role = "code"  # of single backquotes in docstrings
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Args of all shells", "params_style")]
add_module_names = False
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "extra_repr"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 100

nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!hitmac\.).*")]  # other projects: their pages are not at hand offline

html_theme = "furo"
html_title = "hitmac"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["hitmac.css"]
html_copy_source = False
html_show_sphinx = html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1b3e73", "color-brand-content": "#2b5fa8"},
    "dark_css_variables": {"color-brand-primary": "#8fb4e8", "color-brand-content": "#8fb4e8"},
}
