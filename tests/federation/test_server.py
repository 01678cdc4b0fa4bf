"""The server and the client for deployments, without a framework."""

from __future__ import annotations

import importlib
import logging
import re
import sys
import tempfile
from typing import Any

import numpy as np
import pytest
from adult_federation import ALGORITHM, GOOD, SEED, Federation, M, N, with_entry
from full_disk import full
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast import FedEPM, SFedAvg, run
from fedepm_fast.federation.server import Server
from fedepm_fast.kernels.ens import ens
from fedepm_fast.privacy import LaplaceMechanism


@pytest.mark.parametrize(
    "algorithm",
    [
        FedEPM(),
        FedEPM(preset="text", noise="standardized", local_steps=5, participation=0.3),
        FedEPM(noise="laplace", coverage_rounds=4, participation=0.4),
        FedEPM(noise="none", participation=1.0),
    ],
    ids=["released", "text", "covering", "everyone"],
)
def test_server_and_clients_follow_a_run(algorithm, tmp_path):
    for path in (None, tmp_path):
        federation = Federation(algorithm, clients=20)
        server = federation.server(path=path)
        federation.join(server)
        federation.rounds(server, 12)
        result = run(algorithm, federation.data, seed=SEED, rounds=12)
        scale = np.abs(result.Z).max()
        np.testing.assert_allclose(server.x, result.x, rtol=1e-10, atol=1e-12 * scale)
        np.testing.assert_allclose(server.Z, result.Z, rtol=1e-10, atol=1e-12 * scale)
        W = np.array([federation.states[i].w for i in range(20)])
        np.testing.assert_allclose(W, result.W, rtol=1e-10, atol=1e-12 * scale)
        assert {federation.states[i].iterations % algorithm.local_steps for i in range(20)} == {0}


# Malformed replies ----------------------------------------------------------------------


def opened(**options: Any) -> tuple[Server, int, np.ndarray]:
    """A server in round 1, whose members 0 to 7 of 9 sent known uploads."""
    server = Server(ALGORITHM, M + 1, N, seed=SEED, **options)
    uploads = np.random.default_rng(0).normal(size=(M, N))
    for i in range(M):
        assert server.join(i, uploads[i])
    server.open_round()
    server.close_round()
    return server, *server.open_round()[::2]


