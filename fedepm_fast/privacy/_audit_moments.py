"""The attack on second moments, which a client sends before its rounds.

The two records' rows are ``(s, 0, ...)`` and ``(0, s, ...)``, beyond the radius r: the pair whose
moments are furthest apart, by ``r^2 / d`` in two entries of the diagonal. A server may name
coordinates in which they are nearly parallel, as the worst pair for gradients is, so that one pair
is the worst for both. Each of the two entries is an experiment of its own; in the norm of the noise
both together are ``2 ** (1 / order)`` times as far apart as one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..data import FederatedData
from ..mechanisms import Mechanism, client_moments

Array = NDArray[np.float64]


def coordinates(p: int, along: float, tilt: float) -> Array:
    """Coordinates in which the two rows are ``(along, tilt)`` and ``(along, -tilt)``, times s."""
    found = np.eye(p)
    found[:2, :2] = [[along, tilt], [along, -tilt]]
    return found


def moments_scores(
    mechanism: Mechanism, radius: float, pair: FederatedData, values: Array, scales: Array
) -> tuple[Array, Array]:
    """How much likelier each of the two entries is with the first record, in moments of clients
    that hold the first and of those that hold the second one, each of shape (m,).

    `pair` are two clients, with one of the records each.
    """
    p, m, units = pair.n_features, len(values), []
    for which in range(2):
        clean = client_moments(pair.client(which)[0], radius, mechanism.order)
        units.append(((values - clean) / scales[:, None])[:, [0, p]])
    first, second = (mechanism.law.log_density(unit[..., None]) for unit in units)
    scores = np.round(first - second, 9)
    return scores[: m // 2].ravel(), scores[m // 2 :].ravel()


def per_upload(mechanism: Mechanism, apart: float) -> float:
    """How far apart an upload would be that spends its share of the moments' epsilon, whose two
    entries are so far apart each."""
    both = 2 ** (1 / mechanism.order)
    return float(apart * both * mechanism.one_release(1.0, mechanism.moments))
