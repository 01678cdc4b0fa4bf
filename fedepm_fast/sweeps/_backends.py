"""Where the tasks of a sweep are executed: threads, processes, a Dask or a Ray cluster.

Every backend takes tasks and gives futures; which one it is changes no result.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Event, Thread
from time import sleep
from typing import Any

from .. import __version__
from .._common.extras import require
from .._common.threads import ThreadPool, cpus
from .._common.validation import check_choice, check_int
from ._cells import Cell
from ._execute import Done, Task, execute_elsewhere, execute_task, install

Futures = Future[list[Done]]


class Backend:
    """What every backend has.

    Parameters
    ----------
    cells : sequence of Cell
        What the runs of the tasks refer to.
    keep_x : bool
        Keep the points of the histories.
    jobs : int, optional
        Workers at a time.
    """

    #: Seconds that a task should take: what starting one costs is small beside it.
    target = 0.5

    #: Whether all tasks under way are lost with one worker.
    die_together = False

    def __init__(self, cells: Sequence[Cell], keep_x: bool, jobs: int | None) -> None:
        self.cells, self.keep_x = cells, keep_x
        self.jobs = cpus() if jobs is None else check_int("jobs", jobs, low=1)

    @property
    def slots(self) -> int:
        """Tasks to have submitted at a time, enough to keep all workers busy."""
        return 2 * self.jobs

    def submit(self, task: Task) -> Futures:
        """Start a task."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise RuntimeError if there is nothing left that could do the tasks."""

    def stop(self) -> None:
        """Begin no further run."""

    def close(self) -> None:
        """Let go of the workers."""
        raise NotImplementedError


class Threads(Backend):
    """Threads of this process."""

    target = 0.1

    def __init__(self, cells: Sequence[Cell], keep_x: bool, jobs: int | None) -> None:
        super().__init__(cells, keep_x, jobs)
        self.stopped = Event()
        self.pool = ThreadPool(self.jobs)

    def submit(self, task: Task) -> Futures:
        return self.pool.submit(lambda: execute_task(self.cells, task, self.keep_x, self.stopped))

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.stop()
        self.pool.close()


class Processes(Backend):
    """Processes of this machine, by joblib's loky: no ``__main__`` guard is needed.

    Not by `joblib.Parallel`, which with one job works in this process, where a run that kills it
    takes the sweep along.
    """

    die_together = True

    def __init__(self, cells: Sequence[Cell], keep_x: bool, jobs: int | None) -> None:
        super().__init__(cells, keep_x, jobs)
        self.loky = require("joblib.externals.loky", "sweeps", "the backend 'processes'")
        self._start()

    def _start(self) -> None:
        one = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
        self.executor = self.loky.ProcessPoolExecutor(
            self.jobs, initializer=_start_worker, initargs=(self.cells, os.getpid()), env=one
        )

    def submit(self, task: Task) -> Futures:
        for _ in range(2):
            try:
                return self.executor.submit(execute_elsewhere, None, __version__, task, self.keep_x)
            except self.loky.process_executor.BrokenProcessPool:  # a worker died: start anew
                self.close()
                self._start()
        raise RuntimeError("worker processes do not start")

    def close(self) -> None:
        self.executor.shutdown(wait=True, kill_workers=True)


def _start_worker(cells: Sequence[Cell], parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the sweep's to answer
    install(cells)
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process once its parent has: after ``kill -9`` nobody else would."""
    while os.getppid() == parent:
        sleep(0.5)
    os._exit(1)


class Dask(Backend):
    """A Dask cluster; a worker that dies has its tasks done by others."""

    def __init__(
        self, cells: Sequence[Cell], keep_x: bool, jobs: int | None, address: Any = None
    ) -> None:
        distributed: Any = require("distributed", "dask", "the backend 'dask'")
        # A cluster of our own has its dashboard at any free port, not at one that may be taken.
        own = {"dashboard_address": "127.0.0.1:0"} if address is None else {}
        self.ours = not isinstance(address, distributed.Client)
        self.client = distributed.Client(address, timeout=10, **own) if self.ours else address
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        super().__init__(cells, keep_x, jobs or sum(w["nthreads"] for w in workers) or 1)
        self.executor = self.client.get_executor(pure=False, retries=3)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            # The result of a task: made again where its worker dies, brought to those that join.
            self.shipped = self.client.submit(_itself, cells, pure=False)

    def submit(self, task: Task) -> Futures:
        return self.executor.submit(execute_elsewhere, self.shipped, __version__, task, self.keep_x)

    def check(self) -> None:
        if self.client.status != "running":
            raise RuntimeError("the connection to the Dask scheduler is lost")

    def close(self) -> None:
        if self.client.status == "running":
            self.executor.shutdown(wait=False)
            self.shipped.release()
        if self.ours:
            self.client.close()


def _itself(cells: Sequence[Cell]) -> Sequence[Cell]:
    return cells


class Ray(Backend):
    """A Ray cluster: the one this process is connected to, the one at `address`, or a local
    one."""

    def __init__(
        self, cells: Sequence[Cell], keep_x: bool, jobs: int | None, address: Any = None
    ) -> None:
        ray: Any = require("ray", "ray", "the backend 'ray'")
        self.ours = not ray.is_initialized()
        if self.ours:
            ray.init(address, log_to_driver=False, include_dashboard=False, logging_level="error")
        super().__init__(cells, keep_x, jobs or int(ray.cluster_resources().get("CPU", 1)))
        self.ray = ray
        self.shipped = ray.put(cells)
        self.work = ray.remote(num_cpus=1, max_retries=3)(execute_elsewhere)

    def submit(self, task: Task) -> Futures:
        return self.work.remote(self.shipped, __version__, task, self.keep_x).future()

    def close(self) -> None:
        if self.ours:
            self.ray.shutdown()


BACKENDS: dict[str, Callable[..., Backend]] = {
    "threads": Threads,
    "processes": Processes,
    "dask": Dask,
    "ray": Ray,
}


def make_backend(
    backend: Any, cells: Sequence[Cell], *, keep_x: bool, jobs: int | None, address: Any
) -> Backend:
    """The backend of that name, started."""
    make = BACKENDS[check_choice("backend", backend, BACKENDS)]
    if make in (Dask, Ray):
        return make(cells, keep_x, jobs, address)
    if address is not None:
        raise ValueError(f"address is for the backends 'dask' and 'ray', got {address!r}")
    return make(cells, keep_x, jobs)
