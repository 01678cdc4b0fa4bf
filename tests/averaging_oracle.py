"""FedAvg and FedProx as their papers print them, row by row, with nothing of the package.

Random numbers are NumPy's Philox, whose first words for a counter c are those of c + 1.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

#: Derivatives of the losses in the margin t of a row with label b.
SLOPES = {
    "logistic": lambda t, b: 1 / (1 + np.exp(-t)) - b,
    "squared_hinge": lambda t, b: -2 * (2 * b - 1) * np.maximum(1 - (2 * b - 1) * t, 0),
    "least_squares": lambda t, b: t - b,
    "huber": lambda t, b: np.clip(t - b, -1, 1),
    "poisson": lambda t, b: np.exp(t) - b,
    "own_logistic": lambda t, b: 1 / (1 + np.exp(-t)) - b,
}


def words(seed: int, purpose: int, tau: int, client: int, count: int) -> list[int]:
    """The first words of a counter (0, client, round, purpose) under the key (seed, 0)."""
    at = (client + (tau << 64) + (purpose << 128) << 64) - 1
    return np.random.Philox(key=seed, counter=at).random_raw(count).tolist()


def shuffled(count: int, taken: int, drawn: list[int]) -> list[int]:
    """The first numbers of a random order of 0, ..., count - 1 (Fisher and Yates)."""
    order = list(range(count))
    for i in range(taken):
        j = i + (drawn[i] * (count - i) >> 64)
        order[i], order[j] = order[j], order[i]
    return order[:taken]


class Oracle:
    """Clients' rows, and the rounds of FedAvg and FedProx on them."""

    def __init__(self, features, labels, sizes, loss, beta, *, weights=None, by_size=False):
        ends = np.cumsum([0, *sizes])
        v = np.ones(len(labels)) if weights is None else weights
        self.loss, self.beta, self.classes = loss, beta, 1
        if loss == "multinomial":
            self.classes = int(max(labels)) + 1
        self.rows = [features[a:b] for a, b in itertools.pairwise(ends)]
        self.labels = [labels[a:b] for a, b in itertools.pairwise(ends)]
        self.v = [v[a:b] for a, b in itertools.pairwise(ends)]
        # What a client weighs in the average, and its regulariser beta / s_i, or beta / s.
        sums = np.array([own.sum() for own in self.v])
        self.p = sums if by_size else np.ones(len(sums))
        self.reg = beta / (np.full(len(sums), sums.sum()) if by_size else sums)

    def gradient(self, i: int, w, rows):
        """Of F_i with the mean loss of these rows, row by row."""
        w = w.reshape(self.classes, -1)
        total = np.zeros_like(w)
        for t in rows:
            a, b = self.rows[i][t], self.labels[i][t]
            margins = w @ a
            if self.loss == "multinomial":
                odds = np.exp(margins - margins.max())
                slope = odds / odds.sum()
                slope[int(b)] -= 1
            else:
                slope = SLOPES[self.loss](margins, b)
            total += self.v[i][t] * np.outer(slope, a)
        mean = self.v[i].sum() / len(self.v[i])  # so that batches of all rows weigh 1 together
        return (total / (len(rows) * mean) + self.reg[i] * w).ravel()

    def points(self, *, eta, epochs, batch, prox, rounds, seed, participation):
        """The server's points."""
        m, n = len(self.rows), self.rows[0].shape[1] * self.classes
        m0 = max(1, math.ceil(participation * m - 1e-9))
        x, points = np.zeros(n), []
        for tau in range(rounds + 1):
            points.append(x)
            S = sorted(shuffled(m, m0, words(seed, 1, tau, 0, m0)))
            ends = []
            for k in S:
                w, d = x, len(self.labels[k])
                for epoch in range(epochs):
                    order = list(range(d))
                    if batch is not None and batch < d:
                        order = shuffled(d, d, words(seed, 7 + (epoch << 32), tau, k, d))
                    for first in range(0, d, batch or d):
                        rows = order[first : first + (batch or d)]
                        w = w - eta * (self.gradient(k, w, rows) + prox * (w - x))
                ends.append(w)
            x = sum(self.p[k] * w for k, w in zip(S, ends, strict=True)) / self.p[S].sum()
        return np.array(points)
