"""Beyond one machine: ENS of Dask arrays, and runs whose clients live on Dask workers.

`ens` takes a `dask.array` of uploads that no process could hold. Its result does not depend on how
many workers there are.
"""

from __future__ import annotations

from ._ens import ens

__all__ = ["ens"]
