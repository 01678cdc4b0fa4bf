"""A page's blocks, run in order as a reader would: ``python pages.py PAGE`` in an empty folder.

Python has one namespace a page and must print what the ``text`` block below says; TOML and Python
whose first line names a file are written to it, for later blocks; of console blocks the ``fedepm``
commands run, and files of the repository are copied (``cp``). What an extra brings cannot be
imported until the page has said to install it.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from packaging.requirements import Requirement

#: ``<!-- only compiled: why -->`` or ``<!-- needs: module -->`` above a block, its language, what
#: it says, and what it prints.
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>only compiled|needs): (?P<what>[^\n]+) -->\n)?"
    r"```(?P<language>python|console|toml)\n(?P<code>.*?)```\n(?:\n```text\n(?P<said>.*?)```)?",
    re.S,
)
ROOT = Path(__file__).parents[1]
COPY = re.compile(r"^cp (\S+) \.$", re.M)
FILE = re.compile(r"# (\S+\.(?:toml|py))\n")
INSTALL = re.compile(r"pip install '\.\[([\w,]+)\]'")

#: Extras whose libraries no page uses; some look for others that are loaded.
FOR_DEVELOPERS = {"test", "docs", "dev", "bench", "all"}

#: Numbers that take too long for a test, and smaller ones.
SMALLER = {
    "trials = 100": "trials = 1",
    "trials=60": "trials=3",
    "--trials 60": "--trials 2",
    "clients = [50, 100]": "clients = [50]",
    "local_steps = [4, 8, 12, 16, 20]": "local_steps = [4, 20]",
}


class Installed(PathFinder):
    """Finds modules as Python does, but those that are taken not to be installed."""

    hidden: ClassVar[set[str]] = set()

    @classmethod
    def find_spec(cls, fullname: str, *where: Any) -> ModuleSpec | None:
        return None if fullname.split(".")[0] in cls.hidden else super().find_spec(fullname, *where)


packages_distributions = cache(metadata.packages_distributions)


def brought(extras: list[str]) -> set[str]:
    """The modules that this package brings with the `extras`, dependencies of theirs included."""
    found: set[tuple[str, frozenset[str]]] = set()
    todo = [("fedepm-fast", frozenset(extras))]
    while todo:
        name, wanted = todo.pop()
        if (name, wanted) in found:
            continue
        found.add((name, wanted))
        with contextlib.suppress(metadata.PackageNotFoundError):
            for line in metadata.requires(name) or ():
                needed = Requirement(line)
                with_extras = [{"extra": extra} for extra in (*wanted, "")]
                if needed.marker is None or any(map(needed.marker.evaluate, with_extras)):
                    todo.append((needed.name.lower(), frozenset(needed.extras)))
    names = {re.sub("[-_.]+", "-", name) for name, _ in found}
    return {
        module
        for module, owners in packages_distributions().items()
        if any(re.sub("[-_.]+", "-", owner).lower() in names for owner in owners)
    }


@contextlib.contextmanager
def told(block: re.Match[str], page: str, line: int) -> Iterator[None]:
    """What is printed within must be what the page says."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        yield
    expected = block["said"]
    if block["language"] != "python" or (expected is None and page == "README.md"):
        return  # the README shows no output, and commands tell times
    same = doctest.OutputChecker().check_output(expected or "", said.getvalue(), doctest.ELLIPSIS)
    assert same, f"{page}, line {line}, prints:\n{said.getvalue()}"


def copy_files(code: str) -> None:
    """The files of the repository that a console block copies here, as from a clone's folder."""
    for pattern in COPY.findall(code):
        found = sorted(ROOT.glob(pattern))
        assert found, pattern
        for path in found:
            shutil.copy(path, ".")


def commands(code: str) -> Iterator[list[str]]:
    """The arguments of the ``fedepm`` commands of a console block."""
    for line in code.replace("\\\n", " ").splitlines():
        for part in line.partition("#")[0].split("&&"):
            words = shlex.split(part)
            if words[:1] == ["fedepm"]:
                yield words[1:]


def run_page(path: Path, *, compile_only: bool) -> None:
    """Run the page in the current folder."""
    text = path.read_text(encoding="utf-8")
    extras = metadata.metadata("fedepm-fast").get_all("Provides-Extra") or []
    extras = [extra for extra in extras if extra not in FOR_DEVELOPERS]
    hidden = brought(extras) - brought([]) - {"fedepm_fast"}
    sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
    sys.path.insert(0, "")  # modules of the page's own
    names = {"__name__": "page"}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("code"))
        code = block["code"]
        for large, small in SMALLER.items():
            code = code.replace(large, small)
        installed = [e for m in INSTALL.finditer(text, 0, block.end()) for e in m[1].split(",")]
        Installed.hidden = hidden - brought(installed)
        skip = compile_only or block["mark"] == "only compiled"
        skip = skip or (block["mark"] == "needs" and find_spec(block["what"]) is None)
        if name := FILE.match(code):
            Path(name[1]).write_text(code)
        if block["language"] == "python" and not name:
            # Lines are those of the page.
            compiled = compile("\n" * line + code, str(path), "exec")
            if not skip:
                with told(block, path.name, line):
                    exec(compiled, names)
        elif block["language"] == "console" and not skip:
            from fedepm_fast import cli

            copy_files(code)
            for arguments in commands(code):
                with told(block, path.name, line):
                    try:
                        cli.main(arguments)
                    except SystemExit as ended:
                        assert not ended.code, f"{path.name}, line {line}: {arguments}"


if __name__ == "__main__":
    warnings.simplefilter("error")
    # What typer 0.20, which Flower asks for, takes from click.
    of_click = "'click.utils.*will be removed in Click"
    warnings.filterwarnings("ignore", of_click, DeprecationWarning, "typer")
    run_page(Path(sys.argv[1]), compile_only="--compile-only" in sys.argv)
