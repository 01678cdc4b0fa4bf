"""Fixtures that several test modules use."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
from types import SimpleNamespace

# Two processes share the cores: BLAS threads of each wait for those of the other, for up to fifteen
# times as long as the work takes. Set before NumPy is loaded, and for what tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Containers often say so. Processes that tests start would compile the sources, each anew; kernels
# are kept beside them, too.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from problems import a_problem
from small_sweeps import small_sweep, timeless

from fedepm_fast import Problem, private_runs, sweep
from fedepm_fast.objectives import OBJECTIVES

# The same examples in every run, however slow the machine is: what passes once passes again. To
# look for others: --hypothesis-profile=search.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

# A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: What is tested where the library is installed: the folder of its tests.
OPTIONAL = {"flwr": "flower", "torch": "pytorch"}
collect_ignore = [
    folder for library, folder in OPTIONAL.items() if importlib.util.find_spec(library) is None
]


#: The test that compiles all kernels, folders whose tests compile next to none, and their modules
#: that do compile some.
COMPILES_ALL = "test_warmup_says_when_it_compiles_and_leaves_nothing_to_compile"
COMPILE_NONE = {"data", "estimators", "models", "preparation"}
COMPILE_SOME = {"test_loaders.py", "test_synthetic.py"}


def pytest_collection_modifyitems(items):
    """One process compiles all kernels first, while the other has tests without any.

    Otherwise both compile the same ones at the same time. Pages, which take the longest, come next,
    so that no process waits for one at the end. Of two processes one begins at the start and one in
    the middle.
    """
    first = [item for item in items if item.name == COMPILES_ALL]
    meanwhile = [
        item
        for item in items
        if item.path.parent.name in COMPILE_NONE and item.path.name not in COMPILE_SOME
    ]
    pages = [item for item in items if item.path.name == "test_readme.py"]
    placed = {*first, *meanwhile, *pages}
    others = [item for item in items if item not in placed]
    first += pages[::2]
    before = max(len(items) // 2 - len(first), 0)
    items[:] = [*first, *others[:before], *meanwhile, *pages[1::2], *others[before:]]


@pytest.fixture(autouse=True)
def known_seeds(request, monkeypatch):
    """Private runs that are given no seed draw the same in every run of the tests.

    What the noise of a budget does to a model is bounded there, and its tails are not. The test of
    the drawing itself is marked ``entropy``.
    """
    if "entropy" not in request.keywords:
        draw = random.Random(request.node.nodeid).randrange
        monkeypatch.setattr(private_runs, "secrets", SimpleNamespace(randbelow=draw))


@pytest.fixture(params=["logistic", "least_squares"])
def problem(request: pytest.FixtureRequest) -> Problem:
    return a_problem(request.param)


@pytest.fixture(params=OBJECTIVES)
def any_problem(request: pytest.FixtureRequest) -> Problem:
    """A problem of every registered objective."""
    return a_problem(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20221)


@pytest.fixture(scope="session")
def expected():
    """The outcome of `small_sweep`, whoever does it."""
    return timeless(sweep(small_sweep(), jobs=1))
