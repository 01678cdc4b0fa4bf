"""FedAvg and FedProx against their papers line by line, their compiled stages, and reductions."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from averaging_oracle import Oracle
from commands import fedepm
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LOSSES, a_problem, small_data
from runs import assert_agree, both
from scipy import sparse

from fedepm_fast import FederatedData, GivenRandomness, make_problem, run, run_callables
from fedepm_fast.algorithms import ALGORITHMS, FedAvg, FedProx, Scaffold
from fedepm_fast.federation.client import Client
from fedepm_fast.objectives import Problem, as_objective

KINDS = {"fedavg": FedAvg(), "fedprox": FedProx(prox=0.3)}


def oracle_of(problem: Problem) -> Oracle:
    data = problem.data
    features = data.features.toarray() if data.is_sparse else data.features
    return Oracle(
        features, data.labels, data.client_sizes, problem.objective.name, problem.objective.beta,
        weights=data.sample_weight, by_size=problem.client_weight == "size",
    )  # fmt: skip


def as_in_the_papers(algorithm, problem: Problem, rounds: int, seed: int):
    return oracle_of(problem).points(
        eta=algorithm.learning_rate * algorithm.rate_scale, epochs=algorithm.local_steps,
        batch=algorithm.batch_size, prox=getattr(algorithm, "prox", 0.0), rounds=rounds, seed=seed,
        participation=algorithm.participation,
    )  # fmt: skip


@pytest.mark.parametrize("batch", [None, 1, 4, 7, 100], ids=lambda batch: f"B{batch}")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "csr"])
def test_rounds_are_those_of_the_papers(name, loss, batch, is_sparse):
    """Batches that are larger than a client's rows, that divide them, and that do not."""
    problem = a_problem(loss, is_sparse=is_sparse)
    data = FederatedData(problem.data.features, problem.data.labels, [1, 25, 20, 16, 12, 9])
    problem = Problem(data, problem.objective)
    algorithm = replace(
        KINDS[name], learning_rate=0.005 if loss == "poisson" else 0.02, local_steps=2,
        batch_size=batch, participation=0.5, rate_scale=1.5,
    )  # fmt: skip
    want = as_in_the_papers(algorithm, problem, 4, seed=2**40 + 3)
    for found in both(algorithm, data, objective=problem.objective, rounds=4, seed=2**40 + 3):
        np.testing.assert_allclose(found.history["x"], want, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("client_weight", ["equal", "size"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "rows"])
@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("name", KINDS)
def test_weights_are_those_of_the_problem(name, batch, weighted, client_weight):
    data = small_data()
    if weighted:
        weights = np.random.default_rng(1).uniform(0.5, 3.0, data.n_samples)
        data = FederatedData(data.features, data.labels, data.client_sizes, sample_weight=weights)
    algorithm = replace(
        KINDS[name], learning_rate=0.1, local_steps=2, batch_size=batch, participation=0.5
    )
    problem = Problem(
        data, algorithm.objective(make_problem(algorithm, data).objective), client_weight
    )
    want = as_in_the_papers(algorithm, problem, 5, seed=9)
    got = run(algorithm, data, client_weight=client_weight, rounds=5, seed=9)
    assert got.engine == ("reference" if weighted else "compiled")
    np.testing.assert_allclose(got.history["x"], want, rtol=1e-11, atol=1e-13)


@settings(max_examples=25)
@given(
    m=st.integers(1, 9), n=st.integers(1, 20), seed=st.integers(0, 2**64 - 1),
    batch=st.none() | st.integers(1, 40), epochs=st.integers(1, 4),
    prox=st.just(0.0) | st.floats(1e-3, 1.0), participation=st.floats(0.05, 1.0),
    noise=st.sampled_from(["none", "laplace"]), layout=st.sampled_from(["dense", "csr"]),
)  # fmt: skip
def test_compiled_stages_are_the_hooks(
    m, n, seed, batch, epochs, prox, participation, noise, layout
):
    data = small_data(m, n, seed=seed % 1000, largest=40)
    if layout == "csr":
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    algorithm = FedProx(
        prox=prox, local_steps=epochs, batch_size=batch, participation=participation, noise=noise,
        mu0=50.0, epsilon=5.0, learning_rate=0.05,
    )  # fmt: skip
    assert_agree(*both(algorithm, data, rounds=5, seed=seed))


@pytest.mark.parametrize("features", [150, 700])
def test_wide_rows_are_gathered_piece_by_piece(features):
    data = small_data(4, features, largest=200)
    for batch in (9, 80, 150):
        algorithm = FedAvg(local_steps=2, batch_size=batch, learning_rate=0.01)
        assert_agree(*both(algorithm, data, rounds=3, seed=1))


def test_batches_of_many_rows_are_gathered_piece_by_piece():
    rng = np.random.default_rng(3)
    data = FederatedData(rng.normal(size=(2001, 3)), rng.integers(0, 2, 2001), [1500, 501])
    for rows in (data.features, sparse.csr_array(data.features)):
        data = FederatedData(rows, data.labels, data.client_sizes)
        algorithm = FedAvg(local_steps=2, batch_size=700, learning_rate=0.5, participation=1.0)
        assert_agree(*both(algorithm, data, rounds=4, seed=1))


def test_many_short_sparse_rows_and_a_long_one():
    """Of which the buffer of a batch has room for some."""
    rng = np.random.default_rng(0)
    rows = sparse.random_array((400, 5000), density=0.001, rng=rng, format="lil")
    rows[17] = rng.normal(size=5000)
    data = FederatedData(rows.tocsr(), rng.integers(0, 2, 400), [300, 100])
    algorithm = FedAvg(local_steps=2, batch_size=150, learning_rate=0.1, participation=1.0)
    assert_agree(*both(algorithm, data, rounds=3, seed=5))


# Reductions -------------------------------------------------------------------------------


def descent(problem: Problem, eta: float, rounds: int):
    """Points of gradient descent on f/m."""
    x, points = np.zeros(problem.n_parameters), []
    for _ in range(rounds + 1):
        points.append(x)
        x = x - eta * problem.total_gradient(x) / problem.n_clients
    return points


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("batch", [None, 1000])
@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(), Scaffold(noise="none")])
def test_one_epoch_of_all_rows_of_all_clients_is_gradient_descent(algorithm, batch, engine):
    algorithm = replace(algorithm, local_steps=1, participation=1.0, learning_rate="lipschitz")
    if not isinstance(algorithm, Scaffold):
        algorithm = replace(algorithm, batch_size=batch)
    data = small_data()
    problem = make_problem(algorithm, data)
    rate = algorithm.known(problem)[algorithm.tells.index("rate")]
    assert (rate == rate[0]).all()
    found = run(algorithm, data, rounds=20, engine=engine)
    want = descent(problem, rate[0], 20)
    np.testing.assert_allclose(found.history["x"], want, rtol=1e-12, atol=1e-15)


