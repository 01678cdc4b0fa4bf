"""The attack on uploads, and its statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta

from fedepm_fast import FedEPM, SFedAvg
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism
from fedepm_fast.privacy.audit import _lower_bound, audit

RUNS = 60 if JIT_DISABLED else 600


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
    GaussianMechanism(total_epsilon=1.0, delta=1e-5, clip=1.0),
])  # fmt: skip
@pytest.mark.parametrize("start", ["released", "broadcast"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_private_uploads_withstand(mechanism, start, rounds):
    found = audit(FedEPM(mechanism=mechanism, start=start, local_steps=4), runs=RUNS, rounds=rounds)
    assert found.lower_bound <= found.stated and not found.broken


@pytest.mark.skipif(JIT_DISABLED, reason="thousands of runs")
def test_the_attack_comes_close_to_what_is_spent():
    mechanism = LaplaceMechanism(epsilon_per_round=2.0, clip=1.0)
    found = audit(FedEPM(mechanism=mechanism, local_steps=4), runs=3000)
    assert 1.2 < found.lower_bound <= found.stated == 2.0


def test_noise_that_is_too_small_is_found(monkeypatch):
    # A mechanism whose noise is an eighth of what it should be.
    right = LaplaceMechanism.noise_multipliers
    monkeypatch.setattr(LaplaceMechanism, "noise_multipliers", lambda *args: right(*args) / 8)
    mechanism = LaplaceMechanism(epsilon_per_round=0.5, clip=1.0)
    assert audit(FedEPM(mechanism=mechanism), runs=RUNS).broken


def test_the_bound_covers_a_known_mechanism():
    # Randomised response with e^eps / (1 + e^eps): the bound holds in 95 % of audits, at least.
    eps, rng = 1.0, np.random.default_rng(0)
    truth = math.exp(eps) / (1 + math.exp(eps))
    bounds = []
    for _ in range(200):
        first = (rng.random(400) < truth).astype(float)
        second = (rng.random(400) < 1 - truth).astype(float)
        bounds.append(_lower_bound(first, second, 0.0, 0.95)[0])
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
    (lambda: audit(FedEPM(mechanism=LaplaceMechanism(total_epsilon=1.0), mu0=1e12), runs=10),
     ValueError, "algorithm must make 1 uploads"),
    (lambda: audit(FedEPM(), rounds=0), ValueError, "rounds must be"),
    (lambda: audit(FedEPM(), confidence=1.0), ValueError, "confidence must be"),
    (lambda: audit(FedEPM(), features=1), ValueError, "features must be"),
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
