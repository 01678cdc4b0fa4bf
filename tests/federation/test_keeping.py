"""Servers and clients of algorithms that keep, share and tell, whoever is silent or lost."""

from __future__ import annotations

import dataclasses
import os
import signal
import tempfile
from typing import Any

import numpy as np
import pytest
from dying import dying
from full_disk import full
from hypothesis import given, settings
from hypothesis import strategies as st
from keeping_federation import (
    ALGORITHM,
    DATA,
    FEDDYN,
    PROBLEM,
    SEED,
    START,
    TOLD,
    Federation,
    M,
    N,
    make_client,
    own_problem,
)
from scipy.optimize import minimize

from fedepm_fast import FedADMM, FedDyn, FedEPM, FedPD, Scaffold, make_problem, run
from fedepm_fast.federation.client import Client, ClientState, UploadRefused
from fedepm_fast.federation.server import Server

STEPS = st.one_of(
    st.tuples(st.just("round"), st.lists(st.sampled_from("aaalrs"), min_size=3, max_size=3)),
    st.tuples(st.sampled_from(["leave", "join"]), st.integers(0, M - 1)),
    st.tuples(st.just("restart"), st.none()),
)


@pytest.mark.parametrize("algorithm", [ALGORITHM, FEDDYN], ids=["scaffold", "feddyn"])
@given(steps=st.lists(STEPS, max_size=15))
@settings(max_examples=40)
def test_what_is_shared_is_the_mean_of_what_members_keep(algorithm, steps):
    """Whoever is silent, whatever answer is lost or asked for again, comes, leaves or restarts."""
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(folder, algorithm)
        for i in range(4):
            federation.join(i)
        for event, how in [*steps, ("round", "aaa"), ("round", "aaa")]:
            if event == "restart":
                federation.restart()
            elif event == "join":
                federation.join(how)
            elif event == "leave":
                federation.server.leave(how)
            elif len(federation.server.members):
                play(federation, how)
        federation.server.close()


def play(federation: Federation, how: Any) -> None:
    """A round in which answers are accepted, lost, repeated after a restart, or never made."""
    server = federation.server
    tau, _, chosen = server.open_round()
    members = server.members
    if federation.algorithm.shares:
        mean = np.mean([federation.kept(i) for i in members.tolist()], axis=0)[0]
        found = server._memory.shared[0]
        np.testing.assert_allclose(found, mean, rtol=0, atol=1e-12 * max(1.0, np.abs(mean).max()))
    for i, what in zip(chosen.tolist(), how, strict=False):
        if what == "s":
            continue
        upload = federation.answer(i)
        if what == "r":
            federation.restart()
            np.testing.assert_array_equal(federation.answer(i), upload)
        if what != "l":
            assert federation.server.receive(tau, i, upload)
    federation.server.close_round()


@pytest.mark.parametrize(
    "algorithm",
    [
        Scaffold(participation=0.5, local_steps=3, learning_rate="lipschitz", noise="none"),
        FedDyn(participation=0.5, local_steps=3),
        FedADMM(participation=0.5, local_steps=3, r0=0.5),
        FedPD(participation=0.5, local_steps=3),
    ],
    ids=["scaffold", "feddyn", "fedadmm", "fedpd"],
)
def test_it_ends_at_the_optimum_of_those_who_are_members(algorithm, tmp_path):
    federation = Federation(tmp_path, algorithm)
    for i in range(4):
        federation.join(i)
    for how in ("aa", "al", "sa", "ra", "la"):
        play(federation, how)
    federation.server.open_round()
    federation.server.leave(1)
    federation.join(4)
    federation.server.close_round()
    for how in ("aaa", "lal", "aar"):
        play(federation, how)
    federation.join(5)
    for _ in range(350):
        play(federation, "aaa")
    members = federation.server.members
    assert members.tolist() == [0, 2, 3, 4, 5]
    best = minimize(
        lambda x: sum(PROBLEM.value(i, x) for i in members),
        START,
        jac=lambda x: sum(PROBLEM.gradient(i, x) for i in members),
        options={"gtol": 1e-10},
    ).x
    np.testing.assert_allclose(federation.server.x, best, rtol=0, atol=1e-4 * np.abs(best).max())
    federation.server.close()


