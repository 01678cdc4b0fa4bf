"""What a worker does for the clients whose rows it holds."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ..data import FederatedData
from ..kernels import _engine_state as arrays
from ..objectives import Objective, Problem

Array = NDArray[np.float64]

#: Different labels that are told, at most; of more, which are numbers, the smallest and largest.
_LABELS = 1000


class Facts(NamedTuple):
    """What is told of some clients' rows: no row, and of labels which there are, and how many."""

    sizes: NDArray[np.int64]
    features: int
    sparse: bool
    names: tuple[str, ...] | None
    labels: Array
    counts: NDArray[np.int64]
    largest: float
    weighted: bool
    mapping: Any


@dataclass(frozen=True, eq=False)
class PartProblem(Problem):
    """The f_i of some of the clients: as `ClientProblem` is of one."""

    clients: int = 1
    weight_sum: float = 0.0

    @property
    def _whole(self) -> tuple[int, float]:
        return self.clients, self.weight_sum

    def kernel_values(self, x: Array) -> Array:
        """f_i, compiled."""
        from ..kernels import losses

        return np.asarray(losses.values(self.rows, x, reg=self.reg))


class Spec(NamedTuple):
    """What a run's clients need to know before its first round; arrays are of all clients."""

    algorithm: Algorithm
    objective: Objective
    client_weight: str
    clients: int
    weight_sum: float
    problem: arrays.ClientProblem
    settings: arrays.Settings
    key: arrays.Key
    given: arrays.Given


class Message(NamedTuple):
    """What clients are sent in a round."""

    tau: int
    x: Array
    shared: Array
    selected: NDArray[np.int64]
    """Which of them take part, by their numbers among all."""
    W: Array
    """Of those, as all that follows."""
    Z: Array
    kept: Array
    works: bool
    """Whether those go on to their local steps."""


class Reply(NamedTuple):
    """What clients answer."""

    values: Array
    """f_i of every client, and gradients."""
    G: Array
    ok: bool
    """Whether the local steps went well."""
    W: Array
    """Of those that took part, as all that follows."""
    Z: Array
    kept: Array
    noise_scale: Array
    snr: Array
    seconds: tuple[float, float]
    """Of their gradients, and of what came after."""


def piece_of(*given: Any) -> FederatedData:
    """A piece as clients: `FederatedData`, or one client's features and labels."""
    (found,) = given if len(given) == 1 else (given,)
    if isinstance(found, FederatedData):
        return found
    if isinstance(found, (tuple, list)) and len(found) == 2:
        return FederatedData.from_clients([tuple(found)])
    raise TypeError(
        "data must be of pieces that are FederatedData or (features, labels), got "
        f"{type(found).__name__}"
    )


def facts_of(piece: FederatedData) -> Facts:
    """What the driver is told of a piece."""
    values, counts = np.unique(piece.labels, return_counts=True)
    if len(values) > _LABELS:
        values, counts = values[[0, -1]], np.zeros(2, np.int64)
    entries = piece.features.data if piece.is_sparse else piece.features
    largest = max(float(np.abs(entries).max(initial=0.0)), float(np.abs(values).max()))
    return Facts(
        piece.client_sizes, piece.n_features, piece.is_sparse, piece.feature_names, values,
        counts, largest, piece.sample_weight is not None, piece.label_mapping,
    )  # fmt: skip


class Parcel:
    """The pieces that one worker holds, and the numbers of their clients among all."""

    def __init__(self, pieces: Sequence[FederatedData], numbers: Sequence[NDArray[np.int64]]):
        self.pieces = list(zip(pieces, numbers, strict=True))
        self.numbers = np.concatenate(numbers)
        self._problems: tuple[Any, Any] = (None, None)

    def problems(self, *described: Any) -> list[tuple[PartProblem, NDArray[np.int64]]]:
        """The problems of the pieces, and their clients' numbers.

        `described` is an objective, the weight of clients, and how many and how heavy all are.
        """
        if self._problems[0] != described:
            objective, client_weight, m, s = described
            made = [
                (PartProblem(piece, objective, client_weight, clients=m, weight_sum=s), numbers)
                for piece, numbers in self.pieces
            ]
            self._problems = described, made
        found: list[tuple[PartProblem, NDArray[np.int64]]] = self._problems[1]
        return found

    def __reduce__(self) -> Any:
        return Parcel, tuple(zip(*self.pieces, strict=True))


