"""What a client has spent in all, against closed forms and dp-accounting."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import small_data
from scipy.stats import norm

from fedepm_fast import FedEPM, run
from fedepm_fast.privacy import (
    Account,
    GaussianMechanism,
    LaplaceMechanism,
    Spending,
    gaussian_delta,
    gaussian_epsilon,
    plan,
)
from fedepm_fast.privacy._settings import Settings

DELTA = 1e-6
kinds = st.tuples(
    st.sampled_from(["laplace", "gaussian"]), st.floats(0.5, 200.0), st.integers(1, 40)
)
accounts = st.lists(kinds, max_size=4).map(
    lambda spent: Account(tuple(Spending(*each) for each in spent))
)


def gaussian(multiplier: float, uploads: int = 1) -> Account:
    return Account().add("gaussian", multiplier, uploads)


def laplace(multiplier: float, uploads: int = 1) -> Account:
    return Account().add("laplace", multiplier, uploads)


# By hand --------------------------------------------------------------------------------


def test_nothing_is_spent_at_first():
    empty = Account()
    assert empty.spent == () and empty.pure == empty.mu == empty.rho == 0
    assert empty.epsilon() == empty.epsilon(DELTA) == empty.delta(0.0) == 0
    assert empty.remaining(1.5) == pytest.approx(1.5, rel=1e-15)
    assert 1.5 * (1 - 1e-12) <= empty.remaining(1.5, DELTA) <= 1.5
    assert gaussian(3.0, 0) == empty


def test_pure_uploads_add_up():
    spent = laplace(4.0, 3) + laplace(0.5)
    assert spent.pure == spent.epsilon() == 2.75
    assert spent.delta(2.75) == 0 and math.isinf(gaussian(1e6).epsilon())
    # Of all that is 2.75-private, randomised response tells most.
    share = 1 / (1 + math.exp(-2.75))
    for epsilon in (0.0, 1.0, 2.5):
        want = share - math.exp(epsilon) * (1 - share)
        assert spent.delta(epsilon) == pytest.approx(want, rel=1e-12)
        assert want <= spent.delta(epsilon)
        assert spent.epsilon(want) == pytest.approx(epsilon, abs=1e-12)
    assert spent.epsilon(0.9) == 0
    assert spent.rho == 3 / 32 + 2
    assert spent.remaining(3.0) == pytest.approx(0.25, rel=1e-15) and spent.remaining(2.7) == 0
    assert spent.remaining(3.0) <= 0.25


def test_gaussian_uploads_are_one():
    spent = gaussian(6.0, 16) + gaussian(2.0)  # shifts 2/3 and 1/2
    mu = 5 / 6
    assert spent.mu == pytest.approx(mu, rel=1e-13) and spent.mu >= mu
    assert spent.rho == pytest.approx(mu * mu / 2, rel=1e-15)
    assert spent.delta(0.7) == pytest.approx(gaussian_delta(1 / mu, 0.7), rel=1e-10)
    assert spent.epsilon(DELTA) == pytest.approx(gaussian_epsilon(1 / mu, DELTA), rel=1e-12)
    np.testing.assert_array_equal(
        spent.curve([0.0, 0.7, 2.0]), [spent.delta(e) for e in (0.0, 0.7, 2.0)]
    )
    # What is left of mu^2 is what a further mechanism may spend.
    total, left = gaussian_epsilon(1.0, DELTA), gaussian_epsilon((1 - mu**2) ** -0.5, DELTA)
    assert spent.remaining(total, DELTA) == pytest.approx(left, rel=1e-9)
    assert spent.multiplier("gaussian", 4, total, DELTA) == pytest.approx(
        2 * (1 - mu**2) ** -0.5, rel=1e-9
    )


def test_pure_and_gaussian_uploads_are_composed_exactly():
    spent = laplace(2.0) + gaussian(1.0)
    share = 1 / (1 + math.exp(-0.5))

    def shifted(epsilon: float) -> float:
        return norm.cdf(0.5 - epsilon) - math.exp(epsilon) * norm.cdf(-0.5 - epsilon)

    for epsilon in (0.0, 0.3, 0.5, 2.0):
        want = share * shifted(epsilon - 0.5) + (1 - share) * shifted(epsilon + 0.5)
        assert spent.delta(epsilon) == pytest.approx(want, rel=1e-9)
        assert spent.epsilon(spent.delta(epsilon)) == pytest.approx(epsilon, abs=1e-9)
    apart = 0.5 + gaussian_epsilon(1.0, DELTA)
    assert apart - 0.2 < spent.epsilon(DELTA) < apart


def test_mu_of_pure_uploads_is_the_least():
    # Randomised response and a normal shift of mu err alike where both errors are the same.
    for epsilon in (1e-6, 0.1, 1.0, 30.0, 1000.0):
        mu = laplace(1 / epsilon).mu
        assert norm.logcdf(-mu / 2) == pytest.approx(-np.logaddexp(0, epsilon), rel=1e-9)
    assert (laplace(1.0, 4) + gaussian(1.0)).mu == pytest.approx(
        math.hypot(2 * laplace(1.0).mu, 1), rel=1e-12
    )
    # What is so private is as private as the normal law says.
    spent = laplace(1.0, 4)
    for epsilon in (0.5, 2.0, 3.9):
        assert gaussian(1 / spent.mu).delta(epsilon) >= spent.delta(epsilon, method="pld")


# Budgets of mechanisms ------------------------------------------------------------------


@pytest.mark.parametrize("uploads", [1, 3, 7, 20, 99])
@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1.0, 5.0, 20.0])
def test_the_uploads_of_a_budget_spend_it_and_no_more(epsilon, uploads):
    for mechanism in (
        LaplaceMechanism(total_epsilon=epsilon),
        *(GaussianMechanism(total_epsilon=epsilon, delta=d) for d in (1e-9, 1e-3)),
    ):
        delta = getattr(mechanism, "delta", 0.0)
        z = float(mechanism.noise_multipliers(np.array([uploads]))[0])
        spent = Account.of(mechanism, z, uploads)
        assert epsilon * (1 - 1e-9) <= spent.epsilon(delta) <= epsilon
        assert Account().multiplier(mechanism.name, uploads, epsilon, delta) == pytest.approx(
            z, rel=1e-9
        )


@pytest.mark.parametrize("law, delta", [(LaplaceMechanism, 0.0), (GaussianMechanism, DELTA)])
def test_second_moments_spend_as_much_as_their_uploads(law, delta):
    uploads, moments = 8, 3
    mechanism = law(total_epsilon=2.0, moments=moments)
    z = float(mechanism.noise_multipliers(np.array([uploads + moments]))[0])
    spent, plain = Account.of(mechanism, z, uploads + moments), Account.of(law(2.0), z, 11)
    assert sum(each.uploads for each in spent.spent) == uploads + 1
    assert spent.epsilon(delta) == pytest.approx(plain.epsilon(delta), rel=1e-12)
    assert 2.0 * (1 - 1e-9) <= spent.epsilon(delta) <= 2.0
    if delta:  # of two events, as dp-accounting has them
        made = pld_privacy_accountant.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
        made.compose(dp_accounting.GaussianDpEvent(2 * z), uploads)
        made.compose(dp_accounting.GaussianDpEvent(2 * z / math.sqrt(moments)))
        assert spent.epsilon(delta) == pytest.approx(made.get_epsilon(delta), abs=1e-6)
    first = Account.of(mechanism, z, moments)
    assert first.pure == pytest.approx(0 if delta else 2.0 * moments / 11, rel=1e-12)
    assert Account.of(mechanism, z, 0) == Account()


# Beside dp-accounting -------------------------------------------------------------------


@pytest.mark.parametrize("spent", [
    gaussian(3.0, 6), gaussian(5.0, 20) + gaussian(2.5), laplace(10.0, 50),
    laplace(8.0, 12) + laplace(2.0), laplace(20.0, 30) + gaussian(8.0, 10),
    laplace(1.0) + gaussian(4.0, 3) + gaussian(9.0, 5),
])  # fmt: skip
def test_it_agrees_with_dp_accounting(spent):
    # An event of a normal law is relative to what adding a record changes, ours to replacing one;
    # it knows Laplace events under the first relation only.
    made = pld_privacy_accountant.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for law, z, count in spent.spent:
        event = dp_accounting.LaplaceDpEvent if law == "laplace" else dp_accounting.GaussianDpEvent
        made.compose(event(z), count)
    for delta in (1e-6, 1e-3):
        want = made.get_epsilon(delta)
        found = spent.epsilon(delta, method="pld")
        assert found == pytest.approx(want, abs=1e-7)
        assert found <= spent.epsilon(delta)
        assert spent.delta(want, method="pld") == pytest.approx(delta, rel=1e-3)


def test_randomised_response_agrees_with_dp_accounting():
    response = pld.from_privacy_parameters(DifferentialPrivacyParameters(0.5, 0.0))
    both = response.compose(pld.from_gaussian_mechanism(1.0))
    spent = laplace(4.0, 2) + gaussian(1.0)
    for delta in (1e-6, 1e-3):
        assert spent.epsilon(delta) == pytest.approx(both.get_epsilon_for_delta(delta), abs=1e-4)


@pytest.mark.parametrize("share", [0.5, 0.02])
def test_an_upload_of_many_coordinates_tells_no_more_than_one_of_one(share):
    # What is composed is a shift of one coordinate: in L1 a record may shift several.
    epsilons = np.linspace(0, 1, 5)[:-1]
    split = laplace(1 / share) + laplace(1 / (1 - share))
    found, whole = (each.curve(epsilons, method="pld") for each in (split, laplace(1.0)))
    assert (found < whole).all()


def test_what_many_small_uploads_leave_is_more_than_their_sum_says():
    spent = laplace(20.0, 50)  # a sum of 2.5
    assert spent.remaining(2.0, DELTA) == 0
    assert math.isinf(spent.multiplier("laplace", 5, 2.0, DELTA))
    z = spent.multiplier("laplace", 5, 2.0, 1e-5, method="pld")
    assert 2.0 * 0.999 < (spent + laplace(z, 5)).epsilon(1e-5, method="pld") <= 2.0
    assert spent.pure + 5 / z > 2.5


# Properties -----------------------------------------------------------------------------


@settings(max_examples=40)
@given(accounts, accounts, accounts)
def test_order_does_not_matter(a, b, c):
    assert (a + b) + c == c + (b + a) == Account((*c.spent, *a.spent, *b.spent))
    assert hash(a + b) == hash(b + a)
    assert a + Account() == a


@settings(max_examples=15)
@given(accounts, accounts, st.floats(0.0, 8.0))
def test_more_uploads_spend_more_and_no_more_than_their_parts(a, b, epsilon):
    both = a + b
    for name in ("pure", "mu", "rho"):
        parts = [getattr(each, name) for each in (a, b)]
        assert max(parts) <= getattr(both, name) * (1 + 1e-13) <= sum(parts) * (1 + 1e-12)
    found = both.epsilon(DELTA)
    for each in (a, b):
        assert each.epsilon(DELTA) <= found * (1 + 1e-12)
        assert each.delta(epsilon) <= both.delta(epsilon) * (1 + 1e-9)
    normal = [Account(tuple(s for s in e.spent if s.law == "gaussian")) for e in (a, b)]
    apart = a.pure + b.pure + sum(each.epsilon(DELTA / 2) for each in normal)
    assert found <= apart * (1 + 1e-9)
    assert found <= both.epsilon(DELTA / 10) * (1 + 1e-12)
    delta = both.delta(epsilon)
    assert both.delta(epsilon + 0.1) <= delta
    if 1e-12 < delta < 1:
        assert both.epsilon(delta) <= epsilon * (1 + 1e-9)


@settings(max_examples=12)
@given(accounts, st.sampled_from(["laplace", "gaussian"]), st.integers(1, 30))
def test_what_is_left_can_be_spent_and_no_more(spent, law, uploads):
    total = spent.epsilon(DELTA) + 0.5
    z = spent.multiplier(law, uploads, total, DELTA)
    assert spent.add(law, z, uploads).epsilon(DELTA) <= total * (1 + 1e-12)
    assert spent.add(law, z * (1 - 1e-6), uploads).epsilon(DELTA) > total * (1 - 1e-12)
    left = spent.remaining(total, DELTA, law=law)
    further = GaussianMechanism(left, delta=DELTA) if law == "gaussian" else LaplaceMechanism(left)
    of_it = float(further.noise_multipliers(np.array([uploads]))[0])
    assert spent.add(law, of_it, uploads).epsilon(DELTA) <= total * (1 + 1e-9)
    assert of_it == pytest.approx(z, rel=1e-4)


def test_whole_clients_are_hidden_where_all_hide_them():
    whole, records = Account((Spending("laplace", 2.0, 1),), "client"), laplace(2.0)
    assert whole.add("laplace", 2.0).neighbours == (Account() + whole).neighbours == "client"
    assert (whole + records).neighbours == (records + whole).neighbours == "record"
    assert (whole + records).pure == 1.0 and whole != records
    assert "in all, for all records of a client together, replace-one-client: epsilon 0.5" in str(
        whole
    )


# Runs, words and files ------------------------------------------------------------------


@pytest.mark.parametrize("law, delta", [(LaplaceMechanism, 0.0), (GaussianMechanism, DELTA)])
def test_an_account_of_runs(law, delta):
    data = small_data(4, 3, seed=1)
    results = [
        run(FedEPM(participation=0.5, mechanism=law(total_epsilon=e, clip=2.0)), data, rounds=5)
        for e in (0.5, 1.0)
    ]  # fmt: skip
    for i in range(4):
        first, second = (Account.of_run(result, i) for result in results)
        assert first.epsilon(delta) <= 0.5 * (first.spent != ())
        spent = results[1].history["epsilon_clients"][-1][i]
        assert second.epsilon(delta) == pytest.approx(spent, rel=1e-9)
        both = (first + second).epsilon(delta)
        if not delta:
            assert both == pytest.approx(first.pure + second.pure, rel=1e-15)
        elif first.spent and second.spent:
            assert max(spent, 0.5) < both < 1.2
    with pytest.raises(ValueError, match="client must be an integer from 0 to 3"):
        Account.of_run(results[0], 4)
    with pytest.raises(ValueError, match="result must be a run with a privacy guarantee"):
        Account.of_run(run(FedEPM(), data, rounds=1, engine="reference"), 0)


@pytest.mark.parametrize("options", [{}, {"delta": 0.0}, {"neighbours": "client"}])
def test_an_account_of_a_planned_run(options):
    data = small_data(4, 3, seed=1)
    asked = Settings(2, 3, 2, 1.0, 1.0, 1.0, 1.0)
    planned = plan(2.0, data.client_sizes, 3, settings=asked, **options)
    result = planned.run(data, engine="reference", public_scaling=True)
    spent = Account.of_run(result, 3)
    assert spent.neighbours == options.get("neighbours", "record")
    assert sorted(each.uploads for each in spent.spent) == [1, 3]  # moments once
    assert 2.0 * (1 - 1e-9) <= spent.epsilon(options.get("delta", DELTA)) <= 2.0


def test_words():
    spent = laplace(3.0, 3) + gaussian(12.3456789, 20)
    assert str(spent).splitlines() == [
        "20 x gaussian noise of multiplier 12.3457",
        "3 x laplace noise of multiplier 3",
        "in all, for each record of a client, replace-one: epsilon at delta: "
        f"{spent.epsilon(1e-6) + 5e-6:.5f} at 1e-06 or {spent.epsilon(1e-9) + 5e-6:.5f} at 1e-09; "
        f"mu {spent.mu + 5e-7:.6f}, rho {spent.rho + 5e-7:.6f}",
    ]
    assert "replace-one: epsilon 1 (pure); mu" in str(laplace(3.0, 3))


@settings(max_examples=10)
@given(spent=accounts)
def test_files(spent, tmp_path_factory):
    path = tmp_path_factory.mktemp("accounts") / "a.json"
    spent.save(path)
    assert Account.load(path) == spent
    whole = dataclasses.replace(spent, neighbours="client")
    assert Account.from_record(json.loads(json.dumps(whole.describe()))) == whole


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "a.json"
    laplace(3.0, 2).save(path)
    whole = path.read_text()
    for text in (
        "", "[]", whole[:-9], whole.replace("laplace", "other"), whole.replace("2", "-2"),
        whole.replace('"format": 1', '"format": 2'), json.dumps({"format": 1, "spent": [[1]]}),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(
            ValueError, match=r"is not a complete file of an account|has format 2, this"
        ):
            Account.load(path)
    with pytest.raises(FileNotFoundError):
        Account.load(tmp_path / "none")


@pytest.mark.parametrize("call, message", [
    (lambda: laplace(0.0), "multiplier must be"),
    (lambda: Account().add("paper", 1.0), "law must be one of 'gaussian', 'laplace', got 'paper'"),
    (lambda: gaussian(1.0, -1), "uploads must be an integer"),
    (lambda: Account().epsilon(1.0), "delta must be"),
    (lambda: Account().delta(-1.0), "epsilon must be"),
    (lambda: Account().delta(1.0, method="exact"), "method must be one of 'basic', 'pld'"),
    (lambda: Account().remaining(0.0), "total_epsilon must be"),
    (lambda: Account().multiplier("laplace", 0, 1.0), "uploads must be an integer"),
])  # fmt: skip
def test_bad_input(call: Any, message: str):
    with pytest.raises(ValueError, match=message):
        call()
