"""Configuration of the documentation site: `make docs` builds it into build/docs, offline.

Benchmark results, the command reference and the Markdown files of the root folder are copied or
generated before each build, and not committed.
"""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from typer.cli import get_docs_for_click

import bitclass
from bitclass.cli.app import COMMANDS

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project = "bitclass"
author = "The bitclass developers"
project_copyright = author
version = release = bitclass.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]

smartquotes_action = "qe"  # no dashes: options begin with two hyphens

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # numpydoc sections have types and shapes
autodoc_member_order = "bysource"
autodoc_default_options = {  # methods of scikit-learn, which link to its site
    "exclude-members": "set_fit_request, set_partial_fit_request, set_predict_request, "
    "set_score_request"
}
numpydoc_show_class_members = False  # listed by the class template
python_use_unqualified_type_names = True

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "bitclass"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/icon.svg"
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_sidebars: dict[str, list[str]] = {"index": [], "start/*": []}
html_theme_options = {
    "logo": {
        "text": "bitclass",
        "image_light": "_static/icon.svg",
        "image_dark": "_static/icon.svg",
    },
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def site_links(text: str) -> str:
    """Convert links between repository files to links between pages of the site."""
    up = r"\]\((?:\.\./)*"
    text = re.sub(r"\[([^\]]*)" + up + r"[\w/.-]+\.(?:py|cpp|hpp|csv|json|toml)\)", r"\1", text)
    results = ROOT / "benchmarks" / "results"
    text = re.sub(  # no links to results that do not exist yet
        r"\[([^\]]*)" + up + r"(?:benchmarks/)?results/([\w/.-]+)\)",
        lambda link: link[0] if (results / link[2]).exists() else link[1],
        text,
    )
    text = re.sub(up + r"benchmarks/README\.md", "](/benchmarks/index.md", text)
    text = re.sub(up + r"benchmarks/", "](/benchmarks/", text)
    text = re.sub(
        up + r"(CHANGELOG|CONTRIBUTING|SECURITY)\.md", r"](/development/project/\1.md", text
    )
    return re.sub(up + r"docs/", "](/", text)


def copy_pages() -> None:
    """Copy the benchmark pages with their figures, and Markdown files of the root folder."""
    benchmarks, project_files = DOCS / "benchmarks", DOCS / "development" / "project"
    for folder in (benchmarks, project_files):
        shutil.rmtree(folder, ignore_errors=True)
    project_files.mkdir(parents=True)
    kinds = shutil.ignore_patterns("*.csv", "*.json", "cells")
    shutil.copytree(ROOT / "benchmarks" / "results", benchmarks / "results", ignore=kinds)
    for page in benchmarks.rglob("*.md"):
        page.write_text(site_links(page.read_text()))
    lines = [site_links((ROOT / "benchmarks" / "README.md").read_text())]
    lines += ["```{toctree}", ":hidden:", ":glob:", ""]
    lines += ["results/*", "results/reproduction/report", "```", ""]
    (benchmarks / "index.md").write_text("\n".join(lines))
    for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
        page = ROOT / f"{name}.md"
        (project_files / page.name).write_text(site_links(page.read_text()))
    readme = (ROOT / "README.md").read_text()
    when = readme[readme.index("# When to use") : readme.index("\n## Accuracy")]
    (DOCS / "start" / "when.md").write_text(site_links(when))


def write_commands() -> None:
    """Generate one page per command from its help text."""
    folder = DOCS / "commands"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in COMMANDS:
        app = typer.Typer(add_completion=False)
        app.command(name)(import_module(f"bitclass.cli.{name}").command)
        command = typer.main.get_command(app)
        context = typer.Context(command, info_name=f"bitclass {name}")
        page = get_docs_for_click(obj=command, ctx=context, name=f"bitclass {name}")
        (folder / f"{name}.md").write_text(page.replace("`", "", 2))  # in the title
    table = [
        f"| [`bitclass {name}`]({name}.md) | {summary} |" for name, summary in COMMANDS.items()
    ]
    lines = ["# Commands", "", "| command | description |", "|---|---|", *table, ""]
    lines += ["```{toctree}", ":hidden:", "", *COMMANDS, "```", ""]
    (folder / "index.md").write_text("\n".join(lines))


def rewrite_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Rewrite links to files outside docs/, which are relative to the repository."""
    source[0] = site_links(source[0])


def visit_math(self: Any, node: nodes.math) -> None:
    """Write a formula as MathML, which needs no scripts or external fonts."""
    self.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_math_block(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula, which scrolls if it is wider than the page."""
    self.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Set up the build; called by Sphinx."""
    copy_pages()
    write_commands()
    app.connect("source-read", rewrite_links)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
