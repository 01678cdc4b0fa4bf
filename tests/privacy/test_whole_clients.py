"""Mechanisms that hide all records of a client together: bounds, both engines, words, attacks."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import small_data

from fedepm_fast import FedEPM, FederatedData, Logistic, Poisson, Problem, ScalarLoss, run
from fedepm_fast.algorithms import AtClients
from fedepm_fast.federation.client import PrivateClient
from fedepm_fast.guarantees import SIMULATED
from fedepm_fast.mechanisms import FOR_ROUNDING, client_moments, clip_moves, simulate_moments
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism, plan
from fedepm_fast.privacy._settings import short_of_clients
from fedepm_fast.privacy.audit import audit
from fedepm_fast.randomness import CounterRandomness

#: Of runs that have a guarantee.
SECRET = 987654321987
BOTH = pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
ENGINES = pytest.mark.parametrize("engine", ["compiled", "reference"])


def whole(kind, clip=0.3, **options):
    return kind(total_epsilon=2.0, clip=clip, neighbours="client", **options)


def client(rows, labels, objective="logistic"):
    return Problem(FederatedData(rows, labels, [len(labels)]), objective)


def move(algorithm, problem, start, x, tau=0):
    """The client's parameter after the local steps of round `tau`, before noise."""
    begin = algorithm.round_start(start[None], start[None], x)
    g = problem.gradient(0, x)[None]
    sizes = problem.data.client_sizes
    return algorithm.local_round(AtClients(tau, x, begin, g, sizes, problem.gradient))[0][0]


@BOTH
@pytest.mark.parametrize("start", ["released", "broadcast"])
@given(seed=st.integers(0, 2**32), size=st.integers(-3, 8), eta=st.sampled_from([1e-5, 1.0]))
def test_no_two_clients_are_further_apart_than_twice_the_clip(kind, start, seed, size, eta):
    rng = np.random.default_rng(seed)
    algorithm = FedEPM(mechanism=whole(kind), start=start, eta=eta, lam=0.0, local_steps=3)
    begin, x = rng.normal(size=(2, 4))
    ends = []
    for _ in range(2):  # other rows, and other numbers of rows
        d = int(rng.integers(1, 9))
        rows = rng.normal(size=(d, 4)) * 10.0**size
        problem = client(rows, rng.integers(0, 2, d).astype(float), "least_squares")
        ends.append(move(algorithm.resolve(problem), problem, begin, x))
    order = algorithm.mechanism.order
    at = begin if start == "released" else x
    for end in ends:
        assert np.linalg.norm(end - at, ord=order) <= 0.3 * (1 + 1e-14)
    assert np.linalg.norm(ends[0] - ends[1], ord=order) <= 2 * 0.3 * (1 + FOR_ROUNDING)


@BOTH
def test_opposite_clients_are_twice_the_clip_apart(kind):
    row, zero = np.array([[50.0, 0.0, 0.0]]), np.zeros(3)
    algorithm = FedEPM(mechanism=whole(kind), start="broadcast", eta=1.0, lam=0.0, mu0=1e-9)
    up, down = (client(row, [label]) for label in (1.0, 0.0))
    algorithm = algorithm.resolve(up)
    ends = [move(algorithm, problem, zero, zero) for problem in (up, down)]
    np.testing.assert_allclose(ends, [[0.3, 0, 0], [-0.3, 0, 0]], rtol=1e-12)
    # Within the clip nothing changes.
    tiny = client(row / 1e3, [1.0])
    plain = FedEPM(start="broadcast", eta=1.0, lam=0.0, mu0=1e-9, preset="text").resolve(tiny)
    np.testing.assert_allclose(
        move(algorithm, tiny, zero, zero), move(plain, tiny, zero, zero), rtol=1e-9
    )


@pytest.mark.parametrize("order", [1, 2])
def test_moves_of_any_size_and_none_are_within_the_clip(order):
    start = np.array([[1.0, -2.0]] * 8)
    W = start + np.array([
        [3e-3, 4e-3], [3.0, 4.0], [3e200, -4e200], [1e308, 1e308], [np.inf, 0], [np.nan, 1],
        [0.0, 0.0], [5e-324, 0],
    ])  # fmt: skip
    with np.errstate(over="raise", invalid="raise"):
        moved = clip_moves(W, start, 0.5, order) - start
    norms = np.linalg.norm(moved, ord=order, axis=1)
    assert (norms <= 0.5 + 1e-15).all()
    np.testing.assert_allclose(norms[1:3], 0.5, rtol=1e-14)
    np.testing.assert_allclose(moved[0], [3e-3, 4e-3], rtol=1e-12)
    np.testing.assert_array_equal(moved[3:7], 0)  # too large, or no number at all


