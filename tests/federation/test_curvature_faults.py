"""Answers and arguments that a server of curvatures refuses, and what overflows."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
from curvature_federation import DATA, LOGISTIC, ROUND, SEED, Federation, M, optimum
from problems import small_data

from fedepm_fast import CurvatureFedEPM, FedEPM, FederatedData, run
from fedepm_fast.algorithms import FedNL
from fedepm_fast.federation import server as uploads
from fedepm_fast.federation.curvature_client import Answer, CurvatureClient
from fedepm_fast.federation.curvature_server import CurvatureServer
from fedepm_fast.objectives import ClientProblem, as_objective

GOOD = Answer(1.0, np.zeros(5), np.eye(5)[np.triu_indices(5)])
BAD = {
    "nothing": (None, "answer must be an Answer, got NoneType"),
    "text": (GOOD._replace(value="1"), "value must be a number, got str"),
    "no number": (GOOD._replace(value=math.nan), "value must be at most 1e+200 in size, or inf"),
    "minus infinity": (GOOD._replace(value=-math.inf), "value must be at most 1e+200 in size"),
    "a list": (GOOD._replace(gradient=[0.0] * 5), "gradient must be an array, got list"),
    "float32": (
        GOOD._replace(gradient=np.zeros(5, np.float32)),
        "gradient must have dtype float64, got float32",
    ),
    "a shape": (GOOD._replace(gradient=np.zeros(4)), r"gradient must have shape (5,), got (4,)"),
    "an infinite gradient": (
        GOOD._replace(gradient=np.array([0, 0, np.inf, 0, 0])),
        "gradient must be finite and at most 1e+200 in size, got inf",
    ),
    "a NaN": (
        GOOD._replace(curvature=np.full(15, np.nan)),
        "curvature must be finite and at most 1e+200 in size, got nan",
    ),
    "no Hessian": (GOOD._replace(curvature=None), "curvature must be an array, got NoneType"),
    "another Hessian": (
        GOOD._replace(curvature=np.zeros(14)), "curvature must have shape (15,), got (14,)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_rejected_and_the_round_goes_on(name, caplog):
    answer, fault = BAD[name]
    federation = Federation(CurvatureFedEPM())
    server = federation.server()
    assert not server.join(0, 0, answer)
    assert f"round 1: client 0 rejected: {fault}" in caplog.text
    federation.join(server)
    tau = server.open_round().tau
    caplog.clear()
    assert not server.receive(tau, 3, answer)
    assert f"round 1: client 3 rejected: {fault}" in caplog.text
    assert federation.round(server) == list(range(M))
    federation.converge(server)
    np.testing.assert_allclose(server.x, optimum(federation, range(M)), atol=1e-6)


def test_answers_that_nobody_asked_for_are_rejected(caplog):
    federation = Federation(CurvatureFedEPM(participation=0.5, renew_every=9))
    server = federation.server()
    assert not server.receive(1, 0, GOOD)
    federation.join(server)
    assert not server.join(0, 0, GOOD)
    for _ in range(3):
        federation.round(server)
    tau, x, chosen, due = server.open_round()
    other = min(set(range(M)) - set(chosen.tolist()))
    assert len(due) == 0  # everyone has taken part once, and sent its Hessian
    for said, arguments in {
        "answer must be of round 4, got round 3": (tau - 1, chosen[0], GOOD),
        "it was not selected": (tau, other, GOOD),
        "clients are numbered 0 to 5, got 6": (tau, 6, GOOD),
        "curvature must be None: none was asked for": (tau, chosen[0], GOOD),
    }.items():
        caplog.clear()
        assert not server.receive(*arguments)
        assert said in caplog.text
    caplog.clear()
    assert not server.join(4, 6, GOOD)
    server.leave(other)
    assert not server.join(3, other, GOOD)
    assert f"client {other} rejected: first answer must be of round 4, got round 3" in caplog.text
    i = int(chosen[0])
    assert server.receive(tau, i, federation.clients[i].answer(x))
    assert not server.receive(tau, i, federation.clients[i].answer(x))
    assert "it has replied already" in caplog.text


@pytest.mark.parametrize("coordinates", ["renewed", "secant", "whitened"])
def test_a_bound_that_is_none_is_rejected(coordinates, caplog):
    server = CurvatureServer(CurvatureFedEPM(coordinates=coordinates), M, 2)
    negative = [-1.0, 1.0] if coordinates == "secant" else [1.0, 2.0, 1.0]
    assert not server.join(0, 0, Answer(1.0, np.zeros(2), np.array(negative)))
    assert "client 0 rejected: curvature must be" in caplog.text


TRIANGLE = np.triu_indices(5)
INDEFINITE = np.eye(5) + np.diag([2.0, 0, 0, 0], 1) + np.diag([2.0, 0, 0, 0], -1)
NEGATIVE = {
    "flipped": (lambda hessian: -hessian, "with a diagonal of at least 0, got -"),
    "indefinite": (lambda hessian: INDEFINITE[TRIANGLE], "got a matrix with a negative eigenvalue"),
    "beside a 0": (
        lambda hessian: 1e199 * (INDEFINITE - np.eye(5))[TRIANGLE],
        "got a matrix with a negative eigenvalue",
    ),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_a_hessian_that_is_negative_is_rejected_and_the_model_stays(name, caplog):
    wrong, fault = NEGATIVE[name]
    federation = Federation(CurvatureFedEPM())
    server, other = federation.server(), federation.server()
    for each in (server, other):
        federation.join(each)
        federation.round(each)
    tau, x, _, due = server.open_round()
    assert 3 in due
    true = federation.clients[3].answer(x, due=True)
    caplog.clear()
    assert not server.receive(tau, 3, true._replace(curvature=wrong(true.curvature)))
    assert f"client 3 rejected: curvature must be that of a convex function, {fault}" in caplog.text
    assert federation.round(server, silent=[3]) == [0, 1, 2, 4, 5]
    federation.round(other, silent=[3])
    np.testing.assert_array_equal(server.open_round().x, other.open_round().x)
    federation.converge(server)
    assert server.converged
    np.testing.assert_allclose(server.x, optimum(federation, range(M)), atol=1e-6)


def test_a_first_hessian_that_is_negative_is_rejected(caplog):
    server = CurvatureServer(CurvatureFedEPM(), M, 5, bounded=False)
    assert not server.join(0, 0, GOOD._replace(curvature=-GOOD.curvature))
    assert "curvature must be that of a convex function, with a diagonal" in caplog.text
    assert server.join(0, 0, GOOD)


@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-310, 1e-160, 1.0, 1e190])
def test_hessians_of_all_sizes_are_answers(size, rng):
    """Singular ones as well, in columns of any units, and as float32 has them."""
    rows = rng.normal(size=(3, 5)) * [1e4, 1.0, 1e-4, 1.0, 0.0]
    hessian = rows.T @ rows
    for each in (hessian, hessian.astype(np.float32).astype(float), np.zeros((5, 5))):
        server = CurvatureServer(CurvatureFedEPM(), 1, 5)
        assert server.join(0, 0, GOOD)
        tau = server.open_round().tau
        assert server.receive(tau, 0, GOOD._replace(curvature=size * each[TRIANGLE]))


def test_an_objective_that_overflows_is_an_answer(caplog):
    """The server has gone too far, and goes back: no fault of the client's."""
    rows = np.array([[1.0], [2.0], [0.5], [3.0]])
    data = FederatedData(rows, np.array([0.0, 0.0, 0.0, 5.0]), [2, 2])
    objective = as_objective("poisson")
    algorithm, start = CurvatureFedEPM(), np.array([-8.0])
    federation = Federation(algorithm, data, objective, start=start)
    server = federation.server()
    federation.join(server)
    with caplog.at_level(logging.WARNING):
        points = federation.converge(server)
    assert not caplog.text
    result = run(
        algorithm, data, objective=objective, client_weight="size", engine="reference", seed=SEED,
        start=start,
    )  # fmt: skip
    assert max(map(abs, points[1])) > 300  # exp(3 * 300) is more than there is
    np.testing.assert_array_equal(points[-1], result.x)
    assert federation.clients[0].answer(np.array([1e3])) == (math.inf, np.zeros(1), None)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CurvatureServer(FedEPM(), 2, 2), "algorithm must be CurvatureFedEPM"),
        (lambda: uploads.Server(CurvatureFedEPM(), 2, 2), "algorithm must be another one"),
        (
            lambda: CurvatureServer(CurvatureFedEPM(coordinates="columns"), 2, 2),
            "coordinates must be one of renewed, secant, whitened in a federation, got 'columns'",
        ),
        (
            lambda: CurvatureServer(CurvatureFedEPM(coordinates="whitened"), 2, 1001),
            "coordinates must be 'renewed' or 'secant'",
        ),
        (lambda: CurvatureServer(CurvatureFedEPM(), 2, 5, classes=3), "features must be a multi"),
        (lambda: CurvatureServer(CurvatureFedEPM(), 2, 5, start=[1.0]), "start must have shape"),
        (
            lambda: CurvatureClient(CurvatureFedEPM(), LOGISTIC, index=0, clients=2),
            "objective must be a ClientProblem or an OwnObjective, got Logistic",
        ),
        (lambda: ClientProblem(DATA, LOGISTIC), "data must be of one client, got 6"),
        (
            lambda: ClientProblem(small_data(1), LOGISTIC, "size"),
            "weight_sum must be given with client_weight 'size'",
        ),
        (lambda: Answer.from_dict({}), "answer must be one as to_dict writes it"),
    ],
)
def test_arguments_are_checked(make, said):
    with pytest.raises((TypeError, ValueError), match=said):
        make()


