"""What leaves a private client in Flower: uploads, public numbers, and a constant when it fails."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedepm_fast import FedEPM
from fedepm_fast import flower as adapter
from fedepm_fast.federation.client import PrivateClient
from fedepm_fast.federation.server import resolve
from fedepm_fast.flower import client_app
from fedepm_fast.losses import Multinomial
from fedepm_fast.privacy import LaplaceMechanism

#: What an attentive server would like to read.
SECRET = 7.25
MECHANISM = LaplaceMechanism(total_epsilon=1.0, clip=1.0, public_scaling=True)
ALGORITHM = FedEPM(participation=1.0, mechanism=MECHANISM)
START = ArrayRecord({"w": Array(np.zeros(3))})


class Rows(PrivateClient):
    """A client whose work names a row, as faults in deeper layers do."""

    def train(self, x: Any, tau: int = 0) -> Any:
        raise ArithmeticError(f"row 5 holds {SECRET}")

    join = train


def client(path: Any, kind: Any = PrivateClient, labels: Any = None, **options: Any) -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) * [1, 2, 3]
    y = (X[:, 0] > 0).astype(float) if labels is None else labels
    return kind(ALGORITHM, X, y, index=0, clients=1, uploads=2, path=path, **options)


def no_file(context: Context) -> Any:
    raise FileNotFoundError(f"no table for the patients of {SECRET}")


def leaves(context: Context) -> Any:
    raise SystemExit(f"label {SECRET} in row 3")


class Panic(BaseException):
    """As extension modules raise it."""


def panics(context: Context) -> Any:
    raise Panic(f"label {SECRET} in row 3")


KNOWN = {"algorithm": json.dumps(resolve(ALGORITHM, 1, 3).describe()), "members": [], "round": 0}


def ask(kind: str, x: ArrayRecord = START, **config: Any) -> Message:
    return Message(RecordDict({"arrays": x, "config": ConfigRecord(KNOWN | config)}), 9, kind)


def context() -> Context:
    return Context(1, 9, {}, RecordDict(), {})


def bad_labels(path: Any) -> Any:
    labels = np.arange(40.0) % 3 + 5
    return lambda _: client(path, labels=labels, objective=Multinomial(classes=3))


def bad_rows(path: Any) -> Any:
    return lambda _: client(path, kind=Rows)


def bad_ledger(path: Any) -> Any:
    client(path).join(np.zeros(3))
    path.write_bytes(path.read_bytes()[:-3])
    return lambda _: client(path)


def not_a_client(path: Any) -> Any:
    class Wrapper:  # around a private client, say
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"{SECRET}")

    return lambda _: Wrapper()


FAULTS = {
    "rows are not read": (lambda _: no_file, "no table for the patients of 7.25"),
    "a loader exits": (lambda _: leaves, "label 7.25 in row 3"),
    "a library panics": (lambda _: panics, "label 7.25 in row 3"),
    "labels that are none": (bad_labels, "labels must be below classes = 3, got 7"),
    "a fault at work": (bad_rows, "row 5 holds 7.25"),
    "a damaged ledger": (bad_ledger, "ledger"),
    "a client of another kind": (not_a_client, "7.25"),
}


@pytest.mark.parametrize("kind", ["query", "train"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_logged_here_and_a_constant_there(name, kind, tmp_path, caplog):
    make, said = FAULTS[name]
    app = client_app(make(tmp_path / "ledger"))
    with caplog.at_level(logging.ERROR, "fedepm_fast.flower"):
        reply = app(ask(kind), context())
    assert (reply.error.code, reply.error.reason) == (
        2,
        "the client failed; its own log says why",
    )
    assert not reply.has_content()
    assert said in caplog.text and "Traceback" in caplog.text


@pytest.mark.parametrize("work", [adapter.join, adapter.train])
def test_apps_of_your_own_are_as_discreet(work, tmp_path):
    reply = work(client(tmp_path / "ledger", kind=Rows), ask("train"), context())
    assert reply.error.reason == adapter.FAILED


def test_what_the_server_sends_is_no_way_to_learn_more(tmp_path):
    app = client_app(lambda _: client(tmp_path / "ledger"))
    for x in (np.zeros(5), np.full(3, np.nan), np.zeros(3, int)):
        reply = app(ask("train", ArrayRecord({"w": Array(x)})), context())
        assert reply.error.reason == adapter.FAILED
    for odd in ({"round": "x"}, {"round": -2}, {"algorithm": "no JSON"}):
        assert app(ask("train", **odd), context()).error.reason == adapter.FAILED
    assert client(tmp_path / "ledger").spent.uploads == 0


def test_what_is_public_is_said(tmp_path):
    app = client_app(lambda _: client(tmp_path / "ledger"))
    other = resolve(dataclasses.replace(ALGORITHM, local_steps=3), 1, 3).describe()
    reply = app(ask("train", algorithm=json.dumps(other)), context())
    assert reply.error.reason == (
        "algorithm must be the server's: local_steps is 3 there, 12 at client 0"
    )
    metrics = []
    for kind, tau in [("query", 0), ("train", 0), ("train", 1), ("query", 2)]:
        content = app(ask(kind, round=tau), context()).content
        assert set(content) == {"arrays", "metrics"} and set(content["arrays"]) == {"w"}
        metrics.append(dict(content["metrics"]))
    scale = client(tmp_path / "ledger").join(np.zeros(3)).scale
    assert metrics == [
        {"client": 0},
        {"client": 0, "round": 0, "scale": metrics[1]["scale"]},
        {"client": 0, "round": 1, "scale": scale},
        {"client": 0, "scale": scale},
    ]
    reply = app(ask("train", round=2), context())
    assert reply.error.reason == (
        "client 0 uploads nothing: all 2 uploads have been made (2 of 2 uploads made)"
    )


def test_nothing_is_evaluated(tmp_path):
    app = client_app(lambda _: client(tmp_path / "ledger"))
    with pytest.raises(ValueError, match=r"^No evaluate function registered with name 'default'$"):
        app(ask("evaluate"), context())


def test_the_user_may_interrupt():
    def interrupted(_: Context) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client_app(interrupted)(ask("train"), context())