@BOTH
@pytest.mark.parametrize("start", ["released", "broadcast"])
@pytest.mark.parametrize("objective", ["logistic", "least_squares", "poisson", "huber"])
def test_the_engines_agree_and_the_noise_is_that_of_the_clip(kind, start, objective):
    data = small_data(m=6)
    algorithm = FedEPM(mechanism=whole(kind), local_steps=3, start=start, participation=1.0)
    settings = dict(objective=objective, rounds=4, seed=SECRET)
    quick = run(algorithm, data, **settings)
    equations = run(algorithm, data, engine="reference", **settings)
    assert quick.engine == "compiled"
    for name in ("Z", "W", "x"):
        np.testing.assert_allclose(
            getattr(quick, name), getattr(equations, name), rtol=1e-12, atol=1e-12
        )
    # From the public start parameters move by the clip at most, and the noise has its scale.
    first = run(algorithm, data, objective=objective, rounds=1, seed=SECRET)
    moved = np.linalg.norm(first.W, ord=algorithm.mechanism.order, axis=1)
    assert (moved <= 0.3 * (1 + 1e-12)).all() and moved.max() > 0
    scale = 2 * 0.3 * (1 + FOR_ROUNDING) * algorithm.mechanism.noise_multiplier(2.0, 1)
    unit = algorithm.mechanism.unit(CounterRandomness(SECRET), 0, np.arange(6), first.x.size)
    np.testing.assert_allclose(first.Z - first.W, scale * unit, rtol=1e-9, atol=1e-12)


@ENGINES
def test_what_overflows_stays_where_it_was_and_ends_nothing(engine):
    features = np.array([[1.0], [8000.0], [-8000.0], [0.5]])
    data = FederatedData(features, [1.0, 0.0, 0.0, 2.0], [1, 2, 1])
    algorithm = FedEPM(mechanism=whole(GaussianMechanism), participation=1.0, start="broadcast")
    result = run(
        algorithm, data, objective=Poisson(), rounds=2, seed=SECRET, engine=engine,
        start=np.array([1.0]),
    )  # fmt: skip
    assert result.rounds == 2 and np.isfinite(result.Z).all()
    # exp(3000) has no gradient: the second client says where it was, and noise.
    assert result.W[1] == result.history["x"][1]
    assert result.W[0] != result.history["x"][1]


@ENGINES
def test_a_gradient_that_is_no_number_in_one_coordinate_moves_none(engine):
    # Of the first client the gradient is inf - inf in the first coordinate, and finite beside it.
    rows = np.array([[1e200, 1e-200], [-1e200, 1e-200], [0.1, 0.1]])
    data = FederatedData(rows, [1e150, 1e150, 1.0], [2, 1])
    algorithm = FedEPM(mechanism=whole(LaplaceMechanism), participation=1.0, start="broadcast")
    result = run(
        algorithm, data, objective="least_squares", rounds=1, seed=SECRET, engine=engine,
    )  # fmt: skip
    assert result.rounds == 1 and np.isfinite(result.Z).all()
    np.testing.assert_array_equal(result.W[0], 0)
    assert np.abs(result.W[1]).max() > 0


def test_a_loss_of_ones_own_qualifies_and_is_bounded_whatever_it_does():
    wild = ScalarLoss(value=lambda t, b: (t - b) ** 4, gradient=lambda t, b: 4 * (t - b) ** 3)
    algorithm = FedEPM(mechanism=whole(LaplaceMechanism), participation=1.0)
    result = run(algorithm, small_data(m=3), objective=wild, rounds=2, seed=SECRET)
    assert result.guarantee.startswith("each client: epsilon <= 2 (pure), for all records")
    with pytest.raises(ValueError, match="has no bound on a record's gradient"):
        run(
            FedEPM(mechanism=LaplaceMechanism(total_epsilon=2.0, clip=0.3)), small_data(m=3),
            objective=wild, rounds=2,
        )  # fmt: skip


