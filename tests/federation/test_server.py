"""The server and the client for deployments, without a framework."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import os
import re
import stat
import sys
import tempfile
from typing import Any

import numpy as np
import pytest
from full_disk import full
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast import FedEPM, SFedAvg, datasets, make_problem, run
from fedepm_fast._common.archives import write_archive
from fedepm_fast.algorithms import AGGREGATIONS, AtServer
from fedepm_fast.federation import aggregation
from fedepm_fast.federation.aggregation import aggregate
from fedepm_fast.federation.client import Client, ClientState, UploadRefused
from fedepm_fast.federation.server import Server
from fedepm_fast.kernels.ens import ens
from fedepm_fast.privacy import LaplaceMechanism

M, N, SEED = 8, 5, 11
ALGORITHM = FedEPM(participation=0.5, lam=1e-3, eta=2e-3)


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """Processes are killed here, not the machine: waiting for the disk adds nothing."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Federation:
    """All clients of Adult in one process, with their states."""

    def __init__(self, algorithm: FedEPM = ALGORITHM, clients: int = M, seed: int = SEED) -> None:
        self.data = datasets.adult(clients=clients, seed=3)
        problem = make_problem(algorithm, self.data)
        self.algorithm, self.seed, self.n = algorithm, seed, problem.n_parameters
        self.clients = [
            Client(
                algorithm,
                lambda x, i=i: problem.gradient(i, x),
                index=i,
                clients=clients,
                features=self.n,
                samples=int(size),
                seed=seed,
            )
            for i, size in enumerate(self.data.client_sizes)
        ]
        self.states: dict[int, ClientState] = {}

    def server(self, **options: Any) -> Server:
        options = {"seed": self.seed, **options}
        return Server(self.algorithm, len(self.clients), self.n, **options)

    def join(self, server: Server, who: Any = None, x: Any = None) -> None:
        for i in range(len(self.clients)) if who is None else who:
            self.states[i], upload = self.clients[i].join(np.zeros(self.n) if x is None else x)
            assert server.join(i, upload)

    def replies(self, server: Server) -> list[tuple[int, int, Any]]:
        tau, x, chosen = server.open_round()
        found = []
        assert set(server.awaited) <= set(chosen)
        for i in server.awaited:
            self.states[i], upload = self.clients[i].train(self.states.get(i), x, tau)
            found.append((tau, int(i), upload))
        return found

    def rounds(self, server: Server, count: int) -> None:
        for _ in range(count):
            for reply in self.replies(server):
                assert server.receive(*reply)
            server.close_round()


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


def with_entry(value: float, at: int = 3) -> np.ndarray:
    upload = np.zeros(N)
    upload[at] = value
    return upload


GOOD = np.linspace(-1.0, 1.0, N)
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


# Parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("m", [5, 40])
@pytest.mark.parametrize("n", [3, 16, 100, 101])
def test_blocks_have_the_bits_of_one_piece(m, n, dtype, monkeypatch):
    rng = np.random.default_rng(m + n)
    Z = rng.normal(size=(m, n)).astype(dtype)
    weights = rng.uniform(1, 2, m)
    monkeypatch.setattr(aggregation, "LEAST_WIDTH", 16)
    for size in (1, 40 * m * 16 * 8):
        monkeypatch.setattr(aggregation, "BLOCK_BYTES", size)
        found = aggregate(list(Z), 0.3)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, ens(Z, 0.3))
        np.testing.assert_array_equal(aggregate(list(Z), 0.3, threads=3), found)
        found = aggregate(list(Z), 0.3, weights=weights)
        np.testing.assert_array_equal(found, ens(Z, 0.3, weights=weights))


def test_uploads_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="at least one client's"):
        aggregate([], 0.5)
    for other, fault in (
        (GOOD[:-1], "5 numbers of float64 at first, 4 of float64"),
        (GOOD.astype(np.float32), "5 numbers of float64 at first, 5 of float32"),
        (GOOD[None], r"must be vectors, got shape \(1, 5\)"),
    ):
        with pytest.raises(ValueError, match=f"{fault} at index 1"):
            aggregate([GOOD, other], 0.5)


