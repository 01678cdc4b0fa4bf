"""One of a thing is in the singular, and what is equal is no range."""

from __future__ import annotations

import numpy as np
import pytest

from fedepm_fast import FedEPM, FederatedData, Sweep, evaluate, fit, run, sweep
from fedepm_fast._common.text import counted, first_few, span
from fedepm_fast.preparation import as_table


@pytest.mark.parametrize("sizes", [(6,), (3, 3), (2, 4), (1, 1)])
def test_summaries_of_data(sizes):
    d = sum(sizes)
    data = FederatedData(np.ones((d, 1)), np.arange(d) % 2, sizes, sample_weight=np.ones(d))
    told = {
        (6,): "6 rows, 1 feature, 1 client; rows weighed by 1",
        (3, 3): "6 rows, 1 feature, 2 clients of 3 rows; rows weighed by 1",
        (2, 4): "6 rows, 1 feature, 2 clients of 2 to 4 rows; rows weighed by 1",
        (1, 1): "2 rows, 1 feature, 2 clients of 1 row; rows weighed by 1",
    }
    assert data.summary() == f"arrays: {told[sizes]}"


def test_summaries_of_runs_models_and_sweeps():
    data = FederatedData(np.ones((4, 1)), [0.0, 1, 0, 1], [4])
    algorithm = FedEPM(noise="none", mu0=50.0)
    result = run(algorithm, data, rounds=1, engine="reference")
    assert str(result).splitlines()[0] == "FedEPM on 1 client, 1 feature"
    table = {"x": [1.0, 2.0, 4.0, 3.0] * 2, "y": [0, 1, 0, 1] * 2, "who": ["p"] * 4 + ["q"] * 4}
    model = fit(table, "y", "who", beta=0.1)
    assert "8 of 2 clients, 4 each" in model.summary()
    assert "2 clients, 8 rows, 2 coefficients>" in repr(model)
    one = {name: cells[:1] for name, cells in table.items()}
    assert repr(evaluate(model, one)) == "<Evaluation of 1 row of 1 client>"
    assert repr(as_table(one)).startswith("Table of 1 row: ")
    runs = Sweep(algorithm, data, rounds=1, engine="reference")
    assert repr(runs) == "<Sweep of 1 run in 1 cell>"
    assert repr(sweep(runs, progress=False)) == "<SweepResult of 1 run>"


def test_numbers_of_things():
    assert [counted(n, "row") for n in range(3)] == ["0 rows", "1 row", "2 rows"]
    assert (span(4, 4), span(4, 1234)) == ("4", "4 to 1,234")
    names = list("abcdef")
    assert first_few(names, 6) == "a, b, c, d, e, f"
    assert first_few(names, 5) == "a, b, c, d, e, ... and 1 more"
    assert first_few([]) == ""
