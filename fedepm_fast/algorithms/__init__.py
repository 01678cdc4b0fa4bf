"""The algorithms: frozen, validated parameter objects, and what each does in a round."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._docstrings import inherit_parameters
from .._validation import check_choice, check_int, check_real
from ..noise import NOISE_MODELS, NoiseModel
from ..objectives import REGULARIZERS, Objective, Problem
from ..participation import check_coverage, clients_per_round
from ..privacy.mechanisms import (
    FOR_ROUNDING,
    LARGEST,
    MECHANISMS,
    NOISE_SHARE,
    Mechanism,
    drift,
    gradient_rounding,
    hides_rounding,
    rounding_share,
    upload_sensitivity,
)
from ..reference import (
    NO_WEIGHT,
    ens,
    fedepm_iterates,
    penalty_parameter,
    sfedavg_iterates,
    sfedprox_iterates,
)

Array = NDArray[np.float64]
Clients = NDArray[np.intp]

#: How a client's step scales its penalty parameter mu: ``"1/d"`` divides by its number of
#: samples, ``"1"`` does not.
STEPS = ("1/d", "1")


@dataclass(frozen=True)
class Preset:
    """Choices that belong together; mixing two presets can diverge.

    Parameters
    ----------
    regularizer, step, noise, stopping : str
        What an objective, FedEPM, the uploads and a run have where nothing else is asked for.
    """

    regularizer: str
    step: str
    noise: str
    stopping: str


#: ``released`` is the authors' program, from which the paper's figures come; ``text`` is the
#: equations as printed; ``private`` is the program with a mechanism of `fedepm_fast.privacy` and
#: a number of rounds that is fixed in advance.
PRESETS: dict[str, Preset] = {
    "released": Preset(REGULARIZERS[0], STEPS[0], "standardized", "released"),
    "text": Preset(REGULARIZERS[1], STEPS[1], "laplace", "text"),
    "private": Preset(REGULARIZERS[0], STEPS[0], "private", "none"),
}

#: Where a client's local steps of a round start: at its own hidden parameter w_i, at its last
#: upload z_i, or at the server's point x.
STARTS = ("own", "released", "broadcast")

#: How the server weighs uploads: all alike; alike, but without clients that never uploaded; or by
#: the inverse variance of their noise, which with a mechanism is public.
AGGREGATIONS = ("equal", "uploaded", "inverse_variance")


class PrivacyPlan(NamedTuple):
    """What a private run fixes before it begins."""

    change: Array
    """Bound on what one record changes in each client's gradient, shape (m,)."""
    multipliers: Array
    """Scale of each client's noise over the sensitivity of its upload, shape (m,)."""
    pull: Array
    """Largest second derivative of each client's regulariser, shape (m,)."""
    drift: float
    """How small `change` may be beside the size of x: see `privacy.mechanisms.drift`."""


