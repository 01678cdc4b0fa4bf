"""The client for deployments: what it answers, keeps in a file, and refuses."""

from __future__ import annotations

import stat
from typing import Any

import numpy as np
import pytest
from adult_federation import ALGORITHM, GOOD, PRIVATE, Federation, N, with_entry

from fedepm_fast import FedEPM
from fedepm_fast._common.archives import write_archive
from fedepm_fast.federation.client import Client, UploadRefused
from fedepm_fast.federation.server import Server
from fedepm_fast.privacy import LaplaceMechanism


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
