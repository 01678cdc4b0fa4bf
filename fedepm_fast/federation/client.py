"""Clients for real deployments: gradient, local steps, noise.

The counterparts of `fedepm_fast.federation.server.Server`. A `Client` holds parameters only: what
it must remember between rounds is a `ClientState`, kept wherever the framework keeps such things,
or, with `Client.remember` and `Client.recall`, in a file. A `PrivateClient` gives a guarantee, and
keeps a ledger of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.archives import read_archive, read_without_digest, write_archive
from .._common.files import check_writable_folder
from .._common.validation import check_array, check_int
from ..algorithms import Algorithm, AtClients
from ..objectives import ClientProblem, Problem
from ..participation import order_of_rows
from ..randomness import CounterRandomness
from ._alone import alone, told_by
from ._checks import check_point, check_shared, resolve, told_fault
from ._handover import Spent, ledger_account
from ._ledger import LARGEST_JUMP, UploadRefused, jump_fault
from ._private import PrivateClient
from ._private_rows import ALONE, Upload

__all__ = [
    "Client",
    "ClientState",
    "PrivateClient",
    "Spent",
    "Upload",
    "UploadRefused",
    "ledger_account",
]

Array = NDArray[Any]

#: What clients keep of algorithms that keep w_i alone.
NOTHING = np.zeros((0, 0))


class ClientState(NamedTuple):
    """What a client remembers between rounds."""

    w: Array
    """Its parameter w_i, shape (n,)."""
    before: Array
    """w_i before the last round it took part in."""
    iterations: int
    """Local iterations up to the end of that round, counted by all clients alike; 0 at first."""
    kept: Array = NOTHING
    """What it keeps beside w_i, a row for each of the algorithm's `keeps`, shape (k, n)."""
    kept_before: Array = NOTHING
    """That before the last round it took part in."""
    acknowledged: int = -1
    """The round that the server had acknowledged then, after which w_i was `before`."""

    def round(self, local_steps: int) -> int:
        """The last round it took part in, -1 if there is none."""
        return self.iterations // local_steps - 1


