"""What a round of FedEPM takes with the logistic loss built in, and with it as a `ScalarLoss`.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS=1 python bench/own_losses.py

Adult, 100 clients, 12 local steps. Medians of interleaved runs of many rounds in one process.
"""

from __future__ import annotations

import math
import statistics
from time import perf_counter, process_time

from scipy import sparse

from fedepm_fast import FedEPM, FederatedData, ScalarLoss, datasets, run

ROUNDS, REPEATS = 200, 15


def value(t: float, y: float) -> float:
    s = (1 - 2 * y) * t
    return max(s, 0.0) + math.log1p(math.exp(-abs(s)))


def gradient(t: float, y: float) -> float:
    sign = 1 - 2 * y
    return sign / (1 + math.exp(-sign * t))


def branching_value(t: float, y: float) -> float:
    s = (1 - 2 * y) * t
    return s + math.log1p(math.exp(-s)) if s > 0 else math.log1p(math.exp(s))


def branching_gradient(t: float, y: float) -> float:
    sign = 1 - 2 * y
    e = math.exp(-abs(t))
    return sign / (1 + e) if sign * t > 0 else sign * e / (1 + e)


OBJECTIVES = {
    "built in": "logistic",
    "own": ScalarLoss(value=value, gradient=gradient, task="classification"),
    "own, with branches": ScalarLoss(
        value=branching_value, gradient=branching_gradient, task="classification"
    ),
}

dense = datasets.adult(clients=100, seed=0)
rows = sparse.csr_array(dense.features)
csr = FederatedData(rows, dense.labels, dense.client_sizes)
for layout, data in (("dense", dense), ("CSR", csr)):
    seconds: dict[str, list[float]] = {name: [] for name in OBJECTIVES}
    for repeat in range(REPEATS + 1):
        for name, objective in OBJECTIVES.items():
            began, cpu = perf_counter(), process_time()
            run(FedEPM(), data, objective=objective, rounds=ROUNDS, every_accuracy=False)
            if repeat:
                seconds[name].append(perf_counter() - began)
            else:
                print(f"{layout}, {name}: first run {process_time() - cpu:.1f} s of CPU")
    built_in = statistics.median(seconds["built in"])
    for name, found in seconds.items():
        median = statistics.median(found)
        print(f"{layout}, {name}: {1e6 * median / ROUNDS:.0f} us a round, {median / built_in:.2f}")
