"""The attack on uploads, and its statistics."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import beta

from fedepm_fast import FedEPM, SFedAvg
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.mechanisms import _moments, client_moments, moments_change
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism, _audit_claim, _audit_plan
from fedepm_fast.privacy._audit_bounds import lower_bound
from fedepm_fast.privacy._audit_moments import per_upload
from fedepm_fast.privacy.audit import Plan, audit

RUNS = 60 if JIT_DISABLED else 600
MANY = 20_000

LAPLACE = LaplaceMechanism(total_epsilon=2.0, clip=1.0)
GAUSSIAN = GaussianMechanism(total_epsilon=2.0, delta=1e-5, clip=1.0)
BOTH = pytest.mark.parametrize("mechanism", [LAPLACE, GAUSSIAN])
#: Of budgets so large that a tenth of the noise shows in some thousand runs.
MOMENTS = pytest.mark.parametrize("mechanism", [
    dataclasses.replace(each, total_epsilon=8.0, moments=2) for each in (LAPLACE, GAUSSIAN)
])  # fmt: skip
compiled = pytest.mark.skipif(JIT_DISABLED, reason="thousands of runs")


def test_the_papers_noise_is_caught_red_handed():
    # Standardised noise tells with certainty: the bound is what so many runs can show.
    found = audit(FedEPM(), runs=RUNS)
    half = RUNS // 2
    low, high = beta.ppf(0.025, half, 1), beta.ppf(0.975, 1, half)
    assert found.lower_bound == pytest.approx(math.log(low / high), abs=0.1)
    assert found.true_positive_rate > 0.98 and found.false_positive_rate == 0.0
    assert found.broken and found.stated == 0.1
    assert "REFUTED" in str(found)


def test_the_printed_equations_are_caught_too():
    found = audit(FedEPM(preset="text"), runs=4 * RUNS)
    assert found.broken and found.lower_bound > 5 * found.stated


@pytest.mark.parametrize("mechanism", [
    LaplaceMechanism(epsilon_per_round=0.5, clip=1.0),
    LaplaceMechanism(total_epsilon=2.0, clip=0.1),
    LaplaceMechanism(total_epsilon=2.0),
    GaussianMechanism(total_epsilon=1.0, delta=1e-5, clip=1.0),
])  # fmt: skip
@pytest.mark.parametrize("start", ["released", "broadcast"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_private_uploads_withstand(mechanism, start, rounds):
    found = audit(FedEPM(mechanism=mechanism, start=start, local_steps=4), runs=RUNS, rounds=rounds)
    assert found.lower_bound <= found.stated and not found.broken and found.rounds == rounds


@BOTH
def test_the_pair_is_as_far_apart_as_two_records_can_be(mechanism):
    # In the norm of the noise, and above the clip: twice the clip, but for the tilt of its rows.
    plan = Plan(FedEPM(mechanism=mechanism, participation=1.0), 3, 4, 5)
    first, second = (problem.gradient(0, plan.start) for problem in plan.problems)
    moved = np.linalg.norm(first - second, ord=mechanism.order)
    assert 0.98 < moved / (2 * 1.0 / 5) <= 1
    rows, _ = plan._rows(0, 4)
    assert rows.shape == (5, 4)
    assert np.linalg.norm(rows[0], ord=mechanism.order) == pytest.approx(3.0)


@compiled
@BOTH
def test_the_attack_comes_close_to_what_is_spent(mechanism):
    for rounds in (1, 3):
        found = audit(FedEPM(mechanism=mechanism, local_steps=4), runs=MANY, rounds=rounds, seed=5)
        assert 1.6 < found.lower_bound <= found.stated == 2.0 and found.shortfall <= 0.15


def less_noise(monkeypatch, share):
    for law in (LaplaceMechanism, GaussianMechanism):
        right = law.noise_multipliers
        monkeypatch.setattr(
            law, "noise_multipliers", lambda *args, right=right: right(*args) * share
        )


def no_clip(monkeypatch):
    monkeypatch.setattr(_audit_plan, "private_problem", lambda mechanism, problem: problem)


def divided_twice(monkeypatch):
    right = FedEPM.plan

    def plan(self, problem, participations):
        found = right(self, problem, participations)
        return found._replace(change=found.change / problem.data.client_sizes)

    monkeypatch.setattr(FedEPM, "plan", plan)


def no_split(monkeypatch):
    for law in (LaplaceMechanism, GaussianMechanism):
        right = law.noise_multipliers
        monkeypatch.setattr(law, "noise_multipliers", lambda self, made, right=right: (
            right(self, np.minimum(made, 1))))  # fmt: skip


@compiled
@BOTH
@pytest.mark.parametrize("fault", [
    lambda patch: less_noise(patch, 0.5), lambda patch: less_noise(patch, 0.9),
    no_clip, divided_twice, no_split,
], ids=["half of the noise", "nine tenths", "no clip", "2C/d^2", "no split"])  # fmt: skip
def test_what_is_wrong_is_found(monkeypatch, mechanism, fault):
    fault(monkeypatch)
    assert audit(FedEPM(mechanism=mechanism, local_steps=4), runs=MANY, rounds=3, records=5).broken


@BOTH
def test_the_right_noise_is_refuted_less_often_than_its_confidence_allows(mechanism):
    # The laws of the pair that no record exceeds, over a thousand seeds.
    plan = Plan(FedEPM(mechanism=mechanism, participation=1.0), 3, 2, 2)
    rng, far, refuted = np.random.default_rng(0), plan.planned(), 0
    for _ in range(1000):
        seen = plan.law.quantile(rng.random((2, 600))) + np.array([[0.0], [far]])
        first, second = (plan.law.log_density((seen - at)[..., None]) for at in (0.0, far))
        scores = np.round(first - second, 9)
        refuted += plan.verdict(scores[0], scores[1], 0.95).broken
    assert refuted <= 50


@compiled
@BOTH
def test_right_uploads_are_not_refuted_over_many_seeds(mechanism):
    algorithm = FedEPM(mechanism=mechanism, local_steps=2)
    refuted = sum(audit(algorithm, runs=100, rounds=3, seed=seed).broken for seed in range(20))
    assert refuted <= 1


@compiled
@BOTH
def test_the_stated_shortfall_is_what_is_found(monkeypatch, mechanism):
    algorithm = FedEPM(mechanism=mechanism, local_steps=2)
    runs = 1000
    shortfall = audit(algorithm, runs=runs, rounds=3).shortfall
    less_noise(monkeypatch, 1 - shortfall)
    found = [audit(algorithm, runs=runs, rounds=3, seed=seed).broken for seed in range(20)]
    assert sum(found) >= 16
    assert 0.05 < shortfall < 0.6


@BOTH
def test_uploads_of_a_private_client(mechanism):
    pytest.importorskip("opendp")
    found = audit(FedEPM(mechanism=mechanism), runs=12, rounds=3, client=True)
    assert found.stated == 2.0 and found.runs == 12 and found.rounds == 3


# Second moments beside the uploads ------------------------------------------------------


def attack(mechanism, **options):
    algorithm = FedEPM(mechanism=mechanism, start="broadcast", local_steps=1)
    return audit(algorithm, **{"rounds": 2, "runs": 8000, "records": 3, **options})


@MOMENTS
def test_one_pair_is_the_worst_for_moments_and_for_uploads(mechanism):
    plan = Plan(FedEPM(mechanism=mechanism, participation=1.0), 2, 4, 5)
    first, second = (problem.gradient(0, plan.start) for problem in plan.problems)
    assert 0.98 < np.linalg.norm(first - second, ord=mechanism.order) / (2 / 5) <= 1
    moments = [client_moments(plan._rows(k, 4)[0], plan.radius, mechanism.order) for k in (0, 1)]
    moved = np.linalg.norm(moments[0] - moments[1], ord=mechanism.order)
    assert 0.9999 < moved / moments_change(plan.radius, [5], mechanism.order, 4)[0] <= 1


@compiled
@MOMENTS
def test_right_moments_and_uploads_withstand(mechanism):
    found = attack(mechanism)
    assert found.lower_bound <= found.stated == 8.0 and not found.broken
    assert 0.8 < found.seen["uploads"] <= 1 and 0.8 < found.seen["moments"] <= 1
    assert found.moments == 2 and found.lower_bound > 6.5 and found.shortfall < 0.1
    assert "distances seen over those stated: uploads 0." in str(found)


@MOMENTS
def test_right_noise_of_both_is_refuted_less_often_than_its_confidence_allows(mechanism):
    plan = Plan(FedEPM(mechanism=mechanism, participation=1.0), 2, 2, 2)
    rng, far, refuted = np.random.default_rng(0), plan.planned(), 0
    in_moments = far / per_upload(mechanism, 1.0)
    for _ in range(150):
        scores = []
        for apart in (far, in_moments):
            seen = plan.law.quantile(rng.random((2, 400))) + np.array([[0.0], [apart]])
            first, second = (plan.law.log_density((seen - at)[..., None]) for at in (0.0, apart))
            scores.append(np.round(first - second, 9))
        refuted += plan.verdict(*scores[0], 0.95, tuple(scores[1])).broken
    assert refuted <= 7


def less_noise_in_moments(monkeypatch):
    for law in (LaplaceMechanism, GaussianMechanism):
        right = law.one_release
        monkeypatch.setattr(law, "one_release", lambda *args, right=right: right(*args) * 0.9)
    # What is stated of them is not changed by that.
    monkeypatch.setattr(_audit_claim, "per_upload", lambda m, apart: per_upload(m, apart) / 0.9)


def no_radius(monkeypatch):
    monkeypatch.setattr(_moments, "_clipped", lambda features, radius, order: features)


def moments_divided_twice(monkeypatch):
    right = _moments.moments_change
    monkeypatch.setattr(
        _moments, "moments_change", lambda r, sizes, *rest: right(r, sizes, *rest) / sizes
    )


@compiled
@MOMENTS
@pytest.mark.parametrize("fault, part, runs", [
    (lambda patch: less_noise(patch, 0.9), "", 8000), (less_noise_in_moments, "moments", 8000),
    (no_radius, "moments", 500), (moments_divided_twice, "moments", 500),
    (no_clip, "uploads", 500),
], ids=["nine tenths", "nine tenths in moments", "no radius", "r^2/d^2", "no clip"])  # fmt: skip
def test_what_is_wrong_with_either_is_found(monkeypatch, mechanism, fault, part, runs):
    fault(monkeypatch)
    found = attack(mechanism, runs=runs)
    assert found.broken
    assert not part or found.seen[part] > 1 >= min(found.seen.values())


@MOMENTS
@pytest.mark.parametrize("neighbours", ["record", "client"])
def test_moments_of_a_private_client(mechanism, neighbours):
    pytest.importorskip("opendp")
    mechanism = dataclasses.replace(mechanism, neighbours=neighbours)
    found = attack(mechanism, runs=10, rounds=1, client=True)
    assert found.stated == 8.0 and found.runs == 10
    assert set(found.seen) == {"uploads", "moments"}


def test_laplace_noise_of_a_delta_is_audited_at_it():
    mechanism = LaplaceMechanism(total_epsilon=2.0, delta=1e-5, clip=1.0)
    found = audit(FedEPM(mechanism=mechanism, local_steps=4), runs=RUNS, rounds=20)
    assert found.delta == 1e-5 and found.lower_bound <= found.stated == 2.0


def test_the_bound_covers_a_known_mechanism():
    # Randomised response with e^eps / (1 + e^eps): the bound holds in 95 % of audits, at least.
    eps, rng = 1.0, np.random.default_rng(0)
    truth = math.exp(eps) / (1 + math.exp(eps))
    bounds = []
    for _ in range(200):
        first = (rng.random(400) < truth).astype(float)
        second = (rng.random(400) < 1 - truth).astype(float)
        bounds.append(lower_bound(first, second, 0.0, 0.95)[0])
    assert np.mean(np.array(bounds) > eps) <= 0.05
    assert np.median(bounds) > 0.5


def test_same_seed_same_bound():
    mechanism = LaplaceMechanism(epsilon_per_round=2.0, clip=1.0)
    first, again = (audit(FedEPM(mechanism=mechanism), runs=50, seed=3) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("call, error, message", [
    (lambda: audit(SFedAvg()), TypeError, "algorithm must be FedEPM"),
    (lambda: audit(FedEPM(noise="none")), ValueError, "noise must not be none"),
    (lambda: audit(FedEPM(), runs=3), ValueError, "runs must be"),
    (lambda: audit(FedEPM(), client=True), ValueError, "client must be False"),
    (lambda: audit(FedEPM(mechanism=LaplaceMechanism(total_epsilon=1.0), mu0=1e12), runs=10),
     ValueError, "algorithm must make 1 uploads"),
    (lambda: audit(FedEPM(), rounds=0), ValueError, "rounds must be"),
    (lambda: audit(FedEPM(), confidence=1.0), ValueError, "confidence must be"),
    (lambda: audit(FedEPM(), features=1), ValueError, "features must be"),
    (lambda: audit(FedEPM(), records=0), ValueError, "records must be"),
])  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_every_seed_is_taken():
    mechanism = LaplaceMechanism(epsilon_per_round=0.5, clip=1.0)
    assert audit(FedEPM(mechanism=mechanism), runs=10, seed=2**64 - 1).stated == 0.5
    for wrong, error in ((-1, ValueError), (2**64, ValueError), (0.5, TypeError), ("1", TypeError)):
        with pytest.raises(error, match="seed must be an integer from 0 to 18446744073709551615"):
            audit(FedEPM(mechanism=mechanism), runs=10, seed=wrong)