def test_a_repeated_round_repeats_the_upload():
    federation = Federation()
    server = federation.server()
    federation.join(server)
    federation.rounds(server, 3)
    tau, x, chosen = server.open_round()
    client = federation.clients[chosen[0]]
    first, upload = client.train(federation.states[chosen[0]], x, tau)
    again, same = client.train(first, x, tau)
    np.testing.assert_array_equal(upload, same)
    np.testing.assert_array_equal(first.w, again.w)
    assert first.iterations == again.iterations == (tau + 1) * ALGORITHM.local_steps


def test_a_client_does_not_follow_a_jump():
    client = Client(ALGORITHM, lambda x: 0 * x, index=0, clients=2, features=N, samples=10)
    state, _ = client.join(np.zeros(N))
    for known, tau in [
        (None, 2**62),
        (state, 2**62),
        (state, 1000),
    ]:
        with pytest.raises(UploadRefused, match=rf"client 0 .*round {tau} at first is a jump"):
            client.train(known, np.zeros(N), tau)
    state, _ = client.train(state, np.zeros(N), 999)
    for tau, fault in [
        (2000, "round 2000 after round 999 is a jump of more than largest_jump = 1")
    ]:
        with pytest.raises(UploadRefused, match=fault):
            client.train(state, np.zeros(N), tau)
    assert client.train(state, np.zeros(N), 1999)[0].iterations == 2000 * ALGORITHM.local_steps
    far = Client(
        ALGORITHM, lambda x: 0 * x, index=0, clients=2, features=N, samples=10, largest_jump=1500
    )
    assert far.train(None, np.zeros(N), 1499)[0].iterations == 1500 * ALGORITHM.local_steps
    for tau in (-1, 1.5, "2", True, 2**63, 10**30):
        with pytest.raises((ValueError, TypeError), match="tau must be an integer"):
            client.train(state, np.zeros(N), tau)


def test_a_client_in_float32_stays_there():
    client = Client(FedEPM(mu0=1.0), lambda x: x - 1, index=0, clients=2, features=N, samples=10)
    state, upload = client.join(np.zeros(N, np.float32))
    assert upload.dtype == state.w.dtype == np.float32
    state, upload = client.train(state, upload, 0)
    assert upload.dtype == state.w.dtype == np.float32
    lost, _ = client.train(None, upload, 1)  # without a state it begins at x
    np.testing.assert_array_equal(lost.before, upload)


@pytest.mark.parametrize("kind", [list, tuple, bool, int, np.int8, ">i4", ">f8", ">f4", "f4"])
def test_a_client_takes_points_of_any_kind_of_numbers(kind):
    """And its uploads are what a server takes."""
    client = Client(ALGORITHM, lambda x: 0.1 * x - 1, index=0, clients=2, features=N, samples=10)
    ones = np.arange(N) % 2
    x = kind(ones.tolist()) if kind in (list, tuple) else ones.astype(kind)
    dtype = np.dtype(np.float32 if kind in (">f4", "f4") else np.float64)
    server = Server(ALGORITHM, 2, N, dtype=dtype)
    state, upload = client.join(x)
    same, repeated = client.join(ones.astype(dtype))
    np.testing.assert_array_equal(upload, repeated)
    assert np.any(upload != np.round(upload))
    assert server.join(0, upload)
    for known in (None, state):
        after, upload = client.train(known, x, 0)
        np.testing.assert_array_equal(upload, client.train(known, ones.astype(dtype), 0)[1])
        assert {a.dtype for a in (state.w, same.w, after.w, after.before, upload)} == {dtype}
        assert upload.dtype.isnative
    tau, _, _ = server.open_round()
    assert server.receive(tau, 0, upload)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([0.0] * 4, ValueError, r"x must have shape \(5,\), got \(4,\)"),
        (np.zeros((1, 5)), ValueError, r"x must have shape \(5,\), got \(1, 5\)"),
        (0.0, ValueError, r"x must have shape \(5,\), got \(\)"),
        ([np.inf] * 5, ValueError, "x must be finite"),
        (np.zeros(5, complex), TypeError, "x must be float64 or float32, got dtype complex128"),
        (np.zeros(5, np.float16), TypeError, "x must be float64 or float32, got dtype float16"),
        (["a"] * 5, TypeError, "x must be float64 or float32, got dtype <U1"),
        (None, TypeError, "x must be an array of numbers, got NoneType"),
        (np.ma.masked_equal(np.arange(5.0), 1), ValueError, "x must not have masked entries"),
    ],
)
def test_a_point_that_is_none_is_named(x, error, message):
    client = Client(ALGORITHM, lambda x: x, index=0, clients=2, features=N, samples=10)
    for call in (client.join, lambda x: client.train(None, x, 0)):
        with pytest.raises(error, match=message):
            call(x)


