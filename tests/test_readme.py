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


def test_the_tutorials_tables_are_what_their_script_makes(tmp_path):
    runpy.run_path(str(ROOT / "scripts" / "make_hospitals.py"))["main"](tmp_path)
    made = sorted(tmp_path.iterdir())
    assert [path.name for path in made] == ["2023.csv", "2024.csv"]
    for path in made:
        assert path.read_bytes() == (ROOT / "docs" / "hospitals" / path.name).read_bytes()


def test_every_image_has_one_for_dark_pages():
    folder = ROOT / "docs" / "images"
    names = {path.stem for path in folder.glob("*.png")}
    assert {name for name in names if f"{name}-dark" not in names and "-dark" not in name} == set()
    for page in (*PAGES, ROOT / "bench" / "README.md"):
        for name in re.findall(r"!\[[^]]*\]\(([^):]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / name).is_file(), (page, name)


def test_the_peers_figure_is_drawn_of_the_pages_table(tmp_path):
    peers = runpy.run_path(str(ROOT / "bench" / "peers.py"))
    page = ROOT / "bench" / "README.md"
    rows = peers["read"](page)
    # All of the table but the row that stands for several ratios; verdicts follow from the goals.
    told = re.findall(r"\| (met|missed) \|", page.read_text(encoding="utf-8"))
    assert ["met" if row.met else "missed" for row in rows] == told[:-1]
    assert next(r for r in rows if r.peer == "np.median, times faster").ratio == 22.05
    pytest.importorskip("matplotlib")
    peers["draw"](rows, tmp_path / "peers.svg")
    assert (tmp_path / "peers.svg").stat().st_size > 10_000
