"""What every mechanism keeps, the built-in ones and one of a user's own."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import ArrayLike
from problems import small_data
from scipy import integrate, stats

from fedepm_fast import (
    FedEPM,
    FederatedData,
    Result,
    Store,
    Sweep,
    mechanisms,
    privacy,
    run,
    sweep,
)
from fedepm_fast.federation.client import PrivateClient
from fedepm_fast.guarantees import NO_GUARANTEE, OWN_MECHANISM, SHARED_SEED
from fedepm_fast.kernels.philox import wrapping
from fedepm_fast.mechanisms import MECHANISMS, Law, Mechanism, release
from fedepm_fast.privacy import plan
from fedepm_fast.privacy._settings import Settings
from fedepm_fast.privacy.audit import Plan
from fedepm_fast.randomness import NOISE, CounterRandomness

SECRET = 987654321987


class Logistic(Law):
    """The logistic law, of which each coordinate is as private as of Laplace's."""

    name = "logistic"
    symbol = "Logistic(s)"
    order = 1

    def quantile(self, u: Any) -> Any:
        return np.log(u) - np.log1p(-u)

    def log_density(self, unit: Any) -> Any:
        return -(np.abs(unit) + 2 * np.log1p(np.exp(-np.abs(unit)))).sum(axis=-1)

    def tail(self, t: ArrayLike) -> Any:
        return 1 / (1 + np.exp(np.asarray(t)))

    def apart(self, hits: ArrayLike, alarms: ArrayLike) -> Any:
        return self.quantile(np.asarray(hits)) - self.quantile(np.asarray(alarms))


@dataclass(frozen=True)
class LogisticMechanism(Mechanism):
    """Logistic noise on L1 sensitivity.

    Parameters
    ----------
    share : float
        Of the budget that is spent.
    """

    share: float = 1.0
    name: ClassVar[str] = "logistic_noise"
    law: ClassVar[Law] = Logistic()

    def noise_multiplier(self, epsilon: float, uploads: int) -> float:
        return math.nextafter(uploads / (self.share * epsilon), math.inf)

    def compose(self, apart: float, uploads: int) -> float:
        return apart * uploads

    def guarantee(self, epsilon: float) -> str:
        return f"each client: epsilon <= {epsilon:g}"


every = pytest.mark.parametrize("name", list(MECHANISMS))
built_in = pytest.mark.parametrize(
    "name", [name for name, cls in MECHANISMS.items() if cls.is_checked()]
)


def of(name: str, **parameters: Any) -> Mechanism:
    return MECHANISMS[name](**{"total_epsilon": 2.0, **parameters})


def data() -> FederatedData:
    given = small_data()
    return FederatedData(given.features / 40, given.labels, given.client_sizes)


def algorithm(name: str, **parameters: Any) -> FedEPM:
    return FedEPM(mechanism=of(name, **parameters), local_steps=3)


def test_a_plan_states_no_guarantee_that_nobody_has_checked():
    for name in MECHANISMS:
        settings = Settings(0, 4, 2, 1.0, 0.5, 0.8, 1.0)
        text = " ".join(str(plan(mechanism=of(name), client_sizes=[50] * 9, n_features=3,
                                 settings=settings)).split())  # fmt: skip
        checked = MECHANISMS[name].is_checked()
        assert (f"privacy guarantee {OWN_MECHANISM}" in text) == (not checked)
        assert ("epsilon <=" in text) == checked


def test_those_that_are_there():
    assert {"gaussian", "laplace", LogisticMechanism.name} <= set(MECHANISMS)
    for name, cls in MECHANISMS.items():
        assert cls.name == name and cls.order == cls.law.order in (1, 2)
        assert cls.is_checked() == cls.__module__.startswith("fedepm_fast.")
        # Each names its own parameters and those of all.
        assert all(f"\n{f.name} :" in str(cls.__doc__) for f in dataclasses.fields(cls))


# The law ----------------------------------------------------------------------------------


@every
def test_quantile_density_and_tail_are_of_one_law(name):
    law = MECHANISMS[name].law

    def density(t: float) -> float:
        return float(np.exp(law.log_density(np.array([t]))))

    whole = 2 * integrate.quad(density, 0, np.inf)[0]
    for u in (1e-6, 0.02, 0.3, 0.5, 0.9, 1 - 1e-4):
        t = float(law.quantile(np.array([u]))[0])
        below = 0.5 + math.copysign(integrate.quad(density, 0, abs(t))[0] / whole, t)
        assert below == pytest.approx(u, abs=1e-9)
        assert float(law.tail(abs(t))) == pytest.approx(min(u, 1 - u), rel=1e-9)
    # Coordinates are drawn by themselves.
    unit = np.random.default_rng(0).normal(size=(5, 4))
    by_coordinate = law.log_density(unit[..., None]).sum(axis=-1)
    np.testing.assert_allclose(law.log_density(unit), by_coordinate, rtol=1e-13)


