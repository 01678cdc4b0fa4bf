"""ENS of an array that no worker could hold: seconds and peak memory, beside one process.

    python bench/dask_ens.py [--gigabytes 2] [--clients 500] [--workers 2]

Each worker is a process of a `LocalCluster` with one thread and a memory limit of a quarter of the
array. Numbers are in a file, in blocks of clients; they are read each time (`file`), made anew each
time (`made`), or persisted, which spills what does not fit (`persist`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np

from fedepm_fast.dask import ens
from fedepm_fast.kernels.ens import ens as solve
from fedepm_fast.kernels.ens_blocks import ens_blocks

COLUMNS = 40_000


def made(rows: tuple[int, int], columns: tuple[int, int]) -> Any:
    """A block of heavy-tailed numbers."""
    rng = np.random.default_rng([*rows, *columns])
    shape = rows[1] - rows[0], columns[1] - columns[0]
    return rng.standard_normal(shape) / (0.3 + rng.random(shape))


def read(path: str, rows: tuple[int, int], columns: tuple[int, int]) -> Any:
    """A block of the file, copied."""
    return np.array(np.load(path, mmap_mode="r")[slice(*rows), slice(*columns)])


def array_of(block: Any, m: int, n: int, height: int, width: int, *first: Any) -> Any:
    """The array of blocks that a function of rows and columns gives."""
    rows = [(i, min(i + height, m)) for i in range(0, m, height)]
    columns = [(j, min(j + width, n)) for j in range(0, n, width)]
    one = dask.delayed(block)

    def of(r: tuple[int, int], k: tuple[int, int]) -> Any:
        return da.from_delayed(one(*first, r, k), (r[1] - r[0], k[1] - k[0]), np.float64)

    return da.block([[of(r, k) for k in columns] for r in rows])


def peak() -> int:
    """The most memory that this process has had, in bytes, since `forget`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def forget() -> int:
    """Begin to measure; the memory of now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def warm() -> float:
    """Compile, or load, what a worker calls."""
    z = da.from_array(np.ones((4, 64)), chunks=(2, 64))
    return float(ens(z, 1.0).compute(scheduler="synchronous")[0])


def report(name: str, seconds: float, memory: list[tuple[int, int]], limit: float | None) -> None:
    before, most = (
        ", ".join(f"{x / 2**20:.0f}" for x in found) for found in zip(*memory, strict=True)
    )
    limited = "" if limit is None else f" of {limit / 2**20:.0f}"
    print(f"{name:34} {seconds:7.2f} s   peak {most}{limited} MiB (at first {before})", flush=True)


def alone(name: str, work: Any) -> Any:
    """Time it in this process."""
    before, began = forget(), time.perf_counter()
    found = work()
    report(name, time.perf_counter() - began, [(before, peak())], None)
    return found


def alone_with(path: str, c: float, height: int) -> Any:
    """One process that has all of it in memory, and one that reads it block by block."""
    whole = [np.load(path)]
    solve(whole[0][:, :64], c)
    expected = alone("one process, ens, in memory", lambda: solve(whole.pop(), c))
    passes = 0

    def blocks() -> Any:
        nonlocal passes
        passes += 1
        z = np.load(path, mmap_mode="r")
        return (np.array(z[i : i + height]) for i in range(0, len(z), height))

    alone("one process, ens_blocks, of the file", lambda: ens_blocks(blocks, c))
    print(f"{'':10} in {passes} passes")
    return expected


def on_workers(count: int, mode: str, limit: float, shape: Any, path: str, c: float) -> Any:
    """`count` processes of so much memory."""
    with distributed.LocalCluster(
        n_workers=count, threads_per_worker=1, memory_limit=int(limit),
        dashboard_address="127.0.0.1:0", silence_logs=50,
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        client.run(warm)
        Z = array_of(made, *shape) if mode == "made" else array_of(read, *shape, path)
        before, began = client.run(forget), time.perf_counter()
        if mode == "persist":
            Z = Z.persist()
            distributed.wait(Z)
            print(f"{'':10} persisted in {time.perf_counter() - began:.2f} s")
            began = time.perf_counter()
        found = ens(Z, c).compute()
        seconds, most = time.perf_counter() - began, client.run(peak)
        assert set(most) == set(before), "a worker was restarted"
        report(f"{count} workers, {mode}", seconds, [(before[k], most[k]) for k in before], limit)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--rows", type=int, default=50, help="clients of a block")
    parser.add_argument("-c", type=float, default=0.5)
    parser.add_argument("--modes", nargs="+", default=["alone", "file", "persist"])
    parser.add_argument("--folder", help="where the file is, or will be and stay")
    given = parser.parse_args()
    m = given.clients
    n = int(given.gigabytes * 1e9 / 8 / m)
    size, shape = 8 * m * n, (m, n, given.rows, COLUMNS)
    print(f"{m} x {n:,} float64, {size / 2**20:.0f} MiB, blocks of {given.rows} x {COLUMNS:,}")
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(given.folder or temporary, f"{m}x{n}.npy")
        if not path.exists():
            z = np.lib.format.open_memmap(path, "w+", np.float64, (m, n))
            for i in range(0, m, given.rows):
                for j in range(0, n, COLUMNS):
                    rows, columns = (i, min(i + given.rows, m)), (j, min(j + COLUMNS, n))
                    z[slice(*rows), slice(*columns)] = made(rows, columns)
            del z
        dask.config.set({"temporary-directory": temporary, "distributed.admin.tick.limit": "1h"})
        warm()
        expected = None
        if "alone" in given.modes:
            expected = alone_with(str(path), given.c, given.rows)
        for workers in given.workers:
            for mode in set(given.modes) - {"alone"}:
                found = on_workers(workers, mode, size / 4, shape, str(path), given.c)
                if expected is not None:
                    error = np.abs(found - expected) / np.maximum(1e-3, np.abs(expected))
                    print(f"{'':10} largest relative difference {error.max():.1e}")


if __name__ == "__main__":
    main()
