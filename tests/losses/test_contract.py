"""What every loss there is can do, and one of a user's that is registered by being defined."""

from __future__ import annotations

import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from multiprocessing import get_context

import matplotlib.pyplot as plt
import numpy as np
import pytest
from commands import ROOT, fedepm
from problems import data_for
from pseudo_huber import PseudoHuber
from scipy import sparse

from fedepm_fast import FedEPM, FederatedData, Problem, Result, Store, Sweep, run, sweep, tune
from fedepm_fast.kernels import losses
from fedepm_fast.kernels.losses.lanes import lane_loss, sqrt
from fedepm_fast.losses import OBJECTIVES, Multinomial, Objective, as_objective
from fedepm_fast.losses._agreement import check_derivatives
from fedepm_fast.privacy import LaplaceMechanism

NAMES = (*OBJECTIVES.built_in(), PseudoHuber.name)
#: And those whose derivative a slope bounds, in each of their parts.
CASES = (*NAMES, "squared_hinge, slope 1.5", "poisson, slope 2")
ALGORITHM = FedEPM(mu0=20.0, preset="text")


def one(case):
    """A loss of that name with weights, and data for it."""
    name, _, slope = case.partition(", slope ")
    given = {"slope": float(slope)} if slope else {}
    objective = as_objective(name, beta=0.1, weights=(1.0, 0.0, 2.0, 1.0, 1.0), **given)
    return objective, data_for(objective)


def run_of(name):
    objective, data = one(name)
    return run(ALGORITHM, data, objective=objective, rounds=3, seed=1)


