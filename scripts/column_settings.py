"""How many uploads the means and variances of columns are worth, of which bounds alone are known.

The tables of ``synthetic_tables.py`` are only brought to [-2, 2] by the range of their columns. For
each level of noise what is left of the way from w = 0 to the optimum is printed, in the mean and in
the worst tenth, with the settings of the package and so many uploads spent on means and variances
before: `LEFT_WITHIN_BOUNDS` of ``privacy/_settings.py`` is that of one.

    python scripts/column_settings.py --order 2 [--seeds 3] [--columns 15]
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from private_settings import loss_of, model, search_of
from synthetic_tables import KINDS, Array, bounded, table

from fedepm_fast.mechanisms import Columns
from fedepm_fast.privacy._settings import Settings, settings_for

ROWS, UPLOADS = 3000, (0, 1, 2, 4)


def standardised(
    A: Array, s: Settings, order: int, level: float, rng: np.random.Generator, spent: int
) -> Array:
    """The columns by means and variances under noise, for which so many uploads are spent."""
    n, spends = A.shape[1], (s.rounds + s.moments + spent) / spent
    ends = np.array([[-2.0] * (n - 1) + [1.0], [2.0] * (n - 1) + [1.0]])
    columns = Columns(ends)
    deviation = level / (2 * n) * math.sqrt(spends) * columns.move(2)
    if order == 1:
        deviation = level / (2 * n**1.5) * spends * columns.move(1)
    noise = rng.normal(size=columns.size) * deviation
    return A @ columns.standardising(columns.means(A) + noise, deviation)


def left_after(A: Array, y: Array, s: Settings, order: int, level: float, seed: int, u: int):
    """Share of the way that is left where `u` uploads are spent on columns first."""
    rng, loss = np.random.default_rng(seed), loss_of(2, level)[0]
    B = standardised(A, s, order, level, rng, u) if u else A
    more = (s.rounds + s.moments + u) / (s.rounds + s.moments)
    w = model(B, y, loss, s, order, level * (more if order == 1 else math.sqrt(more)), seed)
    margins = B @ w[:, 0]
    return float((np.logaddexp(0, margins) - y * margins).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order", type=int, choices=(1, 2), default=2, help="norm of the noise")
    parser.add_argument("--seeds", type=int, default=3, help="tables of a kind; each third is rare")
    parser.add_argument("--columns", type=int, default=15, help="the intercept among them")
    given = parser.parse_args()
    order, levels = given.order, search_of(2).levels[given.order]
    chosen = [settings_for(order, level) for level in levels]
    found = []
    for k, kind in enumerate(KINDS):
        for seed in range(given.seeds):
            A, y = table(kind, ROWS, given.columns - 1, seed % 3 == 2, 100 * seed + k)
            A = bounded(A)
            best, start = optimum(A, y), math.log(2)
            values = [
                [left_after(A, y, s, order, level, 100 * seed + q, u) for u in UPLOADS]
                for q, (level, s) in enumerate(zip(levels, chosen, strict=True))
            ]
            found.append(np.minimum((np.array(values) - best) / (start - best), 1.5))
    print(f"L{order}: level, share left (worst tenth) by uploads spent on columns: {UPLOADS}")
    for level, of in zip(levels, np.array(found).transpose(1, 2, 0), strict=True):
        worst = np.quantile(of, 0.9, axis=1)
        print(
            f"{level:9.4f} ",
            *(f"{a:.3f} ({b:.3f})" for a, b in zip(of.mean(axis=1), worst, strict=True)),
        )


def optimum(A: Array, y: Array) -> float:
    """The least mean loss."""
    from fedepm_fast import FederatedData, Logistic, Problem

    problem = Problem(FederatedData(A, y, [len(y)]), Logistic(beta=0.0))
    return problem.optimum(method="newton").value


if __name__ == "__main__":
    main()