@every
def test_the_norm_of_a_law_bounds_what_a_shift_tells(name):
    law, rng = MECHANISMS[name].law, np.random.default_rng(0)
    unit, shift = rng.normal(size=(200, 4)), rng.normal(size=(200, 4))
    told = np.abs(law.log_density(unit + shift) - law.log_density(unit))
    if law.order == 1:
        assert (told <= np.abs(shift).sum(axis=1) * (1 + 1e-12)).all()
    else:  # it depends on nothing but L2 norms
        turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        moved = law.log_density((unit + shift) @ turn) - law.log_density(unit @ turn)
        np.testing.assert_allclose(np.abs(moved), told, rtol=1e-9, atol=1e-12)


@every
@pytest.mark.parametrize("far", [0.1, 1.0, 3.0])
def test_how_far_laws_are_apart_is_found_from_the_rates_of_an_observer(name, far):
    law = MECHANISMS[name].law

    def above(t: float) -> float:
        return float(law.tail(t)) if t >= 0 else 1 - float(law.tail(-t))

    for threshold in (-1.0, 0.4 * far, far, far + 2.0):
        found = law.apart(above(threshold - far), above(threshold))
        assert float(found) == pytest.approx(far, rel=1e-9)


@every
def test_compiled_noise_is_that_of_numpy(name):
    law, clients, n = MECHANISMS[name].law, np.array([3, 0, 77]), 37
    if not law.compiled:
        assert not MECHANISMS[name].is_checked()
        return
    scale, out = np.array([1.0, 0.5, 3.0]), np.empty((3, n))
    with wrapping():
        law.rows(
            np.uint64(5), np.uint64(2), np.uint64(NOISE), np.uint64(9), clients.astype(np.uint64),
            scale, scale[:0], out,
        )  # fmt: skip
    want = CounterRandomness(5, 2).unit_noise(9, clients, n, law=law.quantile) * scale[:, None]
    np.testing.assert_allclose(out, want, rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(
        of(name).unit(CounterRandomness(5, 2), 9, clients, n) * scale[:, None], want
    )


@built_in
def test_noise_that_leaves_a_client_has_the_law(name):
    pytest.importorskip("opendp")
    law, noise = MECHANISMS[name].law, release(np.zeros(2000), 0.25, name) / 0.25
    cdf = np.where(noise < 0, law.tail(np.abs(noise)), 1 - law.tail(np.abs(noise)))
    # Cannot be seeded by design: fails once in ten thousand million honest runs.
    assert stats.kstest(cdf, "uniform").pvalue > 1e-10


# The account --------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("epsilon", [0.1, 2.0, 7.0])
def test_a_budget_is_spent_and_not_exceeded(name, epsilon):
    mechanism = of(name, total_epsilon=epsilon)
    planned = np.array([1, 2, 7, 40])
    multipliers = mechanism.noise_multipliers(planned)
    for k, z in zip(planned.tolist(), multipliers.tolist(), strict=True):
        assert mechanism.stated(k) == epsilon
        assert z == mechanism.noise_multiplier(epsilon, k)
        assert epsilon * (1 - 2e-3) <= mechanism.compose(1 / z, k) <= epsilon * (1 + 1e-13)
    spent = mechanism.spent(multipliers, planned)
    np.testing.assert_allclose(spent, epsilon, rtol=1e-15)
    assert (spent <= epsilon).all()
    part = mechanism.spent(multipliers, planned - 1)
    assert part[0] == 0 and (part[1:] < epsilon).all() and (part[1:] > 0).all()
    assert mechanism.guarantee(epsilon).startswith(f"each client: epsilon <= {epsilon:g}")


# Runs ---------------------------------------------------------------------------------------


@every
def test_it_is_a_value_that_prints_pickles_and_describes_itself(name):
    mechanism = of(name, clip=0.5)
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism == of(name, clip=0.5)
    assert mechanism != of(name, clip=0.25) and hash(mechanism) == hash(of(name, clip=0.5))
    assert repr(mechanism).startswith(f"{type(mechanism).__name__}(total_epsilon=2.0, clip=0.5")
    described = mechanism.describe()
    assert described["name"] == name and described["clip"] == 0.5
    again = {k: v for k, v in json.loads(json.dumps(described)).items() if k != "name"}
    assert MECHANISMS[name](**again) == mechanism
    for wrong, error in ((-1.0, ValueError), (0, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="clip must be"):
            of(name, clip=wrong)


@every
def test_a_run_says_what_it_guarantees(name, tmp_path):
    result = run(algorithm(name), data(), rounds=3, seed=SECRET)
    reference = run(algorithm(name), data(), rounds=3, seed=SECRET, engine="reference")
    np.testing.assert_allclose(result.Z, reference.Z, rtol=1e-12, atol=1e-12)
    compiled = MECHANISMS[name].law.compiled
    assert result.engine == ("compiled" if compiled else "reference")
    checked = MECHANISMS[name].is_checked()
    if checked:
        assert result.guarantee.startswith("each client: epsilon <= 2 ")
        assert result.release().guarantee == result.guarantee
        assert result.history["epsilon"].tolist()[-1] == 2.0
    else:
        assert result.guarantee == OWN_MECHANISM and OWN_MECHANISM.startswith("none: ")
        assert set(result.history["epsilon"][1:]) == {np.inf}
        with pytest.raises(ValueError, match="must have a privacy guarantee to be released"):
            result.release()
    text = " ".join(str(result).split())
    assert f"{name} mechanism, gradients clipped to" in text and result.guarantee in text
    result.save(tmp_path / "result.npz")
    again = Result.load(tmp_path / "result.npz")
    assert again.guarantee == result.guarantee and again.algorithm == result.algorithm
    np.testing.assert_array_equal(again.Z, result.Z)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(result)).Z, result.Z)


