"""`CurvatureFedEPM` with a server and clients apart: the bits of a run, and what may go wrong."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import tempfile
from typing import Any

import numpy as np
import pytest
from dying import dying
from full_disk import full
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import data_for, small_data
from scipy import sparse

from fedepm_fast import CurvatureFedEPM, FedEPM, FederatedData, run
from fedepm_fast.algorithms import FedNL
from fedepm_fast.federation import server as uploads
from fedepm_fast.federation.curvature_client import Answer, CurvatureClient, OwnObjective
from fedepm_fast.federation.curvature_server import CurvatureServer
from fedepm_fast.objectives import ClientProblem, Objective, Problem, as_objective

M, SEED = 6, 5
DATA = small_data(M, 5)
LOGISTIC = as_objective("logistic", beta=0.01)
ROUND = as_objective("logistic", beta=0.1, regularizer="beta")

#: Python 3.12 and later warn of a fork beside the threads of pytest-xdist; the children start none.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class Federation:
    """Clients that hold their own rows alone, and their server."""

    def __init__(
        self, algorithm: CurvatureFedEPM, data: FederatedData = DATA,
        objective: Objective = LOGISTIC, client_weight: str = "size", **options: Any,
    ) -> None:  # fmt: skip
        m = data.n_clients
        self.problem = Problem(data, objective, client_weight)
        self.clients = []
        for i in range(m):
            features, labels = data.client(i)
            weights = data.sample_weight
            own = FederatedData(
                features.copy(), labels.copy(), [len(labels)],
                sample_weight=None if weights is None else weights[data.rows_of(i)].copy(),
            )  # fmt: skip
            problem = ClientProblem(
                own, self.problem.objective, client_weight, clients=m,
                weight_sum=float(data.weight_sums.sum()),
            )  # fmt: skip
            self.clients.append(CurvatureClient(algorithm, problem, index=i, clients=m))
        options = {"seed": SEED, "bounded": self.problem.has_lipschitz, **options}
        self.options = {"classes": self.problem.objective.n_outputs, **options}
        self.algorithm, self.shape = algorithm, (m, self.problem.n_parameters)

    def server(self, path: Any = None) -> CurvatureServer:
        return CurvatureServer(self.algorithm, *self.shape, path=path, **self.options)

    def join(self, server: CurvatureServer, clients: Any = None) -> None:
        for i in range(self.shape[0]) if clients is None else clients:
            assert server.join(server.round_of_x, i, sent(self.clients[i].join(server.x)))

    def round(self, server: CurvatureServer, silent: Any = ()) -> list[int]:
        tau, x, _, due = server.open_round()
        for i in server.awaited.tolist():
            if i not in silent:
                assert server.receive(tau, i, sent(self.clients[i].answer(x, due=i in due)))
        return server.close_round().tolist()

    def converge(self, server: CurvatureServer, rounds: int = 100) -> list[np.ndarray]:
        points = [server.x]
        while not server.converged and server.tau <= rounds:
            self.round(server)
            points.append(server.x)
        return points


def sent(answer: Answer) -> Answer:
    """As it arrives."""
    return Answer.from_dict(json.loads(json.dumps(answer.to_dict(), allow_nan=False)))


# The bits of a run ----------------------------------------------------------------------

WAYS = {
    "all": CurvatureFedEPM(),
    "half": CurvatureFedEPM(participation=0.5),
    "seldom": CurvatureFedEPM(participation=0.5, renew_every=3),
    "secant": CurvatureFedEPM(participation=0.5, coordinates="secant"),
    "whitened": CurvatureFedEPM(participation=0.5, coordinates="whitened", lam=1e-3),
    "mean": CurvatureFedEPM(coordinates="whitened"),
    "FedNL": FedNL(participation=0.5),
}


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


def optimum(federation: Federation, clients: Any) -> np.ndarray:
    """Where the sum of these clients' objectives is least, by Newton steps."""
    problem, x = federation.problem, np.zeros(federation.shape[1])
    for _ in range(50):
        gradient = sum(problem.gradient(i, x) for i in clients)
        x = x - np.linalg.solve(sum(problem.hessian(i, x) for i in clients), gradient)
    return x


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


# Faults ---------------------------------------------------------------------------------

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


# On disk --------------------------------------------------------------------------------