def test_a_lost_upload_is_as_if_it_had_never_been_made():
    def points(lose: bool) -> list[Any]:
        federation = Federation()
        for i in range(M):
            federation.join(i)
        for tau in range(8):
            chosen = federation.server.open_round().clients
            for i in chosen.tolist():
                silent = (i + tau) % 3 == 0
                if lose or not silent:
                    upload = federation.answer(i)
                if not silent:
                    assert federation.server.receive(tau, i, upload)
            federation.server.close_round()
        return [federation.server.x, federation.server.Z]

    for found, expected in zip(points(True), points(False), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("event", ["joins", "leaves"])
def test_a_change_of_members_in_a_round_is_known_after_a_restart(event, tmp_path):
    federation = Federation(tmp_path)
    for i in range(M - 1):
        federation.join(i)
    for _ in range(4):
        play(federation, "aaa")
    opened = federation.server.open_round()
    message = federation.server.message(int(opened.clients[0]))
    assert np.abs(message["shared"]["c"]).max() > 0
    if event == "joins":
        federation.join(M - 1)
    else:
        federation.server.leave(int(np.setdiff1d(np.arange(M - 1), opened.clients)[0]))
    for i in opened.clients.tolist():
        assert federation.server.receive(opened.tau, i, federation.answer(i))
    federation.server.close_round()
    federation.restart()
    for i in federation.server.open_round().clients.tolist():
        message = federation.server.message(i)
        assert message["acknowledged"] == -1
        np.testing.assert_array_equal(message["shared"]["c"], START)
    federation.server.close_round()
    play(federation, "aaa")
    play(federation, "aaa")
    federation.server.close()


def test_what_was_told_last_counts(tmp_path):
    """Also where the first attempt ended between what was told and the upload."""
    with Server(ALGORITHM, 1, N, seed=SEED, path=tmp_path) as server:
        one_entry = (tmp_path / "journal-0").stat().st_size + 60 + 8 * N
        with full(one_entry), pytest.raises(OSError, match="File too large"):
            server.join(0, START, told=dict.fromkeys(TOLD, 1.0))
        assert server.join(0, START, told=dict.fromkeys(TOLD, 2.0))
    with Server(ALGORITHM, 1, N, seed=SEED, path=tmp_path) as server:
        server.open_round()
        assert server.message(0)["told"] == dict.fromkeys(TOLD, 2.0)


def test_a_round_without_answers_moves_nothing():
    federation = Federation()
    for i in range(M):
        federation.join(i)
    play(federation, "aaa")
    x = federation.server.open_round().x
    federation.server.close_round()
    np.testing.assert_array_equal(federation.server.x, x)


def asked_again(federation: Federation) -> tuple[int, Any, int]:
    """An open round after some others, its point, and a client of it that has taken part before."""
    for i in range(M):
        federation.join(i)
    for _ in range(4):
        play(federation, "aaa")
    tau, x, chosen = federation.server.open_round()
    acknowledged = (i for i in chosen.tolist() if federation.server.message(i)["acknowledged"] >= 0)
    return tau, x, next(acknowledged)


def test_who_lost_what_it_kept_is_refused_until_it_joins_again():
    federation = Federation()
    tau, x, i = asked_again(federation)
    message = federation.server.message(i)
    fresh, _ = federation.clients[i].join(START)
    for lost in (None, fresh):
        with pytest.raises(
            UploadRefused, match=rf"client {i} uploads nothing: it has lost what it"
        ):
            federation.clients[i].train(lost, x, tau, **message)
    federation.server.close_round()
    federation.server.leave(i)
    federation.join(i)
    for _ in range(4):
        play(federation, "aaa")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    "algorithm",
    [
        dataclasses.replace(ALGORITHM, noise="standardized", epsilon=50.0),
        FedADMM(participation=0.5, local_steps=3, r0=0.5),
    ],
    ids=["scaffold", "fedadmm"],
)
def test_however_often_all_are_killed_they_follow_a_run(algorithm, tmp_path):
    kills, rng = 0, np.random.default_rng(0)
    while killed(int(rng.integers(10, 60)), algorithm, tmp_path, 8):
        kills += 1
    assert kills > 10
    with Server(algorithm, M, N, seed=SEED, path=tmp_path / "server") as server:
        want = run(algorithm, DATA, seed=SEED, rounds=8, engine="reference")
        np.testing.assert_array_equal(server.x, want.x)