def test_weighted_by_size_it_is_gradient_descent_on_the_pooled_rows():
    algorithm = FedAvg(local_steps=1, participation=1.0)
    data = small_data()
    problem = Problem(data, make_problem(algorithm, data).objective, "size")
    rate = algorithm.known(problem)[1, 0]
    found = run(algorithm, data, client_weight="size", rounds=20)
    np.testing.assert_allclose(
        found.history["x"], descent(problem, rate, 20), rtol=1e-12, atol=1e-15
    )
    pooled = Problem(
        FederatedData(data.features, data.labels, [data.n_samples]), problem.objective, "size"
    )
    np.testing.assert_allclose(
        found.history["objective"] / 6, [pooled.total_value(x) for x in found.history["x"]],
        rtol=1e-12,
    )  # fmt: skip


@pytest.mark.parametrize("batch", [None, 5])
def test_without_a_proximal_term_fedprox_is_fedavg(batch):
    options = dict(local_steps=3, batch_size=batch, participation=0.6)
    for engine in ("compiled", "reference"):
        one, other = (
            run(algorithm, small_data(), rounds=6, seed=8, engine=engine)
            for algorithm in (FedAvg(**options), FedProx(prox=0.0, **options))
        )
        assert (one.x == other.x).all() and (one.W == other.W).all()


def test_epochs_solve_the_proximal_problem():
    """Many epochs end where grad f_i(w) + prox * (w - x) = 0."""
    algorithm = FedProx(prox=2.0, local_steps=400, participation=1.0)
    data = small_data()
    problem, found = make_problem(algorithm, data), run(algorithm, data, rounds=3)
    before = found.history["x"][2]
    for i, w in enumerate(found.W):
        assert np.abs(problem.gradient(i, w) + 2.0 * (w - before)).max() < 1e-12


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("batch", [None, 4])
def test_a_proximal_term_as_strong_as_the_largest_curvature(batch, engine):
    algorithm = FedProx(
        prox="lipschitz", prox_scale=0.4, local_steps=3, participation=0.6, batch_size=batch,
        learning_rate=0.1,
    )  # fmt: skip
    data = small_data()
    problem = make_problem(algorithm, data)
    largest = 0.0
    for i in range(6):
        a, _ = data.client(i)
        bound = np.linalg.eigvalsh(a.T @ a / len(a) / 4)[-1] + problem.reg[i]
        largest = max(largest, bound)
    want = as_in_the_papers(replace(algorithm, prox=0.4 * largest), problem, 5, seed=6)
    got = run(algorithm, data, rounds=5, seed=6, engine=engine).history["x"]
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)
    if batch is None:
        by_bound = replace(algorithm, learning_rate="lipschitz", rate_scale=0.5)
        rates = by_bound.known(problem)[1]
        np.testing.assert_allclose(rates, 0.5 / (1.4 * largest), rtol=1e-12)


