"""What every mechanism has: a law of its noise, a budget, and an account of what is spent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.declared import check_own_fields
from .._common.docstrings import inherit_parameters
from .._common.parameters import check_fields, choice, flag, integer, param, real
from .._common.registry import Registry
from .._common.validation import check_array

if TYPE_CHECKING:
    from ..randomness import Randomness

Array = NDArray[np.float64]

#: What the two datasets differ in that a guarantee compares, by the name of the relation.
RELATIONS = {
    "record": "for each record of a client, replace-one",
    "client": "for all records of a client together, replace-one-client",
}


class Law:
    """A law of noise of scale 1 about 0, every coordinate drawn by itself.

    What uses noise asks its law: a run, compiled or in NumPy, an upload that leaves a client,
    and an audit, whose observer compares how likely an upload is under two laws of scale 1 that
    are some way apart.
    """

    #: What records and `release` call it.
    name: ClassVar[str]
    #: As it is printed.
    symbol: ClassVar[str]
    #: The norm, L1 or L2, in which it hides how far neighbours' uploads are apart.
    order: ClassVar[int]

    def quantile(self, u: Array) -> Array:
        """Noise from uniform numbers in (0, 1), elementwise."""
        raise NotImplementedError

    def log_density(self, unit: Array) -> Array:
        """Logarithm of the density of rows (..., n) of noise, up to a constant, shape (...)."""
        raise NotImplementedError

    def tail(self, t: ArrayLike) -> Any:
        """Probability of more than `t`, at least 0, in one coordinate."""
        raise NotImplementedError

    def apart(self, hits: ArrayLike, alarms: ArrayLike) -> Array:
        """How far apart two of these laws are at least, if an observer of one number is right
        with a rate of `hits` or more and alarmed falsely with one of `alarms` or less."""
        raise NotImplementedError

    @property
    def rows(self) -> Any:
        """The compiled function that draws rows, as of `kernels.noise`."""
        raise NotImplementedError

    @property
    def compiled(self) -> bool:
        """Whether it has `rows`. Without them NumPy computes a run."""
        return type(self).rows is not Law.rows

    def measurement(self, dp: Any, domain: Any, scale: float) -> Any:
        """OpenDP's mechanism of this noise, on the finest grid of floats."""
        raise NotImplementedError

    def most(self, multiplier: Fraction) -> Fraction:
        """What OpenDP may account for an upload of this noise multiplier, exactly."""
        raise NotImplementedError


#: Mechanisms by name, a user's own beside the built-in ones.
MECHANISMS: Registry[type[Mechanism]] = Registry("mechanism", __package__)


