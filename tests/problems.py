"""Small federated problems."""

from __future__ import annotations

import numpy as np

from fedepm_fast import FederatedData


def small_data(
    m: int = 6, n: int = 5, seed: int = 0, *, task: str = "classification", largest: int = 30
) -> FederatedData:
    """Random clients of 1 to `largest` rows."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, m)
    features = rng.normal(size=(sizes.sum(), n))
    margin = features @ rng.normal(size=n)
    if task == "classification":
        labels = (margin + rng.logistic(size=len(margin)) > 0).astype(float)
        labels[:2] = (0, 1)[: len(labels)]
    elif task == "multiclass":
        labels = (features @ rng.normal(size=(n, 3)) + rng.gumbel(size=(len(features), 3))).argmax(
            1
        )
        labels[:3] = (0, 1, 2)[: len(labels)]
    else:
        labels = margin + 0.1 * rng.normal(size=len(margin))
    return FederatedData(features, labels, sizes)
