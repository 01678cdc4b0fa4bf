"""ENS as the aggregator of Flower's own strategies, over rounds and on what clients may send."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as strategies
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import FedAdam, FedAvg

from fedepm_fast import FedEPM
from fedepm_fast.flower import ElasticNetAggregate, FedEPMStrategy
from fedepm_fast.kernels.ens import ens


def replies(rows: list[dict[str, np.ndarray]], examples: list[Any]) -> list[Message]:
    found = []
    for i, (row, count) in enumerate(zip(rows, examples, strict=True)):
        ask = Message(RecordDict(), 100 + i, "train")
        content = RecordDict(
            {
                "arrays": ArrayRecord({name: Array(array) for name, array in row.items()}),
                "metrics": MetricRecord({"num-examples": count, "loss": float(i)}),
            }
        )
        found.append(Message(content, reply_to=ask))
    return found


def rows_of(count: int, dtype: Any = np.float32) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    return [
        {"w": rng.normal(size=(3, 4)).astype(dtype), "steps": rng.integers(0, 9, 2)}
        for _ in range(count)
    ]


class NoNodes:
    def get_node_ids(self) -> list[int]:
        return [100, 101]


def wrapped(inner: Any, row: dict[str, np.ndarray], **options: Any) -> ElasticNetAggregate:
    outer = ElasticNetAggregate(inner, 0.5, **options)
    arrays = ArrayRecord({name: Array(array) for name, array in row.items()})
    outer.configure_train(1, arrays, ConfigRecord(), NoNodes())
    return outer


@pytest.mark.parametrize("weights", ["equal", "examples"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ens_takes_the_place_of_the_average(weights, dtype):
    rows, examples = rows_of(6, dtype), [1, 2, 3, 4, 5, 6]
    outer = wrapped(FedAvg(), rows[0], weights=weights)
    arrays, metrics = outer.aggregate_train(1, replies(rows, examples)[::-1])
    p = examples if weights == "examples" else None
    w = ens(np.stack([row["w"].ravel() for row in rows]), 0.5, weights=p)
    found = arrays["w"].numpy()
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, w.reshape(3, 4))
    steps = ens(np.stack([row["steps"] for row in rows]), 0.5, weights=p)
    np.testing.assert_array_equal(arrays["steps"].numpy(), np.rint(steps))
    average = sum(n * i for i, n in enumerate(examples)) / sum(examples)
    assert metrics["loss"] == pytest.approx(average)


def test_bad_replies_do_not_reach_the_aggregate(caplog):
    rows = rows_of(9)
    expected = ens(np.stack([row["w"].ravel() for row in rows[:4]]), 0.5)
    rows[4]["w"][1, 1] = np.nan
    rows[5]["w"] = rows[5]["w"][:2]
    rows[6]["w"] = rows[6]["w"].astype(np.float64)
    rows[7] = {"w": rows[7]["w"]}
    outer = wrapped(FedAvg(), rows[0])
    arrays, _ = outer.aggregate_train(1, replies(rows, [5] * 8 + [-1]))
    np.testing.assert_array_equal(arrays["w"].numpy().ravel(), expected)
    for node, fault in [
        (104, "array 'w' must be finite, got nan at index (1, 1)"),
        (105, "array 'w' must be float32(3, 4), got float32(2, 4)"),
        (106, "array 'w' must be float32(3, 4), got float64(3, 4)"),
        (107, "arrays must be named ['steps', 'w'], got ['w']"),
        (108, "num-examples must be a finite number in (0, inf), got -1"),
    ]:
        assert f"round 1: node {node} rejected: {fault}" in caplog.text
    assert outer.aggregate_train(1, []) == (None, None)


def test_server_steps_are_taken_from_the_ens_point():
    rows = [{"w": row["w"]} for row in rows_of(5)]
    start = {"w": np.zeros((3, 4), np.float32)}
    arrays, _ = wrapped(FedAdam(), start).aggregate_train(1, replies(rows, [1] * 5))
    point = ens(np.stack([row["w"].ravel() for row in rows]), 0.5).reshape(3, 4)
    plain = FedAdam()
    plain.configure_train(1, ArrayRecord({"w": Array(start["w"])}), ConfigRecord(), NoNodes())
    expected, _ = plain.aggregate_train(1, replies([{"w": point}], [1]))
    np.testing.assert_array_equal(arrays["w"].numpy(), expected["w"].numpy())


def test_only_strategies_like_fedavg_are_wrapped():
    with pytest.raises(TypeError, match="FedEPMStrategy has no weighted_by_key"):
        ElasticNetAggregate(FedEPMStrategy(FedEPM(), 10), 0.5)
    for name, options in [
        ("Krum", {}),
        ("MultiKrum", {}),
        ("Bulyan", {"num_malicious_nodes": 0}),
        ("QFedAvg", {"client_learning_rate": 0.1}),
        ("FedXgbBagging", {}),
        ("FedXgbCyclic", {}),
    ]:
        own = type("Own", (getattr(strategies, name),), {})
        with pytest.raises(TypeError, match="Own needs every client's reply"):
            ElasticNetAggregate(own(**options), 0.5)
    with pytest.raises(ValueError, match="weights must be one of 'equal', 'examples'"):
        ElasticNetAggregate(FedAvg(), 0.5, weights="rows")


# Over several rounds ----------------------------------------------------------------------

INNER = {
    "FedAvg": {},
    "FedProx": {"proximal_mu": 0.1},
    "FedAvgM": {"server_momentum": 0.5},
    "FedAdagrad": {},
    "FedAdam": {"beta_1": 0.5},
    "FedYogi": {},
    "FedMedian": {},
    "FedTrimmedAvg": {},
}


class Modules:
    """Clients that copy what they are sent into parameters of their own, as PyTorch modules do."""

    def __init__(self, own: dict[str, Any], nodes: int = 3) -> None:
        self.own, self.nodes = own, range(100, 100 + nodes)
        self.sent: list[dict[str, str]] = []
        self.counters: list[int] = []

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        for message in messages:
            record = next(iter(message.content.array_records.values()))
            self.sent.append({name: array.dtype for name, array in record.items()})
            metrics: dict[str, Any] = {"num-examples": 10, "loss": 0.5}
            content = RecordDict({"metrics": MetricRecord(metrics)})
            if message.metadata.message_type == "train":
                held = {name: record[name].numpy().astype(own) for name, own in self.own.items()}
                node = message.metadata.dst_node_id - 99
                held["w"] = held["w"] + np.asarray(0.25 * node, held["w"].dtype)
                if "steps" in held:
                    held["steps"] = held["steps"] + 7
                    self.counters.append(int(held["steps"]))
                arrays = {name: Array(np.asarray(array)) for name, array in held.items()}
                content["arrays"] = ArrayRecord(arrays)
            yield Message(content, reply_to=message)


def start_of(own: dict[str, Any]) -> ArrayRecord:
    shapes = {"w": (3,), "steps": ()}
    return ArrayRecord({name: Array(np.zeros(shapes[name], dtype)) for name, dtype in own.items()})


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("counter", [None, np.int64, np.uint8])
@pytest.mark.parametrize("name", INNER)
def test_uploads_keep_their_dtypes_through_rounds_of_any_strategy(name, counter, dtype, caplog):
    own = {"w": dtype} | ({"steps": counter} if counter else {})
    made = {}
    for how in ("bare", "ens"):
        inner = getattr(strategies, name)(**INNER[name])
        grid = Modules(own)
        outer = inner if how == "bare" else ElasticNetAggregate(inner, 0.0)
        made[how] = grid, outer.start(grid, start_of(own), num_rounds=4)
    (_, bare), (grid, result) = made.values()
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3, 4]
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2, 3, 4]
    assert "rejected" not in caplog.text
    native = {name: str(np.dtype(d).newbyteorder("=")) for name, d in own.items()}
    first = {name: str(np.dtype(d)) for name, d in own.items()}  # of the model, as it is
    assert grid.sent == [first] * 3 + [native] * (len(grid.sent) - 3)
    # With c = 0 the mean, as the bare strategy takes it, to the rounding of its dtype.
    error = 20 * max(float(np.finfo(dtype).eps), 1e-12)
    for array in own:
        found, expected = result.arrays[array].numpy(), bare.arrays[array].numpy()
        if array == "w" and name != "FedTrimmedAvg":
            median = name == "FedMedian"  # of three that are evenly spaced: the mean
            np.testing.assert_allclose(found, expected, rtol=error, atol=error * (1 + median))
    if counter and name in ("FedAvg", "FedProx", "FedMedian", "FedTrimmedAvg"):
        assert result.arrays["steps"].numpy() == 28
        assert grid.counters == [7] * 3 + [14] * 3 + [21] * 3 + [28] * 3


def test_a_counter_follows_the_server_steps_of_the_bare_strategy():
    own = {"w": np.float32, "steps": np.int64}
    made = [
        outer.start(Modules(own), start_of(own), num_rounds=4).arrays["steps"].numpy()
        for outer in (FedAdam(), ElasticNetAggregate(FedAdam(), 0.5))
    ]
    assert made[1] == pytest.approx(made[0], rel=1e-12)
    assert made[0] == pytest.approx(0.34374664326370086)


def test_clients_may_all_have_another_dtype_than_the_model(caplog):
    own = {"w": np.float32, "steps": np.int64}
    start = start_of({"w": np.float64, "steps": np.float64})
    result = ElasticNetAggregate(FedAvg(), 0.0).start(Modules(own), start, num_rounds=3)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3]
    np.testing.assert_allclose(result.arrays["w"].numpy(), [1.5] * 3, rtol=1e-6)
    assert result.arrays["steps"].numpy() == 21
    assert "rejected" not in caplog.text


# What clients may send --------------------------------------------------------------------


def test_one_client_of_another_dtype_is_named_and_cannot_displace_the_others(caplog):
    start = {"w": np.zeros(2)}
    rows = [{"w": np.full(2, float(i), np.float32)} for i in range(3)] + [{"w": np.full(2, 9.0)}]
    arrays, _ = wrapped(FedAvg(), start).aggregate_train(1, replies(rows[::-1], [1] * 4))
    np.testing.assert_array_equal(arrays["w"].numpy(), ens(np.arange(3.0)[:, None] + [0, 0], 0.5))
    assert "node 100 rejected: array 'w' must be float32(2,), got float64(2,)" in caplog.text
    assert caplog.text.count("rejected") == 1
    # Of equally many, the model's own.
    caplog.clear()
    wrapped(FedAvg(), start).aggregate_train(1, replies(rows[2:], [1] * 2))
    assert "node 100 rejected: array 'w' must be float64(2,), got float32(2,)" in caplog.text


@pytest.mark.parametrize("c", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.uint8])
def test_integers_are_exact_or_refused(dtype, c, caplog):
    top = min(np.iinfo(dtype).max, 2**53)
    rows = [{"w": np.array([top, 0], dtype)}] * 3
    grid_rows = wrapped(FedAvg(), rows[0])
    grid_rows.c = c
    arrays, _ = grid_rows.aggregate_train(1, replies(rows, [1] * 3))
    assert arrays["w"].numpy().tolist() == [top, 0]
    sent = grid_rows.configure_train(2, arrays, ConfigRecord(), NoNodes())
    back = sent[0].content["arrays"]["w"]
    assert back.dtype == np.dtype(dtype) and back.numpy().tolist() == [top, 0]
    if top == 2**53:
        rows[1] = {"w": np.array([np.iinfo(dtype).max, 0], dtype)}
        arrays, _ = grid_rows.aggregate_train(2, replies(rows, [1] * 3))
        assert "node 101 rejected: array 'w' must hold integers of at most 2**53 in size" in (
            caplog.text
        )
        assert arrays["w"].numpy().tolist() == [top, 0]


@pytest.mark.parametrize("dtype", [bool, complex, np.longdouble, "datetime64[s]", "U3"])
def test_arrays_that_have_no_mean_are_refused(dtype, caplog):
    odd = np.zeros(3, dtype)
    with pytest.raises(TypeError, match="array 'w' must be of integers, or floats of up to 64"):
        wrapped(FedAvg(), {"w": odd})
    rows = [{"w": np.ones(3)}, {"w": odd}, {"w": odd}]
    arrays, _ = wrapped(FedAvg(), rows[0]).aggregate_train(1, replies(rows, [1] * 3))
    assert arrays["w"].numpy().tolist() == [1.0] * 3
    assert "node 101 rejected: array 'w' must be of integers" in caplog.text
    assert "node 102 rejected: array 'w' must be of integers" in caplog.text


def test_a_dtype_that_numpy_does_not_know_is_refused():
    record = ArrayRecord({"w": Array("bfloat16", (1,), "numpy.ndarray", b"")})
    with pytest.raises(TypeError, match=r"array 'w' must be of integers.* got bfloat16"):
        ElasticNetAggregate(FedAvg(), 0.5).configure_train(1, record, ConfigRecord(), NoNodes())


def test_a_client_with_other_metrics_is_named(caplog):
    rows = [{"w": np.full(1, float(i))} for i in range(4)]
    messages = replies(rows, [1] * 4)
    del messages[2].content["metrics"]["loss"]
    _, metrics = wrapped(FedAvg(), rows[0]).aggregate_train(1, messages)
    assert metrics["loss"] == pytest.approx((0 + 1 + 3) / 3)
    assert (
        "node 102 rejected: metrics must be those of most clients, ['loss', 'num-examples'], "
        "got ['num-examples']"
    ) in caplog.text


def test_a_round_in_which_no_reply_can_be_used_is_no_round(caplog):
    rows = [{"w": np.full(2, np.nan)}] * 3
    outer = wrapped(FedAvg(), {"w": np.zeros(2)})
    with pytest.raises(AggregationError, match="round 1: none of 3 replies could be used"):
        outer.aggregate_train(1, replies(rows, [1] * 3))
    # Clients that are gone may be back in the next round, as without ENS.
    ask = Message(RecordDict(), 100, "train")
    with caplog.at_level(logging.ERROR, "fedepm_fast.flower"):
        assert outer.aggregate_train(2, [Message(Error(0, "gone"), reply_to=ask)]) == (None, None)
    assert "round 2: no client has trained, the arrays stay as they are" in caplog.text


def test_what_a_strategy_makes_of_the_point_is_checked():
    class Silent(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            return None, None

    class Wild(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            return ArrayRecord({"w": Array(np.array([self.value]))}), None

    rows = [{"w": np.ones(1, np.float16)}] * 2
    with pytest.raises(AggregationError, match="round 1: Silent made nothing of the ENS point"):
        wrapped(Silent(), rows[0]).aggregate_train(1, replies(rows, [1] * 2))
    inner = Wild()
    inner.value = np.inf
    outer = wrapped(inner, rows[0])
    with pytest.raises(ValueError, match="array 'w' of the result must be finite, got inf"):
        outer.aggregate_train(1, replies(rows, [1] * 2))
    inner.value = 1e6
    arrays, _ = outer.aggregate_train(1, replies(rows, [1] * 2))
    with pytest.raises(ValueError, match="array 'w', as float16, must be finite, got inf"):
        outer.configure_train(2, arrays, ConfigRecord(), NoNodes())


@pytest.mark.parametrize("n, c, times", [(10, 0.5, 2.58), (1000, 0.5, 5.0), (10, 1e3, 5.0)])
def test_one_client_moves_ens_by_more_than_noise_for_a_mean_covers(n, c, times):
    rows = np.where(np.arange(10)[:, None] < 5, 1.0, -1.0) * np.full(n, n**-0.5)
    other = rows.copy()
    other[5] *= -1  # of norm 1, as all
    moved = [np.linalg.norm(ens(rows, k) - ens(other, k)) for k in (c, 0.0)]
    assert moved[1] == pytest.approx(2 / 10) and moved[0] / moved[1] == pytest.approx(
        times, rel=1e-3
    )


@pytest.mark.parametrize("clipping", ["Fixed", "Adaptive"])
@pytest.mark.parametrize("side", ["Server", "Client"])
def test_wrappers_whose_noise_is_for_a_mean_are_told(caplog, side, clipping):
    name = f"DifferentialPrivacy{side}Side{clipping}Clipping"
    options = {"noise_multiplier": 0.01, "num_sampled_clients": 2}
    options |= {"clipping_norm": 1.0} if clipping == "Fixed" else {}
    kind = getattr(strategies, name)
    arrays = ArrayRecord({"w": Array(np.zeros(3))})
    outer = kind(ElasticNetAggregate(FedAvg(), 0.5), **options)
    for server_round in (1, 2):
        outer.configure_train(server_round, arrays, ConfigRecord(), NoNodes())
    said = [r.message for r in caplog.records if "noise is for the mean" in r.message]
    assert len(said) == 1 and said[0].startswith(name)
    caplog.clear()
    wrapped(FedAvg(), {"w": np.zeros(3)})
    assert "noise is for the mean" not in caplog.text
    with pytest.raises(TypeError, match="must be like FedAvg"):
        ElasticNetAggregate(kind(FedAvg(), **options), 0.5)
