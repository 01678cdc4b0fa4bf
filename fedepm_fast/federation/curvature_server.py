"""The server of `CurvatureFedEPM` for real deployments: answers, selection, checks, checkpoints.

`CurvatureServer` needs no framework, as `fedepm_fast.federation.server.Server` needs none::

    for i, client in enumerate(clients):           # round 0: all answer at the start
        server.join(0, i, client.join(server.x))
    while not server.converged:
        tau, x, selected, due = server.open_round()
        for i in selected:                         # whoever is in due adds its Hessian
            server.receive(tau, i, clients[i].answer(x, due=i in due))
        server.close_round()

Driven over all clients it has the points of ``fedepm_fast.run`` of the same seed, with
``engine="reference"``, to the last bit.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import check_array, check_int
from ..algorithms import CurvatureFedEPM
from ..randomness import CounterRandomness
from ._answers import Answer, Checker, check_classes, resolve_curvature
from ._checks import is_int
from ._client_models import ClientModels
from ._folder import Event
from ._models import Models
from ._rounds import Rounds, frozen

__all__ = ["CurvatureRound", "CurvatureServer"]

Array = NDArray[np.float64]


class CurvatureRound(NamedTuple):
    """What the selected clients need to know."""

    tau: int
    x: Array
    """The server's point, shape (n,)."""
    clients: NDArray[np.intp]
    """Who takes part, in increasing order."""
    due: NDArray[np.intp]
    """Those of them whose Hessian is asked for."""


