"""Doing sweeps: nothing but what a run consists of decides what comes out."""

from __future__ import annotations

import io
import warnings

import commands
import numpy as np
import pytest
from problems import small_data
from small_sweeps import TIMES, small_sweep, timeless

from fedepm_fast import FedEPM, Logistic, SFedAvg, SFedProx, Store, Sweep, datasets, run, sweep
from fedepm_fast._common.measures import OF_RUN
from fedepm_fast._common.progress import counting
from fedepm_fast.data import sources
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.kernels.losses import _packed
from fedepm_fast.randomness import split_seed
from fedepm_fast.sweeps import SweepInterrupted, _backends, _execute, _trials

# Doing them ---------------------------------------------------------------------------


def test_a_run_of_a_sweep_is_the_run_itself():
    algorithms = [FedEPM(local_steps=4), SFedAvg(local_steps=2), SFedProx(local_steps=2)]
    result = sweep(Sweep(algorithms, clients=12, trials=[0, 3], seed=7, max_rounds=6), keep_x=True)
    table = result.to_pandas()
    rows = iter(table.to_dict("records"))
    for algorithm in algorithms:
        for trial in (0, 3):
            data = datasets.adult(clients=12, seed=split_seed(7, trial))
            want = run(algorithm, data, seed=7, trial=trial, max_rounds=6, every_accuracy=False)
            row = next(rows)
            assert (row["algorithm"], row["local_steps"], row["clients"], row["trial"]) == (
                algorithm.name, algorithm.local_steps, 12, trial,
            )  # fmt: skip
            for name in ("mean_objective", "rounds", "iterations", "snr", "accuracy", "diverged"):
                assert row[name] == getattr(want, name)
            assert row["reasons"] == "+".join(want.reasons)
            assert row["grad_mean_sq"] == want.history["grad_mean_sq"][-1]
            history = result.history(row["run_id"])
            assert history.keys() == want.history.keys()
            for name in history.keys() - set(TIMES):
                np.testing.assert_array_equal(history[name], want.history[name])
    assert table["lam"].notna().tolist() == [True] * 2 + [False] * 4
    assert table.columns[:3].tolist() == ["run_id", "algorithm", "local_steps"]
    assert {"participation", "epsilon", "eta", "learning_rate", "partition", "objective",
            "seed", *OF_RUN} <= set(table.columns)  # fmt: skip


@pytest.mark.skipif(JIT_DISABLED, reason="of compiled runs")
def test_trials_in_memory_of_their_own_are_runs(monkeypatch):
    algorithms = [FedEPM(), FedEPM(noise="none", mu0=1e-3), SFedProx(local_steps=2)]
    spec = Sweep(algorithms, clients=[9, 30], partition=["random", "equal"], trials=3, max_rounds=7)
    outcomes, trials = [], _trials.Trials.run
    monkeypatch.setattr(
        _trials.Trials, "run", lambda *args: outcomes.append(trials(*args)) or outcomes[-1]
    )
    result = sweep(spec, keep_x=True, jobs=2)
    assert len(outcomes) == len(spec) and None not in outcomes
    for one in spec:
        data = one.cell.source.split(split_seed(one.seed, one.trial))
        want = run(one.cell.algorithm, data, trial=one.trial, max_rounds=7, every_accuracy=False)
        history = result.history(one.run_id)
        assert history.keys() == want.history.keys()
        for name in history.keys() - set(TIMES):
            np.testing.assert_array_equal(history[name], want.history[name])
        measures = result.store.get(one.run_id).measures
        for name in ("mean_objective", "rounds", "snr", "accuracy", "diverged", "guarantee"):
            np.testing.assert_equal(measures[name], getattr(want, name))


