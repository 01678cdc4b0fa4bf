"""FedEPM with eta the curvature: where it ends, what is proved of it, and how it is resumed."""

from __future__ import annotations

import io

import numba
import numpy as np
import pytest
from curvature_problems import loss, rows, with_loss, zoo
from problems import LOSSES, Told
from runs import assert_agree, both

from fedepm_fast import (
    CurvatureFedEPM,
    FedEPM,
    FederatedData,
    Problem,
    make_problem,
    run,
    run_callables,
)
from fedepm_fast.algorithms._coordinates import Coordinates, coordinates_of
from fedepm_fast.algorithms._quadratics import Common
from fedepm_fast.algorithms._surrogates import LEAST_DAMPING, Surrogates
from fedepm_fast.objectives._curvature import unpacked

ZOO = zoo()
METRICS = {"whitened": "dense", "columns": "columns", "given": "identity"}


def ask(problem, S, x):
    return problem.client_gradients(S, x, compiled=False)


def begun(algorithm, problem):
    """A resolved algorithm and its server, which has heard all clients at zero."""
    own, m, start = algorithm.resolve(problem), problem.n_clients, np.zeros(problem.n_parameters)
    server = own.server(start, m)
    server.begin(own.models(problem, start), *ask(problem, np.arange(m), start))
    return own, server


def damping(server):
    """That of the server's next point."""
    return max(server.kappa, LEAST_DAMPING)


def answer(own, server, problem, S):
    """A round of the clients `S`, and the server's point."""
    x = server.propose().copy()
    hessians = {}
    if own.sends_hessians:
        hessians = dict(zip(S.tolist(), problem.packed_hessians(S, x), strict=True))
    server.receive(S, *ask(problem, S, x), hessians)
    return x


# Where it ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("participation", [1.0, 0.5, 0.2])
@pytest.mark.parametrize("name", ZOO)
def test_the_defaults_reach_the_optimum_that_bfgs_finds(name, participation):
    data, objective = ZOO[name]
    algorithm = CurvatureFedEPM(participation=participation)
    result = run(algorithm, data, objective=objective, engine="reference")
    problem = make_problem(algorithm, data, objective)
    start, best = result.start_objective, problem.optimum().value
    end = result.history["objective"][-1]
    assert end - best <= 1e-8 * (start - best)
    assert result.reasons == ("converged",) and result.warning == ""


@pytest.mark.parametrize("coordinates", ["renewed", "secant"])
@pytest.mark.parametrize("name", ZOO)
def test_few_rounds_end_no_higher_than_they_start(name, coordinates):
    data, objective = ZOO[name]
    for participation, rounds in ((1.0, 1), (0.5, 2), (0.2, 1), (0.2, 3)):
        algorithm = CurvatureFedEPM(participation=participation, coordinates=coordinates)
        f = run(
            algorithm, data, objective=objective, max_rounds=rounds, engine="reference"
        ).history["objective"]
        assert f[-1] <= f[0] * (1 + 1e-12)


@pytest.mark.parametrize("coordinates", ["secant", *METRICS])
@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("name", ["logistic", "huber", "multinomial"])
def test_other_coordinates_reach_it_too(name, participation, coordinates):
    data, objective = with_loss(name, beta=0.1)
    algorithm = CurvatureFedEPM(coordinates=coordinates, participation=participation)
    result = run(algorithm, data, objective=objective, engine="reference")
    best = make_problem(algorithm, data, objective).optimum().value
    f = result.history["objective"]
    assert f[-1] - best <= 1e-8 * (f[0] - best) and result.reasons == ("converged",)


