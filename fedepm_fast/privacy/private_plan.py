"""A plan of a private run: what it fixes, says and does; `planning.plan` makes one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import check_array
from ..algorithms import FedEPM
from ..algorithms._operators import ens
from ..algorithms.fedepm import BY_NOISE
from ..callbacks import Callback
from ..data import FederatedData
from ..losses import Objective
from ..mechanisms import Columns, Mechanism, coordinates
from ..mechanisms._moments import DEVIATION, size_of_ones
from ..result import Result
from ._location import noise_l1_for, noise_left
from ._settings import LARGEST_SPREAD, SIGNAL, Settings, left_of, settings_for, way_left
from ._words import in_words, warning_of
from .secure_sum import TRUSTED

Array = NDArray[np.float64]

#: The mean square of an intercept in second moments below which rows are larger than planned.
_HALF = 0.5


@dataclass(frozen=True, eq=False)
class PrivatePlan:
    """Everything that a private run fixes before it has seen a row, made by `plan`.

    Attributes
    ----------
    algorithm : FedEPM
        Of the rounds, with the mechanism, its budget and its clip.
    rounds : int
    settings : Settings
        What the level of noise asks for.
    client_sizes : ndarray of shape (m,)
    n_features : int
        Columns, the intercept among them.
    objective : Objective
    level : float
        The noise beside the gradients: the norm of its deviations in the mean gradient over all
        clients, if all were spent on one upload, rows unclipped and the loss's curvature 1/4.
    deviation : float
        Standard deviation that noise leaves in each coordinate of the model, where classes are
        about as many: several times that where one is rare, for the loss is flatter then.
    rise : float
        How far that noise lifts the mean loss, in expectation, where columns have a root mean
        square of about 1; of whole clients also what is left of the way, for their moves are
        clipped. At the start, w = 0, the mean loss of two classes is log 2 = 0.693. Plans that
        differ in their rounds are told apart by `short`.
    trust : {"clients", "secure-sum"}
        Whether every client trusts itself alone, or secure sums and the honest share of clients.
    honest : float
        That share, for ``trust="secure-sum"``.
    columns : Columns, optional
        Those whose means and variances are released before the second moments.
    again : callable, optional
        What plans anew for clients of other ``sizes`` or another ``total_epsilon`` of each; given
        how many times the ``noise`` of an upload there is then, in less time.
    """

    algorithm: FedEPM
    rounds: int
    settings: Settings
    client_sizes: NDArray[np.int64]
    n_features: int
    objective: Objective
    level: float
    deviation: float
    rise: float
    trust: str = TRUSTED[0]
    honest: float = 1.0
    columns: Columns | None = None
    again: Callable[..., PrivatePlan] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """The guarantee, what is released, the noise, and what it is expected to cost."""
        return in_words(self)

    @property
    def warning(self) -> str:
        """What is to be known before the run; empty if its noise is not larger than the signal."""
        return warning_of(self)

    @property
    def mechanism(self) -> Mechanism:
        """Of all that is released, the rounds' clip in it."""
        assert self.algorithm.mechanism is not None
        return self.algorithm.mechanism

    @property
    def kept(self) -> int:
        """The model is the mean of the points of so many last rounds.

        Where few take part in one, a client's noise stays in the points until it does again."""
        return math.ceil(self.settings.kept / self.algorithm.participation)

    @property
    def short(self) -> float:
        """How far above the optimum the mean loss is expected to end: `rise`, and what the rounds
        leave of the way, by their number, steps and clip, of a signal of 0.15.

        More noise asks for fewer rounds, of which `rise` alone may be less again.
        """
        if self.mechanism.neighbours == "client":
            return self.rise
        return self.rise + SIGNAL * way_left(self.settings) ** 2

    @property
    def left(self) -> tuple[float, float] | None:
        """Share of the way from w = 0 to the optimum that such runs left on synthetic tables of two
        classes, noise, clipping and rounds together, in the mean and in the worst tenth; None where
        nobody tried: for regressions, a softmax, whole clients, rounds of some of the clients and
        settings of one's own."""
        order = self.mechanism.order
        tried = self.objective.task == "classification" and self.mechanism.neighbours == "record"
        tried &= self.algorithm.participation == 1
        if not tried or self.settings != settings_for(order, self.level):
            return None
        return left_of(order, self.level, within_bounds=self.columns is not None)

    @property
    def radius(self) -> float | None:
        """Size to which rows are clipped in their second moments; None if these stay unreleased."""
        if not self.settings.moments:
            return None
        return self.settings.radius * size_of_ones(self.n_features, self.mechanism.order)

    def standardising(self, values: ArrayLike, scales: ArrayLike) -> Array:
        """What turns columns into those whose second moments are released, shape (p, p), from their
        means and mean squares, as of `Columns.simulate`."""
        assert self.columns is not None
        center, left = self._center(values, scales)
        return self.columns.standardising(center, left * DEVIATION[self.mechanism.order])

    def coordinates(
        self,
        values: ArrayLike | None = None,
        scales: ArrayLike | None = None,
        first: ArrayLike | None = None,
    ) -> Array:
        """What turns columns into the coordinates of the rounds, from released second moments.

        A penalty is diagonal in them, and its curvature a part of theirs.

        Parameters
        ----------
        values : array_like of shape (m, p*(p+1)/2), optional
            What clients sent, see `client_moments`; nothing where `radius` is None.
        scales : array_like of shape (m,), optional
            Of the noise in them.
        first : array_like of shape (p, p), optional
            What the columns were multiplied by before, of `standardising`.

        Returns
        -------
        ndarray of shape (p, p)
            Rows of ``A @ back`` are what the rounds see, and ``back @ v`` is a point v in columns.
        """
        first = np.eye(self.n_features) if first is None else np.asarray(first)
        if values is None or scales is None:
            return _with_penalty(first, self.objective)
        center, left = self._center(values, scales)
        # Rows that are clipped by a factor f count f^2 in the moments, as the intercept's own one
        # tells, and more than that in the rounds: were most of them far larger than columns of a
        # root mean square of 1 make them, steps in these coordinates would be too long. Where noise
        # may be all that makes it small, nothing is known.
        counted = float(center[-1]) + 2 * DEVIATION[self.mechanism.order] * left
        grown = max(1.0, _HALF / max(counted, _HALF / 8)) ** 2
        center, left = grown * center, grown * left
        back = coordinates(center[None], [left], [1.0], self.mechanism.order, self.settings.floor)
        return _with_penalty(first @ back, self.objective)

    def _center(self, values: ArrayLike, scales: ArrayLike) -> tuple[Array, float]:
        """What clients sent (m, q) as one, and the scale of the noise that is left.

        As points are: where it is Laplace noise, ENS has less of it than the mean."""
        scales = check_array("scales", scales, ndim=1)
        weights = (1 / scales) ** BY_NOISE.get(str(self.algorithm.aggregation), 0.0)
        shares = weights / weights.sum()
        c = noise_l1_for(self.mechanism, weights) * float(shares @ scales)
        left = float(np.linalg.norm(shares * scales)) * noise_left(self.mechanism, weights, scales)
        return np.asarray(ens(values, c, weights)), left

    def in_columns(self, points: ArrayLike, coordinates: ArrayLike) -> Array:
        """Points (..., n) of the rounds' coordinates, as `coordinates` gave them, in columns."""
        points, back = np.asarray(points, np.float64), np.asarray(coordinates)
        return np.asarray((points.reshape(-1, len(back)) @ back.T).reshape(points.shape))

    def average(self, points: ArrayLike) -> Array:
        """The model, in the rounds' coordinates, of the points of all rounds, (rounds + 1, n)."""
        return np.asarray(points, np.float64)[-self.kept :].mean(axis=0)

    def run(
        self,
        data: FederatedData,
        *,
        seed: int | None = None,
        engine: str | None = None,
        callback: Callback | None = None,
        public_scaling: bool = False,
        every_accuracy: bool = True,
    ) -> Result:
        """The planned run in this process, all clients played by it.

        Parameters
        ----------
        data : FederatedData
            Of these sizes and columns, brought to a root mean square of about 1 by numbers that
            are public.
        seed : int, optional
            Of the noise; drawn from the operating system by default, see `run`.
        engine : {"compiled", "reference"}, optional
            As of `run`.
        callback : callable, optional
            As of `run`; it only watches.
        public_scaling : bool
            Whether columns may be scaled by numbers of these rows.
        every_accuracy : bool
            As of `run`.

        Returns
        -------
        Result
            In the columns of `data`. The last point is the mean of the last ones.
        """
        from ._private_run import private_run

        return private_run(
            self, data, seed=seed, engine=engine, callback=callback,
            public_scaling=public_scaling, every_accuracy=every_accuracy,
        )  # fmt: skip


