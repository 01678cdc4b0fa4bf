"""Figures show the numbers they are given."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import matplotlib
import numpy as np
import pandas
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from problems import small_data

from fedepm_fast import FedEPM, SFedAvg, plots, run
from fedepm_fast.plots._style import rounds_axis
from fedepm_fast.plots._tables import INTERVALS, summarize
from fedepm_fast.privacy.tradeoff import Tradeoff


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
        "FedEPM, seed 0: 9 rounds, diverged", "SFedAvg: 5 rounds, diverged",
        "FedEPM, seed 1: 3 rounds, diverged",
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
    result = run(FedEPM(), small_data(), rounds=0)
    (line,) = plots.history([result]).axes[0].lines
    assert line.get_xdata().tolist() == [0]
    assert line.get_ydata().tolist() == [result.mean_objective]


def test_bad_input(results):
    with pytest.raises(TypeError, match="results must be a Result or a sequence of at least one"):
        plots.history([])
    with pytest.raises(TypeError, match="results must be a Result"):
        plots.history(["fedepm"])
    with pytest.raises(ValueError, match="x must be one of"):
        plots.history(results, x="cost")
    with pytest.raises(ValueError, match="optimum must be a finite number"):
        plots.history(results, optimum=np.nan)


# Sweeps ------------------------------------------------------------------------------------


def table_of_runs(**varied):
    """Three algorithms, three local steps, five trials; FedEPM's CR is 10, 20, ... 50 / k0."""
    rows = [
        {
            "run_id": f"{name}{k0}{trial}",
            "algorithm": name,
            "local_steps": k0,
            "clients": 50,
            "epsilon": 0.1,
            "seed": 0,
            "trial": trial,
            "rounds": scale * 10 * (trial + 1) / k0,
            "total_time": scale * 1e-3 * (trial + 1) * k0,
            "snr": np.nan if name == "fedepm" and trial == 4 else scale * trial - 10.0,
            "diverged": False,
        }
        for name, scale in (("sfedavg", 8), ("fedepm", 1), ("sfedprox", 4))
        for k0 in (4, 8, 20)
        for trial in range(5)
    ]
    return pandas.DataFrame(rows).assign(**varied)


def medians_drawn(ax):
    return [line.get_ydata().tolist() for line in ax.lines]


def test_sweep_draws_medians_and_quartiles():
    figure = plots.sweep(table_of_runs())
    (ax,) = figure.axes
    assert [line.get_xdata().tolist() for line in ax.lines] == [[4, 8, 20]] * 3
    # FedEPM, SFedProx, SFedAvg, whatever the order of the table.
    assert medians_drawn(ax) == [[s * 30 / k for k in (4, 8, 20)] for s in (1, 4, 8)]
    assert [t.get_text() for t in figure.legends[0].texts] == ["FedEPM", "SFedProx", "SFedAvg"]
    band = ax.collections[0].get_paths()[0].vertices
    assert {(4.0, 20 / 4), (4.0, 40 / 4), (20.0, 20 / 20), (20.0, 40 / 20)} <= {*map(tuple, band)}
    assert ax.get_yscale() == "log"  # from 0.5 to 100
    assert ax.get_ylabel() == "communication rounds (CR)"
    assert "quartiles" in figure.get_supxlabel()
    linear = plots.sweep(table_of_runs(), scale="linear").axes[0]
    assert linear.get_yscale() == "linear"


