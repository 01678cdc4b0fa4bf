"""Secure sums: a server that sees sums of integers only, of which every client's hold noise.

Secure aggregation adds the clients' integer vectors modulo ``2^bits`` and shows nobody anything but
the sum (Bonawitz et al. 2017). Noise that protects a record need then be in the sum only, and every
client adds a part of it: with m honest clients ``1/sqrt(m)`` of what it would add alone. What a
server may know is then what central privacy shows, and nobody holds the rows.

A client's numbers are rounded to a grid, and each record moves the sum in integers by no more than
``sensitivity/grid + sqrt(n)``, whichever way the n numbers are rounded. The parts are discrete
Gaussians; their sum over the clients that are honest is as private as Gaussian noise but for a
variance of 4 of the grid's squares (`mechanisms._discrete`), whatever the others send, and
reduction modulo ``2^bits`` is post-processing: so the exact account of Gaussian noise holds.

*It assumes* that the secure aggregation shows the server the sum and nothing else, that no sum is
opened of fewer clients than was agreed, and that in each of them the stated number of clients is
honest: adds its part, and does not tell it. Nothing is said of the records of those that are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.extras import require
from .._common.validation import ArgumentValueError, check_array, check_int, check_real
from ..mechanisms._discrete import discrete_gaussian, gaussian_deviation, part_deviation
from ..participation import clients_per_round
from ..randomness import CounterRandomness

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Whom clients trust: nobody, so that each adds all of the noise that hides its records; or secure
#: sums, of which each adds a part.
TRUSTED = ("clients", "secure-sum")
#: Deviations of a sum's noise for which the integers have room: it is beyond them, and the sum
#: wrong, with a probability below 2*exp(-81/2) = 6e-18 a number (the noise is sub-Gaussian).
ROOM = 9.0


@dataclass(frozen=True)
class SecureSum:
    """What clients agree on before a sum, all of it public.

    `secure_sum` makes it.

    Attributes
    ----------
    n : int
        Numbers of a client.
    grid : float
        What one integer stands for, a power of two.
    sensitivity : float
        How far a record moves a client's numbers, and so the sum, in L2, before they are rounded.
    deviation : float
        Parameter of a client's part of the noise, a discrete Gaussian, in integers.
    clients : int
        Of fewer no sum is opened.
    parts : int
        Clients of a sum that are honest, at least.
    bits : int
        Of the modulus.
    """

    n: int
    grid: float
    sensitivity: float
    deviation: float
    clients: int
    parts: int
    bits: int

    @property
    def multiplier(self) -> float:
        """Deviation of Gaussian noise over its L2 sensitivity that a sum is as private as."""
        moved = self.sensitivity / self.grid + math.sqrt(self.n)
        return gaussian_deviation(self.deviation, self.parts) / (moved * (1 + 4e-16))

    def noise(self, clients: int) -> float:
        """Standard deviation of the noise in each number of a sum of so many clients."""
        return self.grid * self.deviation * math.sqrt(clients)

    def encode(self, values: ArrayLike) -> Integers:
        """Clients' numbers, shape (..., n), as integers: the nearest of the grid, none beyond the
        modulus."""
        half = float(1 << (self.bits - 1))
        numbers = np.clip(check_array("values", values) / self.grid, -half, half)
        return np.rint(numbers).astype(np.int64)

    def decode(self, total: Integers) -> Array:
        """The sum from integers that are known modulo ``2^bits``."""
        half = 1 << (self.bits - 1)
        signed = ((total + half) & (2 * half - 1)) - half
        return np.asarray(signed * self.grid, dtype=np.float64)

    def simulate(
        self,
        values: ArrayLike,
        randomness: CounterRandomness,
        index: int,
        clients: NDArray[np.intp] | None = None,
    ) -> Array:
        """What a server sees of the numbers of clients that came.

        Parameters
        ----------
        values : array_like of shape (..., s, n)
            What each of them has; of several federations, if it has more dimensions.
        randomness : CounterRandomness
            Noise is a function of its seed, `index`, client and coordinate.
        index : int
            Of the sum; each has noise of its own.
        clients : ndarray of int, shape (..., s), optional
            Who came; by default the first s.

        Returns
        -------
        ndarray of shape (..., n)

        Raises
        ------
        ValueError
            If fewer clients came than was agreed.
        """
        values = check_array("values", values)
        came = np.arange(values.shape[-2]) if clients is None else clients
        if came.shape[-1] < self.clients:
            raise ArgumentValueError(
                "clients", f"must be {self.clients} or more for a sum, {came.shape[-1]} came"
            )
        noise = discrete_gaussian(self.deviation, randomness, index, came.ravel(), self.n)
        return self.decode((self.encode(values) + noise.reshape(values.shape)).sum(axis=-2))

    def release_part(self, values: ArrayLike) -> Integers:
        """One client's integers for a secure sum, with noise that stands up outside a simulation.

        The part is OpenDP's: a discrete Gaussian drawn exactly, from a cryptographic generator
        that the operating system seeds.

        Parameters
        ----------
        values : array_like of shape (n,)

        Returns
        -------
        ndarray of int64, shape (n,)
            In ``[0, 2**bits)``.

        Raises
        ------
        ImportError
            Without OpenDP, an optional dependency.
        """
        values = check_array("values", values, shape=(self.n,))
        dp = require("opendp.prelude", "privacy", "SecureSum.release_part")
        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        draw = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=self.deviation)
        noisy = np.array(draw(self.encode(values).tolist()), dtype=np.int64)
        return noisy & ((1 << self.bits) - 1)


def secure_sum(
    sensitivity: float,
    multiplier: float,
    bound: float,
    n: int,
    *,
    clients: int,
    most: int | None = None,
    honest: float = 1.0,
    bits: int | None = None,
) -> SecureSum:
    """The finest grid on which a sum has room, and the noise that it takes.

    Parameters
    ----------
    sensitivity : float
        How far a record (or all records of a client, if these are to be protected) moves the
        client's numbers in L2, above 0.
    multiplier : float
        Deviation of Gaussian noise over its sensitivity that each sum must be as private as, as
        `gaussian_noise_multiplier` gives it.
    bound : float
        Of the size of any number of the sum without noise, at least 0. Beyond it, a sum may be
        wrong; it is no less private.
    n : int
        Numbers of a client.
    clients, most : int
        The least number of a sum, and the largest for which there is room; by default the same.
    honest : float
        Share of the least number that is honest, in (0, 1].
    bits : int, optional
        Of the modulus, from 8 to 40; by default 32, and 40 where rounding would cost a 20th of
        the noise or more at 32.

    Returns
    -------
    SecureSum

    Raises
    ------
    ValueError, TypeError
        Naming the argument; `bits` if rounding would move the sum by more than a record does.
    """
    sensitivity = check_real("sensitivity", sensitivity, low=1e-150, high=1e150)
    multiplier = check_real("multiplier", multiplier, low=1e-12, high=1e12)
    bound = check_real("bound", bound, low=0.0, high=1e150)
    n, clients = check_int("n", n, low=1), check_int("clients", clients, low=1, high=10**9)
    honest = check_real("honest", honest, low=0.0, high=1.0, open_low=True)
    parts = clients_per_round(honest, clients)
    most = clients if most is None else check_int("most", most, low=clients, high=10**9)
    asked = (32, 40) if bits is None else (check_int("bits", bits, low=8, high=40),)
    for b in asked:
        half = 2.0 ** (b - 1)
        grid = 2.0 ** math.floor(math.log2(max(bound, sensitivity) / half))
        coarsest = sensitivity / math.sqrt(n) / (20.0 if b < asked[-1] else 1.0)
        while grid <= coarsest:
            moved = (sensitivity / grid + math.sqrt(n)) * (1 + 1e-15)
            deviation = part_deviation(multiplier * moved, parts)
            spread = ROOM * math.sqrt(most) * deviation
            if bound / grid + most / 2 + spread < half:
                return SecureSum(n, grid, sensitivity, deviation, clients, parts, b)
            grid *= 2
    raise ArgumentValueError(
        "bits",
        f"must be more than {asked[-1]} for sums of {n} numbers up to {bound:.3g} of which a "
        f"record moves {sensitivity:.3g}",
    )