def same(found: CurvatureServer, expected: CurvatureServer) -> None:
    assert (found.tau, found.round_of_x) == (expected.tau, expected.round_of_x)
    assert found.converged == expected.converged
    for name in ("members", "awaited", "x", "best"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_starts_anew_after_every_call_goes_on(way, tmp_path):
    federation = Federation(WAYS[way])
    expected, found = federation.server(), federation.server(tmp_path)

    def each(call: Any) -> None:
        nonlocal found
        assert np.array_equal(call(found), call(expected))
        found.close()
        found = federation.server(tmp_path)
        same(found, expected)

    for i in (0, 1, 3, 4):
        each(lambda s, i=i: s.join(0, i, federation.clients[i].join(s.x)))
    for tau in range(1, 6):
        each(lambda s: s.open_round().due)
        for i in expected.awaited.tolist()[tau == 2 :]:
            each(
                lambda s, i=i: s.receive(
                    s.tau, i, federation.clients[i].answer(s.x, due=i in s.open_round().due)
                )
            )
        if tau == 2:
            each(lambda s: s.join(2, 2, federation.clients[2].join(s.x)))
            each(lambda s: s.leave(3))
        each(lambda s: s.close_round())
        if tau == 3:
            each(lambda s: s.join(3, 3, federation.clients[3].join(s.x)))
            each(lambda s: s.leave(0))
    np.testing.assert_array_equal(
        federation.converge(found, 300)[-1], federation.converge(expected, 300)[-1]
    )


STEP = st.tuples(st.sampled_from(["join", "send", "leave", "open", "close"]), st.integers(0, 3))
WHOLE = Federation(CurvatureFedEPM(participation=0.5))


def perform(server: CurvatureServer, step: tuple[str, int], tau: int) -> Any:
    """One call, which may be repeated after a kill; its answer."""
    event, i = step
    client = WHOLE.clients[i]
    is_open = server.round_of_x == server.tau
    if event == "join":
        return server.join(server.round_of_x, i, client.join(server.x))
    if event == "send":
        due = is_open and i in server.open_round().due
        return server.receive(tau, i, client.answer(server.x, due=due))
    if event == "leave":
        return server.leave(i)
    if event == "open":
        return server.open_round().clients.tolist() if len(server.members) else None
    return server.close_round().tolist() if is_open and server.tau == tau else None


@given(st.lists(STEP, min_size=1, max_size=20), st.integers(1, 80))
@settings(max_examples=60)
def test_a_kill_at_any_moment_changes_nothing(steps, calls):
    steps = [("join", 0), *steps]
    with tempfile.TemporaryDirectory() as folder:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                logging.disable()
                dying(calls)
                server = WHOLE.server(folder)
                for step in steps:
                    perform(server, step, server.tau)
                    os.write(writing, b".")
                os.write(writing, b"!")
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        done = said.count(b".")
        expected = WHOLE.server()
        for step in steps[:done]:
            perform(expected, step, expected.tau)
        found = WHOLE.server(folder)
        if done < len(steps):  # the call that was cut short may have happened, and is repeated
            tau = expected.tau
            perform(expected, steps[done], tau)
            perform(found, steps[done], tau)
        same(found, expected)
        found.close()


@pytest.mark.parametrize("event", ["join", "open", "receive", "close"])
def test_a_call_that_cannot_be_written_changes_nothing(event, tmp_path):
    federation = Federation(CurvatureFedEPM())
    expected, found = federation.server(), federation.server(tmp_path)
    for server in (expected, found):
        federation.join(server, [0, 1, 2])
        federation.round(server)
        if event in ("receive", "close"):
            server.open_round()
        if event == "close":
            for i in (0, 1):
                server.receive(2, i, federation.clients[i].answer(server.x, due=True))

    def call(server: CurvatureServer) -> Any:
        if event == "join":
            return server.join(1, 3, federation.clients[3].join(server.x))
        if event == "open":
            return server.open_round().x
        if event == "receive":
            return server.receive(2, 1, federation.clients[1].answer(server.x, due=True))
        return server.close_round()

    (journal,) = tmp_path.glob("journal-*")
    with (
        full(journal.stat().st_size),
        pytest.raises(OSError, match=r"File too large: '.*/(journal-1|state\.npz)'"),
    ):
        call(found)
    same(found, expected)
    assert np.array_equal(call(found), call(expected))
    same(found, expected)
    found.close()
    same(federation.server(tmp_path), expected)


def test_a_damaged_or_foreign_folder_is_refused(tmp_path):
    federation = Federation(CurvatureFedEPM())
    with federation.server(tmp_path) as server:
        federation.join(server)
        federation.round(server)
        with pytest.raises(RuntimeError, match="in use by another server"):
            federation.server(tmp_path)
    with pytest.raises(ValueError, match="path holds a run with seed = 5, got 6"):
        Federation(CurvatureFedEPM(), seed=6).server(tmp_path)
    with pytest.raises(ValueError, match="path holds a run with start"):
        Federation(CurvatureFedEPM(), start=np.ones(5)).server(tmp_path)
    state = tmp_path / "state.npz"
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(ValueError, match="path must hold a server's state"):
        federation.server(tmp_path)
    state.unlink()
    with pytest.raises(ValueError, match=r"holds journal-1 without its state\.npz"):
        federation.server(tmp_path)
