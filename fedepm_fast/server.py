"""FedEPM's server for real deployments: uploads, selection, validation, checkpoints.

`Server` needs no framework: whatever carries the messages tells it what came, and asks whom to
send what. One round is::

    tau, x, clients = server.open_round()       # x = ENS of all last uploads
    server.receive(tau, client, upload)         # for every reply; scale=... of a private one
    server.close_round()

`fedepm_fast.client` has its counterparts, `fedepm_fast.flower` puts both sides behind Flower.
Driven over all clients they follow ``fedepm_fast.run`` of the same seed.
"""

from __future__ import annotations

import json
import logging
import os
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ._files import check_writable_folder, replacing
from ._validation import check_finite, check_int, check_real
from .aggregation import aggregate
from .algorithms import FedEPM
from .kernels.ens import ens
from .participation import clients_per_round, select
from .randomness import CounterRandomness

Array = NDArray[Any]

log = logging.getLogger(__name__)


class Round(NamedTuple):
    """What the selected clients need to know."""

    tau: int
    x: Array
    """The server's point, shape (n,)."""
    clients: NDArray[np.intp]
    """Who takes part, in increasing order."""


def resolve(algorithm: FedEPM, clients: int, features: int) -> FedEPM:
    """`algorithm` with its defaults for so many clients and coordinates filled in.

    Server and clients must agree on them: `lam` and `eta` depend on the number of clients.
    """
    if not isinstance(algorithm, FedEPM):
        raise TypeError(f"algorithm must be FedEPM(...), got {type(algorithm).__name__}")
    if algorithm.mechanism is None:
        if algorithm.start not in (None, "own"):
            raise ValueError(
                f"algorithm must have start 'own' without a mechanism, got {algorithm.start!r}"
            )
    elif algorithm.mechanism.clip is None:
        raise ValueError(
            "mechanism must have its clip given: the default depends on all clients' sizes"
        )
    known = SimpleNamespace(n_clients=clients, n_parameters=features, n_samples=None)
    return algorithm.resolve(cast(Any, known))


