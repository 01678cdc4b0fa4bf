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
        "FedEPM, seed 0: 9 rounds", "SFedAvg: 5 rounds", "FedEPM, seed 1: 3 rounds",
    ]  # fmt: skip
    assert ax.get_ylabel() == "f(x) / m"
    assert "communication rounds" in ax.get_xlabel()
    assert ax.get_xscale() == "symlog"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2", "4", "8"]


def test_runs_differ_without_colour(results):
    data = small_data()
    several = [*results, *(run(FedEPM(local_steps=k), data, rounds=1) for k in (1, 2, 4))]
    lines = plots.history(several).axes[0].lines
    # FedEPM five times: line and marker differ, dash patterns included.
    dashes = [line._unscaled_dash_pattern for line in lines]
    assert len({(line.get_marker(), str(d)) for line, d in zip(lines, dashes, strict=True)}) == 6
    assert len({line.get_marker() for line in lines}) == 6


def test_labels_say_what_sets_runs_apart():
    data = small_data()

    def labels(*algorithms, **options):
        return plots.labels([run(a, data, rounds=1, **options) for a in algorithms])

    assert labels(FedEPM(), SFedAvg()) == ["FedEPM", "SFedAvg"]
    assert labels(FedEPM(), FedEPM()) == ["FedEPM", "FedEPM (2)"]
    assert labels(FedEPM(local_steps=4), FedEPM(local_steps=20)) == [
        "FedEPM, local steps 4", "FedEPM, local steps 20",
    ]  # fmt: skip
    # Participation changes the default lam and eta too, which explain nothing more.
    assert labels(FedEPM(participation=0.2), FedEPM()) == [
        "FedEPM, participation 0.2", "FedEPM, participation 0.5",
    ]  # fmt: skip
    assert labels(FedEPM(lam=0.0, eta=1e-5), FedEPM(lam=1e-4, eta=1e-5)) == [
        "FedEPM, lam 0", "FedEPM, lam 0.0001",
    ]  # fmt: skip


def test_one_result_and_given_axes_leave_pyplot_alone(results):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    figure = plots.history(results[1])
    (line,) = figure.axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), results[1].history["objective"] / 6)
    other = figure.add_subplot(1, 2, 2)
    assert plots.history(results[0], other) is figure
    assert pyplot.get_fignums() == before


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
    # The same figure is the same bytes: no date, no random ids.
    plots.save(plots.history(results), tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "f.svg").read_bytes()
    (tmp_path / "again.svg").unlink()
    with pytest.raises(ValueError, match="the suffix of the figure must be one of"):
        plots.save(figure, tmp_path / "f.docx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.pdf", "f.png", "f.svg"]


def test_a_run_without_rounds_can_be_drawn():
    plots.history([run(FedEPM(), small_data(), rounds=0)])


def test_bad_input(results):
    with pytest.raises(TypeError, match="results must be a Result or a sequence of at least one"):
        plots.history([])
    with pytest.raises(TypeError, match="results must be a Result"):
        plots.history(["fedepm"])
    with pytest.raises(ValueError, match="x must be one of"):
        plots.history(results, x="cost")
    with pytest.raises(ValueError, match="optimum must be a finite number"):
        plots.history(results, optimum=np.nan)
