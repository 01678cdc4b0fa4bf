"""Fixtures that several test modules use."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from problems import small_data

from fedepm_fast import LeastSquares, Logistic, Problem

#: The Flower adapter is tested where Flower is installed.
collect_ignore = [] if importlib.util.find_spec("flwr") else ["flower"]


@pytest.fixture(params=["logistic", "least_squares"])
def problem(request: pytest.FixtureRequest) -> Problem:
    if request.param == "logistic":
        return Problem(small_data(), Logistic(beta=0.01))
    return Problem(small_data(task="regression"), LeastSquares(beta=0.01))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20221)