@BOTH
def test_what_is_said_and_released_has_no_sizes(kind):
    result = run(FedEPM(mechanism=whole(kind)), small_data(m=4), rounds=2, seed=SECRET)
    words = "for all records of a client together, replace-one-client"
    assert result.guarantee.endswith(words + SIMULATED)
    report = result.settings["privacy"]
    assert report["client_sizes"] == [] and "sizes" not in " ".join(report["public"])
    assert report["relation"] == "replace-one client, all of its records, their number too"
    assert "clients' moves clipped to 0.3" in " ".join(str(result).split())
    released = result.release()
    assert released.client_sizes == () and words in released.guarantee
    # The same rows twice are a client of twice the size, and no number of the account knows.
    data = small_data(m=4)
    parts = [data.client(i) for i in range(4)]
    twice = FederatedData.from_clients([(np.tile(a, (2, 1)), np.tile(b, 2)) for a, b in parts])
    again = run(FedEPM(mechanism=whole(kind)), twice, rounds=2, seed=SECRET)
    assert again.settings["privacy"] == report


def test_the_clip_must_be_given_and_the_relation_be_one():
    data = small_data(m=3)
    with pytest.raises(ValueError, match="clip must be given with neighbours='client'"):
        run(FedEPM(mechanism=whole(LaplaceMechanism, clip=None)), data, rounds=1)
    with pytest.raises(ValueError, match="neighbours must be"):
        LaplaceMechanism(total_epsilon=1.0, neighbours="user")
    assert "neighbours" not in LaplaceMechanism(total_epsilon=1.0).describe()
    mechanism = whole(GaussianMechanism)
    described = mechanism.describe()
    assert GaussianMechanism(**{k: v for k, v in described.items() if k != "name"}) == mechanism


@BOTH
@pytest.mark.parametrize("start", ["released", "broadcast"])
def test_the_attack_comes_close_and_finds_missing_noise(kind, start, monkeypatch):
    algorithm = FedEPM(mechanism=whole(kind, clip=1.0), local_steps=4, start=start)
    options = dict(runs=4000, rounds=3, records=5, seed=3)
    found = audit(algorithm, **options)
    least = 1.6 if kind is LaplaceMechanism else 1.1
    assert least < found.lower_bound <= found.stated == 2.0
    right = FedEPM.plan

    def divided(self, problem, participations):  # as if a client were one of its records
        plan = right(self, problem, participations)
        return plan._replace(change=plan.change / problem.data.client_sizes)

    monkeypatch.setattr(FedEPM, "plan", divided)
    assert audit(algorithm, **options).broken


@BOTH
@pytest.mark.usefixtures("no_disk")
def test_a_private_client_hides_all_of_its_rows(kind, tmp_path):
    pytest.importorskip("opendp")
    algorithm = FedEPM(mechanism=whole(kind), start="broadcast", participation=1.0)
    moved, sizes = [], (1, 7)
    for i, d in enumerate(sizes):
        # Rows so large that their gradients overflow, and rows of nothing.
        rows = np.full((d, 2), 1e200 if i else 0.0)
        member = PrivateClient(
            algorithm, rows, np.ones(d), objective="least_squares", index=i, clients=2,
            uploads=2, path=tmp_path / f"{i}",
        )  # fmt: skip
        member.join(np.zeros(2))
        values, scale = member.train(np.array([1.0, 2.0]), 0)
        moved.append(values - [1.0, 2.0])
        # The scale is of the clip alone, not of sizes or rows.
        multiplier = algorithm.mechanism.noise_multiplier(2.0, 2)
        assert scale == pytest.approx(2 * 0.3 * multiplier, rel=1e-4)
        assert "for all records of a client together" in member.guarantee
        assert member.spent.total == 2.0
    # Noise beyond 60 scales has a probability below 1e-24.
    assert np.abs(moved).max() < 0.3 + 60 * scale


def test_second_moments_of_whole_clients_move_as_one_record_does():
    data = small_data(m=3, n=2)
    of_records = GaussianMechanism(total_epsilon=1.0)
    of_clients = GaussianMechanism(total_epsilon=1.0, neighbours="client")
    np.testing.assert_array_equal(of_records.units(data.client_sizes), data.client_sizes)
    np.testing.assert_array_equal(of_clients.units(data.client_sizes), 1)
    source = CounterRandomness(SECRET)
    (_, records), (values, scales) = (
        simulate_moments(data, of, 2.0, np.ones(3), source) for of in (of_records, of_clients)
    )
    np.testing.assert_allclose(records * data.client_sizes, scales, rtol=1e-9)
    np.testing.assert_allclose(scales, 2**0.5 * 4.0 * (1 + FOR_ROUNDING), rtol=1e-9)
    assert values.shape == (3, 3)
    # Any two clients: all rows along one axis, and all along another.
    rng = np.random.default_rng(0)
    apart = [
        np.linalg.norm(np.subtract(*(
            client_moments(rng.normal(size=(k, 2)) * 10.0 ** rng.integers(-1, 3), 2.0, 2)
            for k in rng.integers(1, 6, 2)
        )))
        for _ in range(300)
    ]  # fmt: skip
    assert max(apart) <= scales[0]
    axes = [client_moments(np.eye(2)[[j, j]] * 9, 2.0, 2) for j in (0, 1)]
    assert np.linalg.norm(axes[0] - axes[1]) == pytest.approx(2**0.5 * 4.0, rel=1e-12)


