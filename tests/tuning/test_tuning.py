"""Tuning: what goes wrong is told, and what comes out is ready to be used."""

from __future__ import annotations

import dataclasses
import json
import tomllib

import numpy as np
import optuna
import pytest
from problems import own_logistic, small_data
from small_tunings import ALGORITHM, small_tune, timeless

from fedepm_fast import (
    DivergenceWarning,
    FedEPM,
    Huber,
    LeastSquares,
    Logistic,
    SFedAvg,
    Sweep,
    datasets,
    run,
    tune,
)
from fedepm_fast.data import standardised
from fedepm_fast.privacy import LaplaceMechanism

# What goes wrong ----------------------------------------------------------------------


def test_runs_that_diverge_are_never_the_best():
    result = small_tune(
        SFedAvg(learning_rate=0.02, noise="none"), space={"learning_rate": [0.02, 1e3]},
        trials=6, rounds=30, objective=LeastSquares(), data=small_data(task="regression"),
    )  # fmt: skip
    lost = [t for t in result.trials if t.parameters["learning_rate"] == 1e3]
    assert lost
    for trial in lost:
        assert (trial.state, trial.score, trial.fold_scores) == ("diverged", None, ())
        assert trial.error.startswith("fold 0: the run diverged after round")
    assert result.algorithm.learning_rate == 0.02
    assert f"{len(lost)} diverged" in str(result)
    # The default may be the one that diverges.
    result = small_tune(
        SFedAvg(learning_rate=1e3, noise="none"), space={"learning_rate": (0.01, 0.02)},
        trials=2, rounds=30, objective=LeastSquares(), data=small_data(task="regression"),
    )  # fmt: skip
    assert result.best.number == 1
    assert result.improvement is None
    assert "diverged: fold 0" in str(result)
    with pytest.raises(RuntimeError, match="none of 1 trials has a score; the first: fold 0: the"):
        small_tune(
            SFedAvg(learning_rate=1e3, noise="none"), space={"learning_rate": (0.01, 0.02)},
            trials=1, rounds=30, objective=LeastSquares(), data=small_data(task="regression"),
        )  # fmt: skip


def test_parameters_that_do_not_fit_the_data_fail_with_their_reason():
    space = {"coverage_rounds": [None, 1]}
    storage = optuna.storages.InMemoryStorage()
    for trials in (3, 6):
        result = small_tune(space=space, trials=trials, sampler="random", storage=storage)
    states = {t.parameters["coverage_rounds"]: t.state for t in result.trials}
    assert states == {None: "complete", 1: "failed"}
    (error,) = {t.error for t in result.trials if t.state == "failed"}
    assert error.startswith("ValueError: coverage_rounds")
    assert timeless(result) == timeless(small_tune(space=space, trials=6, sampler="random"))
    # In the algorithm as it is given, it is a mistake of the caller's.
    with pytest.raises(ValueError, match="coverage_rounds"):
        small_tune(dataclasses.replace(ALGORITHM, coverage_rounds=1))


def test_the_default_counts_even_outside_the_space():
    result = small_tune(space={"mu0": (1e3, 1e4, "log"), "local_steps": [1]}, trials=3)
    assert result.default.parameters == {"mu0": 20.0, "local_steps": 2}
    assert result.best is result.default
    assert result.algorithm is ALGORITHM
    assert "no trial is better than the algorithm as it was given" in str(result)
    assert "  objective             logistic, no intercept added, beta 0.001\n" in str(result)
    result = small_tune(data=standardised(small_data()), space={"local_steps": [1]}, trials=1)
    text = " ".join(str(result).split())
    assert "objective logistic, an intercept added as the last feature, beta 0.001 " in text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"space": {}}, "space must be a mapping"),
        ({"space": {"gamma": [1]}}, "space must name parameters of fedepm or beta, got 'gamma'"),
        ({"space": {"mechanism": [None]}}, "space must name parameters of fedepm"),
        ({"space": {"lam": (1.0, 0.1)}}, "space of lam must have low < high"),
        ({"space": {"lam": (0.0, 0.1, "log")}}, "space of lam must have low > 0"),
        ({"space": {"lam": (1e-3, 0.1, "cubic")}}, "space of lam: the scale must be one of"),
        ({"space": {"lam": (0.1,)}}, "space of lam must be .low, high."),
        ({"space": {"lam": 0.1}}, "space of lam must be a range"),
        ({"space": {"lam": (-1.0, 0.1)}}, "space of lam: lam must be a finite number"),
        ({"space": {"lam": [float("nan")]}}, "space of lam: lam must be a finite number"),
        ({"space": {"participation": (0.0, 1.0)}}, "space of participation: participation must"),
        ({"space": {"local_steps": (1.5, 4)}}, "space of local_steps: local_steps must be an int"),
        ({"space": {"local_steps": []}}, "space of local_steps must be a list of different"),
        ({"space": {"local_steps": [4, 4]}}, "space of local_steps must be a list of different"),
        ({"space": {"noise": ["gamma"]}}, "space of noise: noise must be one of"),
        ({"space": {"noise": "none"}}, "space of noise must be a list of values"),
        ({"folds": 1}, "folds must be an integer >= 2"),
        ({"folds": 7}, "7 > 6; folds=6 holds each out alone, over='records' holds out a part"),
        ({"folds": 99, "over": "records"}, "folds must be such that each holds records out"),
        ({"over": "rows"}, "over must be one of"),
        ({"score": "f1"}, "score must be one of"),
        ({"trials": 0}, "trials must be an integer >= 1"),
        ({"sampler": "magic"}, "sampler must be one of"),
        ({"sampler": 3}, "sampler must be one of"),
        ({"pruner": "magic"}, "pruner must be one of"),
        ({"study": ""}, "study must be a name"),
        ({"storage": 3}, "storage must be a URL, a path or a storage of Optuna"),
        ({"jobs": 0}, "jobs must be an integer >= 1"),
        ({"rounds": 3, "stopping": "text"}, "rounds and stopping exclude each other"),
        ({"algorithm": "fedepm"}, "algorithm must be FedEPM"),
        ({"algorithm": FedEPM(mechanism=LaplaceMechanism(total_epsilon=1.0))},
         "spends budget.*fedepm_fast.privacy.plan"),
        ({"algorithm": FedEPM(lam=0.0), "space": None}, "space must be given where lam is 0"),
    ],
)  # fmt: skip
def test_bad_input_is_told(changed, message):
    with pytest.raises((ValueError, TypeError), match=message):
        small_tune(**changed)


