"""Folds of cross-validation: which rows of which clients are held out, and scores on them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.validation import MAX_SEED, check_choice, check_int
from ..data import FederatedData
from ..objectives import Objective, Problem

Array = NDArray[np.float64]
Folds = NDArray[np.int64]

OVER = ("clients", "records")

#: Folds where their number is not given, of whole clients at most as many as there are.
FOLDS = 5

#: Rows that are in the training data of every fold.
NEVER = -1

#: Sets the stream of the folds apart from others of the same seed.
_FOLDS = 7


class Fold(NamedTuple):
    """One split into training and held-out data."""

    train: FederatedData
    held_out: Problem
    """The held-out rows by client, without those who have none, and without regulariser."""
    weights: Array
    """Of the clients of `held_out`: the share of each one's rows that is held out."""

    @property
    def weight(self) -> float:
        """What the fold counts among the folds."""
        return float(self.weights.sum())

    def average(self, values: Array) -> float:
        """A measure of the clients of `held_out`, weighted as f/m weighs clients and rows."""
        return float(values @ self.weights) / self.weight


def default_folds(data: FederatedData, over: str) -> int:
    """The number of folds where none is given."""
    return max(2, min(FOLDS, data.n_clients)) if over == "clients" else FOLDS


def assign_folds(data: FederatedData, over: str, folds: int, seed: int) -> Folds:
    """The fold in which each row is held out.

    Parameters
    ----------
    data : FederatedData
    over : {"clients", "records"}
        Whole clients, as many in each fold (up to one), stratified by the mean of their labels,
        for two classes the share of the second. Or records of every client, as many of each
        client in each fold (up to one), stratified by label.
    folds : int
        K, at least 2; at most the number of clients or, for records, such that every fold
        holds something out.
    seed : int

    Returns
    -------
    ndarray of int64, shape (d,)
        From 0 to K - 1, a pure function of the labels, the clients and the seed. For records,
        a client of d_i < K rows has each of them held out in a fold of its own and is not
        scored in the others; the row of a client that has only one is held out in none,
        ``NEVER``: the client trains and is not scored.

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    check_choice("over", over, OVER)
    folds = check_int("folds", folds, low=2)
    rng = np.random.default_rng(
        np.random.SeedSequence(check_int("seed", seed, high=MAX_SEED), spawn_key=(_FOLDS,))
    )
    if over == "clients":
        if folds > data.n_clients:
            raise ValueError(
                "folds must not exceed the clients that they hold out: "
                f"{folds} > {data.n_clients}; {_instead(data.n_clients)}"
            )
        keys = np.array([labels.mean() for labels in _by_client(data)])
        return np.repeat(deal(keys, folds, rng), data.client_sizes)
    dealt = [
        deal(labels, folds, rng) if len(labels) > 1 else np.array([NEVER])
        for labels in _by_client(data)
    ]
    found = np.concatenate(dealt)
    empty = set(range(folds)) - set(found.tolist())
    if empty:
        raise ValueError(
            f"folds must be such that each holds records out, {len(empty)} of {folds} would not: "
            f"the largest client has {data.client_sizes.max()}, clients of one are never held out"
        )
    return found


def _instead(clients: int) -> str:
    """What to ask for instead of more folds than clients."""
    records = "over='records' holds out a part of each one's"
    return records if clients < 2 else f"folds={clients} holds each out alone, {records}"


def deal(keys: NDArray, folds: int, rng: np.random.Generator) -> Folds:
    """A fold for each of `keys`: as many in each fold, up to one, for every range of keys.

    In the order of the keys, ties in random order, every `folds` neighbours go to as many
    folds, which one to which at random.
    """
    order = np.lexsort((rng.random(len(keys)), keys))
    blocks = -(-len(keys) // folds)
    dealt = rng.permuted(np.tile(np.arange(folds), (blocks, 1)), axis=1).ravel()
    found = np.empty(len(keys), np.int64)
    found[order] = dealt[: len(keys)]
    return found


def _by_client(data: FederatedData) -> list[Array]:
    return np.split(data.labels, data.offsets[1:-1])


def make_folds(
    data: FederatedData, objective: Objective, over: str, folds: int, seed: int
) -> list[Fold]:
    """The folds of `assign_folds`, with their data."""
    of_row = assign_folds(data, over, folds, seed)
    loss = objective.changed(beta=0.0)
    made = []
    for k in range(folds):
        out = of_row == k
        counts = np.add.reduceat(out.astype(np.int64), data.offsets[:-1])
        shares = (counts / data.client_sizes)[counts > 0]
        train, held_out = (data.subset(np.flatnonzero(rows)) for rows in (~out, out))
        made.append(Fold(train, Problem(held_out, loss), shares))
    return made
