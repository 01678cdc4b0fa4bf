"""What the hooks of an algorithm are given: what the server, or the selected clients, know.

The loop of a run, `run_callables`, and the servers and clients of real deployments all give the
same, so that an algorithm need not know which of them asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Clients = NDArray[np.intp]


class Sized(Protocol):
    """What defaults depend on; a `Problem` is one."""

    @property
    def n_clients(self) -> int:
        """m."""

    @property
    def n_parameters(self) -> int:
        """n."""

    @property
    def n_samples(self) -> int:
        """Of all clients, d."""


class Size(NamedTuple):
    """The size of a problem, where there is none yet, or none here."""

    n_clients: int
    n_parameters: int
    n_samples: int


def _whole_only(*arguments: Any) -> Any:
    raise NotImplementedError("gradients of some of a client's rows are not known here")


@dataclass(frozen=True)
class AtServer:
    """What the server knows when it aggregates.

    Attributes
    ----------
    tau : int
        The round that begins.
    Z : ndarray of shape (m, n)
        Every client's last upload; at a `Server` that of every member, whose positions it counts.
    selected, uploaded : ndarray of int
        The clients of the round that begins, and those whose uploads have come in the round
        before it; none at first, and where nobody has answered.
    sizes : ndarray of shape (m,)
        The clients' numbers of samples; of none at a `Server`, which is not told them.
    scale : ndarray of shape (m,)
        Of the noise of each upload, NaN for the first ones.
    x : ndarray of shape (n,)
        The server's point of the round before.
    shared : mapping of str to ndarray of shape (n,)
        The algorithm's `shares`: they are written in place, and sent to the clients with x.
    told : mapping of str to ndarray of shape (m,)
        What the clients told when they joined, the algorithm's `tells`, as its `agreed` has it.
    """

    tau: int
    Z: Array
    selected: Clients
    uploaded: Clients
    sizes: NDArray[np.int64]
    scale: Array
    x: Array
    shared: Mapping[str, Array] = field(default_factory=dict)
    told: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class AtClients:
    """What the selected clients know of a round, each of its own row.

    Attributes
    ----------
    tau : int
        The round.
    x : ndarray of shape (n,)
        The server's point.
    W : ndarray of shape (s, n)
        Where their local steps start, see `Algorithm.round_start`.
    G : ndarray of shape (s, n)
        Their gradients at x.
    sizes : ndarray of shape (s,)
        Their numbers of samples.
    gradient : callable
        ``gradient(row, w)``, of the objective of the client in that row, shape (n,).
    kept : mapping of str to ndarray of shape (s, n)
        The algorithm's `keeps`, zero at first, and again where the algorithm `shares` something and
        members of a federation have come or gone: they are written in place.
    shared : mapping of str to ndarray of shape (n,)
        The server's `shares`.
    told : mapping of str to ndarray of shape (s,)
        What they told the server when they joined, as the algorithm's `agreed` has it.
    order : callable
        ``order(row, epoch)``, an order of the rows of the client in that row, random, and the
        same whenever it is asked for: an array of int, shape (d_i,).
    batch_gradient : callable
        ``batch_gradient(row, w, rows)``, as `gradient`, of the mean loss of some of its rows.
    """

    tau: int
    x: Array
    W: Array
    G: Array
    sizes: NDArray[np.int64]
    gradient: Callable[[int, Array], Array]
    kept: Mapping[str, Array] = field(default_factory=dict)
    shared: Mapping[str, Array] = field(default_factory=dict)
    told: Mapping[str, Array] = field(default_factory=dict)
    order: Callable[[int, int], NDArray[np.intp]] = _whole_only
    batch_gradient: Callable[[int, Array, NDArray[np.intp]], Array] = _whole_only