def test_what_would_change_the_score_is_not_tuned():
    data = small_data(task="regression")
    with pytest.raises(ValueError, match="'delta', which changes what is minimised"):
        small_tune(data=data, objective=Huber(), space={"delta": (0.1, 1.0)})
    with pytest.raises(ValueError, match="score must be 'loss' for the huber objective"):
        small_tune(data=data, objective=Huber(), score="accuracy")


# Results ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    return small_tune(
        dataclasses.replace(ALGORITHM, mu0=500.0), trials=12, rounds=None, max_rounds=4,
        space={"mu0": (5.0, 1e3, "log"), "beta": (1e-4, 1.0, "log"), "local_steps": [2, 4]},
    )  # fmt: skip


def test_a_result_is_ready_to_be_used(result):
    best = min(result.trials, key=lambda t: t.score)
    assert result.best is best
    assert best.number > 0
    assert result.parameters == best.parameters
    values = dict(best.parameters)
    assert result.objective == Logistic(beta=values.pop("beta"))
    assert result.algorithm == dataclasses.replace(ALGORITHM, **values)
    gain = result.improvement
    assert gain.mean == pytest.approx(result.default.score - result.score)
    assert gain.mean > 0
    assert f"better by             {gain.mean:.6f} +- " in str(result)
    assert "logistic, no intercept added" in str(result)
    table = result.to_pandas()
    assert table["score"].tolist() == [t.score for t in result.trials]
    assert table["fold_2"].tolist() == [t.fold_scores[2] for t in result.trials]
    assert table["mu0"][0] == 500.0
    assert (table["rounds"] <= 4).all()
    shares = result.importance()
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) == {"mu0", "beta", "local_steps"}
    for name, (low, high) in (("mu0", (5.0, 1e3)), ("beta", (1e-4, 1.0))):
        at = np.log(best.parameters[name] / low) / np.log(high / low)
        assert (name in result.at_the_end) == (not 0.05 < at < 0.95)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["score"] == result.score


def test_code_and_specification_are_the_tuned_algorithm(result):
    made = {"data": small_data()}
    exec(result.code(), made)
    assert made["algorithm"] == result.algorithm
    np.testing.assert_array_equal(
        made["result"].x,
        run(result.algorithm, small_data(), objective=result.objective, max_rounds=4).x,
    )
    text = result.toml({"source": "synthetic", "clients": 4, "partition": None})
    (cell,) = Sweep.from_dict(tomllib.loads(text)).cells
    for name in ("mu0", "lam", "eta", "noise", "local_steps"):
        assert getattr(cell.algorithm, name) == getattr(result.algorithm, name)
    assert (cell.objective.beta, cell.max_rounds) == (result.objective.beta, 4)
    assert cell.source.n_clients == 4
    assert tomllib.loads(result.toml())["data"] == {}


def test_the_plot_shows_every_trial(result, tmp_path):
    figure = result.plot(tmp_path / "scores.png", ["mu0", "beta"])
    assert (tmp_path / "scores.png").stat().st_size > 10_000
    ax = figure.axes[0]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    places = np.array([[t.parameters["mu0"], t.parameters["beta"]] for t in result.trials])
    drawn = [c.get_offsets() for c in ax.collections if len(c.get_offsets()) == len(places)]
    np.testing.assert_allclose(drawn[0], places)
    labels = ax.get_legend_handles_labels()[1]
    assert labels == [
        f"{name}: {t.score:.4f} ± {t.standard_error:.4f}"
        for name, t in (("as given", result.default), ("best", result.best))
    ]
    np.testing.assert_allclose(ax.collections[-1].get_offsets()[0], places[result.best.number])
    line = result.plot(parameters=["local_steps"]).axes[0]
    assert [t.get_text() for t in line.get_xticklabels()] == ["2", "4"]
    for wrong in (["mu0", "mu0"], ["lam"], []):
        with pytest.raises(ValueError, match="parameters must be one or two of mu0, beta"):
            result.plot(parameters=wrong)


def test_code_names_an_own_loss(result):
    own = own_logistic(beta=0.25)
    changed = dataclasses.replace(result, objective=own)
    assert "objective=own_logistic.changed(beta=0.25)" in changed.code()
    assert "ScalarLoss" not in changed.code()
    with pytest.raises(ValueError, match="a loss of your own has no place in a specification"):
        changed.toml()


def test_runs_that_diverge_behind_a_trial_are_silent(recwarn):
    for _ in range(3):
        with pytest.raises(RuntimeError, match="none of 2 trials has a score"):
            tune(
                FedEPM(alpha=1e300), datasets.adult(clients=10, seed=0), trials=2, folds=2,
                max_rounds=30, progress=False,
            )  # fmt: skip
    assert not [w for w in recwarn if issubclass(w.category, DivergenceWarning)]
