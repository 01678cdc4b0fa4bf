"""Parameters as source files declare them, read without importing what the files import.

A command knows its options, and completes them, before anything heavy is loaded. What a user's
own code has registered is there already, and described by its class.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from .parameters import METADATA, Parameter, parameters

_PACKAGE = Path(__file__).parents[1]
_ROOT = __package__.rpartition(".")[0]

#: Where the classes of each kind are, the base that they share, and the registry of its module.
KINDS = {
    "algorithm": ("algorithms", "Algorithm", "ALGORITHMS"),
    "objective": ("losses", "Objective", "OBJECTIVES"),
    "mechanism": ("mechanisms", "Mechanism", "MECHANISMS"),
    "stopping": ("stopping.py", "StoppingRule", "RULES"),
    "partition": ("data/partition.py", "Partitioner", "PARTITIONERS"),
}

#: The classes whose fields are parameters of data and of runs.
_SINGLE = {
    "the data": (("data/sources.py", "Synthetic"), ("data/sources.py", "Reading")),
    "the run": (("sweeps/_cells.py", "Cell"), ("sweeps/_cells.py", "Run")),
}


@dataclass
class Declared:
    """A class of a source file: its bases, its fields, and what it is registered as."""

    bases: list[str]
    name: str | None = None
    fields: dict[str, Parameter] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    """Fields of bases that are no parameters of it."""


def of_kind(kind: str) -> dict[str, dict[str, Parameter]]:
    """The parameters of everything of a kind, by the name that it is registered under."""
    folder, base, registry = KINDS[kind]
    known = _classes(folder)
    found = {
        declared.name: _with_inherited(declared, known)
        for cls, declared in known.items()
        if declared.name and base in _ancestors(cls, known)
    }
    things = _registered(folder.removesuffix(".py").replace("/", "."), registry)
    return found | {name: parameters(things[name]) for name in things if name not in found}


def of_class(path: str, cls: str) -> dict[str, Parameter]:
    """The parameters of one class of a file or folder."""
    known = _classes(path)
    return _with_inherited(known[cls], known)


def datasets() -> list[str]:
    """The names of the built-in datasets, and of a user's own that are registered."""
    files = (_PACKAGE / "datasets").glob("[!_]*.py")
    found = sorted(file.stem for file in files) or ["adult"]
    return list(dict.fromkeys((*found, *_registered("data", "DATASETS"))))


def _registered(module: str, registry: str) -> Mapping[str, Any]:
    """A registry of a module of the package, empty while that is not loaded."""
    return getattr(sys.modules.get(f"{_ROOT}.{module}"), registry, {})


def check_own_fields(cls: type, kind: str) -> None:
    """Refuse a class of a user's own with a field that is a parameter of something else.

    Options, specifications and spaces have one name for each parameter of a run.

    Raises
    ------
    ValueError
        Naming the class, the field, and what has a parameter of that name.
    """
    if cls.__module__.startswith(f"{_ROOT}."):
        return
    own, others = _names(kind)
    for name, annotation in inspect.get_annotations(cls).items():
        given = vars(cls).get(name)
        if "ClassVar" in str(annotation):
            continue
        described = getattr(given, "metadata", {}).get(METADATA, {})
        option = described.get("option") or name
        # Records tell a loss's parameters from a mechanism's, of which only options must differ.
        pair = {kind, others.get(name, "").removeprefix("the ")} == {"objective", "mechanism"}
        for word in (option,) if pair else (name, option):
            if word in others and word not in own:
                raise ValueError(
                    f"{cls.__name__} must not have a field {name!r}: "
                    f"{word} is a parameter of {others[word]}"
                )


@cache
def _names(kind: str) -> tuple[set[str], dict[str, str]]:
    """Names of the parameters of a kind's built-in things, and of others by what has them."""
    own: set[str] = set()
    others: dict[str, str] = {}
    for of, places in _SINGLE.items():
        for place in places:
            others |= {parameter.option: of for parameter in of_class(*place).values()}
    for other, (folder, base, _) in KINDS.items():
        if other == "stopping":
            continue  # which has no options
        known = _classes(folder)
        for cls, declared in known.items():
            if cls == base or (declared.name and base in _ancestors(cls, known)):
                names = [of.option for of in _with_inherited(known[cls], known).values()]
                if other == kind:
                    own.update(names)
                else:
                    of = "the data" if other == "partition" else f"the {other}"
                    others |= dict.fromkeys(names, of)
    return own, others


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
            if _is_fixed(line.value):
                made.fixed.add(name)
            elif not kind.startswith("ClassVar"):
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


def _is_fixed(value: ast.expr | None) -> bool:
    """Whether a field is made with ``init=False``, so that nobody can set it."""
    words = value.keywords if isinstance(value, ast.Call) else []
    return any(word.arg == "init" and _literal(word.value) is False for word in words)


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
    inherited = {name: of for name, of in found.items() if name not in declared.fixed}
    return inherited | declared.fields


def _ancestors(cls: str, known: dict[str, Declared]) -> Iterator[str]:
    for base in known[cls].bases if cls in known else ():
        yield base
        yield from _ancestors(base, known)