@dataclass(frozen=True)
class Algorithm:
    """What the algorithms have in common.

    An algorithm of your own is a frozen dataclass derived from this one or from another, its
    fields the parameters, with methods of its own for what differs. NumPy runs it, equation by
    equation. Enter its class in `ALGORITHMS` under its `name` to use it in sweeps.

    Parameters
    ----------
    local_steps : int
        Local iterations of a client between two communications, k0.
    participation : float
        Share of the clients that take part in a round, rho in (0, 1]; ``ceil(rho*m)`` do.
    epsilon : float
        Divides the noise of the uploads. In the paper a privacy budget; the noise models of
        these algorithms are *not* differentially private, see `mechanism`.
    preset : {"released", "text", "private"}
        The authors' program, or the equations as printed: regulariser, step, noise and
        stopping rule. ``"private"`` is what a `mechanism` makes of the first.
    noise : {"standardized", "laplace", "none"}, optional
        Overrides the preset's noise model.
    mu0, c, alpha : float
        Penalty parameter ``mu = mu0 * (1 + c*|w_i - x|^2) * alpha^(k+1)``; the baselines use
        it for the scale of their noise only.
    coverage_rounds : int, optional
        If given, every client takes part at least once in every such number of rounds;
        otherwise the clients of a round are drawn uniformly.
    mechanism : privacy.LaplaceMechanism or privacy.GaussianMechanism, optional
        Differentially private uploads, FedEPM only; see `fedepm_fast.privacy`.
    """

    local_steps: int = 12
    participation: float = 0.5
    epsilon: float = 0.1
    preset: str = "released"
    noise: str | None = None
    mu0: float = 0.05
    c: float = 1e-8
    alpha: float = 1.001
    coverage_rounds: int | None = None
    mechanism: Mechanism | None = None

    #: What results call it: the name of its class, unless the class says otherwise.
    name: ClassVar[str]
    #: What it keeps of each client beside w_i and z_i: a row of n numbers for each name.
    keeps: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = cls.__name__
        inherit_parameters(cls, cls.__mro__[1])

    def __post_init__(self) -> None:
        self._check("local_steps", check_int, low=1)
        self._check("participation", check_real, low=0.0, high=1.0, open_low=True)
        self._check("epsilon", check_real, low=0.0, open_low=True)
        check_choice("preset", self.preset, PRESETS)
        if self.mechanism is not None:
            self._check_mechanism(self.mechanism)
        elif self.preset == "private":
            raise ValueError("preset 'private' needs a mechanism, see fedepm_fast.privacy")
        if self.noise is not None:
            given = tuple(name for name in NOISE_MODELS if name != "private")
            check_choice("noise", self.noise, NOISE_MODELS if self.mechanism else given)
        self._check("mu0", check_real, low=0.0, open_low=True)
        self._check("c", check_real, low=0.0)
        self._check("alpha", check_real, low=1.0)
        if self.coverage_rounds is not None:
            self._check("coverage_rounds", check_int, low=1)

    def _check_mechanism(self, mechanism: Any) -> None:
        raise ValueError(
            f"mechanism must be None for {type(self).__name__}: it takes many gradients at hidden "
            "points, whose sensitivity has no closed form; use FedEPM, or clip whole updates"
        )

    def _check(self, field: str, check: Any, **bounds: Any) -> None:
        object.__setattr__(self, field, check(field, getattr(self, field), **bounds))

    def resolve(self, problem: Problem) -> Self:
        """This algorithm with every default that depends on preset or data filled in."""
        noise = self.noise_model
        if problem.n_parameters < noise.min_features:
            raise ValueError(
                f"noise {noise.name!r} needs at least {noise.min_features} parameters, "
                f"the problem has {problem.n_parameters}: noise='laplace' or noise='none' needs one"
            )
        return dataclasses.replace(self, noise=noise.name)

    @property
    def noise_model(self) -> NoiseModel:
        """The noise model of these parameters or of their preset."""
        return NOISE_MODELS[self.noise or PRESETS[self.preset].noise]

    def check_coverage(self, m: int) -> None:
        """Raise ValueError unless so few clients a round can cover all `m` in time."""
        if self.coverage_rounds is not None:
            check_coverage(self.coverage_rounds, m, clients_per_round(self.participation, m))

    def objective(self, objective: Objective) -> Objective:
        """`objective` with the preset's regulariser where it leaves that open."""
        if objective.regularizer is not None:
            return objective
        return objective.changed(regularizer=PRESETS[self.preset].regularizer)

    def steps(self, problem: Problem) -> Array:
        """The step of every client, shape (m,), before what changes with the rounds."""
        raise NotImplementedError

    def aggregate(self, Z: Array, S: Clients, scale: Array) -> Array:
        """The server's point.

        `Z` (m, n) are the uploads, `S` the newly selected clients, and `scale` (m,) that of the
        noise of each upload, NaN for the first ones.
        """
        raise NotImplementedError

    def local_round(
        self, problem: Problem, S: Clients, x: Array, W: Array, G: Array, tau: int
    ) -> tuple[Array, Array]:
        """The local steps of the clients `S`: their parameters (s, n) and last mu (s,)."""
        raise NotImplementedError

    def round_start(self, W: Array, Z: Array, x: Array) -> Array:
        """Where the local steps of clients with parameters `W` and uploads `Z` start."""
        return W

    def noise_scale(
        self, problem: Problem, S: Clients, gap: Array, G: Array, mu: Array, tau: int, plan: Any
    ) -> Array:
        """Scale of the noise of the clients `S`, shape (s,).

        `gap` is ``w_i - x`` at the start of the round, `mu` that of its last step, and `plan`
        the `PrivacyPlan` of a run with a mechanism.
        """
        return self.noise_model.scale(G, self.epsilon, mu)

    def may_upload(
        self, problem: Problem, S: Clients, gap: Array, x: Array, tau: int, plan: PrivacyPlan
    ) -> bool:
        """Whether the noise of the clients `S` hides rounding too, by what is public."""
        return True

    def plan(self, problem: Problem, participations: NDArray[np.int64]) -> PrivacyPlan | None:
        """The plan of a run in which each client uploads so often; None without a mechanism."""
        return None

    def constants(self, n: int, plan: PrivacyPlan | None) -> tuple[float, ...]:
        """What the compiled stages need to know, for n coordinates."""
        return ()

    def stages(self, client: Any) -> tuple[Any, Any]:
        """The compiled `aggregate` and `local_round`: see `fedepm_fast.kernels.engine`.

        `client` is a client's objective, as `kernels.losses.objective_device` gives it.
        """
        raise NotImplementedError

    @property
    def compiled(self) -> bool:
        """Whether the class has compiled stages of its own: inherited ones are of its base."""
        return "stages" in vars(type(self))

    def advice(self, problem: Problem) -> str:
        """What to change when a run with these parameters diverges."""
        return "smaller steps, or data brought to one scale, may keep it stable"

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain values, for records."""
        own = {name: _plain(value) for name, value in dataclasses.asdict(self).items()}
        values: dict[str, Any] = {"name": self.name, **own}
        if self.mechanism is not None:
            del values["epsilon"]  # the paper's, which nothing depends on then
            values["mechanism"] = self.mechanism.describe()
        return values


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
    aggregation : {"equal", "uploaded", "inverse_variance"}, optional
        How the server weighs uploads: all alike, the default; alike, but without those of clients
        that have not been selected yet; or by the inverse variance of their noise, which is
        public with a mechanism and needs one.
    """

    lam: float | None = None
    eta: float | None = None
    step: str | None = None
    start: str | None = None
    aggregation: str | None = None

    name: ClassVar[str] = "fedepm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lam is not None:
            self._check("lam", check_real, low=0.0)
        if self.eta is not None:
            self._check("eta", check_real, low=0.0, open_low=True)
        if self.step is not None:
            check_choice("step", self.step, STEPS)
        if self.start is not None:
            check_choice("start", self.start, STARTS[1:] if self.mechanism else STARTS)
        if self.aggregation is not None:
            known = AGGREGATIONS if self.mechanism else AGGREGATIONS[:2]
            check_choice("aggregation", self.aggregation, known)

    def _check_mechanism(self, mechanism: Any) -> None:
        # Exactly these: what a subclass does is not accounted for.
        if type(mechanism) not in MECHANISMS.values():
            raise TypeError(
                "mechanism must be a LaplaceMechanism or GaussianMechanism of "
                f"fedepm_fast.privacy, got {type(mechanism).__name__}"
            )
        if self.preset == "text" or self.noise not in (None, "private"):
            raise ValueError(
                "a mechanism brings its own preset and noise, got "
                f"preset={self.preset!r}, noise={self.noise!r}"
            )
        object.__setattr__(self, "preset", "private")

    def resolve(self, problem: Problem) -> Self:
        resolved = super().resolve(problem)
        if self.mechanism is not None:
            mechanism = self.mechanism.resolve(problem.n_samples, problem.n_parameters)
            resolved = dataclasses.replace(resolved, mechanism=mechanism)
        m, rho = problem.n_clients, self.participation
        eta = self.eta if self.eta is not None else (0.02 * m + 1) * (rho + 0.1) * 1e-5
        lam = self.lam if self.lam is not None else eta / 2
        step = self.step or PRESETS[self.preset].step
        private = self.mechanism is not None
        return dataclasses.replace(
            resolved,
            lam=lam,
            eta=eta,
            step=step,
            start=self.start or STARTS[private],
            aggregation=self.aggregation or AGGREGATIONS[0],
        )

    def steps(self, problem: Problem) -> Array:
        """``step_i`` of every client, shape (m,)."""
        sizes = problem.data.client_sizes
        return 1.0 / sizes if self.step == STEPS[0] else np.ones(len(sizes))

    def stages(self, client: Any) -> tuple[Any, Any]:
        from ._compiled import fedepm

        return fedepm(self.aggregation != "equal", self.mechanism is not None)

    def constants(self, n: int, plan: PrivacyPlan | None) -> tuple[float, ...]:
        found = (
            *self.weights, self.c, self.alpha, STARTS.index(str(self.start)),
            self.aggregation == "inverse_variance", NO_WEIGHT,
        )  # fmt: skip
        if plan is None or self.mechanism is None:
            return found
        share = rounding_share(self.mechanism.order, self.local_steps, n)
        clip = self.mechanism.clip or 0.0
        return (*found, clip, share, NOISE_SHARE, plan.drift, LARGEST)

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
        enough = self.local_steps / 2 * (problem.lipschitz() / self.steps(problem)).max()
        if self.mu0 >= enough:
            return "the local steps are stable with this mu0"
        return f"a penalty parameter mu0 of {enough:.2g} or more makes the local steps stable"

    def aggregate(self, Z: Array, S: Clients, scale: Array) -> Array:
        lam, eta = self.weights
        return self.solve(Z, lam / eta, self.upload_weights(scale))

    def upload_weights(self, scale: Array) -> Array | None:
        """Weights of uploads in ENS, shape (m,); None where all weigh alike.

        `scale` (m,) is that of the noise of each upload, NaN for first ones.
        """
        if self.aggregation == "equal" or np.isnan(scale).all():
            return None
        if self.aggregation == "uploaded":
            precision = np.where(np.isnan(scale), 0.0, 1.0)
        else:
            precision = (np.nanmin(scale) / scale) ** 2
        return np.where(precision > NO_WEIGHT, precision, NO_WEIGHT)

    def solve(self, Z: Array, c: float, weights: Array | None = None) -> Array:
        """ENS of the uploads `Z` (m, n)."""
        return ens(Z, c, weights)

    def local_round(
        self, problem: Problem, S: Clients, x: Array, W: Array, G: Array, tau: int
    ) -> tuple[Array, Array]:
        return _last(fedepm_iterates(self, W, x, G, self.steps(problem)[S], tau))

    def round_start(self, W: Array, Z: Array, x: Array) -> Array:
        if self.start == "released":
            return Z
        return np.broadcast_to(x, W.shape) if self.start == "broadcast" else W

    def plan(self, problem: Problem, participations: NDArray[np.int64]) -> PrivacyPlan | None:
        mechanism = self.mechanism
        if mechanism is None:
            return None
        if mechanism.clip is None:
            raise ValueError("clip depends on the data's size: resolve(problem) fills it in")
        clip, sizes, n = mechanism.clip, problem.data.client_sizes, problem.n_parameters
        objective = problem.objective
        slope = objective.slope_in(mechanism.order)
        change = 2 * clip / sizes * (1 + FOR_ROUNDING) + 2 * gradient_rounding(clip, sizes, n)
        if slope is None:
            raise ValueError(f"the objective {objective.name!r} has no bound on its derivative")
        moved = drift(clip, slope, objective.curvature, n)
        multipliers = mechanism.noise_multipliers(participations)
        return PrivacyPlan(change, multipliers, problem.reg_curvature, moved)

    def noise_scale(
        self, problem: Problem, S: Clients, gap: Array, G: Array, mu: Array, tau: int, plan: Any
    ) -> Array:
        if plan is None:
            return super().noise_scale(problem, S, gap, G, mu, tau, plan)
        return plan.multipliers[S] * self.sensitivity(problem, S, gap, tau, plan)

    def sensitivity(
        self, problem: Problem, S: Clients, gap: Array, tau: int, plan: PrivacyPlan
    ) -> Array:
        """How far a record can move the uploads of the clients `S` with a mechanism, shape (s,)."""
        nu = self._public_steps(problem, S, gap, tau)
        return upload_sensitivity(plan.change[S], nu, self.weights[1])

    def _public_steps(self, problem: Problem, S: Clients, gap: Array, tau: int) -> list[Array]:
        """``step_i * mu`` of every local step with a mechanism, each shape (s,)."""
        iterations = range(tau * self.local_steps, (tau + 1) * self.local_steps)
        step = self.steps(problem)[S]
        return [step * penalty_parameter(gap, k, self.mu0, self.c, self.alpha) for k in iterations]

    def may_upload(
        self, problem: Problem, S: Clients, gap: Array, x: Array, tau: int, plan: PrivacyPlan
    ) -> bool:
        mechanism = self.mechanism
        assert mechanism is not None and mechanism.clip is not None
        nu = self._public_steps(problem, S, gap, tau)
        share = rounding_share(mechanism.order, self.local_steps, len(x))
        return hides_rounding(
            plan, S, gap, x, nu, self.weights[1], clip=mechanism.clip, share=share
        )


