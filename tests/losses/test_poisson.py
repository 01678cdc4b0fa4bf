"""Poisson regression: the optimum is SciPy's, and what has no bound is refused."""

from __future__ import annotations

import numpy as np
import pytest
from commands import fedepm
from scipy.optimize import minimize

from fedepm_fast import FedEPM, FederatedData, Problem, Sweep, run, sweep
from fedepm_fast.kernels import losses
from fedepm_fast.losses import Poisson
from fedepm_fast.privacy import GaussianMechanism

BETA = 1e-3


@pytest.fixture(scope="module")
def claims():
    """Claims of the insured, by age, area and the years insured: six insurers, 100 people each."""
    rng = np.random.default_rng(5)
    d = 600
    features = np.column_stack(
        [np.ones(d), rng.uniform(-1, 1, d), rng.random(d) < 0.3, rng.uniform(0, 1, d)]
    )
    labels = rng.poisson(np.exp(features @ [0.4, 0.6, 0.8, -0.5]))
    return FederatedData(features, labels, np.full(6, 100))


def of_scipy(data):
    """The minimiser of the same objective, written out and left to SciPy."""
    a, b, m, size = data.features, data.labels, data.n_clients, data.client_sizes[0]

    def value(w):
        t = a @ w
        slope = a.T @ (np.exp(t) - b) / size + m * BETA / size * w
        return (np.exp(t) - b * t).sum() / size + m * BETA / size / 2 * w @ w, slope

    return minimize(value, np.zeros(a.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-10})


def test_runs_find_the_optimum_of_scipy(claims):
    want = of_scipy(claims)
    problem = Problem(claims, Poisson(BETA))
    for method in ("newton", "bfgs"):
        best = problem.optimum(method=method)
        np.testing.assert_allclose(best.x, want.x, rtol=1e-7)
        assert best.value == pytest.approx(want.fun, rel=1e-13)
    algorithm = FedEPM(
        noise="none", participation=1.0, lam=1e-9, eta=4.0, mu0=2.0, alpha=1.0, c=0.0
    )
    result = run(algorithm, claims, objective="poisson", rounds=600)
    assert result.engine == "compiled" and result.accuracy is None
    np.testing.assert_allclose(result.x, want.x, rtol=1e-5)


def test_values_in_closed_form():
    # One row a client; margins that are exact.
    margins = np.array([-800.0, -1.0, 0.0, 1.0, 5.0, 700.0])
    counts = np.array([0.0, 2.0, 1.0, 0.0, 148.0, 3.5])
    rows = losses.pack(margins[:, None], counts, np.ones(6, int), loss="poisson")
    f, g = losses.values_and_gradients(rows, np.ones(1))
    np.testing.assert_allclose(f, np.exp(margins) - counts * margins, rtol=4e-16, atol=0)
    np.testing.assert_allclose(g[:, 0], margins * (np.exp(margins) - counts), rtol=4e-16, atol=0)
    # Where exp(t) is no number the loss is infinite, and the run says that it diverged.
    rows = losses.pack(np.full((1, 1), 710.0), [1.0], [1], loss="poisson")
    assert losses.values(rows, np.ones(1))[0] == np.inf
    # Rows that only fill a vector up add exactly nothing.
    for size in range(1, 20):
        rows = losses.pack(np.zeros((size, 2)), np.zeros(size), [size], loss="poisson")
        f, g = losses.values_and_gradients(rows, np.ones(2))
        assert f[0] == 1.0 and (g == 0).all()


def test_predictions_are_means(claims):
    objective = Poisson()
    t = np.array([-1.0, 0.0, 2.0])
    np.testing.assert_array_equal(objective.predict(t), np.exp(t))
    best = Problem(claims, Poisson(beta=0.0)).optimum().x
    # With an intercept the means add up to the counts.
    assert objective.predict(claims.features @ best).sum() == pytest.approx(claims.labels.sum())


def test_refused(claims):
    for labels, got in (([1.0, -1.0], "-1.0 at index 1"), ([-0.5, 2.0], "-0.5 at index 0")):
        data = FederatedData(np.eye(2), labels, [1, 1])
        message = f"labels must be counts or rates, at least 0 for the poisson objective, got {got}"
        with pytest.raises(ValueError, match=message):
            Problem(data, Poisson())
        with pytest.raises(ValueError, match=message):
            losses.pack(np.eye(2), labels, [1, 1], loss="poisson")
    problem = Problem(claims, Poisson())
    assert not problem.has_lipschitz
    with pytest.raises(ValueError, match="of the loss 'poisson': nothing bounds its second"):
        problem.lipschitz()
    private = FedEPM(mechanism=GaussianMechanism(total_epsilon=1.0))
    with pytest.raises(ValueError, match="'poisson' has no bound on a record's gradient"):
        run(private, claims, objective="poisson", rounds=1)


def test_commands_take_counts(claims, tmp_path, capsys):
    table = np.column_stack([claims.features, claims.labels])
    np.savetxt(tmp_path / "claims.csv", table, delimiter=",", header="one,age,area,years,claims",
               comments="")  # fmt: skip
    code, out, _ = fedepm(
        capsys, "run", "--data", tmp_path / "claims.csv", "--objective", "poisson", "--clients", 6,
        "--rounds", 3, "--noise", "none", "--mu0", 1, "--quiet",
    )  # fmt: skip
    assert code == 0 and "rounds=3" in out
    spec = tmp_path / "spec.toml"
    spec.write_text(
        "trials = 2\nrounds = 2\nobjective = ['poisson', 'least_squares']\nengine = 'reference'\n"
        "[data]\nsource = 'claims.csv'\nclients = 6\n[algorithm]\nname = 'sfedavg'\n"
    )
    done = sweep(Sweep.from_toml(spec), jobs=1, progress=False)
    assert not done.failed
    assert sorted(set(done.table()["objective"])) == ["least_squares", "poisson"]
