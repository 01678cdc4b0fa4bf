"""Settings of private runs by the noise that they will have, from synthetic tables.

One number decides, which is public: the level of the noise beside the gradients. Rounds, what the
second moments spend, how far rows are clipped, how long a step is and how many points are averaged
follow from it by `BEST`, which ``scripts/private_settings.py`` makes from synthetic tables and
from nobody's data.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np


class Settings(NamedTuple):
    """What a level of noise asks for."""

    moments: int
    """What the second moments spend, in uploads; 0 where columns stay as they are."""
    rounds: int
    """At full participation."""
    kept: int
    """The model is the mean of the points of so many last rounds."""
    theta: float
    """eta over the curvature of the loss, at full participation."""
    clip: float
    """Of rows, over the norm of a row whose entries are all 1."""
    radius: float
    """Of rows in second moments, alike."""
    floor: float
    """Least eigenvalue of second moments, over the largest that their noise alone has."""


#: By how much columns of real tables lower the mean loss, about.
SIGNAL = 0.15
#: Curvature of the loss along a margin where most rows are, beside its bound.
TYPICAL = 0.6


def pace(settings: Settings) -> float:
    """Share of the way to the optimum that a round goes, along directions of typical curvature:
    clipped records weigh less."""
    return TYPICAL * min(1.0, settings.clip) / settings.theta


def way_left(settings: Settings) -> float:
    """Share of the way that is left in the mean of the last points, but for their noise."""
    last = np.arange(settings.rounds - settings.kept, settings.rounds) + 1
    return float(np.mean((1 - pace(settings)) ** last))


def of_average(left: float, rounds: int, kept: int) -> float:
    """Deviation of the mean of the last points of ``x <- left*x + noise``, for noise of deviation
    1."""
    last = np.arange(rounds)[:, None]  # the round of a point, and of the noise in it
    shares = np.where(last >= last.T, left ** np.maximum(last - last.T, 0), 0.0)
    return float(np.linalg.norm(shares[-kept:].mean(axis=0)))


#: Up to so much noise (sd) in the means of columns that bounds have brought to [-1, 1], of which
#: they leave a deviation of about 1/2, these are worth an upload, and no more than one, by
#: ``scripts/column_settings.py``.
LARGEST_SPREAD = 0.2
#: By the order of the norm: up to so much noise, the settings.
BEST: dict[int, tuple[tuple[float, Settings], ...]] = {
    2: (
        (0.0075, Settings(8, 24, 18, 0.75, 1.1, 1.2, 1.0)),
        (0.013, Settings(8, 24, 18, 0.75, 0.8, 1.2, 1.0)),
        (0.024, Settings(2, 8, 6, 0.65, 0.6, 0.8, 1.0)),
        (0.042, Settings(2, 8, 6, 0.75, 0.6, 0.8, 1.0)),
        (0.075, Settings(2, 6, 5, 0.65, 0.45, 0.8, 1.0)),
        (0.13, Settings(0, 8, 6, 1.0, 0.45, 0.8, 1.0)),
        (0.24, Settings(0, 4, 3, 1.0, 0.45, 0.8, 1.0)),
        (0.42, Settings(0, 4, 3, 1.0, 0.3, 0.8, 1.0)),
        (0.75, Settings(0, 1, 1, 0.75, 0.3, 0.8, 1.0)),
        (math.inf, Settings(0, 1, 1, 2.0, 0.3, 0.8, 1.0)),
    ),
    1: (
        (0.0031, Settings(4, 12, 9, 0.75, 0.8, 0.8, 1.0)),
        (0.0055, Settings(3, 8, 6, 0.75, 0.8, 0.8, 1.0)),
        (0.0096, Settings(2, 6, 5, 0.75, 0.6, 0.6, 1.0)),
        (0.018, Settings(1, 4, 3, 0.75, 0.6, 0.6, 1.0)),
        (0.031, Settings(1, 3, 2, 0.75, 0.6, 0.6, 0.3)),
        (0.055, Settings(1, 3, 2, 0.75, 0.45, 0.6, 0.3)),
        (0.096, Settings(0, 3, 2, 0.75, 0.3, 0.6, 1.0)),
        (0.18, Settings(0, 3, 2, 1.0, 0.3, 0.6, 1.0)),
        (0.31, Settings(0, 2, 1, 1.5, 0.3, 0.6, 1.0)),
        (0.55, Settings(0, 1, 1, 0.75, 0.3, 0.6, 1.0)),
        (math.inf, Settings(0, 1, 1, 2.0, 0.3, 0.6, 1.0)),
    ),
}

#: By the order of the norm and the level of noise: the share of the way from w = 0 to the optimum
#: that is left, in the mean over the tables, and in the worst tenth of them.
LEFT: dict[int, tuple[tuple[float, float, float], ...]] = {
    2: (
        (0.0032, 0.001, 0.002), (0.0056, 0.002, 0.003), (0.01, 0.005, 0.011),
        (0.018, 0.012, 0.024), (0.032, 0.036, 0.059), (0.056, 0.087, 0.13), (0.1, 0.17, 0.31),
        (0.18, 0.3, 0.57), (0.32, 0.56, 0.97), (0.56, 0.77, 1.0), (1.0, 0.9, 1.0), (2.0, 1.0, 1.0),
    ),
    1: (
        (0.0013, 0.002, 0.003), (0.0023, 0.004, 0.005), (0.0042, 0.007, 0.014),
        (0.0074, 0.013, 0.024), (0.013, 0.033, 0.058), (0.023, 0.092, 0.17), (0.042, 0.15, 0.28),
        (0.074, 0.2, 0.35), (0.13, 0.34, 0.47), (0.23, 0.43, 0.6), (0.42, 0.57, 0.88),
        (0.74, 0.72, 1.0), (1.5, 1.0, 1.0),
    ),
}  # fmt: skip

#: `LEFT` where columns were brought to [-2, 2] by their range, and means and variances released.
LEFT_WITHIN_BOUNDS: dict[int, tuple[tuple[float, float, float], ...]] = {
    2: (
        (0.0032, 0.001, 0.001), (0.0056, 0.002, 0.004), (0.01, 0.006, 0.009),
        (0.018, 0.017, 0.032), (0.032, 0.04, 0.075), (0.056, 0.092, 0.14), (0.1, 0.28, 0.49),
        (0.18, 0.47, 0.79), (0.32, 0.79, 1.0), (0.56, 1.0, 1.0),
    ),
    1: (
        (0.0013, 0.001, 0.003), (0.0023, 0.004, 0.006), (0.0042, 0.008, 0.013),
        (0.0074, 0.015, 0.028), (0.013, 0.033, 0.048), (0.023, 0.11, 0.14), (0.042, 0.26, 0.46),
        (0.074, 0.31, 0.5), (0.13, 0.57, 1.0), (0.23, 0.68, 1.0), (0.42, 0.92, 1.0),
        (0.74, 1.0, 1.0),
    ),
}  # fmt: skip

#: The same for residuals, by ``scripts/private_settings.py --classes 1``: rows are clipped together
#: with their labels, which leaves a linear model of these as it was, so that the level is smaller
#: at which whitening pays.
OF_RESIDUALS: dict[int, tuple[tuple[float, Settings], ...]] = {
    2: (
        (0.0018, Settings(8, 24, 18, 1.0, 1.6, 1.2, 1.0)),
        (0.0037, Settings(8, 24, 18, 1.0, 1.1, 1.2, 1.0)),
        (0.016, Settings(8, 24, 18, 1.0, 0.75, 1.2, 1.0)),
        (0.04, Settings(0, 8, 6, 1.0, 0.75, 1.2, 1.0)),
        (0.11, Settings(0, 2, 1, 1.0, 0.45, 0.8, 1.0)),
        (math.inf, Settings(0, 1, 1, 2.0, 0.3, 0.8, 1.0)),
    ),
    1: (
        (0.0018, Settings(2, 6, 5, 1.0, 1.1, 0.8, 0.3)),
        (0.004, Settings(2, 6, 5, 0.75, 0.75, 0.8, 1.0)),
        (0.0075, Settings(0, 12, 9, 1.0, 0.75, 0.8, 1.0)),
        (0.017, Settings(0, 3, 2, 0.75, 0.75, 0.8, 1.0)),
        (0.035, Settings(0, 2, 1, 1.0, 0.75, 0.8, 1.0)),
        (0.11, Settings(0, 1, 1, 1.0, 0.75, 0.8, 1.0)),
        (math.inf, Settings(0, 1, 1, 2.0, 0.3, 0.6, 1.0)),
    ),
}


#: The same for more than two classes, by ``scripts/private_settings.py --classes`` of 3 and 10 in
#: 15 columns and of 10 in 65, in L1 also of 5. They share their columns' coordinates, so that
#: whitening pays at any noise. Steps are stable where two of ten classes share all rows, whose
#: curvature is 1/2.
OF_CLASSES: dict[int, tuple[tuple[float, Settings], ...]] = {
    2: (
        (0.18, Settings(8, 24, 18, 1.5, 0.45, 0.8, 1.0)),
        (0.56, Settings(2, 8, 6, 1.5, 0.3, 0.8, 1.0)),
        (1.8, Settings(1, 4, 3, 1.5, 0.2, 0.8, 1.0)),
        (math.inf, Settings(1, 4, 3, 6.0, 0.2, 0.8, 1.0)),
    ),
    1: (
        (0.056, Settings(4, 12, 9, 1.5, 0.45, 0.6, 1.0)),
        (0.18, Settings(1, 4, 3, 1.5, 0.45, 0.6, 1.0)),
        (0.56, Settings(1, 2, 1, 1.5, 0.3, 0.6, 1.0)),
        (1.8, Settings(1, 2, 1, 1.5, 0.2, 0.6, 1.0)),
        (math.inf, Settings(1, 2, 1, 6.0, 0.2, 0.6, 1.0)),
    ),
}


def settings_for(
    order: int, level: float, *, of_residuals: bool = False, classes: int = 2
) -> Settings:
    """The settings of so much noise, in L1 (order 1) or L2 (order 2)."""
    table = OF_RESIDUALS if of_residuals else OF_CLASSES if classes > 2 else BEST
    return next(found for most, found in table[order] if level <= most)


def largest_residual(level: float) -> float:
    """To what residuals are clipped, in units of the labels' deviation; `level` is that of a
    derivative of at most 1.

    The noise is proportional to it, and what is left of residuals beyond it is biased where their
    law is skew.
    """
    return min(max(0.11 * level**-0.35, 0.2), 1.5)


def left_of(order: int, level: float, *, within_bounds: bool = False) -> tuple[float, float]:
    """What `LEFT` says of so much noise: in the mean, and in the worst tenth of tables."""
    table = LEFT_WITHIN_BOUNDS if within_bounds else LEFT
    levels, mean, worst = np.array(table[order]).T
    place, places = np.log(level), np.log(levels)
    return float(np.interp(place, places, mean)), float(np.interp(place, places, worst))


#: Of whole clients, by the order of the norm: up to so much noise, which is the norm of its
#: deviations in the mean upload over the clip, the rounds, eta over the curvature of the loss, and
#: the clip over the norm of a point of length 1; by ``scripts/client_settings.py``.
OF_CLIENTS: dict[int, tuple[tuple[float, int, float, float], ...]] = {
    2: (
        (0.055, 12, 2.0, 1.0), (0.28, 12, 2.0, 0.5), (0.57, 12, 2.0, 0.25), (0.9, 12, 4.0, 0.12),
        (1.7, 1, 2.0, 0.25), (3.2, 1, 2.0, 0.08), (math.inf, 1, 2.0, 0.03),
    ),
    1: (
        (0.055, 12, 2.0, 0.5), (0.14, 12, 2.0, 0.25), (0.28, 8, 2.0, 0.25), (0.57, 3, 2.0, 0.25),
        (0.9, 1, 2.0, 0.5), (1.7, 1, 2.0, 0.25), (3.2, 1, 2.0, 0.08), (math.inf, 1, 2.0, 0.03),
    ),
}  # fmt: skip
#: Levels of that noise, and what share of the way from w = 0 to the optimum such runs close there,
#: by the order of the norm: about what ``bench/private_clients.py`` saw on other draws of tables.
_LEVELS = (0.03, 0.1, 0.2, 0.4, 0.8, 1.6)
_CLOSED = {2: (0.98, 0.95, 0.89, 0.65, 0.35, 0.06), 1: (0.93, 0.78, 0.52, 0.4, 0.28, 0.08)}


def settings_for_clients(order: int, level: float) -> Settings:
    """The settings of so much noise where whole clients are hidden.

    How far a client moves is clipped, whatever its rows, so that what counts is the number of
    clients: the noise in the mean of their uploads falls with its root. Where it is large, moves
    are clipped far below their natural length ``|g_i|/eta``, which leaves their directions, and the
    noise beside them, as they are; so the clip is the length of a step. Beyond the levels of the
    tables it is short enough to lead hardly anywhere. Second moments would need far more clients.
    """
    rounds, theta, clip = next(found[1:] for found in OF_CLIENTS[order] if level <= found[0])
    return Settings(0, rounds, max(1, rounds // 2), theta, clip, 1.0, 1.0)


def short_of_clients(order: int, level: float) -> float:
    """Share of the way to the optimum that is left by such a run: beyond the last of the levels as
    if its signal fell as the noise grows."""
    levels, closed = np.log(_LEVELS), _CLOSED[order]
    beyond = min(1.0, _LEVELS[-1] / level)
    return 1 - beyond * float(np.interp(math.log(level), levels, closed))
