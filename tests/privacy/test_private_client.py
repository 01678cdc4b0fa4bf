"""Private clients of real deployments: what they send, spend and refuse."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from private_clients import DATA, M, N, client
from scipy import stats

from fedepm_fast import FedEPM, run
from fedepm_fast.federation._ledger import Ledger
from fedepm_fast.federation.client import UploadRefused
from fedepm_fast.federation.server import Server
from fedepm_fast.mechanisms import FOR_ROUNDING
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism, plan, upload_sensitivity

pytestmark = pytest.mark.usefixtures("no_disk")


@pytest.mark.parametrize("start", ["released", "broadcast"])
@pytest.mark.parametrize("law, epsilon", [(LaplaceMechanism, 1e10), (GaussianMechanism, 1e14)])
def test_server_and_clients_follow_a_private_run(law, epsilon, start, tmp_path):
    rounds = 5
    aggregation = "inverse_variance" if start == "released" else "equal"
    mechanism = law(total_epsilon=epsilon, clip=2.0)
    # Penalties so large that a round takes points that differ by noise no further apart.
    algorithm = FedEPM(
        local_steps=3, participation=1.0, mu0=10.0, lam=1e-3, eta=0.5, start=start,
        mechanism=mechanism, aggregation=aggregation,
    )  # fmt: skip
    server = Server(algorithm, M, N, path=tmp_path)
    x0, scales = np.full(N, 0.1), []
    for i in range(M):
        upload, scale = client(tmp_path / f"{i}", i, algorithm=algorithm, uploads=rounds).join(x0)
        assert scale is None and server.join(i, upload)
    for _ in range(rounds):
        tau, x, chosen = server.open_round()
        for i in chosen.tolist():  # a new process each time, as far as the client knows
            now = client(tmp_path / f"{i}", i, algorithm=algorithm, uploads=rounds)
            upload, scale = now.train(x, tau)
            assert server.receive(tau, i, upload, scale=scale)
            scales.append(scale)
            assert now.spent.uploads == tau + 1
        server.close_round()
    assert now.spent.epsilon == now.spent.total <= epsilon
    expected = run(algorithm, DATA, rounds=rounds, start=x0, seed=0, engine="reference")
    # Noise beyond 60 scales has a probability below 1e-24.
    noise = 60 * max(scales)
    assert noise < 1e-4 < 0.01 < np.abs(expected.x - x0).max()
    np.testing.assert_allclose(server.x, expected.x, atol=2 * noise, rtol=0)
    np.testing.assert_allclose(server.Z, expected.Z, atol=4 * noise, rtol=0)


# Clients draw from the system's entropy: budgets so large that the noise's tails cannot matter.
@pytest.mark.parametrize("law, epsilon", [(LaplaceMechanism, 1e10), (GaussianMechanism, 1e14)])
def test_the_rounds_of_a_plan_serve_a_federation(law, epsilon, tmp_path):
    mechanism = law(total_epsilon=epsilon, clip=2.0)
    found, rounds = plan(mechanism=mechanism, client_sizes=DATA.client_sizes, n_features=N), 6
    server = Server(found.algorithm, M, N)
    clients = [
        client(tmp_path / f"{i}", i, algorithm=found.algorithm, uploads=rounds) for i in range(M)
    ]
    for i, one in enumerate(clients):
        assert server.join(i, one.join(np.zeros(N))[0])
    scales = []
    for _ in range(rounds):
        tau, x, chosen = server.open_round()
        for i in chosen.tolist():
            upload, scale = clients[i].train(x, tau)
            assert server.receive(tau, i, upload, scale=scale)
            scales.append(scale)
        server.close_round()
    assert clients[0].spent.epsilon <= epsilon
    expected = run(found.algorithm, DATA, rounds=rounds, seed=0, engine="reference")
    noise = 60 * max(scales)  # which noise exceeds with a probability below 1e-24
    assert noise < 1e-4 < 0.01 < np.abs(expected.x).max()
    np.testing.assert_allclose(server.x, expected.x, atol=2 * noise, rtol=0)


@pytest.mark.parametrize("law", [LaplaceMechanism, GaussianMechanism])
def test_the_noise_is_that_of_the_budget(law, tmp_path):
    n, clip, uploads = 3000, 3.0, 7
    mechanism = law(total_epsilon=2.0, clip=clip)
    algorithm = FedEPM(local_steps=4, mechanism=mechanism, eta=0.01)
    # Rows of zeros at x = 0: the client's parameter is 0, and the upload its noise.
    zeros = client(
        tmp_path / "0", algorithm=algorithm, rows=np.zeros((2, n)), labels=[0, 1], uploads=uploads
    )
    noise, scale = zeros.train(np.zeros(n), 5)
    nu = 0.5 * algorithm.mu0 * algorithm.alpha ** np.arange(21, 25)
    moves = upload_sensitivity([2 * clip / 2 * (1 + FOR_ROUNDING)], nu[:, None], 0.01)[0]
    multiplier = mechanism.noise_multipliers(np.array([uploads]))[0]
    # A little more, for rounding sums of rows.
    assert scale == pytest.approx(moves * multiplier, rel=1e-11) and scale > moves * multiplier
    # Cannot be seeded by design: each fails once in ten thousand million honest runs.
    unit, laplace = noise / scale, law is LaplaceMechanism
    assert stats.kstest(unit, stats.laplace.cdf if laplace else stats.norm.cdf).pvalue > 1e-10
    # The scale alone, to about a tenth: a sum with a law of its own.
    size = stats.gamma(n) if laplace else stats.chi2(n)
    total = np.abs(unit).sum() if laplace else (unit**2).sum()
    assert min(size.cdf(total), size.sf(total)) > 5e-11


def test_a_float32_server_gets_float32(tmp_path):
    one = client(tmp_path / "0")
    assert one.join(np.zeros(N, np.float32)).values.dtype == np.float32
    upload, scale = one.train(np.zeros(N, np.float32), 0)
    assert upload.dtype == np.float32
    again = one.train(np.zeros(N), 0)
    assert again.scale == scale and again.values.dtype == np.float64
    np.testing.assert_array_equal(again.values.astype(np.float32), upload)


def test_rows_beyond_the_clip_count_no_more_than_it(tmp_path):
    # At an epsilon of 1e9 the noise is about 1e-8, and does not hide that rows were scaled down.
    sent = {}
    for size in (2.0, 1e100):
        one = client(
            tmp_path / f"{size}",
            algorithm=FedEPM(mechanism=LaplaceMechanism(total_epsilon=1e9, clip=2.0), eta=1.0),
            rows=[[size, 0.0, 0.0]],
            labels=[1],
            uploads=1,
        )
        sent[size] = one.train(np.zeros(N), 0).values
    np.testing.assert_allclose(sent[2.0], sent[1e100], atol=1e-5)
    assert sent[2.0][0] > 0.1


# Budgets --------------------------------------------------------------------------------


def test_a_server_learns_no_more_by_asking_again(tmp_path):
    one = client(tmp_path / "0")
    first = one.train(np.zeros(N), 0)
    for x in (np.ones(N), np.full(N, 1e100), np.full(N, -1e300)):
        np.testing.assert_array_equal(one.train(x, 0).values, first.values)
        np.testing.assert_array_equal(one.join(x).values, first.values)
    assert one.spent[:2] == (1, 3)
    # Points so far off that rounding might tell the rows are not answered, and spend nothing.
    for x in (np.full(N, 1e12), np.full(N, 1e200)):
        with pytest.raises(UploadRefused, match=r"client 0 .* rounding of points .*1 of 3 uploads"):
            one.train(x, 1)
    with pytest.raises(UploadRefused, match="rounding"):  # alpha to that power is no number
        client(tmp_path / "0", largest_jump=2**62).train(np.zeros(N), 10**18)
    for x, message in [(np.full(N, np.nan), "x must be finite"), (np.zeros(N + 1), "x must have")]:
        with pytest.raises(ValueError, match=message):
            one.train(x, 1)
    with pytest.raises(ValueError, match="tau must be an integer"):
        one.train(np.zeros(N), -1)
    assert one.spent[:2] == (1, 3)
    one.train(np.zeros(N), 4)
    with pytest.raises(UploadRefused, match=r"client 0 .* round 4 is done, got round 3 \(2 of 3"):
        one.train(np.zeros(N), 3)
    one.train(np.zeros(N), 5)
    with pytest.raises(UploadRefused, match=r"all 3 uploads have been made \(3 of 3 uploads"):
        one.train(np.zeros(N), 6)
    assert one.spent == (3, 3, pytest.approx(1.0, rel=1e-15), one.spent.epsilon)
    assert one.spent.total <= 1.0
    assert one.guarantee.startswith("each client: epsilon <= 1 (pure), for each record")


def test_a_server_cannot_end_a_client_by_naming_a_round_far_ahead(tmp_path):
    one = client(tmp_path / "0")
    for tau in (1000, 10**6, 2**62):
        with pytest.raises(UploadRefused, match=rf"round {tau} at first is a jump of"):
            one.train(np.zeros(N), tau)
    assert one.spent.uploads == 0
    one.train(np.zeros(N), 3)
    for tau in (1004, 2**62):
        with pytest.raises(UploadRefused, match=rf"round {tau} after round 3 is a jump .*\(1 of 3"):
            one.train(np.zeros(N), tau)
    with pytest.raises(ValueError, match="tau must be an integer"):
        one.train(np.zeros(N), 2**63)
    assert one.spent.uploads == 1
    one.train(np.zeros(N), 4)
    one.train(np.zeros(N), 1004)
    near = client(tmp_path / "1", largest_jump=5)
    with pytest.raises(UploadRefused, match="largest_jump = 5 rounds"):
        near.train(np.zeros(N), 5)
    near.train(np.zeros(N), 4)


EVENTS = st.sampled_from(
    ["next", "again", "older", "join", "far", "restart", "killed before", "killed after"]
)


@given(st.lists(st.tuples(EVENTS, st.integers(0, 2)), max_size=25))
@settings(max_examples=30)
def test_no_order_of_events_exceeds_the_budget(events):
    replace, made, tau = Ledger.replace, 0, -1
    seen: dict[int, bytes] = {}  # what the server got, by round
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        one = client(Path(folder) / "0")

        def ask(now: int, x: float = 0.0) -> None:
            upload = one.train(np.full(N, x), now).values.tobytes()
            assert seen.setdefault(now, upload) == upload

        for event, number in events:
            if event == "restart":
                one = client(Path(folder) / "0")
            elif event == "join":
                assert (one.join(np.ones(N)).scale is None) == (made == 0)
            elif event == "far":
                with pytest.raises(UploadRefused):
                    one.train(np.full(N, 1e15), tau + 1)
            elif event in ("again", "older") and made == 0:
                continue
            elif event == "again":
                ask(tau, float(number))
            elif event == "older" and tau > 0:
                with pytest.raises(UploadRefused, match="is done"):
                    one.train(np.zeros(N), tau - 1)
            elif made == 3:
                with pytest.raises(UploadRefused, match="all 3 uploads"):
                    one.train(np.zeros(N), tau + 1 + number)
            elif event == "next":
                made, tau = made + 1, tau + 1 + number
                ask(tau)
            elif event.startswith("killed"):

                def killed(ledger: Ledger, *entries: Any, event: str = event) -> None:
                    if event == "killed after":
                        replace(ledger, *entries)
                    raise KeyboardInterrupt

                patch.setattr(Ledger, "replace", killed)
                with pytest.raises(KeyboardInterrupt):
                    one.train(np.zeros(N), tau + 1)
                patch.setattr(Ledger, "replace", replace)
                if event == "killed after":
                    made, tau = made + 1, tau + 1
                one = client(Path(folder) / "0")
            assert one.spent.uploads == made <= 3
            assert one.spent.epsilon <= one.spent.total <= 1.0
    assert len(seen) <= made


# Arguments ------------------------------------------------------------------------------


def unit_norm() -> np.ndarray:
    a = np.random.default_rng(0).normal(size=(10, N))
    return a / np.linalg.norm(a, axis=0)


@pytest.mark.parametrize("given, message", [
    ({"algorithm": FedEPM()}, "algorithm must have a mechanism; without one use Client"),
    ({"algorithm": FedEPM(mechanism=LaplaceMechanism(total_epsilon=1.0))}, "its clip given"),
    ({"objective": "least_squares"}, "no bound on a record's gradient"),
    ({"rows": unit_norm(), "labels": np.arange(10) % 2}, "divided by numbers that depend on the"),
    ({"index": M}, "index must be an integer from 0 to 3"),
    ({"uploads": 0}, "uploads must be an integer"),
    ({"rows": np.full((2, N), np.nan), "labels": [0, 1]}, "features must be finite"),
    ({"rows": np.zeros((3, N)), "labels": [0, 1]}, "labels must have shape"),
    ({"labels": DATA.client(0)[1] + 1}, "labels must be 0 or 1"),
])  # fmt: skip
def test_arguments_are_checked_before_any_work(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        client(tmp_path / "0", **given)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="path must be a folder"):
        client(tmp_path / "none" / "none" / "0")


def test_public_scaling_may_be_declared(tmp_path):
    mechanism = LaplaceMechanism(total_epsilon=1.0, clip=2.0, public_scaling=True)
    rows, labels = unit_norm(), np.arange(10) % 2
    client(tmp_path / "0", algorithm=FedEPM(mechanism=mechanism), rows=rows, labels=labels)
