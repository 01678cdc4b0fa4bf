"""Standard output and standard error, whose reader may go and whose disk may be full."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any


class Output:
    """A stream of which a command need not ask whether somebody still reads it.

    When its reader has gone, as in ``fedepm runs list | head``, the rest goes nowhere, and the
    command does what else it does. Another error is raised once, with the stream's `name`; without
    a name there is none.
    """

    def __init__(self, stream: Any, name: str | None) -> None:
        self._stream = stream
        self._name = name

    def write(self, text: str) -> int:
        with self._losing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._losing():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What the stream still holds would be tried again, at the latest when Python ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            if self._name is not None and not isinstance(error, BrokenPipeError):
                error.filename = self._name
                raise


@contextmanager
def guarded_output() -> Iterator[None]:
    """A block in which what is printed goes through `Output`; what is lost at its end is lost."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # of a process without the stream
        out = Output(sys.stdout or nowhere, "standard output")
        err = Output(sys.stderr or nowhere, None)
        with redirect_stdout(out), redirect_stderr(err):  # type: ignore[type-var]
            try:
                yield
            finally:
                err.flush()
                with suppress(OSError):
                    out.flush()
