"""Dealing the runs of a sweep into tasks."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence

from ..store._record import Item, Outcome


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
        self.target = target
        self.workers = workers
        self.again_alone: deque[Item] = deque()
        self.seconds: dict[int, float] = {}

    def move(self) -> None:
        """Go on anywhere in what is left: away from a program that does the same runs."""
        self.left.rotate(random.SystemRandom().randrange(len(self.left) or 1))

    def next(self) -> list[Item]:
        """The next task; empty when there is none left."""
        task: list[Item] = []
        predicted, share = 0.0, max(1, len(self.left) // (2 * self.workers))
        if self.again_alone:
            return [self.again_alone.popleft()]
        while self.left and len(task) < share and predicted < self.target:
            task.append(self.left.popleft())
            known = self.seconds.get(task[-1][1])
            predicted += self.target if known is None else known
        return task

    def again(self, task: Sequence[Item]) -> None:
        """Put the runs of a task back, each to be the next task of its own."""
        self.again_alone.extend(task)

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Take note of how long runs took."""
        for outcome in outcomes:
            known = self.seconds.get(outcome.cell, outcome.seconds)
            self.seconds[outcome.cell] = known + 0.2 * (outcome.seconds - known)
