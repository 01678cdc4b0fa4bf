"""FedNL with whole Hessians: Newton's method over clients of which some take part in a round."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from .._common.parameters import param
from ..objectives import Problem
from ..objectives._curvature import unpacked
from ._quadratics import Hessians, directions_of, solve_symmetric
from ._surrogates import Surrogates
from ._views import Array, Clients, Sized
from .curvature import CurvatureFedEPM

#: No slope is one of this part of the clients' slopes, or of this part of what cancels in it.
_SLOPE, _ROUNDING = 1e-6, 1e-12


@dataclass(frozen=True)
class FedNL(CurvatureFedEPM):
    """FedNL as published, with its Hessians sent whole (Safaryan, Islamov, Qian, Richtarik 2022).

    Their FedNL-PP (Algorithm 2) with the identity as its compressor and Hessian learning rate 1.
    What is learnt of a client's Hessian is then the Hessian itself, H_i, at the point w_i at which
    it last took part, and the correction ``l_i = |H_i - hess f_i(w_i)|`` is 0. The next point ::

        x = (sum_i H_i)^-1 * sum_i (H_i w_i - grad f_i(w_i))

    is where the sum of the clients' second-order models is least; where all take part it is a step
    of Newton's method. Clients keep nothing, the server w_i, gradient and H_i of each. In a round a
    client is sent n numbers, computes a gradient and a Hessian, and sends them, n and ``n*(n+1)/2``
    numbers, and f_i, which only stopping and reports need.

    Theory, where all f_i are strongly convex with Lipschitz Hessians and the start is near enough
    to the optimum: linear convergence in expectation, the faster the more take part, whatever the
    condition number; quadratic where all do. From other starts nothing is promised: steps are
    whole, without damping or line search, and runs diverge where Newton's method does, or circle.
    Choose it for few parameters, a penalty and a good start, where Hessians may be sent;
    `CurvatureFedEPM`, which sends the same, has safeguards in place of the good start.

    Parameters
    ----------
    participation : float
        Share of the clients of a round, rho in (0, 1]; in the first round all take part.
    coverage_rounds : int, optional
        If given, every client takes part at least once in every such number of rounds; otherwise,
        as published, the clients of a round are drawn uniformly.
    tol : float
        Converged once further rounds are expected to lower f by less than this share of what it
        was at the start, and all clients have taken part since that was so.
    """

    # What it has in common with `CurvatureFedEPM` and does not leave open.
    coordinates: str = param("renewed", help="", init=False)
    renew_every: int = param(1, help="", init=False)
    memory: int = param(1, help="", init=False)
    lam: float = param(0.0, help="", init=False)

    name: ClassVar[str] = "fednl"
    label: ClassVar[str] = "FedNL"
    safeguarded: ClassVar[bool] = False

    def resolve(self, problem: Sized) -> Self:
        return self

    def coverage(self, m: int) -> int | None:
        return self.coverage_rounds

    def server(self, start: Array, m: int) -> Newton:
        """The server of m clients that start at one point (n,)."""
        return Newton(start, m, tol=self.tol, calm=2)

    def curvatures(self, problem: Problem, start: Array) -> Iterable[Array]:
        """The Hessian of each client at the start, packed."""
        return problem.packed_hessians(range(problem.n_clients), start)

    def models_of(self, curvatures: Array, n: int, **options: Any) -> Hessians:
        """The models of clients whose Hessians at the start are these (m, n*(n+1)/2), packed."""
        return Hessians(curvatures, n, bounded=False)

    def advice(self, problem: Problem) -> str:
        near = "Newton's whole steps need a start near the optimum, or a larger penalty (beta)"
        return f"{near}; or try CurvatureFedEPM, which sends the same and has a safeguard"


class Newton(Surrogates):
    """The models' own least point, with nothing that holds it back.

    `quiet` is 1 where the next step is small, and `calm` where all clients have taken part since
    steps became so; `waits` are those that have not.
    """

    models: Hessians | None

    def propose(self) -> Array:
        if self.models is None:
            return self.x
        step, slope = self._step(self.models.M)
        small = 0.5 * float(step @ slope) / len(self.F) <= self.tol * (self.unit or 1.0)
        if not small or self.quiet < 0:
            self.quiet = 0
        else:
            self.quiet = 1 if self.waits.any() else self.calm
        self.x = self.x + step
        return self.x

    def _step(self, M: Array) -> tuple[Array, Array]:
        """From x to the least point of the models, NaN if there is none; and how x slopes there."""
        from scipy.linalg.blas import dspmv

        n, total, slope = len(self.x), M.sum(axis=0), -self.G.sum(axis=0)
        for own, ahead in zip(M, self.X - self.x, strict=True):
            slope += dspmv(n, 1.0, own, ahead, lower=1)
        with contextlib.suppress(np.linalg.LinAlgError):
            matrix = unpacked(total, n)
            step = solve_symmetric(matrix, slope, lambda: directions_of(matrix))
            rounding = n * np.abs(total).max() * np.abs(self.X).max()
            # Models may slope where none of them bends, and have no least point then.
            known = _SLOPE * np.linalg.norm(self.G, axis=1).sum() + _ROUNDING * rounding
            if np.linalg.norm(matrix @ step - slope) <= known:
                return step, slope
        return np.full(n, np.nan), slope

    @property
    def best(self) -> Array:
        """The last point, whatever f is there."""
        return self.x

    @best.setter
    def best(self, x: Array) -> None:
        """No other one is kept."""

    def is_sound(self, values: Array) -> bool:
        return True

    def receive(self, S: Clients, values: Array, gradients: Array, hessians: Any) -> bool:
        """As of `Surrogates`, but that all their models move whose f_i is a number there."""
        assert self.models is not None
        if self.quiet <= 0:
            self.waits[:] = True
        there = np.isfinite(values)
        S, values, gradients = S[there], values[there], gradients[there]
        sent = {i: hessian for i, hessian in hessians.items() if i in S}
        self.models.update(S, self.x - self.X[S], gradients - self.G[S], sent)
        self.waits[S], self.X[S], self.F[S], self.G[S] = False, self.x, values, gradients
        return True