class Server:
    """The server's state: every client's last upload, the members, and the round.

    Parameters
    ----------
    algorithm : FedEPM
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
        A folder for a memory-mapped array of uploads, and for the state after each round: a
        server that was killed goes on at the round it was in, with the same results. It is
        created if need be, and for one server at a time; by default everything is in memory, and
        nothing survives.
    largest : float, optional
        Uploads with an entry beyond this in absolute value are rejected: one client that sends
        1e300 shifts the mean, and with it ENS, unless `lam / eta` is as large. So does, where
        uploads weigh by their inverse variance, one that claims to have hardly any noise.
    threads : int, optional
        Of the aggregation; the same bits for any number.

    Raises
    ------
    ValueError, TypeError
        Naming the argument; also if `path` holds the state of another run.
    """

    def __init__(
        self,
        algorithm: FedEPM,
        clients: int,
        features: int,
        *,
        seed: int = 0,
        trial: int = 0,
        dtype: Any = np.float64,
        path: str | os.PathLike[str] | None = None,
        largest: float | None = None,
        threads: int | None = None,
    ) -> None:
        m, n = check_int("clients", clients, low=1), check_int("features", features, low=1)
        self._shape = m, n
        self.algorithm = resolve(algorithm, m, n)
        self._randomness = CounterRandomness(seed, trial)
        if self.algorithm.coverage_rounds is not None:
            for k in range(m, 0, -1):  # so many members there may be
                self.algorithm.check_coverage(k)
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float64, np.float32):
            raise TypeError(f"dtype must be float64 or float32, got {self.dtype}")
        self.largest = None if largest is None else check_real("largest", largest, low=0.0)
        self.threads = None if threads is None else check_int("threads", threads, low=1)
        self.tau = 0
        self._members = np.zeros(m, bool)
        #: Of the noise of every client's last upload, shape (m,); NaN for the first ones.
        self.scales = np.full(m, np.nan)
        #: Who will be a member, and the scale of the noise of the upload.
        self._joined: dict[int, float] = {}
        self._open: Round | None = None
        self._x: Array | None = None
        #: Selected clients whose reply was accepted (its noise's scale), or refused, in this round.
        self._accepted: dict[int, float] = {}
        self._refused: set[int] = set()
        self._path: Path | None = None
        self._inbox: Array | None = None
        #: Every client's last upload, shape (m, n).
        self.Z: Array = np.zeros((0, n), self.dtype)
        if path is None:
            self.Z = np.zeros((m, n), self.dtype)
        else:
            self._path = check_writable_folder("path", path)
            self._restore(self._path)

    # What is known ----------------------------------------------------------------------

    @property
    def members(self) -> NDArray[np.intp]:
        """The clients that count, in increasing order."""
        return np.flatnonzero(self._members)

    @property
    def x(self) -> Array:
        """The server's point, ENS of the members' last uploads, shape (n,), read-only.

        Raises
        ------
        RuntimeError
            If there is no member.
        """
        if self._open is None:
            self._admit()
        if self._x is None:
            members = self.members
            if len(members) == 0:
                raise RuntimeError("no client has joined: the server has no upload to aggregate")
            lam, eta = self.algorithm.weights
            weights = self.algorithm.upload_weights(self.scales[members])
            if len(members) == len(self.Z) and not isinstance(self.Z, np.memmap):
                self._x = ens(self.Z, lam / eta, weights=weights, threads=self.threads)
            else:
                rows = [self.Z[i] for i in members]
                self._x = aggregate(rows, lam / eta, weights=weights, threads=self.threads)
            self._x.flags.writeable = False
        return self._x

    # A round ----------------------------------------------------------------------------

    def open_round(self) -> Round:
        """Aggregate, and select this round's clients; the open round if there is one."""
        if self._open is None:
            x, members = self.x, self.members
            chosen = select(
                self._randomness,
                self.tau,
                len(members),
                self._per_round(len(members)),
                self.algorithm.coverage_rounds,
            )
            # From here on the inbox is written to, and no longer the last round's.
            self._save(inbox=[])
            self._accepted, self._refused = {}, set()
            self._open = Round(self.tau, x, members[chosen])
        return self._open

    def receive(self, tau: int, client: int, upload: Any, *, scale: float | None = None) -> bool:
        """A selected client's upload of round `tau`; whether it was accepted.

        With a mechanism `scale` is that of its noise. A fault is logged with the client's name,
        and the client's last upload stays.
        """
        known = self._open is not None and _is_int(client) and client in self._open.clients
        fault = self._stale(tau, client) or self._fault(upload) or self._scale_fault(scale)
        if fault:
            if known:
                self._refused.add(int(client))
            return self.reject(client, fault)
        assert self._open is not None
        if self._inbox is None:
            self.Z[client] = upload
        else:
            self._inbox[np.searchsorted(self._open.clients, client)] = upload
        # Without a mechanism it only tells that the upload is not a first one.
        self._accepted[int(client)] = 1.0 if scale is None else float(scale)
        return True

    def reject(self, client: Any, fault: str) -> bool:
        """Log that something of `client` is not used, and why; False."""
        if self._open is not None and _is_int(client):
            self._refused.add(int(client))
        log.warning("round %d: client %s rejected: %s", self.tau, client, fault)
        return False

    def close_round(self) -> NDArray[np.intp]:
        """End the round: the clients whose uploads were accepted, in increasing order.

        Selected clients that sent nothing are logged; their last uploads stay.
        """
        if self._open is None:
            raise RuntimeError("no round is open")
        for client in self._open.clients:
            if client not in self._accepted.keys() | self._refused:
                self.reject(client, "no reply in time")
        accepted = np.array(sorted(self._accepted), np.intp)
        slots = np.searchsorted(self._open.clients, accepted)
        self.scales[accepted] = [self._accepted[i] for i in accepted.tolist()]
        self.tau += 1
        self._open = self._x = None
        if self._inbox is not None:
            _flush(self._inbox)
            self._save(inbox=list(zip(slots.tolist(), accepted.tolist(), strict=True)))
            self._take(slots, accepted)
        return accepted

    # Members ----------------------------------------------------------------------------

    def join(self, client: int, upload: Any, *, scale: float | None = None) -> bool:
        """A client's first upload; whether it was accepted.

        The client is a member from the next round on. A private client that has been one before
        sends its last upload, and the `scale` of its noise.
        """
        fault = self._unknown(client)
        if not fault and (self._members[client] or client in self._joined):
            fault = "it has joined already"
        fault = fault or self._fault(upload)
        if not fault and scale is not None:
            fault = self._scale_fault(scale)
        if fault:
            return self.reject(client, fault)
        self.Z[client] = upload
        self._joined[int(client)] = np.nan if scale is None else float(scale)
        return True

    def leave(self, client: int) -> None:
        """Forget a member's upload; it may join again. A round that is open goes on."""
        fault = self._unknown(client)
        if fault:
            raise ValueError(f"client must be one of 0 to {len(self._members) - 1}: {fault}")
        self._joined.pop(client, None)
        if self._members[client]:
            self._members[client] = False
            self._accepted.pop(client, None)
            self._refused.add(client)
            if self._open is None:
                self._x = None
            self._save(inbox=[])
            log.info("round %d: client %s left", self.tau, client)

    def _admit(self) -> None:
        if self._joined:
            self._members[list(self._joined)] = True
            self.scales[list(self._joined)] = list(self._joined.values())
            self._joined.clear()
            self._x = None
            self._save(inbox=[])

    def _per_round(self, members: int) -> int:
        return clients_per_round(self.algorithm.participation, members)

    # Faults -----------------------------------------------------------------------------

    def _unknown(self, client: Any) -> str:
        m = self._shape[0]
        if not _is_int(client) or not 0 <= client < m:
            return f"clients are numbered 0 to {m - 1}, got {client!r}"
        return ""

    def _stale(self, tau: Any, client: Any) -> str:
        if self._open is None:
            return f"no round is open, got an upload of round {tau!r}"
        fault = self._unknown(client)
        if fault:
            return fault
        if not _is_int(tau) or tau != self.tau:
            return f"upload must be of round {self.tau}, got round {tau!r}"
        if client not in self._open.clients or not self._members[client]:
            return "it was not selected"
        return "it has replied already" if client in self._accepted else ""

    def _fault(self, upload: Any) -> str:
        """What is wrong with an upload, in words; nothing is converted or repaired."""
        n = self._shape[1]
        if np.ma.isMaskedArray(upload) or not isinstance(upload, np.ndarray):
            return f"upload must be an array, got {type(upload).__name__}"
        if upload.dtype != self.dtype:
            return f"upload must have dtype {self.dtype}, got {upload.dtype}"
        if upload.shape != (n,):
            return f"upload must have shape ({n},), got {upload.shape}"
        try:
            check_finite("upload", upload)
        except ValueError as error:
            return str(error)
        if self.largest is not None:
            size = float(max(upload.max(), -upload.min()))
            if size > self.largest:
                return f"upload must be at most {self.largest:g} in absolute value, got {size:g}"
        return ""

    def _scale_fault(self, scale: Any) -> str:
        """What is wrong with the scale of an upload's noise, in words."""
        if self.algorithm.mechanism is None:
            return "" if scale is None else f"scale must be None without a mechanism, got {scale!r}"
        try:
            check_real("scale", scale, low=0.0, open_low=True)
        except (TypeError, ValueError) as error:
            return str(error)
        return ""

    # On disk ----------------------------------------------------------------------------
    #
    # `state.npz` is replaced atomically. A round's uploads go to the inbox; closing it writes
    # the state, which lists them, and then copies them to the array. A kill in between is made
    # good by copying them again. A joining client's row is no one else's until the state says
    # that it is a member.

    def _save(self, *, inbox: list[tuple[int, int]]) -> None:
        if self._path is None:
            return
        _flush(self.Z)
        with replacing(self._path / "state.npz") as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                settings=json.dumps(self._settings()),
                tau=self.tau,
                members=self._members,
                scales=self.scales,
                inbox=np.array(inbox, np.int64).reshape(-1, 2),
            )

    def _settings(self) -> dict[str, Any]:
        return {
            "clients": self._shape[0],
            "features": self._shape[1],
            "dtype": str(self.dtype),
            "seed": self._randomness.seed,
            "trial": self._randomness.trial,
            **self.algorithm.describe(),
        }

    def _restore(self, folder: Path) -> None:
        state, inbox = folder / "state.npz", np.empty((0, 2), np.int64)
        if state.exists():
            inbox = self._load(state)
        elif (folder / "uploads.npy").exists():
            raise ValueError(f"path holds uploads.npy without its state.npz: {folder}")
        else:
            self._save(inbox=[])
        # Without members no one's uploads are at stake, and a kill may have come before the files.
        mode = "r+" if self._members.any() else "w+"
        m, n = self._shape
        self.Z = self._map(folder / "uploads.npy", mode, (m, n))
        self._inbox = self._map(folder / "inbox.npy", mode, (self._per_round(m), n))
        self._take(*inbox.T)
        if self._members.any():
            log.info("restored round %d with %d clients", self.tau, self._members.sum())

    def _load(self, state: Path) -> NDArray[np.int64]:
        """Read the state, if it is of this run: the slots and clients in the inbox."""
        try:
            with state.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                found = json.loads(str(saved["settings"]))
                tau, members, inbox = int(saved["tau"]), saved["members"], saved["inbox"]
                # States from before there were scales are of runs that do not use them.
                scales = saved.get("scales", self.scales)
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"path must hold a server's state: {state}: {error}") from None
        for name, value in self._settings().items():
            if found.get(name) != value:
                raise ValueError(
                    f"path holds a run with {name} = {found.get(name)!r}, got {value!r}: {state}"
                )
        self.tau, self._members, self.scales = tau, members, scales
        return inbox

    def _map(self, path: Path, mode: Any, shape: tuple[int, int]) -> Array:
        if mode == "w+":
            return np.lib.format.open_memmap(path, mode, self.dtype, shape)
        try:
            array = np.lib.format.open_memmap(path, mode)
        except (OSError, ValueError) as error:
            raise ValueError(f"path must hold {path.name} beside its state: {error}") from None
        if array.shape != shape or array.dtype != self.dtype:
            raise ValueError(f"{path} must be {self.dtype}{shape}, got {array.dtype}{array.shape}")
        return array

    def _take(self, slots: NDArray[np.integer], clients: NDArray[np.integer]) -> None:
        assert self._inbox is not None
        for slot, client in zip(slots, clients, strict=True):
            self.Z[client] = self._inbox[slot]


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _flush(array: Array) -> None:
    if isinstance(array, np.memmap):
        array.flush()
