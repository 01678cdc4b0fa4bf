"""What the README and the documentation show is run, in order, with what they have installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedepm_fast.kernels._jit import JIT_DISABLED

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "```" in page.read_text(encoding="utf-8")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page(page, tmp_path):
    # Kernels as plain Python take minutes.
    options = ["--compile-only"] * JIT_DISABLED
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "pages.py", page, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
