"""Whole runs: the compiled engine beside the NumPy reference, and a round beside `A.sum()`.

Every run has its own shuffle, split and packing of Adult, m = 100 clients, k0 = 12. Both engines
do the same runs in one process, one after the other; each ratio is the median over the runs.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS=1 python bench/runs.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from fedepm_fast import FedEPM, SFedAvg, SFedProx, datasets, run
from fedepm_fast.algorithms import Algorithm

CLIENTS = 100


def one(algorithm: Algorithm, seed: int, engine: str) -> int:
    """One run from scratch: its rounds."""
    data = datasets.adult(clients=CLIENTS, seed=seed)
    return run(algorithm, data, seed=seed, engine=engine, every_accuracy=False).rounds


def seconds(algorithm: Algorithm, seeds: range, engine: str, threads: int) -> float:
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
        seeds = range(first, first + batch)
        slow = seconds(algorithm, seeds, "reference", 1)
        for count in threads:
            # Threads need enough work to share; the reference does not have to do all of it.
            repeated = max(1, 4 * count // batch) if count > 1 else 1
            fast = sum(seconds(algorithm, seeds, "compiled", count) for _ in range(repeated))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    threads = (1, 2) if (os.cpu_count() or 1) > 1 else (1,)
    found = {"round / A.sum()": round_to_sum()}
    for algorithm, batch in ((FedEPM(), 10), (SFedAvg(), 2), (SFedProx(), 2)):
        found[algorithm.name] = measure(algorithm, arguments.runs, batch, threads)
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"one FedEPM round in a run / A.sum(): {found.pop('round / A.sum()'):.2f}")
    print(
        f"{'':10}" + "".join(f"{f'x reference, {n} thread(s)':>28}{'runs/s':>9}" for n in threads)
    )
    for name, values in found.items():
        row = "".join(f"{v['ratio']:>28.1f}{v['rate']:>9.1f}" for v in values.values())
        print(f"{name:10}{row}")


if __name__ == "__main__":
    main()