@pytest.mark.skipif(JIT_DISABLED, reason="of compiled runs")
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("kind", ["indicators", "counts", "float32", "float64"])
def test_trials_of_any_numbers_are_runs(rng, kind, large, monkeypatch, tmp_path):
    if large:  # so that rows are packed in as few bytes as hold them
        monkeypatch.setattr(_packed, "_WIDE_UP_TO", 0)
    table = {
        "indicators": rng.integers(0, 2, (60, 5)).astype(float),
        "counts": rng.integers(0, 300, (60, 5)).astype(float),
        "float32": rng.normal(size=(60, 5)).astype(np.float32).astype(float),
        "float64": rng.normal(size=(60, 5)),
    }[kind]
    table[:, 0] = 1  # a row of zeros would be a tie
    np.savez(tmp_path / "t.npz", X=table, y=rng.integers(0, 2, 60))
    options = {"source": tmp_path / "t.npz", "clients": 4, "scale": None}
    source = sources.from_options(options, loss=Logistic())
    algorithm = FedEPM(noise="none", mu0=1e5)
    spec, trials = Sweep(algorithm, source, trials=2, max_rounds=3), _trials.Trials()
    result = sweep(spec, keep_x=True)
    for one in spec:
        assert trials.run(one.cell, one.seed, one.trial) is not None
        want = run(algorithm, source.split(split_seed(one.seed, one.trial)), trial=one.trial,
                   max_rounds=3, every_accuracy=False)  # fmt: skip
        history = result.history(one.run_id)
        for name in history.keys() - set(TIMES):
            np.testing.assert_array_equal(history[name], want.history[name])


@pytest.mark.skipif(JIT_DISABLED, reason="of compiled runs")
def test_runs_with_ties_are_not_all_done_twice(rng, monkeypatch, tmp_path):
    X = rng.normal(size=(60, 5))
    X[7] = 0  # on the border between the classes, whatever the point
    np.savez(tmp_path / "t.npz", X=X, y=rng.integers(0, 2, 60))
    options = {"source": tmp_path / "t.npz", "clients": 4, "scale": None}
    source, done = sources.from_options(options, loss=Logistic()), []
    of_trial = _trials.Repeatable.__call__
    monkeypatch.setattr(
        _trials.Repeatable, "__call__", lambda *args: done.append(args) or of_trial(*args)
    )
    result = sweep(Sweep(FedEPM(), source, trials=40, max_rounds=3), jobs=1)
    assert len(done) == _trials._LEFT and not result.failed
    want = run(FedEPM(), source.split(split_seed(0, 39)), trial=39, max_rounds=3)
    assert result.table()["accuracy"][-1] == want.accuracy


def test_trials_differ_in_split_selection_and_noise():
    result = sweep(Sweep(FedEPM(), clients=5, trials=4, rounds=0))
    starts = {result.history(run_id)["objective"][0] for run_id in result}
    assert len(starts) == 4
    fixed = sweep(Sweep(FedEPM(noise="none"), small_data(), trials=3, rounds=0))
    assert len({fixed.history(run_id)["objective"][0] for run_id in fixed}) == 1


def test_order_and_grouping_change_nothing(expected, monkeypatch):
    runs = list(small_sweep())
    np.random.default_rng(0).shuffle(runs)
    shuffled = Sweep.from_cells([])
    shuffled._set(runs)
    one = sweep(shuffled)
    monkeypatch.setattr(_backends.Threads, "target", 1e9)
    other = sweep(shuffled, jobs=2)
    ids = [r.run_id for r in small_sweep()]
    for result in (one, other):
        result.run_ids = tuple(ids)
        assert timeless(result) == expected


def test_sharing_a_split_changes_nothing(expected, monkeypatch):
    made = []
    split = sources.Synthetic.split
    monkeypatch.setattr(
        sources.Synthetic, "split", lambda self, seed: made.append(seed) or split(self, seed)
    )
    assert timeless(sweep(small_sweep(), jobs=1)) == expected
    assert len(set(made)) == 6  # one for each trial, whatever the cell


