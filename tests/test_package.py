"""What importing promises: one copy of the kernels, light imports, hints for extras."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedepm_fast
from fedepm_fast._common import extras as _extras

ROOT = Path(__file__).parents[1]


def python(code: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_kernels_import_from_the_clone_without_a_second_copy():
    assert python("import fedepm_fast.kernels").returncode == 0
    second = python("import kernels")
    assert second.returncode == 1
    assert "the kernels are imported as 'fedepm_fast.kernels'" in second.stderr


def test_import_is_light():
    heavy = ("scipy", "numba", "rich", "typer", "pandas", "matplotlib", "numpy")
    code = f"import sys, fedepm_fast; print([m for m in {heavy!r} if m in sys.modules])"
    assert python(code).stdout.strip() == "[]"
    code = (
        "import sys, fedepm_fast.kernels; "
        "print([m for m in ('scipy', 'rich', 'pandas') if m in sys.modules])"
    )
    assert python(code).stdout.strip() == "[]"


def test_what_runs_is_imported_without_the_kernels():
    code = "import sys; from fedepm_fast import FedEPM, run; print('numba' in sys.modules)"
    assert python(code).stdout == "False\n"


def test_every_public_name_exists():
    for name in fedepm_fast.__all__:
        assert getattr(fedepm_fast, name) is not None
    assert dir(fedepm_fast) == sorted(fedepm_fast.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        fedepm_fast.nothing  # noqa: B018


def modules(*, optional=True):
    """Every public module, as the documentation lists them."""
    listed = re.findall(
        r"^   (fedepm_fast\.[\w.]+)$", (ROOT / "docs" / "api" / "index.md").read_text(), re.M
    )
    assert len(listed) > 40
    extras = () if optional else ("flower", "torch")
    return [name for name in listed if name.rpartition(".")[2] not in extras]


def public(module):
    """Names that a module defines, or says that it offers."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return sorted(names)


@pytest.mark.parametrize("name", ["FedEpm", "FEDAVG", "Scaffold_", "SCAFFOLD", "logistic"])
def test_no_other_spelling_is_a_public_name(name):
    for module in (fedepm_fast, fedepm_fast.algorithms):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(module, name)


@pytest.mark.parametrize("name", ["fedepm_fast.objectives", "fedepm_fast.privacy"])
def test_what_is_public_has_a_page_of_the_api(name):
    """Pages of these modules have what names itself theirs, and not what they export besides."""
    index = (ROOT / "docs" / "api" / "index.md").read_text()
    pages = re.findall(r"(?m)^   (fedepm_fast[\w.]*)$", index)
    near = (name, "fedepm_fast.losses", "fedepm_fast.mechanisms")
    others = [page for page in pages if page.startswith(near) and page != name]
    exported = (getattr(importlib.import_module(page), "__all__", ()) for page in others)
    listed = {public for names in exported for public in names}
    for public, found in vars(importlib.import_module(name)).items():
        if public[0] != "_" and (inspect.isclass(found) or inspect.isfunction(found)):
            assert found.__module__ in pages or public in listed, public


def test_type_checkers_see_every_public_name(tmp_path):
    api = pytest.importorskip("mypy.api")
    lines = ["from fedepm_fast import FedEPM, datasets, run"]
    for k, name in enumerate(["fedepm_fast", *modules(optional=False)]):
        found = public(importlib.import_module(name))
        lines += [f"from {name} import {n} as _{k}_{i}" for i, n in enumerate(found)]
    lines += ["reveal_type(run(FedEPM(), datasets.adult(clients=50, seed=0)).x)"]
    (tmp_path / "client.py").write_text("\n".join(lines) + "\n")
    # Of libraries that no public name is of, reading the types takes twice as long as all else.
    others = ("dask", "distributed", "matplotlib", "numba", "optuna", "rich", "sqlalchemy")
    skipped = ",".join(f"{name}.*" for name in others)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\n[mypy-{skipped}]\nfollow_imports = skip\n")
    out, err, _ = api.run(
        ["--strict", f"--config-file={tmp_path / 'mypy.ini'}", f"--cache-dir={tmp_path}",
         "--ignore-missing-imports", "--follow-imports=silent", str(tmp_path / "client.py")]
    )  # fmt: skip
    assert not err and "error" not in out, out
    assert 'Revealed type is "numpy.ndarray' in out


@pytest.mark.parametrize("name", modules(optional=False))
def test_docstrings_name_exactly_the_parameters(name):
    docscrape = pytest.importorskip("numpydoc.docscrape")
    module = importlib.import_module(name)
    for told, thing in documented(module):
        doc = docscrape.NumpyDocString(inspect.getdoc(thing))
        expected = [p for p in inspect.signature(thing).parameters if p not in ("self", "cls")]
        section = "Parameters"
        if not doc[section] and dataclasses.is_dataclass(thing):
            section = "Attributes"  # of a result, which nobody makes
        elif not doc[section] and told not in fedepm_fast.__all__:
            continue
        found = [n.strip(" *") for p in doc[section] for n in (p.name or p.type).split(",")]
        assert sorted(found) == sorted(expected), f"{section} of {name}.{told}"


def documented(module):
    """Public classes and functions that a module defines, and the classes' public methods."""
    for name, thing in vars(module).items():
        if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
            continue
        inside = vars(thing).items() if inspect.isclass(thing) else ()
        methods = [(n, getattr(m, "__func__", m)) for n, m in inside if not n.startswith("_")]
        for told, what in [(name, thing), *((f"{name}.{n}", m) for n, m in methods)]:
            if (inspect.isclass(what) or inspect.isfunction(what)) and inspect.getdoc(what):
                if inspect.isclass(what) and issubclass(what, BaseException):
                    continue
                yield told, what


def test_a_missing_extra_is_one_line():
    with pytest.raises(ImportError) as caught:
        _extras.require("no_such_library.part", "plots", "Result.plot")
    assert str(caught.value) == (
        "Result.plot needs no_such_library: pip install 'fedepm-fast[plots]'"
    )


def test_estimators_without_scikit_learn_are_one_line():
    done = python("import sys; sys.modules['sklearn'] = None; import fedepm_fast.sklearn")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        "ImportError: fedepm_fast.sklearn needs sklearn: pip install 'fedepm-fast[sklearn]'"
    )


def test_a_broken_library_is_not_mistaken_for_a_missing_one(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        _extras.require("broken_library", "plots", "Result.plot")
