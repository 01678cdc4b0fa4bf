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

from ._common.notes import of_client
from .algorithms._averaging import learning_rate
from .algorithms._operators import (
    ens,
    ens_algorithm1,
    fedepm_iterates,
    penalty,
    penalty_parameter,
    soft_threshold,
)
from .algorithms._surrogates import ROUNDING
from .algorithms._views import AtClients, AtServer
from .kernels import _loop as loop
from .kernels._engine_state import History, clear
from .objectives import Problem
from .participation import clients_per_round, order_of_rows, select
from .private_runs import participations, uploads
from .private_runs import plan_of as privacy_plan
from .randomness import Randomness

if TYPE_CHECKING:
    from .algorithms import Algorithm, CurvatureFedEPM
    from .mechanisms import PrivacyPlan

__all__ = [
    "ModelStages",
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
    work_size = 0
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
        self._told = dict(zip(algorithm.tells, algorithm.known(problem), strict=True))

    def workspace(self) -> None:
        """There is none."""

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
        state.Z[:] = state.W + self._unit(-1, self._everyone, n) / self.algorithm.mu0
        self._shared = self._shared_of(state)

    def go_on(self, state: Any, tau: int) -> None:
        """Do the clients' part of a round whose other part is done, by whatever stages."""
        self._shared = self._shared_of(state)
        if self.local_round(state, tau):
            self.upload(state, tau)

    def _shared_of(self, state: Any) -> dict[str, Array]:
        return dict(zip(self.algorithm.shares, state.shared, strict=True))

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
                state.x.copy(), self._shared, self._told,
            )
        )  # fmt: skip
        return True

    def evaluate(self, *arguments: Any) -> bool:
        state, problem = arguments[-2], self.problem
        S, x = self._chosen(state), state.x.copy()
        began = perf_counter()
        for i in S:
            state.G[i] = self._gradient(i, x)
        state.seconds[0] = perf_counter() - began
        # f and the mean gradient are the experimenter's measures, no client's work.
        for i in np.setdiff1d(self._everyone, S, assume_unique=True):
            state.G[i] = self._gradient(i, x)
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
            tau, x, begin, G, self._sizes[S], lambda row, w: self._gradient(S[row], w),
            dict(zip(algorithm.keeps, state.kept[:, S], strict=True)), self._shared,
            {name: of_clients[S] for name, of_clients in self._told.items()},
            lambda row, epoch: order_of_rows(
                self.randomness, tau, int(S[row]), int(self._sizes[S[row]]), epoch
            ),
            lambda row, w, rows: self._gradient(S[row], w, rows),
        )  # fmt: skip
        w, mu = algorithm.local_round(clients)
        self._scale = algorithm.noise_scale(problem, S, gap, G, mu, tau, plan)
        self._clients, self._w = clients, w
        return bool(np.isfinite(w).all())

    def upload(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        S, n, scale, w = self._chosen(state), len(state.x), self._scale, self._w
        noise = scale[:, None] * self._unit(tau, S, n)
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

    # Functions of the user's may raise: of the loss and of the noise of a client.

    def _gradient(self, i: int, w: Array, rows: NDArray[np.intp] | None = None) -> Array:
        """Of a client's objective, or with the mean loss of some of its rows."""
        with of_client(i):
            if rows is None:
                return self.problem.gradient(i, w)
            return self.problem.batch_gradient(i, w, rows)

    def _unit(self, tau: int, clients: NDArray[np.intp], n: int) -> Array:
        """Unit noise of some clients."""
        try:
            return np.asarray(self.noise_model.unit(self.randomness, tau, clients, n))
        except Exception:
            for i in clients:
                with of_client(i, noise=True):
                    self.noise_model.unit(self.randomness, tau, np.array([i]), n)
            raise

    @staticmethod
    def _chosen(state: Any) -> NDArray[np.intp]:
        return np.asarray(state.selected[: state.n_selected[0]], np.intp)


class ModelStages(Reference):
    """The stages of a run whose server keeps a model of each client: `CurvatureFedEPM`, `FedNL`.

    With `compiled` the clients' objectives and gradients are those of the kernels, and so is ENS;
    without it they are the equations in NumPy. All else is linear algebra of the server.
    """

    algorithm: CurvatureFedEPM

    def __init__(
        self,
        algorithm: Any,
        problem: Problem,
        randomness: Randomness,
        max_rounds: int,
        *,
        compiled: bool,
    ) -> None:
        super().__init__(algorithm, problem, randomness, None)
        algorithm.check_problem(problem)
        self._compiled, self._last = compiled, max_rounds
        self._every = algorithm.renew_every

    def compile(self, run: Any, *, stepwise: bool) -> None:
        """Compile the gradients, so that no time of the run has that."""
        if self._compiled:
            self._ask(self._everyone[:1], np.zeros(self.problem.n_parameters))
            self.accuracies(np.empty((0, self.problem.n_parameters)))

    def value_at_start(self, start: Array | None) -> float:
        if self._compiled:
            return self.problem.value_at_start(start)
        return super().value_at_start(start)

    def accuracies(self, points: Array) -> Array | None:
        return self.problem.accuracies(points) if self._compiled else super().accuracies(points)

    def begin(self, settings: Any, key: Any, given: Any, initial: Any, state: Any) -> None:
        clear(state)
        self._start = state.W.mean(axis=0)
        state.W[:], state.Z[:] = self._start, 0.0
        self._server = self.algorithm.server(self._start, len(state.Z))
        self._times = np.zeros(len(state.Z), np.int64)

    def rounds(
        self, problem: Any, settings: Any, key: Any, given: Any, state: Any, history: Any,
        tau: int, last: int,
    ) -> tuple[int, int]:  # fmt: skip
        began = perf_counter()
        for row in range(last - tau):
            offset, one = perf_counter() - began, History(*(a[row : row + 1] for a in history))
            reached, flags = super().rounds(
                problem, settings, key, given, state, one, tau + row, tau + row + 1
            )
            one.elapsed[:] += offset
            if not flags and settings.rule == loop.CONVERGED_RULE and self._server.converged:
                flags = loop.CONVERGED
            if flags:
                return reached - (flags == loop.CONVERGED), flags
        return last, 0

    def select(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        if tau == 0:  # all say what there is at the start
            state.n_selected[0] = len(state.Z)
            state.selected[:] = self._everyone
            return True
        return super().select(*arguments)

    def aggregate(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        server = self._server
        if tau > 1:
            server.receive(*self._answers, self._hessians)
        elif tau == 1:
            server.begin(self._models, *self._answers[1:])
        # For the record: where clients last took part, and what they sent, their gradients.
        state.W[:], state.Z[:] = server.X, server.G
        state.x[:] = server.propose()
        return True

    def evaluate(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        S, server = self._chosen(state), self._server
        began = perf_counter()
        asked = self._ask(S, state.x)
        state.seconds[0] = perf_counter() - began
        self._answers = (S.copy(), *asked)  # the next selection goes where S is
        # f and the mean gradient are the experimenter's measures, no client's work.
        values, gradients = self._with_others(S, *asked, state.x)
        at_end = tau == self._last
        if tau > 0 and (not server.is_sound(values) or (at_end and self._is_worse(values))):
            state.x[:] = server.best
            values, gradients = self._ask(self._everyone, state.x)
        state.G[:], state.values[:] = gradients, values
        mean = gradients.mean(axis=0)
        state.totals[:] = float(values.sum()), mean @ mean
        return True

    def _ask(self, clients: Any, x: Array) -> tuple[Array, Array]:
        return self.problem.client_gradients(clients, x, compiled=self._compiled)

    def _with_others(
        self, S: Any, values: Array, gradients: Array, x: Array
    ) -> tuple[Array, Array]:
        """f_i and gradients of all clients, given those of the clients `S`."""
        others = np.setdiff1d(self._everyone, S, assume_unique=True)
        if len(others) == 0:
            return values, gradients
        m = len(self._everyone)
        all_values, all_gradients = np.empty(m), np.empty((m, len(x)))
        all_values[S], all_gradients[S] = values, gradients
        all_values[others], all_gradients[others] = self._ask(others, x)
        return all_values, all_gradients

    def _is_worse(self, values: Array) -> bool:
        """Whether the best point has a smaller f than these f_i say; all say theirs there too."""
        with np.errstate(over="ignore", invalid="ignore"):
            best, last = self._ask(self._everyone, self._server.best)[0].sum(), values.sum()
        return not float(last) <= float(best) + ROUNDING * abs(float(best))

    def local_round(self, *arguments: Any) -> bool:
        """What the clients send of the server's point, after their gradients."""
        tau = arguments[-1]
        S, values, _ = self._answers
        if tau == 0:
            self._models = self.algorithm.models(self.problem, self._start, self._ens)
            return True
        self._hessians: dict[int, Array] = {}
        if self.algorithm.sends_hessians and np.isfinite(values).all():
            due = S[self._times[S] % self._every == 0]
            sent = self.problem.packed_hessians(due, self._server.x)
            self._hessians = dict(zip(due.tolist(), sent, strict=True))
        self._times[S] += 1
        return True

    @property
    def _ens(self) -> Any:
        if not self._compiled:
            return ens
        from .kernels.ens import ens as compiled

        return compiled

    def upload(self, *arguments: Any) -> bool:
        """Nothing is added to what they send."""
        state = arguments[-2]
        state.snr[self._chosen(state)] = np.inf
        return True