@dataclass(frozen=True)
class _Averaging(Algorithm):
    """What the baselines share: the server averages the newly selected clients' uploads.

    Parameters
    ----------
    learning_rate : float
        The step is ``learning_rate * d_i / sqrt(2*k0 + tau)``.
    """

    learning_rate: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("learning_rate", check_real, low=0.0, open_low=True)

    def advice(self, problem: Problem) -> str:
        if not problem.has_lipschitz:
            return "a smaller learning_rate makes the local steps stable"
        # Gradient steps are stable up to 2/r_i.
        scaled = problem.lipschitz() * problem.data.client_sizes
        most = 2 * (2 * self.local_steps) ** 0.5 / scaled.max()
        if self.learning_rate <= most:
            return "the local steps are stable with this learning_rate"
        return f"a learning_rate of {most:.2g} or less makes the local steps stable"

    def steps(self, problem: Problem) -> Array:
        """``learning_rate * d_i`` of every client, shape (m,)."""
        return self.learning_rate * problem.data.client_sizes.astype(np.float64)

    def aggregate(self, Z: Array, S: Clients, scale: Array) -> Array:
        return Z[S].mean(axis=0)

    def iterates(self, problem: Problem, i: int, x: Array, g: Array, tau: int) -> Iterator[Array]:
        """The local iterates of client i, starting from `x`, where its gradient is `g`."""
        raise NotImplementedError

    def local_round(
        self, problem: Problem, S: Clients, x: Array, W: Array, G: Array, tau: int
    ) -> tuple[Array, Array]:
        new, gap = np.empty_like(W), np.empty_like(W)
        for row, i in enumerate(S):
            # Iteration k's mu takes the gap before that step, hence the last two iterates.
            *before, new[row] = deque(self.iterates(problem, i, x, G[row], tau), maxlen=2)
            gap[row] = before[0] - x if before else 0.0
        last = (tau + 1) * self.local_steps - 1
        return new, penalty_parameter(gap, last, self.mu0, self.c, self.alpha)