def test_a_state_is_the_client_s_own_and_checked():
    client = Client(ALGORITHM, lambda x: x - 1, index=0, clients=2, features=N, samples=10)
    x = np.zeros(N)
    state, _ = client.train(None, x, 0)
    want, _ = client.train(state, np.zeros(N), 0)
    x[:] = 7.0  # a buffer that is used again
    np.testing.assert_array_equal(client.train(state, np.zeros(N), 0)[0].w, want.w)
    for wrong, error, message in (
        (tuple(state), TypeError, "state must be a ClientState or None, got tuple"),
        (state._replace(w=state.w[:2]), ValueError, r"state.w must have shape \(5,\), got \(2,\)"),
        (state._replace(before=with_entry(np.nan)), ValueError, "state.before must be finite"),
        (state._replace(iterations=-1), ValueError, "state.iterations must be an integer >= 0"),
    ):
        with pytest.raises(error, match=message):
            client.train(wrong, np.zeros(N), 0)


def test_a_client_checks_what_it_is_given():
    with pytest.raises(ValueError, match="index must be an integer from 0 to 1"):
        Client(ALGORITHM, lambda x: x, index=2, clients=2, features=N, samples=1)
    with pytest.raises(TypeError, match="gradient must be callable"):
        Client(ALGORITHM, 1, index=0, clients=2, features=N, samples=1)  # type: ignore[arg-type]
    client = Client(ALGORITHM, lambda x: x[:2], index=0, clients=2, features=N, samples=1)
    with pytest.raises(ValueError, match=r"gradient must have shape \(5,\), got \(2,\)"):
        client.train(None, np.zeros(N), 0)
    with pytest.raises(ValueError, match="x must be finite"):
        client.train(None, with_entry(np.nan), 0)


def test_a_client_keeps_its_state_in_a_file(tmp_path):
    path = tmp_path / "clients" / "0.npz"
    options: Any = dict(index=0, clients=2, features=N, samples=10)
    client = Client(ALGORITHM, lambda x: x - 1, path=path, **options)
    assert client.recall() is None
    state, _ = client.train(client.join(np.zeros(N))[0], GOOD, 3)
    client.remember(state)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600  # what it holds has no noise
    kept = Client(ALGORITHM, lambda x: x, path=path, **options).recall()
    assert kept is not None
    np.testing.assert_array_equal(kept.w, state.w)
    np.testing.assert_array_equal(kept.before, state.before)
    assert kept.iterations == state.iterations == 4 * ALGORITHM.local_steps
    other = Client(ALGORITHM, lambda x: x, path=path, **{**options, "features": N + 1})
    with pytest.raises(ValueError, match=r"w in .*0\.npz must have shape \(6,\), got \(5,\)"):
        other.recall()
    whole = path.read_bytes()
    for damaged in (whole[:100], whole.replace(state.w.tobytes(), (-state.w).tobytes())):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="path must hold a client's state"):
            client.recall()
    old = {"w": state.w, "before": state.before}
    write_archive(path, {"iterations": state.iterations}, old)  # before clients kept more
    kept = client.recall()
    assert kept is not None and kept.iterations == state.iterations
    np.testing.assert_array_equal(kept.before, state.before)
    with path.open("wb") as file:  # as it was before there were digests
        np.savez(file, iterations=state.iterations, **old)
    kept = client.recall()
    assert kept is not None and kept.iterations == state.iterations
    np.testing.assert_array_equal(kept.before, state.before)
    unkept = Client(ALGORITHM, lambda x: x, **options)
    unkept.remember(state)
    assert unkept.recall() is None