class Client:
    """A client of FedEPM, or of any other algorithm but CurvatureFedEPM and FedNL.

    Parameters
    ----------
    algorithm : FedEPM, or any other but CurvatureFedEPM and FedNL
        The parameters, the same as the server's.
    gradient : callable or ClientProblem
        The gradient of f_i: a point of shape (n,) to an array of that shape and dtype. It may have
        an attribute ``lipschitz``, a Lipschitz constant of it, and a method ``batch_gradient(w,
        rows)``, the gradient with the mean loss of these rows alone, integers below `samples`,
        which algorithms with batches need. Or f_i with the client's rows.
    index : int
        The client's number, from 0.
    clients, features : int
        How many clients there are, m, and coordinates, n.
    samples : int
        The client's number of samples, d_i.
    told : mapping of str to float, optional
        The numbers that the client tells the server when it joins, for each of the algorithm's
        `tells`, above 0; by default what follows of `gradient` and `samples`.
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
        gradient: Callable[[Array], Array] | ClientProblem,
        *,
        index: int,
        clients: int,
        features: int,
        samples: int,
        seed: int = 0,
        trial: int = 0,
        told: Mapping[str, float] | None = None,
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
        samples = check_int("samples", samples, low=1)
        self._problem = alone(self.algorithm, gradient, m, self.features, samples)
        #: What it tells the server when it joins, for each of the algorithm's `tells`.
        self.told = told_by(self.algorithm, self._problem, told)
        self._sizes, self._hooks = np.array([samples]), self.algorithm.with_kernels()
        self._randomness = CounterRandomness(seed, trial)
        self._path = None if path is None else Path(path)
        if self._path is not None:
            check_writable_folder("path", self._path.parent)

    def join(self, x: ArrayLike) -> tuple[ClientState, Array]:
        """Begin at `x`, shape (n,): the state, and the first upload, which goes with `told`.

        Both are float64 or float32, as `x` is, in native byte order; of integers, float64.

        Raises
        ------
        ValueError, TypeError
            If `x` is not finite, of another shape, or not of such numbers.
        """
        w = check_point(x, self.features).copy()
        noise = self._unit_noise(-1) / self.algorithm.mu0
        kept = self._nothing_kept(w)
        return ClientState(w, w, 0, kept, kept), (w + noise).astype(w.dtype)

    def train(
        self,
        state: ClientState | None,
        x: ArrayLike,
        tau: int,
        *,
        shared: Mapping[str, ArrayLike] | None = None,
        acknowledged: int | None = None,
        told: Mapping[str, float] | None = None,
    ) -> tuple[ClientState, Array]:
        """Take part in round `tau` at the server's point `x`: the new state, and the upload.

        A client without a state, or one that lost it, begins at `x`. A round that is repeated,
        because the server was restarted or an answer got lost, gives the same upload again.
        The dtype is that of `x`, as for `join`.

        Parameters
        ----------
        state : ClientState or None
        x : array_like of shape (n,)
        tau : int
        shared, acknowledged, told
            What `Server.message` has for the client, where the algorithm needs it. `acknowledged`
            is the round of its last upload that counts: a client whose later upload did not arrive
            goes on from the state before it.

        Raises
        ------
        ValueError, TypeError
            If `x`, the state, the gradient, or the new parameter is not finite, of another shape,
            or not of numbers, or `tau` is no round.
        UploadRefused
            If the round is further ahead than `largest_jump`; or if what the server shares counts
            on what the client has lost: it has to leave, and join again.
        """
        x = check_point(x, self.features)
        tau, k0 = check_int("tau", tau), self.algorithm.local_steps
        known = check_shared(self.algorithm, shared, x)
        if fault := told_fault(self.algorithm, told):
            raise ValueError(fault)
        last = -1
        if state is not None:
            state = self._check_state(state, x)
            last = state.round(k0)
        if fault := jump_fault(tau, last, self.largest_jump):
            raise UploadRefused(f"client {self.index} uploads nothing: {fault}")
        if self.algorithm.keeps:
            acknowledged = self._check_acknowledged(acknowledged, tau)
            w, kept = self._known_to_server(state, x, tau, acknowledged)
        else:  # w_i goes on, whatever arrives
            acknowledged, kept = -1, self._nothing_kept(x)
            w = x if state is None else state.before if last == tau else state.w
        w = w.copy()  # the state is the client's, whatever becomes of x
        begin = self._hooks.round_start(w[None], np.full_like(x, np.nan)[None], x)
        clients = AtClients(
            tau, x, begin, self._gradient(0, x)[None], self._sizes, self._gradient,
            dict(zip(self.algorithm.keeps, kept[:, None].copy(), strict=True)), known,
            {name: np.array([float(number)]) for name, number in (told or {}).items()},
            partial(self._order, tau), self._batch_gradient,
        )  # fmt: skip
        with np.errstate(over="ignore", invalid="ignore"):
            new, upload = self._work(clients)
        if not np.isfinite(new).all():
            raise ValueError(
                "the new parameter is not finite, or |w - x|^2 overflows: smaller steps, or a "
                "gradient of another size, are needed"
            )
        after = kept.copy()
        for row, one in zip(after, clients.kept.values(), strict=True):
            row[:] = one[0]
        if not np.isfinite(after).all():
            kinds = ", ".join(self.algorithm.keeps)
            raise ValueError(f"what the client keeps ({kinds}) is not finite: smaller steps")
        found = ClientState(new.astype(x.dtype), w, (tau + 1) * k0, after, kept, acknowledged)
        return found, upload.astype(x.dtype)

    def _work(self, clients: AtClients) -> tuple[Array, Array]:
        """The new w_i and the upload; what is kept changes in place."""
        new, mu = self._hooks.local_round(clients)
        if not np.isfinite(new).all():
            return new[0], new[0]
        problem, gap = cast(Problem, self._problem), clients.W - clients.x
        scale = self._hooks.noise_scale(problem, ALONE, gap, clients.G, mu, clients.tau, None)
        noise = scale[:, None] * self._unit_noise(clients.tau)
        return new[0], self._hooks.upload(clients, new, noise)[0]

    def _known_to_server(
        self, state: ClientState | None, x: Array, tau: int, acknowledged: int
    ) -> tuple[Array, Array]:
        """w_i, and what is kept, after the round that the server acknowledged."""
        if state is None and acknowledged == -1:
            return x, self._nothing_kept(x)
        last = -1 if state is None else state.round(self.algorithm.local_steps)
        if state is not None:
            if last == acknowledged:
                return state.w, state.kept
            if state.acknowledged == acknowledged:
                return state.before, state.kept_before
        if acknowledged != -1 and self.algorithm.shares:
            raise UploadRefused(
                f"client {self.index} uploads nothing: it has lost what it kept after round "
                f"{acknowledged}, on which what the server shares counts; it has to leave, and "
                "join again"
            )
        w = x if state is None else state.before if last == tau else state.w
        return w, self._nothing_kept(x)

    def _nothing_kept(self, x: Array) -> Array:
        return np.zeros((len(self.algorithm.keeps), self.features), x.dtype)

    def _check_acknowledged(self, acknowledged: Any, tau: int) -> int:
        if acknowledged is None:
            raise ValueError(
                f"acknowledged must be the server's: clients keep {', '.join(self.algorithm.keeps)}"
                ", got None"
            )
        return check_int("acknowledged", acknowledged, low=-1, high=tau - 1)

    def _order(self, tau: int, row: int, epoch: int) -> NDArray[np.intp]:
        return order_of_rows(self._randomness, tau, self.index, int(self._sizes[0]), epoch)

    def _gradient(self, row: int, w: Array) -> Array:
        found = self._problem.gradient(0, w)
        return check_array("gradient", found, shape=w.shape, dtype=w.dtype)

    def _batch_gradient(self, row: int, w: Array, rows: NDArray[np.intp]) -> Array:
        found = self._problem.batch_gradient(0, w, rows)
        return check_array("batch_gradient", found, shape=w.shape, dtype=w.dtype)

    def remember(self, state: ClientState) -> None:
        """Keep a state in the client's file, atomically; nothing without a path."""
        if self._path is not None:
            numbers = {name: int(getattr(state, name)) for name in ("iterations", "acknowledged")}
            arrays = {name: getattr(state, name) for name in self._names()}
            header = {**numbers, "arrays": list(arrays)}
            write_archive(self._path, header, arrays, private=True)

    def recall(self) -> ClientState | None:
        """The state that was kept last, if there is one.

        Raises
        ------
        ValueError
            If the file does not hold a state of this client's shape, or is damaged.
        """
        if self._path is None or not self._path.exists():
            return None
        names = self._names()
        try:
            found: dict[str, Any] = dict(read_without_digest(self._path))
            if not found:
                found, arrays = read_archive(self._path, names)
                found |= zip(found.get("arrays", names), arrays, strict=True)
            state = ClientState(
                iterations=int(found["iterations"]),
                acknowledged=int(found.get("acknowledged", -1)),
                **{name: found[name] for name in names},
            )
        except KeyError as error:
            raise ValueError(
                f"path must hold a client's state: {self._path}: it has no {error}"
            ) from None
        except (TypeError, ValueError) as error:
            raise ValueError(f"path must hold a client's state: {self._path}: {error}") from None
        return self._checked(state, "", f" in {self._path}", None)

    def _names(self) -> list[str]:
        """The arrays of a state."""
        return ["w", "before", *["kept", "kept_before"][: 2 * bool(self.algorithm.keeps)]]

    def _check_state(self, state: ClientState, x: Array) -> ClientState:
        """`state` with arrays like `x`."""
        if not isinstance(state, ClientState):
            raise TypeError(f"state must be a ClientState or None, got {type(state).__name__}")
        return self._checked(state, "state.", "", x.dtype)

    def _checked(self, state: ClientState, before: str, after: str, dtype: Any) -> ClientState:
        """`state` of finite arrays of its shapes, and of a dtype, if one is given.

        `before` and `after` are what errors put around an array's name.
        """
        kept, checked = (len(self.algorithm.keeps), self.features), dict[str, Any]()
        for name in self._names():
            array = getattr(state, name)
            checked[name] = check_array(
                f"{before}{name}{after}", array, shape=kept if "kept" in name else kept[1:],
                dtype=dtype or getattr(array, "dtype", np.float64),
            )  # fmt: skip
        for name, low in (("iterations", 0), ("acknowledged", -1)):
            check_int(f"{before}{name}{after}", getattr(state, name), low=low)
        return state._replace(**checked)

    def _unit_noise(self, tau: int) -> Array:
        who = np.array([self.index], np.intp)
        return self.algorithm.noise_model.unit(self._randomness, tau, who, self.features)[0]
