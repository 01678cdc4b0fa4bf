"""ENS of uploads on disk that are larger than the memory they may take.

    python memmap_ens.py --limit 16      # MiB of new memory; Z takes eight times as much

The peak is what `tracemalloc` sees, which counts NumPy's arrays; pages of the file that the
system keeps in its cache are not the process's own.
"""

from __future__ import annotations

import argparse
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np

from fedepm_fast.kernels.ens import ens
from fedepm_fast.kernels.ens_blocks import ens_blocks

MIB = 1 << 20
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--limit", type=int, default=16, help="MiB of new memory, at least 8")
limit = parser.parse_args().limit * MIB

n = limit // (8 * 16)  # the search keeps about ten numbers per coordinate
m = 8 * limit // (8 * n)
rng = np.random.default_rng(0)
with tempfile.TemporaryDirectory() as folder:
    Z = np.memmap(Path(folder) / "uploads.bin", np.float64, "w+", shape=(m, n))
    for row in Z:
        row[:] = rng.normal(size=n)
    ens_blocks(Z[:, :16], 0.5)  # compile before measuring

    tracemalloc.start()
    w = ens_blocks(Z, 0.5, block_rows=max(1, limit // (4 * 8 * n)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    columns = np.arange(0, n, n // 100)
    # Sums in another order: equal to rounding.
    error = np.abs(w[columns] - ens(np.ascontiguousarray(Z[:, columns]), 0.5)).max()
    print(
        f"{m} x {n:,} uploads, {Z.nbytes / MIB:.0f} MiB on disk: peak {peak / MIB:.1f} MiB, "
        f"limit {limit / MIB:.0f} MiB; {error:.0e} from ens in {len(columns)} coordinates"
    )
    assert peak < limit < Z.nbytes and error < 1e-15
    del Z