def test_clients_may_weigh_by_their_rows_and_rows_have_weights():
    A, b, sizes = rows([10, 200, 30], 4, 0)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(b))
    weighted = FederatedData(A, b, sizes, sample_weight=weights)
    alone = FederatedData(A, b, np.array([240]), sample_weight=weights)
    for client_weight in ("size", "equal"):
        result = run(CurvatureFedEPM(participation=0.5), weighted, client_weight=client_weight)
        problem = make_problem(CurvatureFedEPM(), weighted, client_weight=client_weight)
        gradient = problem.total_gradient(result.x)
        assert np.abs(gradient).max() < 1e-7 and result.engine == "reference"
        if client_weight == "size":  # that of the pooled rows
            np.testing.assert_allclose(result.x, run(CurvatureFedEPM(), alone).x, rtol=1e-6)


# The same, however it is computed ---------------------------------------------------------


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", LOSSES)
def test_engines_agree(name, layout):
    data, objective = with_loss(name, layout=layout)
    for participation, rounds in ((1.0, 3), (0.5, 6)):
        algorithm = CurvatureFedEPM(participation=participation)
        assert_agree(*both(algorithm, data, objective=objective, rounds=rounds, seed=1))


@pytest.mark.parametrize("coordinates", METRICS)
def test_engines_agree_on_ens(coordinates):
    data, objective = with_loss("logistic")
    algorithm = CurvatureFedEPM(coordinates=coordinates, lam=0.05, participation=0.5)
    assert_agree(*both(algorithm, data, objective=objective, rounds=9))


def test_threads_change_no_bit():
    data, objective = with_loss("multinomial")
    found, before = [], numba.get_num_threads()
    try:
        for threads in (1, before):
            numba.set_num_threads(threads)
            algorithm = CurvatureFedEPM(participation=0.5, coordinates="secant")
            found.append(run(algorithm, data, objective=objective, engine="compiled"))
    finally:
        numba.set_num_threads(before)
    assert found[0].x.tobytes() == found[1].x.tobytes()
    assert found[0].history["x"].tobytes() == found[1].history["x"].tobytes()


@pytest.mark.parametrize("coordinates", ["renewed", "secant", "whitened"])
def test_a_server_goes_on_from_its_state_to_the_same_bits(coordinates):
    problem = Problem(*with_loss("logistic"))
    algorithm = CurvatureFedEPM(coordinates=coordinates, participation=0.5)
    turns = [np.array([0, 2, 4]), np.array([1, 3, 5])] * 4
    own, server = begun(algorithm, problem)
    straight = [answer(own, server, problem, S) for S in turns]
    own, server = begun(algorithm, problem)
    for S, want in zip(turns, straight, strict=True):
        file = io.BytesIO()
        np.savez(file, **server.state())
        file.seek(0)
        server = own.server(np.zeros(problem.n_parameters), problem.n_clients)
        with np.load(file) as state:
            server.restore(state, own.models(problem, np.zeros(problem.n_parameters)))
        assert answer(own, server, problem, S).tobytes() == want.tobytes()
    nothing_heard = own.server(np.ones(problem.n_parameters), problem.n_clients)
    server.restore(nothing_heard.state(), None)
    assert (server.propose() == 1).all()


def test_given_selections_are_replayed():
    from fedepm_fast.randomness import GivenRandomness

    data, objective = with_loss("logistic")
    m, n = data.n_clients, data.n_features
    turns = [np.arange(m)] + [np.array([0, 2, 4]), np.array([1, 3, 5])] * 3
    given = GivenRandomness(turns, np.zeros((m, n)), np.zeros((len(turns), m, n)))
    result = run(
        CurvatureFedEPM(participation=0.5), data, objective=objective, randomness=given, rounds=6
    )
    problem = make_problem(CurvatureFedEPM(), data, objective)
    own, server = begun(CurvatureFedEPM(participation=0.5), problem)
    for S, x in zip(turns[1:], result.history["x"][1:], strict=True):
        np.testing.assert_allclose(answer(own, server, problem, S), x, rtol=0, atol=1e-12)


# What is proved ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logistic", "squared_hinge", "multinomial", "huber"])
def test_a_bound_of_the_curvature_makes_every_round_a_descent(name):
    data, objective = with_loss(name)
    for coordinates in METRICS:
        algorithm = CurvatureFedEPM(coordinates=coordinates)
        f = run(algorithm, data, objective=objective, rounds=30).history["objective"]
        assert (np.diff(f) <= 1e-12 * f[0]).all()


