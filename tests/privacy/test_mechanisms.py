"""Sensitivity, clipping and noise of the private mechanisms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from fedepm_fast import (
    FedEPM,
    FederatedData,
    Huber,
    Logistic,
    Multinomial,
    Poisson,
    Problem,
    SFedAvg,
    SFedProx,
    SquaredHinge,
)
from fedepm_fast.mechanisms import PrivacyPlan
from fedepm_fast.privacy import (
    GaussianMechanism,
    LaplaceMechanism,
    clip_rows,
    upload_sensitivity,
)
from fedepm_fast.private_runs import private_problem
from fedepm_fast.randomness import CounterRandomness
from fedepm_fast.reference import fedepm_iterates, penalty_parameter, soft_threshold

vectors = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5).map(np.array)


@given(vectors, st.integers(0, 2**32), st.floats(0, 1e3))
def test_soft_thresholding_moves_no_further_than_its_argument(t, seed, a):
    moved = t + np.random.default_rng(seed).normal(size=t.size)
    change = np.abs(soft_threshold(moved, a) - soft_threshold(t, a))
    assert (change <= np.abs(moved - t) * (1 + 1e-9) + 1e-9 * np.abs(t)).all()


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from([1, 2]), st.floats(1e-6, 1e6), st.booleans())
def test_clipped_rows_are_within_the_bound_and_point_the_same_way(seed, order, bound, is_sparse):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(20, 7)) * 10.0 ** rng.integers(-8, 8, (20, 1))
    rows[rng.random(rows.shape) < 0.3] = 0
    rows[0] = 0
    given = sparse.csr_array(rows) if is_sparse else rows
    clipped = clip_rows(given, bound, order)
    if is_sparse:
        clipped = clipped.toarray()
    norms = np.linalg.norm(clipped.astype(np.longdouble), ord=order, axis=1)
    assert (norms <= bound).all()
    before = np.linalg.norm(rows, ord=order, axis=1)
    inside = before <= bound * (1 - 1e-9)
    np.testing.assert_array_equal(clipped[inside], rows[inside])
    np.testing.assert_allclose(norms[~inside].astype(float), bound, rtol=1e-12)
    scale = np.where(inside, 1.0, bound / np.where(before == 0, 1, before))
    np.testing.assert_allclose(clipped, rows * scale[:, None], rtol=1e-12)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@pytest.mark.parametrize("order", [1, 2])
def test_every_sparse_format_is_clipped(form, order, rng):
    rows = np.where(rng.random((8, 5)) < 0.5, rng.normal(size=(8, 5)), 0)
    clipped = clip_rows(sparse.coo_array(rows).asformat(form), 0.5, order)
    np.testing.assert_allclose(clipped.toarray(), clip_rows(rows, 0.5, order), rtol=1e-14)


def test_entries_that_are_given_twice_are_added_up():
    twice = sparse.csr_array((np.full(4, 0.5), np.zeros(4, int), [0, 4]), shape=(1, 1))
    for order in (1, 2):
        assert clip_rows(twice, 1.0, order).toarray() == pytest.approx(1.0)
    assert twice.nnz == 4  # as it was


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e200, 1e308])
@pytest.mark.parametrize("bound", [1e-250, 1.0, 1e250])
@pytest.mark.parametrize("order", [1, 2])
def test_rows_of_any_size_are_within_the_bound(size, bound, order):
    rows = size * np.array([[1.0, -1.0, 0.5], [0, 0, 1e-3], [0, 0, 0]])
    with np.errstate(over="raise", invalid="raise"):
        clipped = clip_rows(rows, bound, order).astype(np.longdouble)
    norms = np.abs(clipped).sum(axis=1) if order == 1 else np.sqrt((clipped**2).sum(axis=1))
    assert (norms <= bound).all()
    if size < bound / 3:
        np.testing.assert_array_equal(clipped, rows)


def one_client(rows, labels):
    return Problem(FederatedData(rows, labels, [len(labels)]), "logistic")


def movement(algorithm, problem, other, start, x, tau, order):
    """How far the upload moves between two datasets, and the bound."""
    plan = PrivacyPlan(
        np.array([2 * algorithm.mechanism.clip / problem.data.n_samples]),
        np.ones(1),
        np.ones(1),
        0.0,
    )
    ends = []
    for p in (problem, other):
        G = p.gradient(0, x)[None]
        *_, (w, mu) = fedepm_iterates(
            algorithm, start[None], x, G, algorithm.steps(p.data.client_sizes), tau
        )
        ends.append(w[0])
        bound = algorithm.noise_scale(p, np.array([0]), (start - x)[None], G, mu, tau, plan)
    return np.linalg.norm(ends[0] - ends[1], ord=order), bound[0]


@pytest.mark.parametrize("mechanism", [
    LaplaceMechanism(total_epsilon=1.0, clip=0.3), GaussianMechanism(total_epsilon=1.0, clip=0.3),
])  # fmt: skip
@pytest.mark.parametrize("objective", [
    Logistic(), Huber(delta=0.7), Multinomial(classes=4), SquaredHinge(slope=1.5),
    Poisson(slope=2.0),
])  # fmt: skip
def test_a_records_gradient_is_within_the_clip_whatever_the_loss(objective, mechanism, rng):
    largest = 0.0
    for _ in range(60):
        row = rng.normal(size=(1, 3)) * 10.0 ** rng.integers(-3, 4)
        label = float(rng.integers(0, 4 if objective.task == "multiclass" else 2))
        problem = Problem(FederatedData(row, [label], [1]), objective)
        clipped = private_problem(mechanism, problem)
        x = rng.normal(size=problem.n_parameters) * 10.0 ** rng.integers(-1, 4)
        gradient = clipped.gradient(0, x) - clipped.reg[0] * x
        size = np.linalg.norm(gradient, ord=mechanism.order)
        assert size <= mechanism.clip * (1 + 1e-12) + 1e-12 * np.abs(x).max()
        largest = max(largest, size)
    assert largest > 0.6 * mechanism.clip


@pytest.mark.parametrize("mechanism", [
    LaplaceMechanism(total_epsilon=1.0, clip=0.3), GaussianMechanism(total_epsilon=1.0, clip=0.3),
])  # fmt: skip
def test_residuals_are_clipped_with_their_rows(mechanism, rng):
    """A linear law of the labels holds for clipped rows, too; classes have nothing to scale."""
    A, w = rng.normal(size=(40, 3)) * 3, np.array([1.0, -2.0, 0.5])
    for objective, labels in (
        (Huber(delta=0.7, beta=0.0), A @ w),
        (SquaredHinge(slope=1.0), A[:, 0] > 0),
    ):
        data = FederatedData(A, labels.astype(float), [40])
        clipped = private_problem(mechanism, Problem(data, objective))
        factor = clipped.data.features[:, 0] / A[:, 0]
        assert factor.min() < 0.2
        want = labels * factor if isinstance(objective, Huber) else labels
        np.testing.assert_allclose(clipped.data.labels, want, rtol=1e-14)
    clipped = private_problem(mechanism, Problem(FederatedData(A, A @ w, [40]), Huber(0.0)))
    np.testing.assert_allclose(clipped.gradient(0, w), 0, atol=1e-15)


@pytest.mark.parametrize("k0", [1, 4, 12, 20])
@pytest.mark.parametrize("mechanism", [
    LaplaceMechanism(epsilon_per_round=1.0, clip=0.3),
    GaussianMechanism(total_epsilon=1.0, clip=0.3),
])  # fmt: skip
def test_no_neighbour_moves_an_upload_beyond_its_sensitivity(k0, mechanism, rng):
    n, order, closest = 4, mechanism.order, 0.0
    for _ in range(150):
        d = int(rng.integers(1, 6))
        rows = clip_rows(rng.normal(size=(d, n)), mechanism.clip, order)
        labels = rng.integers(0, 2, d).astype(float)
        other_rows, other_labels = rows.copy(), labels.copy()
        x = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4)
        if rng.random() < 0.5:
            other_rows[0] = clip_rows(rng.normal(size=(1, n)), mechanism.clip, order)[0]
            other_labels[0] = rng.integers(0, 2)
        else:
            # The worst pair: one direction, each label as wrong as can be.
            x = np.full(n, 1e4)
            direction = np.eye(n)[0] if order == 1 else np.full(n, n**-0.5)
            rows[0], other_rows[0] = mechanism.clip * direction, -mechanism.clip * direction
            rows[0], labels[0], other_labels[0] = mechanism.clip * direction, 0.0, 1.0
        algorithm = FedEPM(
            local_steps=k0, mechanism=mechanism, mu0=10.0 ** rng.integers(-2, 2),
            c=float(rng.choice([0, 1e-8, 1e-2])), lam=float(rng.choice([0.0, 1e-5])), eta=1e-3,
        )  # fmt: skip
        problem, other = one_client(rows, labels), one_client(other_rows, other_labels)
        algorithm = algorithm.resolve(problem)
        start = x + rng.normal(size=n) * 10.0 ** rng.integers(-3, 3)
        moved, bound = movement(
            algorithm, problem, other, start, x, int(rng.integers(0, 30)), order
        )
        # Points of size |x| are subtracted, which rounds.
        assert moved <= bound * (1 + 1e-9) + 1e-9 * np.abs(x).max()
        closest = max(closest, moved / bound)
    assert closest > 0.5  # the bound is not loose by orders


def test_recursion_in_closed_form():
    # Equal steps: s_q = change/eta * (1 - (nu/(eta+nu))^q).
    nu, eta, change = 0.7, 0.3, np.array([1.0, 2.0])
    for k0 in (0, 1, 5):
        want = change / eta * (1 - (nu / (eta + nu)) ** k0)
        got = upload_sensitivity(change, np.full((k0, 2), nu), eta)
        np.testing.assert_allclose(got, want, rtol=1e-14, atol=0)


def test_scale_is_multiplier_times_sensitivity(rng):
    data = FederatedData(rng.normal(size=(9, 3)), np.arange(9) % 2, [2, 3, 4])
    problem = Problem(data, "logistic")
    mechanism = LaplaceMechanism(total_epsilon=3.0, clip=0.1)
    algorithm = FedEPM(local_steps=5, mechanism=mechanism, c=0.1).resolve(problem)
    plan = algorithm.plan(problem, np.array([1, 2, 6]))
    np.testing.assert_allclose(plan.multipliers, np.array([1, 2, 6]) / 3.0)
    # A little more than what a record can do, for rounding.
    np.testing.assert_allclose(plan.change, 0.2 * (1 + 2**-16) / np.array([2, 3, 4]), rtol=1e-12)
    S, gap = np.array([0, 2]), rng.normal(size=(2, 3))
    scale = algorithm.noise_scale(problem, S, gap, None, None, 4, plan)
    _, eta = algorithm.weights
    for row, i in enumerate(S):
        s = 0.0
        for k in range(20, 25):
            nu = penalty_parameter(gap[row], k, 0.05, 0.1, 1.001) / data.client_sizes[i]
            s = (nu * s + plan.change[i]) / (eta + nu)
        assert scale[row] == pytest.approx(plan.multipliers[i] * s, rel=1e-12)


@pytest.mark.parametrize("law, cdf", [("laplace", stats.laplace.cdf), ("gaussian", stats.norm.cdf)])
def test_laws_of_the_noise(law, cdf):
    noise = CounterRandomness(12).unit_noise(3, np.arange(100), 200, law=law)
    assert stats.kstest(noise.ravel(), cdf).pvalue > 0.01


@pytest.mark.parametrize("call, message", [
    (lambda: LaplaceMechanism(), "exactly one of total_epsilon and epsilon_per_round"),
    (lambda: LaplaceMechanism(total_epsilon=1, epsilon_per_round=1), "exactly one of"),
    (lambda: LaplaceMechanism(total_epsilon=0), "total_epsilon must be"),
    (lambda: LaplaceMechanism(total_epsilon=-1), "total_epsilon must be"),
    (lambda: GaussianMechanism(total_epsilon=1e15, delta=1e-5), "total_epsilon must be"),
    (lambda: LaplaceMechanism(total_epsilon=float("nan")), "total_epsilon must be"),
    (lambda: LaplaceMechanism(epsilon_per_round=0), "epsilon_per_round must be"),
    (lambda: LaplaceMechanism(total_epsilon=1, clip=0), "clip must be"),
    (lambda: LaplaceMechanism(total_epsilon=1, clip=-2), "clip must be"),
    (lambda: GaussianMechanism(), "total_epsilon must be given"),
    (lambda: GaussianMechanism(total_epsilon=1, delta=0), "delta must be"),
    (lambda: GaussianMechanism(total_epsilon=1, delta=1), "delta must be"),
    (lambda: GaussianMechanism(total_epsilon=1, delta=1.5), "delta must be"),
    (lambda: SFedAvg(mechanism=LaplaceMechanism(total_epsilon=1)), "mechanism must be None for SF"),
    (lambda: SFedProx(mechanism=LaplaceMechanism(total_epsilon=1)), "clip whole updates"),
    (lambda: FedEPM(preset="private"), "needs a mechanism"),
    (lambda: FedEPM(mechanism=LaplaceMechanism(total_epsilon=1), preset="text"), "own preset"),
    (lambda: FedEPM(mechanism=LaplaceMechanism(total_epsilon=1), noise="none"), "own preset"),
    (lambda: FedEPM(mechanism=LaplaceMechanism(total_epsilon=1), start="own"), "start must be"),
    (lambda: FedEPM(noise="private"), "noise must be"),
])  # fmt: skip
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("call, message", [
    (lambda: clip_rows(np.ones((1, 2)), 1.0, 3), "order must be 1 or 2"),
    (lambda: clip_rows(np.array([[np.nan]]), 1.0, 1), "features must be finite"),
    (lambda: clip_rows(sparse.csr_array([[np.inf]]), 1.0, 1), "features must be finite"),
    (lambda: clip_rows(np.ones((1, 2)), 0.0, 1), "bound must be"),
    (lambda: clip_rows(np.ones((1, 2)), 1e-300, 1), "bound must be"),
    (lambda: upload_sensitivity([-1.0], [[1.0]], 1.0), "change must be at least 0"),
    (lambda: upload_sensitivity([1.0], [[-1.0]], 1.0), "nu must be at least 0"),
    (lambda: upload_sensitivity([np.nan], [[1.0]], 1.0), "change must be finite"),
    (lambda: upload_sensitivity([1.0], [[1.0, 1.0]], 1.0), "nu must have a column"),
    (lambda: upload_sensitivity([1.0], [[1.0]], 0.0), "eta must be"),
])  # fmt: skip
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_types():
    with pytest.raises(TypeError, match="mechanism must be a GaussianMechanism or "):
        FedEPM(mechanism=0.5)
    with pytest.raises(TypeError, match="public_scaling must be"):
        LaplaceMechanism(total_epsilon=1, public_scaling=1)