# By a plan ----------------------------------------------------------------------------------


def clients(m, d, seed=0):
    rng = np.random.default_rng(seed)
    A = np.column_stack([rng.normal(size=(m * d, 3)), np.ones(m * d)])
    labels = rng.random(m * d) < 1 / (1 + np.exp(-A @ [1.0, -1.0, 0.5, 0.3]))
    return FederatedData(A, labels.astype(float), np.full(m, d))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_noise_of_a_plan_is_that_of_the_clip_and_the_number_of_clients(delta):
    one, other = (plan(1.0, np.full(400, d), 4, delta=delta, neighbours="client") for d in (1, 9))
    for name in ("level", "deviation", "rise", "rounds"):  # sizes are hidden
        assert getattr(one, name) == getattr(other, name)
    assert one.mechanism == other.mechanism and not one.mechanism.moments
    z, order = one.mechanism.noise_multiplier(1.0, 1), one.mechanism.order
    if order == 2:
        assert one.level == pytest.approx(2 * z * 2 / 20)
        more = plan(1.0, np.full(6400, 1), 4, delta=delta, neighbours="client")
        assert more.level == pytest.approx(one.level / 4)
        summed = plan(1.0, np.ones(400), 4, neighbours="client", trust="secure-sum", honest=1.0)
        assert summed.level == pytest.approx(one.level / 20)
    step = plan(
        1.0, np.ones(400), 4, delta=delta, neighbours="client",
        settings=one.settings._replace(rounds=1, kept=1),
    )  # fmt: skip
    data = clients(400, 5)
    points = np.array([step.run(data, seed=2**40 + k, public_scaling=True).x for k in range(80)])
    np.testing.assert_allclose(points.std(axis=0).mean(), step.deviation, rtol=0.15)


@pytest.mark.parametrize("objective", ["logistic", "least_squares"])
@pytest.mark.parametrize("trust", ["clients", "secure-sum"])
def test_a_plan_runs_in_both_engines_whatever_the_sizes(objective, trust):
    data = clients(30, 4)
    planned = plan(2.0, np.ones(30), 4, neighbours="client", objective=objective, trust=trust)
    one, other = (
        planned.run(data, seed=SECRET, public_scaling=True, engine=engine)
        for engine in ("compiled", "reference")
    )
    np.testing.assert_allclose(one.x, other.x, rtol=1e-9, atol=1e-9)
    assert "for all records of a client together" in one.guarantee
    assert one.settings["privacy"]["client_sizes"] == []
    with pytest.raises(ValueError, match="data must have the plan's 30 clients"):
        planned.run(clients(29, 4), public_scaling=True)


def test_many_clients_come_close_and_few_are_told_that_they_will_not():
    data = clients(6000, 3)
    planned = plan(2.0, data.client_sizes, 4, neighbours="client")
    found = planned.run(data, seed=SECRET, public_scaling=True).history["objective"] / 6000
    best = Problem(data, Logistic(beta=0.0)).optimum().value / 6000
    assert (found[0] - found[-1]) / (found[0] - best) > 0.9
    assert planned.rise < 0.02 and planned.warning == ""
    few = plan(1.0, np.ones(100), 15, neighbours="client")
    text = " ".join(str(few).split())
    assert few.rise > 0.1 and "it drowns most signals" in text and "moves clipped to" in text
    assert "100 clients, 15 columns" in text and "row" not in text.replace("drowns", "")
    # What it says would make it affordable does.
    needed = int(re.search(r"affordable ([\d,]+) clients", text)[1].replace(",", ""))
    assert 10_000 < needed < 100_000
    assert plan(1.0, np.ones(needed), 15, neighbours="client").rise <= 0.01
    epsilon = float(re.search(r"or epsilon ([\d.]+):", text)[1])
    assert plan(epsilon, np.ones(100), 15, neighbours="client").rise <= 0.01
    for order in (1, 2):
        found = [short_of_clients(order, level) for level in (0.01, 0.1, 0.3, 1.0, 3.0, 100.0)]
        assert found == sorted(found) and found[-1] > 0.99
