"""Whole runs: the compiled engine beside the NumPy reference, and a round beside `A.sum()`.

Every run has its own shuffle, split and packing of Adult, m = 100 clients, k0 = 12. Both engines
do the same runs in one process, one after the other; each ratio is the median over batches of
runs. Runs differ in length, and threads that are given few wait for the longest: they are given
the batch's again and again, 8 runs a thread at least. Then FedEPM runs of a sweep, into a store on
the disk, and how much of the processor's time is spent outside of compiled code.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS=1 python bench/runs.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from time import perf_counter, process_time
from typing import Any

from fedepm_fast import FedEPM, SFedAvg, SFedProx, Sweep, datasets, run, sweep
from fedepm_fast.algorithms import Algorithm
from fedepm_fast.kernels.engine._trial import Trial

CLIENTS = 100
#: Runs that a thread is given at once, at least.
A_THREAD = 8


def one(algorithm: Algorithm, seed: int, engine: str) -> int:
    """One run from scratch: its rounds."""
    data = datasets.adult(clients=CLIENTS, seed=seed)
    return run(algorithm, data, seed=seed, engine=engine, every_accuracy=False).rounds


def seconds(algorithm: Algorithm, seeds: Sequence[int], engine: str, threads: int) -> float:
    """Time of these runs, shared between threads."""
    began = perf_counter()
    if threads == 1:
        for seed in seeds:
            one(algorithm, seed, engine)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda seed: one(algorithm, seed, engine), seeds))
    return perf_counter() - began


def measure(algorithm: Algorithm, runs: int, batch: int, threads: tuple[int, ...]) -> dict:
    """Batches of the same runs by both engines, in turn: medians of ratios and of rates."""
    one(algorithm, 0, "compiled")
    ratios: dict[int, list[float]] = {count: [] for count in threads}
    rates: dict[int, list[float]] = {count: [] for count in threads}
    for first in range(1, runs + 1, batch):
        seeds = list(range(first, first + batch))
        slow = seconds(algorithm, seeds, "reference", 1)
        for count in threads:
            # The reference does not have to do all of what threads share.
            repeated = -(-A_THREAD * count // batch) if count > 1 else 1
            fast = seconds(algorithm, seeds * repeated, "compiled", count)
            ratios[count].append(slow * repeated / fast)
            rates[count].append(batch * repeated / fast)
    return {
        count: {"ratio": statistics.median(ratios[count]), "rate": statistics.median(rates[count])}
        for count in threads
    }


def round_to_sum(repeats: int = 15) -> float:
    """A FedEPM round within a run, to `A.sum()` of the same matrix, on one thread."""
    data = datasets.adult(clients=CLIENTS, seed=0)
    features = data.features
    algorithm, rounds = FedEPM(), 200
    ratios = []
    for _ in range(repeats):
        elapsed = run(algorithm, data, rounds=rounds, every_accuracy=False).history["elapsed"]
        began = perf_counter()
        for _ in range(50):
            features.sum()
        ratios.append((elapsed[-1] - elapsed[0]) / rounds / ((perf_counter() - began) / 50))
    return statistics.median(ratios[1:])


class Compiled:
    """Processor time in the compiled code of a sweep's runs, of all threads."""

    def __init__(self) -> None:
        self.seconds, self._lock = 0.0, Lock()
        whole: Any = Trial.__call__

        def call(*arguments: Any) -> Any:
            began = perf_counter()
            found = whole(*arguments)
            with self._lock:
                self.seconds += perf_counter() - began
            return found

        Trial.__call__ = call  # type: ignore[method-assign]


def sweeps(trials: int, threads: tuple[int, ...]) -> dict:
    """By threads: milliseconds of a FedEPM run of a sweep, share outside of compiled code."""
    swept(2, 1)
    found = {}
    for count in threads:
        began = perf_counter()
        swept(trials, count)
        found[count] = {"ms": 1e3 * (perf_counter() - began) / trials}
    compiled = Compiled()
    for count in threads:
        compiled.seconds, before = 0.0, process_time()
        swept(max(1, trials // 4), count)
        found[count]["python"] = 1 - compiled.seconds / (process_time() - before)
    return found


def swept(trials: int, jobs: int) -> None:
    """A sweep of FedEPM into a store on the disk."""
    spec = Sweep(FedEPM(), clients=CLIENTS, trials=trials)
    with TemporaryDirectory() as folder:
        sweep(spec, store=Path(folder) / "runs.sqlite", jobs=jobs, progress=False).store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--trials", type=int, default=1000, help="of the sweep")
    parser.add_argument(
        "--only", choices=("round", "fedepm", "sfedavg", "sfedprox", "sweep"), action="append",
        help="parts, all by default",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    threads = (1, 2) if (os.cpu_count() or 1) > 1 else (1,)
    parts = arguments.only or ("round", "fedepm", "sfedavg", "sfedprox", "sweep")
    found: dict[str, Any] = {}
    if "round" in parts:
        found["round / A.sum()"] = round_to_sum()
    for algorithm, batch in ((FedEPM(), 10), (SFedAvg(), 2), (SFedProx(), 2)):
        if algorithm.name in parts:
            found[algorithm.name] = measure(algorithm, arguments.runs, batch, threads)
    if "sweep" in parts:
        found["sweep"] = sweeps(arguments.trials, threads)
    if arguments.json:
        print(json.dumps(found))
        return
    if "round" in parts:
        print(f"one FedEPM round in a run / A.sum(): {found.pop('round / A.sum()'):.2f}")
    swept = found.pop("sweep", {})
    if found:
        heads = (f"{f'x reference, {n} thread(s)':>28}{'runs/s':>9}" for n in threads)
        print(f"{'':10}" + "".join(heads))
    for name, values in found.items():
        row = "".join(f"{v['ratio']:>28.1f}{v['rate']:>9.1f}" for v in values.values())
        print(f"{name:10}{row}")
    for count, v in swept.items():
        print(
            f"sweep, {count} thread(s): {v['ms']:.2f} ms a FedEPM run, "
            f"{10 * v['ms']:.1f} s for 10,000; {v['python']:.0%} outside of compiled code"
        )


if __name__ == "__main__":
    main()