def curvature_of(loss: Objective) -> float:
    """The curvature of the loss that steps go by: its bound, or about that at margin 0 without
    one; but of K classes that where runs start, 1/K, for rows reach the bound, 1/2, only where two
    classes share all."""
    return float(loss.curvature or 1.0) if loss.n_outputs == 1 else 1 / loss.n_outputs


def _with_penalty(back: Array, objective: Objective) -> Array:
    """Coordinates in which the penalty is diagonal, and its curvature and the loss's bound add up
    to the latter.

    With v those in which the loss's bound is a multiple kappa of the identity, ``w = back @ v``,
    the penalty of w has in v the matrix P; turned by its eigenvectors, and every direction divided
    by ``sqrt(1 + beta * delta / kappa)``, delta its eigenvalue, the sum is kappa again.
    """
    beta, kappa, p = objective.beta, curvature_of(objective), len(back)
    if beta == 0:
        return back
    weights = np.ones(p) if objective.weights is None else np.array(objective.weights)
    delta, turn = np.linalg.eigh(back.T @ (weights[:, None] * back))
    delta = np.maximum(delta, 0.0)
    grown = 1 + beta * delta / kappa
    return np.asarray(back @ (turn / np.sqrt(grown)))


def split_of(mechanism: Mechanism, uploads: int) -> float:
    """Noise of an upload of so many, over that of one that spends the budget alone."""
    epsilon = mechanism.total_epsilon
    assert epsilon is not None
    return mechanism.noise_multiplier(epsilon, uploads) / mechanism.noise_multiplier(epsilon, 1)


def columns_in(bounds: ArrayLike, n: int) -> Columns:
    """The columns of these bounds, which must be of n."""
    return Columns(check_array("bounds", bounds, shape=(2, n), finite=False))


def worth_it(columns: Columns, mechanism: Mechanism, settings: Settings, noise: float) -> bool:
    """Whether means and variances of these columns are worth an upload, `noise` (sd) being what is
    in the mean of numbers that records move by ``2 / d_i`` and a whole budget is spent on."""
    uploads = settings.rounds + settings.moments + 1
    spread = noise / 2 * columns.move(mechanism.order) * split_of(mechanism, uploads)
    return 0 < spread <= LARGEST_SPREAD
