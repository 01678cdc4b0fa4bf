"""Whole runs of the engine, and what surrounds them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fedepm_fast import (
    FedEPM,
    SFedAvg,
    SFedProx,
    Store,
    Sweep,
    datasets,
    make_problem,
    run,
    sweep,
)
from fedepm_fast.data import standardised
from fedepm_fast.privacy import plan

from .tracks import speed_up

ALGORITHMS = {cls.name: cls() for cls in (FedEPM, SFedAvg, SFedProx)}


class Runs:
    """Runs on Adult, 100 clients, 12 local steps."""

    params = tuple(ALGORITHMS)
    param_names = ("algorithm",)
    timeout = 300

    def setup(self, algorithm):
        self.data = datasets.adult(clients=100, seed=0)
        self.algorithm = ALGORITHMS[algorithm]
        run(self.algorithm, self.data, rounds=1)

    def time_rounds(self, algorithm):
        run(self.algorithm, self.data, rounds=20, every_accuracy=False)

    def track_speed_up_over_reference(self, algorithm):
        def work(engine):
            return lambda: run(self.algorithm, self.data, rounds=3, engine=engine)

        return speed_up(work("compiled"), work("reference"), turns=3)

    def track_relative_error(self, algorithm):
        got, want = (
            run(self.algorithm, self.data, rounds=10, engine=engine)
            for engine in ("compiled", "reference")
        )
        return float(abs(got.Z - want.Z).max() / abs(want.Z).max())

    track_speed_up_over_reference.unit = "times"
    track_relative_error.unit = "of max|z|"


class PrivateRuns:
    """A planned private run on Adult, 100 clients, by who is trusted; noise, moments and all."""

    params = ("clients", "secure-sum")
    param_names = ("trust",)
    timeout = 300

    def setup(self, trust):
        self.data = standardised(datasets.adult(clients=100, seed=0))
        sizes, columns = self.data.client_sizes, self.data.n_features
        self.plan = plan(1.0, sizes, columns, trust=trust)
        self.time_run(trust)

    def time_run(self, trust):
        self.plan.run(self.data, seed=2**40, public_scaling=True, every_accuracy=False)

    def track_share_left(self, trust):
        """Of the way from w = 0 to the optimum, for noise of a seed."""
        result = self.plan.run(self.data, seed=2**40, public_scaling=True)
        problem = make_problem(self.plan.algorithm, self.data, self.plan.objective)
        best, start = problem.optimum(method="newton").value, result.start_objective
        return float((result.history["objective"][-1] - best) / (start - best))


class Around:
    """Splitting, packing and storing."""

    timeout = 300

    def setup(self):
        self.folder = tempfile.TemporaryDirectory()
        self.count = 0
        datasets.adult(clients=100, seed=0).packed("logistic")

    def teardown(self):
        self.folder.cleanup()

    def time_split_and_pack(self):
        datasets.adult(clients=100, seed=1).packed("logistic")

    def time_sweep_of_100_runs(self):
        self.count += 1
        with Store(Path(self.folder.name) / f"{self.count}.sqlite") as store:
            sweep(Sweep(FedEPM(), clients=100, trials=100), store=store, jobs=1, progress=False)

    def peakmem_run(self):
        run(FedEPM(), datasets.adult(clients=100, seed=1), rounds=2)