@pytest.mark.parametrize("coordinates", ["renewed", "secant"])
@pytest.mark.parametrize("name", ["huber", "poisson", "squared_hinge", "multinomial"])
def test_with_all_clients_no_point_that_is_accepted_is_higher(name, coordinates):
    problem = Problem(*with_loss(name, beta=1e-6))
    own, server = begun(CurvatureFedEPM(coordinates=coordinates), problem)
    before, everyone = server.F.sum(), np.arange(problem.n_clients)
    for _ in range(25):
        answer(own, server, problem, everyone)
        assert server.F.sum() <= before * (1 + 1e-12)
        before = server.F.sum()


@pytest.mark.parametrize("name", ["logistic", "least_squares"])
def test_every_round_contracts_as_the_theorem_says(name):
    """``|x - x*| <= (1 - mu/eta) * mean_i |x_i - x*|``, whoever takes part, where eta is at least
    the curvature of every client and mu at most."""
    data, objective = with_loss(name, beta=1.0)
    problem = make_problem(CurvatureFedEPM(), data, objective)
    m, n, rng = problem.n_clients, problem.n_parameters, np.random.default_rng(0)
    eta = problem.lipschitz().max()
    mu = problem.reg.min()
    if name == "least_squares":
        mu = min(np.linalg.eigvalsh(problem.hessian(i, np.zeros(n)))[0] for i in range(m))
    best, start = problem.optimum(method="newton").x, 3 * rng.normal(size=n)
    server = Surrogates(start, m, tol=0.0, calm=1)
    models = Common(m, Coordinates.identity(eta, n))
    server.begin(models, *ask(problem, np.arange(m), start))
    for _ in range(60):
        rate = 1 - mu / (eta * (1 + damping(server)))
        before = np.linalg.norm(server.X - best, axis=1).mean()
        x = server.propose()
        assert np.linalg.norm(x - best) <= rate * before + 1e-9
        S = np.sort(rng.choice(m, 2, replace=False))
        assert server.receive(S, *ask(problem, S, x), {}) and server.kappa == 0
    assert np.linalg.norm(x - best) < 0.1 * np.linalg.norm(start - best)


@pytest.mark.parametrize("coordinates", METRICS)
@pytest.mark.parametrize("lam", np.geomspace(1e-5, 1.0, 11).round(8))
def test_fixed_points_are_as_near_the_optimum_as_their_bound(coordinates, lam):
    """``|sum_i g_ij| <= 2*lam*eta*#{i: |g_ij| <= lam*eta}`` in every coordinate of the metric, in
    which eta is a number; so the optimum exactly where all gradients are larger."""
    A, b, sizes = rows([40] * 5, 4, 3, shift=1.0)
    problem = Problem(FederatedData(A, b, sizes), loss("logistic", 1e-1))
    metric = coordinates_of(problem, METRICS[coordinates])
    own, server = begun(CurvatureFedEPM(coordinates=coordinates, lam=float(lam), tol=0.0), problem)
    everyone = np.arange(problem.n_clients)
    for _ in range(400):
        eta = 1 + damping(server)
        x = server.x.copy()
        answer(own, server, problem, everyone)
    assert np.abs(server.x - x).max() < 1e-9  # it stands still
    g = metric.pull(server.G)
    weak = (np.abs(g) <= lam * eta * (1 + 1e-6)).sum(axis=0)
    assert (np.abs(g.sum(axis=0)) <= 2 * lam * eta * weak + 1e-7).all()


def test_nothing_moves_where_lam_exceeds_every_gradient():
    data, objective = with_loss("logistic")
    result = run(CurvatureFedEPM(coordinates="given", lam=1.0), data, objective=objective)
    assert (result.x == 0).all() and np.abs(result.Z).max() > 0.01