@pytest.mark.parametrize("on_disk", [False, True])
def test_where_nothing_bends_fednl_has_no_next_point_until_someone_else_joins(on_disk, tmp_path):
    flat = FederatedData(np.abs(DATA.features), np.ones(DATA.n_samples), DATA.client_sizes)
    far = Federation(FedNL(), flat, as_objective("logistic", beta=0.0), start=np.full(5, -1e4))
    server = far.server(tmp_path if on_disk else None)
    far.join(server, range(3))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"FedNL has no next point: .* CurvatureFedEPM has"):
            server.open_round()
    assert (server.x == -1e4).all() and server.tau == 1
    bends = Answer(1.0, np.ones(5), np.eye(5)[np.triu_indices(5)])
    assert server.join(0, 3, bends)
    assert np.isfinite(server.open_round().x).all()


@pytest.mark.parametrize("curvature", [None, np.eye(5)[np.triu_indices(5)]])
def test_fednl_keeps_the_model_of_a_client_whose_objective_overflows(curvature):
    federation = Federation(FedNL(), objective=ROUND)
    server = federation.server()
    federation.join(server)
    tau, x, clients, _ = server.open_round()
    at_start = server._clients.server.models.M.copy()
    sent = at_start.copy()
    for i in clients.tolist():
        answer = federation.clients[i].answer(x, due=True)
        if i == 2:
            answer = Answer(np.inf, np.zeros(5), curvature)
        else:
            sent[i] = answer.curvature
        assert server.receive(tau, i, answer)
    server.close_round()
    models = server._clients.server
    assert (models.X[2] == 0).all() and (models.X[[0, 1, 3, 4, 5]] == x).all()
    assert (sent == models.models.M).all() and (sent != at_start).any(axis=1).sum() == 5
    assert not server.converged
    federation.converge(server)
    np.testing.assert_allclose(server.x, optimum(federation, range(M)), atol=1e-6)
