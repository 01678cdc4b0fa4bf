"""Figures on light and on dark pages.

The directive ``drawing`` is one figure of ``figures.py``; beside an image ``NAME.png`` of a page,
``NAME-dark.png`` takes its place on dark pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
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


class Pairs(SphinxTransform):
    """Images with a dark one beside them, before Sphinx collects the files."""

    default_priority = 400

    def apply(self, **options: object) -> None:
        for image in list(self.document.findall(nodes.image)):
            uri = Path(image["uri"])
            dark = uri.with_name(f"{uri.stem}-dark{uri.suffix}")
            relative, path = self.env.relfn2path(str(dark), self.env.docname)
            if not image["classes"] and Path(path).is_file():
                image["classes"].append("only-light")
                other = nodes.image(uri=f"/{relative}", alt=image["alt"], classes=["only-dark"])
                image.parent.insert(image.parent.index(image) + 1, other)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("drawing", Drawing)
    app.add_transform(Pairs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
