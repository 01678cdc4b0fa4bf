"""Clients that differ: own budgets, sizes from 1 to 1000, rounds that some do not come to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import small_data

from fedepm_fast import FedEPM, FederatedData, run
from fedepm_fast.federation.client import PrivateClient
from fedepm_fast.federation.server import Server
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism, plan
from fedepm_fast.privacy._settings import Settings

#: Of runs that have a guarantee.
SECRET = 987654321987
BOTH = pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])


def table(sizes, p=3, seed=0):
    rng = np.random.default_rng(seed)
    d = int(np.sum(sizes))
    A = np.column_stack([rng.normal(size=(d, p - 1)), np.ones(d)])
    labels = rng.random(d) < 1 / (1 + np.exp(-A @ np.linspace(1, -1, p)))
    return FederatedData(A, labels.astype(float), sizes)


@BOTH
def test_each_client_spends_its_own_budget_and_the_guarantee_is_the_largest(kind):
    budgets = [0.5, 4.0, 1.0, 2.0]
    mechanism = kind(budgets=budgets, clip=0.3)
    assert mechanism.budgets == tuple(budgets) and mechanism.total_epsilon == 4.0
    algorithm = FedEPM(mechanism=mechanism, participation=1.0, aggregation="inverse_variance")
    data = small_data(m=4)
    result = run(algorithm, data, rounds=3, seed=SECRET)
    equations = run(algorithm, data, rounds=3, seed=SECRET, engine="reference")
    np.testing.assert_allclose(result.Z, equations.Z, rtol=1e-12, atol=1e-12)
    report = result.settings["privacy"]
    assert report["epsilon_clients"] == budgets
    assert result.guarantee.startswith("each client: epsilon <= 4 ")
    # The noise of each is that of a run in which all have its budget.
    for i, epsilon in enumerate(budgets):
        alone = kind(total_epsilon=epsilon, clip=0.3)
        assert report["multipliers"][i] == alone.noise_multiplier(epsilon, 3)
        assert mechanism.of_client(i) == alone == alone.of_client(i)
    spent = result.history["epsilon_clients"]
    assert (np.diff(spent, axis=0) > 0).all() and (spent <= budgets).all()


@given(
    st.lists(st.floats(0.01, 50), min_size=1, max_size=6), st.integers(0, 2**32),
    st.sampled_from([LaplaceMechanism, GaussianMechanism]),
)  # fmt: skip
def test_no_client_spends_more_than_its_own(budgets, seed, kind):
    mechanism = kind(budgets=budgets)
    uploads = np.random.default_rng(seed).integers(1, 50, len(budgets))
    z = mechanism.noise_multipliers(uploads)
    for i, (epsilon, k) in enumerate(zip(budgets, uploads.tolist(), strict=True)):
        spent = mechanism.compose(1 / z[i], k)
        assert epsilon * (1 - 1e-9) <= spent <= epsilon * (1 + 1e-13)
    np.testing.assert_array_equal(mechanism.spent(z, uploads), budgets)
    assert (mechanism.spent(z, uploads - 1) < budgets).all()


def test_what_is_wrong_with_budgets_is_said():
    for wrong, error, message in (
        ([], ValueError, "budgets must be above 0, one for each client"),
        ([1.0, 0.0], ValueError, "budgets must be above 0"),
        ([1.0, np.inf], ValueError, "budgets must"),
        ([[1.0]], ValueError, "budgets must"),
        (["a"], (TypeError, ValueError), "budgets must"),
    ):
        with pytest.raises(error, match=message):
            LaplaceMechanism(budgets=wrong)
    with pytest.raises(ValueError, match="total_epsilon must be the largest of the budgets, 2"):
        GaussianMechanism(total_epsilon=1.0, budgets=[1.0, 2.0])
    with pytest.raises(ValueError, match="exactly one of total_epsilon and epsilon_per_round"):
        LaplaceMechanism(epsilon_per_round=1.0, budgets=[1.0, 2.0])
    mechanism = GaussianMechanism(budgets=[1.0, 2.0], clip=1.0)
    with pytest.raises(ValueError, match="budgets must be one for each of the 3 clients, got 2"):
        run(FedEPM(mechanism=mechanism), small_data(m=3), rounds=1)
    described = {k: v for k, v in mechanism.describe().items() if k != "name"}
    assert GaussianMechanism(**described) == mechanism
    assert "budgets" not in GaussianMechanism(total_epsilon=1.0).describe()
    with pytest.raises(ValueError, match="total_epsilon must be one number for trust='secure-sum'"):
        plan([1.0, 2.0], [5, 5], 2, trust="secure-sum")


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("sizes", [[1], [1, 1], [1, 1000], [3, 1, 2], [1, 5, 30, 200, 1000]])
def test_plans_run_for_few_clients_and_any_sizes(sizes, delta):
    data = table(sizes)
    planned = plan(5.0, sizes, 3, delta=delta)
    one, other = (
        planned.run(data, seed=SECRET, public_scaling=True, engine=engine)
        for engine in ("compiled", "reference")
    )
    np.testing.assert_allclose(one.x, other.x, rtol=1e-9, atol=1e-9)
    assert one.settings["privacy"]["epsilon_clients"] == [5.0] * len(sizes)


def test_clients_of_much_noise_are_nearly_left_out_where_noise_is_all_there_is():
    sizes = np.full(100, 50)
    alike = plan(0.5, sizes, 5)
    assert plan(np.full(100, 0.5), sizes, 5).deviation == pytest.approx(alike.deviation)
    budgets = np.where(np.arange(100) < 50, 0.05, 0.5)
    planned = plan(budgets, sizes, 5)
    assert planned.algorithm.aggregation == "inverse_variance"
    assert planned.mechanism.budgets == tuple(budgets)
    # As if the other half, of ten times the noise, were hardly there.
    half = plan(0.5, sizes[:50], 5, settings=planned.settings)
    assert 0.99 < planned.deviation / half.deviation < 1
    # Where the server's is not the mean, the inverse deviation leaves less of Laplace noise.
    assert plan(budgets, sizes, 5, delta=0.0).algorithm.aggregation == "inverse_deviation"
    # Of so many rows noise is little, and who spends more must not stand for all.
    assert plan(budgets * 40, sizes * 400, 5).algorithm.aggregation == "inverse_deviation"


@pytest.mark.parametrize("client_weight", ["size", "equal"])
def test_the_deviation_is_that_of_what_is_released_for_own_budgets(client_weight):
    sizes, budgets = [20, 80, 40, 300, 10], [1.0, 0.2, 0.7, 3.0, 0.5]
    data = table(sizes)
    planned = plan(
        budgets, sizes, 3, settings=Settings(0, 1, 1, 4.0, 0.5, 0.8, 0.3),
        client_weight=client_weight,
    )  # fmt: skip
    points = np.array([
        planned.run(data, seed=2**40 + k, public_scaling=True).x for k in range(120)
    ])  # fmt: skip
    assert points.std(axis=0) == pytest.approx(planned.deviation, rel=0.2)


def test_who_does_not_come_spends_nothing_and_the_others_weigh_by_their_noise():
    mechanism = GaussianMechanism(total_epsilon=1.0, clip=1.0)
    algorithm = FedEPM(
        mechanism=mechanism, participation=1.0, lam=0.0, eta=1.0, aggregation="inverse_variance"
    )
    server = Server(algorithm, 3, 2)
    for i in range(3):
        assert server.join(i, np.zeros(2))
    scales, uploads = [1.0, 2.0, 4.0], np.array([[1.0, 0.0], [0.0, 1.0], [8.0, 8.0]])
    tau, _, chosen = server.open_round()
    assert chosen.tolist() == [0, 1, 2]
    for i in (0, 1):
        assert server.receive(tau, i, uploads[i], scale=scales[i])
    assert server.close_round().tolist() == [0, 1]
    # Who has not uploaded yet hardly weighs: its zeros are no one's gradient.
    np.testing.assert_allclose(server.x, [1 / 1.25, 0.25 / 1.25], rtol=1e-8)
    tau, _, _ = server.open_round()
    assert server.receive(tau, 2, uploads[2], scale=scales[2])
    server.close_round()
    p = 1 / np.square(scales)
    np.testing.assert_allclose(server.x, p @ uploads / p.sum(), rtol=1e-12)


def test_a_server_goes_on_with_budgets_and_clients_have_their_own(tmp_path):
    pytest.importorskip("opendp")
    mechanism = LaplaceMechanism(budgets=[1.0, 4.0], clip=0.5)
    algorithm = FedEPM(mechanism=mechanism, participation=1.0, start="broadcast")
    server = Server(algorithm, 2, 3, path=tmp_path / "server")
    members = [
        PrivateClient(
            algorithm, *table([4]).client(0), index=i, clients=2, uploads=2, path=tmp_path / f"{i}"
        )
        for i in range(2)
    ]  # fmt: skip
    for i, member in enumerate(members):
        assert server.join(i, member.join(np.zeros(3)).values)
        assert member.spent.total == mechanism.budgets[i]
    tau, x, _ = server.open_round()
    scales = []
    for i, member in enumerate(members):
        upload = member.train(x, tau)
        scales.append(upload.scale)
        assert server.receive(tau, i, upload.values, scale=upload.scale)
    server.close_round()
    assert scales[0] == pytest.approx(4 * scales[1], rel=1e-9)
    before = server.x
    server.close()
    again = Server(algorithm, 2, 3, path=tmp_path / "server")
    np.testing.assert_array_equal(again.x, before)
    again.close()
