"""A private run whose server sees secure sums only, all clients played by one process."""

from __future__ import annotations

import dataclasses
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import FedEPM
from ..callbacks import Callback, RoundInfo
from ..data import FederatedData
from ..engine import Outcome
from ..losses import Objective
from ..mechanisms import (
    Columns,
    Mechanism,
    PrivacyPlan,
    client_moments,
    clip_moves,
    moments_change,
)
from ..mechanisms._moments import packed_size
from ..objectives import Problem
from ..participation import clients_per_round, select
from ..private_runs import Private, participations
from ..randomness import CounterRandomness
from ..result import Result
from ..runner import ENGINES, Limits, engine_for, make_problem, make_result, record
from ..stopping import MAX_ROUNDS, PRECISION, NoRule
from .secure_sum import SecureSum, secure_sum

Array = NDArray[np.float64]

#: Number of the sum of columns, beyond those of rounds; that of second moments is 0.
_COLUMNS = 1 << 40


class Summed(Private):
    """The rules of such a run: every sum has the noise that its busiest client needs."""

    def __init__(self, clients: int, honest: float) -> None:
        super().__init__()
        parts = clients_per_round(honest, clients)
        who = "all of them" if parts == clients else f"at least {parts} of them"
        self.against = (
            f", against a server that sees secure sums only, each of {clients} or more clients, "
            f"{who} honest"
        )

    def multipliers(self, mechanism: Mechanism, planned: NDArray[np.int64]) -> Array:
        return np.full(len(planned), mechanism.noise_multipliers(planned).max())


def moments_of_sum(
    data: FederatedData,
    mechanism: Mechanism,
    radius: float,
    multiplier: float,
    randomness: CounterRandomness,
    *,
    clients: int,
    honest: float,
    bits: int | None = None,
) -> tuple[Array, Array]:
    """Second moments of all rows by one secure sum, in the form of `simulate_moments`.

    Parameters
    ----------
    data : FederatedData
        m clients, p columns; all clients come.
    mechanism : Mechanism
        Gaussian.
    radius : float
        As for `client_moments`.
    multiplier : float
        Of the sum's noise.
    randomness : CounterRandomness
    clients, honest, bits
        As for `secure_sum`: the noise is that of sums of so many clients.

    Returns
    -------
    values : ndarray of shape (1, p*(p+1)/2)
        The mean over all rows, packed.
    scales : ndarray of shape (1,)
        Standard deviation of the noise in each number.
    """
    units, p, m = mechanism.units(data.client_sizes), data.n_features, data.n_clients
    moments = [client_moments(data.client(i)[0], radius, mechanism.order) for i in range(m)]
    sums = sums_of_moments(
        radius, units, p, multiplier, clients=clients, most=m, honest=honest, bits=bits
    )
    found = sums.simulate(np.array(moments) * units[:, None], randomness, 0)
    return found[None] / units.sum(), np.array([sums.noise(m) / units.sum()])


def columns_of_sum(
    data: FederatedData,
    mechanism: Mechanism,
    columns: Columns,
    multiplier: float,
    randomness: CounterRandomness,
    *,
    clients: int,
    honest: float,
) -> tuple[Array, Array]:
    """Means and mean squares of all rows, alike, in the form of `Columns.simulate`."""
    units, m = mechanism.units(data.client_sizes), data.n_clients
    total = float(units.sum())
    means = np.array([columns.means(data.client(i)[0]) for i in range(m)])
    sums = secure_sum(
        float((columns.change(units, 2) * units).max()), multiplier, total, columns.size,
        clients=clients, most=m, honest=honest,
    )  # fmt: skip
    found = sums.simulate(means * units[:, None], randomness, _COLUMNS)
    return found[None] / total, np.array([sums.noise(m) / total])


def sums_of_moments(
    radius: float, units: NDArray[np.int64], p: int, multiplier: float,
    *, clients: int, honest: float, bits: int | None = None, most: int | None = None,
) -> SecureSum:  # fmt: skip
    """The sum of the clients' second moments times their `units`, as `sums_of_moves`.

    A record, or a whole client, moves it by ``sqrt(2)*radius**2``.
    """
    change, bound = moments_change(radius, units, 2, p) * units, float(units.sum()) * radius**2
    return secure_sum(
        float(change.max()), multiplier, bound, packed_size(p), clients=clients, most=most,
        honest=honest, bits=bits,
    )  # fmt: skip


