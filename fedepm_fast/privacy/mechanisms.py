"""Mechanisms: how the noise of an upload follows from what one record can change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .._docstrings import inherit_parameters
from .._validation import check_array, check_finite, check_real
from ..data import FederatedData
from ..result import NO_GUARANTEE
from . import accounting

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PaperNoise:
    """The noise of the paper or of its authors' program, which gives no guarantee.

    Parameters
    ----------
    epsilon : float
        The number that divides the noise, called a privacy budget there.
    """

    epsilon: float = 0.1
    guarantee: ClassVar[str] = NO_GUARANTEE

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, low=0.0, open_low=True)


@dataclass(frozen=True)
class Mechanism:
    """What the private mechanisms have in common.

    Parameters
    ----------
    total_epsilon : float, optional
        What each client may spend in a whole run, above 0. It is split evenly over the client's
        own participations, which depend on no data.
    clip : float, optional
        Bound on the norm of a record's gradient, above 0: rows are scaled down to it. By
        default ``n / sqrt(d)`` in L1 and ``sqrt(n / d)`` in L2, for d rows and n features in
        all, which is what rows of columns of unit norm have on average at most; it depends on
        public numbers only.
    public_scaling : bool
        Whether the scaling of the columns may be taken as public. Scaling to unit norm is
        computed from the data, so a run on such data is refused without this.
    """

    total_epsilon: float | None = None
    clip: float | None = None
    public_scaling: bool = False

    name: ClassVar[str]
    #: The norm of the sensitivity.
    order: ClassVar[int]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherit_parameters(cls, cls.__mro__[1])

    def __post_init__(self) -> None:
        if self.total_epsilon is not None:
            value = check_real(
                "total_epsilon", self.total_epsilon, low=0.0, high=1e14, open_low=True
            )
            object.__setattr__(self, "total_epsilon", value)
        if self.clip is not None:
            object.__setattr__(self, "clip", check_real("clip", self.clip, low=0.0, open_low=True))
        if not isinstance(self.public_scaling, bool):
            raise TypeError(f"public_scaling must be True or False, got {self.public_scaling!r}")

    def resolve(self, samples: int, features: int) -> Mechanism:
        """This mechanism with its clip filled in."""
        if self.clip is not None:
            return self
        mean_square = features / samples
        clip = mean_square**0.5 if self.order == 2 else (features * mean_square) ** 0.5
        return dataclasses.replace(self, clip=clip)

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain values, for records."""
        return {"name": self.name, **dataclasses.asdict(self)}

    def noise_multipliers(self, participations: NDArray[np.int64]) -> Array:
        """Scale of the noise over the sensitivity, for each client's number of uploads."""
        raise NotImplementedError

    def spent(self, multipliers: Array, uploads: NDArray[np.int64]) -> Array:
        """Epsilon that each client has spent after so many uploads, shape (m,).

        After all uploads that its noise was made for it is the budget, to the last digit.
        """
        raise NotImplementedError

    def guarantee(self, epsilon: float) -> str:
        """The guarantee in words, `epsilon` being the largest that a client spent."""
        raise NotImplementedError


_RELATION = "for each record of a client, replace-one"


