"""Runs whose clients live on the workers of a Dask cluster."""

from __future__ import annotations

from typing import Any

from .. import runner
from ..algorithms import Algorithm
from ..result import Result
from . import _stages  # noqa: F401 - which problems take their stages from
from ._clients import Clients


def run(algorithm: Algorithm, data: Any, *, client: Any = None, **options: Any) -> Result:
    """`fedepm_fast.run` for clients whose rows live on Dask workers, and stay there.

    Rows are packed, and gradients, local steps and noise computed, where they are: in each round
    one task of every worker for all of its clients. Selection and ENS are here.

    Parameters
    ----------
    algorithm : Algorithm
        One that has compiled stages, without a mechanism.
    data : Clients, or sequence
        The clients, or what `Clients` makes some of.
    client : distributed.Client, optional
        By default the one that is connected.
    **options
        All others of `fedepm_fast.run` but `randomness`; `engine` is "compiled".

    Returns
    -------
    Result
        That of `fedepm_fast.run` on the rows of all clients, with the same bits, times apart, for
        any number of workers and any way in which the clients are spread over them. A worker that
        dies has its part of the round done again by another.

    Raises
    ------
    ValueError, TypeError
        As of `fedepm_fast.run`; RuntimeError where rows are lost with a worker.

    Examples
    --------
    >>> pieces = [delayed(read)(path) for path in paths]  # each FederatedData, or (X, y)
    >>> result = fedepm_fast.dask.run(FedEPM(), pieces, client=client, seed=1)
    """
    clients: Any = data if isinstance(data, Clients) else Clients(data, client)
    return runner.run(algorithm, clients, **options)
