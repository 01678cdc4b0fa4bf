"""Driving a sweep: tasks out, outcomes back, into the store, as they finish."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from ..store import Store
from ..store._record import MEASURES, Item, Outcome, Record
from ._backends import Backend
from ._cells import Cell
from ._plan import Plan

#: How often a run is tried whose worker dies.
ATTEMPTS = 3

#: Seconds that runs under way are waited for after Ctrl-C.
GRACE = 1.0


class Driver:
    """Executes a plan and stores what comes of it.

    Parameters
    ----------
    plan : Plan
    backend : Backend
    store : Store
    cells : sequence of Cell
    report : callable
        Told the outcomes whenever some have been stored.
    others : callable
        Told how many runs another program has stored meanwhile, which are not done again.
    """

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        store: Store,
        cells: Sequence[Cell],
        report: Callable[[Sequence[Outcome]], Any],
        others: Callable[[int], Any],
    ) -> None:
        self.plan, self.backend, self.store = plan, backend, store
        self.parameters = [cell.parameters for cell in cells]
        self.report, self.others = report, others
        self.running: dict[Future[list[Outcome]], Sequence[Item]] = {}
        self.finished: SimpleQueue[Future[list[Outcome]]] = SimpleQueue()
        self.lost: Counter[str] = Counter()
        self.losses = 0  # tasks whose workers died
        self.fruitful = False  # whether any task came back
        self.unsaved: list[Outcome] = []

    def drive(self) -> None:
        """Execute all; on an interrupt keep what has finished, and let it pass on."""
        try:
            while self._submit():
                self._collect(self._wait())
                self._save()
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):  # a second one ends the waiting
                self._wind_up()
            raise
        finally:
            self._save()

    def _submit(self) -> bool:
        while len(self.running) < self.backend.slots and (task := self._next()):
            future = self.backend.submit(task)
            self.running[future] = task
            future.add_done_callback(self.finished.put)
        return bool(self.running)

    def _next(self) -> list[Item]:
        """The next task, without what another program has done by now; empty at the end."""
        while task := self.plan.next():
            done = self.store.done([item[0] for item in task])
            if not done:
                break
            # That program is at work here: go on elsewhere.
            self.others(len(done))
            self.plan.move()
            if task := [item for item in task if item[0] not in done]:
                break
        return task

    def _wait(self) -> Iterator[Future[list[Outcome]]]:
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

    def _collect(self, futures: Iterator[Future[list[Outcome]]]) -> None:
        for future in futures:
            task = self.running.pop(future)
            try:
                found = future.result()
            except (Exception, CancelledError) as error:
                self.unsaved += self._worker_lost(task, error)
            else:
                self.unsaved += found
                self.plan.learn(found)
                self.fruitful = True

    def _worker_lost(self, task: Sequence[Item], error: BaseException) -> list[Outcome]:
        """Runs whose worker died are tried again, one by one; the cause of it fails in the end."""
        self.backend.check()
        self.losses += 1
        if not self.fruitful and self.losses > ATTEMPTS * self.backend.slots:
            raise RuntimeError(f"no worker gets anything done: {type(error).__name__}: {error}")
        self.lost.update(item[0] for item in task)
        self.plan.again([item for item in task if self.lost[item[0]] < ATTEMPTS])
        text = f"the worker was lost {ATTEMPTS} times: {type(error).__name__}: {error}"
        return [
            Outcome(*item, text, (), None, "{}", "", 0.0)
            for item in task
            if self.lost[item[0]] >= ATTEMPTS
        ]

    def _save(self) -> None:
        if not self.unsaved:
            return
        if self.store.done([o.run_id for o in self.unsaved]):
            self.plan.move()  # in step with another program, which was faster
        self.store.add(
            Record(
                run_id=o.run_id,
                parameters=self.parameters[o.cell],
                seed=o.seed,
                trial=o.trial,
                error=o.error,
                measures=dict(zip(MEASURES, o.measures, strict=True)) if o.measures else {},
                versions=json.loads(o.versions),
                machine=o.machine,
                packed=o.history,
            )
            for o in self.unsaved
        )
        saved, self.unsaved = self.unsaved, []
        self.report(saved)

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