@dataclass(frozen=True)
class LaplaceMechanism(Mechanism):
    """Laplace noise on L1 sensitivity: pure epsilon, added up over a client's uploads.

    Parameters
    ----------
    epsilon_per_round : float, optional
        Instead of `total_epsilon`: what each upload spends.
    delta : float
        In [0, 1). Above 0 the uploads of a client are composed at this delta, by dp-accounting,
        an optional dependency: many of them spend less than their sum.
    """

    epsilon_per_round: float | None = None
    delta: float = 0.0
    name: ClassVar[str] = "laplace"
    order: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.total_epsilon is None) == (self.epsilon_per_round is None):
            raise ValueError("exactly one of total_epsilon and epsilon_per_round must be given")
        if self.epsilon_per_round is not None:
            value = check_real("epsilon_per_round", self.epsilon_per_round, low=0.0, open_low=True)
            object.__setattr__(self, "epsilon_per_round", value)
        delta = check_real("delta", self.delta, low=0.0, high=1.0, open_high=True)
        object.__setattr__(self, "delta", delta)

    def describe(self) -> dict[str, Any]:
        found = super().describe()
        return found if self.delta else {k: v for k, v in found.items() if k != "delta"}

    def noise_multipliers(self, participations: NDArray[np.int64]) -> Array:
        if self.epsilon_per_round is not None:
            exact = np.full(len(participations), 1.0 / self.epsilon_per_round)
        elif self.delta:
            counts, where = np.unique(np.maximum(participations, 1), return_inverse=True)
            each = [
                accounting.laplace_noise_multiplier(self.total_epsilon, int(k), self.delta)
                for k in counts
            ]
            return np.array(each)[where.reshape(-1)]
        else:
            assert self.total_epsilon is not None
            exact = np.maximum(participations, 1) / self.total_epsilon
        # Rounded up: a client spends no more than its budget.
        return np.nextafter(exact, np.inf)

    def spent(self, multipliers: Array, uploads: NDArray[np.int64]) -> Array:
        each, total = self.epsilon_per_round, self.total_epsilon
        if self.delta:
            found, slack = (
                _each_pair(
                    lambda z, k: accounting.laplace_epsilon(1.0 / z, k, self.delta),
                    multipliers,
                    uploads,
                ),
                accounting.LAPLACE_SLACK,
            )
        elif each is not None:
            return _each_pair(lambda _, k: _times(k, each), multipliers, uploads)
        else:
            found, slack = uploads / multipliers, 1e-15
        if total is None:
            return found
        # The noise, found by a search or rounded up, leaves so little of the budget.
        return np.where((total * (1 - slack) <= found) & (found <= total), total, found)

    def guarantee(self, epsilon: float) -> str:
        if self.delta:
            return _approximate(epsilon, self.delta)
        return f"each client: epsilon <= {at_least(epsilon)} (pure), {_RELATION}"


def _each_pair(
    account: Callable[[float, int], float], multipliers: Array, uploads: NDArray[np.int64]
) -> Array:
    """What `account` says of each client, asked once for those that are alike."""
    pairs, where = np.unique(np.stack([multipliers, uploads]), axis=1, return_inverse=True)
    return np.array([account(float(z), int(k)) for z, k in pairs.T])[where.reshape(-1)]


def _times(count: int, number: float) -> float:
    """As decimals are multiplied: 3 times 0.1 is 0.3."""
    return float(Decimal(repr(number)) * count)


def _approximate(epsilon: float, delta: float) -> str:
    return f"each client: epsilon <= {at_least(epsilon)} at delta {at_least(delta)}, {_RELATION}"


@dataclass(frozen=True)
class GaussianMechanism(Mechanism):
    """Gaussian noise on L2 sensitivity, accounted exactly over a client's uploads.

    `total_epsilon` must be given.

    Parameters
    ----------
    delta : float
        In (0, 1); far below one over the number of records.
    """

    delta: float = 1e-6
    name: ClassVar[str] = "gaussian"
    order: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.total_epsilon is None:
            raise ValueError("total_epsilon must be given for Gaussian noise")
        delta = check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        object.__setattr__(self, "delta", delta)

    def noise_multipliers(self, participations: NDArray[np.int64]) -> Array:
        assert self.total_epsilon is not None
        one = accounting.gaussian_noise_multiplier(self.total_epsilon, self.delta)
        return one * np.sqrt(np.maximum(participations, 1))

    def spent(self, multipliers: Array, uploads: NDArray[np.int64]) -> Array:
        epsilon = _each_pair(
            lambda z, k: accounting.gaussian_epsilon(z, self.delta, k), multipliers, uploads
        )
        total, asked = float(self.total_epsilon or 0), self.noise_multipliers(uploads)
        # The inverse of the curve is found from above: within a plan the budget itself is nearer.
        found = np.where(multipliers >= asked, np.minimum(epsilon, total), epsilon)
        return np.where((multipliers == asked) & (uploads > 0), total, found)

    def guarantee(self, epsilon: float) -> str:
        return _approximate(epsilon, self.delta)


