"""Private runs with eta the curvature, on columns that are standardised by public numbers.

Where prepared columns have a root mean square of about 1, the curvature of the mean loss is about
that of the loss itself, whoever's data they are. With that for eta, far above the penalty of the
local steps, an upload is ``x - g_i/eta`` plus noise, a record moves it by no more than
``2*clip / (d_i*eta)``, and few rounds are enough. How many, how long a step is, and how far rows
are clipped follow from one number, the noise beside the gradients; `BEST` has them, from synthetic
tables by ``scripts/private_curvature.py`` and from nobody's data.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import (
    ArgumentTypeError,
    ArgumentValueError,
    check_array,
    check_choice,
    check_int,
)
from ..algorithms import FedEPM
from ..losses import REGULARIZERS, Logistic, Objective
from ..mechanisms import Mechanism

#: By the order of the norm: up to so much noise (`CurvatureSettings.level`), rounds, eta over the
#: curvature of the loss, and clip over the norm of a row whose entries are all 1.
BEST: dict[int, tuple[tuple[float, int, float, float], ...]] = {
    2: (
        (0.024, 40, 6.0, 1.0), (0.075, 24, 6.0, 0.75), (0.13, 12, 4.0, 0.75),
        (0.24, 6, 4.0, 0.75), (0.42, 6, 6.0, 0.75), (0.75, 2, 6.0, 0.75), (1.3, 1, 6.0, 0.75),
        (math.inf, 1, 6.0, 0.5),
    ),
    1: (
        (0.0042, 40, 6.0, 0.8), (0.0075, 16, 3.0, 0.6), (0.024, 12, 3.0, 0.6),
        (0.042, 8, 3.0, 0.6), (0.075, 4, 1.5, 0.4), (0.13, 2, 1.0, 0.6), (0.24, 1, 1.0, 0.6),
        (0.42, 1, 1.5, 0.6), (0.75, 1, 2.0, 0.6), (1.3, 1, 6.0, 0.6), (math.inf, 1, 6.0, 0.4),
    ),
}  # fmt: skip

#: The penalty of the local steps beside eta: as good as none.
_MU0 = 1e-9
#: Standard deviation of noise of scale 1, by the order of its norm.
_DEVIATION = {1: math.sqrt(2.0), 2: 1.0}
#: Curvature of the loss along a margin where most rows are, beside its bound.
_TYPICAL = 0.6


@dataclass(frozen=True)
class CurvatureSettings:
    """Settings of a private run, and what its noise will do, known before it.

    Attributes
    ----------
    algorithm : FedEPM
        With the mechanism, its clip filled in.
    rounds : int
        For `run`.
    level : float
        The noise beside the gradients: the norm of its deviations in the mean gradient over all
        clients, if all were spent on one upload, rows unclipped and the loss's curvature 1/4.
    deviation : float
        Standard deviation that the noise of all rounds leaves in each coordinate of the last
        point.
    rise : float
        How far that lifts the mean loss, in expectation, on prepared columns of root mean square
        1. At the start, w = 0, the mean logistic loss is log 2 = 0.693.
    """

    algorithm: FedEPM
    rounds: int
    level: float
    deviation: float
    rise: float


def curvature_settings(
    mechanism: Mechanism,
    client_sizes: ArrayLike,
    n_features: int,
    *,
    objective: Objective | None = None,
    client_weight: str = "size",
) -> CurvatureSettings:
    """Settings of a private run on columns of root mean square 1.

    Parameters
    ----------
    mechanism : LaplaceMechanism or GaussianMechanism
        With a total epsilon. A clip that it has is kept; the scaling of the columns is public.
    client_sizes : array_like of shape (m,)
        Rows of each client.
    n_features : int
        Prepared columns, the intercept among them.
    objective : Objective, optional
        Logistic by default. Its loss needs a bounded slope and curvature.
    client_weight : {"size", "equal"}
        Whether all rows weigh alike in the aggregate, or all clients.

    Returns
    -------
    CurvatureSettings

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    if not isinstance(mechanism, Mechanism) or mechanism.total_epsilon is None:
        raise ArgumentTypeError(
            "mechanism", f"must be a mechanism with a total_epsilon, got {mechanism!r}"
        )
    sizes = check_array("client_sizes", client_sizes, ndim=1)
    if len(sizes) == 0 or not (sizes >= 1).all():
        raise ArgumentValueError("client_sizes", f"must be at least 1 each, got {client_sizes!r}")
    n = check_int("n_features", n_features, low=1)
    check_choice("client_weight", client_weight, ("size", "equal"))
    loss = Logistic() if objective is None else objective
    slope = loss.slope_in(mechanism.order)
    if slope is None:
        raise ValueError(f"the objective {loss.name!r} has no bound on a record's gradient")
    order, outputs = mechanism.order, loss.n_outputs
    whole = slope * (n if order == 1 else math.sqrt(n))
    upload = _upload(mechanism, sizes, whole, client_weight)
    level = upload * math.sqrt(n * outputs) * 0.25 / loss.curvature
    rounds, theta, kappa = next(row[1:] for row in BEST[order] if level <= row[0])
    clip = kappa * whole if mechanism.clip is None else mechanism.clip
    eta = theta * loss.curvature
    if loss.regularizer == REGULARIZERS[1]:
        eta += loss.beta  # the penalty curves too
    made = FedEPM(
        mechanism=dataclasses.replace(mechanism, clip=clip, public_scaling=True),
        lam=0.0, eta=eta, mu0=_MU0 * eta, local_steps=1, participation=1.0, step="1",
        start="broadcast",
        aggregation="inverse_deviation" if client_weight == "size" else "equal",
    )  # fmt: skip
    epsilon = mechanism.total_epsilon
    share = mechanism.noise_multiplier(epsilon, rounds) / mechanism.noise_multiplier(epsilon, 1)
    each = upload * share * clip / whole / eta  # the noise of a round in x
    left = 1 - _TYPICAL / theta
    deviation = each * math.sqrt(sum(left ** (2 * t) for t in range(rounds)))
    rise = loss.curvature * _TYPICAL / 2 * n * outputs * deviation**2
    return CurvatureSettings(made, rounds, level, deviation, rise)


def _upload(
    mechanism: Mechanism, sizes: NDArray[np.float64], clip: float, client_weight: str
) -> float:
    """Deviation of the noise in the mean gradient, if each client uploads once."""
    assert mechanism.total_epsilon is not None
    each = mechanism.noise_multiplier(mechanism.total_epsilon, 1) * _DEVIATION[mechanism.order]
    if client_weight == "size":
        spread = math.sqrt(len(sizes)) / sizes.sum()
    else:
        spread = math.sqrt((1 / sizes**2).sum()) / len(sizes)
    return float(2 * clip * each * spread)
