"""Speed-up over the reference and error against it, memory, and what a user waits for."""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from fedepm_fast import Logistic, Problem, datasets
from fedepm_fast.kernels import losses
from fedepm_fast.kernels.ens import ens
from fedepm_fast.kernels.ens_blocks import ens_blocks
from fedepm_fast.reference import ens as reference_ens


def speed_up(ours, theirs, turns: int = 9) -> float:
    """Median of theirs over median of ours, in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    ours()
    for _ in range(turns):
        for record, work in zip(times, (ours, theirs), strict=True):
            start = time.perf_counter()
            work()
            record.append(time.perf_counter() - start)
    return median(times[1]) / median(times[0])


class Ens:
    """The elastic-net solver beside the reference and `np.mean`."""

    params = (["float64", "float32"], [1e-3, 1e3])
    param_names = ("dtype", "c")
    timeout = 300

    def setup(self, dtype, c):
        self.Z = np.random.default_rng(0).normal(size=(100, 20_000)).astype(dtype)

    def track_speed_up_over_reference(self, dtype, c):
        return speed_up(lambda: ens(self.Z, c), lambda: reference_ens(self.Z, c))

    def track_time_over_mean(self, dtype, c):
        return 1 / speed_up(lambda: ens(self.Z, c), lambda: self.Z.mean(axis=0), turns=51)

    def track_relative_error(self, dtype, c):
        error = ens(self.Z, c).astype(float) - reference_ens(self.Z.astype(float), c)
        return float(np.abs(error).max() / np.abs(self.Z).max())

    track_speed_up_over_reference.unit = "times"
    track_time_over_mean.unit = "means"
    track_relative_error.unit = "of max|z|"


class Losses:
    """Logistic gradients on Adult beside the reference, client by client."""

    timeout = 300

    def setup(self):
        data = datasets.adult(clients=100, seed=0)
        self.problem = Problem(data, Logistic())
        self.rows = losses.pack(data.features, data.labels, data.client_sizes)
        self.x = np.random.default_rng(0).normal(size=14)

    def track_speed_up_over_reference(self):
        return speed_up(
            lambda: losses.gradients(self.rows, self.x, reg=self.problem.reg),
            lambda: self.problem.gradients(self.x),
        )

    def track_relative_error(self):
        want = self.problem.gradients(self.x)
        got = losses.gradients(self.rows, self.x, reg=self.problem.reg)
        return float(np.abs(got - want).max() / np.abs(want).max())

    track_speed_up_over_reference.unit = "times"
    track_relative_error.unit = "of max|g|"


class Memory:
    """Peak memory of large aggregations."""

    def setup(self):
        self.Z = np.ones((100, 200_000))

    def peakmem_ens(self):
        ens(self.Z, 0.5)

    def peakmem_ens_blocks(self):
        ens_blocks(self.Z, 0.5, block_rows=10)


class Waiting:
    """Import, and the first call from a warm and from a cold cache, in processes of their own."""

    timeout = 300

    def timeraw_import_kernels(self):
        return "import fedepm_fast.kernels.ens"

    def timeraw_import(self):
        return "from fedepm_fast import FedEPM, run"

    def timeraw_first_call(self):
        return (
            "import numpy; from fedepm_fast.kernels.ens import ens; ens(numpy.ones((40, 14)), 1.0)"
        )

    def timeraw_first_call_cold(self):
        return """
        import os, tempfile
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NUMBA_CACHE_DIR"] = folder
            import numpy
            from fedepm_fast.kernels.ens import ens
            ens(numpy.ones((40, 14)), 1.0)
        """

    timeraw_first_call_cold.number = 1
    timeraw_first_call_cold.repeat = 3
