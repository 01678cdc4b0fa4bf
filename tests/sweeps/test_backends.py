"""Where the runs of a sweep are done, workers that die, and how runs are dealt."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_sweeps import SMALL, small_sweep, timeless

from fedepm_fast import FedEPM, SFedAvg, Store, Sweep, grid, sweep
from fedepm_fast.data import sources
from fedepm_fast.randomness import split_seed
from fedepm_fast.sweeps import _backends, _execute
from fedepm_fast.sweeps._drive import Plan

# Backends -----------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_backend_and_jobs_change_nothing(expected, backend, jobs):
    assert timeless(sweep(small_sweep(), backend=backend, jobs=jobs)) == expected


#: Dask's dashboard at any free port: without an address it is at one that may be taken.
ANY_PORT = "127.0.0.1:0"


def test_a_dask_cluster_changes_nothing(expected):
    import distributed

    with distributed.Client(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=ANY_PORT
    ) as client:
        assert timeless(sweep(small_sweep(), backend="dask", address=client)) == expected
        for _ in range(5000):  # the scheduler forgets a moment later
            if not any(client.has_what().values()):
                break
            time.sleep(0.02)
        assert not any(client.has_what().values())  # the workers are left as they were


def test_a_dask_cluster_of_our_own_needs_no_port(expected):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody else has it
            taken.bind(("", 8787))
            taken.listen()
        assert timeless(sweep(small_sweep(), backend="dask")) == expected


def test_a_dask_worker_that_dies_changes_nothing():
    import distributed

    made = small_sweep(trials=60)
    want = timeless(sweep(made))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=ANY_PORT
    ) as cluster:
        first = next(iter(cluster.workers.values()))
        killed = []

        def kill(done, total, failed):
            if done >= 40 and not killed:
                killed.append(done)
                os.kill(first.pid, signal.SIGKILL)

        result = sweep(made, backend="dask", address=cluster.scheduler_address, progress=kill)
    assert killed and killed[0] < len(made)
    assert timeless(result) == want


# Workers that die ---------------------------------------------------------------------


class Mortal(sources.Synthetic):
    """Data whose making kills the process, the first time or always."""

    def split(self, seed):
        if seed == split_seed(0, 2) and (self.always or not os.path.exists(self.marker)):
            open(self.marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().split(seed)


@pytest.mark.parametrize("always", [False, True])
def test_runs_of_a_process_that_dies_are_done_by_others(expected, tmp_path, always):
    source = Mortal(**{k: v for k, v in dataclasses.asdict(SMALL).items() if k != "name"})
    object.__setattr__(source, "marker", str(tmp_path / "died"))
    object.__setattr__(source, "always", always)
    algorithms = [] if always else grid(FedEPM, local_steps=[2, 4])
    algorithms += [SFedAvg(local_steps=3)]
    result = sweep(Sweep(algorithms, source, trials=6, max_rounds=5), backend="processes", jobs=1)
    assert os.path.exists(tmp_path / "died")
    if not always:
        assert timeless(result) == expected
        return
    table = result.to_pandas()
    # Those that were under way beside it are not taken for the cause.
    assert set(table[table["error"].isna()]["trial"]) == {0, 1, 3, 4, 5}
    assert table[table["trial"] == 2]["error"].str.startswith("the worker was lost 3 times").all()


def test_a_lost_cluster_ends_the_sweep_and_keeps_what_finished(tmp_path, monkeypatch):
    class Lost(_backends.Threads):
        def check(self):
            raise RuntimeError("the cluster is gone")

        def submit(self, task):
            if len(self.cells) and any(trial >= 3 for *_, trial in task):
                future = ThreadPoolExecutor(1).submit(int, "x")
                return future
            return super().submit(task)

    monkeypatch.setitem(_backends.BACKENDS, "threads", Lost)
    with pytest.raises(RuntimeError, match="the cluster is gone"):
        sweep(small_sweep(), store=tmp_path / "a.sqlite", jobs=1)
    with Store(tmp_path / "a.sqlite") as store:
        assert store.table()["trial"] == sorted(store.table()["trial"])
        assert set(store.table()["trial"]) <= {0, 1, 2}


def test_workers_that_never_get_anything_done_end_the_sweep(monkeypatch):
    class Useless(_backends.Threads):
        def submit(self, task):
            return super().submit([("no such run",)])

    monkeypatch.setitem(_backends.BACKENDS, "threads", Useless)
    with pytest.raises(RuntimeError, match="no worker gets anything done: ValueError"):
        sweep(small_sweep(trials=100))


def test_workers_of_another_version_are_refused():
    with pytest.raises(RuntimeError, match=r"this worker has fedepm_fast .*, the sweep was star"):
        _execute.execute_elsewhere(None, "0.0.0", [])


# Plans --------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 3), max_size=200),
    st.lists(st.floats(1e-4, 3), min_size=4, max_size=4),
    st.integers(1, 4),
)
def test_a_plan_deals_every_run_once_in_tasks_of_about_the_target(cells, seconds, workers):
    items = [(str(i), cell, 0, i) for i, cell in enumerate(cells)]
    plan = Plan(items, 0.5, workers)
    dealt = []
    while task := plan.next():
        known = [plan.seconds.get(item[1]) for item in task]
        assert None not in known[:-1]  # a new cell ends a task
        assert sum(t for t in known[:-1] if t is not None) < 0.5
        dealt += task
        for _, cell, *_ in task:
            plan.learn(cell, seconds[cell])
    assert dealt == items


def test_lost_tasks_come_back_one_by_one():
    items = [(str(i), i % 2, 0, i) for i in range(40)]
    plan = Plan(items, 0.5, 1)
    for cell in (0, 1):
        plan.learn(cell, 1e-3)
    first = plan.next()
    assert len(first) > 3
    plan.alone.extend(first[:3])
    assert [plan.next() for _ in range(3)] == [[item] for item in first[:3]]
    assert plan.next()[0] == items[len(first)]
