"""What the README and the documentation show is run, in order, with what they have installed."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from commands import fedepm

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


def test_the_page_of_the_commands_has_all_that_help_says(capsys):
    """The documentation builds it of the application: every command, option, default, sentence."""
    page = runpy.run_path(str(ROOT / "docs" / "_ext" / "commands.py"))
    assert page["PLACE"] in (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    sections = re.split(r"^##+ fedepm ", page["markdown"](), flags=re.MULTILINE)[1:]
    found = {section.partition("\n")[0]: " ".join(section.split()) for section in sections}
    assert {"run", "compare", "sweep", "tune", "runs", "runs prune", "paper", "warmup"} < {*found}
    for command, text in found.items():
        code, out, _ = fedepm(capsys, *command.split(), "--help")
        assert code == 0
        words = re.sub(r"[\\`:]", "", text).split()
        said = (
            out.partition("\n\n")[2]
            .partition("\nCommands:")[0]
            .replace("-h, --help", "")
            .replace(":", "")
            .split()
        )
        left_out = {*said} - {*words} - {"Show", "this", "message", "and", "exit.", "Options"}
        assert not left_out - {"Arguments"}, (command, left_out)
