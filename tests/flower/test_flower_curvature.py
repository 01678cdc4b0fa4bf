"""`CurvatureFedEPM` in Flower, in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flower_grid import InProcessGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord

from fedepm_fast import CurvatureFedEPM, FedEPM, FederatedData, FedNL, datasets, run
from fedepm_fast.federation.client import Client
from fedepm_fast.federation.curvature_client import CurvatureClient
from fedepm_fast.flower import CurvatureStrategy, client_app
from fedepm_fast.objectives import ClientProblem, as_objective

M, N, SEED, ALGORITHM = 10, 14, 4, CurvatureFedEPM(participation=0.5)
DATA = datasets.adult(clients=M, seed=0)
START = ArrayRecord({"a": Array(np.zeros((2, 4))), "b": Array(np.zeros(N - 8))})
LOSS = as_objective("logistic", beta=1e-3)


def curvature_client(context: Context, algorithm: CurvatureFedEPM = ALGORITHM) -> CurvatureClient:
    i = int(context.node_config["partition-id"])
    features, labels = DATA.client(i)
    own = FederatedData(features, labels, np.array([len(labels)]))
    problem = ClientProblem(own, LOSS, "size", clients=M, weight_sum=float(DATA.n_samples))
    return CurvatureClient(algorithm, problem, index=i, clients=M)


def grid(make_client: Any = curvature_client) -> InProcessGrid:
    return InProcessGrid(client_app(make_client), M)


def vector(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([arrays[name].numpy().ravel() for name in ("a", "b")])


def strategy(algorithm: Any = ALGORITHM, **options: Any) -> CurvatureStrategy:
    return CurvatureStrategy(algorithm, M, **{"seed": SEED, "min_clients": M, **options})


def expected(algorithm: Any = ALGORITHM) -> Any:
    return run(algorithm, DATA, objective=LOSS, client_weight="size", engine="reference", seed=SEED)


@pytest.mark.parametrize("algorithm", [ALGORITHM, FedNL(participation=0.5)])
def test_flower_has_the_bits_of_a_run(algorithm):
    result, points = expected(algorithm), []
    federation = strategy(algorithm)
    nodes = grid(lambda context: curvature_client(context, algorithm))
    done = federation.start(
        nodes, START, num_rounds=result.rounds + 5,
        evaluate_fn=lambda _, arrays: points.append(vector(arrays)),
    )  # fmt: skip
    np.testing.assert_array_equal(points[: result.rounds + 1], result.history["x"])
    np.testing.assert_array_equal(vector(done.arrays), result.x)
    metrics = done.train_metrics_clientapp
    assert [metrics[tau]["converged"] for tau in range(1, result.rounds + 6)] == (
        [0] * (result.rounds - 1) + [1] * 6
    )
    assert [metrics[tau]["clients"] for tau in (1, 2)] == [5, 5]
    assert metrics[result.rounds + 5]["clients"] == 0  # nobody is asked any more


def test_a_restarted_server_goes_on(tmp_path):
    result, nodes = expected(), grid()
    strategy(path=tmp_path).start(nodes, START, num_rounds=2)
    # Killed with the clients' work of a round done, and its replies lost.
    killed = strategy(path=tmp_path)
    nodes.send_and_receive(killed.configure_train(1, START, ConfigRecord(), nodes))
    killed.restore(START).close()
    restarted = strategy(path=tmp_path)
    assert restarted.restore(START).tau == 3
    done = restarted.start(nodes, START, num_rounds=result.rounds)
    np.testing.assert_array_equal(vector(done.arrays), result.x)


def with_metric(name: str, value: Any) -> Any:
    def tamper(reply: Any) -> Any:
        reply.content["metrics"] = MetricRecord({**reply.content["metrics"], name: value})
        return reply

    return tamper


def with_arrays(arrays: dict[str, Any]) -> Any:
    def tamper(reply: Any) -> Any:
        record = {name: Array(np.asarray(a, np.float64)) for name, a in arrays.items()}
        reply.content["arrays"] = ArrayRecord(record)
        return reply

    return tamper


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (lambda reply: None, "no reply in time"),
        (with_metric("value", float("nan")), "value must be at most 1e+200 in size, or inf"),
        (with_metric("round", 0), "answer must be of round 1, got round 0"),
        (with_arrays({"gradient": np.zeros(3)}), f"gradient must have shape ({N},), got (3,)"),
        (with_arrays({"gradient": np.zeros(N)}), "curvature must be an array, got NoneType"),
        (with_arrays({"w": np.zeros(N)}), "arrays must be named 'gradient' and"),
    ],
)
def test_a_bad_reply_is_left_out(tamper, said, caplog):
    nodes, federation = grid(), strategy()
    messages = list(federation.configure_train(1, START, ConfigRecord(), nodes))
    node = messages[0].metadata.dst_node_id
    nodes.tampers[node] = tamper
    _, metrics = federation.aggregate_train(1, nodes.send_and_receive(messages))
    assert metrics == {"clients": len(messages) - 1, "converged": 0}
    assert f"round 1: client {node - 100} rejected: {said}" in caplog.text


def test_clients_with_other_parameters_answer_with_an_error():
    def other(context: Context) -> CurvatureClient:
        return curvature_client(context, CurvatureFedEPM(participation=0.4))

    def of_fedepm(context: Context) -> Client:
        i = int(context.node_config["partition-id"])
        return Client(FedEPM(), lambda x: x, index=i, clients=M, features=N, samples=10)

    asked = list(strategy().configure_train(1, START, ConfigRecord(), grid()))[:1]
    for make_client, said in ((other, "participation is 0.5"), (of_fedepm, "name is 'curvature'")):
        (reply,) = grid(make_client).send_and_receive(asked)
        assert f"algorithm must be the server's: {said} there" in reply.error.reason


def test_arrays_of_float32_are_refused():
    start = ArrayRecord({"w": Array(np.zeros(N, np.float32))})
    with pytest.raises(TypeError, match="arrays must be float64, got float32"):
        strategy().restore(start)
