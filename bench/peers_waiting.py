"""What a user waits for, and what the largest uploads take of the memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
from peers_measure import Part, Row

FIRST = "import time; t = time.perf_counter(); import numpy as np; n = time.perf_counter();"
IMPORT = f"{FIRST} import fedepm_fast.kernels.ens; print(time.perf_counter() - t)"
CALL = (
    f"{FIRST} from fedepm_fast.kernels.ens import ens; z = np.ones((100, 14)); "
    "t = time.perf_counter(); ens(z, 0.5); print(time.perf_counter() - t)"
)
#: Commands whose first use compiles, and the seconds of the processor that they may take.
COMMANDS = {
    "fedepm run": (["run", "--quiet"], 8),
    "fedepm compare": (["compare", "--quiet"], 15),
    "fedepm warmup": (["warmup"], 40),
}


def seconds(code: str, cache: str | None = None) -> float:
    """What a program in a process of its own says it took, with this cache or the usual one."""
    return float(_started(["-c", code], cache).stdout)


def _started(arguments: list[str], cache: str | None) -> subprocess.CompletedProcess[str]:
    chosen = {} if cache is None else {"NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env={**os.environ, **chosen}
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"status {done.returncode}")
    return done


def _first_commands() -> Iterator[Row]:
    for name, (arguments, most) in COMMANDS.items():
        with tempfile.TemporaryDirectory() as cache:
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            _started(["-m", "fedepm_fast", *arguments], cache)
            spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        yield Row(f"first {name}, empty cache", "seconds of the processor", spent, f"<= {most}")


def _imports() -> Iterator[Row]:
    seconds(CALL)  # compiled
    load = median(seconds(IMPORT) for _ in range(5))
    yield Row("import of fedepm_fast.kernels", "seconds", load, "<= 0.6", "", "with NumPy")
    call = median(seconds(CALL) for _ in range(5))
    yield Row("first ens call, warm cache", "seconds", call, "<= 0.6")


def memory_mapped(gib: float = 8.0) -> Iterator[Row]:
    """ENS of a file larger than the caches of anything, in blocks of rows."""
    from fedepm_fast.kernels.ens import ens
    from fedepm_fast.kernels.ens_blocks import BLOCK_BYTES, ens_blocks

    n = 1_000_000
    m = int(gib * 2**30 / 8 / n)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "z"
        with open(path, "wb") as file:
            for _ in range(m):
                rng.standard_normal(n).tofile(file)
        Z = np.memmap(path, np.float64, "r", shape=(m, n))
        ens_blocks(np.ones((2, 16)), 0.5)

        rows = max(1, BLOCK_BYTES // (8 * n))
        buffer = np.empty((rows, n))

        def blocks() -> Iterator[np.ndarray]:
            with open(path, "rb", buffering=0) as file:
                for i in range(0, m, rows):
                    part = buffer[: min(rows, m - i)]
                    file.readinto(part.reshape(-1).view(np.uint8))
                    yield part

        buffer[:] = 0  # the block is in what was there before: what remains must be 10 n
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        start = time.perf_counter()
        w = ens_blocks(blocks, 0.5)
        elapsed = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        some = slice(0, 4096)
        exact = np.abs(w[some] - ens(np.ascontiguousarray(Z[:, some]), 0.5)).max() <= 1e-15
        note = f"{m} x {n:,}, {elapsed:.1f} s, exact: {exact}"
        name = "ens_blocks, 8 GiB on disk, peak memory"
        yield Row(name, "80 n bytes, beside the block", peak / (10 * n * 8), "<= 1", "", note)


PARTS: dict[str, Part] = {"imports": _imports, "first commands": _first_commands}