@dataclass(frozen=True)
class SFedAvg(_Averaging):
    """Secure federated averaging: full-gradient local steps, noisy uploads, an average."""

    name: ClassVar[str] = "sfedavg"

    def stages(self, client: Any) -> tuple[Any, Any]:
        from ._compiled import averaging

        return averaging(client)

    def constants(self, n: int, plan: PrivacyPlan | None) -> tuple[float, ...]:
        return self.c, self.alpha, 0.0, 1

    def iterates(self, problem: Problem, i: int, x: Array, g: Array, tau: int) -> Iterator[Array]:
        return sfedavg_iterates(self, problem, i, x, g, tau)


@dataclass(frozen=True)
class SFedProx(_Averaging):
    """Secure FedProx: each local step solves a proximal problem by a few gradient steps.

    Parameters
    ----------
    prox : float
        Weight of the proximal term ``prox/2 * |w - x|^2``.
    inner_steps : int
        Gradient steps per local step.
    """

    prox: float = 1e-5
    inner_steps: int = 3

    name: ClassVar[str] = "sfedprox"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("prox", check_real, low=0.0)
        self._check("inner_steps", check_int, low=1)

    def stages(self, client: Any) -> tuple[Any, Any]:
        from ._compiled import averaging

        return averaging(client)

    def constants(self, n: int, plan: PrivacyPlan | None) -> tuple[float, ...]:
        return self.c, self.alpha, self.prox, self.inner_steps

    def iterates(self, problem: Problem, i: int, x: Array, g: Array, tau: int) -> Iterator[Array]:
        return sfedprox_iterates(self, problem, i, x, g, tau)


def _last(iterates: Iterator[tuple[Array, Array]]) -> tuple[Array, Array]:
    return deque(iterates, maxlen=1)[0]


def _plain(value: Any) -> Any:
    """A parameter of an algorithm of the user's as JSON has it."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


ALGORITHMS: dict[str, type[Algorithm]] = {cls.name: cls for cls in (FedEPM, SFedAvg, SFedProx)}
