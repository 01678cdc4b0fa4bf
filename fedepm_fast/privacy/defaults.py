"""Settings of private runs by total epsilon.

They come from synthetic questionnaires, by ``scripts/private_defaults.py``, and from nobody's
data: choosing them on the private data would spend budget of its own.
"""

from __future__ import annotations

from typing import Any

from .._common.validation import check_real

#: Total epsilon, and the best settings of the grid: rounds, local steps, mu0, start, aggregation.
#: Few rounds are what matters, for the budget is split over them; with a small one uploads are
#: weighed by their noise.
_BEST: tuple[tuple[float, int, int, float, str, str], ...] = (
    (0.25, 3, 1, 0.01, "released", "inverse_variance"),
    (0.5, 4, 1, 0.01, "broadcast", "inverse_variance"),
    (1.0, 4, 8, 0.05, "released", "inverse_variance"),
    (2.0, 4, 8, 0.05, "released", "inverse_variance"),
    (5.0, 8, 2, 0.02, "released", "inverse_variance"),
    (10.0, 8, 4, 0.02, "released", "uploaded"),
    (20.0, 8, 4, 0.02, "released", "uploaded"),
)

#: By total epsilon, as `run` and `FedEPM` take them.
SETTINGS: dict[float, dict[str, Any]] = {
    epsilon: dict(
        rounds=rounds, local_steps=k0, mu0=mu0, start=start, participation=0.5,
        aggregation=aggregation,
    )
    for epsilon, rounds, k0, mu0, start, aggregation in _BEST
}  # fmt: skip


def private_settings(total_epsilon: float) -> dict[str, Any]:
    """Rounds, and parameters of `FedEPM`, for a total epsilon.

    Parameters
    ----------
    total_epsilon : float
        Above 0; the settings of the nearest one that was tried, by ratio.

    Returns
    -------
    dict
        ``rounds`` for `run`, the rest for `FedEPM`.
    """
    epsilon = check_real("total_epsilon", total_epsilon, low=0.0, open_low=True)
    nearest = min(SETTINGS, key=lambda tried: max(tried / epsilon, epsilon / tried))
    return dict(SETTINGS[nearest])
