"""Fits of tables, and FedEPM with eta the curvature beside the paper's."""

from __future__ import annotations

import numpy as np

from fedepm_fast import CurvatureFedEPM, FedEPM, datasets, fit, run

ALGORITHMS = {"curvature": CurvatureFedEPM(), "paper": FedEPM(noise="none")}


class Fit:
    """A logistic model of 100,000 rows and 50 columns from 20 clients."""

    timeout = 300

    def setup(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(100_000, 50))
        t = X @ rng.normal(size=50) / 7 - 1
        self.table = {f"x{j}": X[:, j] for j in range(50)}
        self.table["outcome"] = (rng.random(len(t)) < 1 / (1 + np.exp(-t))).astype(int)
        self.table["hospital"] = np.array([f"h{k}" for k in rng.integers(0, 20, len(t))])

    def time_fit(self):
        fit(self.table, label="outcome", client="hospital")

    def peakmem_fit(self):
        fit(self.table, label="outcome", client="hospital")


class Adult:
    """Runs on Adult, 100 clients, until their own stopping rule."""

    params = tuple(ALGORITHMS)
    param_names = ("algorithm",)
    timeout = 300

    def setup(self, algorithm):
        self.data = datasets.adult(clients=100, seed=0)
        self.algorithm = ALGORITHMS[algorithm]
        run(self.algorithm, self.data, rounds=1)

    def time_run(self, algorithm):
        run(self.algorithm, self.data, every_accuracy=False)

    def track_rounds(self, algorithm):
        return run(self.algorithm, self.data).rounds