def test_a_store_is_resumed_and_extended(tmp_path, monkeypatch):
    done = []
    execute = _execute.execute
    monkeypatch.setattr(
        _execute, "execute", lambda cell, s, t, data: done.append(t) or execute(cell, s, t, data)
    )
    path = tmp_path / "a.sqlite"
    first = sweep(small_sweep(trials=2), store=path)
    assert len(done) == 6
    second = sweep(small_sweep(trials=4), store=path)
    assert sorted(done[6:]) == [2, 2, 2, 3, 3, 3]
    again = sweep(small_sweep(trials=4), store=path)
    assert len(done) == 12
    assert timeless(second) == timeless(again) == timeless(sweep(small_sweep(trials=4)))
    assert timeless(first) == timeless(sweep(small_sweep(trials=2)))
    with Store(path) as store:
        assert len(store) == 12
        assert len(sweep(small_sweep(trials=4), store=store)) == 12
        assert len(store) == 12  # still open


def test_what_another_program_stores_meanwhile_is_not_done_again(tmp_path, monkeypatch):
    want = sweep(small_sweep(), store=tmp_path / "other.sqlite")
    records = [want.store.get(run_id) for run_id in want]
    execute, path, done = _execute.execute, tmp_path / "a.sqlite", []

    def meanwhile(cell, seed, trial, data):
        done.append(trial)
        if len(done) == 1:
            with Store(path) as other:
                other.add(record for record in records if record.trial >= 2)
        return execute(cell, seed, trial, data)

    monkeypatch.setattr(_execute, "execute", meanwhile)
    told = []
    result = sweep(small_sweep(), store=path, jobs=1, progress=lambda *counts: told.append(counts))
    assert sorted(done) == [0, 0, 0, 1, 1, 1]
    assert told[-1] == (18, 18, 0)
    assert timeless(result) == timeless(want)


def test_two_programs_in_step_part(tmp_path, monkeypatch):
    """One whose runs another stores, each a moment before, goes on elsewhere."""
    want = sweep(small_sweep(trials=40), store=tmp_path / "other.sqlite")
    execute, path, done = _execute.execute, tmp_path / "a.sqlite", []
    other = Store(path)
    monkeypatch.setattr(_backends.Threads, "target", 1e-9)  # one by one

    def faster(cell, seed, trial, data):
        done.append(trial)
        if len(done) <= 5:
            other.add([want.store.get(cell.run_id(seed, trial))])
        return execute(cell, seed, trial, data)

    monkeypatch.setattr(_execute, "execute", faster)
    assert timeless(sweep(small_sweep(trials=40), store=path, jobs=1)) == timeless(want)
    assert sorted(done) == sorted([*range(40)] * 3)
    assert done[:2] == [0, 0] and done != sorted(done)


def test_a_run_that_raises_is_recorded_and_tried_again(tmp_path, monkeypatch):
    execute = _execute.execute
    commands.fail_one_trial(monkeypatch, "this one\nfails")
    path = tmp_path / "a.sqlite"
    result = sweep(small_sweep(), store=path)
    assert list(result.failed.values()) == ["ValueError: this one\nfails"]
    assert repr(result) == "<SweepResult of 18 runs, 1 failed>"
    (run_id,) = result.failed
    assert result.history(run_id) == {}
    row = result.to_pandas().set_index("run_id").loc[run_id]
    assert (row["algorithm"], row["trial"]) == ("sfedavg", 1)
    assert np.isnan(row["mean_objective"])
    monkeypatch.setattr(_execute, "execute", execute)
    assert timeless(sweep(small_sweep(), store=path)) == timeless(sweep(small_sweep()))


def test_a_split_that_fails_in_a_later_trial_is_recorded(monkeypatch):
    split = sources.Synthetic.split

    def fail(self, seed):
        if seed == split_seed(0, 4):
            raise ValueError("no such split")
        return split(self, seed)

    monkeypatch.setattr(sources.Synthetic, "split", fail)
    result = sweep(small_sweep(), jobs=2)
    assert set(result.failed.values()) == {"ValueError: no such split"}
    assert len(result.failed) == 3


