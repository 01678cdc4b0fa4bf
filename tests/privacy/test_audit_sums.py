"""The attack on secure sums."""

from __future__ import annotations

import pytest

from fedepm_fast import FedEPM
from fedepm_fast.privacy import GaussianMechanism, _sum_run, secure_sum
from fedepm_fast.privacy.audit import audit

MANY = 10_000
#: Of a budget so large that a tenth of the noise shows in some thousand runs.
SUMS = GaussianMechanism(total_epsilon=8.0, delta=1e-5, clip=1.0, moments=2)


def attack_sums(mechanism=SUMS, runs=MANY, **changed):
    return audit(FedEPM(mechanism=mechanism), rounds=3, runs=runs, trust="secure-sum", **changed)


def test_the_attack_on_secure_sums_comes_close_to_what_is_spent():
    for honest in (0.2, 1.0):
        found = attack_sums(honest=honest, seed=3)
        assert 6.8 < found.lower_bound <= found.stated == 8.0
        assert found.seen["moments"] > 0.8 and found.seen["uploads"] > 0.8


def parts_are(monkeypatch, share):
    right = secure_sum.part_deviation
    monkeypatch.setattr(secure_sum, "part_deviation", lambda *given: right(*given) * share)


def all_are_taken_for_honest(monkeypatch):
    right = secure_sum.part_deviation
    monkeypatch.setattr(secure_sum, "part_deviation", lambda s, parts: right(s, 10))


def sensitivity_too_small(monkeypatch):
    right = secure_sum.secure_sum
    monkeypatch.setattr(
        _sum_run, "secure_sum", lambda s, *rest, **given: right(s / 1.2, *rest, **given)
    )


@pytest.mark.parametrize("fault", [
    lambda patch: parts_are(patch, 0.9), all_are_taken_for_honest, sensitivity_too_small,
], ids=["nine tenths", "dishonest ones count", "a sensitivity too small"])  # fmt: skip
def test_what_is_wrong_with_secure_sums_is_found(monkeypatch, fault):
    fault(monkeypatch)
    assert attack_sums().broken


def test_right_secure_sums_are_not_refuted_over_many_seeds():
    assert sum(attack_sums(runs=100, seed=seed).broken for seed in range(8)) <= 1


def test_secure_sums_of_whole_clients():
    whole = GaussianMechanism(total_epsilon=8.0, delta=1e-5, clip=1.0, neighbours="client")
    found = attack_sums(whole, seed=3)
    assert 6.8 < found.lower_bound <= found.stated == 8.0


@pytest.mark.parametrize("given, message", [
    ({"trust": "server"}, "trust must be one of 'clients', 'secure-sum'"),
    ({"trust": "secure-sum", "client": True}, "trust must be 'clients' for a client"),
    ({"trust": "secure-sum", "honest": 2.0}, "honest must be"),
])  # fmt: skip
def test_bad_input_of_secure_sums(given, message):
    with pytest.raises(ValueError, match=message):
        audit(FedEPM(mechanism=SUMS), runs=10, **given)