def test_sweep_panels():
    table = pandas.concat([table_of_runs(), table_of_runs(clients=100, rounds=7.0)])
    figure = plots.sweep(table, ["rounds", "total_time"], facet="clients")
    assert [ax.get_title() for ax in figure.axes] == [
        "clients $m$ = 50", "clients $m$ = 100", "", "",
    ]  # fmt: skip
    assert [ax.get_ylabel() for ax in figure.axes] == [
        "communication rounds (CR)", "", "total time (TCT)", "",
    ]  # fmt: skip
    assert medians_drawn(figure.axes[1]) == [[7.0] * 3] * 3
    one = table[table["algorithm"] == "fedepm"]
    figure = plots.sweep(one, "total_time", by="clients", facet="local_steps", against="trial")
    assert [t.get_text() for t in figure.legends[0].texts] == ["50", "100"]
    assert len(figure.axes) == 3
    figure = plots.sweep(one, facet=("clients", "local_steps"), against="trial")
    assert len(figure.axes) == 6 and not figure.legends  # FedEPM alone
    assert figure.axes[4].get_title() == "clients $m$ = 100, local steps $k_0$ = 8"
    # More panels than fit side by side go on below.
    figure = plots.sweep(one[one["clients"] == 50], facet="trial")
    assert len({ax.get_subplotspec().rowspan.start for ax in figure.axes}) == 2
    # Cells that were not run are empty panels.
    figure = plots.sweep(one.query("clients == 50 or local_steps == 4"), against="trial",
                         facet=("clients", "local_steps"))  # fmt: skip
    assert [t.get_text() for t in figure.axes[4].texts] == ["no runs"]


def test_sweep_boxes():
    figure = plots.sweep(table_of_runs(), ("rounds", "snr"), kind="box")
    rounds, snr = figure.axes
    centres = [line for line in rounds.lines if line.get_marker() in ("o", "s", "^")]
    assert [line.get_ydata().tolist() for line in centres] == [
        [s * 30 / k for k in (4, 8, 20)] for s in (1, 4, 8)
    ]
    assert [t.get_text() for t in rounds.get_xticklabels()] == ["4", "8", "20"]
    assert len({patch.get_hatch() for patch in rounds.patches}) == 3
    assert "quartiles" in figure.get_supxlabel()
    # A run without a measure does not count: 0, 1, 2, 3 for FedEPM.
    fedepm = next(line for line in snr.lines if line.get_marker() == "o")
    assert fedepm.get_ydata().tolist() == [-8.5] * 3
    assert snr.get_yscale() == "linear"


def test_sweep_against_what_is_no_number():
    ax = plots.sweep(table_of_runs().query("local_steps == 4"), "rounds", "algorithm",
                     by="clients").axes[0]  # fmt: skip
    assert [t.get_text() for t in ax.get_xticklabels()] == ["FedEPM", "SFedProx", "SFedAvg"]
    assert dict(ax.lines[0].get_xydata().tolist()) == {0: 7.5, 1: 30.0, 2: 60.0}
    assert ax.lines[0].get_linestyle() == "None"


def test_sweep_along_rounds_holds_what_has_stopped():
    table = table_of_runs().query("algorithm == 'fedepm' and local_steps == 4").head(3)
    lengths = dict(zip(table["run_id"], (3, 5, 9), strict=True))
    histories = {r: {"objective": 50.0 * (n - np.arange(n))} for r, n in lengths.items()}

    class Swept:
        def to_pandas(self):
            return table

        def histories(self):
            return histories

    (line,) = plots.sweep(Swept(), "mean_objective", "round").axes[0].lines
    # Values 3 2 1, 5 4 3 2 1 and 9 8 7 6 5: their medians, up to the median last round.
    assert line.get_xdata().tolist() == [0, 1, 2, 3, 4]
    assert line.get_ydata().tolist() == [5, 4, 3, 2, 1]
    figure = plots.sweep(table, "mean_objective", "round", histories=histories)
    assert medians_drawn(figure.axes[0]) == [[5, 4, 3, 2, 1]]
    assert figure.axes[0].get_xscale() == "symlog"


def test_sweep_leaves_out_and_says_so():
    table = table_of_runs()
    table.loc[table["trial"] == 4, "diverged"] = True
    table["lam"] = np.where(table["algorithm"] == "fedepm", 1e-6, np.nan)
    figure = plots.sweep(table)
    assert medians_drawn(figure.axes[0])[0] == [25 / 4, 25 / 8, 25 / 20]
    assert "left out: 9 runs that diverged" in figure.get_supxlabel()
    figure = plots.sweep(table, facet="lam")
    assert "left out: 24 runs without lam" in figure.get_supxlabel()
    with pytest.raises(ValueError, match="table must have runs to draw, all are that diverged"):
        plots.sweep(table.assign(diverged=True))


