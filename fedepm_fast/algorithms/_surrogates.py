"""The server of FedEPM with eta the curvature: a model of every client, and their sum's minimiser.

With one gradient a round and eta far above nu a client's local steps end at ``x_i - g_i/eta``, in
the metric of eta. What it sends says no more and no less than g_i, so the server keeps the
quadratic model of f_i that has this minimiser, and its next point is where the sum of all models is
least: MISO/Finito (Mairal 2015; Defazio, Caetano and Domke 2014), whose memory of all uploads is a
memory of all gradients, so that partial participation leaves no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._quadratics import Quadratics

Array = NDArray[np.float64]
Clients = NDArray[np.intp]

#: Damping at first, where there is a bound: it says how far one may go where nothing bends. And
#: what there always is. Where f has no minimum damping has to go to zero, but not at once.
FIRST_DAMPING, LEAST_DAMPING = 1e-4, 1e-15
#: Damping grows to what would have been enough, times this. It falls by the other a round; where
#: there is a bound, and it matters, by the last in the time in which all take part.
_MORE, _LESS, _LESS_BOUNDED = 1.2, 0.1, 0.3
#: No damping is larger, also where nothing bounds the curvature.
_LIMIT = 1e12
#: Where f bent less than its models in the last step the next one is longer, to so many times:
#: below 2 it lowers f all the same where the models hold. Only while a step bends f by more than
#: this part of it: at the end models are true.
_LONGEST, _BENT = 1.25, 1e-6
#: Where some take part a point is no further from a client's x_i than this part of the way that it
#: had come to there, if its model along that step has less than the next part of the bound: a flat
#: model says nothing of what lies ahead, and it is not asked at once. But no step is cut to less
#: than the last part of it.
_REACH, _FLAT, _CUT = 0.6, 1e-3, 0.1
#: Sums of objectives are known to this part of them.
ROUNDING = 1e-13
#: No point is a server's that is so many times f/m at the start above the best one.
_FAR = 1e6


class Surrogates:
    """Clients' models, and the damping that keeps them true.

    Parameters
    ----------
    start : ndarray of shape (n,)
        The first point.
    m : int
        Number of clients.
    tol : float
        The run has converged once the models promise a decrease of f/m below this part of what f/m
        was at the start, for `calm` rounds in a row.
    calm : int
        So many rounds in a row that everyone takes part at least once.
    """

    def __init__(self, start: Array, m: int, *, tol: float, calm: int) -> None:
        n = len(start)
        self.tol, self.calm = tol, calm
        self.X = np.tile(start, (m, 1))
        self.G, self.F = np.zeros((m, n)), np.zeros(m)
        self.x, self.start = start.copy(), start.copy()
        self.models: Quadratics | None = None
        #: kappa; rounds that promised next to nothing; whether the last point was refused; f/m at
        #: the start.
        self.kappa, self.quiet, self.refused, self.unit = 0.0, 0, False, 0.0
        #: Whose models were refused the last point that they were asked of.
        self.waits = np.zeros(m, bool)
        #: What the next step is multiplied by, where all models are of one point.
        self.stretch = 1.0
        #: The point with the least f/m of those that were estimated, and that.
        self.best, self.least = start.copy(), np.inf

    # A round ----------------------------------------------------------------------------

    def begin(self, models: Quadratics, values: Array, gradients: Array) -> None:
        """What all clients said of the first point."""
        self.models = models
        # By a bound: a multiple of what is flat would be flat.
        self.kappa = FIRST_DAMPING if models.bounded else 0.0
        self.F[:], self.G[:] = values, gradients
        self.unit = abs(float(values.mean()))
        self.least = float(values.mean())

    def propose(self) -> Array:
        """The server's next point, shape (n,); before `begin` the start."""
        if self.models is None:
            return self.x
        kappa = max(self.kappa, LEAST_DAMPING)
        x = self.models.minimiser(self.X, self.G, kappa)
        if not np.isfinite(x).all():  # sums overflow; the best point is as good an end as any
            x = self.best.copy()
        if self.stretch > 1.0 and bool(np.all(self.x == self.X)):
            x = self.x + self.stretch * (x - self.x)
        # Of a step that damping makes small, or that is cut, what it would be without.
        promised = (1.0 + kappa) * self.models.length(x - self.x, kappa)
        scale = max(self.unit, abs(self.least)) or 1.0
        small = promised <= self.tol * scale and not self.refused
        self.quiet = self.quiet + 1 if small else 0
        self.x = self._within_reach(x)
        return self.x

    def _within_reach(self, x: Array) -> Array:
        """That point, or one before it: no flat model is followed too far; see `_REACH`."""
        assert self.models is not None
        if not self.models.bounded or not np.ptp(self.X, axis=0).any():
            return x  # models of one point: all clients checked it at once
        everyone = np.arange(len(self.X))
        in_m, in_b = self.models.forms(everyone, x - self.X)
        reach = _REACH**2 * self.models.forms(everyone, self.X - self.start)[1]
        flat = np.flatnonzero((in_m < _FLAT * in_b) & (in_b > reach) & (reach > 0))
        if not len(flat):
            return x
        # |last - x_i + share*step|^2 in B_i is the reach: a quadratic equation for each of them.
        last = self.best if self.refused else self.x
        whole = self.models.forms(flat, np.tile(x - last, (len(flat), 1)))[1]
        behind = self.models.forms(flat, last - self.X[flat])[1]
        half = (in_b[flat] - whole - behind) / 2
        root = np.sqrt(np.maximum(half**2 + whole * (reach[flat] - behind), 0.0))
        share = float(((root - half) / np.where(whole > 0, whole, np.inf)).min())
        return np.asarray(last + min(max(share, _CUT), 1.0) * (x - last))

    @property
    def converged(self) -> bool:
        """Whether nothing is to be expected of further rounds."""
        return self.quiet >= self.calm

    def is_sound(self, values: Array) -> bool:
        """Whether f_i at a point (s,) are numbers to go on with: finite, and not far above all."""
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(float(values.mean()) - self.least <= _FAR * max(self.unit, 1.0))

    def receive(
        self, S: Clients, values: Array, gradients: Array, hessians: Mapping[int, Array]
    ) -> bool:
        """What the clients `S` said of the last point; whether all their models moved there.

        Damping grows where the models promised too much, as far as would have been enough, and the
        clients' models stay where they were if f rose as well, though not twice in a row.

        Parameters
        ----------
        S : ndarray of int, shape (s,)
        values : ndarray of shape (s,)
            f_i at the point.
        gradients : ndarray of shape (s, n)
        hessians : mapping of int to ndarray
            Of those that sent theirs, packed.
        """
        assert self.models is not None
        steps = self.x - self.X[S]
        before = self.F[S]
        with np.errstate(over="ignore", invalid="ignore"):
            excess = float((values - before - (self.G[S] * steps).sum(axis=1)).sum())
            finite = np.isfinite(excess) and bool(np.isfinite(gradients).all())
        in_m, in_b = (float(form.sum()) for form in self.models.forms(S, steps))
        slack = ROUNDING * float(np.abs(before).sum())
        held = finite and excess <= in_m + self.kappa * in_b + slack
        if held:
            bounded, share = self.models.bounded, len(S) / len(self.F)
            less = self.kappa * (_LESS_BOUNDED**share if bounded else _LESS)
            if excess <= in_m + less * in_b + slack:
                self.kappa = less
        else:
            self._damp((excess - in_m) / in_b if finite and in_b > 0 else np.inf)
        self.stretch = 1.0
        if held and self.models.stretches and in_m > _BENT * float(np.abs(before).sum()):
            self.stretch = min(max(in_m / max(excess, in_m / _LONGEST), 1.0), _LONGEST)
        self.refused = not (held or (finite and float(values.sum()) <= float(before.sum())))
        # A client's own f_i may have to rise: of some clients none is refused twice in a row, or it
        # never moves. Without a bound a Hessian of a far point says nothing of those before it.
        some = finite and self.models.bounded and len(S) < len(self.F)
        kept = self.refused & ~(self.waits[S] & some)
        self.waits[S] = kept
        moved = S[~kept]
        # How gradients turned tells of the curvature at a refused point too, if that is bounded.
        told = ~kept | (finite and self.models.bounded)
        turns = gradients - self.G[S]
        if told.any():
            sent = {i: hessian for i, hessian in hessians.items() if i in moved}
            self.models.update(S[told], steps[told], turns[told], sent)
        self.X[moved], self.F[moved], self.G[moved] = self.x, values[~kept], gradients[~kept]
        if not self.refused:
            self._remember(S)
        return not self.refused

    def _damp(self, enough: float) -> None:
        """More damping: `enough` is what would have made the models true."""
        assert self.models is not None
        most, limit = (1.0, 1.0) if self.models.bounded else (max(10.0 * self.kappa, 1.0), _LIMIT)
        self.kappa = min(max(2.0 * self.kappa, min(_MORE * enough, most)), limit)

    def _remember(self, S: Clients) -> None:
        """Keep the point if f/m is the least there, as far as the models tell."""
        estimate = self._estimate(self.x, np.setdiff1d(np.arange(len(self.F)), S))
        if estimate < self.least:
            self.best, self.least = self.x.copy(), estimate

    def _estimate(self, x: Array, others: Clients) -> float:
        """f/m at a point, by the models of those clients `others` whose own is not there."""
        steps = x - self.X
        estimate = float((self.F + (self.G * steps).sum(axis=1)).sum())
        if len(others):
            assert self.models is not None
            estimate += float(self.models.forms(others, steps[others])[0].sum())
        return estimate / len(self.F)

    # Who comes and goes ------------------------------------------------------------------

    def admit(self, row: int, value: float, gradient: Array, curvature: Array) -> None:
        """A client more, before that of `row`, with what it said of the last point."""
        assert self.models is not None
        self.X = np.insert(self.X, row, self.x, axis=0)
        self.G = np.insert(self.G, row, gradient, axis=0)
        self.F = np.insert(self.F, row, value)
        self.waits = np.insert(self.waits, row, False)
        self.models.admit(row, curvature)
        self._reconsider()

    def dismiss(self, row: int) -> None:
        """A client less: nothing that it said counts any more."""
        assert self.models is not None
        self.X, self.G, self.F = (np.delete(a, row, axis=0) for a in (self.X, self.G, self.F))
        self.waits = np.delete(self.waits, row)
        self.models.dismiss(row)
        self._reconsider()

    def _reconsider(self) -> None:
        """f is another one: what it is at the best point the models say."""
        self.quiet = 0
        if len(self.F):
            self.least = self._estimate(self.best, np.arange(len(self.F)))

    # Kept -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything as arrays, for files."""
        numbers = [self.kappa, self.quiet, self.refused, self.unit, self.least, self.stretch]
        arrays = {
            "X": self.X, "G": self.G, "F": self.F, "x": self.x, "best": self.best,
            "start": self.start, "waits": self.waits,
            "numbers": np.array(numbers, np.float64),
        }  # fmt: skip
        own = {} if self.models is None else self.models.state()
        return arrays | {f"models_{name}": array for name, array in own.items()}

    def restore(self, state: Mapping[str, Any], models: Quadratics | None) -> None:
        """Go on from what `state` gave; `models` is None if nothing had been heard yet."""
        self.X, self.G, self.F, self.x, self.best, self.start = (
            np.array(state[name], np.float64) for name in ("X", "G", "F", "x", "best", "start")
        )
        kappa, quiet, refused, unit, least, self.stretch = np.asarray(state["numbers"]).tolist()
        self.kappa, self.quiet, self.refused = kappa, int(quiet), bool(refused)
        self.unit, self.least, self.models = unit, least, models
        self.waits = np.array(state["waits"], bool)
        if models is not None:
            prefix = "models_"
            models.restore(
                {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            )
