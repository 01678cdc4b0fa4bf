"""Mechanisms: how the noise of an upload follows from what one record can change."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .._validation import check_array, check_real
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

    def __post_init__(self) -> None:
        if self.total_epsilon is not None:
            value = check_real("total_epsilon", self.total_epsilon, low=0.0, open_low=True)
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

    def noise_multipliers(self, participations: NDArray[np.int64]) -> Array:
        """Scale of the noise over the sensitivity, for each client's number of uploads."""
        raise NotImplementedError

    def spent(self, multipliers: Array, uploads: NDArray[np.int64]) -> Array:
        """Epsilon that each client has spent after so many uploads, shape (m,)."""
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

    See Also
    --------
    Mechanism : the other parameters.
    """

    epsilon_per_round: float | None = None
    name: ClassVar[str] = "laplace"
    order: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.total_epsilon is None) == (self.epsilon_per_round is None):
            raise ValueError("exactly one of total_epsilon and epsilon_per_round must be given")
        if self.epsilon_per_round is not None:
            value = check_real("epsilon_per_round", self.epsilon_per_round, low=0.0, open_low=True)
            object.__setattr__(self, "epsilon_per_round", value)

    def noise_multipliers(self, participations: NDArray[np.int64]) -> Array:
        if self.epsilon_per_round is not None:
            return np.full(len(participations), 1.0 / self.epsilon_per_round)
        assert self.total_epsilon is not None
        return np.maximum(participations, 1) / self.total_epsilon

    def spent(self, multipliers: Array, uploads: NDArray[np.int64]) -> Array:
        return uploads / multipliers

    def guarantee(self, epsilon: float) -> str:
        return f"each client: epsilon <= {epsilon:.6g} (pure), {_RELATION}"


@dataclass(frozen=True)
class GaussianMechanism(Mechanism):
    """Gaussian noise on L2 sensitivity, accounted exactly over a client's uploads.

    Parameters
    ----------
    delta : float
        In (0, 1); far below one over the number of records.

    See Also
    --------
    Mechanism : the other parameters; `total_epsilon` must be given.
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
        pairs, where = np.unique(np.stack([multipliers, uploads]), axis=1, return_inverse=True)
        found = [accounting.gaussian_epsilon(z, self.delta, int(k)) for z, k in pairs.T]
        return np.array(found)[where.reshape(-1)]

    def guarantee(self, epsilon: float) -> str:
        return f"each client: epsilon <= {epsilon:.6g} at delta {self.delta:g}, {_RELATION}"


MECHANISMS: dict[str, type[Mechanism]] = {
    cls.name: cls for cls in (LaplaceMechanism, GaussianMechanism)
}


def upload_sensitivity(change: ArrayLike, nu: ArrayLike, eta: float) -> Array:
    """How far a record can move an upload before noise.

    The local steps are ``p <- soft(nu_q*p - g, lam) / (eta + nu_q)`` from a released start, with
    public ``nu_q``. Soft-thresholding moves each coordinate by no more than its argument moves,
    so if g moves by at most `change` in some norm,

        s_0 = 0,    s_{q+1} = (nu_q * s_q + change) / (eta + nu_q)

    bounds the movement of p in the same norm after q steps.

    Parameters
    ----------
    change : array_like of shape (s,)
        Bound on the change of each client's gradient.
    nu : array_like of shape (k0, s)
        ``step_i * mu_i`` of each local step.
    eta : float

    Returns
    -------
    ndarray of shape (s,)
    """
    change = np.asarray(change, dtype=np.float64)
    s = np.zeros_like(change)
    for now in np.asarray(nu, dtype=np.float64):
        s = (now * s + change) / (eta + now)
    return s


def clip_rows(features: Any, bound: float, order: int) -> Any:
    """Rows scaled down to a norm of at most `bound`, in L1 (order 1) or L2 (order 2).

    The result, rounded, exceeds the bound nowhere.
    """
    bound = check_real("bound", bound, low=0.0, open_low=True)
    if sparse.issparse(features):
        data = np.abs(features.data) if order == 1 else features.data**2
        starts = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
        norms = np.bincount(starts, data, features.shape[0])
    else:
        features = check_array("features", features, ndim=2)
        norms = np.abs(features).sum(axis=1) if order == 1 else (features**2).sum(axis=1)
    if order == 2:
        norms = np.sqrt(norms)
    # Sums round: a norm a little above what it is, and a product a little below the bound.
    n = features.shape[1]
    safe = norms * (1 + (n + 4) * np.finfo(np.float64).eps)
    factor = np.minimum(1.0, bound / np.where(safe == 0, 1.0, safe))
    if sparse.issparse(features):
        clipped = features.copy()
        clipped.data = clipped.data * factor[starts]
        return clipped
    return features * factor[:, None]


def clipped_data(data: FederatedData, mechanism: Mechanism, slope: float) -> FederatedData:
    """`data` with rows clipped so that a record's gradient is within the mechanism's clip.

    `slope` bounds the derivative of the loss in the margin.
    """
    assert mechanism.clip is not None
    return FederatedData(
        clip_rows(data.features, mechanism.clip / slope, mechanism.order),
        data.labels,
        data.client_sizes,
        data.feature_names,
        data.client_names,
        data.rows,
        data.description,
    )