@pytest.mark.parametrize("given, message", [
    ({"mechanism": LaplaceMechanism(total_epsilon=1.0)}, "mechanism must have its clip given"),
    ({"start": "released"}, "must have start 'own'"),
])  # fmt: skip
def test_what_a_deployment_does_not_do_is_refused(given, message):
    algorithm = FedEPM(**given)
    with pytest.raises(ValueError, match=message):
        Server(algorithm, clients=3, features=2)
    with pytest.raises(ValueError, match=message):
        Client(algorithm, lambda x: x, index=0, clients=3, features=2, samples=1)
    with pytest.raises(ValueError, match="a Client does not clip nor account"):
        Client(PRIVATE, lambda x: x, index=0, clients=3, features=2, samples=1)


# Noise whose scale is public ------------------------------------------------------------

PRIVATE = FedEPM(
    participation=0.5, lam=1e-3, eta=2e-3, mechanism=LaplaceMechanism(total_epsilon=1.0, clip=1.0)
)


def reference_point(server, Z, scales):
    nobody, sizes = np.empty(0, np.intp), np.empty(0, np.int64)
    return server.algorithm.aggregate(AtServer(0, Z, nobody, nobody, sizes, scales, Z[0]))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_uploads_weigh_as_in_the_reference(aggregation, on_disk, tmp_path):
    algorithm = dataclasses.replace(PRIVATE, aggregation=aggregation, noise_l1=2.0)
    path = tmp_path if on_disk else None
    server = Server(algorithm, M, N, seed=SEED, path=path)
    scales, rng = np.full(M, np.nan), np.random.default_rng(2)
    Z = rng.normal(size=(M, N))
    for i in range(M):  # client 7 was a member before
        scales[i] = 0.5 if i == 7 else np.nan
        assert server.join(i, Z[i], scale=0.5 if i == 7 else None)
    for _ in range(3):
        expected = reference_point(server, Z, scales)
        tau, x, chosen = server.open_round()
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-14)
        for i in chosen[1:].tolist():
            Z[i], scales[i] = rng.normal(size=N), rng.uniform(1, 2)
            assert server.receive(tau, i, Z[i].copy(), scale=scales[i])
        server.close_round()
        if on_disk:
            server.close()
            server = Server(algorithm, M, N, seed=SEED, path=path)
    np.testing.assert_array_equal(server.scales, scales)
    server.leave(7)
    assert server.join(7, Z[7])
    scales[7] = np.nan
    np.testing.assert_allclose(server.x, reference_point(server, Z, scales), rtol=0, atol=1e-14)


@pytest.mark.parametrize("scale", [None, np.nan, np.inf, 0.0, -1.0, "1", [1.0], True])
def test_a_malformed_scale_is_rejected_and_named(scale, caplog):
    server = Server(PRIVATE, 1, N, seed=SEED)
    if scale is not None:
        assert not server.join(0, GOOD, scale=scale)
        assert "client 0 rejected: scale must be a finite number in [1e-150, 1e+150]" in caplog.text
    assert server.join(0, GOOD)
    server.open_round()
    caplog.clear()
    assert not server.receive(0, 0, GOOD, scale=scale)
    assert "client 0 rejected: scale must be a finite number in [1e-150, 1e+150]" in caplog.text
    assert server.receive(0, 0, GOOD, scale=1.0)
    plain = Server(ALGORITHM, 1, N)
    assert not plain.join(0, GOOD, scale=1.0)
    assert "scale must be None without a mechanism, got 1.0" in caplog.text


def test_uploads_weigh_without_a_mechanism(tmp_path):
    algorithm = FedEPM(participation=0.5, lam=1e-3, eta=2e-3, aggregation="uploaded")
    server = Server(algorithm, 4, N, path=tmp_path)
    Z = np.random.default_rng(3).normal(size=(4, N))
    for i in range(4):
        assert server.join(i, Z[i])
    tau, _, chosen = server.open_round()
    for i in chosen:
        Z[i] += 1
        assert server.receive(tau, i, Z[i].copy())
    server.close_round()
    scales = np.full(4, np.nan)
    scales[chosen] = 1.0
    expected = reference_point(server, Z, scales)
    server.close()
    for found in (server, Server(algorithm, 4, N, path=tmp_path)):
        np.testing.assert_allclose(found.x, expected, rtol=0, atol=1e-14)
