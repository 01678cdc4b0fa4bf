"""FedEPM, the exact penalty method (Zhou and Li)."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._common.parameters import Around, choice, param, real
from .._common.rounding import at_least
from .._common.validation import ArgumentValueError, check_choice
from ..mechanisms import (
    LARGEST,
    MECHANISMS,
    clip_moves,
    hides_rounding,
    rounding_share,
)
from ..objectives import Problem
from ._base import PRESETS, STEPS, Algorithm, PrivacyPlan
from ._fedepm_stages import NO_WEIGHT, STARTS, Constants, fedepm_stages
from ._operators import ens, fedepm_iterates, penalty_parameter
from ._views import Array, AtClients, AtServer, Clients, Sized

#: How the server weighs uploads: all alike; alike, but without clients that never uploaded; or by
#: the inverse variance of their noise, or its inverse deviation, which with a mechanism are public.
AGGREGATIONS = ("equal", "uploaded", "inverse_variance", "inverse_deviation")

#: The power of the noise's inverse scale by which uploads are weighed.
BY_NOISE = {"inverse_deviation": 1.0, "inverse_variance": 2.0}


@dataclass(frozen=True)
class FedEPM(Algorithm):
    """The exact penalty method.

    Parameters
    ----------
    lam : float, optional
        Weight of the l1 part of the penalty, at least 0; ``eta / 2`` by default.
    eta : float, optional
        Weight of the quadratic part, above 0; ``(0.02*m + 1) * (rho + 0.1) * 1e-5`` by default.
    step : {"1/d", "1"}, optional
        Overrides the preset's ``step_i``, ``1/d_i`` or 1.
    start : {"own", "released", "broadcast"}, optional
        Where the local steps of a round start: at the client's parameter w_i, at its last upload
        z_i, or at the server's point x. ``"own"`` by default; with a mechanism ``"released"``,
        and never ``"own"``.
    aggregation : {"equal", "uploaded", "inverse_variance", "inverse_deviation"}, optional
        How the server weighs uploads: all alike, the default; alike, but without those of clients
        that have not been selected yet; by the inverse variance of their noise, which is public
        with a mechanism and needs one; or by its inverse deviation, which of clients that take
        part equally often is to weigh all rows alike.
    noise_l1 : float
        With a mechanism, what the server's ENS has beside ``lam / eta``: so many scales of the
        uploads' noise (deviations, if it is Gaussian), their mean where they differ, by the weights
        of the uploads. 0, the default, adds nothing; the larger it is, the nearer ENS is to the
        median. `privacy.noise_l1_for` says what suits the noise.
    """

    lam: float | None = param(
        None, check=real(low=0.0), search=Around(100.0, 100.0),
        symbol=r"$\lambda$", label=r"l1 penalty $\lambda$",
        help="Weight of the l1 penalty", shown="eta / 2",
    )  # fmt: skip
    eta: float | None = param(
        None, check=real(low=0.0, open_low=True), search=Around(100.0, 100.0),
        symbol=r"$\eta$", label=r"quadratic penalty $\eta$",
        help="Weight of the quadratic penalty", shown="from m and rho",
    )  # fmt: skip
    step: str | None = param(
        None, check=choice(STEPS), help="1/d or 1; by default the preset's",
    )  # fmt: skip
    start: str | None = param(
        None, metavar="POINT", shown="own; private: released",
        help="Where local steps start: own, released or broadcast",
    )  # fmt: skip
    aggregation: str | None = param(
        None, metavar="WEIGHTS", shown="equal",
        help="Weights of uploads: equal, uploaded or, private, inverse_variance or "
        "inverse_deviation",
    )  # fmt: skip
    noise_l1: float = param(
        0.0, check=real(low=0.0), symbol="$c/b$", label="l1 part of ENS in scales of the noise",
        help="private: l1 part of the server's ENS in scales of the noise",
    )  # fmt: skip

    name: ClassVar[str] = "fedepm"
    label: ClassVar[str] = "FedEPM"
    tuned: ClassVar[tuple[str, ...]] = ("lam", "eta", "mu0")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start is not None:
            check_choice("start", self.start, STARTS[1:] if self.mechanism else STARTS)
        if self.aggregation is not None:
            known = AGGREGATIONS if self.mechanism else AGGREGATIONS[:2]
            check_choice("aggregation", self.aggregation, known)
        if self.noise_l1 > 0 and self.mechanism is None:
            raise ArgumentValueError(
                "noise_l1",
                f"must be 0 without a mechanism, got {self.noise_l1:g}: only a mechanism's noise "
                "has a scale that is public",
            )

    def _check_mechanism(self, mechanism: Any) -> None:
        # Exactly these: what a subclass does is not accounted for.
        if type(mechanism) not in MECHANISMS.values():
            known = " or ".join(sorted(cls.__name__ for cls in MECHANISMS.values()))
            raise TypeError(f"mechanism must be a {known}, got {type(mechanism).__name__}")
        if self.preset == "text" or self.noise not in (None, "private"):
            raise ValueError(
                "a mechanism brings its own preset and noise, got "
                f"preset={self.preset!r}, noise={self.noise!r}"
            )
        object.__setattr__(self, "preset", "private")

    def resolve(self, problem: Sized) -> Self:
        mechanism = self.mechanism
        if mechanism is not None:
            mechanism = mechanism.resolve(problem.n_samples, problem.n_parameters)
            if mechanism.budgets is not None:
                mechanism.given(np.zeros(problem.n_clients, np.int64))  # one for each
        m, rho = problem.n_clients, self.participation
        eta = self.eta if self.eta is not None else (0.02 * m + 1) * (rho + 0.1) * 1e-5
        lam = self.lam if self.lam is not None else eta / 2
        return dataclasses.replace(
            self,
            noise=self._noise_for(problem),
            mechanism=mechanism,
            lam=lam,
            eta=eta,
            step=self.step or PRESETS[self.preset].step,
            start=self.start or STARTS[mechanism is not None],
            aggregation=self.aggregation or AGGREGATIONS[0],
        )

    def gradients_per_round(self, sizes: NDArray[np.int64]) -> Array:
        return np.ones(len(sizes))

    def steps(self, sizes: NDArray[np.int64]) -> Array:
        """``step_i`` of every client, shape (s,)."""
        return 1.0 / sizes if self.step == STEPS[0] else np.ones(len(sizes))

    def stages(self, client: Any) -> tuple[Any, Any]:
        return fedepm_stages(self.aggregation != "equal", self.mechanism is not None)

    def constants(self, n: int, plan: PrivacyPlan | None) -> Constants:
        found = Constants(
            *self.weights, self.c, self.alpha, STARTS.index(str(self.start)),
            BY_NOISE.get(str(self.aggregation), 0.0), self.noise_l1,
        )  # fmt: skip
        if plan is None:
            return found
        share = rounding_share(plan.order, self.local_steps, n)
        return found._replace(
            clip=plan.clip, rounding=share, drift=plan.drift, order=plan.order, whole=plan.whole
        )

    def with_kernels(self, ens: Callable[..., Array] | None = None) -> Algorithm:
        if not self.compiled:
            return self
        found = _WithKernels(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)})
        if ens is None:
            from ..kernels.ens import ens
        object.__setattr__(found, "ens", ens)
        return found

    @property
    def weights(self) -> tuple[float, float]:
        """``(lam, eta)`` of resolved parameters."""
        if self.lam is None or self.eta is None:
            raise ValueError("lam and eta depend on the data: resolve(problem) fills them in")
        return self.lam, self.eta

    def advice(self, problem: Problem) -> str:
        if not problem.has_lipschitz:
            return "a larger penalty parameter mu0 makes the local steps stable"
        # A round moves w_i by about k0 * g_i / nu_i, a gradient step that is stable up to 2/r_i.
        enough = (
            self.local_steps
            / 2
            * (problem.lipschitz() / self.steps(problem.data.client_sizes)).max()
        )
        if self.mu0 >= enough:
            return "the local steps are stable with this mu0"
        return f"a penalty parameter mu0 of {at_least(enough)} or more makes the local steps stable"

    def aggregate(self, server: AtServer) -> Array:
        weights = self.upload_weights(server.scale)
        return self.solve(server.Z, self.server_c(server.scale, weights), weights)

    def server_c(self, scale: Array, weights: Array | None) -> float:
        """c of the server's ENS: ``lam/eta``, and `noise_l1` times the mean scale of the noise.

        Of the uploads that have noise, by their `weights`; `scale` is as for `upload_weights`.
        """
        lam, eta = self.weights
        noisy = ~np.isnan(scale)
        if self.noise_l1 == 0.0 or not noisy.any():
            return lam / eta
        mean = np.average(scale[noisy], weights=None if weights is None else weights[noisy])
        return lam / eta + min(self.noise_l1 * float(mean), LARGEST)

    def upload_weights(self, scale: Array) -> Array | None:
        """Weights of uploads in ENS, shape (m,); None where all weigh alike.

        `scale` (m,) is that of the noise of each upload, NaN for first ones.
        """
        if self.aggregation == "equal" or np.isnan(scale).all():
            return None
        if self.aggregation == "uploaded":
            precision = np.where(np.isnan(scale), 0.0, 1.0)
        elif self.aggregation == "inverse_variance":
            precision = (np.nanmin(scale) / scale) ** 2
        else:
            precision = np.nanmin(scale) / scale
        return np.where(precision > NO_WEIGHT, precision, NO_WEIGHT)

    def solve(self, Z: Array, c: float, weights: Array | None = None) -> Array:
        """ENS of the uploads `Z` (m, n)."""
        return ens(Z, c, weights)

    def local_round(self, clients: AtClients) -> tuple[Array, Array]:
        step = self.steps(clients.sizes)
        steps = fedepm_iterates(self, clients.W, clients.x, clients.G, step, clients.tau)
        W, mu = deque(steps, maxlen=1)[0]
        return self._within_clip(W, clients.W), mu

    def _within_clip(self, W: Array, start: Array) -> Array:
        """`W` after the local steps from `start`: that of whole clients has moved by no more than
        the clip, whatever their records."""
        mechanism = self.mechanism
        if mechanism is None or mechanism.neighbours == "record":
            return W
        assert mechanism.clip is not None
        return clip_moves(W, start, mechanism.clip, mechanism.order)

    def round_start(self, W: Array, Z: Array, x: Array) -> Array:
        if self.start == "released":
            return Z
        return np.broadcast_to(x, W.shape) if self.start == "broadcast" else W

    def sensitivity(
        self, problem: Problem, S: Clients, gap: Array, tau: int, plan: PrivacyPlan
    ) -> Array:
        return plan.sensitivity(S, self.steps_of(problem, S, gap, tau), self.weights[1])

    def steps_of(self, problem: Problem, S: Clients, gap: Array, tau: int) -> list[Array]:
        """``step_i * mu`` of every local step with a mechanism, each shape (s,): public, but for
        whole clients, whose bounds do not depend on it."""
        iterations = range(tau * self.local_steps, (tau + 1) * self.local_steps)
        step = self.steps(problem.data.client_sizes[S])
        return [step * penalty_parameter(gap, k, self.mu0, self.c, self.alpha) for k in iterations]

    def describe(self) -> dict[str, Any]:
        values = super().describe()
        if self.mechanism is None:
            del values["noise_l1"]  # nothing depends on it then
        return values

    def may_upload(
        self, problem: Problem, S: Clients, gap: Array, x: Array, tau: int, plan: PrivacyPlan
    ) -> bool:
        nu = self.steps_of(problem, S, gap, tau)
        return hides_rounding(plan, S, gap, x, nu, self.weights[1])


class _WithKernels(FedEPM, abstract=True):
    """FedEPM's server and local steps by compiled kernels, called from Python."""

    ens: ClassVar[Callable[..., Array]]

    def solve(self, Z: Array, c: float, weights: Array | None = None) -> Array:
        return self.ens(Z, c, weights=weights)

    def local_round(self, clients: AtClients) -> tuple[Array, Array]:
        from ..kernels.local_steps import fedepm_local_steps_raw

        x, k0 = clients.x, self.local_steps
        out, mu = np.empty(clients.W.shape, x.dtype), np.empty(len(clients.W), x.dtype)
        lam, eta = self.weights
        # Where the result is not finite, the run has diverged.
        fedepm_local_steps_raw(
            np.ascontiguousarray(clients.W), x, clients.G,
            self.steps(clients.sizes).astype(x.dtype), np.arange(len(out)), lam, eta, self.mu0,
            self.c, self.alpha, k0, clients.tau * k0, out, mu,
        )  # fmt: skip
        return self._within_clip(out, clients.W), mu
