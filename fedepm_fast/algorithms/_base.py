"""What the algorithms have in common, and where they are found by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._common.declared import check_own_fields
from .._common.docstrings import inherit_parameters
from .._common.parameters import (
    Among,
    Around,
    check_fields,
    choice,
    integer,
    param,
    parameters,
    real,
    values_of,
)
from .._common.registry import Registry
from .._common.validation import check_array, check_choice
from ..mechanisms import Mechanism, PrivacyPlan, privacy_plan
from ..noise import NOISE_MODELS
from ..objectives import REGULARIZERS, Objective, Problem
from ..participation import check_coverage, clients_per_round
from ._views import Array, AtClients, AtServer, Clients, Sized

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
#: a number of rounds that is fixed in advance; ``curvature`` is that of `CurvatureFedEPM` alone;
#: ``fedadmm`` is the program that `FedADMM`'s authors released.
PRESETS: dict[str, Preset] = {
    "released": Preset(REGULARIZERS[0], STEPS[0], "standardized", "released"),
    "text": Preset(REGULARIZERS[1], STEPS[1], "laplace", "text"),
    "private": Preset(REGULARIZERS[0], STEPS[0], "private", "none"),
    "curvature": Preset(REGULARIZERS[0], STEPS[1], "none", "converged"),
    "fedadmm": Preset(REGULARIZERS[0], STEPS[0], "none", "fedadmm"),
}


#: The algorithms by name, a user's own beside the built-in ones.
ALGORITHMS: Registry[type[Algorithm]] = Registry("algorithm", __package__)


@dataclass(frozen=True)
class Algorithm:
    """What the algorithms have in common.

    An algorithm of your own is a frozen dataclass derived from this one or from another, its
    fields the parameters, with methods of its own for what differs: `aggregate` for the server,
    `local_round` and `upload` for the clients, in NumPy, as the equations are printed. They are the
    reference of its compiled `stages`, and run it where there are none, or where a class changes
    a hook and not the stages. Its definition enters it in `ALGORITHMS` under its `name`; that of a
    class of which there are no runs, ``class Base(Algorithm, abstract=True)``, does not.

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

    local_steps: int = param(
        12, check=integer(low=1), symbol="$k_0$", search=Among((4, 8, 12, 16, 20)),
        help="Local steps between two communications, k0",
    )  # fmt: skip
    participation: float = param(
        0.5, check=real(low=0.0, high=1.0, open_low=True), symbol=r"$\rho$",
        help="Share of clients in a round, in (0, 1]",
    )  # fmt: skip
    epsilon: float = param(
        0.1, check=real(low=0.0, open_low=True),
        symbol=r"$\varepsilon$", label=r"$\varepsilon$ (no privacy guarantee)",
        help="Divides the noise; no privacy guarantee, see --private",
    )  # fmt: skip
    preset: str = param(
        "released", check=choice(PRESETS),
        help="released: the authors' program; text: the printed equations",
    )  # fmt: skip
    noise: str | None = param(
        None, metavar="MODEL", help="standardized, laplace or none; by default the preset's"
    )
    mu0: float = param(
        0.05, check=real(low=0.0, open_low=True), search=Around(20.0, 20.0),
        symbol=r"$\mu_0$", label=r"penalty parameter $\mu_0$",
        help="Penalty parameter of the local steps at the start",
    )  # fmt: skip
    c: float = param(
        1e-8, check=real(low=0.0), symbol="$c$", label="penalty growth with the gap $c$",
        help="Growth of the penalty parameter with the gap",
    )  # fmt: skip
    alpha: float = param(
        1.001, check=real(low=1.0), symbol=r"$\alpha$", label=r"penalty growth $\alpha$",
        help="Growth of the penalty parameter in a local step",
    )  # fmt: skip
    coverage_rounds: int | None = param(
        None, check=integer(low=1), symbol="$s_0$", metavar="S0",
        help="Every client takes part at least once in so many rounds",
    )  # fmt: skip
    mechanism: Mechanism | None = None

    #: What results call it: the name of its class, unless the class says otherwise.
    name: ClassVar[str]
    #: What figures and tables call it; the name, unless the class says otherwise.
    label: ClassVar[str]
    #: Parameters that `tuning.tune` searches if no space is given, as their fields say.
    tuned: ClassVar[tuple[str, ...]] = ()
    #: What each client keeps beside w_i and z_i: n numbers for each name.
    keeps: ClassVar[tuple[str, ...]] = ()
    #: What the server sends to the clients beside x: n numbers for each name.
    shares: ClassVar[tuple[str, ...]] = ()
    #: Those of `shares` that the server keeps to itself: clients are not sent them.
    hides: ClassVar[tuple[str, ...]] = ()
    #: What each client tells the server of its rows when it joins: a number for each name, `told`.
    tells: ClassVar[tuple[str, ...]] = ()
    #: Whether its server keeps a model of each client: `server` and `models` stand for the hooks.
    keeps_models: ClassVar[bool] = False
    #: Whether its server goes back by itself to where f was less.
    safeguarded: ClassVar[bool] = False

    def __init_subclass__(cls, *, abstract: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_own_fields(cls, "algorithm")
        if "name" not in vars(cls):
            cls.name = cls.__name__
        if "label" not in vars(cls):
            cls.label = cls.name
        inherit_parameters(cls, cls.__mro__[1])
        if not abstract:
            ALGORITHMS.add(cls.name, cls)

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.preset == "curvature") != self.keeps_models:
            raise ValueError(
                f"preset must be another one for {type(self).__name__}, got {self.preset!r}"
            )
        if self.mechanism is not None:
            self._check_mechanism(self.mechanism)
        elif self.preset == "private":
            raise ValueError("preset 'private' needs a mechanism, see fedepm_fast.privacy")
        if self.noise is not None:
            # That of a mechanism has no other name, which is checked with it.
            check_choice("noise", self.noise, ("private",) if self.mechanism else NOISE_MODELS)

    def _check_mechanism(self, mechanism: Any) -> None:
        raise ValueError(
            f"mechanism must be None for {type(self).__name__}: no sensitivity of what its clients "
            "send is proved; use FedEPM, or clip whole updates"
        )

    def resolve(self, problem: Sized) -> Self:
        """This algorithm with every default that depends on preset or size filled in."""
        return dataclasses.replace(self, noise=self._noise_for(problem))

    def _noise_for(self, problem: Sized) -> str:
        """The name of the noise model, which must be one for so many parameters."""
        model = self.noise_model
        if problem.n_parameters < model.min_features:
            raise ValueError(
                f"noise {model.name!r} needs at least {model.min_features} parameters, "
                f"the problem has {problem.n_parameters}: noise='laplace' or noise='none' needs one"
            )
        return self.noise or PRESETS[self.preset].noise

    @property
    def noise_model(self) -> Any:
        """What makes the noise: the mechanism, or the noise model of parameters or preset."""
        return self.mechanism or NOISE_MODELS[self.noise or PRESETS[self.preset].noise]

    def check_coverage(self, m: int) -> None:
        """Raise ValueError unless so few clients a round can cover all `m` in time."""
        if self.coverage_rounds is not None:
            check_coverage(self.coverage_rounds, m, clients_per_round(self.participation, m))

    def objective(self, objective: Objective) -> Objective:
        """`objective` with the preset's regulariser where it leaves that open."""
        if objective.regularizer is not None:
            return objective
        return objective.changed(regularizer=PRESETS[self.preset].regularizer)

    def steps(self, sizes: NDArray[np.int64]) -> Array:
        """The step of clients of so many samples, shape (s,), before what changes with rounds."""
        raise NotImplementedError

    def told(self, problem: Problem) -> Array:
        """The numbers that clients tell when they join, shape (len(tells), m), in that order.

        Client i's depend on its own rows alone, and on the number of clients.
        """
        return np.empty((0, problem.n_clients))

    def agreed(self, told: Array) -> Array:
        """What the server makes of these numbers and says to each client: hooks and stages know it.

        By default they are as they were told.
        """
        return told

    def known(self, problem: Problem) -> Array:
        """The numbers that were told and agreed, shape (len(tells), m), checked."""
        shape = (len(self.tells), problem.n_clients)
        hooks = type(self).told, type(self).agreed
        if not self.tells and hooks == (Algorithm.told, Algorithm.agreed):
            return np.empty(shape)
        found = check_array("told", self.told(problem), shape=shape)
        return check_array("agreed", self.agreed(found), shape=shape)

    def gradients_per_round(self, sizes: NDArray[np.int64]) -> Array:
        """How often clients of so many samples go through their rows in a round, shape (s,)."""
        return np.full(len(sizes), float(self.local_steps))

    def numbers_sent(self, n: int, taken_part: int) -> int:
        """Numbers that a client has sent when it has joined and took part so many times."""
        return len(self.tells) + n * (1 + taken_part)

    def numbers_received(self, n: int, taken_part: int) -> int:
        """Numbers that it was sent by then, the point at which it began included."""
        return n + n * (1 + len(self.sent_along)) * taken_part

    @property
    def sent_along(self) -> tuple[str, ...]:
        """What the server sends to the clients of a round beside x, names of `shares`."""
        return tuple(name for name in self.shares if name not in self.hides)

    # The hooks: what server and clients do in a round ------------------------------------

    def aggregate(self, server: AtServer) -> Array:
        """The server's point, shape (n,)."""
        raise NotImplementedError

    def round_start(self, W: Array, Z: Array, x: Array) -> Array:
        """Where the local steps of clients with parameters `W` and uploads `Z` start."""
        return W

    def local_round(self, clients: AtClients) -> tuple[Array, Array]:
        """The selected clients' parameters after their local steps (s, n), and the last mu (s,).

        Noise is divided by mu.
        """
        raise NotImplementedError

    def upload(self, clients: AtClients, W: Array, noise: Array) -> Array:
        """What the clients send, (s, n), of their parameters and noise of that shape."""
        return W + noise

    def noise_scale(
        self, problem: Problem, S: Clients, gap: Array, G: Array, mu: Array, tau: int, plan: Any
    ) -> Array:
        """Scale of the noise of the clients `S`, shape (s,).

        `gap` is ``w_i - x`` at the start of the round, `mu` that of its last step, and `plan`
        the `PrivacyPlan` of a run with a mechanism.
        """
        if plan is None:
            return np.asarray(self.noise_model.scale(G, self.epsilon, mu))
        return np.asarray(plan.multipliers[S] * self.sensitivity(problem, S, gap, tau, plan))

    def sensitivity(
        self, problem: Problem, S: Clients, gap: Array, tau: int, plan: PrivacyPlan
    ) -> Array:
        """How far a record can move the uploads of the clients `S` with a mechanism, shape (s,)."""
        raise NotImplementedError

    def may_upload(
        self, problem: Problem, S: Clients, gap: Array, x: Array, tau: int, plan: PrivacyPlan
    ) -> bool:
        """Whether the noise of the clients `S` hides rounding too, by what is public."""
        return True

    def plan(self, problem: Problem, participations: NDArray[np.int64]) -> PrivacyPlan | None:
        """The plan of a run in which each client uploads so often; None without a mechanism."""
        if self.mechanism is None:
            return None
        return privacy_plan(self.mechanism, problem, participations)

    # Compiled, for those that offer it ----------------------------------------------------

    def constants(self, n: int, plan: PrivacyPlan | None) -> tuple[float, ...]:
        """What the compiled stages need to know, for n coordinates: a named tuple of floats."""
        return ()

    def stages(self, client: Any) -> tuple[Any, Any]:
        """The compiled `aggregate` and `local_round`: see `fedepm_fast.kernels.engine`.

        `client` is a client's objective, as `kernels.engine.objective_of` gives it.
        """
        raise NotImplementedError

    def with_kernels(self, ens: Callable[..., Array] | None = None) -> Algorithm:
        """These parameters with hooks that call compiled kernels, where there are some.

        `ens` is the elastic-net solver that they call, that of `kernels.ens` by default.
        """
        return self

    @property
    def draws_batches(self) -> bool:
        """Whether clients take gradients of some of their rows, drawn at random."""
        return False

    @property
    def compiled(self) -> bool:
        """Whether there are compiled stages, and no class below theirs changes what they do, and
        compiled noise."""
        if not self.noise_model.law.compiled:
            return False
        for cls in type(self).__mro__:
            if "stages" in vars(cls):
                return cls is not Algorithm
            own = {name for name, value in vars(cls).items() if callable(value)}
            if any(name[:2] != "__" and name not in _ASKED_BY_ALL for name in own):
                return False
        return False

    def advice(self, problem: Problem) -> str:
        """What to change when a run with these parameters diverges."""
        return "smaller steps, or data brought to one scale, may keep it stable"

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain values, for records."""
        known = values_of(self).items()
        own = {name: _plain(value) for name, value in known if name in parameters(type(self))}
        values: dict[str, Any] = {"name": self.name, **own}
        if self.mechanism is not None:
            del values["epsilon"]  # the paper's, which nothing depends on then
            values["mechanism"] = self.mechanism.describe()
        return values


#: Methods that runs ask whatever computes them; all others are hooks, or called by hooks.
_ASKED_BY_ALL = {
    "_check_mechanism", "advice", "agreed", "constants", "describe", "gradients_per_round",
    "numbers_received", "numbers_sent", "objective", "plan", "resolve", "steps", "told",
}  # fmt: skip


def _plain(value: Any) -> Any:
    """A parameter of an algorithm of the user's as JSON has it."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
