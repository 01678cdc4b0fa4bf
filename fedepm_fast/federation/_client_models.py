"""The models of clients that come and go: the rows of `Surrogates` by the clients' numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import CurvatureFedEPM
from ..algorithms._surrogates import Surrogates
from ._answers import Answer
from ._rounds import frozen

Array = NDArray[np.float64]
Clients = NDArray[np.intp]


class ClientModels:
    """The models of a server's members, and its last point.

    Parameters
    ----------
    algorithm : CurvatureFedEPM
        With its coordinates chosen.
    clients : int
        How many there can be, m.
    start : ndarray of shape (n,)
    classes : int
        Equal blocks of curvatures.
    bounded : bool
        Whether first answers bound the curvature everywhere.
    """

    def __init__(
        self, algorithm: CurvatureFedEPM, clients: int, start: Array, classes: int, *,
        bounded: bool,
    ) -> None:  # fmt: skip
        self._algorithm, self._classes, self._bounded = algorithm, classes, bounded
        self.x = frozen(start)
        #: Whose models there are, in increasing order: those of the rows of `server`.
        self.clients: Clients = np.empty(0, np.intp)
        self.server: Surrogates | None = None
        #: How often each client has taken part after its first answer, shape (m,).
        self.times = np.zeros(clients, np.int64)

    def settle(self, left: Iterable[int], joined: Mapping[int, Answer]) -> None:
        """Those who left no longer count; those who joined do, with their answers of `x`."""
        for client in sorted(left):
            assert self.server is not None
            row = int(np.searchsorted(self.clients, client))
            self.clients = np.delete(self.clients, row)
            self.server.dismiss(row)
        if not len(self.clients):
            self.server = None
        new = sorted(joined)
        if self.server is None and new:
            self.server = self._begin([joined[client] for client in new])
            self.clients = np.array(new, np.intp)
        else:
            for client in new:
                self._admit(client, joined[client])
        self.times[new] = 0
        if self.server is not None:
            self.server.calm = self._surrogates(len(self.clients)).calm

    def propose(self) -> tuple[Array, int]:
        """The next point, and for how many rounds now little has been promised."""
        assert self.server is not None
        before, quiet = self.server.x, self.server.quiet
        x = self.server.propose()
        if not np.isfinite(x).all():
            self.server.x, self.server.quiet = before, quiet
            raise RuntimeError(
                f"{self._algorithm.label} has no next point: the clients' models slope where none "
                "of them bends; CurvatureFedEPM has one"
            )
        return x, self.server.quiet

    def go_to(self, x: Array, quiet: int) -> None:
        """Be at the point that was proposed."""
        assert self.server is not None
        self.server.x, self.server.quiet = x.copy(), quiet
        self.x = frozen(x)

    def due(self, selected: Clients) -> Clients:
        """Whose Hessians are asked for."""
        if not self._algorithm.sends_hessians:
            return selected[:0]
        return selected[self.times[selected] % self._algorithm.renew_every == 0]

    def learn(self, answers: Mapping[int, Answer], *, silent: bool) -> Clients:
        """What clients answered at the last point; and whether others were asked and did not.

        Gives the clients, in increasing order.
        """
        assert self.server is not None
        accepted = np.array(sorted(answers), np.intp)
        if len(accepted):
            said = [answers[client] for client in accepted.tolist()]
            rows = np.searchsorted(self.clients, accepted)
            values = np.array([answer.value for answer in said])
            hessians = {
                row: answer.curvature
                for row, answer in zip(rows.tolist(), said, strict=True)
                if answer.curvature is not None
            }
            gradients = np.array([answer.gradient for answer in said])
            self.server.receive(rows, values, gradients, hessians)
            self.times[accepted] += 1
        if silent:
            self.server.quiet = -1  # the next point is none that all have been asked about
        return accepted

    def _begin(self, answers: list[Answer]) -> Surrogates:
        server = self._surrogates(len(answers))
        curvatures = np.array([answer.curvature for answer in answers])
        values = np.array([answer.value for answer in answers])
        gradients = np.array([answer.gradient for answer in answers])
        server.begin(self._models(curvatures), values, gradients)
        return server

    def _admit(self, client: int, answer: Answer) -> None:
        assert self.server is not None
        assert answer.curvature is not None
        row = int(np.searchsorted(self.clients, client))
        self.clients = np.insert(self.clients, row, client)
        self.server.admit(row, answer.value, answer.gradient, answer.curvature)

    def _models(self, curvatures: Array) -> Any:
        return self._algorithm.models_of(
            curvatures, len(self.x), bounded=self._bounded, copies=self._classes
        )

    def _surrogates(self, members: int) -> Surrogates:
        """A server of so many clients, at the last point."""
        covered = dataclasses.replace(self._algorithm, coverage_rounds=self.coverage(members))
        return covered.server(self.x, members)

    def coverage(self, members: int) -> int | None:
        """In how many rounds so many members all take part; None where they are just drawn."""
        return self._algorithm.coverage(members)

    # Kept -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything as arrays, for files."""
        own = {"clients": self.clients.astype(np.int64), "times": self.times, "last": self.x}
        return own if self.server is None else own | self.server.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.clients, self.times = state["clients"].astype(np.intp), state["times"].copy()
        self.x = frozen(state["last"])
        if len(self.clients):
            first = "models_blocks" if self._algorithm.coordinates == "whitened" else "models_B"
            self.server = self._surrogates(len(self.clients))
            self.server.restore(state, self._models(state[first]))
