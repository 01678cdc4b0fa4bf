"""The documentation's blocks of Python run, page by page, and print what the page says."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

from fedepm_fast.kernels._jit import JIT_DISABLED

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("**/*.md"))

#: A block, whether it is only compiled because it needs what tests have not, and what it prints.
BLOCK = re.compile(
    r"(?P<only><!-- only compiled: [^\n]+ -->\n)?```python\n(?P<code>.*?)```\n"
    r"(?:\n```text\n(?P<said>.*?)```)?",
    re.S,
)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")],
    ids=lambda page: str(page.relative_to(ROOT / "docs")),
)
def test_a_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("code"))
        code = compile("\n" * line + block["code"], str(page), "exec")
        if block["only"] or JIT_DISABLED:  # kernels as plain Python take minutes
            continue
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(code, names)
        same = doctest.OutputChecker().check_output(
            block["said"] or "", said.getvalue(), doctest.ELLIPSIS
        )
        assert same, f"{page}, line {line}, prints:\n{said.getvalue()}"