def test_a_result_that_cannot_be_recorded_fails_alone(monkeypatch):
    spec = Sweep(FedEPM(), clients=9, trials=3, max_rounds=3)  # a block of runs of one thread
    want, measured = timeless(sweep(spec, jobs=1)), _execute.measured

    def fail(result):
        if result.trial == 1:
            raise ArithmeticError("of this one")
        return measured(result)

    monkeypatch.setattr(_execute, "measured", fail)
    result = sweep(spec, jobs=1)
    failed = spec.runs[1].run_id
    assert dict(result.failed) == {failed: "ArithmeticError: of this one"}
    (got, histories), (columns, kept) = timeless(result), want
    assert histories == {**kept, failed: {}}
    for name, column in columns.items():
        assert [got[name][k] for k in (0, 2)] == [column[k] for k in (0, 2)]


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_run_that_diverges_is_a_result(backend):
    wild = Sweep(
        SFedAvg(learning_rate=1e6),
        sources.Synthetic("least_squares", clients=4, samples=40, features=3),
        objective="least_squares",
        trials=3,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = sweep(wild, backend=backend, jobs=1)
    assert result.failed == {}
    assert result.to_pandas()["diverged"].all()
    assert set(result.table()["reasons"]) == {"diverged"}


def test_progress_is_told_and_nothing_is_shown_without_a_terminal(capsys):
    told = []
    sweep(small_sweep(), progress=lambda *counts: told.append(counts), jobs=2)
    done = [counts[0] for counts in told]
    assert done == sorted(done)
    assert told[-1] == (18, 18, 0)
    sweep(small_sweep())
    assert capsys.readouterr() == ("", "")


def test_the_bar_counts(monkeypatch):
    """On a terminal: a bar that begins with what there was, and counts what failed."""
    monkeypatch.setattr("sys.stderr", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    with counting(True, 5, 20) as shown:
        shown.update([None, None, None, "no"], others=1)
    written = terminal.getvalue()
    assert "5/20" in written
    last = written[written.rindex("runs") :]
    assert "10/20" in last and "1 failed" in last


def test_ctrl_c_keeps_what_finished(tmp_path):
    def interrupt(done, total, failed):
        if done >= 5:
            raise KeyboardInterrupt

    path = tmp_path / "a.sqlite"
    with pytest.raises(SweepInterrupted, match=r"interrupted, \d+ of 18 runs are kept in") as told:
        sweep(small_sweep(), store=path, jobs=1, progress=interrupt)
    with Store(path) as store:
        kept = len(store)
    assert 5 <= kept < 18
    assert f"{kept} of 18" in str(told.value)
    assert timeless(sweep(small_sweep(), store=path)) == timeless(sweep(small_sweep()))
    with pytest.raises(SweepInterrupted, match="without a store nothing is kept"):
        sweep(small_sweep(), jobs=1, progress=interrupt)


def test_private_runs_in_a_sweep():
    from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism

    mechanisms = [
        LaplaceMechanism(total_epsilon=epsilon, public_scaling=True) for epsilon in (1.0, 5.0)
    ]
    mechanisms.append(GaussianMechanism(total_epsilon=1.0, public_scaling=True))
    algorithms = [FedEPM(mechanism=mechanism, local_steps=2) for mechanism in mechanisms]
    result = sweep(Sweep([*algorithms, FedEPM()], clients=5, trials=2, rounds=2))
    table = result.to_pandas()
    assert not result.failed
    assert table["mechanism"].tolist()[:6] == ["laplace"] * 4 + ["gaussian"] * 2
    assert table["total_epsilon"].tolist()[:6] == [1.0, 1.0, 5.0, 5.0, 1.0, 1.0]
    assert table["mechanism"].isna().tolist()[6:] == [True, True]
    want = run(algorithms[1], datasets.adult(clients=5, seed=split_seed(0, 1)), seed=0, trial=1,
               rounds=2)  # fmt: skip
    assert table["mean_objective"][3] == want.mean_objective
    with pytest.raises(ValueError, match="rounds must be given"):
        Sweep(algorithms[0], clients=5)