def test_sweep_refuses_to_mix():
    table = pandas.concat([table_of_runs(), table_of_runs(epsilon=0.5)])
    with pytest.raises(
        ValueError, match=r"the runs also differ in epsilon \(epsilon: 0.1, 0.5\), which would be"
    ):
        plots.sweep(table)
    plots.sweep(table, facet="epsilon")
    # Parameters that follow from those of the figure are no mixture.
    plots.sweep(table.assign(eta=1e-5 * table["epsilon"]), facet="epsilon")


def test_sweep_bad_input():
    table = table_of_runs()
    for arguments, message in (
        ({"measure": "cr"}, "measure must be one of .*'rounds'.*, got 'cr'"),
        ({"measure": "diverged"}, "measure must be one of"),
        ({"measure": []}, "measure must name at least one column"),
        ({"against": "rho"}, "against must be one of .*'local_steps'.*, got 'rho'"),
        ({"by": "colour"}, "by must be one of .*'algorithm'"),
        ({"facet": "x"}, "facet must be one of"),
        ({"facet": ("clients", "epsilon", "seed")}, "facet must be one column, or two"),
        ({"facet": "algorithm"}, "by, against and facet must be different columns"),
        ({"kind": "bar"}, "kind must be one of 'line', 'box'"),
        ({"interval": "sd"}, "interval must be one of 'quartiles', 'bootstrap'"),
        ({"measure": "snr", "scale": "log"}, "scale must not be log for snr"),
        ({"against": "round"}, "histories must be given"),
        ({"against": "round", "histories": {}}, "histories must hold every run, 45 are missing"),
        ({"by": "run_id"}, "a figure tells 7 kinds of runs apart, there are 45"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.sweep(table, **arguments)
    with pytest.raises(ValueError, match="measure must have values, 'snr' has none"):
        plots.sweep(table.assign(snr=np.nan), "snr")
    with pytest.raises(ValueError, match="table must have at least one run"):
        plots.sweep(table.head(0))
    with pytest.raises(TypeError, match="table must be a pandas DataFrame or have a method"):
        plots.sweep([1, 2])
    with pytest.raises(ValueError, match="measure must have values, 'snr' has none in these"):
        histories = {r: {"snr": np.full(3, np.inf)} for r in table["run_id"]}
        plots.sweep(table[table["local_steps"] == 4], "snr", "round", histories=histories)


@settings(max_examples=30)
@example([193.0, 63.166666666666664])
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_intervals_hold_the_median(values):
    column = np.array(values)[:, None]
    for interval in INTERVALS.values():
        low, median, high = interval(column)[:, 0]
        # Quantiles are interpolated, which rounds.
        rounding = 1e-12 * max(map(abs, values))
        steps = np.diff([min(values), low, median, high, max(values)])
        assert (steps >= -rounding).all()
        assert median == pytest.approx(np.median(values), rel=1e-12, abs=rounding)
        np.testing.assert_array_equal(interval(column), interval(column))


def test_bootstrap_interval_narrows_with_runs():
    rng = np.random.default_rng(0)
    few, many = (INTERVALS["bootstrap"](rng.normal(size=(n, 1)))[:, 0] for n in (25, 2500))
    assert few[2] - few[0] > 3 * (many[2] - many[0])
    # 1.96 * 1.2533 / sqrt(n) on either side of the median of n normal values.
    assert many[2] - many[0] == pytest.approx(2 * 1.96 * 1.2533 / 50, rel=0.25)


def test_summarize():
    table = summarize(table_of_runs(), ["algorithm", "local_steps"], ["rounds", "snr"])
    row = table.query("algorithm == 'fedepm' and local_steps == 4").set_index("measure")
    assert row.loc["rounds"].tolist()[2:] == [5, 5.0, 7.5, 10.0, 7.5]
    assert row.loc["snr"].tolist()[2:] == [4, -9.25, -8.5, -7.75, -8.5]


def test_sweep_plot_options():
    options = plots.sweep_plot_options
    assert options("rounds:local_steps", ["algorithm", "local_steps"]) == {
        "measure": "rounds", "against": "local_steps", "by": "algorithm", "facet": None,
    }  # fmt: skip
    assert options("snr:epsilon", ["epsilon", "clients", "algorithm"])["facet"] == "clients"
    assert options("snr:round", ["epsilon", "clients", "algorithm"])["facet"] == (
        "epsilon", "clients",
    )  # fmt: skip
    # One algorithm: lines for something else that varies.
    assert options("rounds:epsilon", ["epsilon", "clients"])["by"] == "clients"
    for plot, message in {
        "rounds": "plot must be MEASURE:PARAMETER, as rounds:local_steps, got 'rounds'",
        "cost:epsilon": "plot's measure must be one of 'mean_objective'",
        "rounds:cost": "plot's parameter must be one of 'algorithm'",
    }.items():
        with pytest.raises(ValueError, match=message):
            options(plot)
    with pytest.raises(ValueError, match="the runs differ in mu0, clients, preset: give one value"):
        options("rounds:epsilon", ["epsilon", "algorithm", "mu0", "clients", "preset"])


def test_ticks_of_narrow_panels_do_not_touch():
    figure, axes = plots.new_grid(2, 3, 9.0, 5.0)
    for ax in axes.flat:
        rounds_axis(ax, 300)
    figure.canvas.draw()
    boxes = [t.get_window_extent() for t in axes[0, 0].get_xticklabels()]
    assert all(a.x1 + 1 < b.x0 for a, b in itertools.pairwise(boxes))
    assert axes[0, 0].get_xticklabels()[-1].get_text() == "256"


def history_with(results, **shown):
    """Axis, lines and what the legend says of a figure."""
    ax = plots.history(results, **shown).axes[0]
    return ax, ax.lines, [" ".join(t.get_text().split()) for t in ax.get_legend().texts]


def with_objective(result, values):
    """The result with other values of f/m."""
    f = result.n_clients * np.asarray(values, float)
    return dataclasses.replace(result, history={**result.history, "objective": f})


def test_runs_that_diverged_do_not_flatten_the_others():
    data = small_data()
    quiet = FedEPM(noise="none")
    good = with_objective(run(quiet, data, rounds=3), [0.7, 0.6, 0.55, 0.5])
    worse = with_objective(run(SFedAvg(noise="none"), data, rounds=2), [0.7, 0.9, 1.0])
    broken = with_objective(run(SFedAvg(noise="none"), data, rounds=2), [0.7, 1e3, 1e6])
    peak = with_objective(run(quiet, data, rounds=3, seed=1), [0.7, 60.0, 0.6, 0.5])
    assert [r.diverged for r in (good, worse, broken, peak)] == [False, True, True, False]
    # Not far above: all of it is seen.
    ax, _, texts = history_with([good, worse])
    assert ax.get_ylim()[1] > 1 and texts == ["FedEPM: 3 rounds", "SFedAvg: 2 rounds, diverged"]
    ax, lines, texts = history_with([good, broken], optimum=0.48)
    low, high = ax.get_ylim()
    assert 0.3 < low < 0.48 and 0.7 < high < 0.8 and ax.get_yscale() == "linear"
    assert lines[1].get_ydata()[-1] == 1e6
    assert texts == ["FedEPM: 3 rounds", "SFedAvg: 2 rounds, diverged, leaves the axis"]
    ax, _, texts = history_with([good, peak])
    assert ax.get_ylim()[1] < 1 and texts[1] == "FedEPM, seed 1: 3 rounds, leaves the axis"
    # All diverged, and the optimum has a place on a logarithmic axis too.
    ax, _, texts = history_with([broken], optimum=0.5)
    low, high = ax.get_ylim()
    assert ax.get_yscale() == "log" and 0 < low < 0.5 and high > 1e6
    assert texts == ["SFedAvg: 2 rounds, diverged"]
    negative = with_objective(broken, [-0.7, 1e3, 1e6])
    assert history_with([negative])[0].get_yscale() == "linear"
    # A run of no rounds, at zero, leaves the axis to matplotlib.
    history_with([with_objective(run(quiet, data, rounds=0), [0.0]), broken])


def test_figures_say_of_how_many_runs_they_are():
    table = table_of_runs()
    assert plots.sweep(table).get_supxlabel() == "median and quartiles of 5 runs each"
    assert plots.sweep(table, "snr").get_supxlabel() == "median and quartiles of 4 to 5 runs"
    one = table[table["trial"] == 0]
    assert (
        plots.sweep(one, kind="box")
        .get_supxlabel()
        .startswith("boxes: quartiles and median of 1 run each; whiskers")
    )
    histories = {r: {"objective": np.ones(3)} for r in table["run_id"]}
    few = table[table["local_steps"] == 4].iloc[:-1]
    for part, told in ((few, "4 to 5 runs"), (few[few["trial"] < 4], "4 runs each")):
        figure = plots.sweep(part, "mean_objective", "round", histories=histories)
        assert figure.get_supxlabel() == f"median and quartiles of {told}"


def test_figures_follow_a_dark_style(results):
    """Nothing is drawn in black on black: text, marks and notes take matplotlib's colours."""
    style = Path(__file__).parents[2] / "docs" / "dark.mplstyle"
    for dark in (False, True):
        with matplotlib.rc_context(fname=style if dark else None):
            text = matplotlib.colors.to_rgb(matplotlib.rcParams["text.color"])
            ground = matplotlib.colors.to_rgb(matplotlib.rcParams["figure.facecolor"])
            history = plots.history(results, optimum=0.25).axes[0]
            swept = plots.sweep(table_of_runs(), kind="box")
        assert all(line.get_markerfacecolor() == ground for line in history.lines[:-1])
        near = [history.texts[0].get_color(), history.lines[-1].get_color()]
        near += [swept._supxlabel.get_color()]
        assert near == [tuple(0.65 * t + 0.35 * g for t, g in zip(text, ground, strict=True))] * 3
        medians = [line for line in swept.axes[0].lines if line.get_color() == text]
        assert len(medians) == 9
    for style in (*plots.STYLES.values(), *plots.MORE_STYLES):
        # WCAG: 2 for lines on white, 3 on the dark page.
        assert contrast(style["color"], "white") > 2
        assert contrast(style["color"], "#14181e") > 3


def contrast(one, other):
    """WCAG's contrast of two colours."""
    channels = (np.array(matplotlib.colors.to_rgb(c)) for c in (one, other))
    linear = (np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in channels)
    dark, light = sorted(c @ [0.2126, 0.7152, 0.0722] for c in linear)
    return (light + 0.05) / (dark + 0.05)


def test_a_tradeoff_shows_the_runs_and_not_the_way_to_them():
    def row(epsilon, trial, value):
        return {
            "total_epsilon": epsilon, "trial": trial, "mean_objective": value, "accuracy": 0.754,
            "optimum": 0.566, "optimum_accuracy": 0.757, "majority": 0.752,
        }  # fmt: skip

    rows = [row(e, t, 0.57 + t / 1000) for e in (1, 2) for t in range(3)]
    figure = Tradeoff(rows).plot()
    top, below = figure.axes
    assert top.get_ylim()[1] < 0.58 and below.get_ylim()[0] < 0.752
    texts = [t.get_text() for t in top.get_legend().texts]
    assert texts[-1] == "start, w = 0: 0.693, beyond the axis"
    assert figure.get_supxlabel() == (
        "median and quartiles of 3 splits, one run of each at each epsilon"
    )
    # Runs that end near the start stand beside it.
    top = Tradeoff([row(1, 0, 0.72), row(2, 0, 0.6)]).plot().axes[0]
    assert top.get_ylim()[1] > 0.72 and any(line.get_ydata()[0] == np.log(2) for line in top.lines)
