"""Ways to split rows into clients.

A partitioner is a frozen, validated object; the split it makes is a pure function of the
labels, its parameters and the generator it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.parameters import check_fields, integer, param, real, values_of
from .._common.validation import ArgumentTypeError, ArgumentValueError, check_values
from ..randomness import SHUFFLE
from ._holding import Frozen, check_sizes

Rows = NDArray[np.intp]


def shuffle(d: int, rng: np.random.Generator) -> Rows:
    """The numbers 0, ..., d-1 in uniformly random order.

    The compiled shuffle, from a key that `rng` gives: four times as fast as that of NumPy,
    which takes as long as a FedEPM round on the same rows.
    """
    return _shuffled(d, _key(rng))


def _key(rng: np.random.Generator) -> NDArray[np.uint64]:
    return rng.integers(0, 2**64, 2, dtype=np.uint64)


def _shuffled(d: int, key: NDArray[np.uint64]) -> Rows:
    from ..kernels.sampling import sample

    return sample(int(key[0]), int(key[1]), SHUFFLE, 0, d, d)


class Partitioner(Frozen):
    """What every way to split has."""

    name: ClassVar[str]

    def assign(self, labels: NDArray[Any], rng: np.random.Generator) -> list[Rows]:
        """The rows of every client; every row belongs to exactly one.

        Parameters
        ----------
        labels : array of shape (d,)
        rng : numpy.random.Generator
            The only source of randomness.

        Returns
        -------
        list of array of int
            Row indices, client by client.

        Raises
        ------
        ValueError
            Naming the parameter that does not fit the rows.
        """
        raise NotImplementedError

    def client_names(self) -> tuple[str, ...] | None:
        """Names of the clients, where they have any."""
        return None

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain values, for records."""
        return {"name": self.name, **values_of(self)}


def _check_clients(clients: int, d: int) -> None:
    if clients > d:
        raise ArgumentValueError("clients", f"must not exceed the number of rows: {clients} > {d}")