def killed(calls: int, algorithm: Any, folder: Any, rounds: int) -> bool:
    """Whether a process that attends to a federation is killed before so many rounds."""
    child = os.fork()
    if child == 0:  # whatever happens, it does not return
        try:
            dying(calls)
            attend(algorithm, folder, rounds)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def attend(algorithm: Any, folder: Any, rounds: int) -> None:
    """A server and its clients, whose states are in files, until so many rounds have ended."""
    server = Server(algorithm, M, N, seed=SEED, path=folder / "server")
    clients = [
        make_client(i, algorithm, gradient=own_problem(i), path=folder / f"client-{i}")
        for i in range(M)
    ]
    for i in np.setdiff1d(np.arange(M), server.members).tolist():
        state, upload = clients[i].join(START)
        clients[i].remember(state)
        server.join(i, upload, told=clients[i].told)
    while server.tau < rounds:
        tau, x, _ = server.open_round()
        for i in server.awaited.tolist():
            state, upload = clients[i].train(clients[i].recall(), x, tau, **server.message(i))
            clients[i].remember(state)  # before it is sent
            server.receive(tau, i, upload)
        server.close_round()


def test_who_lost_what_no_sum_counts_on_begins_anew():
    """A server of FedADMM holds the last upload, and shares no sum of multipliers."""
    algorithm = FedADMM(participation=0.5, local_steps=3, r0=0.5)
    federation = Federation(None, algorithm)
    tau, x, i = asked_again(federation)
    message, client = federation.server.message(i), federation.clients[i]
    _, upload = client.train(None, x, tau, **message)
    _, first = client.train(None, x, tau, **{**message, "acknowledged": -1})
    np.testing.assert_array_equal(upload, first)
    _, with_state = client.train(federation.states[i], x, tau, **message)
    assert not np.array_equal(upload, with_state)


def test_a_client_keeps_its_state_in_a_file(tmp_path):
    federation = Federation()
    for i in range(M):
        federation.join(i)
    for _ in range(4):
        play(federation, "aaa")
    i = int(np.argmax(federation.server._memory.acknowledged))
    state, path = federation.states[i], tmp_path / "state.npz"
    make_client(i, path=path).remember(state)
    found = make_client(i, path=path).recall()
    for name, array in state._asdict().items():
        np.testing.assert_array_equal(getattr(found, name), array)
    assert np.abs(found.kept).min() > 0 and found.kept.shape == (1, N)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(state.kept.tobytes(), (-state.kept).tobytes()))
    with pytest.raises(ValueError, match="path must hold a client's state"):
        make_client(i, path=path).recall()
    plain = make_client(i, FedEPM(), path=path)
    plain.remember(ClientState(START, START, 0))
    with pytest.raises(ValueError, match=r"path must hold a client's state: .*it has no 'kept'"):
        make_client(i, path=path).recall()


def test_float32_stays_float32():
    server = Server(ALGORITHM, 1, N, dtype=np.float32)
    client = make_client(0, clients=1)
    state, upload = client.join(START.astype(np.float32))
    assert server.join(0, upload, told=client.told)
    for _ in range(3):
        tau, x, _ = server.open_round()
        message = server.message(0)
        state, upload = client.train(state, x, tau, **message)
        arrays = (x, upload, message["shared"]["c"], state.kept, state.kept_before, state.w)
        assert {array.dtype for array in arrays} == {np.dtype(np.float32)}
        assert server.receive(tau, 0, upload)
        server.close_round()
    assert np.abs(state.kept).max() > 0


def test_the_server_says_what_its_members_agree_on(tmp_path):
    algorithm = dataclasses.replace(ALGORITHM, learning_rate="lipschitz")
    bounds = make_problem(algorithm, DATA).lipschitz()
    with Server(algorithm, M, N, seed=SEED, path=tmp_path) as server:
        for i in range(M):
            options = dict(index=i, clients=M, features=N, samples=int(DATA.client_sizes[i]))
            client = Client(algorithm, own_problem(i), **options)
            assert client.told == {"rate": pytest.approx(1 / bounds[i], rel=1e-12)}
            assert server.join(i, START, told=client.told)
        chosen = server.open_round().clients
        flattest = int(bounds.argmax())
        server.leave(flattest)  # the round goes on as it was opened
        assert server.message(int(chosen[0]))["told"] == {"rate": 1 / bounds.max()}
    with Server(algorithm, M, N, seed=SEED, path=tmp_path) as server:
        i = int(server.awaited[0])
        assert server.message(i)["told"] == {"rate": 1 / bounds.max()}
        server.close_round()
    with Server(algorithm, M, N, seed=SEED, path=tmp_path) as server:
        i = int(server.open_round().clients[0])
        assert server.message(i)["told"] == {"rate": 1 / np.sort(bounds)[-2]}


def test_a_gradient_without_a_bound_is_named():
    algorithm = dataclasses.replace(ALGORITHM, learning_rate="lipschitz")
    with pytest.raises(ValueError, match="for callables without an attribute lipschitz: noth"):
        make_client(0, algorithm)
    assert make_client(0, algorithm, told={"rate": 0.5}).told == {"rate": 0.5}