def test_the_largest_row_and_the_largest_curvature_may_be_of_two_clients():
    lone = np.vstack([[[9.0, 0.0]], np.zeros((9, 2))])  # of mean square 8.1, batches of 1: 81
    data = FederatedData.from_clients([(lone, np.ones(10)), (np.full((10, 2), 3.0), np.ones(10))])
    objective = as_objective("least_squares", beta=0.0)
    algorithm = FedProx(prox_scale=2.0, batch_size=1, learning_rate="lipschitz", rate_scale=0.7)
    problem = make_problem(algorithm, data, objective)
    np.testing.assert_allclose(problem.lipschitz(), [8.1, 18.0])
    np.testing.assert_allclose(
        algorithm.known(problem)[1:], [[0.7 / (81.0 + 36.0)] * 2, [18.0] * 2]
    )
    too_long = replace(algorithm, learning_rate=2.2 / (81.0 + 36.0), rate_scale=1.0)
    assert too_long.advice(problem).startswith("a rate_scale of 0.9 or less makes")


def test_a_proximal_term_keeps_the_limit_nearer_to_the_optimum():
    rng = np.random.default_rng(0)
    truth = 3 * rng.normal(size=(8, 4))  # each client has a model of its own
    rows = rng.normal(size=(240, 4)) * np.linspace(0.5, 1.5, 8).repeat(30)[:, None]
    data = FederatedData(rows, (rows * truth.repeat(30, axis=0)).sum(axis=1), np.full(8, 30))
    options = dict(participation=1.0, local_steps=20)
    best = make_problem(FedAvg(), data, "least_squares").optimum().x
    off = [
        np.linalg.norm(run(each, data, objective="least_squares", rounds=400).x - best)
        for each in (FedAvg(**options), FedProx(prox=1.0, **options), FedProx(prox=10.0, **options))
    ]
    assert off[0] > 1.5 * off[1] > 3 * off[2] > 0


# Batches ----------------------------------------------------------------------------------


def test_a_run_is_a_function_of_seed_and_trial():
    algorithm = FedAvg(local_steps=2, batch_size=4, participation=1.0)
    first = run(algorithm, small_data(), rounds=4, seed=1)
    assert (first.x == run(algorithm, small_data(), rounds=4, seed=1).x).all()
    for other in (dict(seed=2), dict(seed=1, trial=1)):
        assert (first.x != run(algorithm, small_data(), rounds=4, **other).x).all()


def test_a_client_draws_the_same_batches_whoever_else_takes_part():
    algorithm = FedAvg(local_steps=2, batch_size=4, learning_rate=0.1)
    few = run(replace(algorithm, participation=0.5), small_data(), rounds=1, seed=4)
    all_of_them = run(replace(algorithm, participation=1.0), small_data(), rounds=1, seed=4)
    took_part = np.flatnonzero(~np.isnan(few.snr_clients))
    assert len(took_part) == 3
    assert (few.W[took_part] == all_of_them.W[took_part]).all()


@pytest.mark.parametrize("layout", ["blocks", "csr"])
def test_runs_side_by_side_do_not_share_their_scratch(layout):
    data = small_data(4, 6, largest=300)
    if layout == "csr":
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    algorithm = FedAvg(local_steps=5, batch_size=40, participation=1.0)
    alone = [run(algorithm, data, rounds=40, seed=seed).x for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(lambda seed: run(algorithm, data, rounds=40, seed=seed).x, range(8))
        )
    assert all((a == b).all() for a, b in zip(alone, together, strict=True))


def test_a_callback_changes_no_bit():
    algorithm = FedAvg(local_steps=2, batch_size=4)
    seen = []
    watched = run(algorithm, small_data(), rounds=5, callback=lambda info: seen.append(info))
    assert len(seen) == 6
    assert (watched.x == run(algorithm, small_data(), rounds=5).x).all()