class Working:
    """A parcel at work in a run.

    Its rounds are functions of their messages alone: what it keeps between them is memory to
    work in. Sent to another worker it is made anew there.
    """

    def __init__(self, parcel: Parcel, spec: Spec) -> None:
        from ..kernels import engine as kernel
        from ..kernels.engine._one_by_one import OneByOne

        self._made_of = parcel, spec
        self.numbers = parcel.numbers
        algorithm, m = spec.algorithm, spec.clients
        weights = np.ones(m)
        self._parts: list[tuple[OneByOne, Any, Any, NDArray[np.int64]]] = []
        described = spec.objective, spec.client_weight, m, spec.weight_sum
        for problem, numbers in parcel.problems(*described):
            weights[numbers] = problem.client_weights
            rows = problem.rows.spread(numbers, m)
            own = None if (weights[numbers] == 1).all() else weights
            law = algorithm.noise_model.law.rows
            _, local_round = algorithm.stages(kernel.objective_of(rows, own))
            upload = kernel.upload_of(law)
            # Of other clients there is no row, and of their memory no page is ever touched.
            state = arrays.new_state(
                m, problem.n_parameters, kept=len(algorithm.keeps), shared=len(algorithm.shares),
                work=kernel.losses.workspace(rows),
            )  # fmt: skip
            call = OneByOne(
                rows, (spec.problem, spec.settings, spec.key, spec.given, state),
                batches=algorithm.draws_batches, weights=own,
                law=law if spec.settings.noise_factor > 0.0 else None,
            )  # fmt: skip
            self._parts.append((call, local_round, upload, numbers))
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return Working, self._made_of

    def round(self, message: Message) -> Reply:
        """A round of these clients."""
        with self._lock, np.errstate(all="ignore"):
            return self._round(message)

    def _round(self, message: Message) -> Reply:
        tau, n, chosen = message.tau, len(message.x), message.selected
        values, gradients = np.empty(len(self.numbers)), np.empty((len(self.numbers), n))
        s, ok, first, asking, working = len(chosen), True, 0, 0.0, 0.0
        W, Z, kept = np.empty((s, n)), np.empty((s, n)), np.empty(message.kept.shape)
        scale, snr = np.empty(s), np.empty(s)
        for call, local_round, upload, numbers in self._parts:
            state, last = call.state, first + len(numbers)
            state.x[:], state.shared[:] = message.x, message.shared
            mine = np.isin(chosen, numbers)
            S = chosen[mine]
            began = perf_counter()
            for i in S.tolist():
                call.evaluate(i)
            asking += perf_counter() - began
            for i in np.setdiff1d(numbers, S, assume_unique=True).tolist():
                call.evaluate(i)
            values[first:last], gradients[first:last] = state.values[numbers], state.G[numbers]
            first = last
            if not message.works or not len(S):
                continue
            began = perf_counter()
            state.selected[: len(S)], state.n_selected[0] = S, len(S)
            state.W[S], state.Z[S] = message.W[mine], message.Z[mine]
            state.kept[:, S] = message.kept[:, mine]
            ok = ok and call(local_round, tau) and call(upload, tau)
            working += perf_counter() - began
            W[mine], Z[mine], kept[:, mine] = state.W[S], state.Z[S], state.kept[:, S]
            scale[mine], snr[mine] = state.noise_scale[S], state.snr[S]
        return Reply(values, gradients, ok, W, Z, kept, scale, snr, (asking, working))


def ask(parcel: Parcel, asked: str, problem: tuple[Any, ...], *arguments: Any) -> list[Any]:
    """A method of `Problem` of every piece."""
    return [getattr(part, asked)(*arguments) for part, _ in parcel.problems(*problem)]


def ask_some(
    parcel: Parcel, asked: str, problem: tuple[Any, ...], clients: NDArray[np.intp], *arguments: Any
) -> list[tuple[NDArray[np.int64], Any]]:
    """The same of those of the `clients` that a piece has, and their numbers."""
    found = []
    for part, numbers in parcel.problems(*problem):
        own = np.flatnonzero(np.isin(numbers, clients))
        if len(own):
            found.append((numbers[own], getattr(part, asked)(own, *arguments)))
    return found


def wrong_of(parcel: Parcel, problem: tuple[Any, ...], points: Array) -> NDArray[np.int64]:
    """How many rows each point classifies wrongly, shape (t,)."""
    wrong = np.zeros(len(points), np.int64)
    for part, _ in parcel.problems(*problem):
        shares = part.accuracies(points)
        assert shares is not None
        wrong += np.rint((1.0 - shares) * part.n_samples).astype(np.int64)
    return wrong
