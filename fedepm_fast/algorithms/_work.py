"""What the clients of a run computed and sent, counted and not measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._base import Algorithm


class Work(NamedTuple):
    """Of all clients together.

    Of messages the vectors count, what a client tells when it joins, and rates and weights that all
    agreed on; not what a server's message has beside these: the round, what a client told itself.
    """

    gradients: float
    """How often they went through their rows."""
    bytes_up: float
    """To the server."""
    bytes_down: float
    """From the server to those of each round."""


#: Of a number that is sent.
_BYTES = 8


def work_of(
    algorithm: Algorithm,
    sizes: NDArray[np.int64],
    n: int,
    participations: float,
    kept: Mapping[str, NDArray[np.float64]],
) -> Work:
    """The work of clients of so many samples that took part so many times together.

    Which of them took part is not asked: a client counts as the mean of all, which is exact
    where all clients do the same in a round.

    Parameters
    ----------
    algorithm : Algorithm
        Resolved.
    sizes : ndarray of shape (m,)
        The clients' numbers of samples.
    n : int
        Parameters.
    participations : float
        Of all clients and rounds together; the first answers of all to a server that keeps
        models are beside them.
    kept : mapping of str to ndarray of shape (m, n)
        What clients keep. Those whose gradients are not the same in every round count them in
        ``gradients``, which holds then.
    """
    m = len(sizes)
    each = float(algorithm.gradients_per_round(sizes).sum()) / m
    gradients = each * (participations + m * algorithm.keeps_models)
    if "gradients" in kept:
        gradients = float(kept["gradients"][:, 0].sum())

    def total(numbers: Callable[[int, int], int]) -> float:
        before, more = divmod(participations, m)
        of_fewer, of_more = (numbers(n, int(before) + once) for once in (0, 1))
        return _BYTES * ((m - more) * of_fewer + more * of_more)

    return Work(
        gradients,
        total(algorithm.numbers_sent),
        total(algorithm.numbers_received),
    )
