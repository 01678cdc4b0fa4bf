"""Private clients that send second moments first: what they send, spend, keep and refuse."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dying import dying
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import small_data
from scipy import stats

from fedepm_fast import FedEPM, Logistic
from fedepm_fast.federation.client import PrivateClient, UploadRefused
from fedepm_fast.federation.server import Server
from fedepm_fast.mechanisms import (
    client_moments,
    coordinates,
    moments_change,
    unpack,
)
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism, plan
from fedepm_fast.privacy._settings import Settings

pytestmark = pytest.mark.usefixtures("no_disk")

M, N, MOMENTS, ROUNDS = 4, 3, 5, 3
Q = N * (N + 1) // 2
DATA = small_data(M, N, seed=1)
LAWS = [LaplaceMechanism, GaussianMechanism]
#: Any matrix with an inverse.
B = np.array([[2.0, 0.3, 0.0], [-0.1, 0.5, 0.2], [0.0, 0.4, 1.5]])


def algorithm(law: Any = LaplaceMechanism, epsilon: float = 1.0, **options: Any) -> FedEPM:
    options = {"total_epsilon": epsilon, "clip": 2.0, "moments": MOMENTS, **options}
    return FedEPM(
        mechanism=law(**options), lam=0.0, eta=0.5, mu0=1e-9, local_steps=1, participation=1.0,
        step="1", start="broadcast", aggregation="equal",
    )  # fmt: skip


def client(path: Path, i: int = 0, **options: Any) -> PrivateClient:
    options = {"algorithm": algorithm(), "index": i, "clients": M, "uploads": ROUNDS, **options}
    features, labels = DATA.client(i)
    features, labels = options.pop("rows", features), options.pop("labels", labels)
    return PrivateClient(options.pop("algorithm"), features, labels, path=path, **options)


@pytest.mark.parametrize("law", LAWS)
def test_the_noise_of_moments_spends_so_many_uploads(law, tmp_path):
    p, radius = 60, 1.5
    one = client(tmp_path / "0", algorithm=algorithm(law), rows=np.zeros((2, p)), labels=[0, 1])
    noise, scale = one.moments(radius)
    mechanism = one.algorithm.mechanism
    assert mechanism is not None
    z = mechanism.noise_multipliers(np.array([MOMENTS + ROUNDS]))[0]
    share = MOMENTS if law is LaplaceMechanism else np.sqrt(MOMENTS)
    moves = moments_change(radius, [2], mechanism.order, p)[0]
    assert moves == pytest.approx(radius**2 / (1 if mechanism.order == 1 else np.sqrt(2)), rel=1e-4)
    assert scale == pytest.approx(moves * z / share, rel=1e-12)
    # Cannot be seeded by design: fails once in ten thousand million honest runs.
    unit, laplace = noise / scale, law is LaplaceMechanism
    assert stats.kstest(unit, stats.laplace.cdf if laplace else stats.norm.cdf).pvalue > 1e-10
    assert one.spent[:2] == (MOMENTS, MOMENTS + ROUNDS)
    assert one.spent.epsilon == pytest.approx(mechanism.compose(1 / z, MOMENTS))
    for tau in range(ROUNDS):
        assert one.spent.epsilon < one.spent.total == 1.0
        one.train(np.zeros(p), tau)
    assert one.spent == (MOMENTS + ROUNDS, MOMENTS + ROUNDS, 1.0, 1.0)
    with pytest.raises(UploadRefused, match="all 8 uploads have been made"):
        one.train(np.zeros(p), ROUNDS)


@pytest.mark.parametrize("law, epsilon", [(LaplaceMechanism, 1e9), (GaussianMechanism, 1e14)])
def test_a_round_in_coordinates_is_that_of_rows_moved_and_clipped_there(law, epsilon, tmp_path):
    x, one = np.array([0.3, -0.2, 0.1]), client(tmp_path / "0", algorithm=algorithm(law, epsilon))
    order = one.algorithm.mechanism.order  # type: ignore[union-attr]
    a, b = DATA.client(0)
    sent, scale = one.moments(2.0)
    np.testing.assert_allclose(sent, client_moments(a, 2.0, order), atol=60 * scale)
    for tau, matrix in enumerate((B, None, 3 * B)):
        rows = a if matrix is None else a @ matrix
        norms = np.linalg.norm(rows, ord=order, axis=1)
        assert (norms > 2.0).any()
        # A row that is clipped weighs less, at the margin that it had.
        clipped = rows * np.minimum(1, 2.0 / norms)[:, None]
        g = clipped.T @ (1 / (1 + np.exp(-rows @ x)) - b) / len(b)
        # The penalty that is there by default, of 1e-3 over the rows: its diagonal.
        penalty = np.ones(N) if matrix is None else np.diag(matrix.T @ matrix)
        g += one._rows.raw.reg[0] * penalty * x
        upload, scale = one.train(x, tau, matrix)
        assert scale < 1e-6
        np.testing.assert_allclose(upload, x - g / 0.5, atol=60 * scale + 1e-7)


def test_moments_are_sent_once_and_before_the_rounds(tmp_path):
    one = client(tmp_path / "0")
    first = one.moments(2.0)
    assert first.values.shape == (Q,) and unpack(first.values, N).shape == (N, N)
    for radius in (2.0, 50.0):
        for again in (one.moments(radius), client(tmp_path / "0").moments(radius)):
            np.testing.assert_array_equal(again.values, first.values)
            assert again.scale == first.scale
    joined = one.join(np.ones(N))
    np.testing.assert_array_equal(joined.values, np.ones(N))
    np.testing.assert_array_equal(one.moments(2.0).values, first.values)
    assert one.spent.uploads == MOMENTS
    upload = one.train(np.zeros(N), 0, B)
    for now in (one, client(tmp_path / "0")):
        with pytest.raises(UploadRefused, match=r"moments come before the first round \(6 of 8"):
            now.moments(2.0)
        np.testing.assert_array_equal(now.join(np.zeros(N)).values, upload.values)
        np.testing.assert_array_equal(now.train(np.ones(N), 0, 2 * B).values, upload.values)
    # Without moments sent, they cannot be had later.
    late = client(tmp_path / "1")
    late.train(np.zeros(N), 0)
    with pytest.raises(UploadRefused, match="before the first round"):
        late.moments(2.0)
    none = client(tmp_path / "2", algorithm=algorithm(moments=0))
    with pytest.raises(UploadRefused, match="its mechanism spends nothing on moments"):
        none.moments(2.0)
    assert none.spent == (0, ROUNDS, 0.0, 1.0)


@pytest.mark.parametrize("matrix, message", [
    (np.eye(N + 1), "coordinates must have shape"),
    (np.diag([1.0, np.nan, 1.0]), "coordinates must be finite"),
    (np.diag([1.0, np.inf, 1.0]), "coordinates must be finite"),
    (np.diag([1.0, 1e101, 1.0]), "coordinates must be at most 1e\\+100"),
    (np.diag([1.0, 1e300, 1.0]), "coordinates must be at most 1e\\+100"),
    (np.zeros((N, N)), "coordinates must have an inverse"),
    (np.diag([1.0, 0.0, 1.0]), "coordinates must have an inverse"),
    (np.ones((N, N)), "coordinates must have an inverse"),
    (np.diag([1.0, 1e-13, 1.0]), "coordinates must have an inverse"),
    ("no matrix", "coordinates"),
])  # fmt: skip
def test_coordinates_of_malice_are_refused_and_spend_nothing(matrix, message, tmp_path):
    one = client(tmp_path / "0")
    with pytest.raises((ValueError, TypeError), match=message):
        one.train(np.zeros(N), 0, matrix)
    assert one.spent.uploads == 0
    one.train(np.zeros(N), 0, np.eye(N))


@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan, np.inf, 1e80, 1e-80, "1"])
def test_radii_of_malice_are_refused_and_spend_nothing(radius, tmp_path):
    one = client(tmp_path / "0")
    with pytest.raises((ValueError, TypeError), match="radius must be"):
        one.moments(radius)
    assert one.spent.uploads == 0


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("size", [1e-90, 1.0, 1e99])
def test_rows_of_any_size_are_within_the_clip_in_any_coordinates(size, law, tmp_path):
    # Whether a client answers must not depend on its rows: these are as large as floats are.
    rows = np.array([[1e308, -1e308, 1e308], [1e-308, 0.0, 1e-300], [0.0, 0.0, 0.0]])
    one = client(tmp_path / "0", algorithm=algorithm(law, 1e9), rows=rows, labels=[1, 0, 1])
    assert np.isfinite(one.moments(1.0).values).all()
    one.train(np.zeros(N), 0, size * B)
    clipped = one._rows.problem.data.features.astype(np.longdouble)
    norms = np.linalg.norm(clipped, ord=one.algorithm.mechanism.order, axis=1)  # type: ignore
    assert (norms <= 2.0).all() and norms[0] == pytest.approx(2.0, rel=1e-9)


EVENT = st.tuples(st.sampled_from(["moments", "join", "next", "again"]), st.floats(-1, 1))


def perform(one: PrivateClient, event: str, number: float, tau: int) -> bytes:
    if event == "moments":
        return one.moments(2.0 + number).values.tobytes()
    if event == "join":
        return one.join(np.full(N, number)).values.tobytes()
    return one.train(np.full(N, number), tau, (2.0 + number) * B).values.tobytes()


@given(st.lists(EVENT, min_size=1, max_size=8), st.integers(1, 60))
@settings(max_examples=20)
def test_a_kill_at_any_moment_spends_nothing_twice(events, calls):
    """What goes out is told through a pipe, before the process is killed somewhere."""
    steps, tau = [], -1
    for event, number in events:
        tau += event == "next" or tau < 0
        if tau >= ROUNDS or (event == "moments" and any(s[0] in ("next", "again") for s in steps)):
            break
        steps.append((event, number, tau))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "0"
        client(path)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # whatever happens, it does not return
            try:
                dying(calls)
                one = client(path)
                for step in steps:
                    os.write(writing, perform(one, *step))
                    os.write(writing, b"|answer|")
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading, "rb") as answers:
            seen = answers.read().split(b"|answer|")[:-1]
        os.waitpid(child, 0)
        one = client(path)
        assert not [*Path(folder).glob(".*")]
        released = any(step[0] == "moments" for step in steps[: len(seen)])
        rounds = {step[2] for step in steps[: len(seen)] if step[0] in ("next", "again")}
        least = MOMENTS * released + len(rounds)
        # At most the one that was being written when the kill came.
        assert one.spent.uploads in (least, least + 1, least + MOMENTS)
        if seen and steps[len(seen) - 1][0] in ("next", "again"):
            spent = one.spent
            if spent.uploads == least:
                assert perform(one, *steps[len(seen) - 1]) == seen[-1]
            assert one.spent == spent
        if released and not rounds and one.spent.uploads == least:
            at = next(k for k, step in enumerate(steps) if step[0] == "moments")
            assert one.moments(2.0).values.tobytes() == seen[at]
        for step in steps[len(seen) :]:  # it goes on
            perform(one, *step)
        assert one.spent.uploads <= MOMENTS + ROUNDS


@pytest.mark.parametrize("delta, beta", [(1e-6, 0.0), (1e-6, 0.1), (0.0, 0.0)])
@pytest.mark.parametrize("moments", [0, 4])
def test_a_planned_federation_of_clients_ends_where_the_planned_run_does(
    delta, beta, moments, tmp_path
):
    planned = plan(
        1e13 if delta else 1e9, DATA.client_sizes, N, delta=delta,
        objective=Logistic(beta=beta, regularizer="beta"),
        settings=Settings(moments, 12, 4, 1.5, 0.9, 0.8, 0.3),
    )  # fmt: skip
    clients = [
        client(
            tmp_path / f"{i}", i, algorithm=planned.algorithm, objective=planned.objective,
            uploads=planned.rounds,
        )
        for i in range(M)
    ]  # fmt: skip
    back = planned.coordinates()
    if planned.radius is not None:
        back = planned.coordinates(
            *zip(*[one.moments(planned.radius) for one in clients], strict=True)
        )
    server, points = Server(planned.algorithm, M, N), []
    for i, one in enumerate(clients):
        assert server.join(i, one.join(np.zeros(N)).values)
    for _ in range(planned.rounds):
        tau, x, chosen = server.open_round()
        points.append(x)
        for i in chosen.tolist():
            upload, scale = clients[i].train(x, tau, back)
            assert server.receive(tau, i, upload, scale=scale)
        server.close_round()
    w = planned.in_columns(planned.average([*points, server.x]), back)
    expected = planned.run(DATA, seed=2**40, engine="reference")
    assert np.abs(expected.x).max() > 0.1
    # Noise of so large a budget is about 1e-6; Laplace noise has moments apart by more.
    np.testing.assert_allclose(w, expected.x, atol=1e-4)
    spent = clients[0].spent
    assert spent.uploads == spent.planned == 12 + moments and spent.epsilon == spent.total


def test_the_server_has_coordinates_of_what_clients_sent(tmp_path):
    options = {"algorithm": algorithm(GaussianMechanism, 1e14)}
    sent = [client(tmp_path / f"{i}", i, **options).moments(20.0) for i in range(M)]
    values, scales = (np.array(part) for part in zip(*sent, strict=True))
    back = coordinates(values, scales, DATA.client_sizes, 2)
    a = DATA.features
    np.testing.assert_allclose(back @ (a.T @ a / len(a)) @ back, np.eye(N), atol=1e-4)
