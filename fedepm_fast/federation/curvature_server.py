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
import dataclasses
import logging
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import check_array, check_int
from ..algorithms import CurvatureFedEPM
from ..algorithms._surrogates import Surrogates
from ..participation import clients_per_round
from ..randomness import CounterRandomness
from ._answers import Answer, Checker, check_classes, resolve_curvature
from ._checks import is_int
from ._folder import Event
from ._models import Models
from ._rounds import Rounds

__all__ = ["Answer", "CurvatureRound", "CurvatureServer"]

Array = NDArray[np.float64]

log = logging.getLogger(__name__)


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
    algorithm : CurvatureFedEPM
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
        self._own, self._shape, self._classes = chosen, (m, n), classes
        self._bounded = bool(bounded)
        self._check = Checker(chosen, n, classes, bounded=self._bounded)
        first = np.zeros(n) if start is None else check_array("start", start, shape=(n,))
        self._first = first.copy()
        self._width = 1 + n + self._check.first_size
        if chosen.sends_hessians:
            self._width = max(self._width, 1 + n + n * (n + 1) // 2)
        self._reset()
        if path is not None:
            self._folder = self._models = Models(path, self._settings(), self._width)
            self._restore()

    _models: Models | None = None

    def _reset(self) -> None:
        """Nobody has joined."""
        m = self._shape[0]
        self.tau = 1
        self._open, self._selection = None, None
        self._members, self._asked = np.zeros(m, bool), np.zeros(m, bool)
        self._joined, self._accepted, self._refused = {}, {}, set()
        self._x = _frozen(self._first)
        #: The models of the clients `_rows`, and who of these has left.
        self._server: Surrogates | None = None
        self._rows = np.empty(0, np.intp)
        self._left: set[int] = set()
        #: How often each client has taken part after its first answer, shape (m,).
        self._times = np.zeros(m, np.int64)

    # What is known ----------------------------------------------------------------------

    @property
    def x(self) -> Array:
        """The server's last point, (n,), read-only: of the open or the last round, or the start.

        First answers are of it.
        """
        return self._x

    @property
    def round_of_x(self) -> int:
        """The round whose point `x` is; 0 is the start."""
        return self.tau if self._open is not None else self.tau - 1

    @property
    def best(self) -> Array:
        """The point with the least f, as far as the models tell, (n,): in most runs `x`."""
        return self._x if self._server is None else _frozen(self._server.best)

    @property
    def converged(self) -> bool:
        """Whether nothing is to be expected of further rounds: `x` is the optimum, nearly.

        For so many rounds in a row as let all members take part the models promised next to
        nothing, and everyone who was asked answered; and nobody has joined or left since.
        """
        if self._server is None or self._joined or self._left:
            return False
        return self._server.converged

    # A round ----------------------------------------------------------------------------

    def open_round(self) -> CurvatureRound:
        """Find the next point, and select this round's clients; the open round if there is one.

        Raises
        ------
        RuntimeError
            If there is no member.
        """
        if self._open is None:
            if not self._members.any():
                raise RuntimeError("no client has joined: the server has no model of any")
            with self._undone():
                self._settle()
                assert self._server is not None
                x = self._server.propose()
                self._do(Event.OPEN, scale=float(self._server.quiet), row=self._row(x=x))
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
        if self._open is None:
            raise RuntimeError("no round is open")
        self._name_silent()
        accepted = np.array(sorted(self._accepted), np.intp)
        with self._undone():
            self._learn(accepted)
            self._members[list(self._joined)] = True
            self._settle()
            self._times[accepted] += 1
            if self._models is not None:
                self._models.end_round(self._state())
        self.tau, self._open = self.tau + 1, None
        return accepted

    def join(self, tau: int, client: int, answer: Answer) -> bool:
        """A client's first answer, at the point of round `tau`; whether it was accepted.

        That point is `x`, and `tau` is `round_of_x`: 0 before the first round. The client is a
        member at once, or from the end of an open round on.
        """
        fault = self._unknown(client)
        if not fault and (self._members[client] or client in self._joined):
            fault = "it has joined already"
        if not fault and (not is_int(tau) or tau != self.round_of_x):
            fault = f"first answer must be of round {self.round_of_x}, got round {tau!r}"
        fault = fault or self._check.first_fault(answer)
        if fault:
            return self.reject(client, fault)
        self._tell(Event.JOIN, client, answer)
        return True

    # What happens -----------------------------------------------------------------------

    def _learn(self, accepted: NDArray[np.intp]) -> None:
        assert self._open is not None and self._server is not None
        answers = [self._accepted[i] for i in accepted.tolist()]
        if answers:
            rows = np.searchsorted(self._rows, accepted)
            values = np.array([answer.value for answer in answers])
            sent = zip(rows.tolist(), answers, strict=True)
            hessians = {row: a.curvature for row, a in sent if a.curvature is not None}
            self._server.receive(
                rows, values, np.array([answer.gradient for answer in answers]),
                hessians if np.isfinite(values).all() else {},
            )  # fmt: skip
        there = [i for i in self._open.clients.tolist() if i not in self._left]
        if len(answers) < len(there):
            self._server.quiet = -1  # the next point is none that all have been asked about

    def _settle(self) -> None:
        """Those who left no longer count, and those who joined do."""
        for client in sorted(self._left):
            assert self._server is not None
            row = int(np.searchsorted(self._rows, client))
            self._rows = np.delete(self._rows, row)
            self._server.dismiss(row)
        if not len(self._rows):
            self._server = None
        joined = sorted(self._joined)
        answers = [self._joined[client] for client in joined]
        if self._server is None and joined:
            self._server = self._begin(answers)
            self._rows = np.array(joined, np.intp)
        else:
            for client, answer in zip(joined, answers, strict=True):
                assert self._server is not None
                row = int(np.searchsorted(self._rows, client))
                self._rows = np.insert(self._rows, row, client)
                assert answer.curvature is not None
                self._server.admit(row, answer.value, answer.gradient, answer.curvature)
        self._times[joined] = 0
        if self._server is not None:
            self._server.calm = self._surrogates(len(self._rows)).calm
        self._left, self._joined = set(), {}

    def _begin(self, answers: list[Answer]) -> Surrogates:
        server = self._surrogates(len(answers))
        models = self._own.models_of(
            np.array([answer.curvature for answer in answers]), self._shape[1],
            bounded=self._bounded, copies=self._classes,
        )  # fmt: skip
        values = np.array([answer.value for answer in answers])
        server.begin(models, values, np.array([answer.gradient for answer in answers]))
        return server

    def _surrogates(self, members: int) -> Surrogates:
        """A server of so many clients, at the last point."""
        covered = dataclasses.replace(self._own, coverage_rounds=self._coverage(members))
        return covered.server(self._x, members)

    def _coverage(self, members: int) -> int:
        given = self.algorithm.coverage_rounds
        per_round = clients_per_round(self.algorithm.participation, members)
        return given or math.ceil(members / per_round)

    def _tell(self, event: Event, client: int, answer: Answer) -> None:
        has = answer.curvature is not None
        self._do(event, int(client), float(has), self._row(answer))

    def _happen(self, event: Event, client: int, scale: float, row: Any) -> None:
        n = self._shape[1]
        if event is Event.LEAVE:
            self._joined.pop(client, None)
            self._accepted.pop(client, None)
            self._refused.add(client)
            self._members[client] = False
            if client in self._rows:
                self._left.add(client)
        elif event is Event.OPEN:
            self._settle()
            assert self._server is not None
            self._server.x, self._server.quiet = row[1 : 1 + n].copy(), int(scale)
            self._x = _frozen(self._server.x)
            chosen = self._rows[self._select(len(self._rows))]
            due = chosen[:0]
            if self._own.sends_hessians:
                due = chosen[self._times[chosen] % self._own.renew_every == 0]
            self._begin_round(CurvatureRound(self.tau, self._x, chosen, due))
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
        if self._models is not None:
            self._models.check_mine()
        try:
            yield
        except BaseException:
            if self._models is not None:
                self._restore()
            raise

    def _restore(self) -> None:
        """Be what the folder says."""
        folder = self._models
        assert folder is not None
        try:
            self._reset()
            arrays = folder.read()
            self.tau = folder.tau + 1
            if arrays:
                self._recall(arrays)
            for event, client, scale, row in folder.entries():
                self._happen(event, client, scale, row)
        except BaseException:
            folder.close()
            raise
        if self._members.any():
            log.info("restored round %d with %d clients", self.tau, self._members.sum())

    def _recall(self, arrays: Mapping[str, Any]) -> None:
        self._rows, self._times = arrays["rows"].astype(np.intp), arrays["times"].astype(np.int64)
        self._members[self._rows] = True
        self._x = _frozen(arrays["last"])
        k = len(self._rows)
        if k:
            whitened = self._own.coordinates == "whitened"
            models = self._own.models_of(
                arrays["models_blocks" if whitened else "models_B"], self._shape[1],
                bounded=self._bounded, copies=self._classes,
            )  # fmt: skip
            self._server = self._surrogates(k)
            self._server.restore(arrays, models)

    def _state(self) -> dict[str, Any]:
        own: dict[str, Any] = {
            "rows": self._rows.astype(np.int64),
            "times": self._times,
            "last": self._x,
        }
        return own if self._server is None else own | self._server.state()

    def _settings(self) -> dict[str, Any]:
        start = zlib.crc32(self._first.tobytes())
        return {
            "clients": self._shape[0], "features": self._shape[1], "classes": self._classes,
            "bounded": self._bounded, "start": f"{start:08x}",
            "seed": self._randomness.seed, "trial": self._randomness.trial,
            **self.algorithm.describe(),
        }  # fmt: skip


def _frozen(x: Array) -> Array:
    x = x.copy()
    x.flags.writeable = False
    return x
