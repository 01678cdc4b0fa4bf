"""A server for real deployments: uploads, selection, validation, checkpoints.

`Server` needs no framework: whatever carries the messages tells it what came, and asks whom to
send what. One round is::

    tau, x, clients = server.open_round()       # of FedEPM x = ENS of all last uploads
    server.message(client)                      # what goes with x; nothing for FedEPM
    server.receive(tau, client, upload)         # for every reply; scale=... of a private one
    server.close_round()

`fedepm_fast.federation.client` has its counterparts, `fedepm_fast.flower` puts both sides behind
Flower. Driven over all clients they follow ``fedepm_fast.run`` of the same seed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.validation import check_int, check_real
from ..algorithms import Algorithm, AtServer
from ..kernels.ens import ens
from ..randomness import CounterRandomness
from ._checks import resolve, scale_fault, told_fault, upload_fault
from ._folder import Event
from ._memory import Memory, Shared
from ._plausible import largest_private, largest_upload
from ._rounds import Round, Rounds, frozen
from ._server_state import Uploads
from .aggregation import aggregate

Array = NDArray[Any]

#: The clients' numbers of samples, which no server is told.
_UNKNOWN = np.empty(0, np.int64)


class Server(Rounds[float, Round]):
    """The server's state: every client's last upload, the members, and the round.

    Parameters
    ----------
    algorithm : FedEPM, or any other but CurvatureFedEPM and FedNL
        The parameters, the same for server and clients. With a mechanism every upload comes with
        the scale of its noise, which is public; see `aggregation` for what it is used for.
    clients : int
        How many clients there can be, m; they are numbered from 0. A client is a member, and
        counts in the aggregate and the selection, from its first valid upload on.
    features : int
        Coordinates, n.
    seed, trial : int
        Of the selection, a pure function of these, the round, and the members.
    dtype : float64 or float32
        Of every upload.
    path : path-like, optional
        A folder for all that the server knows, with the uploads in a memory-mapped array; see
        Notes. It is created if need be, and for one server at a time, until `close` or the end
        of the process; by default everything is in memory, and nothing survives. Only its owner
        can read the files.
    sync : bool
        Whether `join` and `leave` wait for the disk.
    largest : float, optional
        Uploads with an entry beyond this in absolute value are rejected: one client that sends
        1e300 shifts the mean, and with it ENS, unless `lam / eta` is as large. By default that is
        2**40 times the larger of 1 and the server's point; with a mechanism as many scales of the
        noise, beyond which an honest client uploads nothing. So no upload ends the rounds of the
        others, but far less still shifts their mean. So does, where uploads weigh by their inverse
        variance, one that claims to have hardly any noise; or one that tells a weight or a learning
        rate that is not its own, which the server cannot know.
    threads : int, optional
        Of the aggregation; the same bits for any number.

    Raises
    ------
    ValueError, TypeError
        Naming the argument; also if `path` holds the state of another run, or one that is
        damaged: all that is used of it is checked against checksums.
    RuntimeError
        If another server has the folder.
    OSError
        Naming the file, here and in every method, if the disk is full. The call has changed
        nothing then, and can be repeated: of a server that is not made no file is left.

    Notes
    -----
    With a `path`, what a method has answered outlives the process: a server that was killed goes
    on where it was, with the members, the open round and its accepted uploads, to the same results.
    It outlives a loss of power as well from `join` and `leave` on (with `sync`), and from
    `open_round` and `close_round` on. Accepted uploads of a round that is still open may be lost
    with the power; their clients have not replied, then, and may be asked again.

    A forked process has no part in it: there, methods that change the server raise RuntimeError.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        clients: int,
        features: int,
        *,
        seed: int = 0,
        trial: int = 0,
        dtype: Any = np.float64,
        path: str | os.PathLike[str] | None = None,
        largest: float | None = None,
        threads: int | None = None,
        sync: bool = True,
    ) -> None:
        m, n = check_int("clients", clients, low=1), check_int("features", features, low=1)
        self._shape = m, n
        self.algorithm = resolve(algorithm, m, n)
        self.threads = None if threads is None else check_int("threads", threads, low=1)
        # Not a method of this server, which would live on, and with it its lock, until collected.
        self._hooks = self.algorithm.with_kernels(partial(_ens, threads=self.threads))
        self._by_kernels = self._hooks is not self.algorithm
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float64, np.float32):
            raise TypeError(f"dtype must be float64 or float32, got {self.dtype}")
        self.largest = None if largest is None else check_real("largest", largest, low=0.0)
        super().__init__(m, self.algorithm, CounterRandomness(seed, trial), sync=sync)
        #: Of the noise of every client's last upload, shape (m,); NaN for the first ones.
        self.scales = np.full(m, np.nan)
        #: The point of the open or the next round, if it is known, and what is sent beside it.
        self._next: tuple[Array, Shared] | None = None
        self._memory = Memory(self.algorithm, m, n, self.dtype)
        #: Every client's last upload, shape (m, n).
        self.Z: Array
        self._folder: Uploads | None = None
        if path is None:
            self.Z = np.zeros((m, n), self.dtype)
        else:
            self._folder = Uploads(path, self._settings(), (m, n), self.dtype)
            self._restore()

    # What is known ----------------------------------------------------------------------

    @property
    def x(self) -> Array:
        """The server's point, for FedEPM ENS of the members' last uploads, (n,), read-only.

        Raises
        ------
        RuntimeError
            If there is no member, or the point, or what is shared with it, is not finite.
        """
        return self._point()[0]

    def _point(self) -> tuple[Array, Shared]:
        if self._next is None:
            members, memory = self.members, self._memory
            if len(members) == 0:
                raise RuntimeError("no client has joined: the server has no upload to aggregate")
            Z: Any = self.Z
            if len(members) < len(self.Z) or self._folder is not None:
                Z = np.asarray(self.Z)  # rows of a memory map are slower to come by
                Z = [Z[i] for i in members.tolist()] if self._by_kernels else Z[members]
            draft = memory.draft()
            with np.errstate(all="ignore"):  # found below
                x = self._hooks.aggregate(
                    AtServer(
                        self.tau, Z, self._select(len(members)),
                        memory.uploaded(members, self.tau), _UNKNOWN, self.scales[members],
                        memory.x.copy(), draft, memory.agreed(members),
                    )
                )  # fmt: skip
                found = frozen(np.asarray(x, self.dtype)), memory.sent(draft)
            for name, array in {"x": found[0], **found[1]}.items():
                if not np.isfinite(array).all():
                    raise RuntimeError(
                        f"{name} of round {self.tau} is not finite: the steps are too long, or a "
                        "client sent numbers that are too large to be true; largest rejects such "
                        "uploads, and who has sent them can leave"
                    )
            self._next = found
        return self._next

    # A round ----------------------------------------------------------------------------

    def open_round(self) -> Round:
        """Aggregate, and select this round's clients; the open round if there is one.

        Raises
        ------
        RuntimeError
            As `x` does. Nothing has changed then.
        """
        if self._open is None:
            x, shared = self._point()
            for place, row in enumerate(shared.values()):
                self._do(Event.SHARE, place, row=row)
            self._do(Event.OPEN, row=x)
        assert self._open is not None
        return self._open

    def message(self, client: int) -> dict[str, Any]:
        """What a selected client is sent beside x and tau, for `Client.train` by keyword.

        Nothing for FedEPM. ``shared`` are the vectors that the algorithm `shares`, for each name
        (n,), read-only; ``acknowledged``, where clients keep something, is the round of the
        client's last upload that counts, -1 if none does; ``told``, of an algorithm that `tells`,
        what has become of the client's numbers.

        Raises
        ------
        RuntimeError
            If no round is open.
        ValueError
            If the client was not selected, or has left.
        """
        if self._open is None:
            raise RuntimeError("no round is open")
        fault = self._unknown(client)
        if not fault and not (self._asked[client] and self._members[client]):
            fault = "it was not selected"
        if fault:
            raise ValueError(f"client must be one of the round: {fault}, got {client!r}")
        return self._memory.message(client, self._point()[1])

    def receive(self, tau: int, client: int, upload: Any, *, scale: float | None = None) -> bool:
        """A selected client's upload of round `tau`; whether it was accepted.

        With a mechanism `scale` is that of its noise. A fault is logged with the client's name and
        counted in `rejections`, and the client's last upload stays.
        """
        fault = (
            self._stale(tau, client)
            or scale_fault(self.algorithm, scale)
            or self._fault(upload, scale)
            or self._unlikely(int(client), upload, scale)
        )
        if fault:
            return self.reject(client, fault)
        # Without a mechanism the scale only tells that the upload is not a first one.
        self._do(Event.RECEIVE, int(client), 1.0 if scale is None else float(scale), upload)
        return True

    def close_round(self) -> NDArray[np.intp]:
        """End the round: the clients whose uploads were accepted, in increasing order.

        Selected clients that sent nothing are logged; their last uploads stay.
        """
        self._ending()
        accepted = np.array(sorted(self._accepted), np.intp)
        members, scales = self._members.copy(), self.scales.copy()
        members[list(self._joined)] = True
        for change in (self._accepted, self._joined):
            scales[list(change)] = list(change.values())
        memory = self._memory.ended(self.tau, accepted)
        if self._folder is not None:
            self._folder.end_round(members, scales, accepted, memory)
        self._memory.recall(memory)
        self.tau, self._members, self.scales = self.tau + 1, members, scales
        self._open = self._next = None
        self._joined = {}
        return accepted

    # Members ----------------------------------------------------------------------------

    def join(
        self,
        client: int,
        upload: Any,
        *,
        scale: float | None = None,
        told: Mapping[str, float] | None = None,
    ) -> bool:
        """A client's first upload; whether it was accepted.

        The client is a member at once, or from the end of an open round on. A private client that
        has been one before sends its last upload, and the `scale` of its noise. `told` are its
        numbers of the algorithm's `tells`, if there are such: ``Client.told``.
        """
        fault = (
            self._not_new(client)
            or (scale_fault(self.algorithm, scale) if scale is not None else "")
            or self._fault(upload, scale)
            or self._unlikely(int(client), upload, scale)
            or told_fault(self.algorithm, told)
        )
        if fault:
            return self.reject(client, fault)
        for name in self.algorithm.tells:
            self._do(Event.TELL, int(client), float((told or {})[name]))
        self._do(Event.JOIN, int(client), np.nan if scale is None else float(scale), upload)
        return True

    # What happens -----------------------------------------------------------------------

    def _happen(self, event: Event, client: int, scale: float, row: Array | None) -> None:
        memory = self._memory
        if event is Event.TELL:
            memory.tell(client, scale)
        elif event is Event.SHARE:
            assert row is not None
            memory.share(client, row)
        elif event is Event.JOIN:
            self.Z[client] = row
            memory.join(client)
            if self._open is None:
                self._members[client], self.scales[client] = True, scale
                self._next = None
            else:
                self._joined[client] = scale
        elif event is Event.LEAVE:
            self._forget(client)
            memory.leave(client)
            if self._open is None:
                self._next = None
        elif event is Event.OPEN:
            members = self.members
            assert row is not None
            x = frozen(row)
            self._next = x, memory.open(x, members)
            self._begin_round(Round(self.tau, x, members[self._select(len(members))]))
        else:
            if self._folder is None:  # else the journal has it until the round ends
                self.Z[client] = row
            self._accepted[client] = scale

    def _recall(self) -> None:
        folder = self._folder
        assert folder is not None
        self.tau, self.Z = folder.tau, folder.Z
        self._members, self.scales = folder.members.copy(), folder.scales.copy()
        self._memory.recall(folder.memory)

    # Faults -----------------------------------------------------------------------------

    def _fault(self, upload: Any, scale: float | None) -> str:
        most = self._most(scale) if self.largest is None else self.largest
        return upload_fault(upload, self._shape[1], self.dtype, most)

    def _most(self, scale: float | None) -> float:
        """The largest entry of an upload, where nobody has said it."""
        if scale is not None:
            assert self.algorithm.mechanism is not None
            return largest_private(self.algorithm.mechanism, scale)
        return largest_upload(self._last_point)

    @property
    def _last_point(self) -> Array | None:
        """The point of the open round, or the next one's if it is known."""
        if self._open is not None:
            return self._open.x
        return None if self._next is None else self._next[0]

    def _unlikely(self, client: int, upload: Array, scale: float | None) -> str:
        """Why no honest client sends such an upload, which is well-formed."""
        return ""

    def _settings(self) -> dict[str, Any]:
        return {
            "clients": self._shape[0],
            "features": self._shape[1],
            "dtype": str(self.dtype),
            "seed": self._randomness.seed,
            "trial": self._randomness.trial,
            **self.algorithm.describe(),
        }


def _ens(Z: Any, c: float, weights: Array | None = None, threads: int | None = None) -> Array:
    solve = ens if isinstance(Z, np.ndarray) else aggregate
    return solve(Z, c, weights=weights, threads=threads)
