"""Runs whose server sees secure sums only."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedepm_fast import FedEPM, FederatedData
from fedepm_fast.losses import LeastSquares, Logistic, Multinomial
from fedepm_fast.mechanisms import coordinates
from fedepm_fast.privacy import GaussianMechanism, plan
from fedepm_fast.privacy._settings import Settings
from fedepm_fast.privacy._sum_run import moments_of_sum, sum_run
from fedepm_fast.randomness import CounterRandomness

SEED = 2**40 + 3
SIZES = np.array([300, 100, 250, 50])


def table(p: int = 4) -> FederatedData:
    rng = np.random.default_rng(0)
    A = np.column_stack([rng.normal(size=(700, p - 1)), np.ones(700)])
    labels = rng.random(700) < 1 / (1 + np.exp(-A @ np.linspace(1, -1, p)))
    return FederatedData(A, labels.astype(float), SIZES)


def algorithm(epsilon: float = 1e10, **changed) -> FedEPM:
    mechanism = GaussianMechanism(total_epsilon=epsilon, clip=50.0, public_scaling=True)
    return FedEPM(**{
        "mechanism": mechanism, "lam": 0.0, "eta": 0.5, "mu0": 1e-9, "local_steps": 1,
        "participation": 1.0, "start": "broadcast", **changed,
    })  # fmt: skip


def summed(asked: FedEPM, data: FederatedData, rounds: int = 6, **changed):
    return sum_run(asked, data, **{
        "objective": Logistic(beta=0.0), "rounds": rounds, "seed": SEED, "engine": None,
        "callback": None, "every_accuracy": True, "honest": 0.75, "bits": 36, **changed,
    })  # fmt: skip


def descent(data: FederatedData, rounds: int, eta: float, beta: float = 0.0) -> np.ndarray:
    """Points of gradient descent on all rows."""
    A, b, x = data.features, data.labels, np.zeros(data.n_features)
    points = [x]
    for _ in range(rounds):
        x = x - (A.T @ (1 / (1 + np.exp(-A @ x)) - b) / len(b) + beta * x) / eta
        points.append(x)
    return np.array(points)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_without_noise_it_is_gradient_descent_on_all_rows(beta):
    data = table()
    found = summed(algorithm(), data, objective=Logistic(beta=beta, regularizer="beta"))
    expected = descent(data, 6, 0.5, beta)
    # Integers of the grid, from 4 clients, of the sum of 700 rows, and a little noise.
    sums = found.settings["secure_sum"]
    assert np.abs(found.history["x"] - expected).max() < 100 * sums["grid"] * sums["deviation"]
    assert np.abs(found.history["x"] - expected).max() < 3e-5
    assert found.rounds == 6 and np.array_equal(found.x, found.history["x"][-1])


def test_both_engines_see_the_same_sums():
    one, other = (
        summed(algorithm(2.0), table(), engine=engine) for engine in ("reference", "compiled")
    )
    np.testing.assert_allclose(one.history["x"], other.history["x"], rtol=1e-12)
    np.testing.assert_allclose(one.history["objective"], other.history["objective"], rtol=1e-12)
    assert (one.engine, other.engine) == ("reference", "compiled")


def test_the_noise_is_that_of_a_curator_with_the_honest_share():
    data, asked = table(30), algorithm(1.0)
    z = asked.mechanism.noise_multiplier(1.0, 1)
    # Of the first point after x = 0, whose gradient is known.
    seen = [summed(asked, data, 1, seed=SEED + k, engine="reference").x for k in range(40)]
    off = np.array(seen) - descent(data, 1, 0.5)[1]
    assert off.std() == pytest.approx(2 * 50 * z / 700 / 0.5 * (4 / 3) ** 0.5, rel=0.06)


def test_the_guarantee_says_whom_it_is_against():
    found = summed(algorithm(0.5), table())
    assert found.guarantee.startswith(
        "each client: epsilon <= 0.5 at delta 1e-06, for each record of a client, replace-one, "
        "against a server that sees secure sums only, each of 4 or more clients, at least 3 of "
        "them honest (simulated"
    )
    assert (found.history["epsilon_clients"][-1] == 0.5).all()
    spent = found.history["epsilon"]
    assert (np.diff(spent) > 0).all() and spent[0] == 0
    released = found.release()
    assert np.array_equal(released.x, found.history["x"]) and "against a server" in str(released)


def test_of_single_clients_nothing_is_known():
    found = summed(algorithm(0.5), table())
    assert (found.x == found.W).all() and (found.x == found.Z).all()


def test_a_guessable_seed_has_no_guarantee():
    assert summed(algorithm(0.5), table(), seed=5).guarantee.startswith("none: the seed is below")


def test_sums_of_those_who_come():
    data, asked = table(), algorithm(participation=0.5)
    found = summed(asked, data, 40)
    assert found.settings["secure_sum"]["clients"] == 2
    assert found.settings["secure_sum"]["parts"] == 2
    # Two clients a round, and the noise of a budget that nobody has: near the optimum.
    best = descent(data, 500, 0.5)[-1]
    assert np.abs(found.history["x"][10:].mean(axis=0) - best).max() < 0.15
    # Each sum has the noise that the client needs who comes most often.
    spent = summed(algorithm(0.5, participation=0.5), data, 9).history["epsilon_clients"][-1]
    assert spent.max() == 0.5 and (spent < 0.5).any()


def test_callbacks_watch():
    seen = []
    summed(algorithm(0.5), table(), callback=lambda info: seen.append(info) or True)
    assert [info.tau for info in seen] == list(range(7))
    found = summed(algorithm(0.5), table())
    np.testing.assert_array_equal([info.x for info in seen], found.history["x"])
    np.testing.assert_allclose(list(seen[-1].objective), found.history["objective"])


def test_classes():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(600, 3))
    data = FederatedData(A, np.argmax(A, axis=1).astype(float), np.array([200, 300, 100]))
    asked, loss = algorithm(1e6), Multinomial(classes=3, beta=0.0)
    found = summed(asked, data, 10, objective=loss, engine="reference")
    assert found.accuracy > 0.95 and found.x.shape == (9,)


def test_moments_of_all_rows():
    data, r = table(), 2.5
    mechanism = GaussianMechanism(total_epsilon=1.0)
    sums = {"clients": 4, "honest": 0.75, "bits": 36}
    values, scales = moments_of_sum(data, mechanism, r, 1e-6, CounterRandomness(SEED), **sums)
    A = data.features
    A = A * np.minimum(1, r / np.linalg.norm(A, axis=1))[:, None]
    back = coordinates(values, scales, np.ones(1), 2)
    np.testing.assert_allclose(np.linalg.inv(back @ back.T), A.T @ A / 700, atol=1e-5)
    seen = np.array([
        moments_of_sum(data, mechanism, r, 4.0, CounterRandomness(SEED + k), **sums)[0][0]
        for k in range(100)
    ])  # fmt: skip
    off = seen - values[0]
    assert off.std() == pytest.approx(2**0.5 * r**2 / 700 * 4 * (4 / 3) ** 0.5, rel=0.06)
    (scale,) = moments_of_sum(data, mechanism, r, 4.0, CounterRandomness(SEED), **sums)[1]
    assert scale == pytest.approx(2**0.5 * r**2 / 700 * 4 * (4 / 3) ** 0.5, rel=1e-4)


def test_points_too_large_for_their_rounding_end_it():
    small = dataclasses.replace(algorithm(1.0), eta=1e-13)
    found = summed(small, table())
    assert found.rounds < 6 and found.reasons == ("precision",)


# By a plan ------------------------------------------------------------------------------------


def test_a_plan_of_secure_sums():
    data = table()
    planned = plan(1.0, SIZES, 4, trust="secure-sum", honest=0.75)
    alone = plan(1.0, np.full(4, np.mean(SIZES)), 4)  # as many rows, and all alike
    # A curator's noise, but for the share that is not honest.
    assert planned.level == pytest.approx(alone.level / 3**0.5)
    found = planned.run(data, seed=SEED, public_scaling=True)
    assert "at least 3 of them honest" in found.guarantee
    assert (found.history["epsilon_clients"][-1] == 1.0).all()
    again = planned.run(data, seed=SEED, public_scaling=True, engine="reference")
    np.testing.assert_allclose(found.x, again.x, rtol=1e-9)


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_with_next_to_no_noise_a_plan_ends_at_the_optimum(participation):
    asked = Settings(4, 60, 10, 1.0, 50.0, 50.0, 1.0)
    equal = np.array([175] * 4)
    data = dataclasses.replace(table(), client_sizes=equal)
    planned = plan(1e10, equal, 4, settings=asked, trust="secure-sum", participation=participation)
    found = planned.run(data, seed=SEED, public_scaling=True, engine="reference")
    near = 1e-4 if participation == 1.0 else 0.3
    assert np.abs(found.x - descent(data, 500, 0.5)[-1]).max() < near


@pytest.mark.parametrize("changed, message", [
    ({"trust": "server"}, "trust must be one of 'clients', 'secure-sum', got 'server'"),
    ({"honest": 0.0}, "honest must be"),
    ({"delta": 0.0}, "delta must be above 0 for trust='secure-sum'"),
    ({"client_weight": "equal"}, "client_weight must be 'size' for trust='secure-sum'"),
])  # fmt: skip
def test_what_cannot_be_planned(changed, message):
    with pytest.raises(ValueError, match=message):
        plan(1.0, SIZES, 4, **{"trust": "secure-sum", **changed})


# Of whole clients -----------------------------------------------------------------------------


def of_clients(clip: float, epsilon: float = 1e10) -> FedEPM:
    mechanism = GaussianMechanism(
        total_epsilon=epsilon, clip=clip, public_scaling=True, neighbours="client"
    )
    return algorithm(mechanism=mechanism)


def test_whole_clients_weigh_alike_and_their_moves_are_clipped():
    data, clip = table(), 0.05
    found = summed(of_clients(clip), data, 1, bits=40)
    moves = []
    for i in range(4):
        a, b = data.client(i)
        move = -a.T @ (0.5 - b) / len(b) / 0.5
        moves.append(move * min(1, clip / np.linalg.norm(move)))
    np.testing.assert_allclose(found.x, np.mean(moves, axis=0), rtol=0, atol=1e-6)
    assert "for all records of a client together" in found.guarantee
    assert "server that sees secure sums only" in found.guarantee


@pytest.mark.parametrize("huge", [1e200, 1e308])
def test_a_client_whose_gradient_overflows_moves_nothing(huge):
    data = table()
    labels = data.labels.copy()
    labels[0] = huge
    broken = dataclasses.replace(data, labels=labels)
    loss = LeastSquares(beta=0.0)
    with np.errstate(over="ignore"):
        one = summed(of_clients(0.1), broken, 2, objective=loss, engine="reference")
    assert np.isfinite(one.x).all() and np.abs(one.x).max() < 0.2
    assert one.rounds == 2


def test_second_moments_count_on_no_more_honest_clients_than_the_rounds():
    # Half of the clients come, three quarters of them honest: two of two, and not three of four.
    data, asked = table(), {"honest": 0.75, "bits": 36}
    mechanism, source = GaussianMechanism(total_epsilon=1.0), CounterRandomness(SEED)
    (few,), (all_of_them,) = (
        moments_of_sum(data, mechanism, 2.0, 4.0, source, clients=clients, **asked)[1]
        for clients in (2, 4)
    )
    assert few == pytest.approx(all_of_them * (3 / 2) ** 0.5, rel=1e-4)
