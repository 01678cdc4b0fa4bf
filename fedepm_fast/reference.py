"""The reference: FedEPM and its baselines in NumPy, equation by equation.

Written to be read beside the paper (Zhou and Li, "Exact Penalty Method for Federated
Learning"), and the yardstick of every compiled kernel. Notation: m clients, n coordinates;
W and Z are (m, n), row i is client i's parameter w_i and last upload z_i; x is the server's
point; k counts local iterations and tau = k // local_steps rounds, both from 0.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .algorithms._averaging import learning_rate
from .algorithms._operators import (
    ens,
    ens_algorithm1,
    fedepm_iterates,
    penalty,
    penalty_parameter,
    soft_threshold,
)
from .algorithms._views import AtClients, AtServer
from .kernels import _loop as loop
from .kernels._engine_state import clear
from .objectives import Problem
from .participation import clients_per_round, select
from .private_runs import participations, uploads
from .private_runs import plan_of as privacy_plan
from .randomness import Randomness

if TYPE_CHECKING:
    from .algorithms import Algorithm
    from .mechanisms import PrivacyPlan

__all__ = [
    "Reference",
    "ens",
    "ens_algorithm1",
    "fedepm_iterates",
    "learning_rate",
    "participations",
    "penalty",
    "penalty_parameter",
    "privacy_plan",
    "soft_threshold",
    "uploads",
]

Array = NDArray[np.float64]


class Reference:
    """The stages of a run in NumPy, client by client: see `fedepm_fast.kernels._loop`."""

    spoils = False
    clients: Any = None
    workspace: Any = None
    constants = np.empty(0)

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        randomness: Randomness,
        plan: PrivacyPlan | None,
    ) -> None:
        self.algorithm, self.problem, self.plan = algorithm, problem, plan
        self.randomness, self.noise_model = randomness, algorithm.noise_model
        m = problem.n_clients
        self._everyone, self._sizes = np.arange(m, dtype=np.intp), problem.data.client_sizes
        self._per_round = clients_per_round(algorithm.participation, m)

    def compile(self, run: Any, *, stepwise: bool) -> None:
        """Nothing is compiled."""

    def value_at_start(self, start: Array | None) -> float:
        n = self.problem.n_parameters
        x = np.zeros(n) if start is None else start.reshape(-1, n).mean(axis=0)
        return self.problem.total_value(x)

    def accuracies(self, points: Array) -> Array | None:
        found = [self.problem.accuracy(x) for x in points]
        return None if None in found else np.array(found, np.float64)

    def begin(self, settings: Any, key: Any, given: Any, initial: Any, state: Any) -> None:
        clear(state)
        n = state.W.shape[1]
        unit = self.noise_model.unit(self.randomness, -1, self._everyone, n)
        state.Z[:] = state.W + unit / self.algorithm.mu0
        self._shared = dict(zip(self.algorithm.shares, state.shared, strict=True))

    def rounds(
        self, problem: Any, settings: Any, key: Any, given: Any, state: Any, history: Any,
        tau: int, last: int,
    ) -> tuple[int, int]:  # fmt: skip
        if tau == 0 and not np.isfinite(state.Z).all():
            return -1, loop.OVERFLOW
        return loop.rounds(  # type: ignore[no-any-return]
            self.select, self.aggregate, self.evaluate, self.local_round, self.upload,
            None, problem, settings, key, given, state, history, tau, last,
        )  # fmt: skip

    # The stages, each of the arguments (rows, problem, settings, key, given, state, tau).

    def select(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        S = select(
            self.randomness, tau, len(state.Z), self._per_round, self.algorithm.coverage_rounds
        )
        state.n_selected[0] = len(S)
        state.selected[: len(S)] = S
        return True

    def aggregate(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        uploaded = np.asarray(state.uploaded[: state.n_uploaded[0]], np.intp)
        state.x[:] = self.algorithm.aggregate(
            AtServer(
                tau, state.Z, self._chosen(state), uploaded, self._sizes, state.noise_scale,
                state.x.copy(), self._shared,
            )
        )  # fmt: skip
        return True

    def evaluate(self, *arguments: Any) -> bool:
        state, problem = arguments[-2], self.problem
        S, x = self._chosen(state), state.x.copy()
        began = perf_counter()
        for i in S:
            state.G[i] = problem.gradient(i, x)
        state.seconds[0] = perf_counter() - began
        # f and the mean gradient are the experimenter's measures, no client's work.
        for i in np.setdiff1d(self._everyone, S, assume_unique=True):
            state.G[i] = problem.gradient(i, x)
        g_mean = state.G.mean(axis=0)
        state.totals[:] = problem.total_value(x), g_mean @ g_mean
        return True

    def local_round(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        algorithm, problem, plan, S = self.algorithm, self.problem, self.plan, self._chosen(state)
        x, G = state.x.copy(), state.G[S]
        begin = algorithm.round_start(state.W[S], state.Z[S], x)
        gap = begin - x
        if plan is not None and not algorithm.may_upload(problem, S, gap, x, tau, plan):
            return False
        clients = AtClients(
            tau, x, begin, G, self._sizes[S], lambda row, w: problem.gradient(S[row], w),
            dict(zip(algorithm.keeps, state.kept[:, S], strict=True)), self._shared,
        )  # fmt: skip
        w, mu = algorithm.local_round(clients)
        self._scale = algorithm.noise_scale(problem, S, gap, G, mu, tau, plan)
        self._clients, self._w = clients, w
        return bool(np.isfinite(w).all())

    def upload(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        S, n, scale, w = self._chosen(state), len(state.x), self._scale, self._w
        noise = scale[:, None] * self.noise_model.unit(self.randomness, tau, S, n)
        if not np.isfinite(noise).all():
            return False
        z = self.algorithm.upload(self._clients, w, noise)
        state.W[S], state.Z[S] = w, z
        for kept, rows in zip(state.kept, self._clients.kept.values(), strict=True):
            kept[S] = rows
        state.noise_scale[S] = scale
        size = np.linalg.norm(noise, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            state.snr[S] = np.where(size == 0, np.inf, np.linalg.norm(w, axis=1) / size)
        return True

    @staticmethod
    def _chosen(state: Any) -> NDArray[np.intp]:
        return np.asarray(state.selected[: state.n_selected[0]], np.intp)
