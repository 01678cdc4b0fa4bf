"""Which rows are held out of a fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def held_out(
    share: float, clients: NDArray[np.intp], labels: NDArray[np.float64], seed: int
) -> NDArray[np.bool_]:
    """Which rows are held out, shape (d,): about this share of each client's, and of its classes.

    The rows of a client are sorted by label, in random order within a label, and taken at equal
    distances: the labels of those that are held out are distributed like the others. A client
    keeps at least one row.

    Parameters
    ----------
    share : float
        At least 0 and below 1.
    clients, labels : ndarray of shape (d,)
    seed : int
    """
    chosen = np.zeros(len(labels), dtype=bool)
    if not share:
        return chosen
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.lexsort((labels[order], clients[order]))]
    starts = np.flatnonzero(np.diff(clients[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        passed = np.floor(share * np.arange(len(rows) + 1) + rng.random())
        held = np.diff(passed) > 0
        if held.all():
            held[0] = False
        chosen[rows[held]] = True
    return chosen
