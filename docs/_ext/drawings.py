"""The directive ``drawing``: one figure of ``figures.py``, on light and on dark pages."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Drawing(SphinxDirective):
    """A figure by the name of its function; the content is the caption.

    ``:optional:`` leaves it out where it has not been drawn.
    """

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"alt": directives.unchanged_required, "optional": directives.flag}

    def run(self) -> list[nodes.Node]:
        drawn = Path(self.env.srcdir, "_figures", f"{self.arguments[0]}-light.svg").exists()
        if "optional" in self.options and not drawn:
            return []
        pictures = nodes.container(classes=["pictures"])
        for theme in ("light", "dark"):
            uri = f"/_figures/{self.arguments[0]}-{theme}.svg"
            pictures += nodes.image(uri=uri, alt=self.options["alt"], classes=[f"only-{theme}"])
        caption = nodes.container("", *self.parse_content_to_nodes(), classes=["caption"])
        return [nodes.container("", pictures, caption, classes=["drawing"])]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