@pytest.mark.parametrize("lam", [0.0, 1e-3, 0.05])
def test_with_a_number_for_eta_it_is_fedepm_with_a_small_mu(lam):
    data, objective = with_loss("logistic")
    problem = make_problem(CurvatureFedEPM(), data, objective)
    L = problem.mean_curvature()  # sqrt(L)*x are the coordinates in which it is 1
    paper = FedEPM(
        participation=1.0, step="1", eta=L * (1 + LEAST_DAMPING),
        lam=lam * L**0.5 * (1 + LEAST_DAMPING), mu0=1e-14, c=0, alpha=1, noise="none",
        local_steps=1,
    )  # fmt: skip
    ours = CurvatureFedEPM(coordinates="given", lam=lam)
    want, got = (run(a, data, objective=objective, rounds=15) for a in (paper, ours))
    np.testing.assert_allclose(got.history["x"], want.history["x"], rtol=0, atol=1e-9)


def test_no_point_is_beyond_the_reach_of_a_flat_model():
    """A client's step in its bound is at most 0.6 of the way from the start to where it was, if its
    Hessian there has less than a thousandth of the bound along it; or a tenth of the step."""
    A, _, sizes = rows([60] * 6, 4, 0)
    labels = (A[:, 0] + 0.5 * A[:, 1] > 0).astype(float)
    problem = Problem(FederatedData(A, labels, sizes), loss("logistic", 0.0))
    own, server = begun(CurvatureFedEPM(participation=0.5), problem)
    turns, models, cut = [np.array([0, 2, 4]), np.array([1, 3, 5])], server.models, 0

    def lengths(steps, matrices):
        return np.array([d @ unpacked(m, 4) @ d for d, m in zip(steps, matrices, strict=True)])

    for tau in range(40):
        last = server.best.copy() if server.refused else server.x.copy()
        free = models.minimiser(server.X, server.G, damping(server))
        X, M, B = server.X.copy(), models.M.copy(), models.B
        x = answer(own, server, problem, turns[tau % 2])
        if np.allclose(x, free):
            continue
        share = np.linalg.norm(x - last) / np.linalg.norm(free - last)
        np.testing.assert_allclose(x, last + share * (free - last), rtol=1e-6, atol=1e-9)
        flat = lengths(free - X, M) < 1e-3 * lengths(free - X, B)
        far = lengths(x - X, B) > 0.6**2 * lengths(X, B) * (1 + 1e-6)
        assert 0.1 * (1 - 1e-6) <= share < 1
        assert abs(share - 0.1) < 1e-6 or not (flat & far).any()
        cut += 1
    assert cut > 0 and server.F.sum() < 1e-3


# What it is told, and what it tells -------------------------------------------------------


