"""Settings of private runs by total epsilon.

They come from synthetic questionnaires, by ``scripts/private_defaults.py``, and from nobody's
data: choosing them on the private data would spend budget of its own.
"""

from __future__ import annotations

from typing import Any

from .._validation import check_real

#: By total epsilon: the best settings of the grid. Few rounds are what matters, for the budget is
#: split over them; with a small one uploads are weighed by their noise.
SETTINGS: dict[float, dict[str, Any]] = {
    0.25: dict(
        rounds=3, local_steps=1, mu0=0.01, start="released", participation=0.5,
        aggregation="inverse_variance",
    ),
    0.5: dict(
        rounds=4, local_steps=1, mu0=0.01, start="broadcast", participation=0.5,
        aggregation="inverse_variance",
    ),
    1.0: dict(
        rounds=4, local_steps=8, mu0=0.05, start="released", participation=0.5,
        aggregation="inverse_variance",
    ),
    2.0: dict(
        rounds=4, local_steps=8, mu0=0.05, start="released", participation=0.5,
        aggregation="inverse_variance",
    ),
    5.0: dict(
        rounds=8, local_steps=2, mu0=0.02, start="released", participation=0.5,
        aggregation="inverse_variance",
    ),
    10.0: dict(
        rounds=8, local_steps=4, mu0=0.02, start="released", participation=0.5,
        aggregation="uploaded",
    ),
    20.0: dict(
        rounds=8, local_steps=4, mu0=0.02, start="released", participation=0.5,
        aggregation="uploaded",
    ),
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
