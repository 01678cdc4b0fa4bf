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


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    return runpy.run_path(str(ROOT / "bench" / "peers.py"))


def test_the_peers_figure_is_drawn_of_the_pages_table(peers, tmp_path):
    page = ROOT / "bench" / "README.md"
    rows = peers["read"](page, "Zen 5")
    assert next(r for r in rows if r.peer == "np.median, times faster").ratio == 22.05
    pytest.importorskip("matplotlib")
    peers["draw"](rows, tmp_path / "peers.svg")
    assert (tmp_path / "peers.svg").stat().st_size > 10_000


def test_peers_are_merged_into_a_column_of_the_table(peers, tmp_path):
    page, source = tmp_path / "page.md", ROOT / "bench" / "README.md"
    page.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    rows = peers["read"](page, "Zen 5")
    peers["merge"](page, "Zen 5", rows)
    assert page.read_text(encoding="utf-8") == source.read_text(encoding="utf-8")  # bold is missed
    slower = peers["Row"]("ens 100 x 14", "np.mean(axis=0)", 0.7, "<= 0.6", "0.4")
    new = peers["Row"]("another", "its peer", 2, ">= 1", "", "as told")
    peers["merge"](page, "Zen 6", [slower, new], notes=False)
    assert "| **0.70** |" in page.read_text(encoding="utf-8")
    assert peers["read"](page, "Zen 6") == [slower, new]
    assert peers["read"](page, "Zen 5") == rows


def test_a_part_of_the_peers_that_fails_leaves_the_others(peers, capsys):
    row = peers["Row"]("one", "other", 0.5, "<= 1")

    def fails():
        yield row
        raise ZeroDivisionError("of this part")

    failed = {}
    assert peers["measure"]({"first": fails, "second": lambda: iter([row])}, failed) == [row, row]
    assert [*failed] == ["first"] and "ZeroDivisionError: of this part" in failed["first"]
