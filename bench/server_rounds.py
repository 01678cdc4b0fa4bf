"""Seconds that rounds of a server with a folder take, against the number of clients.

    python bench/server_rounds.py [--clients 1000000] [--features 50] [--rounds 3] [--sync]

What a federation has to do beside waiting for its clients: every client joins, half of them are
selected and send, the round ends on the disk; the folder is read back. With ``--sync`` joins wait
for the disk, one by one, as they do by default; a system's own time for that comes with it.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from fedepm_fast import FedEPM
from fedepm_fast.federation.server import Server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--path", type=Path, help="folder to work in")
    given = parser.parse_args()
    m, n = given.clients, given.features
    rows = np.random.default_rng(0).normal(size=(1000, n))
    with tempfile.TemporaryDirectory(dir=given.path) as folder:
        print(f"{m} clients x {n} features; one wait for the disk: {wait(Path(folder)):.1f} ms")

        def server() -> Server:
            return Server(FedEPM(), m, n, path=Path(folder) / "state", sync=given.sync)

        print("   clock    processor")
        clock = Clock()
        with server() as one:
            clock("made")
            for i in range(m):
                assert one.join(i, rows[i % 1000])
            clock("joins")
            for _ in range(given.rounds):
                _ = one.x
                clock("aggregation")
                tau, _, chosen = one.open_round()
                opened = clock("open_round beside it")
                for i in chosen.tolist():
                    assert one.receive(tau, i, rows[(i + tau) % 1000])
                received = clock(f"{len(chosen)} receives")
                one.close_round()
                total = opened + received + clock("close_round")
                print("{:8.2f} s {:8.2f} s  a round beside the aggregation".format(*total))
        with server():
            clock("read back")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


class Clock:
    """Prints the seconds since the last time, and those of the processor."""

    def __init__(self) -> None:
        self.before = time.perf_counter(), time.process_time()

    def __call__(self, what: str) -> np.ndarray:
        now = time.perf_counter(), time.process_time()
        seconds, busy = (new - old for new, old in zip(now, self.before, strict=True))
        print(f"{seconds:8.2f} s {busy:8.2f} s  {what}", flush=True)
        self.before = now
        return np.array([seconds, busy])


def wait(folder: Path) -> float:
    """Milliseconds of an fsync after 4 KiB."""
    with (folder / "probe").open("wb") as file:
        start = time.perf_counter()
        for _ in range(20):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file)
        return (time.perf_counter() - start) / 20 * 1e3


if __name__ == "__main__":
    main()
