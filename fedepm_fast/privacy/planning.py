"""A private run, planned from what is public: every setting, and what it will cost.

The clients upload in public coordinates R x: ``z_i = x - g_i/eta`` plus noise. With eta the
curvature of the loss, far above the penalty of the local steps, a record moves an upload by no more
than ``2*clip / (d_i*eta)``, whatever their number, and few rounds are enough. The coordinates are
those in which the columns' second moments are about the identity, from second moments that the
clients release once, or the columns themselves where the noise of these would be too large. The
model is the mean of the points of the last rounds, which undoes most of what splitting a budget
over rounds costs: about the optimum each point is that plus noise of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import (
    ArgumentTypeError,
    ArgumentValueError,
    check_array,
    check_choice,
    check_int,
    check_real,
)
from .._private_checks import check_bounds, check_objective
from ..algorithms import FedEPM
from ..algorithms.fedepm import BY_NOISE
from ..losses import REGULARIZERS, Objective, as_objective
from ..losses.huber import Huber
from ..losses.least_squares import LeastSquares
from ..mechanisms import GaussianMechanism, LaplaceMechanism, Mechanism
from ..mechanisms._moments import DEVIATION
from ..participation import clients_per_round
from ._location import noise_l1_for, noise_left
from ._settings import (
    SIGNAL,
    TYPICAL,
    Settings,
    largest_residual,
    of_average,
    pace,
    settings_for,
    settings_for_clients,
    short_of_clients,
)
from .private_plan import PrivatePlan, columns_in, curvature_of, split_of, worth_it
from .secure_sum import TRUSTED

Array = NDArray[np.float64]

#: The penalty of the local steps beside eta: as good as none.
_MU0 = 1e-9
#: Deviation of clients' mean gradients, in each of whitened columns, that weights reckon with: a
#: fifth of what that of a single row is at most.
_APART = 0.1


def plan(
    total_epsilon: float | ArrayLike | None = None,
    client_sizes: ArrayLike = (),
    n_features: int = 0,
    *,
    delta: float = 1e-6,
    objective: str | Objective = "logistic",
    participation: float = 1.0,
    client_weight: str = "size",
    mechanism: Mechanism | None = None,
    settings: Settings | None = None,
    trust: str = TRUSTED[0],
    honest: float = 0.5,
    neighbours: str = "record",
    bounds: ArrayLike | None = None,
) -> PrivatePlan:
    """Plan a private run: all of its settings, from public numbers.

    Parameters
    ----------
    total_epsilon : float or array_like of shape (m,)
        What each client may spend, above 0; None with a `mechanism`, which says it.
    client_sizes : array_like of shape (m,)
        Rows of each client; of whole clients, which hide them, only how many clients there are.
    n_features : int
        Columns, the intercept among them.
    delta : float
        In [0, 1): Gaussian noise, or Laplace noise and a pure guarantee where it is 0.
    objective : str or Objective
        With a bounded slope and curvature, but for whole clients; by its name it has no penalty.
        Labels of a regression are brought to a deviation of about 1 and a mean near 0 by numbers
        that are public, as columns are; least squares is then the Huber loss, with a delta for this
        level of noise, but for whole clients.
    participation : float
        Share of the clients of a round, in (0, 1].
    client_weight : {"size", "equal"}
        Whether all rows weigh alike in the aggregate, or all clients.
    mechanism : Mechanism, optional
        Instead of `total_epsilon`, `delta` and `neighbours`; a clip that it has is kept.
    settings : Settings, optional
        Instead of those of the level of noise.
    trust : {"clients", "secure-sum"}
        With "clients" nobody else is trusted: each adds all of the noise that hides its records,
        whoever sees its uploads. With "secure-sum" the server sees sums of the clients' uploads
        and nothing else, of which every client adds a part, see `privacy.secure_sum`: Gaussian
        noise, clients weighted by size.
    honest : float
        Share of the clients of a sum, in (0, 1], that are honest at least: they add their part
        and do not tell it. With "secure-sum" only.
    neighbours : {"record", "client"}
        Whether each record of a client is hidden, or all of them together, see `Mechanism`: of any
        loss then, whose slope need not be bounded.
    bounds : array_like of shape (2, n_features), optional
        Public bounds of the columns, where location and scale were guessed from them alone: means
        and variances are then released first, if noise leaves much of them, for as much as one
        upload. Infinite for a column of which more is known, 1 and 1 for an intercept. Not for
        `PrivateServer`; not used for whole clients, nor with Laplace noise and a delta.

    Returns
    -------
    PrivatePlan

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    if mechanism is None:
        mechanism = _mechanism(total_epsilon, delta, neighbours)
    elif not isinstance(mechanism, Mechanism) or mechanism.total_epsilon is None:
        raise ArgumentTypeError(
            "mechanism", f"must be a mechanism with a total_epsilon, got {mechanism!r}"
        )
    sizes = check_array("client_sizes", client_sizes, ndim=1)
    if len(sizes) == 0 or not (sizes >= 1).all():
        raise ArgumentValueError("client_sizes", f"must be at least 1 each, got {client_sizes!r}")
    n = check_int("n_features", n_features, low=1)
    rho = check_real("participation", participation, low=0.0, high=1.0, open_low=True)
    check_choice("client_weight", client_weight, ("size", "equal"))
    check_choice("trust", trust, TRUSTED)
    honest = check_real("honest", honest, low=0.0, high=1.0, open_low=True)
    if trust != TRUSTED[0]:
        _check_sums(mechanism, client_weight)
    loss = _objective(objective)
    check_objective(loss)
    given = _Given(mechanism, sizes, n, loss, rho, client_weight, trust, honest, settings, bounds)
    return _planned(given)