MECHANISMS: Mapping[str, type[Mechanism]] = MappingProxyType(
    {cls.name: cls for cls in (LaplaceMechanism, GaussianMechanism)}
)


#: Points and noise of a private run stay below this, so that their squares do not overflow.
LARGEST = 1e150


#: Share of the bound on a gradient's change that is added for the rounding of the local steps.
FOR_ROUNDING = 2.0**-16

#: How small noise may be beside the size of the points, whose last places it must hide.
NOISE_SHARE = 2.0**-40

_UNIT = 2.0**-53


def gradient_rounding(clip: float, sizes: NDArray[np.int64], n: int) -> Array:
    """How far rounding moves the mean of `sizes` clipped gradients of n coordinates, shape (m,).

    A sum of d numbers is off by at most d units in the last place of the sum of their sizes.
    """
    return np.asarray(2 * clip * _UNIT * (sizes + n), dtype=np.float64)


def drift(clip: float, slope: float, curvature: float, n: int) -> float:
    """The least change of a gradient beside which rounding of the margins is small enough, for
    points of size 1.

    A margin of a row of norm ``clip / slope`` is off by at most n units in the last place, and
    the derivative of the loss by `curvature` times that; a quarter of `FOR_ROUNDING` is for it.
    """
    row = clip / slope
    moved = 4 * (n + 2) * _UNIT * curvature * row * row
    return float(moved * 4 / FOR_ROUNDING)


def rounding_share(order: int, local_steps: int, n: int) -> float:
    """How small a sensitivity may be beside the size of the points.

    A local step rounds every coordinate by a few units in the last place of the size of the
    points. Above this share all of it together moves an upload by less than `FOR_ROUNDING` of
    what a record may, which is accounted for.
    """
    return float(2.0**-32 * local_steps * (n if order == 1 else n**0.5))


def hides_rounding(
    plan: Any,
    S: NDArray[np.intp],
    gap: Array,
    x: Array,
    nu: Any,
    eta: float,
    *,
    clip: float,
    share: float,
) -> bool:
    """Whether the noise of the clients `S` hides how their local steps round.

    Floating-point numbers near the points are apart by more than noise that is too small, and an
    upload then tells the record. What is compared is public: `gap`, the start of the local steps
    less `x`, shape (s, n), the penalties `nu` (k0, s), and bounds.
    """
    far = float(np.abs(x).max())
    reach = furthest = np.abs(gap).max(axis=1)
    for now in nu:
        reach = (now * reach + clip + plan.pull[S] * far) / (eta + now)
        furthest = np.maximum(furthest, reach)  # NaN stays
    size, s = far + furthest, _recursion(plan.change[S], nu, eta)
    noise = s * plan.multipliers[S]
    in_range = (size * (1 + clip) < LARGEST) & (noise < LARGEST)
    in_range &= (np.minimum(s, noise) > 1 / LARGEST) & (plan.drift * far <= plan.change[S])
    return bool((in_range & (s >= share * size) & (noise >= NOISE_SHARE * size)).all())


def at_least(value: float) -> str:
    """A number to six digits, none of them rounded down; one of so few is printed as it is."""
    digits = Decimal(repr(float(value)))
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(digits)):.6g}"


