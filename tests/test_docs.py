"""What the build of the documentation site makes out of docstrings and of pages. ``make docs`` builds the whole."""

import importlib
import re
import sys
from collections import Counter

import gymnasium
import pytest

from hitmac.envs import TASKS
from tests.documents import PAGES, ROOT

pytest.importorskip("sphinx", reason="the documentation needs the extra docs")
sys.path.insert(0, str(ROOT / "docs"))
environment_pages, markdown_docstrings, mathml, navigation, reference_pages, repository_pages = (
    importlib.import_module(f"extensions.{name}")
    for name in (
        "environment_pages", "markdown_docstrings", "mathml", "navigation", "reference_pages", "repository_pages"
    )
)  # fmt: skip
sys.path.remove(str(ROOT / "docs"))


@pytest.mark.parametrize("package", ["hitmac.perception", "hitmac.envs", "hitmac.agents"])
def test_the_reference_has_every_public_name_once(package):
    listed = [name for names in reference_pages.REFERENCE[package].values() for name in names]
    assert sorted(listed) == sorted(importlib.import_module(package).__all__)
    page = reference_pages.reference_page(package)
    for name in listed:
        assert f"{package}.{name}\n" in page or f"{package}.{name}(" in page or f"py:data:: {name}\n" in page


def test_a_constant_has_the_docstring_below_it():
    lines = reference_pages._entry("hitmac.envs", "SUB_STEPS")
    assert lines[:2] == [".. py:data:: SUB_STEPS", "   :canonical: hitmac.envs.tasks.base.SUB_STEPS"]
    assert "   Length of an episode of HiT-MAC, in sub-steps." in lines


def test_every_environment_has_a_page_and_a_film():
    ids = {name for name in gymnasium.registry if name.startswith("dsn/")}
    assert ids == {task.spec.id for task in TASKS.values()}
    assert environment_pages.AGENTS.keys() == TASKS.keys()
    for task in TASKS.values():
        page = environment_pages.environment_page(task)
        assert page.startswith(f"# {task.spec.id}\n")
        assert f"({task.spec.name.lower()}.gif)" in page
        assert f"autoclass:: hitmac.envs.tasks.{task.__name__}" in page
        exec(environment_pages.EXAMPLE.format(id=task.spec.id), {})


def test_a_film_of_the_executor_s_environment(tmp_path, monkeypatch):
    from PIL import Image

    task = TASKS["Executor"]
    monkeypatch.setattr(task, "spec", task.spec._replace(episode_steps=3))
    environment_pages.save_film_of(task, tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        assert (film.n_frames, film.size) == (3, (environment_pages.SIZE,) * 2)


def test_markdown_in_a_docstring_becomes_restructured_text():
    lines = [
        "Summary.",
        "",
        "## Action",
        "",
        "    | key | value |",
        "    |---|---|",
        "    | `a` | b, or c |",
        "",
        "End.",
    ]
    assert markdown_docstrings.restructured(lines) == [
        "Summary.", "", ".. rubric:: Action", "",
        "", "    .. list-table::", "       :header-rows: 1", "",
        "       * - key", "         - value", "       * - `a`", "         - b, or c", "",
        "", "End.",
    ]  # fmt: skip
    alone = ["| no table |"]
    assert markdown_docstrings.restructured(alone) == alone


def test_formulas_become_mathml(caplog):
    from docutils import nodes

    inline = mathml.mathml(nodes.math("", r"\frac{a_i}{2}"))
    assert inline.startswith('<math xmlns="http://www.w3.org/1998/Math/MathML">')
    assert "<mfrac>" in inline
    assert 'display="block"' in mathml.mathml(nodes.math_block("", "x"), as_block=True)
    wrong = nodes.math("", r"\nosuch")
    assert mathml.mathml(wrong) == r"<code>\nosuch</code>"


@pytest.mark.parametrize(
    ("file", "page", "link", "expected"),
    [
        ("docs/evaluation.md", "evaluation", "../README.md#results", "project/readme.md#results"),
        ("docs/evaluation.md", "evaluation", "results.md#planning", "results.md#planning"),
        ("docs/evaluation.md", "evaluation", "../agents/pretrained/flat/card.md", "pretrained/flat.md"),
        ("docs/encoder.md", "encoder", "../examples/attention_by_hand.py", "../examples/attention_by_hand.py"),
        ("README.md", "project/readme", "docs/site.md", "../site.md"),
        ("README.md", "project/readme", "envs/scenes/hit-mac.png", "../../envs/scenes/hit-mac.png"),
        ("README.md", "project/readme", "https://arxiv.org", "https://arxiv.org"),
        ("CHANGELOG.md", "project/changelog", "#here", "#here"),
    ],
)
def test_links_lead_to_pages_of_the_site(file, page, link, expected):
    assert repository_pages.relinked(f"a [b]({link}).", file, page) == f"a [b]({expected})."


def test_the_sidebar_has_every_page_once():
    trees = "".join(navigation.trees(page) for page in ("index", *navigation.BELOW))
    shown = re.findall(r"^(?:/|\S+ </?)([\w/-]+)>?$", trees.replace("README <", "README </"), re.MULTILINE)
    assert max(Counter(shown).values()) == 1
    of_docs = {page.removeprefix("docs/").removesuffix(".md") for page in PAGES if page.startswith("docs/")}
    of_tasks = {f"environments/{task.lower()}" for task in TASKS}
    assert of_docs - {"index"} | of_tasks | {*repository_pages.PAGES.values(), "pretrained/index"} < set(shown)
