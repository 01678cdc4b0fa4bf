"""The statistics of an audit, and what it found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    lower_bound : float
        The uploads are not epsilon-private (at `delta`) for any epsilon below this, with this
        confidence; with a mechanism, for noise of its law. For the paper's noise it is at most
        about ``log(runs / 4)``, for so many runs show no more.
    stated : float
        The epsilon that the mechanism is given, or for the paper's noise, that the paper prints.
    delta, confidence : float
    runs : int
        Of each of the two datasets.
    true_positive_rate, false_positive_rate : float
        Of the observer, on those that its threshold was not chosen by.
    rounds : int
        Uploads of each run.
    shortfall : float or None
        The smallest share of the noise whose lack so many runs refute with a power of 90 %; None
        without a mechanism, or if they would not notice 99 %.
    moments : int
        Uploads that the second moments spend as much as, which were attacked, too; 0 without them.
    seen : mapping of str to float
        How far a record moved the ``"uploads"`` and the ``"moments"`` at least, beside what is
        stated of each, for a plan with both: above 1 it is refuted.
    """

    lower_bound: float
    stated: float
    delta: float
    confidence: float
    runs: int
    true_positive_rate: float
    false_positive_rate: float
    rounds: int = 1
    shortfall: float | None = None
    moments: int = 0
    seen: Mapping[str, float] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        """Whether the stated epsilon is refuted, or the part of it that one kind may spend."""
        return self.lower_bound > self.stated or any(far > 1 for far in self.seen.values())

    def __str__(self) -> str:
        verdict = "REFUTED" if self.broken else "not refuted"
        text = (
            f"epsilon >= {self.lower_bound:.3g} with confidence {self.confidence:g} from "
            f"{self.runs} runs of each dataset; stated {self.stated:.3g}: {verdict}"
        )
        if self.seen:
            parts = (f"{name} {far:.3g}" for name, far in self.seen.items())
            text += f"; distances seen over those stated: {', '.join(parts)}"
        if self.shortfall is not None:
            text += f" (noise that lacks {self.shortfall:.0%} would be, with a power of 90 %)"
        return text


def split_bound(
    first: Array, second: Array, bound: Callable[[Any, Any, int], Array]
) -> tuple[float, tuple[float, float]]:
    """A lower bound from scores that are high for the first dataset: what `bound` makes of hits,
    false alarms and how many of each there could be, at a threshold that the first halves chose."""
    half = len(first) // 2
    best, choice = -math.inf, (first, second, 0.0)
    for positive, negative in ((first, second), (-second, -first)):
        thresholds = np.quantile(positive[:half], np.linspace(0, 0.99, 100))
        found = bound(*_counts(positive[:half], negative[:half], thresholds), half)
        at = int(np.argmax(found))
        if found[at] > best:
            best, choice = float(found[at]), (positive, negative, float(thresholds[at]))
    positive, negative, threshold = choice
    of = len(first) - half
    hits, alarms = _counts(positive[half:], negative[half:], np.array([threshold]))
    shares = float(hits[0]) / of, float(alarms[0]) / of
    return max(float(bound(hits, alarms, of)[0]), 0.0), shares


def _counts(positive: Array, negative: Array, thresholds: Array) -> tuple[Any, Any]:
    """How many scores reach each threshold."""
    return (
        len(positive) - np.searchsorted(np.sort(positive), thresholds),
        len(negative) - np.searchsorted(np.sort(negative), thresholds),
    )


def rates(hits: Any, alarms: Any, of: int, confidence: float) -> tuple[Array, Array]:
    """The hit rate from below, and the rate of false alarms from above."""
    from scipy.special import betaincinv

    # Each of the two rates may be wrong with half of what may be wrong.
    each = (1 - confidence) / 2
    low = np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, 1), of - hits + 1, each))
    rest = np.maximum(of - alarms, 1)
    high = np.where(alarms == of, 1.0, betaincinv(alarms + 1, rest, 1 - each))
    return low, high


def lower_bound(
    first: Array, second: Array, delta: float, confidence: float
) -> tuple[float, tuple[float, float]]:
    """A lower bound on epsilon whatever the noise."""

    def bound(hits: Array, alarms: Array, of: int) -> Array:
        low, high = rates(hits, alarms, of, confidence)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(low > delta, np.log((low - delta) / high), -np.inf)

    return split_bound(first, second, bound)
