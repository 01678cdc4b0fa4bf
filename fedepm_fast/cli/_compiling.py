"""What commands say while kernels are compiled, which happens once."""

from __future__ import annotations

import sys
from functools import cache
from time import perf_counter
from typing import Any

_TOLD = "compiling kernels, the first time only"
_NOW = "compiling kernels (first time only)"
#: Kernels that a first ``fedepm run`` compiles, as many as most people ever wait for.
USUAL = 11
#: What kernels of a module are for.
_FOR = {
    "_loop": "loop over rounds",
    "accuracy": "accuracy",
    "algorithms": "an algorithm's steps",
    "data": "tables",
    "engine": "steps of each round",
    "ens": "ENS",
    "gradient_steps": "gradient steps",
    "local_steps": "local steps",
    "losses": "losses, gradients",
    "noise": "noise",
    "philox": "random numbers",
    "preparation": "tables",
    "prox": "soft thresholds",
    "sampling": "random orders",
    "vecmath": "elementary functions",
}
_CLEAR = "\r\x1b[2K"


@cache
def announce_compilation() -> None:
    """Say so on standard error, once in a process, when kernels have to be compiled.

    On a terminal it is a line of the kernel that is compiled and how many there were, which goes
    away again; elsewhere it is one line, without further news.
    """
    from ..kernels import on_compile, watch_compilation

    if sys.stderr.isatty():
        watch_compilation(LINE)
    else:
        on_compile(lambda kernel: print(_TOLD, "...", file=sys.stderr, flush=True))


class _Line:
    """A line on a terminal, told module and name of what is compiled, and None when it is done.

    While something else moves about on the terminal the line is not written to it. What can show
    the words in itself sets `shown`; for others they are said once.
    """

    def __init__(self) -> None:
        self.words = ""  #: What is compiled now, as markup; empty when nothing is.
        self.shown = False
        self._said = self._written = False
        self._count = 0
        self._began = 0.0
        self._console: Any = None

    def __call__(self, kernel: str | None) -> None:
        if kernel is None:
            self.words = ""
            if self._written:
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()
            self._written = False
            return
        from rich.console import Console
        from rich.file_proxy import FileProxy

        if self._console is None:
            self._console = Console(stderr=True, highlight=False)
            self._began = perf_counter()
        self._count += 1
        self.words = self._words(kernel)
        if self.shown:
            return
        if not isinstance(sys.stderr, FileProxy):
            self._console.print(self.words, end="", overflow="ellipsis", no_wrap=True)
            self._written = True
        elif not self._said:
            print(_TOLD, "...", file=sys.stderr, flush=True)
            self._said = True

    def _words(self, kernel: str) -> str:
        counted = f"{self._count} of about {USUAL}" if self._count <= USUAL else f"{self._count}"
        path = kernel.removeprefix("fedepm_fast.").removeprefix("kernels.")
        name = _FOR.get(path.partition(".")[0], path.rpartition(".")[2].strip("_"))
        seconds = perf_counter() - self._began
        return f"{_NOW}: {counted}, {seconds:.0f} s: [bold]{name}[/bold]"


LINE = _Line()
