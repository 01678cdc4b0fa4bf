"""Secure sums: the law of the noise, its account, the integers and what a server sees."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedepm_fast.mechanisms._discrete import (
    LEAST_DEVIATION,
    discrete_gaussian,
    gaussian_deviation,
    part_deviation,
)
from fedepm_fast.privacy import gaussian_delta, gaussian_epsilon
from fedepm_fast.privacy.secure_sum import SecureSum, secure_sum
from fedepm_fast.randomness import CounterRandomness

SEED = 2**40 + 7


def mass(deviation: float, reach: int) -> np.ndarray:
    """Of the discrete Gaussian at -reach..reach."""
    k = np.arange(-reach, reach + 1)
    found = np.exp(-(k**2) / (2 * deviation**2))
    return found / found.sum()


# The law --------------------------------------------------------------------------------------


@pytest.mark.parametrize("deviation", [3.0, 7.3])
def test_noise_has_the_mass_of_the_discrete_gaussian(deviation):
    drawn = discrete_gaussian(deviation, CounterRandomness(SEED), 0, np.arange(400), 500).ravel()
    reach = 60
    expected = mass(deviation, reach) * len(drawn)
    seen = np.bincount(drawn + reach, minlength=2 * reach + 1)
    often = expected > 20
    chi2 = ((seen - expected)[often] ** 2 / expected[often]).sum()
    assert abs(chi2 - often.sum()) < 5 * math.sqrt(2 * often.sum())
    assert (seen[expected < 1e-4] == 0).all()


def test_noise_of_a_large_deviation():
    s = 1e7
    drawn = discrete_gaussian(s, CounterRandomness(SEED), 3, np.arange(300), 300).ravel()
    assert drawn.std() == pytest.approx(s, rel=0.01) and abs(drawn.mean()) < 0.02 * s
    assert (np.abs(drawn) < s).mean() == pytest.approx(math.erf(math.sqrt(0.5)), abs=0.01)
    assert (drawn % 2).mean() == pytest.approx(0.5, abs=0.01)


def test_a_number_of_the_noise_depends_on_no_other():
    source = CounterRandomness(SEED)
    all_of_it = discrete_gaussian(50.0, source, 2, np.arange(20), 7)
    assert np.array_equal(
        discrete_gaussian(50.0, source, 2, np.array([5, 3]), 7), all_of_it[[5, 3]]
    )
    assert not np.array_equal(discrete_gaussian(50.0, source, 1, np.arange(20), 7), all_of_it)


def sum_of_parts(deviation: float, parts: int, reach: int) -> np.ndarray:
    """The mass of the sum of independent discrete Gaussians, exactly but for rounding."""
    one, total = mass(deviation, reach), np.array([1.0])
    for _ in range(parts):
        total = np.convolve(total, one)
    far = len(total) // 2 - int(10 * math.sqrt(parts) * deviation)
    return total[max(far, 0) : len(total) - max(far, 0)]


def true_delta(law: np.ndarray, moved: list[int], epsilon: float) -> float:
    """Smallest delta of sums that a record moves by `moved`, of independent noise of `law`."""
    first, second = np.array([1.0]), np.array([1.0])
    for shift in moved:
        p, q = np.append(law, np.zeros(shift)), np.append(np.zeros(shift), law)
        first, second = np.outer(first, p).ravel(), np.outer(second, q).ravel()
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


@pytest.mark.parametrize("deviation, parts, moved", [
    (3.0, 4, [2]), (3.0, 9, [3]), (4.0, 16, [5, 4]), (16.0, 20, [50]), (6.0, 16, [10, 8]),
])  # fmt: skip
def test_the_account_bounds_the_true_curve_closely(deviation, parts, moved):
    law = sum_of_parts(deviation, parts, int(12 * deviation))
    noise = gaussian_deviation(deviation, parts)
    z = noise / np.linalg.norm(moved)
    # How much larger the noise could be in the account: a variance of 4 is given away.
    nearest = math.sqrt(parts) * deviation / np.linalg.norm(moved)
    for epsilon in (0.05, 0.2, 0.5, 1.0):
        true, ours = true_delta(law, moved, epsilon), gaussian_delta(z, epsilon)
        least = gaussian_delta(nearest * (1 + 0.5 / noise**2), epsilon)
        if true > 1e-12:
            assert least < true <= ours


def test_the_account_of_many_sums_beside_their_loss_distribution():
    # By dp-accounting's FFT, of the integers' own law: a bound from below and one from above.
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    deviation, parts, shift, many = 6.0, 9, 5, 12
    law = sum_of_parts(deviation, parts, 70)
    first = {k: math.log(p) for k, p in enumerate(law) if p > 0}
    second = {k + shift: log for k, log in first.items()}
    low, high = (
        pld.from_two_probability_mass_functions(
            first, second, value_discretization_interval=1e-4, pessimistic_estimate=above
        ).self_compose(many)
        for above in (False, True)
    )
    z = gaussian_deviation(deviation, parts) / shift
    for delta in (1e-6, 1e-3):
        ours = gaussian_epsilon(z, delta, many)
        true = low.get_epsilon_for_delta(delta), high.get_epsilon_for_delta(delta)
        assert true[0] <= true[1] <= ours <= 1.01 * true[0]


def test_a_sum_of_parts_is_a_discrete_gaussian():
    # So nearly that no float tells: the bound on the ratio of the masses is 1e-33 a part.
    total = sum_of_parts(3.0, 9, 36)
    whole = mass(9.0, len(total) // 2)
    near = whole > 1e-12
    assert np.abs(total[near] / whole[near] - 1).max() < 1e-11


@given(st.floats(0.1, 1e6), st.integers(1, 10**6))
def test_parts_are_as_large_as_they_must_be(deviation, parts):
    part = part_deviation(deviation, parts)
    assert gaussian_deviation(part, parts) >= deviation and part >= LEAST_DEVIATION
    if part > LEAST_DEVIATION:
        assert gaussian_deviation(part, parts) <= deviation * (1 + 1e-12)


# The integers ---------------------------------------------------------------------------------


def sums(**changed) -> SecureSum:
    given = {
        "sensitivity": 2.0, "multiplier": 8.0, "bound": 1000.0, "n": 5, "clients": 20,
        "honest": 0.9,
    }  # fmt: skip
    return secure_sum(**(given | changed))


@given(
    st.floats(1e-3, 1e3), st.floats(0.1, 100.0), st.floats(0.0, 1e6), st.integers(1, 50),
    st.integers(1, 1000), st.floats(0.05, 1.0), st.integers(20, 40),
)  # fmt: skip
def test_the_noise_is_enough_and_has_room(s, z, bound, n, clients, honest, bits):
    try:
        found = secure_sum(s, z, bound, n, clients=clients, honest=honest, bits=bits)
    except ValueError as error:
        assert str(error).startswith("bits must be more than")
        return
    assert found.multiplier >= z and found.parts >= honest * clients * (1 - 1e-9)
    assert math.log2(found.grid) == round(math.log2(found.grid))
    room = 2.0 ** (bits - 1) * found.grid
    assert bound + clients * found.grid / 2 + 9 * found.noise(clients) <= room
    # It is no larger than rounding and whole parts ask for.
    moved = s + math.sqrt(n) * found.grid
    least = math.sqrt(((z * moved / found.grid) ** 2 + 4) / found.parts)
    assert found.deviation <= max(least, LEAST_DEVIATION) * (1 + 1e-9)


@given(st.lists(st.floats(-900.0, 900.0), min_size=5, max_size=5), st.data())
def test_one_record_moves_the_integers_by_no_more_than_accounted(values, data):
    found = sums(bits=18)
    way = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=5, max_size=5)))
    size = np.linalg.norm(way)
    other = np.array(values) + (way / size * 2.0 * (1 - 1e-12) if size > 1e-100 else 0)
    moved = np.linalg.norm(found.encode(values) - found.encode(other))
    assert moved <= found.sensitivity / found.grid + math.sqrt(5)


def test_a_sum_is_the_sum_and_its_noise():
    found, rng = sums(), np.random.default_rng(0)
    values = rng.normal(size=(20, 5)) * 10
    seen = np.array([found.simulate(values, CounterRandomness(SEED), k) for k in range(200)])
    off = (seen - values.sum(axis=0)) / found.noise(20)
    assert off.std() == pytest.approx(1.0, rel=0.07) and abs(off.mean()) < 0.1
    assert found.noise(18) == pytest.approx(8.0 * 2.0, rel=1e-4)  # of the honest alone


def test_sums_beyond_the_modulus_wrap_and_fewer_clients_get_none():
    found = sums(bits=20)
    room = 2.0**20 * found.grid
    once = found.simulate(np.full((20, 5), 1.0), CounterRandomness(SEED), 0)
    values = np.full((20, 5), 1.0)
    values[:4] += room / 4
    assert np.array_equal(found.simulate(values, CounterRandomness(SEED), 0), once)
    with pytest.raises(ValueError, match="clients must be 20 or more for a sum, 19 came"):
        found.simulate(values[:19], CounterRandomness(SEED), 0)
    came = np.array([*range(3, 20), 25, 26, 30])
    assert np.isfinite(found.simulate(values, CounterRandomness(SEED), 0, came)).all()


def test_more_clients_may_come_than_must():
    few, many = sums(), sums(most=2000)
    assert many.clients == few.clients == 20 and many.parts == few.parts == 18
    room = 2.0**31 * many.grid
    assert 1000 + 2000 * many.grid / 2 + 9 * many.noise(2000) <= room
    with pytest.raises(ValueError, match="most must be"):
        sums(most=19)


def test_parts_that_leave_a_client():
    pytest.importorskip("opendp")
    found = sums(bits=30, n=500)
    values = np.linspace(-5.0, 5.0, 500)
    first, second = found.release_part(values), found.release_part(values)
    assert first.min() >= 0 and first.max() < 2**30 and first.dtype == np.int64
    off = (found.decode(np.array([first, second])) - values) / (found.grid * found.deviation)
    assert off.std() == pytest.approx(1.0, rel=0.15) and abs(off.mean()) < 0.15
    assert abs(np.corrcoef(off)[0, 1]) < 0.2  # each has noise of its own
    assert np.array_equal(found.decode(first + second), found.decode(first + second + 2**30))


@pytest.mark.parametrize("changed, error, message", [
    ({"sensitivity": 0.0}, ValueError, "sensitivity must be"),
    ({"multiplier": math.nan}, ValueError, "multiplier must be"),
    ({"bound": -1.0}, ValueError, "bound must be"),
    ({"n": 0}, ValueError, "n must be"),
    ({"clients": 0}, ValueError, "clients must be"),
    ({"honest": 0.0}, ValueError, "honest must be"),
    ({"honest": 1.1}, ValueError, "honest must be"),
    ({"bits": 41}, ValueError, "bits must be"),
    ({"bits": 12}, ValueError, "bits must be more than 12 for sums of 5 numbers up to 1e\\+03"),
    ({"bits": "32"}, TypeError, "bits must be"),
])  # fmt: skip
def test_bad_input(changed, error, message):
    with pytest.raises(error, match=message):
        sums(**changed)


# Attacks --------------------------------------------------------------------------------------


def test_no_neighbour_moves_the_integers_beyond_the_bound():
    path = Path(__file__).parents[2] / "bench" / "secure_sums.py"
    for name, found in runpy.run_path(str(path))["attacks"](300, 5).items():
        assert len(found) == 300 and found.max() <= 1, name
        assert found.max() > (0.99 if "32 bits" in name else 0.97), name
