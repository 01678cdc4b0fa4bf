"""Losses by functions of the user's."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from problems import a_problem, own_logistic, sigmoid, small_data, softplus
from runs import assert_agree, both
from scipy import sparse

from fedepm_fast import (
    CurvatureFedEPM,
    FedAvg,
    FedEPM,
    FederatedData,
    Problem,
    ScalarLoss,
    SFedAvg,
    SFedProx,
    Sweep,
    make_problem,
    run,
    sweep,
)
from fedepm_fast.kernels import losses
from fedepm_fast.kernels._identity import own_identity
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.kernels._simd import horizontal_sum, lanes, load, splat
from fedepm_fast.kernels.losses._steps import _takes_vectors, own_device, steps_of
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism
from fedepm_fast.private_runs import private_problem

DELTA = 0.75


compiled = pytest.mark.skipif(
    JIT_DISABLED, reason="Python's functions raise where compiled ones give NaN or infinity"
)


def clipped(r):
    return max(min(r, DELTA), -DELTA)


def branches(r):
    if r > DELTA:
        return DELTA
    return r if r > -DELTA else -DELTA


def raises(t, y):
    if t < 0:
        raise ValueError("far too small")
    return t


def huber(clip=clipped, **options):
    """The Huber loss by a function that clips, which is a global or not."""
    clip = numba.njit(clip)
    return ScalarLoss(
        value=lambda t, y: clip(t - y) * (t - y - 0.5 * clip(t - y)),
        gradient=lambda t, y: clip(t - y),
        **options,
    )


def square(shift=0.0, **options):
    return ScalarLoss(
        value=lambda t, y: 0.5 * (t - y - shift) ** 2,
        gradient=lambda t, y: t - y - shift,
        **options,
    )


# Runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [
    FedEPM(mu0=20.0, preset="text"),
    SFedAvg(learning_rate=0.05, epsilon=50.0),
    SFedProx(learning_rate=0.05, noise="none"),
])  # fmt: skip
def test_runs_are_those_of_the_built_in_loss(algorithm):
    # FedEPM on blocks, the others on CSR: what the gradient checks compile, too.
    data = a_problem("own_logistic", is_sparse=not isinstance(algorithm, FedEPM)).data
    got, reference = both(algorithm, data, objective=own_logistic(), max_rounds=12, seed=3)
    assert got.engine == "compiled" and got.accuracy == pytest.approx(reference.accuracy)
    assert_agree(got, reference)
    want = run(algorithm, data, objective="logistic", max_rounds=12, seed=3)
    assert_agree(got, want)
    with ThreadPoolExecutor(2) as pool:
        for other in pool.map(
            lambda _: run(algorithm, data, objective=own_logistic(), max_rounds=12, seed=3), "12"
        ):
            assert other.x.tobytes() == got.x.tobytes() and other.Z.tobytes() == got.Z.tobytes()
    assert got.objective["name"] == "own_logistic" and got.objective["slope"] == 1.0
    assert "own_logistic, no intercept added, beta 0.001" in " ".join(str(got).split())


def test_a_private_gradient_keeps_to_the_slope_whatever_the_functions_give(rng):
    """The bound holds where the functions are tried; beyond there are 1e6 t, infinity and NaN."""

    def far(t):
        return np.where(
            t > 90, math.nan, np.where(t > 60, 1e6 * t, np.where(t < -60, -math.inf, 0))
        )

    far = numba.njit(far)
    own = ScalarLoss(
        value=lambda t, y: 0.5 * (t - y) ** 2, gradient=lambda t, y: t - y + far(t),
        slope=40.0, curvature=1.0,
    )  # fmt: skip
    t, y = np.array([-70.0, -50, 3, 50, 70, 100]), np.ones(6)
    np.testing.assert_array_equal(own.bounded().derivative(t, y), [-40, -40, 2, 40, 40, 0])
    assert np.isnan(own.derivative(t, y)[-1]) and own.derivative(t, y)[4] > 1e7
    data = FederatedData(rng.normal(size=(60, 3)), rng.normal(size=60), [20, 40])
    mechanism = GaussianMechanism(total_epsilon=1.0, clip=1.0)
    problem = private_problem(mechanism, Problem(data, own))
    a, b = problem.data.features, data.labels
    x = np.array([4000.0, -3000, 1000])
    margins = a @ x
    assert margins.min() < -60 and margins.max() > 90
    slopes = np.where(margins > 90, 0, np.clip(margins - b, -40, 40))
    for compiled in (True, False):
        _, g = problem.client_gradients([0, 1], x, compiled=compiled)
        assert np.linalg.norm(g - problem.reg[:, None] * x, axis=1).max() <= 1.0
        want = np.stack([slopes[:20] @ a[:20] / 20, slopes[20:] @ a[20:] / 40])
        np.testing.assert_allclose(g, want + problem.reg[:, None] * x, rtol=1e-9)


def test_a_loss_of_numbers_runs_privately():
    """As the built-in one where its slope bounds its derivative and no row is clipped."""
    data = a_problem("own_logistic").data
    clip = np.abs(data.features).sum(axis=1).max() * 1.01
    mechanism = LaplaceMechanism(total_epsilon=5.0, clip=clip)
    algorithm = FedEPM(mechanism=mechanism, lam=0.0, eta=1.0, mu0=1e-9, start="broadcast")
    given = {"rounds": 3, "seed": 2**40}
    got, reference = both(algorithm, data, objective=own_logistic(), **given)
    assert_agree(got, reference)
    assert_agree(got, run(algorithm, data, objective="logistic", **given))
    assert got.guarantee.startswith("each client: epsilon <= 5 (pure)")
    for without, message in (
        ("slope", "no bound on a record's"),
        ("curvature", "its curvature for"),
    ):
        with pytest.raises(ValueError, match=message):
            run(algorithm, data, objective=own_logistic(**{without: None}), **given)
    copy = pickle.loads(pickle.dumps(own_logistic(slope=1.5).bounded()))
    assert (copy.parameter, copy.packing["parameter"], copy.slope) == (1.5, 1.5, 1.5)


def test_no_row_no_call(rng):
    # Functions that are not defined without a label: no row, no call.
    poisson = losses.scalar_loss(
        lambda t, y: math.exp(t) - y * t + y * math.log(y), lambda t, y: math.exp(t) - y
    )
    by_rows = losses.scalar_loss(
        lambda t, y: (math.exp(t) - y * t + y * math.log(y)) if y > 0 else math.nan,
        lambda t, y: (math.exp(t) - y) if y > 0 else math.nan,
    )
    margins, labels = rng.normal(size=16), rng.integers(1, 9, 16).astype(float)
    labels[11:] = np.nan
    value = (np.exp(margins) - labels * margins + labels * np.log(labels))[:11].sum()
    slopes = np.where(np.arange(16) < 11, np.exp(margins) - labels, 0.0)
    for loss in (poisson, by_rows):
        work = margins.copy()
        total = _steps(steps_of(loss)[0])(work, labels)
        assert total == pytest.approx(value, rel=1e-14)
        np.testing.assert_allclose(work, slopes, rtol=1e-13, atol=0)


def _steps(step):
    def apply(work, targets):
        total = splat(work, 0.0)
        for k in range(0, work.size, lanes(work)):
            target = load(targets, k)
            no_bound = splat(work, np.inf)
            total, _ = step(work, k, 0, 1, target, no_bound, total, target)
        return horizontal_sum(total)

    return numba.njit(apply)


@pytest.mark.skipif(JIT_DISABLED, reason="vectors are compiled")
def test_what_works_on_vectors():
    def takes(function):
        return _takes_vectors(own_device(function, own_identity(function)))

    assert takes(softplus) and takes(sigmoid)
    assert takes(lambda t, y: np.where((t > y) & (t < 3), np.maximum(0, t), 2 * np.log1p(y)) ** 2)
    assert takes(lambda t, y: 1.0) and takes(lambda t, y: np.where(t > y, 1, 0))
    assert not takes(lambda t, y: t if t > y else y)
    assert not takes(lambda t, y: math.tanh(t))


@compiled
def test_nan_stays():
    loss = losses.scalar_loss(lambda t, y: max(t, 0.0), lambda t, y: max(0.0, min(1.0, t)))
    work = np.array([np.nan, -1.0, 2.0, 0.5, 3.0, 0.25, 0.0, 1.0])
    assert np.isnan(_steps(steps_of(loss)[0])(work, np.zeros(8)))
    np.testing.assert_array_equal(work, [np.nan, 0, 1, 0.5, 1, 0.25, 0, 1])


def test_the_reference_alone():
    data = small_data(task="regression")
    for clip in (clipped, branches):
        got = run(FedEPM(mu0=5.0), data, objective=huber(clip), rounds=4, engine="reference")
        want = run(FedEPM(mu0=5.0), data, objective="least_squares", rounds=4, engine="reference")
        assert got.accuracy is None and not np.allclose(got.x, want.x)
    exact = run(FedEPM(mu0=5.0), data, objective=square(), rounds=4, engine="reference")
    np.testing.assert_allclose(exact.x, want.x, rtol=1e-12)


def test_theory_and_optimum():
    problem, built_in = a_problem("own_logistic"), a_problem("logistic")
    x = np.ones(5)
    # By central differences of the gradient.
    np.testing.assert_allclose(problem.total_hessian(x), built_in.total_hessian(x), rtol=1e-8)
    np.testing.assert_array_equal(problem.lipschitz(), built_in.lipschitz())
    for method in ("bfgs", "newton"):
        np.testing.assert_allclose(
            problem.optimum(method=method).x, built_in.optimum().x, rtol=1e-8, atol=1e-10
        )
    given = square(second=lambda t, y: 1.0, curvature=1)
    assert given.second_derivative(x, x).tolist() == [1.0] * 5
    data = FederatedData(np.eye(2), [1.0, 2.0], [1, 1])
    with pytest.raises(ValueError, match="curvature is not known of the loss 'scalar'"):
        Problem(data, square()).lipschitz()
    with pytest.warns(match="a larger penalty parameter mu0 makes the local steps stable"):
        far = FedEPM(mu0=1e-9, noise="none")
        run(far, small_data(task="regression"), objective=square(), engine="reference")


# Names ----------------------------------------------------------------------------------


def test_a_hash_tells_functions_apart(monkeypatch):
    def one(shift):
        return square(shift).identity

    assert one(0.5) == one(0.5) != one(0.25)
    assert huber().identity == huber().identity != huber(branches).identity
    before = huber()
    monkeypatch.setitem(globals(), "DELTA", 0.5)
    after = huber()
    assert before.identity != after.identity
    t = np.array([9.0])
    # Each with the global as it was when it was made; Python alone knows no such thing.
    assert before.derivative(t, 0 * t) == [0.5 if JIT_DISABLED else 0.75]
    assert after.derivative(t, 0 * t) == [0.5]
    with pytest.raises(ValueError, match="a global that has changed since: make a new loss"):
        losses.pack(np.ones((1, 1)), [1.0], [1], **before.packing)


def _scaled(factor):
    """A function that Numba compiles something else for, and one that calls it."""

    def scale(t):
        return t

    @numba.extending.overload(scale)
    def _compiled(t):
        return lambda t: FACTORS[factor] * t

    return lambda t, y: scale(t) - y


FACTORS = (1.0, 2.0)


def test_a_hash_has_what_is_compiled_in_place_of_a_function(monkeypatch):
    one = own_identity(_scaled(0))
    assert one == own_identity(_scaled(0))
    monkeypatch.setitem(globals(), "FACTORS", (1.0, 3.0))
    assert one != own_identity(_scaled(0))


def test_a_hash_takes_no_attribute_for_a_global(monkeypatch):
    def of_size(t, y):
        return t.size - y

    monkeypatch.setitem(globals(), "size", object())  # which has no hash
    assert own_identity(of_size) == own_identity(of_size)
    with pytest.raises(TypeError, match="refers to size, of type object, which has no hash"):
        own_identity(eval("lambda t, y: size - y", globals()))


def test_a_store_keeps_losses_of_one_name_apart():
    data, algorithm = small_data(task="regression"), FedEPM(mu0=5.0)
    goals = [square(0.0), square(0.5)]
    runs = Sweep(algorithm, data, objective=goals, trials=2, rounds=2, engine="reference")
    assert len(runs) == 4
    done = sweep(runs, jobs=2, progress=False)
    assert not done.failed
    table = done.table()
    assert table["objective"] == ["scalar"] * 4
    assert table["functions"] == [g.identity for g in goals for _ in range(2)]
    for k, run_id in enumerate(done):
        want = run(
            algorithm, data, objective=goals[k // 2], trial=k % 2, rounds=2, engine="reference"
        )
        np.testing.assert_array_equal(done.history(run_id)["objective"], want.history["objective"])
    again = Sweep(algorithm, data, objective=square(0.5), trials=2, rounds=2, engine="reference")
    assert [r.run_id for r in again] == list(done)[2:]


def test_workers_get_the_functions():
    loss = own_logistic()
    copy = pickle.loads(pickle.dumps(loss))  # of a module: by name
    assert copy == loss and copy.identity == loss.identity
    cloudpickle = pytest.importorskip("joblib.externals.loky.backend.reduction")
    loss = square(0.5)  # with lambdas: as the workers of processes and clusters get them
    copy = pickle.loads(cloudpickle.dumps(loss))
    assert copy.identity == loss.identity
    assert copy.loss(np.ones(1), np.zeros(1)) == [0.125]


# Refused --------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"value": 1.0}, TypeError, "value must be a function that Numba can compile, got float"),
        ({"value": lambda t: t}, TypeError, "value must be a function of two numbers, t and y"),
        ({"gradient": lambda t, y: "a"}, TypeError, "gradient must be a function of two numbers"),
        (
            {"gradient": lambda t, y: 2 * (t - y)},
            ValueError,
            "gradient must be the derivative of value in t: at t = -3.1379, y = 0.37 it is "
            "-7.0158, the central difference -3.5079",
        ),
        (
            {"second": lambda t, y: t},
            ValueError,
            "second must be the derivative of gradient in t: at t = -3.1379",
        ),
        (
            {"value": lambda t, y: math.log(t)},
            ValueError,
            r"value must be finite, got nan at t = -3.1379, y = 0.37",
        ),
        ({"curvature": 0.5}, ValueError, r"curvature must bound .*, got 0.5, below the 1 at t"),
        ({"slope": 1.0}, ValueError, r"slope must bound abs\(gradient\), got 1, below the 3.5079"),
        ({"value": raises}, ValueError, "value must not raise, got ValueError: far too small"),
        ({"slope": -1.0}, ValueError, r"slope must be a finite number in \[0, inf\)"),
        ({"task": "ranking"}, ValueError, "task must be one of 'classification', 'regression'"),
        ({"name": "logistic"}, ValueError, "name must not be that of a built-in loss"),
        ({"name": "my loss"}, ValueError, "name must be an identifier, got 'my loss'"),
        ({"beta": -1}, ValueError, "beta must be"),
        (
            {"value": lambda t, y: 0.5 * (t - y) ** 2 + len(MARKS)},
            TypeError,
            "value refers to MARKS, of type set, which has no hash",
        ),
    ],
)
def test_refused(change, error, message):
    given = {"value": lambda t, y: 0.5 * (t - y) ** 2, "gradient": lambda t, y: t - y, **change}
    with pytest.raises(error, match=message):
        ScalarLoss(**given)


MARKS: set[int] = set()


def test_labels():
    with pytest.raises(ValueError, match="labels must be 0 or 1 for the own_logistic objective"):
        run(FedEPM(), small_data(task="regression"), objective=own_logistic())
    binary = losses.scalar_loss(softplus, sigmoid, labels="binary")
    with pytest.raises(ValueError, match="labels must be 0 or 1 for the own loss, got 2"):
        losses.pack(np.ones((1, 1)), [2.0], [1], loss=binary)
    with pytest.raises(ValueError, match="labels must be 'reals' or 'binary', got 'classes'"):
        losses.scalar_loss(softplus, sigmoid, labels="classes")
    with pytest.raises(ValueError, match="delta is not a parameter of the own loss"):
        losses.pack(np.ones((1, 1)), [1.0], [1], loss=binary, delta=1.0)


FACTOR = 1.0


def _scaled_value(t, y):
    return FACTOR * (t - y) ** 2 / 2


def _scaled_gradient(t, y):
    return FACTOR * (t - y)


def test_globals_count_as_they_were(monkeypatch):
    # Runs give the loss a regulariser, which must not read the functions anew.
    loss = ScalarLoss(value=_scaled_value, gradient=_scaled_gradient, curvature=1.0)
    t, y = np.array([2.0]), np.array([0.5])
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    same = loss.changed(beta=0.5, regularizer="beta", weights=(1.0,))
    assert (same.beta, same.regularizer, same.weights) == (0.5, "beta", (1.0,))
    assert same.identity == loss.identity
    assert same.loss(t, y)[0] == loss.loss(t, y)[0] == 1.125
    with pytest.raises(ValueError, match="beta must be"):
        loss.changed(beta=-1.0)
    with pytest.raises(ValueError, match="curvature must bound"):
        loss.changed(curvature=1.0, name="anew")


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("layout", [3, 60, sparse.csr_array])
def test_what_functions_raise_comes_out_of_a_run(rng, layout, engine):
    """Of all that call them, through a pointer or not."""

    def value(t, y):
        if t > 35.0:
            raise OverflowError("margins above 35")
        return 0.5 * (t - y) ** 2

    def gradient(t, y):
        if t > 35.0:
            raise OverflowError("margins above 35")
        return t - y

    loss = ScalarLoss(value=value, gradient=gradient, curvature=1.0)
    n = layout if isinstance(layout, int) else 8
    features = rng.normal(size=(80, n))
    labels = 60.0 * features.sum(axis=1)
    data = FederatedData(features if n == layout else layout(features), labels, [30, 50])
    for algorithm in (FedEPM(mu0=5.0), FedAvg(batch_size=10), CurvatureFedEPM()):
        with pytest.raises(OverflowError, match="margins above 35"):
            run(algorithm, data, objective=loss, rounds=50, seed=0, engine=engine)
    with pytest.raises(OverflowError, match="margins above 35"):
        make_problem(FedEPM(), data, objective=loss).gradients(np.full(n, 60.0))


@pytest.mark.parametrize("client", range(4))
def test_what_functions_raise_in_any_thread_is_raised(monkeypatch, client):
    def value(t, y):
        if t > 35.0:
            raise OverflowError("margins above 35", t)
        return 0.5 * (t - y) ** 2

    monkeypatch.setattr(losses, "_PARALLEL_FROM", 0)
    features = np.linspace(0.5, 1.0, 800).reshape(400, 2)
    own = losses.scalar_loss(value, lambda t, y: t - y)
    rows = losses.pack(features, features[:, 0], [100] * 4, loss=own)
    points = np.zeros((4, 2))
    expected = losses.values(rows, points, threads=2)
    for raising in ([client], [client, 3 - client], range(4)) * 5:
        wrong = points.copy()
        wrong[raising] = 60.0
        for ask in (losses.values, losses.values_and_gradients):
            with pytest.raises(OverflowError, match="margins above 35"):
                ask(rows, wrong, threads=2)
    assert losses.values(rows, points, threads=2).tobytes() == expected.tobytes()


def test_threads_do_not_change_bits_of_a_loss_of_ones_own(monkeypatch, rng):
    monkeypatch.setattr(losses, "_PARALLEL_FROM", 0)
    features, sizes = rng.normal(size=(500, 5)), [100, 1, 199, 150, 50]
    own = losses.scalar_loss(lambda t, y: 0.5 * (t - y) ** 2, lambda t, y: t - y)
    rows, points = losses.pack(features, features[:, 0], sizes, loss=own), rng.normal(size=(5, 5))
    for chosen in (None, [3], [4, 0, 0, 2]):
        given = {"clients": chosen, "reg": np.linspace(0.0, 1.0, 5)}
        one, two = (losses.values_and_gradients(rows, points, threads=t, **given) for t in (1, 2))
        assert [a.tobytes() for a in one] == [a.tobytes() for a in two]
        assert losses.values(rows, points, threads=2, **given).tobytes() == one[0].tobytes()
