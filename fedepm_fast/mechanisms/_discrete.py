"""Discrete Gaussian noise: a Gaussian's density at the integers, normalised.

Secure sums are of integers, and of integers is their noise. What a sum of such parts is worth
beside Gaussian noise follows from one fact about ``rho_r(t) = exp(-t^2 / (2*r^2))``: by Poisson's
summation formula its sum over the integers hardly depends on where they lie,

    sum_k rho_r(k - c)  =  sqrt(2*pi) * r * (1 + e),   |e| <= 2 * sum_{j>=1} exp(-2*pi^2*r^2*j^2).

* *Sums.* The law of a sum of two, of parameters a and b, has at y the mass
  ``sum_k rho_a(k)*rho_b(y - k) = rho_c(y) * sum_k rho_r(k - y*a^2/c^2)``, ``c^2 = a^2 + b^2`` and
  ``r = a*b/c``: that of the discrete Gaussian of parameter c, up to factors (1 + e). For n parts of
  parameter s, one after the other, ``r^2 = s^2*k/(k + 1)``, k = 1..n-1 (Kairouz, Liu and Steinke
  2021, "The distributed discrete Gaussian mechanism for federated learning with secure
  aggregation").
* *Beside a Gaussian.* Add to an integer v Gaussian noise of variance ``c^2 - q^2``, and draw an
  integer of density rho_q about the result. It has at v + y the mass ``rho_c(y)``, up to a
  constant and factors (1 + e) of parameter q (Peikert 2010, "An efficient and parallel Gaussian
  sampler for lattices", theorem 3.1). What is drawn about the result is post-processing: so
  discrete noise of parameter c is as private as Gaussian noise of variance ``c^2 - q^2``.

With ``q = 2`` and ``s >= 3`` the factors of a number of a sum of n parts are within
``exp(+-1e-33*n)`` of 1 together. What they add to epsilon and delta is far below the last digit of
the one, and the part in 1e11 by which the other is rounded up.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..randomness import PARTS, CounterRandomness, uniform

#: The least deviation of a part, and the variance that a sum gives away for being of integers.
LEAST_DEVIATION, GIVEN_AWAY = 3.0, 4.0


def gaussian_deviation(deviation: float, parts: int) -> float:
    """Standard deviation of Gaussian noise that a sum of so many independent discrete Gaussians is
    as private as, for whoever sees the sum of it and an integer, modulo whatever.

    Parameters
    ----------
    deviation : float
        Parameter of each part, at least 3.
    parts : int
        At least 1, at most 1e9.

    Returns
    -------
    float
    """
    return math.sqrt(parts * deviation**2 - GIVEN_AWAY) * (1 - 1e-15)


def part_deviation(deviation: float, parts: int) -> float:
    """The inverse of `gaussian_deviation`, rounded up; at least 3."""
    found = math.sqrt((deviation**2 + GIVEN_AWAY) / parts) * (1 + 4e-15)
    return max(found, LEAST_DEVIATION)


def discrete_gaussian(
    deviation: float, randomness: CounterRandomness, index: int, clients: NDArray[np.intp], n: int
) -> NDArray[np.int64]:
    """Discrete Gaussian numbers for sum number `index`, of each client and coordinate its own.

    Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential privacy", algorithm
    3, for all numbers at once: discrete Laplace numbers of scale ``t = floor(s) + 1``, each
    accepted with probability ``exp(-(|y| - s^2/t)^2 / (2*s^2))``. Try k of coordinate j takes its
    words from block ``k*n + j``, so that a number depends on none of the others. Probabilities
    are floats, for simulations; noise that leaves a client is `SecureSum.release_part`'s.

    Parameters
    ----------
    deviation : float
        The parameter s, from 3 to 2**40: uniform numbers have 52 bits.
    randomness : CounterRandomness
    index : int
        At least 0.
    clients : ndarray of int, shape (s,)
    n : int
        Coordinates.

    Returns
    -------
    ndarray of int64, shape (s, n)
    """
    s, t = deviation, math.floor(deviation) + 1
    found = np.zeros(len(clients) * n, dtype=np.int64)
    client, coordinate = np.repeat(clients, n), np.tile(np.arange(n), len(clients))
    left, k = np.arange(len(found)), 0
    while len(left):
        words = randomness.words_at(PARTS, index, client[left], k * n + coordinate[left])
        y = np.floor(-t * np.log(uniform(words[:, 0])))
        negative = (words[:, 1] >> np.uint64(63)).astype(bool)
        accepted = uniform(words[:, 2]) < np.exp(-((y - s * s / t) ** 2) / (2 * s * s))
        accepted &= ~(negative & (y == 0))  # zero has no sign
        found[left[accepted]] = np.where(negative, -y, y)[accepted]
        left, k = left[~accepted], k + 1
    return found.reshape(len(clients), n)