@pytest.mark.parametrize("wrong", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_callables_need_no_true_bound(wrong, participation):
    problem = make_problem(CurvatureFedEPM(), *with_loss("logistic"))
    losses = [Told(problem, i, wrong * L) for i, L in enumerate(problem.lipschitz())]
    algorithm = CurvatureFedEPM(participation=participation)
    result = run_callables(algorithm, losses, np.zeros(problem.n_parameters))
    best, start = problem.optimum().value, problem.total_value(np.zeros(problem.n_parameters))
    assert result.history["objective"][-1] - best <= 1e-8 * (start - best)
    assert result.algorithm["coordinates"] == "secant" and result.reasons == ("converged",)


def test_callables_without_what_it_needs_are_refused():
    problem = make_problem(CurvatureFedEPM(), *with_loss("logistic"))
    start = np.zeros(problem.n_parameters)
    losses = [lambda x, i=i: (problem.value(i, x), problem.gradient(i, x)) for i in range(6)]
    with pytest.raises(ValueError, match="losses must have an attribute lipschitz"):
        run_callables(CurvatureFedEPM(), losses, start)
    told = [Told(problem, i, 1.0) for i in range(6)]
    with pytest.raises(ValueError, match=r"coordinates.* must be one of 'auto', 'secant'"):
        run_callables(CurvatureFedEPM(coordinates="renewed"), told, start)
    told[3].lipschitz = -1.0
    with pytest.raises(ValueError, match="lipschitz of client 3 must be a finite number"):
        run_callables(CurvatureFedEPM(), told, start)


def test_what_it_has_not_is_refused_and_not_recorded():
    from fedepm_fast.privacy import LaplaceMechanism

    for name in ("local_steps", "epsilon", "mu0", "c", "alpha", "preset", "noise"):
        with pytest.raises(TypeError, match=name):
            CurvatureFedEPM(**{name: 1})
    described = CurvatureFedEPM().describe()
    assert described["noise"] == "none" and "mu0" not in described
    with pytest.raises(ValueError, match="mechanism must be None for CurvatureFedEPM"):
        CurvatureFedEPM(mechanism=LaplaceMechanism(total_epsilon=1.0))
    with pytest.raises(ValueError, match="coordinates with lam above 0 must be one of 'whitened'"):
        CurvatureFedEPM(lam=0.1)
    for coordinates in METRICS:
        with pytest.raises(ValueError, match="coordinates must be 'renewed' or 'secant', got"):
            data, objective = with_loss("poisson")
            run(CurvatureFedEPM(coordinates=coordinates), data, objective=objective)
    with pytest.raises(ValueError, match="stopping must be another than 'converged'"):
        run(FedEPM(), with_loss("logistic")[0], stopping="converged")


@pytest.mark.parametrize("coordinates", ["renewed", "secant", *METRICS])
def test_odd_data_and_starts(coordinates):
    data, objective = with_loss("logistic")
    algorithm, A = CurvatureFedEPM(coordinates=coordinates), data.features
    best = make_problem(algorithm, data, objective).optimum().value

    def ends(algorithm, data, **options):
        result = run(algorithm, data, engine="reference", **options)
        assert result.warning == "" and np.isfinite(result.x).all()
        return result

    for scale in (1e150, 1e-100):
        table = FederatedData(A * scale, data.labels, data.client_sizes)
        ends(algorithm, table, objective=objective)
    nothing = FederatedData(A * 0, data.labels, data.client_sizes)
    assert (ends(algorithm, nothing, objective=objective).x == 0).all()
    one = FederatedData(A[:1], np.ones(1), np.array([1]))
    assert ends(algorithm, one, objective=objective, max_rounds=50).mean_objective < 0.02
    far = ends(algorithm, data, objective=objective, start=np.full(5, 1e3), max_rounds=40)
    assert far.history["objective"][-1] < far.history["objective"][0]
    near = ends(algorithm, data, objective=objective, start=np.arange(30.0).reshape(6, 5))
    assert near.history["objective"][-1] - best < 1e-8
    still = ends(algorithm, data, objective=objective, rounds=0)
    assert still.rounds == 0 and (still.x == 0).all()
    limited = ends(algorithm, data, objective=objective, max_iterations=2)
    assert (limited.rounds, limited.reasons) == (2, ("max_iterations",))
    called = ends(algorithm, data, objective=objective, callback=lambda info: info.tau == 2)
    assert (called.rounds, called.reasons) == (2, ("callback",))
    np.testing.assert_array_equal(called.x, limited.x)


def test_a_start_where_counts_overflow_is_refused():
    data, objective = with_loss("poisson")
    with pytest.raises(ValueError, match="start must be smaller, got numbers up to 1000"):
        run(CurvatureFedEPM(), data, objective=objective, start=np.full(5, 1e3))


def test_numbers_sent():
    n, first = 10, 55
    assert CurvatureFedEPM(coordinates="renewed").numbers_sent(n, 3) == first + 11 * 4 + 3 * 55
    every = CurvatureFedEPM(coordinates="renewed", renew_every=2)
    assert every.numbers_sent(n, 3) == first + 11 * 4 + 2 * 55
    assert CurvatureFedEPM(coordinates="secant").numbers_sent(n, 3) == 20 + 11 * 4
    assert CurvatureFedEPM(coordinates="whitened").numbers_sent(n, 3, first) == first + 11 * 4
