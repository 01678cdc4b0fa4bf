"""The search of the ENS solution by questions; see `ens_blocks`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _boundary as boundary
from .._jit import device, kernel
from ._limits import LARGEST_C
from ._select import DENSITY, middle_by_bits

Array = NDArray[np.float64]

#: Answers are checked so many coordinates at a time.
_CHECKED = 1 << 14
#: What rounding may do to sums of weights, as a share of all of it.
_ROUNDING = 1e-9
#: From this step on a search by counts alone halves the floats that are left, 2**64 at most.
_HALVES = 6
#: Overflow is dealt with; without compilation NumPy would also talk about it.
quiet = np.errstate(over="ignore", divide="ignore", invalid="ignore")


class EnsSearch:
    """The search of the ENS solution by counts of what lies above chosen points.

    Parameters
    ----------
    sums : array_like of shape (n,)
        ``sum_i p_i * z_i``, float64.
    total : float
        Sum of the weights p_i; the number of clients where they are equal.
    c : float
        ``lam / eta``, at least 0.
    smallest : float, optional
        The smallest weight, where clients differ in it. By default every client weighs 1, and
        answers are whole numbers.
    squares : array_like of shape (n,), optional
        ``sum_i p_i * z_i^2``, infinite where it overflows: a better first step, which saves an
        answer or two where `update` is told the neighbours, and none where it is not.

    Attributes
    ----------
    point : ndarray of shape (n,)
        Where to count next: give `update` the weight of ``{i : z_i > point}``.
    done : bool
        Whether every coordinate is solved.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.

    Notes
    -----
    All coordinates are asked about at once, until the last is solved. By counts alone that takes
    at most 71 answers, whatever the data: a solution that is some client's number has to be found
    among all floats. For 100 clients of 2,000 or 20,000 normal numbers it is 68 for c = 0.5 and
    for a large c, and 1 for c = 0. With the neighbours of `point` it is 4 to 10.

    Examples
    --------
    >>> search = EnsSearch(z.sum(axis=0), len(z), c)
    >>> while not search.done:
    ...     search.update((z > search.point).sum(axis=0))
    >>> w = search.solution
    """

    @quiet
    def __init__(
        self,
        sums: ArrayLike,
        total: float,
        c: float,
        *,
        smallest: float | None = None,
        squares: ArrayLike | None = None,
    ) -> None:
        self._total = boundary.real("total", total, low=0.0, open_low=True)
        self._c = boundary.real("c", c, low=0.0)
        self._c = min(self._c, LARGEST_C[8])
        #: Whether counts are of clients, and so whole.
        self._whole = smallest is None
        if smallest is None:
            if not self._total.is_integer():
                raise boundary.ArgumentValueError(
                    "total",
                    "must be the number of clients, unless smallest tells that their "
                    f"weights differ, got {total!r}",
                )
            self._smallest = 1.0
        else:
            self._smallest = boundary.real("smallest", smallest, low=0.0, open_low=True)
            if self._smallest > self._total:
                raise boundary.ArgumentValueError(
                    "smallest", f"must be at most total = {total!r}, got {smallest!r}"
                )
        sums = boundary.as_floats("sums", sums, ndim=1).astype(np.float64, copy=False)
        boundary.check_finite("sums", sums)
        self._mean = sums / self._total
        n = len(self._mean)
        self.point = self._mean.copy()
        self._slope: Array | None = None
        if squares is not None:
            squares = boundary.as_floats("squares", squares, ndim=1)
            boundary.check_shape("squares", squares, (n,))
            _check_all("squares", "must be at least 0", squares, squares >= 0.0)
            self._slope = _slopes(self._mean, squares.astype(np.float64), self._total, self._c)
        # The bracket comes with the first answer: until then a block of rows may need the room.
        self._bracket: list[Array] = []
        self._step = 0
        self._neighbours = True
        self.done = n == 0

    @quiet
    def update(
        self, above: ArrayLike, below: ArrayLike | None = None, next_above: ArrayLike | None = None
    ) -> bool:
        """Take the answer for `point` and choose the next one.

        Parameters
        ----------
        above : array_like of shape (n,)
            The weight above `point`, in every coordinate.
        below, next_above : array_like of shape (n,), optional
            The largest z_i <= point and the smallest z_i > point (-inf and inf where there is
            none). They save most of the counts; without them the search goes on until floats
            leave no room, or no number lies in it.

        Returns
        -------
        bool
            `done`.

        Raises
        ------
        TypeError, ValueError
            Naming the argument and the index: for what cannot be a count (above the total weight,
            not finite, between whole clients), what is no neighbour of `point`, and answers that
            are inconsistent with earlier ones: the weight above a point can but fall as the point
            rises. The search is as it was before, then, and `point` may be answered again.

        Notes
        -----
        Weights are compared to a billionth of their sum, to allow for rounding. A client that
        drops out, or changes its numbers, after it was counted is found where fewer lie above a
        point than did above a higher one. It cannot be found where it was not above, nor when it
        leaves between `sums` and the first answer: the solution is that of no data, then. Have
        the protocol count those who answer each time, too.
        """
        n = len(self.point)
        above = boundary.as_floats("above", above, ndim=1).astype(np.float64, copy=False)
        boundary.check_shape("above", above, (n,))
        if (below is None) != (next_above is None):
            raise ValueError("below and next_above go together: give both or none")
        known = below is not None
        if known:
            low = boundary.as_floats("below", below, ndim=1).astype(np.float64, copy=False)
            high = boundary.as_floats("next_above", next_above, ndim=1)
            high = high.astype(np.float64, copy=False)
            boundary.check_shape("below", low, (n,))
            boundary.check_shape("next_above", high, (n,))
        else:
            low = high = self.point
        for first in range(0, n, _CHECKED):
            self._check(slice(first, first + _CHECKED), above, low, high, known)
        self._neighbours &= known
        if self._step == 0:
            slope = np.full(n, np.inf) if self._slope is None else self._slope
            self._bracket = [np.full(n, -np.inf), np.full(n, np.inf), slope, np.full(n, np.nan)]
            self._slope = None
        every = _advance(
            self.point, above, low, high, known, self._mean, *self._bracket, self._c,
            self._total, self._smallest, self._step,
        )  # fmt: skip
        self.done = bool(every)
        self._step += 1
        if self.done:
            self.point += 0.0  # of zeros of either sign +0.0
        return self.done

    def _check(self, of: slice, above: Array, low: Array, high: Array, known: bool) -> None:
        """Raise ValueError for coordinates whose answer cannot be."""
        first, total, least = of.start, self._total, self._smallest
        slack = 0.0 if self._whole else _ROUNDING * total
        above, t, low, high = above[of], self.point[of], low[of], high[of]
        if self._whole:
            rule = f"must be a whole number from 0 to {total:.0f}"
            possible = (above >= 0.0) & (above <= total) & (above == np.floor(above))
        else:
            rule = f"must be 0, {total!r}, or from {least!r} to {total - least!r}"
            possible = (above >= least - slack) & (above <= total - least + slack)
            possible |= (np.abs(above) <= slack) | (np.abs(above - total) <= slack)
        _check_all("above", rule, above, possible, first)
        if known:
            none, every = above <= slack, above >= total - slack
            # Weights so small that rounding hides them may lie on either side.
            ends = every == np.isneginf(low) if self._whole else every | (low > -np.inf)
            rule = "must be at most point, and -inf where all are above"
            _check_all("below", rule, low, ends & (low <= t), first)
            ends = none == np.isposinf(high) if self._whole else none | (high < np.inf)
            rule = "must be above point, and inf where none are"
            _check_all("next_above", rule, high, ends & (high > t), first)
        if self._step == 0:
            return
        earlier = "is inconsistent with earlier answers: did a client leave, or change its numbers?"
        lo, hi, most, fewest = (array[of] for array in self._bracket)
        solved = lo == hi
        # The number at a solved point no longer counts as above it.
        fewest = fewest - np.where(solved, 0.5 * least, 0.0)
        wrong = (above > most + slack) | (above < fewest - slack)  # False for bounds that are NaN
        _check_all("above", earlier, above, ~wrong, first)
        if known and self._neighbours:
            _check_all("below", earlier, low, solved | (low >= lo), first)
            _check_all("next_above", earlier, high, solved | (high <= hi), first)

    @property
    def solution(self) -> Array:
        """The solution, shape (n,), once `done`."""
        if not self.done:
            raise RuntimeError("the search is not done: answer point with update() until it is")
        return self.point


def _check_all(name: str, rule: str, array: Array, good: Any, first: int = 0) -> None:
    """Raise ValueError for the first entry that is not `good`."""
    if not good.all():
        j = int(np.argmin(good))
        raise ValueError(f"{name} {rule}, got {array[j]!s} at index {j + first}")


@kernel
def _slopes(mean, squares, total, c):
    slope = np.empty_like(mean)
    for j in range(mean.size):
        variance = max(squares[j] / total - mean[j] * mean[j], 0.0)
        slope[j] = 1.0 + 2.0 * DENSITY * c / np.sqrt(variance) if variance > 0.0 else np.inf
    return slope


@kernel
def _advance(
    point, above, below, next_above, known, mean, lo, hi, n_lo, n_hi, c, total, smallest, step
):  # fmt: skip
    """One step of every coordinate; a solved one has lo == hi == point. Whether all are.

    The first step finds the slope of F in `n_lo`, which has no other use before.
    """
    unit = c / total
    every = True
    for j in range(point.size):
        if lo[j] == hi[j]:
            continue
        t, m, count, slope = point[j], mean[j], above[j], 0.0
        if step == 0:
            slope, n_lo[j] = n_lo[j], np.nan
        bracket = lo[j], hi[j], n_lo[j], n_hi[j]
        if known:
            bracket = _cut_at_neighbours(
                bracket, t, count, below[j], next_above[j], m, unit, total, smallest
            )
        else:
            bracket = _cut_at(bracket, t, count, m, unit, total)
        lo[j], hi[j], n_lo[j], n_hi[j] = bracket
        if lo[j] == hi[j]:
            point[j] = lo[j]
        else:
            every = False
            point[j] = _next_point(bracket, t, count, known, m, unit, total, slope, step)
    return every


@device
def _cut_at_neighbours(bracket, t, count, low, high, m, unit, total, smallest):
    """The bracket (lo, hi, N(lo), N(hi)) cut off at a neighbour of t; lo = hi at the solution."""
    lo, hi, n_lo, n_hi = bracket
    excess = 2.0 * count - total
    u = m + excess * unit
    if low <= m + (excess + 2.0 * smallest) * unit and m + (excess - 2.0 * smallest) * unit <= high:
        # No solution lies outside the data, wherever rounding puts the mean.
        w = min(max(u, low if low > -np.inf else high), high if high < np.inf else low)
        return w, w, n_lo, n_hi
    if t > u:
        if low < hi:
            hi, n_hi = low, count + 0.5 * smallest
    elif high > lo:
        lo, n_lo = high, count - 0.5 * smallest
    if lo >= hi:
        lo = hi = max(lo, hi)
    return lo, hi, n_lo, n_hi


@device
def _cut_at(bracket, t, count, m, unit, total):
    """The same, cut off at t itself."""
    lo, hi, n_lo, n_hi = bracket
    u = m + (2.0 * count - total) * unit
    if t == u:
        return t, t, n_lo, n_hi
    if t > u:
        hi, n_hi = t, count
    else:
        lo, n_lo = t, count
    if n_lo == n_hi:
        # No z lies between: the count, and with it u, is known.
        w = min(max(m + (2.0 * n_lo - total) * unit, lo), hi)
        return w, w, n_lo, n_hi
    if middle_by_bits(lo, hi) == lo:
        # F jumps over zero at hi: a z is there.
        lo = hi
    return lo, hi, n_lo, n_hi


@device
def _next_point(bracket, t, count, known, m, unit, total, slope, step):
    """Where to count next, within the bracket."""
    lo, hi, n_lo, n_hi = bracket
    if step == 0:
        guess = t - (t - (m + (2.0 * count - total) * unit)) / slope
    elif step % 3 == 2 or (not known and step >= _HALVES):
        guess = np.nan
    elif step % 6 == 4:
        guess = 0.5 * lo + 0.5 * hi
    else:
        f_lo = lo - (m + (2.0 * n_lo - total) * unit)
        f_hi = hi - (m + (2.0 * n_hi - total) * unit)
        guess = lo - f_lo * ((hi - lo) / (f_hi - f_lo))
    return guess if lo < guess < hi else middle_by_bits(lo, hi)
