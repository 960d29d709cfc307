"""Sphinx's configuration: ``make docs`` builds the site without network; warnings are errors."""

import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import myst_nb.core.render  # noqa: E402
from site_parts import notebooks, reference, search, versions  # noqa: E402

import regard  # noqa: E402
from regard.lab.reports.page import learn_page  # noqa: E402

# Notebooks call the command `regard` of the environment that builds the site, on one thread:
# two of them run at once, and waiting threads would slow both.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("COLUMNS", "110")
os.environ["TTY_COMPATIBLE"] = "0"  # Jupyter claims a terminal; without one there are no bars

project = "regard"
author = "regard's contributors"
copyright = "regard's contributors, Apache-2.0"
version = release = regard.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "jupyter_execute"]
nitpicky = False
smartquotes = False  # -- stays the beginning of an option
default_role = "literal"  # one backtick in a docstring is code
highlight_language = "none"  # of indented blocks: command lines, formulas, tables

myst_enable_extensions = [
    "colon_fence",
    "deflist",
]  # formulas are Unicode: no script from elsewhere
myst_heading_anchors = 4
suppress_warnings = [
    "myst.header",  # a recorded result may begin with a small heading
    "mystnb.unknown_mime_type",
]

nb_execution_mode = os.environ.get("REGARD_DOCS_NOTEBOOKS", "cache")
nb_execution_cache_path = str(HERE / "_build" / ".jupyter_cache")
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds of a cell, on a busy machine
nb_merge_streams = True
myst_nb.core.render.coalesce_streams = notebooks.joined

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Shape", "params_style"), ("Source", "returns_style")]
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = f"regard {release}"
html_static_path = ["_static"]
html_css_files = ["regard.css"]
html_js_files = ["regard.js"]
html_search_language = "en-zh"
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
        "versions.html",
    ]
}
templates_path = ["_templates"]

linkcheck_ignore = [r"https?://.*"]  # the build has no network; `make docs-links` checks the rest


def language_of(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Mark pages below ``zh/`` as Chinese, for browsers and screen readers."""
    if page.startswith("zh/"):
        context["language"] = "zh"


def write_playground(app: Any, exception: Exception | None) -> None:
    """Write the page that trains attention, one file (``build-finished``)."""
    if not exception and app.builder.name == "html":
        (Path(app.outdir) / "playground.html").write_text(learn_page(), encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Connect the generated parts."""
    app.add_search_language(search.SearchBoth)
    app.connect("builder-inited", reference.write_modules)
    app.connect("source-read", reference.insert)
    # before napoleon, which makes sections of the lines that convert escapes
    app.connect("autodoc-process-docstring", reference.convert, priority=400)
    app.connect("autodoc-skip-member", reference.skip)
    app.connect("html-page-context", language_of)
    app.connect("build-finished", versions.write)
    app.connect("build-finished", write_playground)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