@dataclass(frozen=True)
class Mechanism:
    """What the private mechanisms have in common.

    A mechanism is a frozen dataclass derived from this one with a `name`, a `law`, and the four
    methods that have no body here. Its definition enters it in `MECHANISMS` under its name. Runs
    with a user's own have no guarantee, for nobody has checked its account.

    Parameters
    ----------
    total_epsilon : float, optional
        What each client may spend in a whole run, above 0. It is split evenly over the client's
        own participations, which depend on no data.
    clip : float, optional
        Bound on the norm of a record's gradient, above 0: rows are scaled down to it. By
        default ``n / sqrt(d)`` in L1 and ``sqrt(n / d)`` in L2, for d rows and n features in
        all, which is what rows of columns of unit norm have on average at most; it depends on
        public numbers only. With ``neighbours="client"`` the bound on how far local steps move a
        client's parameter, which must be given; rows stay as they are.
    public_scaling : bool
        Whether the scaling of the columns may be taken as public. Scaling to unit norm is
        computed from the data, so a run on such data is refused without this.
    moments : int
        The second moments of a client's rows are released once before the rounds, see
        `client_moments`, with noise that spends as much as so many uploads, which every account
        counts; 0 if they are not. Planned with bounds, one of these is for means and variances.
    neighbours : {"record", "client"}
        What is hidden: each record of a client, whose number of records is public; or all of its
        records together, their number too, of any loss.
    budgets : array_like of shape (m,), optional
        What each client may spend, where they differ; `total_epsilon` is the largest of them.
    """

    total_epsilon: float | None = param(
        None,
        check=real(low=0.0, high=1e14, open_low=True),
        help="private: what each client may spend",
        symbol="total epsilon of each client",
        metavar="E",
    )
    clip: float | None = param(
        None,
        check=real(low=0.0, open_low=True),
        help="private: bound on a record's gradient",
        symbol="C",
        shown="from public sizes",
    )
    public_scaling: bool = param(
        False, check=flag, help="private: the scaling of the columns is public"
    )
    moments: int = param(
        0,
        check=integer(low=0, high=2**20),
        help="private: what the second moments spend, in uploads; 0 for none",
        metavar="N",
    )
    neighbours: str = param(
        "record", check=choice(RELATIONS), kw_only=True,
        help="private: hide each record, or all records of a client together",
    )  # fmt: skip
    budgets: tuple[float, ...] | None = param(
        None, kw_only=True, help="private: what each client may spend, where they differ"
    )

    #: What records and commands call it.
    name: ClassVar[str]
    #: Of its noise.
    law: ClassVar[Law]
    #: The norm of the sensitivity, that of the law.
    order: ClassVar[int]

    # As of `noise.NoiseModel`: what the noise of the paper has in its place.
    private: ClassVar[bool] = True
    factor: ClassVar[float] = 0.0
    standardize: ClassVar[bool] = False
    min_features: ClassVar[int] = 1
    noisy: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_own_fields(cls, "mechanism")
        if "law" in vars(cls):
            cls.order = cls.law.order
        inherit_parameters(cls, cls.__mro__[1])
        if "name" in vars(cls):
            MECHANISMS.add(cls.name, cls)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.budgets is not None:
            budgets = check_array("budgets", self.budgets, ndim=1)
            if len(budgets) == 0 or not (budgets > 0).all():
                raise ValueError(f"budgets must be above 0, one for each client, got {budgets}")
            most = float(budgets.max())
            if self.total_epsilon not in (None, most):
                raise ValueError(
                    f"total_epsilon must be the largest of the budgets, {most:g}, "
                    f"got {self.total_epsilon!r}"
                )
            object.__setattr__(self, "budgets", tuple(budgets.tolist()))
            object.__setattr__(self, "total_epsilon", most)

    def of_client(self, i: int) -> Self:
        """This mechanism as client i has it, with the budget of its own."""
        if self.budgets is None:
            return self
        return dataclasses.replace(self, total_epsilon=self.budgets[i], budgets=None)

    def resolve(self, samples: int, features: int) -> Mechanism:
        """This mechanism with its clip filled in."""
        if self.clip is not None:
            return self
        if self.neighbours == "client":
            raise ValueError(
                "clip must be given with neighbours='client': how far local steps move a client's "
                "parameter follows from no public number"
            )
        mean_square = features / samples
        clip = mean_square**0.5 if self.order == 2 else (features * mean_square) ** 0.5
        return dataclasses.replace(self, clip=clip)

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain values, for records; without what they had not before,
        where there is none of it."""
        left_out = {"moments": 0, "neighbours": "record", "budgets": None}
        found = {"name": self.name, **dataclasses.asdict(self)}
        if self.budgets is not None:
            found["budgets"] = list(self.budgets)  # as JSON has it
        return {k: v for k, v in found.items() if k not in left_out or v != left_out[k]}

    @classmethod
    def is_checked(cls) -> bool:
        """Whether it is one of this package, whose account has been checked."""
        return cls.name in MECHANISMS.built_in() and MECHANISMS[cls.name] is cls

    def unit(self, randomness: Randomness, tau: int, clients: NDArray[np.intp], n: int) -> Array:
        """Unit noise of `clients` in round `tau`, shape (len(clients), n).

        First uploads, of round -1, have none: they are public points.
        """
        if tau < 0:
            return np.zeros((len(clients), n))
        return randomness.unit_noise(tau, clients, n, law=self.law.quantile)

    def units(self, sizes: ArrayLike) -> NDArray[np.int64]:
        """What each client's mean is over, as far as neighbours differ in one of them, shape (m,):
        its records, whose number is public; or all of them as one, which hides their number."""
        sizes = np.asarray(sizes)
        return np.ones_like(sizes) if self.neighbours == "client" else sizes

    # Its account ----------------------------------------------------------------------

    def noise_multiplier(self, epsilon: float, uploads: int) -> float:
        """Scale of the noise over the sensitivity with which so many uploads, at least 1, spend
        no more than `epsilon`."""
        raise NotImplementedError

    def one_release(self, multiplier: float, uploads: int) -> float:
        """The multiplier of one release that spends as much as so many uploads of `multiplier`."""
        raise NotImplementedError

    def compose(self, apart: float, uploads: int) -> float:
        """Epsilon of so many uploads, if neighbours' are `apart` scales of the noise each."""
        raise NotImplementedError

    def guarantee(self, epsilon: float) -> str:
        """The guarantee in words, `epsilon` being the largest that a client spent."""
        raise NotImplementedError

    def stated(self, uploads: int) -> float:
        """Epsilon that a client of so many uploads is given."""
        assert self.total_epsilon is not None
        return self.total_epsilon

    def given(self, uploads: NDArray[np.int64]) -> Array:
        """Epsilon that each client is given, one of so many uploads each, shape (m,)."""
        if self.budgets is None:
            counts, where = np.unique(uploads, return_inverse=True)
            return np.array([self.stated(int(k)) for k in counts])[where.reshape(-1)]
        if len(self.budgets) != len(uploads):
            raise ValueError(
                f"budgets must be one for each of the {len(uploads)} clients, got "
                f"{len(self.budgets)}"
            )
        return np.array(self.budgets)

    def noise_multipliers(self, participations: NDArray[np.int64]) -> Array:
        """Scale of the noise over the sensitivity, for each client's number of uploads."""
        made = np.maximum(participations, 1)
        return each_pair(self.noise_multiplier, self.given(made), made)

    def spent(self, multipliers: Array, uploads: NDArray[np.int64]) -> Array:
        """Epsilon that each client has spent after so many uploads, shape (m,).

        After all uploads that its noise was made for it is the budget, to the last digit.
        """
        return each_pair(lambda z, k: self.compose(1.0 / z, k), multipliers, uploads)


def each_pair(
    account: Callable[[float, int], float], of_each: Array, uploads: NDArray[np.int64]
) -> Array:
    """What `account` says of each client's number and uploads, asked once for those alike."""
    pairs, where = np.unique(np.stack([of_each, uploads]), axis=1, return_inverse=True)
    return np.array([account(float(z), int(k)) for z, k in pairs.T])[where.reshape(-1)]


def in_words(epsilon: float, delta: float, neighbours: str = "record") -> str:
    """A guarantee of each client's records."""
    loss = f"at delta {at_least(delta)}" if delta else "(pure)"
    return f"each client: epsilon <= {at_least(epsilon)} {loss}, {RELATIONS[neighbours]}"


def at_least(value: float) -> str:
    """A number to six digits, none of them rounded down; one of so few is printed as it is."""
    digits = Decimal(repr(float(value)))
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(digits)):.6g}"
