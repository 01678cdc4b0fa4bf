"""A measure is described once: summaries, stores, tables and axes read the same entry."""

from __future__ import annotations

import json
import math
import sqlite3

import numpy as np
import pytest
from problems import small_data

from fedepm_fast import FedEPM, Store, Sweep, run, sweep
from fedepm_fast._common.measures import DRAWN, MEASURES, OF_RUN, label_of_measure
from fedepm_fast.result import Measure, add_measure
from fedepm_fast.store._cells_table import QUARTILES


@pytest.fixture(scope="module")
def result():
    return run(FedEPM(mu0=100.0), small_data(), seed=2, rounds=6)


def test_a_summary_has_every_measure_as_the_result_has_it(result):
    summary = result.summary()
    assert {*summary} == {n for n, m in MEASURES.items() if m.of in ("run", "summary")}
    for name in ("rounds", "iterations", "accuracy", "snr", "total_time", "warning", "guarantee"):
        assert summary[name] == getattr(result, name)
    assert summary["algorithm"] == "fedepm" and summary["intercept"] is False
    assert summary["best_objective"] <= summary["start_objective"]
    assert summary["grad_mean_sq"] == result.history["grad_mean_sq"][-1]
    assert summary["reasons"] == [*result.reasons]
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    silent = run(FedEPM(noise="none"), small_data(), rounds=1)
    assert silent.snr == math.inf and silent.summary()["snr"] is None


def test_a_store_has_the_measures_that_have_a_column(tmp_path):
    found = sweep(Sweep(FedEPM(), clients=4, rounds=2), store=tmp_path / "s.sqlite", progress=False)
    with sqlite3.connect(tmp_path / "s.sqlite") as file:
        kinds = {row[1]: row[2] for row in file.execute("PRAGMA table_info(runs)")}
    types = {float: "REAL", int: "INTEGER", bool: "INTEGER", str: "TEXT"}
    assert {name: kinds[name] for name in OF_RUN} == {
        name: types[MEASURES[name].kind] for name in OF_RUN
    }
    assert {*OF_RUN} <= {*found.table()} and {*QUARTILES} <= {*OF_RUN}
    with Store(tmp_path / "s.sqlite") as opened:
        assert [*opened.get(opened.ids()[0]).measures] == [*OF_RUN]


def test_axes_are_called_as_the_entries_say():
    for name in DRAWN:
        assert label_of_measure(name) == MEASURES[name].label != ""
    assert label_of_measure("nothing_known") == "nothing known"


@pytest.fixture
def spread():
    def of(result):
        return float(np.ptp(result.x))

    measure = Measure("spread", "spread of x", of="summary", entry=of)
    add_measure(measure)
    yield measure
    del MEASURES["spread"]


def test_a_measure_of_ones_own(result, spread):
    add_measure(spread)  # once more is the same
    assert result.summary()["spread"] == np.ptp(result.x) == result.to_dict()["spread"]
    assert [*result.summary()][-1] == "spread"
    assert label_of_measure("spread") == "spread of x"
    with pytest.raises(ValueError, match="'rounds' names another measure"):
        add_measure(Measure("rounds", of="summary", entry=len))
    with pytest.raises(ValueError, match="must have of='summary'"):
        add_measure(Measure("other", entry=len))
