"""Runs on callables of flat vectors."""

from __future__ import annotations

import numpy as np
import pytest
from problems import Told, small_data

from fedepm_fast import (
    DivergenceWarning,
    FedAvg,
    FedEPM,
    FedProx,
    Logistic,
    Result,
    SFedAvg,
    SFedProx,
    make_problem,
    run,
    run_callables,
)
from fedepm_fast.privacy import LaplaceMechanism

DATA = small_data()


def losses_of(algorithm):
    problem = make_problem(algorithm, DATA, Logistic())
    return [
        lambda x, i=i: (problem.value(i, x), problem.gradient(i, x)) for i in range(DATA.n_clients)
    ]


@pytest.mark.parametrize(
    "algorithm",
    [
        FedEPM(mu0=5.0),
        FedEPM(preset="text", mu0=20.0, start="broadcast", aggregation="uploaded"),
        FedEPM(mu0=5.0, noise="none", coverage_rounds=3, participation=0.4),
        SFedAvg(learning_rate=0.05, epsilon=50.0),
        SFedProx(learning_rate=0.05, local_steps=3, epsilon=50.0),
    ],
    ids=["released", "text", "covering", "sfedavg", "sfedprox"],
)
def test_the_built_in_loss_gives_the_run(algorithm, tmp_path):
    start = np.random.default_rng(0).normal(size=(6, 5))
    want = run(algorithm, DATA, seed=7, trial=2, start=start, max_rounds=15)
    got = run_callables(
        algorithm,
        losses_of(algorithm),
        start,
        samples=DATA.client_sizes,
        seed=7,
        trial=2,
        max_rounds=15,
    )
    assert (got.rounds, got.reasons, got.engine) == (want.rounds, want.reasons, "stepwise")
    assert got.algorithm == want.algorithm
    # What to change is told from bounds of the curvature, which these callables do not have.
    assert {**got.settings, "advice": ""} == {**want.settings, "advice": ""}
    for name in ("x", "W", "Z"):
        a, b = getattr(got, name), getattr(want, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(want.Z).max(), err_msg=name)
    for name in ("objective", "snr"):
        np.testing.assert_allclose(got.history[name], want.history[name], rtol=1e-12)
    assert got.accuracy is None and "objective             callables" in str(got)
    got.save(tmp_path / "result.npz")
    assert str(Result.load(tmp_path / "result.npz")) == str(got)


def quadratics(m=4, n=3, *, lipschitz=None):
    """``|x - t|^2 / 2`` with targets t of 0, 1, 2, ..., whose sum has its least at their mean."""
    calls = []

    def loss(i):
        def value_and_gradient(x):
            calls.append(i)
            r = x - (n * i + np.arange(n))
            x[:] = np.nan  # the callable's own
            return r @ r / 2, r.astype(np.float32)

        if lipschitz is not None:
            value_and_gradient.lipschitz = lipschitz
        return value_and_gradient

    return [loss(i) for i in range(m)], calls


PLAIN = FedEPM(noise="none", mu0=5.0, eta=1.0)


def test_rounds_rules_callbacks_and_points():
    losses, calls = quadratics()
    result = run_callables(PLAIN, losses, np.zeros(3))
    np.testing.assert_allclose(result.x, [4.5, 5.5, 6.5], atol=1e-2)
    assert result.reasons == ("objective_variance",)
    # Once at the start, for the size of f, and once a round.
    assert calls == [0, 1, 2, 3, *calls[4:]] and len(calls) == 4 * (result.rounds + 2)
    seen = []
    short = run_callables(
        PLAIN,
        losses,
        np.zeros(3),
        rounds=9,
        callback=lambda info: seen.append(info.objective[-1]) or info.tau == 4,
        keep_x=False,
    )
    assert short.rounds == 4 and "callback" in short.reasons and "x" not in short.history
    np.testing.assert_array_equal(short.history["objective"], seen)
    np.testing.assert_array_equal(seen, result.history["objective"][:5])
    assert run_callables(PLAIN, losses, np.zeros(3), max_iterations=12).rounds == 1


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda x: x, TypeError, r"losses must give \(value, gradient\), got ndarray of client 2"),
        (lambda x: (1.0, x[:2]), ValueError, r"gradient of client 2 must have shape \(3,\), got"),
        (lambda x: (1.0, x[:, None]), ValueError, "gradient of client 2 must have shape"),
        (lambda x: (1.0, x + 1j), TypeError, "gradient of client 2 must be .* got dtype complex"),
        (lambda x: (1.0, "abc"), TypeError, "gradient of client 2 must be an array of real numb"),
        (lambda x: (1.0, x * np.nan), ValueError, r"gradient of client 2 must be finite, got nan"),
        (lambda x: (np.inf, x), ValueError, "value of client 2 must be finite, got inf"),
        (lambda x: (x, x), TypeError, "value of client 2 must be a number, got ndarray"),
        (lambda x: (None, x), TypeError, "value of client 2 must be a number, got NoneType"),
    ],
)
def test_the_client_at_fault_is_named(wrong, error, message):
    losses, _ = quadratics()
    losses[2] = wrong
    with pytest.raises(error, match=message):
        run_callables(PLAIN, losses, np.zeros(3), rounds=2)


