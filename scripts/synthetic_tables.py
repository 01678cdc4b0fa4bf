"""Tables from no one's data, for settings that must not be chosen on anyone's.

Independent and correlated columns, skewed amounts with indicators, and questionnaires, all
standardised; categories of which some are rare, and questionnaires whose location and scale are
only guessed, as declared ones are; with an intercept. Labels are those of a logistic, softmax or
linear model of some of the columns, or of all.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

Array = np.ndarray

KINDS = ("questionnaire", "correlated", "skewed", "independent", "levels", "guessed")


def columns(kind: str, rows: int, p: int, rng: np.random.Generator) -> Array:
    """A table of `p` columns, not yet standardised."""
    noise = rng.normal(size=(rows, p))
    if kind in ("questionnaire", "guessed"):
        hidden = 0.5 * rng.normal(size=(rows, 3)) @ rng.normal(size=(3, p)) + noise
        return np.floor(rng.integers(2, 40, p) * expit(hidden) ** rng.uniform(0.5, 2, p))
    if kind in ("correlated", "levels"):
        return rng.normal(size=(rows, 1)) * rng.uniform(0.3, 1.2, p) + noise
    if kind == "skewed":
        amounts = rng.exponential(size=(rows, p)) ** 1.5
        return np.where(
            np.arange(p) % 2, rng.random((rows, p)) < rng.uniform(0.05, 0.5, p), amounts
        )
    return noise


def table(
    kind: str, rows: int, p: int, rare: bool, seed: int, classes: int = 2
) -> tuple[Array, Array]:
    """Columns with an intercept, (rows, p + 1), and labels of so many classes, or reals for 1.

    Of two, `rare` ones are one in twenty; of more, they are each rarer than the one before; reals
    have skew noise. A half of these follow no linear law, but one that flattens in every column.
    """
    rng = np.random.default_rng(seed)
    X = columns(kind, rows, p, rng)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    if kind == "levels":
        X[:, : p // 2] = levels(X[:, : p // 2], rng)
    some = np.arange(p) < max(2, 0.6 * p)
    if classes > 2:
        labels = of_classes(X[:, some], classes, rare, rng)
    else:
        bent = classes == 1 and rng.random() < 0.5
        law = np.sign(X) * np.log1p(4 * np.abs(X)) if bent else X
        margin = law @ (rng.normal(size=p) * some)
        margin *= rng.uniform(0.4, 1.8) / margin.std()
        if classes == 2:
            labels = rng.random(rows) < expit(margin + intercept(margin, rare, rng))
        else:
            labels = reals(margin, rare, kind == "guessed", rng)
    if kind == "guessed":
        X = X * rng.uniform(0.3, 1.2, p) + rng.uniform(-0.8, 0.8, p)
    return np.column_stack([X, np.ones(rows)]), labels.astype(float)


def of_classes(X: Array, classes: int, rare: bool, rng: np.random.Generator) -> Array:
    """Classes by a softmax, hard to tell apart or easy."""
    margins = X @ rng.normal(size=(X.shape[1], classes))
    margins *= rng.uniform(0.4, 4.0) / margins.std()
    margins -= rng.uniform(0.0, 0.7 if rare else 0.2) * np.arange(classes)
    return (margins + rng.gumbel(size=margins.shape)).argmax(axis=1)


def reals(margin: Array, rare: bool, guessed: bool, rng: np.random.Generator) -> Array:
    """The margin and noise of deviation 1, standardised, or nearly so by a guess."""
    noise = rng.normal(size=len(margin))
    if rare:
        noise = rng.exponential(size=len(margin)) ** 1.5
        noise /= noise.std()
    labels = margin + noise
    labels = (labels - labels.mean()) / labels.std()
    return labels * rng.uniform(0.5, 1.3) + rng.uniform(-0.5, 0.5) if guessed else labels


def bounded(A: Array) -> Array:
    """A table of `table` with columns brought to [-2, 2] by their range, as bounds do."""
    X = A[:, :-1] - A[:, :-1].min(axis=0)
    return np.column_stack([4 * X / X.max(axis=0) - 2, A[:, -1]])


def levels(X: Array, rng: np.random.Generator) -> Array:
    """Indicators of a level each, scaled as if all levels of its column were equally frequent."""
    found = np.empty_like(X)
    for j, column in enumerate(X.T):
        frequent, share = 1 / rng.integers(2, 9), rng.choice([0.02, 0.05, 0.1, 0.2, 0.3])
        held = column > np.quantile(column, 1 - share)
        found[:, j] = (held - frequent) / np.sqrt(frequent * (1 - frequent))
    return found


def intercept(margin: Array, rare: bool, rng: np.random.Generator) -> float:
    """That of the share of positives: 5 %, or 10 to 50 %."""
    share, low, high = 0.05 if rare else rng.uniform(0.1, 0.5), -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(margin + middle).mean() < share else (low, middle)
    return low
