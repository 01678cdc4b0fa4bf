"""The NumPy reference: what the kernels and the engine are measured against."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from fedepm_fast import FedEPM, SFedAvg, SFedProx, datasets, run
from fedepm_fast.reference import ens


class Ens:
    """The elastic-net solver of the reference."""

    params = ([(10, 100_000), (100, 20_000), (100, 14)],)
    param_names = ("clients, parameters",)

    def setup(self, shape):
        self.Z = np.random.default_rng(0).normal(size=shape)

    def time_ens(self, shape):
        ens(self.Z, 0.5)


class Run:
    """Ten rounds on Adult, 100 clients, k0 = 12."""

    params = (["fedepm", "sfedavg", "sfedprox"],)
    param_names = ("algorithm",)
    timeout = 300

    def setup_cache(self):
        path = Path("adult.pickle")
        path.write_bytes(pickle.dumps(datasets.adult(clients=100, seed=0)))
        return path.resolve()

    def setup(self, path, algorithm):
        self.data = pickle.loads(path.read_bytes())
        self.algorithm = {a.name: a for a in (FedEPM(), SFedAvg(), SFedProx())}[algorithm]

    def time_ten_rounds(self, path, algorithm):
        run(self.algorithm, self.data, rounds=10, engine="reference")