def test_no_batches_where_rows_are_not_known():
    algorithm = FedAvg(batch_size=4)
    with pytest.raises(ValueError, match="losses must have a method batch_gradient"):
        run_callables(algorithm, [lambda x: (0.0, x)], np.zeros(3), samples=[5])
    given_ones = GivenRandomness([[0]], np.zeros((6, 5)), np.zeros((1, 6, 5)))
    with pytest.raises(ValueError, match="randomness must be None for FedAvg with batches"):
        run(algorithm, small_data(), randomness=given_ones)
    with pytest.raises(ValueError, match="gradient must have a method batch_gradient"):
        Client(algorithm, lambda x: x, index=0, clients=6, features=5, samples=3)


# Learning rates ---------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, 1, 3, 100])
def test_the_bound_of_batches_is_their_expected_smoothness(batch):
    """Exact for least squares: the mean over all batches of the smoothness-weighted gradients."""
    data = small_data(3, 4, task="regression", largest=6)
    problem = make_problem(FedAvg(), data, "least_squares")
    found = FedAvg(batch_size=batch).bounds(problem)
    for i, d in enumerate(data.client_sizes):
        a = data.client(i)[0]
        whole = np.linalg.eigvalsh(a.T @ a / d)[-1]
        single = (a * a).sum(axis=1).max()
        b = d if batch is None else min(batch, d)
        want = (
            whole
            if d == 1
            else d * (b - 1) / (b * (d - 1)) * whole + (d - b) / (b * (d - 1)) * single
        )
        assert found[i] == pytest.approx(want + problem.reg[i], rel=1e-12)


def test_rates_say_what_is_wrong_before_any_work():
    poisson = small_data(task="counts")
    for algorithm in (FedAvg(), FedProx()):
        with pytest.raises(ValueError, match="must be a number for the objective 'poisson': noth"):
            run(algorithm, poisson, objective="poisson")
    assert run(FedAvg(learning_rate=1e-3), poisson, objective="poisson", rounds=2).rounds == 2
    for options, message in (
        (dict(batch_size=0), "batch_size must be an integer >= 1, got 0"),
        (dict(batch_size=2.5), "batch_size must be an integer"),
        (dict(learning_rate=0.0), r"learning_rate must be a finite number in \(0, inf\)"),
        (dict(rate_scale=float("nan")), "rate_scale must be a finite number"),
        (dict(local_steps=0), "local_steps must be an integer >= 1"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            FedAvg(**options)
    with pytest.raises(ValueError, match=r"prox must be a finite number in \[0, inf\), got -1"):
        FedProx(prox=-1.0)
    with pytest.raises(ValueError, match="prox must be a number or 'lipschitz', got 'large'"):
        FedProx(prox="large")
    with pytest.raises(ValueError, match="prox must be a number for the objective 'poisson'"):
        run(FedProx(learning_rate=1e-3), poisson, objective="poisson")
    with pytest.raises(ValueError, match="mechanism must be None for FedAvg"):
        FedAvg(mechanism=object())


def test_what_a_round_costs():
    sizes = np.array([1, 7, 30])
    for batch in (None, 4):
        algorithm = FedAvg(local_steps=3, batch_size=batch)
        assert algorithm.gradients_per_round(sizes).tolist() == [3, 3, 3]
        assert algorithm.numbers_sent(10, 4) == 2 + 50  # weight and rate, and five points
        assert algorithm.numbers_received(10, 4) == 50 + 4
    assert FedProx().numbers_sent(10, 4) == 3 + 50 and FedProx().numbers_received(10, 4) == 50 + 8
    by_number = FedProx(prox=0.1, learning_rate=0.1)
    assert by_number.numbers_received(10, 4) == 50


def test_the_command_line_has_its_options(capsys):
    given_options = ("--clients", 20, "--rounds", 2, "--batch-size", 64, "--json")
    for name in ("fedavg", "fedprox"):
        code, out, _ = fedepm(capsys, "run", "--algorithm", name, *given_options)
        found = json.loads(out)["parameters"]
        assert code == 0 and found["batch_size"] == 64 and found["learning_rate"] == "lipschitz"
    assert {"fedavg", "fedprox"} <= set(ALGORITHMS)


def test_advice_names_unequal_numbers_of_steps():
    data = small_data()
    sizes = data.client_sizes
    problem = make_problem(FedAvg(), data)
    steps = -(-sizes // 2)
    assert steps.min() < steps.max()
    assert f"clients take {steps.min()} to {steps.max()} steps" in FedAvg(batch_size=2).advice(
        problem
    )
    whole = FedAvg(batch_size=int(sizes.max()))
    assert whole.advice(problem) == "batches leave noise, which a smaller rate_scale lowers"
