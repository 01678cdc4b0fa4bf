"""Threads of this process: how many it may use, and a pool of them that nothing waits for."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ThreadPool:
    """Threads of this process.

    They are daemons, unlike those of `concurrent.futures`: after Ctrl-C nothing waits for a
    run that takes minutes.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        for _ in range(jobs):
            Thread(target=self._work, name="fedepm-pool", daemon=True).start()

    def _work(self) -> None:
        while (given := self.tasks.get()) is not None:
            future, task = given
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)

    def submit(self, task: Callable[[], Any]) -> Future[Any]:
        """Start a task, as soon as a thread is free."""
        future: Future[Any] = Future()
        self.tasks.put((future, task))
        return future

    def close(self) -> None:
        """End the threads that are idle, and the others after their tasks."""
        for _ in range(self.jobs):
            self.tasks.put(None)
