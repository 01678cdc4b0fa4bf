"""Names in the backticks of docstrings: links where something is documented, code elsewhere."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.autosummary import AutoLink, ImportExceptionGroup, import_by_name
from sphinx.util.nodes import make_refnode


class Name(AutoLink):
    """Autosummary's smart link; what cannot be imported, such as a parameter, is code."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        found, messages = super().run()
        return [
            nodes.literal(text=node.astext()) if isinstance(node, nodes.emphasis) else node
            for node in found
        ], messages


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """A name that is documented where it is defined, or where it is public, and not here."""
    if (node.get("refdomain"), node.get("reftype")) != ("py", "obj"):
        return None
    target = node["reftarget"]
    try:
        _, found, parent, _ = import_by_name(target, [node.get("py:module"), None])
    except (ImportError, ImportExceptionGroup):
        return content  # an attribute without a page entry, such as a field: code
    home = getattr(parent, "__module__", None) or getattr(parent, "__name__", "")
    module = getattr(found, "__module__", home)
    known = env.domains.python_domain.objects
    full = f"{module}.{getattr(found, '__qualname__', target)}"
    package = module.rpartition(".")[0]
    public = [full] + [name for name in known if name.endswith(f".{target}")]
    for name in public:
        if name in known and name.startswith(package):
            entry = known[name]
            return make_refnode(
                app.builder, node["refdoc"], entry.docname, entry.node_id, content, name
            )
    return content  # a module's constant or import: code


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_role("name", Name())
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
