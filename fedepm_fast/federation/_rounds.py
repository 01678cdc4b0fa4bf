"""Members, rounds, and whose answers count: what all kinds of servers share."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ..participation import clients_per_round, select
from ..randomness import CounterRandomness
from ._checks import is_int
from ._folder import Event, Folder

Array = NDArray[Any]

#: Of servers of all kinds.
log = logging.getLogger("fedepm_fast.federation.server")


class Round(NamedTuple):
    """What the selected clients need to know."""

    tau: int
    x: Array
    """The server's point, shape (n,)."""
    clients: NDArray[np.intp]
    """Who takes part, in increasing order."""


class Opened(Protocol):
    """A `Round`, or what a server has instead."""

    @property
    def tau(self) -> int: ...
    @property
    def clients(self) -> NDArray[np.intp]: ...


def frozen(x: Array) -> Array:
    """A copy that nobody writes to."""
    x = np.array(x)
    x.flags.writeable = False
    return x


#: What is kept of an answer until the round ends, and what a round is.
Kept = TypeVar("Kept")
OneRound = TypeVar("OneRound", bound=Opened)


class Rounds(Generic[Kept, OneRound]):
    """The clients of a server, numbered from 0, and the round that is open, if one is."""

    def __init__(
        self, m: int, algorithm: Algorithm, randomness: CounterRandomness, *, sync: bool
    ) -> None:
        self.algorithm, self._randomness, self._sync = algorithm, randomness, bool(sync)
        if algorithm.coverage_rounds is not None:
            for k in range(m, 0, -1):  # so many members there may be
                algorithm.check_coverage(k)
        self._folder: Folder | None = None
        self._clear(m)

    def _clear(self, m: int) -> None:
        """Nobody has joined, of m clients."""
        self.tau = 0
        self._members = np.zeros(m, bool)
        #: Who will be a member, and what is kept of the first answer.
        self._joined: dict[int, Kept] = {}
        self._open: OneRound | None = None
        #: The last selection, and the round and the number of members that it is of.
        self._selection: tuple[tuple[int, int], NDArray[np.intp]] | None = None
        #: Selected in the open round, shape (m,).
        self._asked = np.zeros(m, bool)
        #: Selected clients whose answer was accepted, or refused, in this round.
        self._accepted: dict[int, Kept] = {}
        self._refused: set[int] = set()
        self._rejections: Counter[int] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the folder free for another server; this one can no longer be changed."""
        if self._folder is not None:
            self._folder.close()

    @property
    def members(self) -> NDArray[np.intp]:
        """The clients that count, in increasing order."""
        return np.flatnonzero(self._members)

    @property
    def awaited(self) -> NDArray[np.intp]:
        """Of the open round, the selected members without an accepted upload, in increasing order.

        Whom a restarted server still has to ask.
        """
        selected = [] if self._open is None else self._open.clients.tolist()
        missing = [i for i in selected if self._members[i] and i not in self._accepted]
        return np.array(missing, np.intp)

    # Answers ----------------------------------------------------------------------------

    def reject(self, client: Any, fault: str) -> bool:
        """Log that something of `client` is not used, and why, and count it; False."""
        if not self._unknown(client):
            self._rejections[int(client)] += 1
        self._warn(client, fault)
        return False

    @property
    def rejections(self) -> dict[int, int]:
        """How often something that a client sent was not used, since this server was made, of
        those of whom anything was not."""
        return dict(sorted(self._rejections.items()))

    def _warn(self, client: Any, fault: str) -> None:
        if self._open is not None and is_int(client):
            self._refused.add(int(client))
        log.warning("round %d: client %s rejected: %s", self.tau, client, fault)

    def leave(self, client: int) -> None:
        """Forget what a member sent; it may join again. A round that is open goes on."""
        fault = self._unknown(client)
        if fault:
            raise ValueError(f"client must be one of 0 to {len(self._members) - 1}: {fault}")
        if self._members[client] or client in self._joined:
            self._do(Event.LEAVE, int(client))
            log.info("round %d: client %s left", self.tau, client)

    def _begin_round(self, opened: OneRound) -> None:
        self._asked = np.zeros(len(self._members), bool)
        self._asked[opened.clients] = True
        self._accepted, self._refused = {}, set()
        self._open = opened

    def _ending(self) -> OneRound:
        """The open round, which ends: its selected clients that sent nothing are logged."""
        if self._open is None:
            raise RuntimeError("no round is open")
        for client in self._open.clients.tolist():
            if client not in self._accepted and client not in self._refused:
                self._warn(client, "no reply in time")
        return self._open

    def _forget(self, client: int) -> None:
        """Nothing counts of who has left."""
        self._joined.pop(client, None)
        self._accepted.pop(client, None)
        self._refused.add(client)
        self._members[client] = False

    def _coverage(self, members: int) -> int | None:
        """In how many rounds so many members all take part."""
        return self.algorithm.coverage_rounds

    def _select(self, members: int) -> NDArray[np.intp]:
        """Whom of so many members this round selects: asked by the aggregation and its opening."""
        of = self.tau, members
        if self._selection is None or self._selection[0] != of:
            count = clients_per_round(self.algorithm.participation, members)
            coverage = self._coverage(members)
            self._selection = of, select(self._randomness, *of, count, coverage)
        return self._selection[1]

    def _do(
        self, event: Event, client: int = -1, scale: float = np.nan, row: Array | None = None
    ) -> None:
        """Write down what happens, and only then let it happen."""
        if self._folder is not None:
            waits = event in (Event.JOIN, Event.LEAVE) and self._sync
            durable = event is Event.OPEN or waits  # and with it all that is before it
            self._folder.append(event, client, scale, row, durable=durable)
        self._happen(event, client, scale, row)

    def _happen(self, event: Event, client: int, scale: float, row: Array | None) -> None:
        raise NotImplementedError

    def _restore(self) -> None:
        """Be what the folder says; if that cannot be, it is closed."""
        folder = self._folder
        assert folder is not None
        try:
            self._recall()
            for event, client, scale, row in folder.entries():
                self._happen(event, client, scale, row)
        except BaseException:
            folder.close()
            raise
        if self._members.any():
            log.info("restored round %d with %d clients", self.tau, self._members.sum())

    def _recall(self) -> None:
        """Be what the folder says of the end of the last round."""
        raise NotImplementedError

    # Faults -----------------------------------------------------------------------------

    def _unknown(self, client: Any) -> str:
        m = len(self._members)
        if not is_int(client) or not 0 <= client < m:
            return f"clients are numbered 0 to {m - 1}, got {client!r}"
        return ""

    def _not_new(self, client: Any) -> str:
        fault = self._unknown(client)
        if not fault and (self._members[client] or client in self._joined):
            fault = "it has joined already"
        return fault

    def _stale(self, tau: Any, client: Any) -> str:
        if self._open is None:
            return f"no round is open, got an answer of round {tau!r}"
        fault = self._unknown(client)
        if fault:
            return fault
        if not is_int(tau) or tau != self.tau:
            return f"answer must be of round {self.tau}, got round {tau!r}"
        if not self._asked[client] or not self._members[client]:
            return "it was not selected"
        return "it has replied already" if client in self._accepted else ""