def upload_sensitivity(change: ArrayLike, nu: ArrayLike, eta: float) -> Array:
    """How far a record can move an upload before noise.

    The local steps are ``p <- soft(nu_q*p - g, lam) / (eta + nu_q)`` from a released start, with
    public ``nu_q``. Soft-thresholding moves each coordinate by no more than its argument moves,
    so if g moves by at most `change` in some norm::

        s_0 = 0,    s_{q+1} = (nu_q * s_q + change) / (eta + nu_q)

    bounds the movement of p in the same norm after q steps.

    Parameters
    ----------
    change : array_like of shape (s,)
        Bound on the change of each client's gradient, at least 0.
    nu : array_like of shape (k0, s)
        ``step_i * mu_i`` of each local step, at least 0.
    eta : float
        Above 0.

    Returns
    -------
    ndarray of shape (s,)

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    change = check_array("change", change, ndim=1)
    nu = check_array("nu", nu, ndim=2)
    eta = check_real("eta", eta, low=0.0, open_low=True)
    if nu.shape[1] != len(change):
        raise ValueError(
            f"nu must have a column for each of the {len(change)} changes, got shape {nu.shape}"
        )
    for name, values in (("change", change), ("nu", nu)):
        if (values < 0).any():
            raise ValueError(f"{name} must be at least 0, got {values.min()}")
    return _recursion(change, nu, eta)


def _recursion(change: Array, nu: Any, eta: float) -> Array:
    s = np.zeros_like(change)
    for now in nu:
        s = (now * s + change) / (eta + now)
    return s


#: Factors below this have lost digits, and with them the bound: nothing is left of the row.
_SMALLEST = 1e-290
_LEAST_BOUND = 1e-280


def clip_rows(features: Any, bound: float, order: int) -> Any:
    """Rows scaled down to a norm of at most `bound`, in L1 (order 1) or L2 (order 2).

    The result, rounded, exceeds the bound nowhere.

    Parameters
    ----------
    features : array_like or sparse of shape (d, n)
        Finite. Sparse ones of any format; entries that are given twice are added up first.
    bound : float
        At least 1e-280: among the smallest numbers of all, rounding exceeds any bound.
    order : {1, 2}

    Returns
    -------
    ndarray, or sparse in CSR format, of shape (d, n) and float64

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    bound = check_real("bound", bound, low=_LEAST_BOUND)
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {order!r}")
    if sparse.issparse(features):
        kind = sparse.csr_array if isinstance(features, sparse.sparray) else sparse.csr_matrix
        clipped = kind(features, dtype=np.float64, copy=True)
        clipped.sum_duplicates()
        check_finite("features", clipped.data)
        row = np.repeat(np.arange(clipped.shape[0]), np.diff(clipped.indptr))
        size = np.zeros(clipped.shape[0])
        np.maximum.at(size, row, np.abs(clipped.data))
        unit = np.where(size == 0, 1.0, size)
        part = np.abs(clipped.data) / unit[row]
        norms = np.bincount(row, part if order == 1 else part**2, clipped.shape[0])
    else:
        clipped = check_array("features", features, ndim=2)
        size = np.abs(clipped).max(axis=1, initial=0.0)
        unit = np.where(size == 0, 1.0, size)
        part = np.abs(clipped) / unit[:, None]
        norms = (part if order == 1 else part**2).sum(axis=1)
    # Norms are in units of the largest entry, where squares neither overflow nor vanish.
    if order == 2:
        norms = np.sqrt(norms)
    # Sums round: a norm a little above what it is, and a product a little below the bound.
    safe = norms * (1 + (clipped.shape[1] + 6) * np.finfo(np.float64).eps)
    with np.errstate(over="ignore", under="ignore"):
        factor = np.minimum(1.0, bound / unit / np.where(safe == 0, 1.0, safe))
    factor[factor < _SMALLEST] = 0.0
    if sparse.issparse(clipped):
        clipped.data = clipped.data * factor[row]
        return clipped
    return clipped * factor[:, None]


def clipped_data(data: FederatedData, mechanism: Mechanism, slope: float) -> FederatedData:
    """`data` with rows clipped so that a record's gradient is within the mechanism's clip.

    `slope` bounds the derivative of the loss in the margin.
    """
    assert mechanism.clip is not None
    with np.errstate(over="ignore", under="ignore"):
        bound = np.float64(mechanism.clip) / slope
    if not _LEAST_BOUND <= bound <= 1 / _LEAST_BOUND:
        raise ValueError(
            f"clip must be of a size like the slope of the loss, {slope:g}, got {mechanism.clip:g}"
        )
    return FederatedData(
        clip_rows(data.features, bound, mechanism.order),
        data.labels,
        data.client_sizes,
        data.feature_names,
        data.client_names,
        data.rows,
        data.description,
    )
