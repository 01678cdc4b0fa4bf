"""How far a record, or a client's all, can move an upload, in exact arithmetic and rounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .._common.validation import check_array, check_finite, check_real
from ..data import FederatedData
from ._base import Array, Mechanism

if TYPE_CHECKING:
    from ..losses import Objective
    from ..objectives import Problem

#: Points and noise of a private run stay below this, so that their squares do not overflow.
LARGEST = 1e150


#: Share of the bound on a gradient's change that is added for the rounding of the local steps.
FOR_ROUNDING = 2.0**-16

#: How small noise may be beside the size of the points, whose last places it must hide.
NOISE_SHARE = 2.0**-40

_UNIT = 2.0**-53


class PrivacyPlan(NamedTuple):
    """What a private run fixes before it begins."""

    change: Array
    """Bound on what one record changes in each client's gradient, shape (m,); with `whole`, on
    what all of them change in its upload."""
    multipliers: Array
    """Scale of each client's noise over the sensitivity of its upload, shape (m,)."""
    pull: Array
    """Largest second derivative of each client's regulariser, shape (m,)."""
    drift: float
    """How small `change` may be beside the size of x: see `drift`."""
    clip: float = 0.0
    """Bound on a record's gradient; with `whole`, on how far local steps move a parameter."""
    order: int = 1
    """Of the norm."""
    whole: bool = False
    """Whether neighbours differ in all records of a client."""

    def sensitivity(self, S: NDArray[np.intp], nu: Any, eta: float) -> Array:
        """How far neighbours' uploads of the clients `S` are apart at most, shape (s,).

        `nu` (k0, s) are the penalties of the local steps, see `upload_sensitivity`."""
        return self.change[S] if self.whole else _recursion(self.change[S], nu, eta)


def privacy_plan(
    mechanism: Mechanism, problem: Problem, participations: NDArray[np.int64]
) -> PrivacyPlan:
    """The plan of a run in which each client uploads so often."""
    if mechanism.clip is None:
        raise ValueError("clip depends on the data's size: resolve(problem) fills it in")
    clip, sizes, n = mechanism.clip, problem.data.client_sizes, problem.n_parameters
    multipliers = mechanism.noise_multipliers(participations)
    if mechanism.neighbours == "client":
        # Two moves of at most clip are twice that apart; no size enters, which is hidden too.
        apart = np.full(len(sizes), 2 * clip * (1 + FOR_ROUNDING))
        return PrivacyPlan(apart, multipliers, 0 * apart, 0.0, clip, mechanism.order, whole=True)
    objective = problem.objective
    slope = objective.slope_in(mechanism.order)
    change = 2 * clip / sizes * (1 + FOR_ROUNDING) + 2 * gradient_rounding(clip, sizes, n)
    if slope is None:
        raise ValueError(f"the objective {objective.name!r} has no bound on its derivative")
    moved = drift(clip, slope, objective.curvature, n)
    return PrivacyPlan(change, multipliers, problem.reg_curvature, moved, clip, mechanism.order)


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
    plan: PrivacyPlan, S: NDArray[np.intp], gap: Array, x: Array, nu: Sequence[Array], eta: float
) -> bool:
    """Whether the noise of the clients `S` hides how their local steps round.

    Floating-point numbers near the points are apart by more than noise that is too small, and an
    upload then tells the record. What is compared is public: `gap`, the start of the local steps
    less `x`, shape (s, n), the penalties `nu` (k0, s), and bounds.
    """
    far, share = float(np.abs(x).max()), rounding_share(plan.order, len(nu), len(x))
    reach = furthest = np.abs(gap).max(axis=1)
    if plan.whole:
        furthest = reach + plan.clip
    else:
        for now in nu:
            reach = (now * reach + plan.clip + plan.pull[S] * far) / (eta + now)
            furthest = np.maximum(furthest, reach)  # NaN stays
    size, s = far + furthest, plan.sensitivity(S, nu, eta)
    noise = s * plan.multipliers[S]
    in_range = (size * (1 + plan.clip) < LARGEST) & (noise < LARGEST)
    in_range &= (np.minimum(s, noise) > 1 / LARGEST) & (plan.drift * far <= plan.change[S])
    return bool((in_range & (s >= share * size) & (noise >= NOISE_SHARE * size)).all())


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
SMALLEST_FACTOR = 1e-290
_LEAST_BOUND = 1e-280


