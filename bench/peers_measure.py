"""What a row of the table of peers is, and how its medians are measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

Work = Callable[[], Any]


@dataclass
class Row:
    """A measured ratio and what it should be."""

    kernel: str
    peer: str
    ratio: float
    goal: str
    beyond: str = ""
    note: str = ""
    met: bool = field(init=False)

    def __post_init__(self) -> None:
        sign, bound = self.goal.split()
        self.met = self.ratio <= float(bound) if sign == "<=" else self.ratio >= float(bound)


#: A part of the table: measures its rows, and yields each as it has it.
Part = Callable[[], Iterator[Row]]


def medians(works: list[Work], seconds: float = 1.5, least: int = 7) -> list[float]:
    """Median seconds of each piece of work, the pieces taking turns."""
    for work in works:
        work()
    times: list[list[float]] = [[] for _ in works]
    end = time.perf_counter() + seconds
    while len(times[0]) < least or (time.perf_counter() < end and len(times[0]) < 400):
        for record, work in zip(times, works, strict=True):
            start = time.perf_counter()
            work()
            record.append(time.perf_counter() - start)
    return [median(record) for record in times]


def often(work: Work, times: int) -> Work:
    """`work` repeated, where one call is too short to time."""

    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated
