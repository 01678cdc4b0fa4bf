"""Whole runs of the engine, fits of tables, and what surrounds them."""

from __future__ import annotations

import functools
import itertools
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from fedepm_fast import FedEPM, SFedAvg, SFedProx, datasets, run

from . import Timed, at, units

LACKS = None
try:
    from fedepm_fast import CurvatureFedEPM, Store, Sweep, fit, make_problem, sweep
    from fedepm_fast.data import standardised
    from fedepm_fast.kernels.ens_blocks import ens_blocks
    from fedepm_fast.privacy import plan
except ImportError as error:
    LACKS = error

ALGORITHMS = {"fedepm": FedEPM, "sfedavg": SFedAvg, "sfedprox": SFedProx}


@functools.cache
def adult():
    """Adult, dealt to 100 clients."""
    return datasets.adult(clients=100, seed=0)


@functools.cache
def planned(trust):
    """A planned private run on Adult: its data and the plan."""
    data = standardised(adult())
    return data, plan(1.0, data.client_sizes, data.n_features, trust=trust)


@functools.cache
def hospitals():
    """A table of 100,000 rows and 50 columns, of 20 clients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 50))
    t = X @ rng.normal(size=50) / 7 - 1
    made = {f"x{j}": X[:, j] for j in range(50)}
    made["outcome"] = (rng.random(len(t)) < 1 / (1 + np.exp(-t))).astype(int)
    made["hospital"] = np.array([f"h{k}" for k in rng.integers(0, 20, len(t))])
    return made


class Runs(Timed):
    """Runs on Adult, 100 clients, 12 local steps; errors and speed beside the reference."""

    params = (list(ALGORITHMS),)
    param_names = ("algorithm",)

    def time_rounds(self, algorithm):
        run(ALGORITHMS[algorithm](), adult(), rounds=20, every_accuracy=False)

    def track_relative_error(self, algorithm):
        at(LACKS)
        got, want = (
            run(ALGORITHMS[algorithm](), adult(), rounds=10, engine=engine)
            for engine in ("compiled", "reference")
        )
        return float(abs(got.Z - want.Z).max() / abs(want.Z).max())

    track_relative_error = units(track_relative_error, "of max|z|")


class Fedepm(Timed):
    """What surrounds a run, and what is built on it."""

    def time_split_and_pack(self):
        datasets.adult(clients=100, seed=1).packed("logistic")

    def time_sweep_of_100_runs(self):
        at(LACKS)
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite") as store:
            sweep(Sweep(FedEPM(), clients=100, trials=100), store=store, jobs=1, progress=False)

    def time_curvature(self):
        at(LACKS)
        run(CurvatureFedEPM(), adult(), every_accuracy=False)

    def time_private(self):
        at(LACKS)
        data, planned_run = planned("clients")
        planned_run.run(data, seed=2**40, public_scaling=True, every_accuracy=False)

    def time_private_secure_sum(self):
        at(LACKS)
        data, planned_run = planned("secure-sum")
        planned_run.run(data, seed=2**40, public_scaling=True, every_accuracy=False)

    def time_fit(self):
        at(LACKS)
        fit(hospitals(), label="outcome", client="hospital")

    def track_rounds_of_curvature(self):
        at(LACKS)
        return run(CurvatureFedEPM(), adult()).rounds

    def track_share_left_of_private(self):
        """Of the way from w = 0 to the optimum, for noise of a seed."""
        at(LACKS)
        data, planned_run = planned("clients")
        result = planned_run.run(data, seed=2**40, public_scaling=True)
        problem = make_problem(planned_run.algorithm, data, planned_run.objective)
        best, start = problem.optimum(method="newton").value, result.start_objective
        return float((result.history["objective"][-1] - best) / (start - best))

    def track_speed_up_over_reference(self):
        """Of ten rounds: medians of both engines, which take turns."""
        times = {"compiled": [], "reference": []}
        run(FedEPM(), adult(), rounds=10)
        for _turn, engine in itertools.product(range(5), times):
            start = time.perf_counter()
            run(FedEPM(), adult(), rounds=10, engine=engine)
            times[engine].append(time.perf_counter() - start)
        return median(times["reference"]) / median(times["compiled"])


class Memory:
    """Peak memory of processes that compile nothing: `setup_cache` runs in one before them."""

    timeout = 900

    def setup_cache(self):
        for name in dir(self):
            if name.startswith("peakmem_"):
                getattr(self, name)(None)
        return "compiled"

    setup_cache.timeout = 900

    def peakmem_run(self, _):
        run(FedEPM(), adult(), rounds=2)

    def peakmem_fit(self, _):
        if LACKS is None:
            fit(hospitals(), label="outcome", client="hospital")

    def peakmem_ens_blocks(self, _):
        if LACKS is None:
            ens_blocks(np.ones((100, 200_000)), 0.5, block_rows=10)
