"""Driving a sweep: runs dealt into tasks, and what comes of them into the store, as they finish."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic

from .._common.progress import Counting
from ..store import Store
from ._backends import Backend
from ._execute import Done, Item, record_of

#: How often a run is tried whose worker dies.
ATTEMPTS = 3

#: Seconds that runs under way are waited for after Ctrl-C.
GRACE = 1.0


class Plan:
    """Consecutive runs in tasks of about `target` seconds, by what runs of their cells took.

    A cell that has not been seen yet ends a task, so the first tasks are short and teach how
    long the others may be. Near the end tasks get shorter, so that all workers end together.

    Parameters
    ----------
    items : sequence of items
        In the order in which to execute them: those that share a split side by side.
    target : float
        Seconds.
    workers : int
    """

    def __init__(self, items: Iterable[Item], target: float, workers: int) -> None:
        self.left = deque(items)
        self.target, self.workers = target, workers
        self.alone: deque[Item] = deque()  # each the next task of its own
        self.seconds: dict[int, float] = {}

    def move(self) -> None:
        """Go on anywhere in what is left: away from a program that does the same runs."""
        self.left.rotate(random.SystemRandom().randrange(len(self.left) or 1))

    def next(self) -> list[Item]:
        """The next task; empty when there is none left."""
        if self.alone:
            return [self.alone.popleft()]
        task: list[Item] = []
        predicted, share = 0.0, max(1, len(self.left) // (2 * self.workers))
        while self.left and len(task) < share and predicted < self.target:
            task.append(self.left.popleft())
            predicted += self.seconds.get(task[-1][1], self.target)
        return task

    def learn(self, cell: int, seconds: float) -> None:
        """Take note of how long a run took."""
        known = self.seconds.get(cell, seconds)
        self.seconds[cell] = known + 0.2 * (seconds - known)


class Driver:
    """Executes items on a backend and stores what comes of them.

    Parameters
    ----------
    items : iterable of items
        In the order of a `Plan`.
    backend : Backend
    store : Store
    shown : Counting
        Told of the runs as they are stored, by this program or another.
    """

    def __init__(
        self, items: Iterable[Item], backend: Backend, store: Store, shown: Counting
    ) -> None:
        self.plan = Plan(items, backend.target, backend.jobs)
        self.backend, self.store, self.shown = backend, store, shown
        self.running: dict[Future[list[Done]], Sequence[Item]] = {}
        self.finished: SimpleQueue[Future[list[Done]]] = SimpleQueue()
        self.lost: Counter[str] = Counter()
        self.losses = 0  # tasks whose workers died
        self.fruitful = False  # whether any task came back
        self.unsaved: list[Done] = []

    def drive(self) -> None:
        """Execute all; on an interrupt keep what has finished, and let it pass on."""
        try:
            while self._submit():
                for future in self._wait():
                    self._collect(future)
                self._save()
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):  # a second one ends the waiting
                self._wind_up()
            raise
        finally:
            self._save()

    def _submit(self) -> bool:
        while len(self.running) < self._slots() and (task := self._next()):
            future = self.backend.submit(task)
            self.running[future] = task
            future.add_done_callback(self.finished.put)
        return bool(self.running)

    def _slots(self) -> int:
        """Tasks at a time: one, where it may take others along, for each that a worker died of."""
        under_way = (item[0] for task in self.running.values() for item in task)
        suspected = self.plan.alone or any(map(self.lost.__contains__, under_way))
        return 1 if suspected and self.backend.die_together else self.backend.slots

    def _next(self) -> list[Item]:
        """The next task, without what another program has done by now; empty at the end."""
        while task := self.plan.next():
            done = self.store.done([item[0] for item in task])
            if not done:
                break
            # That program is at work here: go on elsewhere.
            self.shown.update((), others=len(done))
            self.plan.move()
            if task := [item for item in task if item[0] not in done]:
                break
        return task

    def _wait(self) -> Iterator[Future[list[Done]]]:
        """What has finished, at least one."""
        while True:
            try:
                yield self.finished.get(timeout=1.0)
                break
            except Empty:
                self.backend.check()
        with suppress(Empty):
            while True:
                yield self.finished.get_nowait()

    def _collect(self, future: Future[list[Done]]) -> None:
        task = self.running.pop(future)
        try:
            found = future.result()
        except (Exception, CancelledError) as error:
            self._worker_lost(task, error)
            return
        self.fruitful = True
        self.unsaved += found
        for done in found:
            self.plan.learn(done.cell, done.seconds)

    def _worker_lost(self, task: Sequence[Item], error: BaseException) -> None:
        """Runs whose worker died are tried again, one by one; the cause of it fails in the end."""
        self.backend.check()
        self.losses += 1
        if not self.fruitful and self.losses > ATTEMPTS * self.backend.slots:
            raise RuntimeError(f"no worker gets anything done: {type(error).__name__}: {error}")
        text = f"the worker was lost {ATTEMPTS} times: {type(error).__name__}: {error}"
        for item in task:
            run_id, cell, *_ = item
            self.lost[run_id] += 1
            if self.lost[run_id] < ATTEMPTS:
                self.plan.alone.append(item)
                continue
            record = record_of(self.backend.cells[cell], item, error=text, machine="", versions={})
            self.unsaved.append(Done(cell, record, 0.0))

    def _save(self) -> None:
        if not self.unsaved:
            return
        records = [done.record for done in self.unsaved]
        if self.store.done([record.run_id for record in records]):
            self.plan.move()  # in step with another program, which was faster
        self.store.add(records)
        self.unsaved = []
        self.shown.update(record.error for record in records)

    def _wind_up(self) -> None:
        """Take in what is about to finish."""
        self.backend.stop()
        deadline = monotonic() + GRACE
        while self.running and (left := deadline - monotonic()) > 0:
            try:
                future = self.finished.get(timeout=left)
            except Empty:
                break
            del self.running[future]
            with suppress(Exception, CancelledError):
                self.unsaved += future.result()
