"""The server of a planned private run whose clients are elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dying import dying
from problems import small_data

from fedepm_fast import Logistic
from fedepm_fast.federation.client import PrivateClient
from fedepm_fast.federation.private_server import PrivateServer
from fedepm_fast.federation.server import Server
from fedepm_fast.mechanisms import packed_size
from fedepm_fast.privacy import plan
from fedepm_fast.privacy._settings import Settings

M, P = 4, 3
DATA = small_data(M, P, seed=1)
#: Nothing is clipped, and the noise is next to none.
SETTINGS = Settings(4, 6, 3, 1.0, 20.0, 20.0, 1.0)


def planned(epsilon: float = 1e9, **options: Any) -> Any:
    options = {"settings": SETTINGS, **options}
    return plan(epsilon, DATA.client_sizes, P, **options)


def clients(of: Any, folder: Path) -> list[PrivateClient]:
    return [
        PrivateClient(
            of.algorithm, *DATA.client(i), objective=of.objective, index=i, clients=M,
            uploads=of.rounds, path=folder / f"ledger-{i}",
        )
        for i in range(M)
    ]  # fmt: skip


def begin(server: PrivateServer, found: list[PrivateClient]) -> None:
    for i, client in enumerate(found):
        server.join(i, client.join(np.zeros(P)).values)
    for i, client in reversed([*enumerate(found)]) if not server.settled else ():
        assert server.receive_moments(i, *client.moments(server.plan.radius))
    if not server.settled:
        server.settle()


def one_round(server: PrivateServer, found: list[PrivateClient]) -> list[Any]:
    tau, x, selected = server.open_round()
    sent = []
    for i in selected.tolist():
        upload, scale = found[i].train(x, tau, **server.message(i))
        assert server.receive(tau, i, upload, scale=scale)
        sent.append((i, upload, scale))
    server.close_round()
    return sent


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("moments", [0, 4])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_it_ends_where_the_planned_run_ends(delta, moments, beta, tmp_path):
    asked = SETTINGS._replace(moments=moments)
    objective = Logistic(beta=beta, regularizer="beta")
    of = planned(1e13 if delta else 1e8, delta=delta, settings=asked, objective=objective)
    server, found = PrivateServer(of), clients(of, tmp_path)
    assert server.settled == (moments == 0)
    begin(server, found)
    while not server.done:
        one_round(server, found)
    expected = of.run(DATA, seed=2**40, public_scaling=True, engine="reference").x
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(server.model, expected, rtol=0, atol=1e-4)
    spent = found[0].spent
    assert spent.uploads == spent.planned == of.rounds + moments
    # The model is the mean of the last points, and not the last one.
    last = of.in_columns(server.x, server.coordinates)
    assert np.abs(server.model - last).max() > 1e-6
    with pytest.raises(RuntimeError, match="all 6 rounds of the plan are done"):
        server.open_round()


def test_the_order_of_arrival_does_not_matter(tmp_path):
    of = planned(5.0)
    sent = [client.moments(of.radius) for client in clients(of, tmp_path)]
    found = []
    for order in (range(M), reversed(range(M))):
        server = PrivateServer(of)
        for i in order:
            server.receive_moments(i, *sent[i])
        found.append(server.settle())
    np.testing.assert_array_equal(*found)


def test_moments_come_first_and_once(tmp_path, caplog):
    of = planned(5.0)
    server, found = PrivateServer(of), clients(of, tmp_path)
    for i, client in enumerate(found):
        server.join(i, client.join(np.zeros(P)).values)
    for call in (server.open_round, lambda: server.coordinates):
        with pytest.raises(RuntimeError, match="second moments come before the rounds"):
            call()
    with pytest.raises(RuntimeError, match="no client has sent second moments"):
        server.settle()
    with pytest.raises(RuntimeError, match="there is no model"):
        server.model  # noqa: B018
    q, good = packed_size(P), found[0].moments(of.radius)
    for client, values, scale, fault in [
        (9, good.values, 1.0, "clients are numbered 0 to 3"),
        (0, np.zeros(q - 1), 1.0, f"must have shape ({q},)"),
        (0, np.full(q, np.nan), 1.0, "must be finite"),
        (0, np.zeros(q, np.float32), 1.0, "must have dtype float64"),
        (0, [1.0] * q, 1.0, "must be an array"),
        (0, good.values, None, "scale must be"),
        (0, good.values, 0.0, "scale must be"),
    ]:
        assert not server.receive_moments(client, values, scale)
        assert fault in caplog.text
        caplog.clear()
    assert server.receive_moments(0, *good)
    server.settle()
    assert not server.coordinates.flags.writeable
    assert not server.receive_moments(1, *found[1].moments(of.radius))
    assert "the coordinates are settled" in caplog.text
    with pytest.raises(RuntimeError, match="the coordinates are settled"):
        server.settle()
    with pytest.raises(ValueError, match="plan must have trust='clients'"):
        PrivateServer(planned(5.0, trust="secure-sum"))


def test_a_kill_at_any_call_of_the_system_changes_nothing(tmp_path):
    """The clients, whose uploads are the same when they are asked again, outlive the server."""
    of = planned(5.0)
    found = clients(of, tmp_path)
    whole, sent = PrivateServer(of), []
    begin(whole, found)
    moments = [client._ledger.read().moments for client in found]
    scales = [client._ledger.read().scale for client in found]
    while not whole.done:
        sent.append(one_round(whole, found))

    def go_on(server: PrivateServer, rounds: int) -> None:
        for i in set(range(M)) - set(server.members.tolist()):
            server.join(i, np.zeros(P))
        if not server.settled:
            for i in range(M):
                server.receive_moments(i, moments[i], scales[i])
            server.settle()
        while server.tau < rounds:
            tau, *_ = server.open_round()
            for i, upload, scale in sent[tau]:
                if i in server.awaited:
                    server.receive(tau, i, upload, scale=scale)
            server.close_round()

    killed, calls = True, 0
    while killed:
        calls += 19
        path = tmp_path / f"{calls}"
        if (child := os.fork()) == 0:
            try:
                dying(calls)
                go_on(PrivateServer(of, path=path), 2)
            finally:
                os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
        with PrivateServer(of, path=path) as server:
            go_on(server, of.rounds)
            np.testing.assert_array_equal(server.model, whole.model)
            np.testing.assert_array_equal(server.coordinates, whole.coordinates)
            assert not [*path.glob(".*")]
    assert calls > 50


def test_what_is_on_the_disk_is_of_this_plan(tmp_path):
    of = planned(5.0)
    with PrivateServer(of, path=tmp_path / "s") as server:
        begin(server, clients(of, tmp_path))
        back = server.coordinates
    with PrivateServer(of, path=tmp_path / "s") as server:
        np.testing.assert_array_equal(server.coordinates, back)
    with pytest.raises(ValueError, match="path holds a run with plan = "):
        PrivateServer(planned(5.0, settings=SETTINGS._replace(kept=2)), path=tmp_path / "s")
    (tmp_path / "s" / "plan.npz").write_bytes(b"none")
    with pytest.raises(ValueError, match=r"path must hold plan.npz beside its state: "):
        PrivateServer(of, path=tmp_path / "s")
    with Server(of.algorithm, M, P, path=tmp_path / "other"):
        pass
    with pytest.raises(ValueError, match="path holds a run with plan = None"):
        PrivateServer(of, path=tmp_path / "other")


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("neighbours", ["record", "client"])
def test_a_client_that_lies_ends_nothing_and_is_named(delta, neighbours, tmp_path, caplog):
    of = planned(5.0, delta=delta, neighbours=neighbours, client_weight="equal")
    server, found = PrivateServer(of), clients(of, tmp_path)
    for client, upload in [(0, np.full(P, 1e200)), (1, np.full(P, -2000.0))]:
        assert not server.join(client, upload)
    begin(server, found)
    assert server.rejections == {0: 1, 1: 1}
    q = packed_size(P)
    if of.radius is not None:
        other = PrivateServer(of)
        sent = found[0].moments(of.radius)
        for values, scale in [
            (np.full(q, 1e200), sent.scale), (sent.values, 1e-140), (sent.values, 1e140),
        ]:  # fmt: skip
            assert not other.receive_moments(0, values, scale)
        assert other.rejections == {0: 3} and other.receive_moments(0, *sent)
    # Client 0 says what nobody can mean in every round, and last what it may just mean.
    lies = [(1e200, 1.0), (1e15, 1.0), (-1e6, 1.0), (1e200, 1e190), (0.0, 1e-9), (1.0, 9e3)]
    for tau, (size, factor) in enumerate(lies):
        _, x, selected = server.open_round()
        assert np.abs(x).max() < 1e6
        for i in selected.tolist():
            upload, scale = found[i].train(x, tau, **server.message(i))
            if i == 0:
                upload, scale = x + size * 5 * scale * factor, scale * factor
            assert server.receive(tau, i, upload, scale=scale) == (i > 0 or tau == len(lies) - 1)
        assert server.close_round().tolist() == [0, 1, 2, 3][tau < len(lies) - 1 :]
    assert server.done and np.isfinite(server.model).all()
    assert server.rejections == {0: 1 + len(lies) - 1, 1: 1}
    for fault in ("upload must be at most", "upload must be within", "scale must be from"):
        assert f"client 0 rejected: {fault}" in caplog.text
