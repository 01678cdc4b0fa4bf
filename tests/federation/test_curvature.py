"""`CurvatureFedEPM` with a server and clients apart: the bits of a run, and what may go wrong."""

from __future__ import annotations

import numpy as np
import pytest
from curvature_federation import DATA, LOGISTIC, ROUND, SEED, WAYS, Federation, M, optimum
from problems import data_for
from scipy import sparse

from fedepm_fast import CurvatureFedEPM, FederatedData, run
from fedepm_fast.federation.curvature_client import CurvatureClient, OwnObjective
from fedepm_fast.federation.curvature_server import CurvatureServer
from fedepm_fast.objectives import ClientProblem, Problem, as_objective


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["logistic", "multinomial", "poisson"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_federation_has_the_bits_of_a_run(name, is_sparse, way):
    algorithm, objective = WAYS[way], as_objective(name, beta=0.01)
    if objective.curvature is None and algorithm.coordinates == "whitened":
        return
    data = data_for(objective)
    if is_sparse:
        features = sparse.csr_array(np.where(np.abs(data.features) < 0.5, 0, data.features))
        data = FederatedData(features, data.labels, data.client_sizes)
    for client_weight in ("size", "equal"):
        result = run(
            algorithm, data, objective=objective, client_weight=client_weight,
            engine="reference", seed=SEED, max_rounds=40,
        )  # fmt: skip
        federation = Federation(algorithm, data, objective, client_weight)
        server = federation.server()
        federation.join(server)
        np.testing.assert_array_equal(federation.converge(server, 40), result.history["x"])
        assert server.converged == (result.reasons == ("converged",))


def test_weights_of_rows_and_a_start_are_those_of_a_run():
    weights = np.random.default_rng(0).uniform(0.5, 2, DATA.n_samples)
    data = FederatedData(DATA.features, DATA.labels, DATA.client_sizes, sample_weight=weights)
    start = np.linspace(-1, 1, 5)
    algorithm = CurvatureFedEPM(participation=0.5)
    result = run(
        algorithm, data, objective=LOGISTIC, client_weight="size", engine="reference", seed=SEED,
        start=start,
    )  # fmt: skip
    federation = Federation(algorithm, data, start=start)
    server = federation.server()
    federation.join(server)
    np.testing.assert_array_equal(federation.converge(server), result.history["x"])


def test_a_client_of_average_size_computes_as_in_the_whole():
    sizes = [10, 20, 30]  # of these one has the weight 1, and the others have not
    data = FederatedData(DATA.features[:60], DATA.labels[:60], sizes)
    problem, x = Problem(data, LOGISTIC, "size"), np.linspace(-1, 1, 5)
    features, labels = data.client(1)
    alone = ClientProblem(
        FederatedData(features, labels, [20]), LOGISTIC, "size", clients=3, weight_sum=60.0
    )
    assert alone.value(0, x) == problem.value(1, x)
    np.testing.assert_array_equal(alone.gradient(0, x), problem.gradient(1, x))
    np.testing.assert_array_equal(alone.hessian(0, x), problem.hessian(1, x))


@pytest.mark.parametrize("way", ["half", "FedNL"])
def test_functions_of_ones_own_are_clients(way):
    algorithm = WAYS[way]
    federation = Federation(algorithm)
    for i in range(M):
        own = OwnObjective(
            lambda x, i=i: federation.problem.value(i, x),
            lambda x, i=i: federation.problem.gradient(i, x),
            5,
            hessian=lambda x, i=i: federation.problem.hessian(i, x),
            bound=federation.problem.bound_hessian(i),
        )
        federation.clients[i] = CurvatureClient(algorithm, own, index=i, clients=M)
    server = federation.server()
    federation.join(server)
    result = run(
        algorithm, DATA, objective=LOGISTIC, client_weight="size", engine="reference", seed=SEED
    )
    np.testing.assert_allclose(federation.converge(server)[-1], result.x, rtol=1e-9)


# Silence, coming and going --------------------------------------------------------------


@pytest.mark.parametrize("way", ["all", "half", "secant", "mean", "FedNL"])
def test_a_silent_client_delays_the_end_and_does_not_move_it(way):
    federation = Federation(WAYS[way], objective=ROUND)
    server = federation.server()
    federation.join(server)
    for _ in range(60):
        federation.round(server, silent=[2])
    assert not server.converged
    federation.converge(server, 1000)
    assert server.converged
    np.testing.assert_allclose(server.x, optimum(federation, range(M)), atol=1e-6)


@pytest.mark.parametrize("way", ["all", "half", "secant", "mean", "FedNL"])
def test_clients_come_and_go(way):
    federation = Federation(WAYS[way], objective=ROUND)
    server = federation.server()
    federation.join(server, [1, 2, 4])
    federation.round(server)
    federation.join(server, [3])  # between two rounds
    server.leave(2)
    assert server.members.tolist() == [1, 3, 4]
    tau, x, chosen, due = server.open_round()
    assert set(chosen.tolist()) <= {1, 3, 4}
    federation.join(server, [0])  # within one
    assert server.members.tolist() == [1, 3, 4]
    left = int(chosen[0])
    assert server.receive(tau, left, federation.clients[left].answer(x, due=left in due))
    server.leave(left)
    federation.round(server)
    members = sorted({0, 1, 3, 4} - {left})
    assert server.members.tolist() == members
    federation.converge(server, 1000)
    np.testing.assert_allclose(server.x, optimum(federation, members), atol=1e-6)
    federation.join(server, [2, left])  # what has converged goes on
    assert not server.converged
    federation.converge(server, 2000)
    np.testing.assert_allclose(
        server.x, optimum(federation, sorted({*members, 2, left})), atol=1e-6
    )


def test_all_may_leave_and_others_come():
    federation = Federation(CurvatureFedEPM(coordinates="whitened"), objective=ROUND)
    server = federation.server()
    federation.join(server, [0, 1])
    federation.round(server)
    server.leave(0)
    server.leave(1)
    with pytest.raises(RuntimeError, match="no client has joined"):
        server.open_round()
    federation.join(server, [2, 3])
    federation.converge(server, 1000)
    np.testing.assert_allclose(server.x, optimum(federation, [2, 3]), atol=1e-5)


def test_weights_of_those_who_were_there_first_stay():
    """Then f stays the mean over the pooled rows, times a number, whoever joins."""
    half = sum(DATA.client_sizes[:3])
    algorithm = CurvatureFedEPM()
    objective = LOGISTIC.changed(regularizer="beta")
    server = CurvatureServer(algorithm, M, 5)
    for i in range(M):
        features, labels = DATA.client(i)
        own = FederatedData(features, labels, [len(labels)])
        problem = ClientProblem(own, objective, "size", clients=3, weight_sum=float(half))
        client = CurvatureClient(algorithm, problem, index=i, clients=M)
        assert server.join(0, i, client.join(server.x))
        assert problem.client_weights[0] == pytest.approx(len(labels) * 3 / half, rel=1e-14)
