"""Fixtures that several test modules use."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from problems import small_data
from small_sweeps import small_sweep, timeless

from fedepm_fast import Problem, sweep
from fedepm_fast.objectives import OBJECTIVES, as_objective

#: The Flower adapter is tested where Flower is installed.
collect_ignore = [] if importlib.util.find_spec("flwr") else ["flower"]


@pytest.fixture(params=["logistic", "least_squares"])
def problem(request: pytest.FixtureRequest) -> Problem:
    return a_problem(request.param)


@pytest.fixture(params=OBJECTIVES)
def any_problem(request: pytest.FixtureRequest) -> Problem:
    """A problem of every registered objective."""
    return a_problem(request.param)


def a_problem(name: str) -> Problem:
    objective = as_objective(name, beta=0.01)
    return Problem(small_data(task=objective.task), objective)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20221)


@pytest.fixture(scope="session")
def expected():
    """The outcome of `small_sweep`, whoever does it."""
    return timeless(sweep(small_sweep(), jobs=1))
