"""Warnings of public functions are of the line that called them, however deep they arise."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from problems import small_data
from sklearn.exceptions import ConvergenceWarning

import fedepm_fast
from fedepm_fast import FedAvg, evaluate, fit, run, run_callables
from fedepm_fast.sklearn import FedEPMClassifier, FedEPMRegressor

TABLE = {
    "x": np.arange(40.0) % 7,
    "g": ["a", "b", "b", "c"] * 10,
    "y": [0, 1, 1, 0, 1] * 8,
    "who": ["p", "q"] * 20,
}
NEW = TABLE | {"g": ["a", "d"] * 20}
X, Y = np.column_stack([TABLE["x"], np.arange(40.0) % 3]), np.array(TABLE["y"])


@pytest.fixture(scope="module")
def model():
    return fit(TABLE, "y", "who", beta=0.1)


def steep(x):
    return float(x @ x), 2 * x


CASES = {
    "levels of one name": lambda m: fit(TABLE | {"g": ["a", "A"] * 20}, "y", "who", beta=0.1),
    "no convergence": lambda m: fit(TABLE, "y", "who", max_rounds=1),
    "a start of fewer columns": lambda m: fit(TABLE | {"z": X[:, 1]}, "y", start=m, beta=0.1),
    "predict": lambda m: m.predict(NEW),
    "predictions": lambda m: m.predictions(NEW),
    "predict_proba": lambda m: m.predict_proba(NEW),
    "decision_function": lambda m: m.decision_function(NEW),
    "score": lambda m: m.score(NEW),
    "evaluate": lambda m: evaluate(m, NEW),
    "transform": lambda m: m.prepared.transform(NEW),
    "run": lambda m: run(FedAvg(learning_rate=1e6), small_data(), rounds=20, engine="reference"),
    "run of callables": lambda m: run_callables(
        FedAvg(learning_rate=1e3), [steep, steep], start=np.ones(2), rounds=20
    ),
    "classifier": lambda m: FedEPMClassifier(max_rounds=1).fit(X, Y),
    "regressor": lambda m: FedEPMRegressor(mu0=1.0).fit(X, Y),
    "partial_fit": lambda m: FedEPMClassifier(eta=0.1).partial_fit(X, Y, classes=[0, 1]),
    "deprecated": lambda m: FedEPMClassifier(mu0=1.0).fit(X, Y),
}


@pytest.mark.parametrize("name", CASES)
def test_a_warning_is_of_the_line_that_called(model, name):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        CASES[name](model)
    own = [
        warning
        for warning in told
        if warning.category.__module__.startswith("fedepm_fast")
        or warning.category in (ConvergenceWarning, FutureWarning)
    ]
    assert own and {warning.filename for warning in own} == {__file__}
    lines = Path(__file__).read_text().splitlines()
    assert all(lines[warning.lineno - 1].strip().startswith(f'"{name}"') for warning in own)


def test_all_warnings_are_made_in_one_place():
    root = Path(fedepm_fast.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(r"warnings\.warn\(", path.read_text(encoding="utf-8"))
    }
    # Kernels know nothing of the package, and whose line compiles one is not known.
    assert found - {"kernels/_cache.py"} == {"_common/warned.py"}