class Shuffled(Partitioner):
    """What deals shuffled rows: the first ones to the first client, and so on."""

    clients: int

    def assign(self, labels: NDArray[Any], rng: np.random.Generator) -> list[Rows]:
        rows, sizes = self.deal(len(labels), rng)
        return np.split(rows, np.cumsum(sizes)[:-1])

    def deal(self, d: int, rng: np.random.Generator) -> tuple[Rows, NDArray[np.int64]]:
        """All rows, client after client, and how many each holds."""
        key = self.key(d, rng)
        return _shuffled(d, key), self.sizes(d, rng)

    def key(self, d: int, rng: np.random.Generator) -> NDArray[np.uint64]:
        """That of the shuffle, which is drawn before the sizes."""
        _check_clients(self.clients, d)
        return _key(rng)

    def sizes(self, d: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """How many of the `d` rows each client holds, shape (m,)."""
        raise NotImplementedError


@dataclass(frozen=True)
class RandomCuts(Shuffled):
    """The paper's split: shuffled rows, cut at distinct uniform points.

    The m - 1 cut points are uniform on 1..d-2, given that every client holds more than
    ``min_share * d / m`` rows. The authors' program draws until that is so, which hardly ever
    happens for thousands of clients; here the sizes are drawn from that conditional law
    directly: all such sizes are equally likely, so the surplus over the minimum is cut.
    As many clients as rows hold one each.

    Parameters
    ----------
    clients : int
        m, at least 1.
    min_share : float
        In [0, 1).
    """

    clients: int = param(check=integer(low=1), symbol="$m$", shown="100", help="Number of clients")
    min_share: float = param(
        0.01, check=real(low=0.0, high=1.0, open_high=True),
        help="Least rows of a client, as a share of the mean",
    )  # fmt: skip
    name: ClassVar[str] = "random"

    def __post_init__(self) -> None:
        check_fields(self)

    def sizes(self, d: int, rng: np.random.Generator) -> NDArray[np.int64]:
        m = self.clients
        if m == 1:
            return np.array([d])
        floor = int(self.min_share * d / m)
        surplus = d - m * floor
        # The last point is at most d - 2, so the last client has two rows at least, if it can.
        points = surplus - (1 if floor or m == d else 2)
        if m - 1 > points:
            raise ValueError(
                f"min_share={self.min_share:g} must leave rows for {m} clients, but asks for at "
                f"least {floor + 1} of {d} for each: use a smaller one, fewer clients, or "
                "EqualParts"
            )
        cuts = np.empty(m + 1, np.int64)
        cuts[0], cuts[m] = 0, surplus
        cuts[1:m] = np.sort(rng.choice(points, m - 1, replace=False) + 1)
        return cuts[1:] - cuts[:-1] + floor  # which np.diff takes three times as long for


@dataclass(frozen=True)
class EqualParts(Shuffled):
    """Shuffled rows in parts whose sizes differ by at most one.

    Parameters
    ----------
    clients : int
    """

    clients: int = param(check=integer(low=1), symbol="$m$", shown="100", help="Number of clients")
    name: ClassVar[str] = "equal"

    def __post_init__(self) -> None:
        check_fields(self)

    def sizes(self, d: int, rng: np.random.Generator) -> NDArray[np.int64]:
        each, rest = divmod(d, self.clients)
        return np.repeat([each + 1, each], [rest, self.clients - rest])


@dataclass(frozen=True)
class DirichletLabelSkew(Partitioner):
    """Label skew: each label's rows are dealt by shares from a symmetric Dirichlet law.

    Parameters
    ----------
    clients : int
    concentration : float
        From 1e-6 to 1e12: small values give each client few labels, large ones equal shares.
    min_samples : int
        Shares are drawn again until every client holds at least so many rows.
    """

    clients: int = param(check=integer(low=1), symbol="$m$", shown="100", help="Number of clients")
    concentration: float = param(
        0.5, check=real(low=1e-6, high=1e12), help="Of label skew: small is more skewed"
    )
    min_samples: int = param(1, check=integer(low=1), help="Least rows of a client")
    name: ClassVar[str] = "dirichlet"

    def __post_init__(self) -> None:
        check_fields(self)

    def assign(self, labels: NDArray[Any], rng: np.random.Generator) -> list[Rows]:
        d, m = len(labels), self.clients
        _check_clients(m, d)
        if m * self.min_samples > d:
            raise ArgumentValueError(
                "min_samples",
                f"must be at most {d // m} for {m} clients and {d} rows, got {self.min_samples}",
            )
        labels = check_values("labels", labels)
        kinds, codes = np.unique(labels, return_inverse=True)
        fractions = labels.dtype.kind == "f" and bool((kinds != np.round(kinds)).any())
        if len(kinds) > max(2 if fractions else 100, d // 10):
            raise ArgumentValueError(
                "labels",
                f"must be classes for a label skew, got {len(kinds)} different values in "
                f"{d} rows: bin them first",
            )
        groups = [rng.permutation(np.flatnonzero(codes == k)) for k in range(len(kinds))]
        # A hopeless concentration is told within about a second.
        tries = int(np.clip(20_000_000 // (m * len(kinds)), 20, 10_000))
        for _ in range(tries):
            shares = rng.dirichlet(np.full(m, self.concentration), size=len(kinds))
            cuts = [
                np.floor(np.cumsum(share)[:-1] * len(group)).astype(np.intp)
                for share, group in zip(shares, groups, strict=True)
            ]
            sizes = sum(
                np.diff(cut, prepend=0, append=len(group))
                for cut, group in zip(cuts, groups, strict=True)
            )
            if np.min(sizes) >= self.min_samples:
                pieces = [np.split(g, cut) for g, cut in zip(groups, cuts, strict=True)]
                return [np.concatenate(client) for client in zip(*pieces, strict=True)]
        raise ValueError(
            f"concentration={self.concentration:g} leaves a client of {m} with fewer than "
            f"{self.min_samples} rows in every one of {tries} draws: use a larger "
            "concentration, or fewer clients"
        )


@dataclass(frozen=True, eq=False)
class ByColumn(Partitioner):
    """The client of every row is given; clients in increasing order of their ids.

    Parameters
    ----------
    ids : array_like of shape (d,)
        Numbers or strings; a copy is kept. Strings are in the order of their characters, so
        ``"10"`` comes before ``"2"``.
    """

    ids: ArrayLike
    name: ClassVar[str] = "column"

    def __post_init__(self) -> None:
        ids = check_values("client ids", self.ids).copy()
        if ids.dtype.kind == "f" and (np.abs(ids) < 2**53).all() and (ids == np.round(ids)).all():
            ids = ids.astype(np.int64)  # a column of a table of floats
        ids.setflags(write=False)
        self._set(ids=ids)

    @cached_property
    def _found(self) -> tuple[NDArray[Any], Rows]:
        return np.unique(np.asarray(self.ids), return_inverse=True)

    def assign(self, labels: NDArray[Any], rng: np.random.Generator) -> list[Rows]:
        names, codes = self._found
        if len(codes) != len(labels):
            raise ValueError(f"client ids must have {len(labels)} entries, got {len(codes)}")
        order = np.argsort(codes, kind="stable")
        return np.split(order, np.cumsum(np.bincount(codes, minlength=len(names)))[:-1])

    def client_names(self) -> tuple[str, ...]:
        return tuple(map(str, self._found[0].tolist()))

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "clients": len(self._found[0])}


#: Partitioners that need no more than numbers, by name.
PARTITIONERS: dict[str, type[Partitioner]] = {
    cls.name: cls for cls in (RandomCuts, EqualParts, DirichletLabelSkew)
}


def as_partitioner(partition: Any) -> Partitioner:
    """A partitioner as it is, or one of the client of every row."""
    if isinstance(partition, Partitioner):
        return partition
    if isinstance(partition, (type, str)) or np.ndim(partition) == 0:
        raise ArgumentTypeError(
            "partition",
            "must be a partitioner, such as RandomCuts(10), or the client of "
            f"every row, got {partition!r}",
        )
    return ByColumn(partition)


def deal(
    partition: Partitioner, labels: NDArray[Any], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of all clients, one client after the other, and how many each holds."""
    d, rng = len(labels), np.random.default_rng(seed)
    if type(partition) in (RandomCuts, EqualParts):  # whose rows need no check
        return partition.deal(d, rng)  # type: ignore[attr-defined]
    parts = partition.assign(labels, rng)
    rows = np.concatenate(parts).astype(np.int64, copy=False)
    seen = np.zeros(d, bool)
    if len(rows) == d and rows.min() >= 0 and rows.max() < d:
        seen[rows] = True
    if not seen.all():
        raise ArgumentValueError(
            "partition", f"must give each of the {d} rows to exactly one client"
        )
    return rows, check_sizes([len(part) for part in parts], d)
