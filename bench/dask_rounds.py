"""Rounds whose clients live on Dask workers, beside one process: seconds and bytes a round.

    python bench/dask_rounds.py [--clients 200] [--rows 2000] [--features 100] [--workers 1 2]

Clients' rows are made where they are. Bytes are of the pickled messages of all workers.
"""

from __future__ import annotations

import argparse
import pickle
from typing import Any

import dask
import distributed
import numpy as np

from fedepm_fast import FedEPM, FederatedData, run
from fedepm_fast.dask import Clients, _worker
from fedepm_fast.dask import run as run_there

#: Clients of a piece.
TOGETHER = 10


def piece(first: int, count: int, rows: int, features: int) -> FederatedData:
    """Some of the clients."""
    made = []
    for i in range(first, first + count):
        rng = np.random.default_rng(i)
        a = rng.standard_normal((rows, features)) / np.sqrt(features)
        made.append((a, (a.sum(axis=1) + rng.logistic(size=rows) > 0).astype(float)))
    return FederatedData.from_clients(made)


def bytes_of_a_round(m: int, n: int, m0: int) -> tuple[int, int]:
    """Sent to clients, and by them, of one worker."""
    chosen, none = np.empty((m0, n)), np.empty((0, m0, n))
    message = _worker.Message(
        0, np.empty(n), np.empty((0, n)), np.arange(m0), chosen, chosen.copy(), none, True
    )
    reply = _worker.Reply(
        np.empty(m), np.empty((m, n)), True, chosen, chosen.copy(), none, np.empty(m0),
        np.empty(m0), (0.0, 0.0),
    )  # fmt: skip
    return len(pickle.dumps(message)), len(pickle.dumps(reply))


def timed(work: Any, rounds: int) -> tuple[Any, float]:
    """A run, and seconds of a round, without those before the first."""
    few = work(0).total_time
    found = work(rounds)
    return found, (found.total_time - few) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    m, n, algorithm = given.clients, given.features, FedEPM(noise="laplace", mu0=100.0)
    options: dict[str, Any] = {"seed": 1, "every_accuracy": False}
    size = m * given.rows * n * 8 / 2**20
    print(f"{m} clients of {given.rows} x {n}, {size:.0f} MiB, FedEPM, half of them a round")
    down, up = bytes_of_a_round(m, n, m // 2)
    print(f"a round: {down / 2**10:.0f} KiB to the clients, {up / 2**10:.0f} KiB from them")
    whole = piece(0, m, given.rows, n)
    expected, seconds = timed(lambda k: run(algorithm, whole, rounds=k, **options), given.rounds)
    print(f"{'one process':12} {1e3 * seconds:8.2f} ms a round")
    for count in given.workers:
        with distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
            one = dask.delayed(piece)
            made = [one(i, TOGETHER, given.rows, n) for i in range(0, m, TOGETHER)]
            clients = Clients(made, client)
            found, seconds = timed(
                lambda k, c=clients: run_there(algorithm, c, rounds=k, **options), given.rounds
            )
            same = np.array_equal(found.x, expected.x) and np.array_equal(found.W, expected.W)
            print(f"{count} workers    {1e3 * seconds:8.2f} ms a round, the same bits: {same}")


if __name__ == "__main__":
    main()
