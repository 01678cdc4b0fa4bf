"""What importing promises: one copy of the kernels, light imports, hints for extras."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fedepm_fast
from fedepm_fast import _extras

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


def test_every_public_name_exists():
    for name in fedepm_fast.__all__:
        assert getattr(fedepm_fast, name) is not None
        assert name in dir(fedepm_fast)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        fedepm_fast.nothing  # noqa: B018


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
