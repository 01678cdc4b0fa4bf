"""Fixtures that several test modules use."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from problems import a_problem
from small_sweeps import small_sweep, timeless

from fedepm_fast import Problem, sweep
from fedepm_fast.objectives import OBJECTIVES

#: What is tested where the library is installed: the folder of its tests.
OPTIONAL = {"flwr": "flower", "torch": "pytorch"}
collect_ignore = [
    folder for library, folder in OPTIONAL.items() if importlib.util.find_spec(library) is None
]


def pytest_collection_modifyitems(items):
    """Pages take the longest: they come first, so that no process waits for one at the end.

    Of two processes one begins at the start and one in the middle.
    """
    pages = [item for item in items if item.path.name == "test_readme.py"]
    others = [item for item in items if item.path.name != "test_readme.py"]
    before = max(len(items) // 2 - len(pages[::2]), 0)
    items[:] = [*pages[::2], *others[:before], *pages[1::2], *others[before:]]


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
