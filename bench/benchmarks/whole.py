"""What every commit since the first can be asked: the history of the documentation.

Only names are used that have always been there, or what did the same before there were kernels.
asv drops results of another version of a benchmark, which is its source where none is given. Here
one is, so that what was measured stays; a benchmark that times something else needs another one.
"""

from __future__ import annotations

import functools
import os
import resource
import shutil
import subprocess
import sys
import tempfile

import numpy as np

from fedepm_fast import FedEPM, Logistic, Problem, datasets, run

from . import Timed, at, units

LACKS = None
try:
    from fedepm_fast.kernels.ens import ens
except ImportError:
    from fedepm_fast.reference import ens
try:
    from fedepm_fast.kernels import losses
except ImportError:
    losses = None
try:
    from fedepm_fast.kernels.noise import laplace
except ImportError as error:
    laplace, LACKS = None, error


#: A run of two rounds.
RUN = """
from fedepm_fast import FedEPM, datasets, run
run(FedEPM(), datasets.adult(clients=100, seed=0), rounds=2)
"""


@functools.cache
def adult():
    """Adult, dealt to 100 clients."""
    return datasets.adult(clients=100, seed=0)


@functools.cache
def gradients():
    """What computes all clients' gradients at a point."""
    data, x = adult(), np.random.default_rng(0).normal(size=14)
    if losses is None:
        problem = Problem(data, Logistic())
        return lambda: problem.gradients(x)
    offsets = getattr(data, "client_sizes", None)
    rows = losses.pack(data.features, data.labels, offsets)
    return lambda: losses.gradients(rows, x)


@functools.cache
def uploads():
    """Uploads of 100 clients, so few that they stay in the caches: the solver, not the memory."""
    return np.random.default_rng(0).normal(size=(100, 2_000))


class Whole(Timed):
    """A run, what a round consists of, and a split, by the fastest that there was."""

    version = "1"

    def time_fedepm_10_rounds(self):
        run(FedEPM(), adult(), rounds=10)

    def time_ens(self):
        ens(uploads(), 0.5)

    def time_gradients(self):
        gradients()()

    def time_laplace(self):
        at(LACKS)
        laplace(0, 0, 0, 0, range(100), 10_000)

    def time_split(self):
        datasets.adult(clients=100, seed=1)


class Waiting:
    """Import, and a first run in a process, from a warm and from an empty cache of kernels."""

    version = "1"
    rounds = 1
    number = 1
    repeat = 3
    timeout = 900

    def timeraw_import(self):
        return "from fedepm_fast import FedEPM, run"

    def timeraw_first_run(self):
        return RUN

    def track_processor_of_first_run_cold(self):
        """Seconds of the processor, which other work on the machine does not lengthen."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            subprocess.run([sys.executable, "-c", RUN], check=True, env=environment)
            if "NUMBA_CACHE_DIR" in os.environ:  # the other benchmarks of this commit need it
                shutil.copytree(folder, os.environ["NUMBA_CACHE_DIR"], dirs_exist_ok=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    track_processor_of_first_run_cold = units(track_processor_of_first_run_cold, "s")