#: Norms of rows, from the sums over a row of the k-th powers of its sizes.
Norm = Callable[[Callable[[int], Array]], Array]
_NORMS: dict[int, Norm] = {1: lambda sums: sums(1), 2: lambda sums: np.sqrt(sums(2))}


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
    if order not in _NORMS:
        raise ValueError(f"order must be 1 or 2, got {order!r}")
    return clip_in(features, bound, _NORMS[order])


def clip_in(features: Any, bound: float, norm: Norm) -> Any:
    """`clip_rows` in a norm between L2 and L1."""
    clipped, _ = _clip(features, bound, norm)
    return clipped


def _clip(features: Any, bound: float, norm: Norm) -> tuple[Any, Array]:
    """Clipped rows, and the factors by which they were scaled, shape (d,)."""
    bound = check_real("bound", bound, low=_LEAST_BOUND)
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

        def sums(power: int) -> Array:
            found = np.bincount(row, part if power == 1 else part**2, clipped.shape[0])
            return found.astype(np.float64, copy=False)
    else:
        clipped = check_array("features", features, ndim=2)
        size = np.abs(clipped).max(axis=1, initial=0.0)
        unit = np.where(size == 0, 1.0, size)
        part = np.abs(clipped) / unit[:, None]

        def sums(power: int) -> Array:
            return np.asarray((part if power == 1 else part**2).sum(axis=1))

    # Norms are in units of the largest entry, where squares neither overflow nor vanish.
    norms = norm(sums)
    # Sums round: a norm a little above what it is, and a product a little below the bound.
    safe = norms * (1 + (clipped.shape[1] + 6) * np.finfo(np.float64).eps)
    with np.errstate(over="ignore", under="ignore"):
        factor = np.minimum(1.0, bound / unit / np.where(safe == 0, 1.0, safe))
    factor[factor < SMALLEST_FACTOR] = 0.0
    if sparse.issparse(clipped):
        clipped.data = clipped.data * factor[row]
        return clipped, factor
    return clipped * factor[:, None], factor


def clip_moves(W: Array, start: Array, bound: float, order: int) -> Array:
    """`W` (s, n) with rows that are no further from those of `start` than `bound`.

    A row that is not finite stays at its start: no other number would be within the bound.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        moves = W - start
    moves[~np.isfinite(moves).all(axis=1)] = 0.0
    return np.asarray(start + clip_rows(moves, bound, order))


def clipped_data(
    data: FederatedData, mechanism: Mechanism, objective: Objective
) -> tuple[FederatedData, Objective]:
    """`data` with rows clipped so that a record's gradient is within the mechanism's clip, and the
    loss whose gradients these are: see `Objective.of_clipped`."""
    assert mechanism.clip is not None
    slope = objective.slope_in(mechanism.order)
    if slope is None:
        raise ValueError(f"the objective {objective.name!r} has no bound on its derivative")
    with np.errstate(over="ignore", under="ignore"):
        bound = np.float64(mechanism.clip) / slope
    if not _LEAST_BOUND <= bound <= 1 / _LEAST_BOUND:
        raise ValueError(
            f"clip must be of a size like the slope of the loss, {slope:g}, got {mechanism.clip:g}"
        )
    features, factors = _clip(data.features, bound, _NORMS[mechanism.order])
    loss, labels = objective.of_clipped(data.labels, factors)
    found = FederatedData(
        features, labels, data.client_sizes, data.feature_names, data.client_names, data.rows,
        data.description,
    )  # fmt: skip
    return found, loss
