"""How Sphinx builds the documentation: ``python -m sphinx -W docs docs/_build/html``."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
# The pages are those of this clone, whatever is installed.
sys.path[:0] = [str(ROOT), str(HERE / "_ext")]
environment = {**os.environ, "PYTHONPATH": str(ROOT)}
# Kernels are plain functions here, with signatures and docstrings, and nothing compiles.
os.environ["NUMBA_DISABLE_JIT"] = "1"

from sphinx.util import inspect  # noqa: E402

import fedepm_fast  # noqa: E402
import fedepm_fast.algorithms  # noqa: E402
import fedepm_fast.sklearn  # noqa: E402  scikit-learn looks at torch's classes, which are mocked below

# Classes that are imported on first use are members of their package's page like others.
# Of algorithms that each are a file all are.
found = {cls.__name__: cls for cls in fedepm_fast.algorithms.ALGORITHMS.values()}
fedepm_fast.algorithms.__all__ = sorted({*fedepm_fast.algorithms.__all__, *found})
vars(fedepm_fast.algorithms).update(
    {name: getattr(fedepm_fast.algorithms, name) for name in fedepm_fast.algorithms.__all__}
)

project = "fedepm_fast"
author = "The fedepm_fast developers"
project_copyright = author
version = release = fedepm_fast.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "commands",
    "drawings",
    "formulas",
    "names",
]
exclude_patterns = ["_build", "_figures"]
templates_path = ["_templates"]
nitpicky = True
highlight_language = "none"  # what names no language is output, or a formula

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_default_options = {"members": True}
autodoc_member_order = "groupwise"
autodoc_mock_imports = ["flwr", "torch"]
autodoc_typehints = "none"  # docstrings name the types, with shapes and units
numpydoc_show_class_members = False
default_role = "name"

html_theme = "pydata_sphinx_theme"
html_title = "fedepm_fast"
html_static_path = ["_static"]
html_css_files = ["fedepm.css"]
html_copy_source = False
html_show_sourcelink = False
# Pages that stand alone need no navigation beside them.
html_sidebars = {
    page: [] for page in ("algorithm", "benchmarks", "changelog", "commands", "differences")
}
html_theme_options = {
    "header_links_before_dropdown": 7,
    "logo": {"text": "fedepm_fast"},
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
    "show_toc_level": 2,
}


def draw(app: Any) -> None:
    """Draw the figures in a process of its own, where kernels are compiled."""
    for script in ("figures.py", "history.py") if app.tags.has("history") else ("figures.py",):
        command = [sys.executable, "-W", "error", str(HERE / script), str(HERE / "_figures")]
        subprocess.run(command, check=True, env=environment)


def publish(app: Any, failure: Exception | None) -> None:
    """Make asv's pages of the results that lie beside the clone."""
    if failure is None and app.builder.name == "html":
        command = ["asv", "publish", "--html-dir", str(Path(app.outdir) / "asv")]
        subprocess.run([sys.executable, "-m", *command], check=True, env=environment, cwd=ROOT)


def skip(app: Any, what: str, name: str, found: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out the fields of named tuples that have no docstring of their own."""
    return True if (getattr(found, "__doc__", None) or "").startswith("Alias for field") else None


def sign(
    app: Any, what: str, name: str, found: Any, options: Any, signature: str, returns: str
) -> tuple[str, None] | None:
    """The signature of a class whose base is mocked, which Sphinx takes from the mock."""
    if what != "class" or signature != "(*args, **kwargs)":
        return None
    own = inspect.signature(found.__init__, bound_method=True)
    return inspect.stringify_signature(own, show_annotation=False), None


def setup(app: Any) -> None:
    """Connect what happens before pages are read and after they are written."""
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-skip-member", skip)
    app.connect("builder-inited", draw)
    if any((ROOT / "bench" / "results").glob("*/*-*.json")):
        app.tags.add("history")
        if find_spec("asv") and (ROOT / ".git").exists():
            app.tags.add("published")
            app.connect("build-finished", publish)
