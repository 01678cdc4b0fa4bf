"""FedEPM whose quadratic penalty is the curvature of the objective, for any data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from .._common.parameters import choice, integer, param, real
from .._common.validation import check_choice
from ..objectives import Problem
from ..objectives._curvature import bound_block, packed
from ..participation import clients_per_round
from ._base import Algorithm
from ._coordinates import Coordinates, coordinates_of
from ._operators import ens as reference_ens
from ._quadratics import Common, Hessians, Quadratics, Secants
from ._surrogates import Surrogates
from ._views import Array, Sized
from ._whitened import Whitened, mean_coordinates

#: What a client's penalty is measured in, see `CurvatureFedEPM`.
COORDINATES = ("auto", "renewed", "secant", "whitened", "columns", "given")
#: Those with one metric for all clients, by the names that `coordinates_of` has.
_COMMON = {"whitened": "dense", "columns": "columns", "given": "identity"}
#: Columns beyond which whitening knows the leading directions only.
WHOLE = 1000
#: Where Hessians are sent: so many parameters at most, and so many numbers of all clients.
_PARAMETERS, _NUMBERS = 1000, 20_000_000


@dataclass(frozen=True)
class CurvatureFedEPM(Algorithm):
    """FedEPM with eta the curvature: an exact method for any data, few clients, any loss.

    The paper's eta is far below the penalty mu of the local steps, which makes a round a gradient
    step of a length that nothing ties to the data. With eta far above mu a client's local steps
    end, whatever their number, at ``x - g_i/eta``: then FedEPM is an incremental aggregated
    gradient method, which converges linearly, and to the exact optimum under partial participation,
    where eta bounds the curvature (docs: Why FedEPM works). Here eta is a matrix M_i for each
    client, what is known of the curvature of f_i, with damping as a safeguard: numbers that
    clients send anyway tell when a model promised too much.

    One gradient of each participant is all that a round computes; uploads carry no noise.

    Parameters
    ----------
    participation : float
        Share of the clients of a round, rho in (0, 1]; in the first round all take part.
    coverage_rounds : int, optional
        Every client takes part at least once in so many rounds; by default in as few as there can
        be, ``ceil(m / m0)``.
    coordinates : {"auto", "renewed", "secant", "whitened", "columns", "given"}
        Where M_i comes from, and so what clients send beside n + 1 numbers a round:

        * ``"renewed"``: their Hessians, ``n*(n+1)/2`` numbers every `renew_every` times;
        * ``"secant"``: nothing: the server sees how their gradients turn (limited-memory BFGS for
          each client), over a diagonal that bounds their curvature, 2n numbers once;
        * ``"whitened"``, ``"columns"``, ``"given"``: one M for all, a bound of the mean
          objective's curvature: as a matrix (beyond 1,000 columns its leading directions), a
          diagonal, or a number. This is MISO/Finito, and with `lam` above 0 ENS aggregates.

        ``"auto"`` takes the first up to 1,000 parameters and 20 million numbers of all clients
        together, and ``"secant"`` beyond.
    renew_every : int
        A client sends its Hessian each so many times that it takes part.
    memory : int
        Steps of each client that ``"secant"`` remembers.
    lam : float
        Weight of the l1 part of the penalty as a share of eta, in coordinates in which eta is the
        identity; 0 is the limit, in which the fixed point is the optimum.
    tol : float
        Converged once a further round is expected to lower f by less than this share of what it
        was at the start.
    """

    participation: float = param(
        1.0, check=real(low=0.0, high=1.0, open_low=True), symbol=r"$\rho$",
        help="Share of clients in a round, in (0, 1]", shown="0.5; of curvature 1",
    )  # fmt: skip
    coordinates: str = param(
        "auto", check=choice(COORDINATES),
        help="Where the curvature comes from: renewed, secant, whitened, columns or given",
    )  # fmt: skip
    renew_every: int = param(
        1, check=integer(low=1),
        help="A client sends its Hessian each so many times that it takes part",
    )  # fmt: skip
    memory: int = param(
        8, check=integer(low=1), help="Steps of each client that secant coordinates remember"
    )
    lam: float = param(
        0.0, check=real(low=0.0, high=1.0), option="lam_share", symbol=r"$\lambda/\eta$",
        help="Weight of the l1 penalty as a share of eta",
    )  # fmt: skip
    tol: float = param(
        1e-12, check=real(low=0.0),
        help="Converged where a round lowers f by less than this share of its start",
    )  # fmt: skip

    # What the paper's regime has and this one has not.
    local_steps: int = param(1, help="", init=False)
    epsilon: float = param(1.0, help="", init=False)
    preset: str = param("curvature", help="", init=False)
    noise: str | None = param("none", help="", init=False)
    mu0: float = param(1.0, help="", init=False)
    c: float = param(0.0, help="", init=False)
    alpha: float = param(1.0, help="", init=False)

    name: ClassVar[str] = "curvature"
    label: ClassVar[str] = "FedEPM (curvature)"
    keeps_models: ClassVar[bool] = True
    safeguarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lam > 0 and self.coordinates not in _COMMON:
            check_choice("coordinates with lam above 0", self.coordinates, _COMMON)

    def resolve(self, problem: Sized) -> Self:
        m, n = problem.n_clients, problem.n_parameters
        chosen = self.coordinates
        if chosen == "auto":
            few = n <= _PARAMETERS and m * (n * (n + 1) // 2) <= _NUMBERS
            chosen = "renewed" if few else "secant"
        return dataclasses.replace(self, coordinates=chosen, coverage_rounds=self.coverage(m))

    def coverage(self, m: int) -> int | None:
        """In how many rounds all of m clients take part; None where they are drawn uniformly."""
        return self.coverage_rounds or math.ceil(m / clients_per_round(self.participation, m))

    @property
    def compiled(self) -> bool:
        """Clients' gradients are; the server's part is linear algebra."""
        return True

    def check_problem(self, problem: Problem) -> None:
        """Raise ValueError where nothing bounds the curvature that these coordinates take."""
        if self.coordinates in _COMMON and not problem.has_lipschitz:
            raise ValueError(
                f"coordinates must be 'renewed' or 'secant', got {self.coordinates!r}: nothing "
                f"bounds the second derivative of the loss {problem.objective.name!r}"
            )

    def server(self, start: Array, m: int) -> Surrogates:
        """The server of resolved parameters, for m clients that start at one point (n,)."""
        assert self.coverage_rounds is not None
        # From one group of rounds to the next a client may wait for all but one of both.
        return Surrogates(start, m, tol=self.tol, calm=2 * self.coverage_rounds - 1)

    def models(self, problem: Problem, start: Array, ens: Any = None) -> Quadratics:
        """What clients say of their curvature before the first round."""
        m, bounded = problem.n_clients, problem.has_lipschitz
        if self.coordinates in _COMMON:
            return Common(m, self._common(problem, start), self.lam, ens or reference_ens)
        if self.coordinates == "secant" and not isinstance(problem, Problem):
            bounded = False  # callables have a user's word of it
        curvatures = np.asarray(self.curvatures(problem, start))
        return self.models_of(curvatures, problem.n_parameters, bounded=bounded)

    def curvatures(self, problem: Problem, start: Array) -> Iterable[Array]:
        """What each client says of its curvature, one after the other; see `models_of`."""
        clients = range(problem.n_clients)
        if self.coordinates == "secant":
            return problem.column_bounds(start)
        if self.coordinates == "whitened":
            return (packed(bound_block(problem, i)) for i in clients)
        if problem.has_lipschitz:
            return problem.packed_bounds()
        return problem.packed_hessians(clients, start)

    def _common(self, problem: Problem, start: Array) -> Coordinates:
        """The coordinates of all clients."""
        kind, p = _COMMON[self.coordinates], problem.data.n_features
        if kind != "dense":
            return coordinates_of(problem, kind)
        if p > WHOLE:
            return coordinates_of(problem, "truncated")
        return mean_coordinates(self.curvatures(problem, start), p, problem.objective.n_outputs)

    def models_of(
        self, curvatures: Array, n: int, *, bounded: bool, copies: int = 1, ens: Any = None
    ) -> Quadratics:
        """The models of clients of which each has sent what is known of its curvature.

        Parameters
        ----------
        curvatures : ndarray of shape (m, any)
            For ``"renewed"`` a bound of the Hessian of f_i, packed, or the Hessian at the start
            where nothing bounds it; for ``"secant"`` a diagonal that bounds it; for ``"whitened"``
            a bound, of which one of equal diagonal blocks is enough, packed.
        n : int
            Parameters.
        bounded : bool
            Whether these are bounds.
        copies : int
            Equal diagonal blocks.
        """
        if self.coordinates == "secant":
            return Secants(curvatures, self.memory, bounded=bounded)
        if self.coordinates == "whitened":
            return Whitened(curvatures, n // copies, copies, self.lam, ens or reference_ens)
        return Hessians(curvatures, n, bounded=bounded)

    @property
    def sends_hessians(self) -> bool:
        """Whether clients send their Hessians."""
        return self.coordinates == "renewed"

    def numbers_sent(self, n: int, taken_part: int, coordinates: int = 0) -> int:
        """Numbers that a client sent that took part so many times after the first round.

        `coordinates` are those that the metric of all cost it.
        """
        first = {"renewed": n * (n + 1) // 2, "secant": 2 * n}.get(self.coordinates, coordinates)
        hessians = -(-taken_part // self.renew_every) if self.sends_hessians else 0
        return first + (n + 1) * (1 + taken_part) + hessians * (n * (n + 1) // 2)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "noise": "none"}

    def _check_mechanism(self, mechanism: Any) -> None:
        raise ValueError(
            f"mechanism must be None for {type(self).__name__}: what clients send of their "
            "curvature has no noise; FedEPM takes one"
        )

    def advice(self, problem: Problem) -> str:
        return "a penalty (beta) keeps the optimum at a finite point"