# Mathematics ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_the_loss(name, rng):
    objective, data = one(name)
    objective = objective.fit_to(data)
    b, k = data.labels, objective.n_outputs
    t = rng.normal(size=b.shape if k == 1 else (len(b), k))
    flat = t.reshape(len(b), k)
    slopes = objective.derivative(t, b).reshape(len(b), k)
    second = objective.second_derivative(t, b).reshape(len(b), k, k)
    h = 1e-6
    for j in range(k):
        up, down = flat.copy(), flat.copy()
        up[:, j] += h
        down[:, j] -= h
        up, down = up.reshape(t.shape), down.reshape(t.shape)
        numeric = (objective.loss(up, b) - objective.loss(down, b)) / (2 * h)
        np.testing.assert_allclose(slopes[:, j], numeric, rtol=1e-6, atol=1e-7)
        numeric = (objective.derivative(up, b) - objective.derivative(down, b)) / (2 * h)
        np.testing.assert_allclose(second[:, j], numeric.reshape(len(b), k), rtol=1e-6, atol=1e-7)
    largest = np.linalg.eigvalsh(second).max()
    assert objective.curvature is None or largest <= objective.curvature
    assert objective.slope is None or np.abs(slopes).sum(axis=1).max() <= objective.slope
    if objective.at_zero is not None:
        np.testing.assert_allclose(objective.loss(0 * t, b), objective.at_zero, rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
def test_kernels_are_the_numpy_functions(name, dtype, rng):
    objective, data = one(name)
    points = rng.normal(size=(data.n_clients, Problem(data, objective).n_parameters)) / 2
    points, features = points.astype(dtype), data.features.astype(dtype)
    wide = np.hstack([features, np.zeros((len(features), 130), dtype)])  # rows one by one
    limit = 1e-12 if dtype == np.float64 else 1e-5
    for table in (features, sparse.csr_array(features), wide):
        used = table.shape[1]
        weights = np.append(objective.weights, np.ones(used - 5))
        given = FederatedData(table, data.labels, data.client_sizes)
        problem = Problem(given, objective.changed(weights=tuple(weights)))
        outputs = problem.objective.n_outputs
        x = np.zeros((given.n_clients, outputs, used), dtype)
        x[:, :, :5] = points.reshape(-1, outputs, 5)
        x = x.reshape(given.n_clients, -1)
        rows = losses.pack(
            table, data.labels, data.client_sizes, weights=weights, **problem.objective.packing
        )
        f, g = losses.values_and_gradients(rows, x, reg=problem.reg.astype(dtype))
        assert f.dtype == g.dtype == dtype
        want_f, want_g = problem.values(x), problem.gradients(x)
        np.testing.assert_allclose(f, want_f, rtol=limit)
        np.testing.assert_allclose(g, want_g, rtol=0, atol=limit * np.abs(want_g).max())
        if dtype == np.float64:
            packed = problem.rows
            again, _ = losses.values_and_gradients(packed, x, reg=problem.reg)
            assert packed.layout == rows.layout
            np.testing.assert_array_equal(again, f)


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_compiled_and_that_of_the_equations(name):
    objective, data = one(name)
    got = run_of(name)
    want = run(ALGORITHM, data, objective=objective, rounds=3, seed=1, engine="reference")
    assert (got.engine, want.engine) == ("compiled", "reference")
    np.testing.assert_allclose(got.x, want.x, rtol=0, atol=1e-12 * np.abs(want.Z).max())
    np.testing.assert_allclose(got.history["objective"], want.history["objective"], rtol=1e-11)
    assert (got.accuracy is None) == (objective.task == "regression")
    assert got.accuracy == pytest.approx(want.accuracy) if got.accuracy else want.accuracy is None


# What is done with it -------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_prints_plots_and_saves(name, tmp_path):
    result = run_of(name)
    assert f"{name}, no intercept added, beta 0.1" in " ".join(str(result).split())
    figure = result.plot()
    drawn = figure.axes[0].lines[0].get_ydata()
    np.testing.assert_allclose(drawn, result.history["objective"] / result.n_clients)
    plt.close(figure)
    result.save(tmp_path / "run.npz")
    read = Result.load(tmp_path / "run.npz")
    assert read.objective == result.objective and read.objective["name"] == name
    np.testing.assert_array_equal(read.x, result.x)


@pytest.mark.parametrize("name", NAMES)
def test_sweeps_stores_and_compares(name, tmp_path, capsys):
    objective, data = one(name)
    path = tmp_path / "runs.sqlite"
    goals = [objective, objective.changed(beta=0.5)]
    spec = Sweep(ALGORITHM, data, objective=goals, trials=2, rounds=2, engine="reference")
    done = sweep(spec, store=path, jobs=1, progress=False)
    assert not done.failed
    with Store(path) as store:
        table = store.table()
        assert table["objective"] == [name] * 4 and sorted(table["beta"]) == [0.1, 0.1, 0.5, 0.5]
        for item in spec:
            want = run(
                ALGORITHM, data, objective=item.cell.objective, seed=item.seed, trial=item.trial,
                rounds=2, engine="reference",
            )  # fmt: skip
            found = store.history(item.run_id)["objective"]
            np.testing.assert_array_equal(found, want.history["objective"])
    code, out, _ = fedepm(capsys, "runs", "compare", path, "--by", "objective,beta")
    assert code == 0 and out.count(name) == 2


@pytest.mark.parametrize("name", NAMES)
def test_tunes(name):
    pytest.importorskip("optuna")
    objective, data = one(name)
    found = tune(
        FedEPM(mu0=500.0, noise="none"), data, objective=objective, over="records", folds=2,
        trials=2, rounds=2, jobs=1, engine="reference", progress=False, space={"beta": [0.1, 1.0]},
    )  # fmt: skip
    assert found.parameters["beta"] in (0.1, 1.0) and np.isfinite(found.score)
    assert found.score <= found.default.score


@pytest.mark.parametrize("name", NAMES)
def test_pickles(name):
    objective, data = one(name)
    objective = objective.fit_to(data)
    copy = pickle.loads(pickle.dumps(objective))
    assert copy == objective and copy.packing == objective.packing
    assert OBJECTIVES[name] is type(objective) is type(copy)


def test_processes_find_the_kernels():
    """Compiled once: another process reads the machine code of a user's loss, too."""
    want = run_of(PseudoHuber.name)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        got = pool.submit(run_of, PseudoHuber.name).result()
        compiled = pool.submit(_compiled).result()
    np.testing.assert_array_equal(got.x, want.x)
    assert compiled == []


def _compiled():
    from fedepm_fast.kernels import _jit

    return list(_jit._compiled)


def test_private_runs_take_what_is_bounded():
    algorithm = FedEPM(mechanism=LaplaceMechanism(total_epsilon=1.0))
    for name in CASES:
        objective, data = one(name)
        objective = objective.fit_to(data)
        if name == PseudoHuber.name:
            message = "'pseudo_huber' is a loss of your own"
        elif objective.slope is None:
            message = f"'{name}' has no bound on a record's gradient"
        else:
            run(algorithm, data, objective=objective, rounds=1, engine="reference")
            continue
        with pytest.raises(ValueError, match=message):
            run(algorithm, data, objective=objective, rounds=1)


def test_the_page_names_losses_that_there_are():
    page = (ROOT / "docs" / "guides" / "data.md").read_text(encoding="utf-8")
    rows = re.findall(r'^\| `"(\w+)"` \| (?:\$|\w).* \|$', page.partition("## Objectives")[2], re.M)
    assert set(rows) == set(OBJECTIVES.built_in())


def test_a_name_is_one_loss():
    with pytest.raises(ValueError, match="'logistic' names another objective"):
        type("Own", (PseudoHuber,), {"name": "logistic"})
    assert OBJECTIVES["logistic"].__module__ == "fedepm_fast.losses.logistic"


# A step that is not the loss --------------------------------------------------------------


def _wrong(step, message):
    """A loss with that step is refused, each time, and before any round."""

    class Wrong(PseudoHuber):
        @staticmethod
        def lanes():
            return lane_loss("wrong", step)

    data = data_for(PseudoHuber())
    for _ in range(2):
        with pytest.raises(ValueError, match=re.escape(message)):
            run(ALGORITHM, data, objective=Wrong(), rounds=1)
    run(ALGORITHM, data, objective=Wrong(), rounds=1, engine="reference")


def test_a_step_that_adds_losses_where_there_is_no_row():
    def step(margin, target, parameter, total, product):
        root = sqrt((margin - target) * (margin - target) + 1.0)
        return (margin - target) / root, total + root, product

    message = "the step of Wrong.lanes() must add nothing where there is no row, at (no_margin, "
    _wrong(step, f"{message}no_target) = (0, 0), but adds a loss of 1, with a derivative of 0")


def test_a_step_with_another_derivative():
    def step(margin, target, parameter, total, product):
        root = sqrt((margin - target) * (margin - target) + 1.0)
        return (target - margin) / root, total + (root - 1.0), product

    message = "must give the derivative that Wrong.derivative gives: at t = -3.1379, b = -1.3 it "
    _wrong(step, f"{message}gives 0.878396, NumPy -0.878396")


# Functions that are not each other's derivatives --------------------------------------------


class _Halved(PseudoHuber):
    """A derivative of half the size, which the step shares."""

    def derivative(self, t, b):
        return super().derivative(t, b) / 2

    @staticmethod
    def lanes():
        def step(margin, target, parameter, total, product):
            r = margin - target
            root = sqrt(r * r + 1.0)
            return 0.5 * (r / root), total + (root - 1.0), product

        return lane_loss("halved", step)


class _Bent(PseudoHuber):
    def second_derivative(self, t, b):
        return (1 + (t - b) ** 2) ** -0.5


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (_Halved(), "_Halved.derivative must be the derivative of _Halved.loss in t: at t = "),
        (_Bent(), "_Bent.second_derivative must be the derivative of _Bent.derivative in t: at t"),
    ],
)
def test_functions_that_are_no_derivatives_are_refused(loss, message, engine):
    data = data_for(PseudoHuber())
    for _ in range(2):
        with pytest.raises(ValueError, match=re.escape(message)):
            run(ALGORITHM, data, objective=loss, rounds=1, engine=engine)


def test_a_loss_without_a_second_derivative_runs():
    class Without(PseudoHuber):
        second_derivative = Objective.second_derivative

    assert run(ALGORITHM, data_for(PseudoHuber()), objective=Without(), rounds=1).rounds == 1


def test_every_margin_of_a_multiclass_loss_is_looked_at():
    class Short(Multinomial):
        def second_derivative(self, t, b):
            return np.eye(t.shape[-1]) * np.ones((len(t), 1, 1))

    data = data_for(Multinomial())
    with pytest.raises(ValueError, match=r"Short\.second_derivative must be the derivative of"):
        run(ALGORITHM, data, objective=Short(), rounds=1)


@pytest.mark.parametrize("name", OBJECTIVES.built_in())
def test_built_in_losses_would_pass(name):
    loss = OBJECTIVES[name]()
    loss = loss.fit_to_labels(data_for(loss).labels)
    own = type("Own", (type(loss),), {"__module__": "own"})
    check_derivatives(own(**{f.name: getattr(loss, f.name) for f in fields(loss)}))