class _Given(NamedTuple):
    """What a plan is made of, checked."""

    mechanism: Mechanism
    sizes: Array
    n: int
    loss: Objective
    rho: float
    client_weight: str
    trust: str
    honest: float
    settings: Settings | None
    bounds: ArrayLike | None


class _Uploads(NamedTuple):
    """How uploads are aggregated, and their noise."""

    aggregation: str
    noise_l1: float
    noise: float
    """Deviation of what is in the server's gradient, if each client uploads once and the loss has a
    slope of 1; of whole clients in the mean of their moves."""


def _planned(given: _Given, uploads: _Uploads | None = None) -> PrivatePlan:
    """The plan, of uploads with so much noise."""
    mechanism, sizes, n, loss, rho, _, trust, honest, settings, bounds = given
    whole = mechanism.neighbours == "client"
    unit = _unit(mechanism, loss, n)
    aggregation, noise_l1, upload = uploads = uploads or _uploads(given, unit)
    level = upload * math.sqrt(n * loss.n_outputs)
    if whole:
        chosen = settings or settings_for_clients(mechanism.order, level)
    else:
        level *= 0.25
        if isinstance(loss, LeastSquares):
            loss = Huber(
                loss.beta, loss.regularizer, weights=loss.weights, delta=largest_residual(level)
            )
        check_bounds(loss)
        slope = loss.slope_in(mechanism.order)
        assert slope is not None
        unit, upload, level = slope * unit, slope * upload, slope * level / curvature_of(loss)
        chosen = settings or settings_for(
            mechanism.order, level, of_residuals=isinstance(loss, Huber), classes=loss.n_outputs
        )
    alone = isinstance(mechanism, LaplaceMechanism) and mechanism.delta > 0
    if settings is None and alone:
        # Which accounts for no release of several uploads' worth; columns as they are curve more.
        chosen = chosen._replace(moments=0, theta=max(chosen.theta, 2.5))
    columns = None if bounds is None else columns_in(bounds, n)
    if columns and (whole or alone or not worth_it(columns, mechanism, chosen, upload / unit)):
        columns = None
    before = chosen.moments + (columns is not None)
    clip = chosen.clip * unit if mechanism.clip is None else mechanism.clip
    curvature = curvature_of(loss)
    # Uploads of earlier rounds are of earlier points, which shorter steps leave less far behind.
    eta = chosen.theta * (2 - rho) * curvature
    algorithm = FedEPM(
        mechanism=dataclasses.replace(mechanism, clip=clip, moments=before),
        lam=0.0, eta=eta, mu0=_MU0 * eta, local_steps=1, participation=rho, step="1",
        start="broadcast",
        aggregation=aggregation,
        noise_l1=noise_l1,
    )  # fmt: skip
    share = split_of(mechanism, chosen.rounds + before)
    # The noise of a round in x. Shorter steps where some take part have less, and bring it back as
    # much more slowly.
    each = upload * share * clip / unit / (1 if whole else chosen.theta * curvature)
    # Moves that are clipped hardly bring it back.
    left = 0.9 if whole else 1 - pace(chosen)
    deviation = each * of_average(left, chosen.rounds, chosen.kept)
    rise = curvature * TYPICAL / 2 * n * loss.n_outputs * deviation**2
    if whole:  # nor do they lead to the optimum
        rise = SIGNAL * short_of_clients(mechanism.order, level)
    return PrivatePlan(
        algorithm, math.ceil(chosen.rounds / rho), chosen, sizes.astype(np.int64), n, loss, level,
        deviation, rise, trust, honest, columns, functools.partial(_again, given, uploads),
    )  # fmt: skip


