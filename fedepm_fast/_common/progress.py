"""Progress of what takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
    progress: bool | Tell, done: int, total: int, what: str = "runs"
) -> Iterator[Counting]:
    """What to tell of the progress: a bar, if standard error is a terminal, or a callable."""
    if callable(progress):
        yield Counting(done, total, progress)
        return
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be a bool or a callable, got {progress!r}")
    with bars(progress and sys.stderr.isatty()) as show:
        tell = None if show is None else lambda *counts: show(what, *counts)
        if tell is not None:
            tell(done, total, 0)
        yield Counting(done, total, tell)
