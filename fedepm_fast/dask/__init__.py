"""Beyond one machine: ENS of Dask arrays, and runs whose clients live on Dask workers.

`ens` takes a `dask.array` of uploads that no process could hold; `run` an algorithm to clients
whose rows stay on the workers of a cluster. Neither result depends on how many workers there are.
"""

from __future__ import annotations

from ._clients import Clients
from ._ens import ens
from ._run import run

__all__ = ["Clients", "ens", "run"]