class CurvatureServer(Rounds[Answer, CurvatureRound]):
    """The server's state: a model of every client, the members, and the round.

    Parameters
    ----------
    algorithm : CurvatureFedEPM or FedNL
        The parameters, the same for server and clients, with ``"renewed"``, ``"secant"`` or, up to
        1,000 columns, ``"whitened"`` coordinates.
    clients : int
        How many clients there can be, m; they are numbered from 0. A client is a member from its
        first valid answer on.
    features : int
        Coordinates, n.
    seed, trial : int
        Of the selection, a pure function of these, the round, and the members.
    start : array_like of shape (n,), optional
        The first point; zero by default.
    classes : int
        Of the multinomial loss, whose curvature has so many equal blocks; 1 for others.
    bounded : bool
        Whether the curvatures of first answers bound it everywhere: not those of losses without a
        bound, such as Poisson's, which are Hessians at the start.
    path : path-like, optional
        A folder for all that the server knows; see Notes. It is created if need be, and for one
        server at a time, until `close` or the end of the process; by default everything is in
        memory, and nothing survives. Only its owner can read the files.
    sync : bool
        Whether `join` and `leave` wait for the disk.

    Raises
    ------
    ValueError, TypeError
        Naming the argument; also if `path` holds the state of another run, or a damaged one.
    RuntimeError
        If another server has the folder.
    OSError
        Naming the file, here and in every method, if the disk is full. The call has changed
        nothing then, and can be repeated.

    Notes
    -----
    A member that does not answer keeps its model where it was; so does one whose answer is
    rejected. The rounds go on, but nothing is said to have converged while someone asked is silent:
    let members `leave` that are gone for good.

    With a `path`, what a method has answered outlives the process, as that of
    `fedepm_fast.federation.server.Server` does: members, the open round, its point and its
    accepted answers; a new server goes on to the same results.

    The server cannot tell whether an answer is true. One client that lies moves the optimum.
    """

    def __init__(
        self,
        algorithm: CurvatureFedEPM,
        clients: int,
        features: int,
        *,
        seed: int = 0,
        trial: int = 0,
        start: ArrayLike | None = None,
        classes: int = 1,
        bounded: bool = True,
        path: str | os.PathLike[str] | None = None,
        sync: bool = True,
    ) -> None:
        m, n = check_int("clients", clients, low=1), check_int("features", features, low=1)
        classes = check_classes(classes, n)
        chosen = resolve_curvature(algorithm, m, n, classes)
        super().__init__(m, chosen, CounterRandomness(seed, trial), sync=sync)
        self._shape, self._classes = (m, n), classes
        self._bounded = bool(bounded)
        self._check = Checker(chosen, n, classes, bounded=self._bounded)
        first = np.zeros(n) if start is None else check_array("start", start, shape=(n,))
        self._first = first.copy()
        self._width = 1 + n + self._check.first_size
        if chosen.sends_hessians:
            self._width = max(self._width, 1 + n + n * (n + 1) // 2)
        self._reset()
        if path is not None:
            self._folder = Models(path, self._settings(), self._width)
            self._restore()

    algorithm: CurvatureFedEPM
    _folder: Models | None

    def _reset(self) -> None:
        """Nobody has joined."""
        m = self._shape[0]
        self._clear(m)
        self.tau = 1
        self._clients = ClientModels(
            self.algorithm, m, self._first, self._classes, bounded=self._bounded
        )
        #: Who has left of those whose models there are.
        self._left: set[int] = set()

    # What is known ----------------------------------------------------------------------

    @property
    def x(self) -> Array:
        """The server's last point, (n,), read-only: of the open or the last round, or the start.

        First answers are of it.
        """
        return self._clients.x

    @property
    def round_of_x(self) -> int:
        """The round whose point `x` is; 0 is the start."""
        return self.tau if self._open is not None else self.tau - 1

    @property
    def seed(self) -> int:
        """Of the selection."""
        return self._randomness.seed

    @property
    def best(self) -> Array:
        """The point with the least f, as far as the models tell, (n,): in most runs `x`."""
        server = self._clients.server
        return self.x if server is None else frozen(server.best)

    @property
    def converged(self) -> bool:
        """Whether nothing is to be expected of further rounds: `x` is the optimum, nearly.

        For so many rounds in a row as let all members take part the models promised next to
        nothing, and everyone who was asked answered; and nobody has joined or left since.
        """
        server = self._clients.server
        return not (server is None or self._joined or self._left) and server.converged

    # A round ----------------------------------------------------------------------------

    def open_round(self) -> CurvatureRound:
        """Find the next point, and select this round's clients; the open round if there is one.

        Raises
        ------
        RuntimeError
            If there is no member; with FedNL, which has no safeguard, also if there is no next
            point, as nothing bends where the models slope.
        """
        if self._open is None:
            if not self._members.any():
                raise RuntimeError("no client has joined: the server has no model of any")
            with self._undone():
                self._settle()
                x, quiet = self._clients.propose()
                self._do(Event.OPEN, scale=float(quiet), row=self._row(x=x))
        assert self._open is not None
        return self._open

    def receive(self, tau: int, client: int, answer: Answer) -> bool:
        """A selected client's answer of round `tau`; whether it was accepted.

        A fault is logged with the client's name, and the client's model stays.
        """
        fault = self._stale(tau, client)
        if not fault:
            assert self._open is not None
            fault = self._check.fault(answer, asked=int(client) in self._open.due)
        if fault:
            return self.reject(client, fault)
        self._tell(Event.RECEIVE, client, answer)
        return True

    def close_round(self) -> NDArray[np.intp]:
        """End the round: the clients whose answers were accepted, in increasing order.

        Selected clients that sent nothing are logged; their models stay.
        """
        there = set(self._ending().clients.tolist()) - self._left
        with self._undone():
            accepted = self._clients.learn(self._accepted, silent=len(self._accepted) < len(there))
            self._members[list(self._joined)] = True
            self._settle()
            if self._folder is not None:
                self._folder.end_round(self._clients.state())
        self.tau, self._open = self.tau + 1, None
        return accepted

    def join(self, tau: int, client: int, answer: Answer) -> bool:
        """A client's first answer, at the point of round `tau`; whether it was accepted.

        That point is `x`, and `tau` is `round_of_x`: 0 before the first round. The client is a
        member at once, or from the end of an open round on.
        """
        fault = self._not_new(client)
        if not fault and (not is_int(tau) or tau != self.round_of_x):
            fault = f"first answer must be of round {self.round_of_x}, got round {tau!r}"
        fault = fault or self._check.first_fault(answer)
        if fault:
            return self.reject(client, fault)
        self._tell(Event.JOIN, client, answer)
        return True

    # What happens -----------------------------------------------------------------------

    def _settle(self) -> None:
        self._clients.settle(self._left, self._joined)
        self._left, self._joined = set(), {}

    def _coverage(self, members: int) -> int | None:
        return self._clients.coverage(members)

    def _tell(self, event: Event, client: int, answer: Answer) -> None:
        has = answer.curvature is not None
        self._do(event, int(client), float(has), self._row(answer))

    def _happen(self, event: Event, client: int, scale: float, row: Any) -> None:
        n = self._shape[1]
        if event is Event.LEAVE:
            self._forget(client)
            if client in self._clients.clients:
                self._left.add(client)
        elif event is Event.OPEN:
            self._settle()
            self._clients.go_to(row[1 : 1 + n], int(scale))
            chosen = self.members[self._select(len(self.members))]
            self._begin_round(CurvatureRound(self.tau, self.x, chosen, self._clients.due(chosen)))
        else:
            curvature = None
            if scale:
                size = n * (n + 1) // 2 if event is Event.RECEIVE else self._check.first_size
                curvature = row[1 + n : 1 + n + size].copy()
            answer = Answer(float(row[0]), row[1 : 1 + n].copy(), curvature)
            if event is Event.RECEIVE:
                self._accepted[client] = answer
            else:
                self._joined[client] = answer
                self._members[client] = self._open is None

    def _row(self, answer: Answer | None = None, x: Array | None = None) -> Array:
        """An entry of the journal."""
        row, n = np.zeros(self._width), self._shape[1]
        if x is not None:
            row[1 : 1 + n] = x
        if answer is not None:
            row[0], row[1 : 1 + n] = answer.value, answer.gradient
            if answer.curvature is not None:
                row[1 + n : 1 + n + len(answer.curvature)] = answer.curvature
        return row

    # On disk ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _undone(self) -> Iterator[None]:
        """What changes models and fails, as where the disk is full, has not happened."""
        if self._folder is not None:
            self._folder.check_mine()
        try:
            yield
        except BaseException:
            if self._folder is not None:
                self._restore()
            raise

    def _recall(self) -> None:
        folder = self._folder
        assert folder is not None
        self._reset()
        arrays = folder.read()
        self.tau = folder.tau + 1
        if arrays:
            self._clients.restore(arrays)
            self._members[self._clients.clients] = True

    def _settings(self) -> dict[str, Any]:
        start = zlib.crc32(self._first.tobytes())
        return {
            "clients": self._shape[0], "features": self._shape[1], "classes": self._classes,
            "bounded": self._bounded, "start": f"{start:08x}",
            "seed": self._randomness.seed, "trial": self._randomness.trial,
            **self.algorithm.describe(),
        }  # fmt: skip