def test_what_a_loss_raises_is_passed_on():
    losses, _ = quadratics()
    losses[1] = lambda x: x / 0 if False else [][0]
    with pytest.raises(IndexError) as caught:
        run_callables(PLAIN, losses, np.zeros(3), rounds=2)
    assert caught.value.__notes__ == ["in the loss of client 1", "at the start of the run"]


def test_nan_later_ends_the_run_with_what_was_finite():
    losses, calls = quadratics()
    fine = losses[3]
    losses[3] = lambda x: fine(x) if len(calls) < 20 else (np.nan, x)
    with pytest.warns(DivergenceWarning, match="value of client 3 must be finite, got nan; a lar"):
        result = run_callables(PLAIN, losses, np.zeros(3), rounds=30)
    assert result.diverged and result.rounds == 3 and np.isfinite(result.x).all()
    losses, _ = quadratics(lipschitz=1.0)
    with pytest.warns(DivergenceWarning, match="mu0 of 6 or more makes the local steps stable"):
        run_callables(FedEPM(mu0=1e-3, noise="none"), losses, np.zeros(3), rounds=200)


def test_bad_arguments():
    losses, calls = quadratics()
    cases = [
        ((FedEPM, losses, np.zeros(3)), {}, TypeError, "algorithm must be FedEPM"),
        (
            (FedEPM(mechanism=LaplaceMechanism(total_epsilon=1.0)), losses, np.zeros(3)),
            {},
            ValueError,
            "algorithm must have no mechanism",
        ),
        ((PLAIN, [], np.zeros(3)), {}, TypeError, "losses must be a list of callables"),
        ((PLAIN, losses[0], np.zeros(3)), {}, TypeError, "one for each client, got function"),
        ((PLAIN, [*losses, 1], np.zeros(3)), {}, TypeError, "callable, got int at index 4"),
        ((PLAIN, losses, 0.0), {}, ValueError, r"start must have shape \(n,\) or \(4, n\), got"),
        ((PLAIN, losses, np.zeros((3, 3))), {}, ValueError, r"start must have shape \(4, 3\)"),
        ((PLAIN, losses, np.zeros(3)), {"samples": [1]}, ValueError, r"samples must have shape"),
        ((PLAIN, losses, np.zeros(3)), {"samples": [1, 1, 0, 1]}, ValueError, "at least 1, got 0"),
        ((PLAIN, losses, np.zeros(3)), {"rounds": -1}, ValueError, "rounds must be an integer"),
        ((PLAIN, losses, np.zeros(3)), {"stopping": "never"}, ValueError, "stopping must be one"),
        ((PLAIN, losses, np.zeros(3)), {"callback": 1}, TypeError, "callback must be callable"),
        ((FedEPM(), losses, np.zeros(1)), {}, ValueError, "needs at least 2 parameters"),
    ]
    for arguments, options, error, message in cases:
        with pytest.raises(error, match=message):
            run_callables(*arguments, **options)
    assert not calls


# Batches --------------------------------------------------------------------------------

BATCHES = [
    FedAvg(local_steps=3, batch_size=4, learning_rate=0.1, participation=0.5),
    FedProx(local_steps=2, batch_size=1, learning_rate=0.1, prox=0.5, noise="standardized"),
]


@pytest.mark.parametrize("algorithm", BATCHES, ids=["fedavg", "fedprox"])
def test_batches_of_callables_are_those_of_a_run(algorithm):
    problem = make_problem(algorithm, DATA, Logistic())
    losses = [Told(problem, i, 1.0) for i in range(DATA.n_clients)]
    want = run(algorithm, DATA, seed=7, rounds=6)
    got = run_callables(algorithm, losses, np.zeros(5), samples=DATA.client_sizes, seed=7, rounds=6)
    for name in ("x", "W", "Z"):
        a, b = getattr(got, name), getattr(want, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max())


def test_batches_need_rows():
    algorithm, sizes = BATCHES[0], DATA.client_sizes
    problem = make_problem(algorithm, DATA, Logistic())
    losses = [Told(problem, i, 1.0) for i in range(DATA.n_clients)]
    asked = []
    silent = [lambda x: asked.append(x)] * 6
    with pytest.raises(ValueError, match="samples must be given for FedAvg with batches"):
        run_callables(algorithm, losses, np.zeros(5))
    with pytest.raises(
        ValueError, match=r"losses must have a method batch_gradient\(x, rows\) for"
    ):
        run_callables(algorithm, silent, np.zeros(5), samples=sizes)
    with pytest.raises(ValueError, match="learning_rate must be a number for batches of callab"):
        run_callables(FedAvg(batch_size=2), losses, np.zeros(5), samples=sizes)
    assert asked == []
    losses[2].batch_gradient = lambda x, rows: x[:2]
    with pytest.raises(ValueError, match=r"gradient of client 2 must have shape \(5,\), got \(2"):
        run_callables(algorithm, losses, np.zeros(5), samples=sizes)
