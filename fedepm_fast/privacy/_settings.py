"""Settings of private runs by the noise that they will have, from synthetic tables.

One number decides, which is public: `level`, the noise beside the gradients. Rounds, what the
second moments spend, how far rows are clipped and how long a step is follow from it by `BEST`,
which ``scripts/private_settings.py`` makes from synthetic tables and from nobody's data.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Settings(NamedTuple):
    """What a level of noise asks for."""

    moments: int
    """What the second moments spend, in uploads; 0 where columns stay as they are."""
    rounds: int
    """At full participation."""
    kept: int
    """The model is the mean of the points of so many last rounds."""
    theta: float
    """eta over the curvature of the loss."""
    clip: float
    """Of rows, over the norm of a row whose entries are all 1."""
    radius: float
    """Of rows in second moments, alike."""
    floor: float
    """Least eigenvalue of second moments, over the largest that their noise alone has."""


#: By the order of the norm: up to so much noise, the settings.
BEST: dict[int, tuple[tuple[float, Settings], ...]] = {
    2: (
        (0.2, Settings(4, 8, 4, 1.5, 0.9, 0.8, 0.3)),
        (0.42, Settings(0, 6, 3, 4.0, 0.75, 0.8, 0.3)),
        (0.75, Settings(0, 2, 1, 6.0, 0.75, 0.8, 0.3)),
        (math.inf, Settings(0, 1, 1, 6.0, 0.5, 0.8, 0.3)),
    ),
    1: (
        (0.0075, Settings(4, 6, 3, 1.5, 0.8, 0.7, 0.3)),
        (0.024, Settings(0, 12, 6, 3.0, 0.6, 0.7, 0.3)),
        (0.042, Settings(0, 8, 4, 3.0, 0.6, 0.7, 0.3)),
        (0.075, Settings(0, 4, 2, 1.5, 0.5, 0.7, 0.3)),
        (0.3, Settings(0, 2, 1, 1.0, 0.6, 0.7, 0.3)),
        (0.75, Settings(0, 1, 1, 2.0, 0.6, 0.7, 0.3)),
        (math.inf, Settings(0, 1, 1, 6.0, 0.4, 0.7, 0.3)),
    ),
}


def settings_for(order: int, level: float) -> Settings:
    """The settings of so much noise, in L1 (order 1) or L2 (order 2)."""
    return next(found for most, found in BEST[order] if level <= most)
