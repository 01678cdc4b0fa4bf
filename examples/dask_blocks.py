"""ENS of a Dask array: blocks of coordinates, every client in each.

The kernels release the GIL, so Dask's threads work side by side, one block each.
"""

from __future__ import annotations

import numpy as np

from fedepm_fast._common.extras import require
from fedepm_fast.kernels.ens import ens

da = require("dask.array", "dask", "this example")

M, N, BLOCK, C = 50, 200_000, 16_384, 0.5
Z = np.random.default_rng(0).standard_t(3, size=(M, N))

uploads = da.from_array(Z, chunks=(M, BLOCK))
w = da.map_blocks(ens, uploads, C, drop_axis=0, dtype=Z.dtype, meta=np.empty(0))
with_threads = w.compute(scheduler="threads")

same = np.array_equal(with_threads, ens(Z, C))
print(f"{M} x {N:,} in {w.numblocks[0]} blocks: the bits of one call to ens: {same}")
assert same