MALFORMED = {
    "NaN": (with_entry(np.nan), r"must be finite, got nan at index \(3,\)"),
    "infinity": (with_entry(np.inf, 0), r"must be finite, got inf at index \(0,\)"),
    "minus infinity": (with_entry(-np.inf), r"must be finite, got -inf"),
    "both infinities": (with_entry(np.inf) + with_entry(-np.inf, 1), r"must be finite"),
    "beyond the largest": (with_entry(-2e6), r"at most 1e\+06 in absolute value, got 2e\+06"),
    "nearly overflowing": (with_entry(1.7e308), r"at most 1e\+06"),
    "too short": (GOOD[:-1], r"shape \(5,\), got \(4,\)"),
    "too long": (np.zeros(N + 1), r"shape \(5,\), got \(6,\)"),
    "empty": (np.zeros(0), r"shape \(5,\), got \(0,\)"),
    "a scalar array": (np.array(1.0), r"shape \(5,\), got \(\)"),
    "two-dimensional": (GOOD[None], r"shape \(5,\), got \(1, 5\)"),
    "float32": (GOOD.astype(np.float32), r"dtype float64, got float32"),
    "float16": (GOOD.astype(np.float16), r"dtype float64, got float16"),
    "integers": (np.ones(N, int), r"dtype float64, got int64"),
    "complex": (GOOD + 0j, r"dtype float64, got complex128"),
    "booleans": (np.ones(N, bool), r"dtype float64, got bool"),
    "objects": (GOOD.astype(object), r"dtype float64, got object"),
    "strings": (GOOD.astype(str), r"dtype float64, got <U"),
    "the other byte order": (GOOD.astype(GOOD.dtype.newbyteorder()), r"dtype float64, got [<>]f8"),
    "a list": (GOOD.tolist(), r"must be an array, got list"),
    "nothing": (None, r"must be an array, got NoneType"),
    "bytes": (GOOD.tobytes(), r"must be an array, got bytes"),
    "masked": (np.ma.masked_invalid(with_entry(np.nan)), r"must be an array, got MaskedArray"),
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_a_malformed_upload_is_rejected_and_named(name, on_disk, tmp_path, caplog):
    upload, fault = MALFORMED[name]
    server, tau, chosen = opened(largest=1e6, path=tmp_path if on_disk else None)
    *honest, bad = (int(i) for i in chosen)
    expected = np.array(server.Z[:M])
    for i in honest:
        expected[i] = GOOD + i
        assert server.receive(tau, i, GOOD + i)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fedepm_fast.federation.server"):
        assert not server.receive(tau, bad, upload)
        assert server.close_round().tolist() == honest
    (line,) = caplog.messages  # and not "no reply" on top of it
    assert line.startswith(f"round {tau}: client {bad} rejected: ")
    assert re.search(fault, line)
    np.testing.assert_array_equal(server.Z[:M], expected)
    np.testing.assert_array_equal(server.x, ens(expected, 0.5))


@pytest.mark.parametrize("algorithm", [
    ALGORITHM, FedEPM(mechanism=LaplaceMechanism(total_epsilon=1.0, clip=1.0)), SFedAvg(),
])  # fmt: skip
def test_one_upload_of_any_size_ends_nothing(algorithm, caplog):
    private = algorithm.mechanism is not None
    server, uploads = Server(algorithm, 5, N, seed=SEED), np.full((5, N), 3e6)
    for i in range(5):
        for size in (1e200, 1e13):
            assert not server.join(i, np.full(N, size))
        assert server.join(i, uploads[i])
    # Noise hides the rounding of numbers of up to 2^40 of its scales.
    scale, unit = (1e-3, 1e-3) if private else (None, 3e6)
    for size in (1e200, -1e20, 2.0**41 * unit):
        tau, x, chosen = server.open_round()
        np.testing.assert_allclose(x, uploads[0], rtol=1e-3)
        *honest, liar = chosen.tolist()
        for i in honest:
            assert server.receive(tau, i, uploads[i], scale=scale)
        before = server.rejections[liar]
        assert not server.receive(tau, liar, np.full(N, size), scale=scale)
        assert f"client {liar} rejected: upload must be at most" in caplog.text
        assert server.close_round().tolist() == honest
        assert server.rejections[liar] == before + 1


def test_replies_that_nobody_asked_for_are_rejected(caplog):
    server, tau, chosen = opened()
    before = server.Z.copy()
    i, idle = int(chosen[0]), int(np.setdiff1d(np.arange(M), chosen)[0])
    cases = [
        ((tau, idle, GOOD), f"client {idle} rejected: it was not selected"),
        ((tau, M, GOOD), f"client {M} rejected: it was not selected"),  # not a member
        ((tau, M + 1, GOOD), f"client {M + 1} rejected: clients are numbered 0 to {M}"),
        ((tau, -1, GOOD), "client -1 rejected: clients are numbered"),
        ((tau, "3", GOOD), "client 3 rejected: clients are numbered 0 to 8, got '3'"),
        ((tau, True, GOOD), "client True rejected: clients are numbered"),
        ((tau - 1, i, GOOD), f"client {i} rejected: answer must be of round {tau}, got round 0"),
        ((None, i, GOOD), f"client {i} rejected: answer must be of round {tau}, got round None"),
    ]
    for reply, message in cases:
        caplog.clear()
        assert not server.receive(*reply)
        assert message in caplog.text
    np.testing.assert_array_equal(server.Z, before)

    assert server.receive(tau, i, GOOD)  # a second try is as good as a first
    assert not server.receive(tau, i, GOOD + 1)
    assert f"client {i} rejected: it has replied already" in caplog.text
    np.testing.assert_array_equal(server.Z[i], GOOD)

    caplog.clear()
    assert server.close_round().tolist() == [i]
    assert [line.split(" rejected")[0] for line in caplog.messages] == [
        f"round {tau}: client {j}" for j in chosen[1:]
    ]
    assert caplog.text.count("no reply in time") == len(chosen) - 1
    assert not server.receive(tau, int(chosen[1]), GOOD)
    assert "no round is open" in caplog.text
    with pytest.raises(RuntimeError, match="no round is open"):
        server.close_round()


# Members --------------------------------------------------------------------------------


def test_clients_join_late_and_leave(caplog):
    server = Server(ALGORITHM, M, N, seed=SEED)
    with pytest.raises(RuntimeError, match="no client has joined"):
        server.open_round()
    rows = np.random.default_rng(1).normal(size=(M, N))
    assert server.join(6, rows[6])
    assert server.join(2, rows[2])
    assert not server.join(2, rows[2])
    assert "client 2 rejected: it has joined already" in caplog.text
    assert not server.join(4, with_entry(np.nan))
    assert "client 4 rejected: upload must be finite" in caplog.text
    _, x, chosen = server.open_round()
    assert server.members.tolist() == [2, 6]
    assert set(chosen) <= {2, 6} and len(chosen) == 1
    np.testing.assert_array_equal(x, ens(rows[[2, 6]], 0.5))
    assert server.join(5, rows[5])  # during a round: from the next one on
    np.testing.assert_array_equal(server.x, x)
    server.close_round()
    np.testing.assert_array_equal(server.open_round().x, ens(rows[[2, 5, 6]], 0.5))
    server.close_round()
    server.leave(2)
    np.testing.assert_array_equal(server.x, ens(rows[[5, 6]], 0.5))
    assert server.join(2, rows[0])
    np.testing.assert_array_equal(server.x, ens(rows[[0, 5, 6]], 0.5))
    with pytest.raises(ValueError, match="client must be one of 0 to 7"):
        server.leave(M)


def test_a_client_that_leaves_in_a_round_is_out_of_it(tmp_path):
    server, tau, chosen = opened(path=tmp_path)
    gone, other = map(int, chosen[:2])
    assert server.receive(tau, gone, GOOD)
    server.leave(gone)
    assert not server.receive(tau, gone, GOOD)
    assert server.receive(tau, other, GOOD)
    assert server.close_round().tolist() == [other]
    assert gone not in server.members


# A restart ------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["between rounds", "in a round", "while ending it", "joining"])
def test_a_restored_server_goes_on_as_if_nothing_had_been(moment, tmp_path):
    federation = Federation(FedEPM(), clients=20)
    server = federation.server(path=tmp_path)
    if moment == "joining":
        federation.join(server, range(12))
        server.close()
        server = federation.server(path=tmp_path)
        assert server.members.tolist() == list(range(12))
    federation.join(server, np.setdiff1d(np.arange(20), server.members))
    federation.rounds(server, 4)
    if moment == "in a round":
        for reply in federation.replies(server)[:6]:
            assert server.receive(*reply)
    elif moment == "while ending it":
        for reply in federation.replies(server):
            assert server.receive(*reply)

        # There is space for an empty journal, and none for the state.
        with full(100), pytest.raises(OSError, match=r"File too large: '.*/state\.npz'"):
            server.close_round()
        server.Z[server.open_round().clients[0]] = 1e9  # half a row would do
    selected = server.open_round() if "round" in moment[:10] else None
    waiting = server.awaited
    server.close()
    server = federation.server(path=tmp_path)
    assert server.tau == 4
    np.testing.assert_array_equal(server.awaited, waiting)
    if selected is not None:
        np.testing.assert_array_equal(server.open_round().clients, selected.clients)
    federation.rounds(server, 6)

    undisturbed = Federation(FedEPM(), clients=20)
    expected = undisturbed.server()
    undisturbed.join(expected)
    undisturbed.rounds(expected, 10)
    np.testing.assert_array_equal(server.Z, expected.Z)
    np.testing.assert_array_equal(server.x, expected.x)


EVENTS = st.sampled_from(["join", "send", "send NaN", "leave", "open or close", "restart"])


@given(st.lists(st.tuples(EVENTS, st.integers(0, 3)), max_size=40))
@settings(max_examples=60)
def test_any_order_of_events_agrees_with_a_model(events):
    members: dict[int, np.ndarray] = {}
    joined: dict[int, np.ndarray] = {}
    replied: dict[int, np.ndarray] | None = None  # None between rounds
    chosen: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(ALGORITHM, 4, N, path=folder)
        for number, (event, i) in enumerate(events):
            upload = np.cos(np.arange(N) + number)
            if event == "join":
                assert server.join(i, upload) == (i not in members and i not in joined)
                if i not in members:
                    joined.setdefault(i, upload)
            elif event == "send":
                awaited = replied is not None and i in chosen & members.keys() - replied.keys()
                assert server.receive(server.tau, i, upload) == awaited
                if awaited:
                    replied[i] = upload
            elif event == "send NaN":
                assert not server.receive(server.tau, i, upload * np.nan)
            elif event == "leave":
                server.leave(i)
                for held in (members, joined, replied or {}):
                    held.pop(i, None)
            elif event == "restart":
                server.close()
                server = Server(ALGORITHM, 4, N, path=folder)
            elif replied is not None:
                assert server.close_round().tolist() == sorted(replied)
                members.update(replied)
                replied = None
            elif members:
                chosen, replied = set(server.open_round().clients.tolist()), {}
            if replied is None:  # who joined in a round counts after it
                members.update(joined)
                joined = {}
            if members and replied is None:
                rows = np.stack([members[j] for j in sorted(members)])
                np.testing.assert_array_equal(server.x, ens(rows, 0.5))
                assert server.members.tolist() == sorted(members)


def test_a_path_with_another_run_is_refused(tmp_path):
    opened(path=tmp_path)[0].close()
    for options, name in [
        ({"seed": 1}, "seed = 11, got 1"),
        ({"seed": SEED, "trial": 2}, "trial = 0, got 2"),
    ]:
        with pytest.raises(ValueError, match=name):
            Server(ALGORITHM, M + 1, N, path=tmp_path, **options)
    with pytest.raises(ValueError, match="features = 5, got 6"):
        Server(ALGORITHM, M + 1, N + 1, seed=SEED, path=tmp_path)
    np.save(tmp_path / "uploads.npy", np.zeros((M, N)))
    with pytest.raises(ValueError, match=r"must be float64\(9, 5\), got float64\(8, 5\)"):
        Server(ALGORITHM, M + 1, N, seed=SEED, path=tmp_path)
    (tmp_path / "uploads.npy").unlink()
    with pytest.raises(ValueError, match=r"must hold uploads\.npy beside its state"):
        Server(ALGORITHM, M + 1, N, seed=SEED, path=tmp_path)
    state = tmp_path / "state.npz"
    state.write_bytes(state.read_bytes()[:-40])
    with pytest.raises(ValueError, match="path must hold a server's state"):
        Server(ALGORITHM, M + 1, N, seed=SEED, path=tmp_path)


def test_uploads_of_others_are_not_overwritten(tmp_path):
    np.save(tmp_path / "uploads.npy", GOOD)
    with pytest.raises(ValueError, match=r"holds uploads\.npy without its state\.npz"):
        Server(ALGORITHM, M, N, path=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "uploads.npy"), GOOD)


def test_arguments_are_checked_before_any_work(tmp_path):
    with pytest.raises(TypeError, match="algorithm must be FedEPM"):
        Server("fedepm", M, N)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="clients must be an integer >= 1"):
        Server(ALGORITHM, 0, N)
    with pytest.raises(TypeError, match="dtype must be float64 or float32, got int64"):
        Server(ALGORITHM, M, N, dtype=int)
    with pytest.raises(ValueError, match="largest must be a finite number"):
        Server(ALGORITHM, M, N, largest=np.inf)
    with pytest.raises(ValueError, match="coverage_rounds must be at least 4"):
        Server(FedEPM(participation=0.25, coverage_rounds=2), M, N)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="path must be a folder"):
        Server(ALGORITHM, M, N, path=tmp_path / "file")


def test_flower_is_asked_for_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr.serverapp", None)
    monkeypatch.delitem(sys.modules, "fedepm_fast.flower", raising=False)
    with pytest.raises(ImportError, match=r"needs flwr: pip install 'fedepm-fast\[flower\]'$"):
        importlib.import_module("fedepm_fast.flower")
