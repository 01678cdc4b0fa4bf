"""Derive the polynomial coefficients of ``kernels/vecmath.py`` by Remez's exchange.

Run ``python scripts/minimax.py`` (needs mpmath) to print each set with the largest
error it leaves, relative to the function, before and after rounding the coefficients.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 50

Function = Callable[[mp.mpf], mp.mpf]


def remez(target: Function, weight: Function, low: mp.mpf, high: mp.mpf, degree: int) -> list:
    """Coefficients, constant first, that minimise max |weight * (polynomial - target)|."""
    count = degree + 2
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle - half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    for _ in range(20):
        rows = mp.matrix(count, count)
        values = mp.matrix(count, 1)
        for i, x in enumerate(points):
            for j in range(degree + 1):
                rows[i, j] = x**j
            rows[i, degree + 1] = (-1) ** i / weight(x)
            values[i] = target(x)
        solution = mp.lu_solve(rows, values)
        coefficients = list(solution[: degree + 1])
        level = abs(solution[degree + 1])

        def error(x: mp.mpf, coefficients: list = coefficients) -> mp.mpf:
            return weight(x) * (mp.polyval(coefficients[::-1], x) - target(x))

        points = _alternation(error, low, high, count)
        if max(abs(error(x)) for x in points) < level * mp.mpf("1.0001"):
            return coefficients
    raise ArithmeticError("the exchange did not settle")


def _alternation(error: Function, low: mp.mpf, high: mp.mpf, count: int) -> list:
    """The `count` alternating extrema of `error`, found on a grid and then refined."""
    grid = [low + (high - low) * (1 - mp.cos(mp.pi * i / 600)) / 2 for i in range(601)]
    values = [error(x) for x in grid]
    extrema: list[mp.mpf] = []
    start = 0
    for i in range(1, len(grid) + 1):
        if i == len(grid) or values[i] * values[start] < 0:
            best = max(range(start, i), key=lambda j: abs(values[j]))
            extrema.append(_refine(error, grid, best))
            start = i
    while len(extrema) > count:
        extrema.pop(0 if abs(error(extrema[0])) < abs(error(extrema[-1])) else -1)
    if len(extrema) < count:
        raise ArithmeticError(f"{len(extrema)} alternations instead of {count}")
    return extrema


def _refine(error: Function, grid: list, index: int) -> mp.mpf:
    """The extremum near a grid point, by golden section."""
    left, right = grid[max(index - 1, 0)], grid[min(index + 1, len(grid) - 1)]
    ratio = (mp.sqrt(5) - 1) / 2
    for _ in range(40):
        a, b = right - ratio * (right - left), left + ratio * (right - left)
        if abs(error(a)) > abs(error(b)):
            right = b
        else:
            left = a
    return (left + right) / 2


def exp_rest(r: mp.mpf) -> mp.mpf:
    """(e^r - 1 - r) / r^2."""
    if abs(r) < mp.mpf("1e-12"):
        return mp.mpf(1) / 2 + r / 6
    return (mp.exp(r) - 1 - r) / r**2


def log_rest(z: mp.mpf) -> mp.mpf:
    """(log((1 + s) / (1 - s)) - 2 s) / s^3 with z = s^2."""
    if z < mp.mpf("1e-20"):
        return mp.mpf(2) / 3 + 2 * z / 5
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s) / s**3


def report(name: str, target: Function, weight: Function, ends: tuple, degree: int, kind: type):
    """Print one set, its error as derived, and its error once rounded to `kind`."""
    coefficients = remez(target, weight, *ends, degree)
    rounded = [mp.mpf(float(kind(float(c)))) for c in coefficients]
    low, high = ends
    worst = []
    for chosen in (coefficients, rounded):
        xs = [low + (high - low) * i / 2000 for i in range(2001)]
        worst.append(max(abs(weight(x) * (mp.polyval(chosen[::-1], x) - target(x))) for x in xs))
    print(f"{name}: {[float(c) for c in rounded]}")
    print(f"  error {mp.nstr(worst[0], 4)}, rounded {mp.nstr(worst[1], 4)}")


def split(value: mp.mpf, bits: int, kind: type) -> tuple[float, float]:
    """`value` as a part of `bits` bits and the rest."""
    scale = mp.mpf(2) ** (bits - 1 - mp.floor(mp.log(value, 2)))
    high = mp.nint(value * scale) / scale
    return float(high), float(kind(float(value - high)))


if __name__ == "__main__":
    half = mp.log(2) / 2 * mp.mpf("1.001")
    top = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.001")

    def exp_weight(r: mp.mpf) -> mp.mpf:
        return max(r**2, mp.mpf("1e-8")) / mp.exp(r)

    def log_weight(z: mp.mpf) -> mp.mpf:
        return max(z, mp.mpf("1e-6")) / 2

    report("exp float64", exp_rest, exp_weight, (-half, half), 9, np.float64)
    report("exp float32", exp_rest, exp_weight, (-half, half), 4, np.float32)
    report("exp of an eighth, float64", exp_rest, exp_weight, (-half / 8, half / 8), 5, np.float64)
    report("exp of an eighth, float32", exp_rest, exp_weight, (-half / 8, half / 8), 2, np.float32)
    report("log float64", log_rest, log_weight, (mp.mpf(0), top), 6, np.float64)
    report("log float32", log_rest, log_weight, (mp.mpf(0), top), 2, np.float32)
    print("log 2 float64:", split(mp.log(2), 41, np.float64))
    print("log 2 float32:", split(mp.log(2), 15, np.float32))
    print("an eighth of log 2, float64:", split(mp.log(2) / 8, 40, np.float64))
    print("an eighth of log 2, float32:", split(mp.log(2) / 8, 14, np.float32))
