"""What a server remembers beside members and uploads: of algorithms that keep, share or tell."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ._rounds import frozen

Array = NDArray[Any]
Shared = Mapping[str, Array]


class Memory:
    """The last round's point and what was shared with it, and what is known of clients.

    What an algorithm shares sums up what its clients keep, of those that are members and as of
    their last uploads that came. So a client whose last one did not come goes back to what it kept
    before it, and where members have come or gone all begin anew, with zeros.

    Parameters
    ----------
    algorithm : Algorithm
    m, n : int
        Clients and coordinates.
    dtype : dtype
        Of points.
    """

    def __init__(self, algorithm: Algorithm, m: int, n: int, dtype: np.dtype[Any]) -> None:
        self._algorithm = algorithm
        #: The point of the last round, NaN before the first.
        self.x = np.full(n, np.nan, dtype)
        #: What was sent with it, for each of the algorithm's `shares`.
        self.shared = np.zeros((len(algorithm.shares), n), dtype)
        #: The numbers that clients told, for each of the algorithm's `tells`; NaN before.
        self.told = np.full((len(algorithm.tells), m), np.nan)
        #: The round after which every client has what counts of what it keeps, -1 if nothing does.
        self.acknowledged = np.full(m, -1, np.int64)
        #: Whether members have come or gone since the last round was opened.
        self.changed = False
        #: What has become of `told` by the members, in the open round.
        self._saying = self.told.copy()
        #: Numbers of clients that are about to join, and vectors of a round about to be opened.
        self._telling: dict[int, list[float]] = {}
        self._sharing: dict[int, Array] = {}

    # What is told to the hooks, and to clients ------------------------------------------

    def agreed(self, members: NDArray[np.intp]) -> Mapping[str, Array]:
        """What has become of what these clients told."""
        numbers = self._algorithm.agreed(self.told[:, members])
        return dict(zip(self._algorithm.tells, numbers, strict=True))

    def uploaded(self, members: NDArray[np.intp], tau: int) -> NDArray[np.intp]:
        """Positions of the members whose uploads came in the round before `tau`."""
        return np.flatnonzero((self.acknowledged[members] == tau - 1) & (tau > 0))

    def draft(self) -> dict[str, Array]:
        """What is shared, for the server's hook to change."""
        return dict(zip(self._algorithm.shares, self.shared.copy(), strict=True))

    def sent(self, draft: Mapping[str, Array]) -> Shared:
        """What is sent to clients of what a hook has made of a draft."""
        rows = {name: np.zeros_like(v) if self.changed else v for name, v in draft.items()}
        return MappingProxyType({name: frozen(row) for name, row in rows.items()})

    def message(self, client: int, shared: Shared) -> dict[str, Any]:
        """What a client is sent beside the point of the open round."""
        algorithm, found = self._algorithm, dict[str, Any]()
        if algorithm.sent_along:
            found["shared"] = {name: shared[name] for name in algorithm.sent_along}
        if algorithm.keeps:
            found["acknowledged"] = int(self.acknowledged[client])
        if algorithm.tells:
            numbers = self._saying[:, client].tolist()
            found["told"] = dict(zip(algorithm.tells, numbers, strict=True))
        return found

    # What happens -----------------------------------------------------------------------

    def tell(self, client: int, number: float) -> None:
        """A client that is about to join tells its next number."""
        self._telling.setdefault(client, []).append(number)

    def join(self, client: int) -> None:
        """A client joins, with the last numbers that it told."""
        numbers, count = self._telling.pop(client, []), len(self.told)
        # A kill may have come between numbers that were then told again.
        self.told[:, client] = numbers[len(numbers) - count :]
        self.acknowledged[client], self.changed = -1, True

    def leave(self, client: int) -> None:
        """A client leaves."""
        self.acknowledged[client], self.changed = -1, True

    def share(self, place: int, row: Array) -> None:
        """A round that is about to be opened shares a vector."""
        self._sharing[place] = np.array(row)

    def open(self, x: Array, members: NDArray[np.intp]) -> Shared:
        """A round is opened at a point; what is sent with it."""
        self.x = x
        for row, numbers in zip(self._saying, self.agreed(members).values(), strict=True):
            row[members] = numbers
        for place, row in self._sharing.items():
            self.shared[place] = row
        if self.changed and self._algorithm.shares:
            self.acknowledged[:] = -1
        self._telling, self._sharing, self.changed = {}, {}, False
        rows = zip(self._algorithm.shares, map(frozen, self.shared), strict=True)
        return MappingProxyType(dict(rows))

    # Between rounds, and on disk ----------------------------------------------------------

    def ended(self, tau: int, accepted: NDArray[np.intp]) -> dict[str, Array]:
        """What is to be remembered once round `tau` has ended with these uploads."""
        acknowledged = self.acknowledged.copy()
        acknowledged[accepted] = tau
        arrays = {"x": self.x, "acknowledged": acknowledged, "changed": np.array(self.changed)}
        for name in ("shared", "told"):
            if getattr(self, name).size:
                arrays[name] = getattr(self, name)
        return arrays

    def recall(self, arrays: Mapping[str, Array]) -> None:
        """Be what `ended` gave; of states from before there was such, and new ones, nothing."""
        for name, array in arrays.items():
            setattr(self, name, array.copy())
        self.changed = bool(self.changed)
