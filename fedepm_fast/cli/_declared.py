"""Parameters as source files declare them, read without importing what the files import.

A command knows its options, and completes them, before anything heavy is loaded. What a user's
own code has registered is there already, and described by its class.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from .._common.parameters import Parameter, parameters

_PACKAGE = Path(__file__).parents[1]

#: Where the classes of each kind are, the base that they share, and the registry of its module.
KINDS = {
    "algorithm": ("algorithms", "Algorithm", "ALGORITHMS"),
    "objective": ("losses", "Objective", "OBJECTIVES"),
    "mechanism": ("mechanisms", "Mechanism", "MECHANISMS"),
    "stopping": ("stopping.py", "StoppingRule", "RULES"),
    "partition": ("data/partition.py", "Partitioner", "PARTITIONERS"),
}


@dataclass
class Declared:
    """A class of a source file: its bases, its fields, and what it is registered as."""

    bases: list[str]
    name: str | None = None
    fields: dict[str, Parameter] = field(default_factory=dict)


def of_kind(kind: str) -> dict[str, dict[str, Parameter]]:
    """The parameters of everything of a kind, by the name that it is registered under."""
    folder, base, registry = KINDS[kind]
    known = _classes(folder)
    found = {
        declared.name: _with_inherited(declared, known)
        for cls, declared in known.items()
        if declared.name and base in _ancestors(cls, known)
    }
    module = folder.removesuffix(".py").replace("/", ".")
    loaded = sys.modules.get(f"{__package__.rpartition('.')[0]}.{module}")
    for name in getattr(loaded, registry, ()):
        if name not in found:
            found[name] = parameters(getattr(loaded, registry)[name])
    return found


def of_class(path: str, cls: str) -> dict[str, Parameter]:
    """The parameters of one class of a file or folder."""
    known = _classes(path)
    return _with_inherited(known[cls], known)


def datasets() -> list[str]:
    """The names of the built-in datasets."""
    files = (_PACKAGE / "datasets").glob("[!_]*.py")
    return sorted(file.stem for file in files) or ["adult"]


@cache
def _classes(path: str) -> dict[str, Declared]:
    """The dataclasses of a file or folder of the package, and their bases."""
    root = _PACKAGE / path
    found: dict[str, Declared] = {}
    for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
        text = file.read_text(encoding="utf-8")
        if "@dataclass" in text:
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef):
                    found[node.name] = _declared(node)
    return found


def _declared(node: ast.ClassDef) -> Declared:
    made = Declared([base.id for base in node.bases if isinstance(base, ast.Name)])
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            name, kind = line.target.id, ast.unparse(line.annotation)
            if not kind.startswith("ClassVar"):
                made.fields[name] = Parameter(name, annotation=kind, **_described(line.value))
            elif name == "name" and isinstance(line.value, ast.Constant):
                made.name = str(line.value.value)
    return made


def _described(value: ast.expr | None) -> dict[str, Any]:
    """The default of a field and what `param` says of it, as far as they are literals."""
    if not isinstance(value, ast.Call):
        return {"default": _literal(value)}
    found = {str(word.arg): _literal(word.value) for word in value.keywords}
    known = ("help", "symbol", "unit", "option", "shown", "metavar")
    default = _literal(value.args[0]) if value.args else found.get("default")
    return {"default": default, **{name: found[name] for name in known if found.get(name)}}


def _literal(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _with_inherited(declared: Declared, known: dict[str, Declared]) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for base in reversed(declared.bases):
        if base in known:
            found |= _with_inherited(known[base], known)
    return found | declared.fields


def _ancestors(cls: str, known: dict[str, Declared]) -> Iterator[str]:
    for base in known[cls].bases if cls in known else ():
        yield base
        yield from _ancestors(base, known)