@every
def test_the_rules_of_private_runs_hold_of_it(name):
    for arguments, message in (
        ({}, "rounds must be given"), ({"stopping": "released"}, "stopping must be None"),
        ({"rounds": 1, "objective": "least_squares"}, "no bound on a record's gradient"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            run(algorithm(name), data(), **arguments)
    stopped = run(algorithm(name), data(), rounds=2, seed=1, callback=lambda info: True)
    assert stopped.rounds == 2


@every
def test_it_is_swept_and_read_back(name, tmp_path):
    path = tmp_path / "runs.sqlite"
    budgets = (1.0, 4.0)
    runs = Sweep([algorithm(name, total_epsilon=e) for e in budgets], data(), rounds=2, seed=3)
    found = sweep(runs, store=path, progress=False)
    assert list(found.to_pandas()["guarantee"]) == [SHARED_SEED] * 2
    with Store(path, readonly=True) as store:
        table = store.table()
        assert table["mechanism"] == [name] * 2
        assert sorted(table["total_epsilon"]) == list(budgets)
        assert len(store.ids({"mechanism": name, "total_epsilon": 4.0})) == 1


@every
def test_the_audits_pair_is_told_apart_by_no_more_than_its_law_allows(name):
    plan = Plan(FedEPM(mechanism=of(name, clip=1.0), participation=1.0), 2, 3, 2)
    assert plan.stated == 2.0
    assert plan.epsilon(plan.planned(), 0.0) == pytest.approx(2.0, rel=2e-3)
    # Two laws as far apart as planned, by rates that are known.
    for alarm in (0.05, 0.3):
        hit = alarm
        while plan.law.apart(hit, alarm) < plan.planned():
            hit += 1e-3
        assert plan.apart(np.array([hit]), np.array([alarm]))[0] == pytest.approx(
            plan.planned(), rel=0.02
        )
        assert plan.apart(np.array([alarm]), np.array([hit]))[0] == 0.0


def test_a_users_own_sends_nothing_from_a_client(tmp_path):
    features, labels = data().client(0)
    with pytest.raises(ValueError, match="'logistic_noise' is one of your own, whose account"):
        PrivateClient(
            algorithm(LogisticMechanism.name, clip=1.0), features, labels, index=0, clients=4,
            uploads=2, path=tmp_path / "0",
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_one_mechanism_s():
    with pytest.raises(ValueError, match="'laplace' names another mechanism"):

        class Laplace(LogisticMechanism):
            name: ClassVar[str] = "laplace"

    # Without a name of its own it is no one's account.
    class Nameless(LogisticMechanism):
        pass

    with pytest.raises(TypeError, match=r"mechanism must be a .*, got Nameless"):
        FedEPM(mechanism=Nameless(total_epsilon=1.0))


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_pickles_of_before_are_read(name):
    mechanism = of(name, clip=0.5)
    now = pickle.dumps(mechanism, 0)
    module = f"c{type(mechanism).__module__}\n".encode()
    then = now.replace(module, b"cfedepm_fast.privacy.mechanisms\n")
    assert then != now and pickle.loads(then) == mechanism


def test_paths_of_before_lead_to_the_same_modules():
    for before, names in (
        ("mechanisms", ["LaplaceMechanism", "PaperNoise", "clip_rows", "upload_sensitivity"]),
        ("runs", ["GUESSED", "NOT_PRIVATE", "SIMULATED", "as_true", "check_run", "share_a_seed"]),
        ("released", ["ReleasedRun", "released"]),
        ("accounting", ["gaussian_epsilon", "laplace_epsilon", "laplace_noise_multiplier"]),
        ("release", ["release", "release_scale", "LEAST_SCALE"]),
    ):
        module = importlib.import_module(f"fedepm_fast.privacy.{before}")
        assert all(hasattr(module, name) for name in names)
    assert importlib.import_module("fedepm_fast.privacy.mechanisms") is mechanisms
    assert privacy.mechanisms is mechanisms and callable(privacy.release)
    assert privacy.PaperNoise(0.5).guarantee == NO_GUARANTEE
    with pytest.raises(TypeError, match=r"mechanism must be a .*, got PaperNoise"):
        FedEPM(mechanism=privacy.PaperNoise())