def _again(
    given: _Given,
    uploads: _Uploads,
    *,
    sizes: Array | None = None,
    total_epsilon: float | None = None,
    noise: float | None = None,
) -> PrivatePlan:
    """`PrivatePlan.again`."""
    if sizes is not None:
        mechanism = given.mechanism
        if mechanism.budgets is not None:  # as clients and their rows, in turn
            budgets = np.resize(mechanism.budgets, len(sizes))
            mechanism = dataclasses.replace(mechanism, budgets=tuple(budgets.tolist()))
        given = given._replace(sizes=sizes, mechanism=mechanism)
    if total_epsilon is not None:
        one = dataclasses.replace(given.mechanism, total_epsilon=total_epsilon, budgets=None)
        given = given._replace(mechanism=one)
    if noise is not None:
        return _planned(given, uploads._replace(noise=noise * uploads.noise))
    return _planned(given)


def _uploads(given: _Given, unit: float) -> _Uploads:
    """How clients' uploads are aggregated, and their noise."""
    mechanism, sizes = given.mechanism, given.sizes
    once = mechanism.noise_multipliers(np.ones(len(sizes), np.int64))
    noise = 2 * unit / mechanism.units(sizes) * once
    alone = given.trust == TRUSTED[0]
    aggregation = "inverse_deviation" if given.client_weight == "size" else "equal"
    if given.client_weight == "size" and alone:
        whole = mechanism.neighbours == "client"
        aggregation = "inverse_variance" if whole else _aggregation(mechanism, noise, sizes)
    weights = (1 / noise) ** BY_NOISE.get(aggregation, 0.0)
    in_mean = DEVIATION[mechanism.order] * float(np.linalg.norm(weights * noise) / weights.sum())
    in_mean *= noise_left(mechanism, weights, noise)
    if not alone:
        m0 = clients_per_round(given.rho, len(sizes))
        in_mean *= math.sqrt(m0 / clients_per_round(given.honest, m0) / len(sizes)) / given.rho
    return _Uploads(aggregation, noise_l1_for(mechanism, weights), in_mean)


def _objective(objective: str | Objective) -> Objective:
    """The objective, without a penalty unless it is given with one, and that one for every client
    the same."""
    if isinstance(objective, str):
        return as_objective(objective, beta=0.0)
    if objective.beta == 0:
        return objective
    if objective.regularizer == REGULARIZERS[0]:
        raise ArgumentValueError(
            "objective", f"must have the regularizer {REGULARIZERS[1]!r}, got {REGULARIZERS[0]!r}"
        )
    return objective.changed(regularizer=REGULARIZERS[1])


def _mechanism(total_epsilon: Any, delta: Any, neighbours: str) -> Mechanism:
    """Gaussian noise, or Laplace noise where delta is 0."""
    delta = check_real("delta", delta, low=0.0, high=1.0, open_high=True)
    given: dict[str, Any] = {"neighbours": neighbours}
    if np.ndim(total_epsilon):
        given["budgets"] = check_array("total_epsilon", total_epsilon, ndim=1)
    else:
        given["total_epsilon"] = check_real("total_epsilon", total_epsilon, low=0.0, open_low=True)
    if delta:
        return GaussianMechanism(**given, delta=delta)
    return LaplaceMechanism(**given)


def _check_sums(mechanism: Mechanism, client_weight: str) -> None:
    """Raise ValueError unless this is a plan for secure sums."""
    if not isinstance(mechanism, GaussianMechanism):
        raise ArgumentValueError(
            "delta", "must be above 0 for trust='secure-sum', whose noise is Gaussian"
        )
    if mechanism.budgets is not None:
        raise ArgumentValueError(
            "total_epsilon", "must be one number for trust='secure-sum', whose noise is of all"
        )
    if client_weight != "size":
        raise ArgumentValueError(
            "client_weight", "must be 'size' for trust='secure-sum': a record of the smallest "
            f"client would move equal weights furthest, got {client_weight!r}"
        )  # fmt: skip


def _unit(mechanism: Mechanism, loss: Objective, n: int) -> float:
    """Norm of a row whose entries are all 1; where clients' moves are clipped and not rows, the
    largest of a point whose Euclidean length is 1."""
    if mechanism.neighbours == "client":
        return math.sqrt(n * loss.n_outputs) if mechanism.order == 1 else 1.0
    return n if mechanism.order == 1 else math.sqrt(n)


def _aggregation(mechanism: Mechanism, noise: Array, sizes: Array) -> str:
    """How uploads weigh: by the inverse variance of their noise, of which the mean then has least,
    unless those of much noise, whom it nearly leaves out, are too different from the others. In
    ENS the inverse deviation of Laplace noise leaves less.

    Compared is the mean square error of the server's gradient with weights p, of noise, of the rows
    that clients happen to have, and of what they have in common where that is not what all have.
    """

    def error(power: float) -> float:
        p = (1 / noise) ** power
        p = p / p.sum()
        left = DEVIATION[mechanism.order] * noise_left(mechanism, p, noise)
        own = (left * noise) ** 2 + 0.25 / sizes
        return float(p**2 @ own + _APART**2 * ((p - sizes / sizes.sum()) ** 2).sum())

    return min(("inverse_deviation", "inverse_variance"), key=lambda name: error(BY_NOISE[name]))