def sums_of_moves(
    plan: PrivacyPlan, units: NDArray[np.int64], n: int, eta: float, multiplier: float,
    *, clients: int, honest: float, bits: int | None = None,
) -> SecureSum:  # fmt: skip
    """The sums of a round, of the clients' moves ``-g_i/eta`` times their `units`.

    A record moves it by ``2*clip/eta``, whosever it is; where whole clients are hidden one moves it
    by ``2*clip``, to which its move is clipped.
    """
    per = 1.0 if plan.whole else eta
    return secure_sum(
        float((plan.change * units).max()) / per, multiplier, plan.clip * float(units.sum()) / per,
        n, clients=clients, honest=honest, bits=bits,
    )  # fmt: skip


def moves_of(
    problem: Problem, plan: PrivacyPlan, eta: float, S: NDArray[np.intp], x: Array,
    *, compiled: bool = True,
) -> Array:  # fmt: skip
    """What the clients `S` make of x, less x, shape (s, n)."""
    _, G = problem.client_gradients(S, x, compiled=compiled)
    moves = -G / eta
    if plan.whole:
        return clip_moves(moves, np.zeros_like(moves), plan.clip, plan.order)
    return moves


def sum_run(
    algorithm: FedEPM,
    data: FederatedData,
    *,
    objective: Objective,
    rounds: int,
    seed: int,
    engine: str | None,
    callback: Callback | None,
    every_accuracy: bool,
    honest: float,
    bits: int | None = None,
) -> Result:
    """`run` of a `FedEPM` with Gaussian noise and lam = 0, its uploads added by secure sums.

    The mean of ``z_i = x - g_i/eta``, weighted by size, is ``x - sum_i d_i*g_i / (d*eta)``: a
    client's part of a sum is ``-d_i*g_i/eta``, whose change by one record does not depend on d_i.
    The penalty is public and the server's. Where not all clients take part, the sum is of those
    that came, and so is d: a server of sums has no memory of the others.
    """
    whole = make_problem(algorithm, data, objective)
    algorithm = algorithm.resolve(whole)
    m = whole.n_clients
    m0 = clients_per_round(algorithm.participation, m)
    rules = Summed(m0, honest)
    clipped = rules.begin(algorithm, whole)
    engine = engine_for(engine, algorithm, clipped)
    source = CounterRandomness(seed)
    mechanism, eta = algorithm.mechanism, algorithm.eta
    assert mechanism is not None and eta is not None
    planned = participations(algorithm, clipped, source, rounds)
    z = float(rules.multipliers(mechanism, planned).max())
    plan = algorithm.plan(clipped, planned)
    assert plan is not None
    n, units = clipped.n_parameters, mechanism.units(data.client_sizes)
    sums = sums_of_moves(plan, units, n, eta, z, clients=m0, honest=honest, bits=bits)
    at_clients = Problem(clipped.data, clipped.objective.changed(beta=0.0))
    pull = clipped.reg @ units / units.sum() * clipped.reg_weights

    watched = rules.watched(callback)
    names = ("objective", "grad_mean_sq", "accuracy", "elapsed", "local_time", "snr")
    lists: dict[str, list[Any]] = {name: [] for name in names}
    x, compiled = np.zeros(n), engine == ENGINES[0]
    moves_of(at_clients, plan, eta, np.arange(1), x, compiled=compiled)  # no time has compilation
    points, reasons, began = [], (MAX_ROUNDS,), perf_counter()
    for tau in range(rounds + 1):
        points.append(x)
        for name in names:
            lists[name].append(np.nan)
        lists["elapsed"][-1], lists["local_time"][-1] = perf_counter() - began, 0.0
        if watched is not None:
            watched(RoundInfo.of(x, m, lists))
        if tau == rounds:
            break
        if plan.drift * np.abs(x).max() > plan.change.min():  # x is public
            reasons = (PRECISION,)
            break
        start, S = perf_counter(), select(source, tau, m, m0, algorithm.coverage_rounds)
        moves = moves_of(at_clients, plan, eta, S, x, compiled=compiled)
        lists["local_time"][-1] = perf_counter() - start
        total = sums.simulate(moves * units[S, None], source, tau + 1, S)
        x = x + total / units[S].sum() - pull * x / eta
    if whole.objective.task == "regression":
        del lists["accuracy"]
    everywhere = np.tile(x, (m, 1))  # of single clients nothing is known
    outcome = Outcome(
        x, everywhere, everywhere, reasons, {**lists, "x": points}, np.full(m, np.nan),
        perf_counter() - began, rules.value_at_start(0.0, None), {},
    )  # fmt: skip
    history, settings = record(outcome, Limits(NoRule(), rounds, None))
    settings |= rules.account(
        history, source, rounds, every_accuracy=every_accuracy, start_given=False
    )
    settings["secure_sum"] = dataclasses.asdict(sums)
    description = {"description": data.summary(), **data.description}
    if whole.objective.task != "regression":
        description["largest_class"] = data.largest_class
    return make_result(
        algorithm, clipped, description, source, engine, outcome, history, settings, 0.0
    )
