"""Means and mean squares of columns of which bounds are public, under noise.

They come before second moments where location and scale of columns are only guessed from their
bounds: rows that stay far within these are hardly clipped, and keep the long tails that clipped
ones of standardised columns lose. A client sends, of p columns brought to [-1, 1] by the bounds,
the means of u and of u^2 over its rows. A record that is replaced, u by v, moves their sums in a
column, with ``s = u + v``, ``t = |u - v|`` and ``|s| <= 2 - t``, by

    in L2:   (u - v)^2 + (u^2 - v^2)^2 = t^2 (1 + s^2) <= t^2 (1 + (2 - t)^2) <= 4
    in L1:   |u - v| + |u^2 - v^2| = t (1 + |s|) <= t (3 - t) <= 9/4

the first rising up to t = 2, where u and v are 1 and -1, and the second largest at t = 3/2, where
they are 1 and -1/2. A client that is replaced moves its means no further: pairs of means are
between those of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._common.validation import ArgumentValueError, check_array
from ..data import FederatedData
from ..randomness import MOMENTS, CounterRandomness, uniform
from ._base import Array, Mechanism
from ._sensitivity import FOR_ROUNDING, gradient_rounding

#: Bounds beyond the first, or nearer than the second, are refused: what is made of them is finite.
_FAR, _NEAR = 1e100, 1e-100
#: Least variance of a column in [-1, 1], in deviations of its noise, and without noise.
_FLOOR, _LEAST = 2.0, 1e-6


class Columns:
    """Columns of which public bounds say all that is known before a run.

    Parameters
    ----------
    bounds : array_like of shape (2, n)
        Lower and upper ones; both infinite where mean and deviation of a column are known, and both
        1 for an intercept.

    Raises
    ------
    ValueError
        Unless they are that, with a lower one below the upper one.
    """

    def __init__(self, bounds: ArrayLike) -> None:
        self.bounds = check_array("bounds", bounds, shape=(2, None), finite=False)
        low, high = self.bounds
        far = np.isneginf(low) & np.isposinf(high)
        near = (np.abs(low) <= _FAR) & (np.abs(high) <= _FAR)
        one = (low == 1) & (high == 1)
        wrong = np.flatnonzero(~(far | one | (near & (high / 2 - low / 2 > _NEAR))))
        if len(wrong):
            j = int(wrong[0])
            raise ArgumentValueError(
                "bounds",
                f"must be a lower and a higher number of up to {_FAR:g}, both infinite, or both 1, "
                f"got {low[j]:g} and {high[j]:g} for column {j}",
            )
        #: Numbers of the columns that are asked about, and of an intercept.
        self.asked = np.flatnonzero(~far & ~one)
        self.intercept = np.flatnonzero(one)[:1]
        low, high = low[self.asked], high[self.asked]
        self._middle, self._half = low / 2 + high / 2, high / 2 - low / 2

    @property
    def size(self) -> int:
        """How many numbers a client sends."""
        return 2 * len(self.asked)

    def move(self, order: int) -> float:
        """How far a record can move the sums over its client's rows, in the norm of that order."""
        p = len(self.asked)
        return float(2 * np.sqrt(p) if order == 2 else 9 * p / 4)

    def change(self, sizes: ArrayLike, order: int) -> Array:
        """How far a record can move its client's `means`, shape (m,), and a little more for the
        rounding of sums over the rows; `sizes` as for `moments_change`."""
        sizes, move = np.asarray(sizes), self.move(order)
        rounding = 2 * gradient_rounding(move, sizes, self.size)
        return np.asarray(move / sizes * (1 + FOR_ROUNDING) + rounding)

    def means(self, features: Any) -> Array:
        """What a client sends before noise: means of u and u^2 over its rows, shape (2*p,)."""
        taken = features[:, self.asked]
        rows = np.asarray(taken if isinstance(taken, np.ndarray) else taken.toarray(), np.float64)
        with np.errstate(over="ignore"):  # what is not finite is clipped
            u = np.clip((rows - self._middle) / self._half, -1.0, 1.0)
        return np.concatenate([u.mean(axis=0), np.square(u).mean(axis=0)])

    def simulate(
        self,
        data: FederatedData,
        mechanism: Mechanism,
        multipliers: ArrayLike,
        randomness: CounterRandomness,
    ) -> tuple[Array, Array]:
        """What all clients send, as `simulate_moments`: values (m, 2*p) and scales (m,)."""
        units = mechanism.units(data.client_sizes)
        scales = self.change(units, mechanism.order) * np.asarray(multipliers, np.float64)
        words = randomness.blocks(MOMENTS, 1, np.arange(data.n_clients), self.size)
        noise = mechanism.law.quantile(uniform(words)) * scales[:, None]
        clean = [self.means(data.client(i)[0]) for i in range(data.n_clients)]
        return np.array(clean) + noise, scales

    def standardising(self, means: ArrayLike, deviation: float) -> Array:
        """The matrix B with which columns of ``A @ B`` have a mean of about 0 and a variance of
        about 1, or without an intercept a mean square of that.

        Parameters
        ----------
        means : array_like of shape (2*p,)
            Of all rows, with noise.
        deviation : float
            Of the noise in each number. Variances below twice that are taken as that.

        Returns
        -------
        ndarray of shape (n, n)
        """
        center, square = np.clip(np.asarray(means, np.float64), -1.0, 1.0).reshape(2, -1)
        center = center if len(self.intercept) else np.zeros_like(center)
        least = min(max(_FLOOR * deviation, _LEAST), 1.0)
        scale = self._half * np.sqrt(np.clip(square - center**2, least, 1.0))
        found = np.eye(self.bounds.shape[1])
        found[self.asked, self.asked] = 1 / scale
        if len(self.intercept):
            found[self.intercept[0], self.asked] = -(self._middle + self._half * center) / scale
        return found
