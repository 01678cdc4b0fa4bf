"""Figures show the numbers they are given."""

from __future__ import annotations

import numpy as np
import pytest
from problems import small_data

from fedepm_fast import FedEPM, SFedAvg, plots, run


@pytest.fixture(scope="module")
def results():
    data = small_data()
    return [
        run(FedEPM(), data, rounds=9),
        run(SFedAvg(learning_rate=0.05), data, rounds=5),
        run(FedEPM(), data, seed=1, rounds=3),
    ]


def test_history_draws_the_objective_against_rounds(results):
    figure = plots.history(results, optimum=0.25)
    (ax,) = figure.axes
    for line, result in zip(ax.lines, results, strict=False):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(result.rounds + 1))
        np.testing.assert_array_equal(line.get_ydata(), result.history["objective"] / 6)
    assert ax.lines[-1].get_ydata()[0] == 0.25
    assert [t.get_text() for t in ax.get_legend().texts] == [
        "FedEPM, 9 rounds", "SFedAvg, 5 rounds", "FedEPM (2), 3 rounds",
    ]  # fmt: skip
    assert ax.get_ylabel() == "f(x) / m"
    assert "communication rounds" in ax.get_xlabel()
    assert ax.get_xscale() == "symlog"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2", "4", "8"]


def test_algorithms_differ_without_colour():
    looks = {(s["linestyle"], s["marker"]) for s in plots.STYLES.values()}
    assert len(looks) == len(plots.STYLES) == 3


def test_against_time_on_given_axes(results):
    _, ax = plots.new_figure()
    assert plots.history(results[:1], ax=ax, x="time") is ax.figure
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), results[0].history["elapsed"])
    assert ax.get_xlabel() == "time (s)"
    figure = results[0].plot()
    assert len(figure.axes[0].lines) == 1


def test_save(results, tmp_path):
    figure = plots.history(results)
    for suffix, magic in {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}.items():
        plots.save(figure, tmp_path / f"f.{suffix}")
        assert (tmp_path / f"f.{suffix}").read_bytes().startswith(magic)
    with pytest.raises(ValueError, match="the suffix of the figure must be one of"):
        plots.save(figure, tmp_path / "f.docx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.pdf", "f.png", "f.svg"]


def test_a_run_without_rounds_can_be_drawn():
    plots.history([run(FedEPM(), small_data(), rounds=0)])


def test_bad_input(results):
    with pytest.raises(TypeError, match="results must be a sequence of at least one Result"):
        plots.history([])
    with pytest.raises(ValueError, match="x must be one of"):
        plots.history(results, x="cost")
