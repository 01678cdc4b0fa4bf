"""A round of every algorithm: compiled beside its own hooks in NumPy.

On Adult, m = 100 clients of which half take part, without noise, in one thread and in processor
time. Both engines do the same rounds in turn, and a ratio is the median over the turns; what a run
takes before its first round is left out.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/rounds.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import warnings
from time import process_time

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from fedepm_fast import DivergenceWarning, FederatedData, datasets, run  # noqa: E402
from fedepm_fast._common.parameters import parameters  # noqa: E402
from fedepm_fast.algorithms import ALGORITHMS, Algorithm  # noqa: E402

#: Beside the algorithms as they are by default.
FURTHER = {
    "fedavg, one epoch": {"local_steps": 1},
    "fedavg, batches of 64": {"batch_size": 64},
    "fedavg, batches of 10": {"batch_size": 10},
    "fedprox, batches of 64": {"batch_size": 64},
}


def cases() -> dict[str, Algorithm]:
    """What is measured, by what it is called."""
    named = {name: (name, {}) for name in ALGORITHMS}
    named |= {name: (name.partition(",")[0], options) for name, options in FURTHER.items()}
    found = {}
    for name, (algorithm, options) in named.items():
        cls = ALGORITHMS[algorithm]
        common = {"participation": 0.5}
        if "noise" in parameters(cls) and not cls.keeps_models:
            common["noise"] = "none"
        found[name] = cls(**common, **options)
    return found


def seconds(algorithm: Algorithm, data: FederatedData, rounds: int, engine: str) -> float:
    """Of a round, in processor time."""
    times = []
    for count in (0, rounds):
        began = process_time()
        run(algorithm, data, rounds=count, engine=engine, every_accuracy=False)
        times.append(process_time() - began)
    return max(times[1] - times[0], 1e-9) / rounds


def measure(algorithm: Algorithm, data: FederatedData, turns: int) -> dict[str, float]:
    """Milliseconds of a round by both, and the median of the ratios."""
    counts = {"compiled": 50, "reference": 4}
    for engine in counts:
        run(algorithm, data, rounds=1, engine=engine)
    found: dict[str, list[float]] = {engine: [] for engine in counts}
    for _ in range(turns):
        for engine, count in counts.items():
            found[engine].append(seconds(algorithm, data, count, engine))
    ratios = [slow / fast for fast, slow in zip(*found.values(), strict=True)]
    compiled, reference = (1e3 * statistics.median(times) for times in found.values())
    return {
        "compiled_ms": compiled, "numpy_ms": reference, "ratio": statistics.median(ratios),
        "rounds_per_second": 1e3 / compiled,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="names that begin so")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DivergenceWarning)
    data = datasets.adult(clients=100, seed=1)
    table = {}
    for name, algorithm in cases().items():
        if options.only and not name.startswith(tuple(options.only)):
            continue
        row = table[name] = measure(algorithm, data, options.turns)
        if not options.json:
            print(
                f"{algorithm.label + name.removeprefix(algorithm.name):30}"
                f"{row['compiled_ms']:9.3f} ms{row['numpy_ms']:10.2f} ms{row['ratio']:8.1f} times"
                f"{row['rounds_per_second']:10.0f} rounds/s",
                flush=True,
            )
    if options.json:
        print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
