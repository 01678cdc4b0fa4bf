"""Progress of sweeps and tunings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any, Protocol


class Finished(Protocol):
    """What has been done: a run, a trial."""

    @property
    def error(self) -> str | None:
        """Why it failed, or None."""


class Counting(AbstractContextManager["Counting"]):
    """Counts runs, and tells a function of ``(done, total, failed)``.

    Parameters
    ----------
    done, total : int
        Runs that there are already, and in all.
    tell : callable, optional
    """

    def __init__(self, done: int, total: int, tell: Callable[[int, int, int], Any] | None = None):
        self.done, self.total, self.failed = done, total, 0
        self.tell = tell

    def __exit__(self, *exc: Any) -> None:
        pass

    def others(self, count: int) -> None:
        """Take note of runs that another program has stored."""
        self.done += count
        self.update(())

    def update(self, outcomes: Sequence[Finished]) -> None:
        """Take note of runs that are stored."""
        self.failed += sum(outcome.error is not None for outcome in outcomes)
        self.done += len(outcomes)
        if self.tell is not None:
            self.tell(self.done, self.total, self.failed)


class Bar(Counting):
    """A bar on standard error: runs done, runs a second, time left."""

    def __init__(self, done: int, total: int, what: str = "runs") -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        super().__init__(done, total)
        self.first, self.what = done, what
        self.bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[failed]}"),
            console=Console(stderr=True),
            refresh_per_second=4,
        )
        self.task = self.bar.add_task("", total=total, completed=done, rate="", failed="")

    def __enter__(self) -> Bar:
        self.bar.start()
        self.began = monotonic()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.bar.stop()

    def others(self, count: int) -> None:
        self.first += count  # they are not this program's rate
        super().others(count)

    def update(self, outcomes: Sequence[Finished]) -> None:
        super().update(outcomes)
        rate = (self.done - self.first) / max(monotonic() - self.began, 1e-3)
        self.bar.update(
            self.task,
            completed=self.done,
            rate=f"{rate:.3g} {self.what}/s",
            failed=f"{self.failed} failed" if self.failed else "",
        )


def as_progress(
    progress: bool | Callable[[int, int, int], Any], done: int, total: int, what: str = "runs"
) -> Counting:
    """What to tell of the progress: a bar, if standard error is a terminal, or a callable."""
    if callable(progress):
        return Counting(done, total, progress)
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be a bool or a callable, got {progress!r}")
    return Bar(done, total, what) if progress and sys.stderr.isatty() else Counting(done, total)
