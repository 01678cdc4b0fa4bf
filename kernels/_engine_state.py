"""The arguments of the kernels of `engine`: parameters, state and history of a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import losses

Array = NDArray[np.float64]

#: Numbers of noise that are drawn at a time, about.
_NOISE_BLOCK = 16_384


class ClientProblem(NamedTuple):
    """What differs from client to client and is given, each of shape (m,)."""

    reg: Array
    """Weight of the regulariser."""
    step: Array
    """FedEPM: ``step_i``. Averaging: the learning rate before it decays with the rounds."""
    change: Array
    """With a mechanism: how far one record can move the gradient."""
    multiplier: Array
    """With a mechanism: scale of the noise over the sensitivity of an upload."""
    pull: Array
    """With a mechanism: the regulariser's largest second derivative."""


class Settings(NamedTuple):
    """Parameters of a run."""

    local_steps: int
    per_round: int
    """Clients of a round, m0."""
    coverage_rounds: int
    """0 for none."""
    mu0: float
    c: float
    alpha: float
    epsilon: float
    noise_factor: float
    """0 for no noise."""
    standardize: bool
    lam: float
    eta: float
    start: int
    by_variance: bool
    """Weigh uploads by the inverse variance of their noise; otherwise alike, but those of clients
    that did not take part yet."""
    no_weight: float
    """The weight of such clients, to the largest one."""
    mechanism: int
    """With one, mu keeps to the gap at the start of a round, and nothing but what is released
    ends a run before its time."""
    clip: float
    """With a mechanism: bound on the norm of a record's gradient."""
    rounding: float
    """With a mechanism: how small a sensitivity may be beside the size of the points, ..."""
    noise_share: float
    """... and noise, ..."""
    drift: float
    """... and the change of a gradient."""
    largest: float
    """With a mechanism: how large points and noise may be; 1 over it is the least."""
    prox: float
    inner_steps: int
    rule: int
    tolerance: float
    """Of the gradient; released rule: of both conditions."""
    variance_tolerance: float
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
    x: Array
    previous: Array
    mean: Array
    """Sum of all clients' gradients at x, shape (n,)."""
    values: Array
    """f_i(x), shape (m,)."""
    mu: Array
    gamma: Array
    """Learning rate, or ``step_i`` with its public factor, of each client in this round."""
    sensitivity: Array
    """Of each client's next upload, with a mechanism."""
    noise_scale: Array
    """Of each client's last upload; NaN before it took part."""
    weights: Array
    """Of the clients in ENS."""
    snr: Array
    """``|w_i| / |noise_i|`` of each client's last upload; NaN before it took part, shape (m,)."""
    recent: Array
    """Objective and squared mean gradient of the last four rounds, shape (2, 4)."""
    times: Array
    """Time of the selected clients' gradients, and the first objective."""
    selected: NDArray[np.int64]
    n_selected: NDArray[np.int64]
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


def new_state(rows: losses.ClientRows) -> State:
    """Memory for runs on `rows`, without contents."""
    m, n = rows.n_clients, rows.n_parameters
    size = max(1, min(m, _NOISE_BLOCK // n))
    floats = lambda *shape: np.empty(shape)  # noqa: E731
    return State(
        W=floats(m, n),
        Z=floats(m, n),
        G=floats(m, n),
        x=floats(n),
        previous=floats(n),
        mean=floats(n),
        values=floats(m),
        mu=floats(m),
        gamma=floats(m),
        sensitivity=floats(m),
        noise_scale=floats(m),
        weights=floats(m),
        snr=floats(m),
        recent=floats(2, 4),
        times=floats(2),
        selected=np.empty(m, np.int64),
        n_selected=np.empty(1, np.int64),
        clients=np.empty(m, np.uint64),
        words=np.empty(m, np.uint64),
        marks=np.empty(m, np.bool_),
        scale=floats(m),
        ones=np.ones(m),
        noise=floats(size, n),
        ens_memory=floats(8 * (m + 1)),
        work=losses.workspace(rows),
    )


def new_history(rounds: int, n: int) -> History:
    """Memory for so many rounds, without contents."""
    return History(np.empty((rounds, n)), *(np.empty(rounds) for _ in range(5)))
