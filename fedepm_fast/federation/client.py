"""Clients for real deployments: gradient, local steps, noise.

The counterparts of `fedepm_fast.federation.server.Server`. A `Client` holds parameters only: what
it must remember between rounds is a `ClientState`, kept wherever the framework keeps such things,
or, with `Client.remember` and `Client.recall`, in a file. A `PrivateClient` gives a guarantee, and
keeps a ledger of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.archives import read_archive, read_without_digest, write_archive
from .._common.files import check_writable_folder
from .._common.validation import check_array, check_int
from ..algorithms import Algorithm, AtClients
from ..randomness import CounterRandomness
from ._checks import check_point, resolve
from ._ledger import LARGEST_JUMP, UploadRefused, jump_fault
from ._private import PrivateClient, Spent, Upload

__all__ = ["Client", "ClientState", "PrivateClient", "Spent", "Upload", "UploadRefused"]

Array = NDArray[Any]


class ClientState(NamedTuple):
    """What a client remembers between rounds."""

    w: Array
    """Its parameter w_i, shape (n,)."""
    before: Array
    """w_i before the last round it took part in."""
    iterations: int
    """Local iterations up to the end of that round, counted by all clients alike; 0 at first."""


class Client:
    """A client of FedEPM, or of another algorithm whose clients keep w_i alone.

    Parameters
    ----------
    algorithm : FedEPM, or such another
        The parameters, the same as the server's.
    gradient : callable
        The gradient of f_i: a point of shape (n,) to an array of that shape and dtype.
    index : int
        The client's number, from 0.
    clients, features : int
        How many clients there are, m, and coordinates, n.
    samples : int
        The client's number of samples, d_i.
    seed, trial : int
        Of the noise. In a simulation the server's; in earnest a secret of the client's, or
        others can subtract the noise. The noise is not a differentially private mechanism in
        either case: for that see `PrivateClient`.
    path : path-like, optional
        The file for `remember` and `recall`; its folder is created if need be. Only its owner can
        read it: it holds the client's parameter, without noise.
    largest_jump : int
        How many rounds later than its last one, or than -1 before the first, a round may be that
        the client takes part in.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        gradient: Callable[[Array], Array],
        *,
        index: int,
        clients: int,
        features: int,
        samples: int,
        seed: int = 0,
        trial: int = 0,
        path: str | os.PathLike[str] | None = None,
        largest_jump: int = LARGEST_JUMP,
    ) -> None:
        m = check_int("clients", clients, low=1)
        self.index = check_int("index", index, high=m - 1)
        self.features = check_int("features", features, low=1)
        self.largest_jump = check_int("largest_jump", largest_jump, low=1)
        self.algorithm = resolve(algorithm, m, self.features)
        if self.algorithm.mechanism is not None:
            raise ValueError(
                "algorithm must have no mechanism: a Client does not clip nor account, "
                "PrivateClient does"
            )
        if not callable(gradient):
            raise TypeError(f"gradient must be callable, got {type(gradient).__name__}")
        self.gradient = gradient
        sizes = np.array([check_int("samples", samples, low=1)])
        self._sizes, self._hooks = sizes, self.algorithm.with_kernels()
        self._randomness = CounterRandomness(seed, trial)
        self._path = None if path is None else Path(path)
        if self._path is not None:
            check_writable_folder("path", self._path.parent)

    def join(self, x: ArrayLike) -> tuple[ClientState, Array]:
        """Begin at `x`, shape (n,): the state, and the first upload.

        Both are float64 or float32, as `x` is, in native byte order; of integers, float64.

        Raises
        ------
        ValueError, TypeError
            If `x` is not finite, of another shape, or not of such numbers.
        """
        w = check_point(x, self.features).copy()
        noise = self._unit_noise(-1) / self.algorithm.mu0
        return ClientState(w, w, 0), (w + noise).astype(w.dtype)

    def train(self, state: ClientState | None, x: ArrayLike, tau: int) -> tuple[ClientState, Array]:
        """Take part in round `tau` at the server's point `x`: the new state, and the upload.

        A client without a state, or one that lost it, begins at `x`. A round that is repeated,
        because the server was restarted or an answer got lost, gives the same upload again.
        The dtype is that of `x`, as for `join`.

        Raises
        ------
        ValueError, TypeError
            If `x`, the state, the gradient, or the new parameter is not finite, of another shape,
            or not of numbers, or `tau` is no round.
        UploadRefused
            If the round is further ahead than `largest_jump`.
        """
        x = check_point(x, self.features)
        tau, k0 = check_int("tau", tau), self.algorithm.local_steps
        last = -1
        if state is not None:
            state = _check_state(state, x)
            last = state.iterations // k0 - 1
        if fault := jump_fault(tau, last, self.largest_jump):
            raise UploadRefused(f"client {self.index} uploads nothing: {fault}")
        first = tau * k0
        w = x.copy()  # the state is the client's, whatever becomes of x
        if state is not None:
            w = state.before if state.iterations == first + k0 else state.w
        begin = self._hooks.round_start(w[None], np.full_like(x, np.nan)[None], x)
        clients = AtClients(tau, x, begin, self._gradient(0, x)[None], self._sizes, self._gradient)
        with np.errstate(over="ignore", invalid="ignore"):
            new, mu = self._hooks.local_round(clients)
        if not np.isfinite(new).all():
            raise ValueError(
                "the new parameter is not finite, or |w - x|^2 overflows: smaller steps, or a "
                "gradient of another size, are needed"
            )
        scale = self.algorithm.noise_model.scale(clients.G, self.algorithm.epsilon, mu)
        noise = scale[:, None] * self._unit_noise(tau)
        upload = self._hooks.upload(clients, new, noise)[0]
        return ClientState(new[0].astype(x.dtype), w, first + k0), upload.astype(x.dtype)

    def _gradient(self, row: int, w: Array) -> Array:
        return check_array("gradient", self.gradient(w), shape=w.shape, dtype=w.dtype)

    def remember(self, state: ClientState) -> None:
        """Keep a state in the client's file, atomically; nothing without a path."""
        if self._path is not None:
            arrays = {"w": state.w, "before": state.before}
            write_archive(self._path, {"iterations": state.iterations}, arrays, private=True)

    def recall(self) -> ClientState | None:
        """The state that was kept last, if there is one.

        Raises
        ------
        ValueError
            If the file does not hold a state of this client's shape, or is damaged.
        """
        if self._path is None or not self._path.exists():
            return None
        try:
            old = read_without_digest(self._path)
            if old:
                state = ClientState(old["w"], old["before"], int(old["iterations"]))
            else:
                header, (w, before) = read_archive(self._path, ["w", "before"])
                state = ClientState(w, before, int(header["iterations"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"path must hold a client's state: {self._path}: {error}") from None
        for name in ("w", "before"):
            array = getattr(state, name)
            check_array(f"{name} in {self._path}", array, shape=(self.features,), dtype=array.dtype)
        return state

    def _unit_noise(self, tau: int) -> Array:
        who = np.array([self.index], np.intp)
        return self.algorithm.noise_model.unit(self._randomness, tau, who, self.features)[0]


def _check_state(state: ClientState, x: Array) -> ClientState:
    """`state` with arrays like `x`."""
    if not isinstance(state, ClientState):
        raise TypeError(f"state must be a ClientState or None, got {type(state).__name__}")
    w, before = (
        check_array(f"state.{name}", getattr(state, name), shape=x.shape, dtype=x.dtype)
        for name in ("w", "before")
    )
    return ClientState(w, before, check_int("state.iterations", state.iterations))
