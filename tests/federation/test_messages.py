"""Messages, states and answers that servers and clients who keep, share and tell refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keeping_federation import (
    ALGORITHM,
    DATA,
    SEED,
    START,
    TOLD,
    Federation,
    M,
    N,
    make_client,
    own_problem,
)

from fedepm_fast import FedEPM
from fedepm_fast.federation.client import Client, ClientState
from fedepm_fast.federation.server import Server

SHARED = {"c": START}


@pytest.mark.parametrize(
    ("message", "error", "fault"),
    [
        ({"shared": None}, ValueError, "shared must have c, got nothing"),
        ({"shared": {"d": START}}, ValueError, "shared must have c, got d"),
        ({"shared": [START]}, TypeError, "shared must be a mapping of names to arrays, got list"),
        ({"shared": {"c": START[1:]}}, ValueError, r"shared c must have shape \(5,\), got \(4,\)"),
        ({"shared": {"c": START * np.nan}}, ValueError, "shared c must be finite, got nan"),
        ({"acknowledged": None}, ValueError, "acknowledged must be the server's: clients keep c_i"),
        ({"acknowledged": 3}, ValueError, "acknowledged must be an integer from -1 to 2, got 3"),
        ({"acknowledged": -2}, ValueError, "acknowledged must be an integer from -1 to 2, got -2"),
        ({"told": None}, ValueError, "told must have .*, got nothing"),
        ({"told": dict.fromkeys(TOLD, np.nan)}, ValueError, "told .* must be a finite number in"),
    ],
)
def test_a_message_that_is_none_is_named(message, error, fault):
    client = make_client(0)
    state, _ = client.join(START)
    good = {"shared": SHARED, "acknowledged": -1, "told": TOLD}
    client.train(state, START, 3, **good)
    with pytest.raises(error, match=fault):
        client.train(state, START, 3, **{**good, **message})


def test_a_state_without_what_is_kept_is_named():
    client = make_client(0)
    options: Any = {"shared": SHARED, "acknowledged": -1, "told": TOLD}
    with pytest.raises(ValueError, match=r"state.kept must have shape \(1, 5\), got \(0, 0\)"):
        client.train(ClientState(START, START, 0), START, 0, **options)
    state, _ = client.join(START)
    with pytest.raises(ValueError, match=r"state\.kept_before must be finite"):
        client.train(state._replace(kept_before=state.kept * np.nan), START, 0, **options)
    plain = make_client(0, FedEPM())
    with pytest.raises(ValueError, match="shared must have nothing, got c"):
        plain.train(plain.join(START)[0], START, 0, shared=SHARED)


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        (None, "told must have .*, got nothing"),
        ({"x": 1.0}, "told must have .*, got x"),
        (dict.fromkeys(TOLD, 0.0), r"told .* must be a finite number in \(0, inf\), got 0.0"),
        (dict.fromkeys(TOLD, np.inf), "told .* must be a finite number in"),
        (dict.fromkeys(TOLD, "1"), "told .* must be a finite number in"),
        ([1.0], "told must be a mapping of names to numbers, got list"),
    ],
)
def test_what_a_client_tells_is_checked(told, fault, caplog):
    server = Server(ALGORITHM, M, N)
    assert not server.join(0, START, told=told)
    assert "client 0 rejected: told " in caplog.text
    assert len(server.members) == 0
    if told is not None:
        with pytest.raises(ValueError, match=fault):
            make_client(0, told=told)
    plain = Server(FedEPM(), M, N)
    assert not plain.join(0, START, told=TOLD)
    assert plain.join(0, START)


def test_a_sum_that_is_not_finite_is_not_sent(tmp_path):
    with Server(ALGORITHM, 3, N, seed=SEED, path=tmp_path) as server:
        for i in range(3):
            told = dict.fromkeys(TOLD, 1e-300 if i == 2 else 1.0)
            assert server.join(i, START, told=told)
        for _ in range(20):
            tau, _, chosen = server.open_round()
            for i in chosen.tolist():
                assert server.receive(tau, i, START + 1e9)
            server.close_round()
            if 2 in chosen:
                break
        for _ in range(2):
            with pytest.raises(RuntimeError, match=rf"c of round {tau + 1} is not finite: the st"):
                server.open_round()
    with Server(ALGORITHM, 3, N, seed=SEED, path=tmp_path) as server:
        with pytest.raises(RuntimeError, match="is not finite"):
            _ = server.x
        server.leave(2)
        assert np.isfinite(server.open_round().x).all()


def test_a_message_is_for_who_was_selected():
    federation = Federation()
    for i in range(M):
        federation.join(i)
    with pytest.raises(RuntimeError, match="no round is open"):
        federation.server.message(0)
    chosen = federation.server.open_round().clients
    idle = int(np.setdiff1d(np.arange(M), chosen)[0])
    for who in (idle, M, -1, "0"):
        with pytest.raises(ValueError, match="client must be one of the round"):
            federation.server.message(who)
    plain = Server(FedEPM(), 1, N)
    assert plain.join(0, START)
    plain.open_round()
    assert plain.message(0) == {}


def test_a_client_s_problem_is_checked():
    for wrong, fault in (
        ({"features": N + 1}, "features must be those of the ClientProblem, 5, got 6"),
        ({"samples": 1}, r"samples must be those of the ClientProblem, \d+, got 1"),
    ):
        options = dict(index=0, clients=M, features=N, samples=int(DATA.client_sizes[0])) | wrong
        with pytest.raises(ValueError, match=fault):
            Client(ALGORITHM, own_problem(0), **options)
    with pytest.raises(TypeError, match="gradient must be callable, or a ClientProblem, got int"):
        Client(ALGORITHM, 1, index=0, clients=M, features=N, samples=1)  # type: ignore[arg-type]
