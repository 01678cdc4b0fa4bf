"""Progress of what takes long."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

Tell = Callable[[int, int, int], Any]


class Counting:
    """Counts runs, and tells a function of ``(done, total, failed)``.

    Parameters
    ----------
    done, total : int
        Runs that there are already, and in all.
    tell : callable, optional
    """

    def __init__(self, done: int, total: int, tell: Tell | None = None) -> None:
        self.done, self.total, self.failed = done, total, 0
        self.tell = tell

    def update(self, errors: Iterable[str | None], others: int = 0) -> None:
        """Take note of runs that are stored: why each failed, or None; and of how many `others`
        another program has stored."""
        for error in errors:
            self.done += 1
            self.failed += error is not None
        self.done += others
        if self.tell is not None:
            self.tell(self.done, self.total, self.failed)


@contextmanager
def bars(shown: bool = True, *, transient: bool = False) -> Iterator[Callable[..., None] | None]:
    """Progress bars on standard error, to call with what is under way, how much of it is done, of
    how much, and how much of that failed; None unless `shown`."""
    if not shown:
        yield None
        return
    from rich import progress
    from rich.console import Console

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Any:
            speed = task.finished_speed or task.speed
            return "" if speed is None else f"{speed:.3g} {task.description}/s"

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        Rate(),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
        progress.TextColumn("{task.fields[failed]}"),
    )
    console = Console(stderr=True)
    with progress.Progress(*columns, console=console, transient=transient) as drawn:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int, failed: int = 0) -> None:
            if what not in tasks:
                tasks[what] = drawn.add_task(what, total=total, completed=done, failed="")
            text = f"{failed} failed" if failed else ""
            drawn.update(tasks[what], completed=done, failed=text)

        yield show


@contextmanager
def counting(
    progress: bool | str | Tell, done: int, total: int, what: str = "runs"
) -> Iterator[Counting]:
    """What to tell of the progress: a bar on standard error, or lines where that is no terminal,
    after a sentence if one is given; or a callable."""
    if callable(progress):
        yield Counting(done, total, progress)
        return
    if isinstance(progress, str):
        print(progress, file=sys.stderr, flush=True)
        progress = True
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be a bool or a callable, got {progress!r}")
    with bars(progress and sys.stderr.isatty()) as show:
        tell: Tell | None = _Lines(done, what) if progress else None
        if show is not None:
            tell = functools.partial(show, what)
            tell(done, total, 0)
        yield Counting(done, total, tell)


class _Lines:
    """Lines on standard error, in a file say: how far it is and how much is left, each after twice
    the time of the one before, so that there are few of them."""

    FIRST = 10.0

    def __init__(self, before: int, what: str) -> None:
        self._before, self._what, self._began = before, what, perf_counter()
        self._next = self.FIRST

    def __call__(self, done: int, total: int, failed: int) -> None:
        seconds = perf_counter() - self._began
        if seconds < self._next or not self._before < done < total:
            return
        self._next = 2 * seconds
        left = seconds * (total - done) / (done - self._before)
        told = f", {failed} failed" if failed else ""
        print(
            f"{done} of {total} {self._what} after {duration(seconds)}{told}; "
            f"about {duration(left)} left",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"
