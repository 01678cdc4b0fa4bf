"""The arguments of a run's stages and of its loop: parameters, state and history."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Numbers of noise that are drawn at a time, about.
_NOISE_BLOCK = 16_384


#: Numbers of W up to which a thread keeps the memory of a run for its next one.
KEPT = 1 << 16


class ClientProblem(NamedTuple):
    """What differs from client to client and is given, of shape (m,) where nothing else is said."""

    reg: Array
    """Weight of the regulariser."""
    step: Array
    """The algorithm's step, before what changes with the rounds."""
    change: Array
    """In private runs: how far one record can move the gradient."""
    multiplier: Array
    """In private runs: scale of the noise over the sensitivity of an upload."""
    pull: Array
    """In private runs: the regulariser's largest second derivative."""
    told: Array
    """What the algorithm's clients tell the server when they join, shape (kinds, m)."""
    sizes: NDArray[np.int64]
    """Numbers of rows."""


class Settings(NamedTuple):
    """Parameters of a run."""

    local_steps: int
    per_round: int
    """Clients of a round, m0."""
    coverage_rounds: int
    """0 for none."""
    mu0: float
    epsilon: float
    noise_factor: float
    """0 for no noise."""
    standardize: bool
    private: bool
    """Nothing but what is released ends such a run before its time."""
    constants: Array
    """What the algorithm's own stages need to know, in an order of theirs."""
    rule: int
    tolerance: float
    """Of the gradient; released rule: of both conditions."""
    variance_tolerance: float
    """Of the objective; FedADMM's rule: the share of the first gradient."""
    max_rounds: int
    max_iterations: int
    unit: float
    """Size of the objective at the start; 0 for that of the first point."""
    divergence_factor: float
    rise_is_divergence_factor: float


class Key(NamedTuple):
    """Key of the run's Philox stream and purposes of the draws."""

    seed: np.uint64
    trial: np.uint64
    select: np.uint64
    cover: np.uint64
    initial: np.uint64
    noise: np.uint64
    batches: np.uint64


class Given(NamedTuple):
    """Selections and unit noise from outside; all empty where they are drawn."""

    counts: NDArray[np.int64]
    """Clients of each round, shape (rounds,)."""
    selected: NDArray[np.int64]
    """Shape (rounds, m)."""
    noise: Array
    """Shape (rounds, m, n)."""


class State(NamedTuple):
    """A run after some round, and working memory."""

    W: Array
    Z: Array
    G: Array
    """Gradients at x of the clients selected last, shape (m, n)."""
    kept: Array
    """What the clients keep beside W and Z, shape (kinds, m, n)."""
    shared: Array
    """What the server sends beside x, shape (kinds, n)."""
    x: Array
    mean: Array
    """Sum of all clients' gradients at x, shape (n,)."""
    values: Array
    """f_i(x), shape (m,)."""
    mu: Array
    rate: Array
    """Step of each client in this round: the learning rate, or what FedEPM makes of its own."""
    sensitivity: Array
    """Of each client's next upload, in private runs."""
    noise_scale: Array
    """Of each client's last upload; NaN before it took part."""
    weights: Array
    """Of the clients in ENS."""
    snr: Array
    """``|w_i| / |noise_i|`` of each client's last upload; NaN before it took part, shape (m,)."""
    recent: Array
    """Objective and squared mean gradient of the last four rounds, shape (2, 4)."""
    totals: Array
    """Objective and squared mean gradient of this round."""
    first: Array
    """Size of the first objective, and the first squared mean gradient, shape (2,)."""
    seconds: Array
    """Of the selected clients' gradients, shape (1,)."""
    selected: NDArray[np.int64]
    n_selected: NDArray[np.int64]
    """Shape (1,)."""
    uploaded: NDArray[np.int64]
    """The clients selected in the round before."""
    n_uploaded: NDArray[np.int64]
    """Shape (1,)."""
    clients: NDArray[np.uint64]
    words: NDArray[np.uint64]
    marks: NDArray[np.bool_]
    scale: Array
    ones: Array
    noise: Array
    """A few rows, shape (block, n)."""
    ens_memory: Array
    work: Array
    """Of `losses.workspace`."""


class History(NamedTuple):
    """What is recorded of each round, from the first one of a call on."""

    x: Array
    objective: Array
    grad_mean_sq: Array
    elapsed: Array
    """Seconds since the call."""
    local_time: Array
    """Seconds that the clients of the round *before* worked."""
    snr: Array
    """The smallest ratio of `State.snr`; NaN if no client took part yet."""


def new_state(m: int, n: int, *, kept: int = 0, shared: int = 0, work: Any = None) -> State:
    """Memory for runs of m clients and n coordinates, without contents.

    `kept` and `shared` are the numbers of rows that a client has beside W and Z, and the server
    beside x; `work` is a workspace for compiled losses.
    """
    size = max(1, min(m, _NOISE_BLOCK // n))
    floats = lambda *shape: np.empty(shape)  # noqa: E731
    return State(
        W=floats(m, n),
        Z=floats(m, n),
        G=floats(m, n),
        kept=floats(kept, m, n),
        shared=floats(shared, n),
        x=floats(n),
        mean=floats(n),
        values=floats(m),
        mu=floats(m),
        rate=floats(m),
        sensitivity=floats(m),
        noise_scale=floats(m),
        weights=floats(m),
        snr=floats(m),
        recent=floats(2, 4),
        totals=floats(2),
        first=floats(2),
        seconds=floats(1),
        selected=np.empty(m, np.int64),
        n_selected=np.empty(1, np.int64),
        uploaded=np.empty(m, np.int64),
        n_uploaded=np.empty(1, np.int64),
        clients=np.empty(m, np.uint64),
        words=np.empty(m, np.uint64),
        marks=np.empty(m, np.bool_),
        scale=floats(m),
        ones=np.ones(m),
        noise=floats(size, n),
        ens_memory=floats(8 * (m + 1)),
        work=floats(0) if work is None else work,
    )


def clear(state: State) -> None:
    """Fill the state of a run whose clients start at `state.W`, but for their uploads."""
    state.x[:] = state.W[0]
    state.snr[:] = state.noise_scale[:] = np.nan
    for array in (
        state.kept, state.shared, state.recent, state.totals, state.first, state.seconds,
        state.n_selected, state.n_uploaded,
    ):  # fmt: skip
        array[:] = 0


def new_history(rounds: int, n: int) -> History:
    """Memory for so many rounds, without contents."""
    return History(np.empty((rounds, n)), *(np.empty(rounds) for _ in range(5)))
