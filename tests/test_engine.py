"""The compiled engine against the reference, and against itself in other orders."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import golden
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from problems import data_for, small_data
from runs import assert_agree, both
from scipy import sparse

from fedepm_fast import (
    FedEPM,
    FederatedData,
    Result,
    Scaffold,
    SFedAvg,
    SFedProx,
    Sweep,
    datasets,
    run,
    sweep,
)
from fedepm_fast.engine import _memory, _run
from fedepm_fast.kernels._engine_state import KEPT
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.objectives import Logistic, as_objective
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism
from fedepm_fast.stopping import RULES, NoRule, ReleasedRule, StoppingRule, TargetRule, TextRule

ALGORITHMS = (FedEPM, SFedAvg, SFedProx)


@pytest.mark.parametrize("name", ["huber", "squared_hinge", "multinomial"])
def test_objectives(name):
    objective = as_objective(name, beta=0.01, weights=[1, 0, 2, 1, 1])
    data = data_for(objective)
    for options in ({"noise": "none", "mu0": 5.0}, {"mu0": 20.0, "epsilon": 5.0}):
        algorithm = FedEPM(step="1", preset="text", lam=0.01, eta=0.5, **options)
        got, want = both(algorithm, data, objective=objective, rounds=25, seed=2)
        assert got.engine == "compiled" and got.rounds == 25
        assert_agree(got, want)


FILES = golden.files()[: 1 if JIT_DISABLED else None]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_runs(path):
    want = golden.load(path)
    algorithm, data, randomness = golden.setup(want)
    result = run(algorithm, data, randomness=randomness, engine="compiled")
    assert result.engine == "compiled" and result.rounds == want["rounds"]
    for got, name in (
        (result.history["x"], "x"), (result.history["objective"], "objective"), (result.W, "W"),
        (result.Z, "Z"), (result.history["grad_mean_sq"], "grad_mean_sq"), (result.snr, "snr"),
    ):  # fmt: skip
        assert golden.relative(got, want[name]) <= 1e-12, name
    assert result.accuracy == pytest.approx(want["accuracy"], abs=1e-12)
    conditions = ReleasedRule.conditions
    fired = [name in result.reasons for name in conditions]
    assert fired == want["stops"].astype(bool).tolist()


@st.composite
def runs(draw):
    most = 6 if JIT_DISABLED else 300
    m = draw(st.sampled_from([1, 2, 3, 7, 8, 9, 17, 100, most])) if not JIT_DISABLED else 3
    noise = draw(st.sampled_from(["standardized", "laplace", "none", None]))
    preset = draw(st.sampled_from(["released", "text"]))
    needs_two = noise == "standardized" or (noise is None and preset == "released")
    n = draw(st.sampled_from([2, 3, 8, 14, 16, 33, 130] if needs_two else [1, 2, 5, 8, 40]))
    one = draw(st.booleans())  # client a round
    participation = 1 / m if one else draw(st.sampled_from([0.2, 0.55, 1.0]))
    task = draw(st.sampled_from(["classification", "regression"]))
    data = small_data(
        m, n, draw(st.integers(0, 99)), task=task, largest=draw(st.sampled_from([1, 4, 40]))
    )
    features = data.features / np.linalg.norm(data.features, axis=0)
    if draw(st.booleans()):
        features = sparse.csr_array(np.where(np.abs(features) < features.std(), 0, features))
    data = FederatedData(features, data.labels, data.client_sizes)
    cls = draw(st.sampled_from(ALGORITHMS))
    rate = {} if cls is FedEPM else {"learning_rate": draw(st.sampled_from([0.05, 0.5]))}
    per_round = max(1, int(np.ceil(participation * m - 1e-9)))
    coverage = draw(st.sampled_from([None, -(-m // per_round), -(-m // per_round) + 2]))
    algorithm = cls(
        local_steps=draw(st.sampled_from([1, 2, 5])),
        participation=participation,
        epsilon=draw(st.sampled_from([0.1, 5.0])),
        preset=preset,
        noise=noise,
        mu0=draw(st.sampled_from([0.5, 20.0])),
        c=draw(st.sampled_from([0.0, 1e-8, 1e-3])),
        coverage_rounds=coverage,
        **rate,
    )
    rules = (
        ReleasedRule(), ReleasedRule(1e-4), TextRule(), TextRule(0.05, 1e-3), NoRule(),
    )  # fmt: skip
    arguments = {
        "objective": "logistic" if task == "classification" else "least_squares",
        "stopping": draw(st.sampled_from(rules)),
        "max_rounds": draw(st.sampled_from([0, 1, 6, 12])),
        "max_iterations": draw(st.sampled_from([None, 11])),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "trial": draw(st.integers(0, 9)),
    }
    if draw(st.booleans()):
        arguments["start"] = np.random.default_rng(0).normal(size=(m, n))
    if draw(st.integers(0, 3)) == 0 and cls is FedEPM and arguments["objective"] == "logistic":
        law = draw(st.sampled_from([LaplaceMechanism, GaussianMechanism]))
        algorithm = dataclasses.replace(
            algorithm, preset="released", noise=None, 
                mechanism=law(total_epsilon=2.0, public_scaling=True),
            start=draw(st.sampled_from(["released", "broadcast"])),
        )  # fmt: skip
        arguments |= {"stopping": None, "rounds": draw(st.sampled_from([0, 1, 5]))}
        del arguments["max_rounds"], arguments["max_iterations"]
    elif cls is FedEPM:
        start = draw(st.sampled_from([None, "own", "released", "broadcast"]))
        algorithm = dataclasses.replace(algorithm, start=start)
    return algorithm, data, arguments


@settings(
    max_examples=3 if JIT_DISABLED else 200,
    suppress_health_check=list(HealthCheck),
)
@given(runs())
def test_agrees_with_the_reference(case):
    algorithm, data, arguments = case
    got, want = both(algorithm, data, **arguments)
    assert (got.engine, want.engine) == ("compiled", "reference")
    assert_agree(got, want)


@pytest.mark.parametrize("algorithm", [cls(participation=0.3) for cls in ALGORITHMS])
@pytest.mark.parametrize("objective", ["logistic", "least_squares"])
def test_wide_rows_agree(algorithm, objective):
    task = "classification" if objective == "logistic" else "regression"
    data = small_data(5, 200 if JIT_DISABLED else 3000, task=task)
    features = data.features / np.linalg.norm(data.features, axis=0)
    data = FederatedData(features, data.labels, data.client_sizes)
    algorithm = dataclasses.replace(algorithm, mu0=20.0)
    if not isinstance(algorithm, FedEPM):
        algorithm = dataclasses.replace(algorithm, learning_rate=0.01)
    assert_agree(*both(algorithm, data, objective=objective, max_rounds=3))


# Divergence -------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [
    FedEPM(step="1/d", preset="text", noise="none", mu0=1e-3),
    FedEPM(mu0=1e-9),
    SFedAvg(learning_rate=1e3),
    SFedAvg(learning_rate=1e150, noise="none"),
    SFedProx(learning_rate=1e170, noise="none", participation=1.0),
    SFedAvg(epsilon=1e-300),
    FedEPM(epsilon=1e-300),
])  # fmt: skip
@pytest.mark.parametrize("objective", ["logistic", "least_squares"])
def test_diverging_runs_end_in_the_same_finite_state(algorithm, objective):
    data = small_data(6, 5, 3, task="classification" if objective == "logistic" else "regression")
    got, want = both(algorithm, data, objective=objective, max_rounds=60)
    assert got.diverged == want.diverged
    assert all(np.isfinite(a).all() for a in (got.x, got.W, got.Z, got.history["objective"]))
    assert_agree(got, want)


# Callbacks and rules of the user's ----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SmallEnough(StoppingRule):
    below: float = 0.0
    reasons: tuple = ("gradient_norm",)

    def fired(self, n, m, objective, grad_mean_sq):
        assert len(objective) == len(grad_mean_sq)
        return self.reasons if objective[-1] / m < self.below else ()


@pytest.mark.parametrize("algorithm", [cls(local_steps=3) for cls in ALGORITHMS])
def test_callback_sees_every_round_and_changes_nothing(algorithm):
    data = datasets.adult(clients=10, seed=2) if not JIT_DISABLED else small_data()
    seen = {}
    for name in ("compiled", "reference"):
        infos = []

        def look(info, infos=infos):
            infos.append((info.tau, info.x.copy(), len(info.objective), info.accuracy[-1],
                          info.snr[-1], info.local_time[-1]))  # fmt: skip

        plain = run(algorithm, data, max_rounds=7, engine=name)
        watched = run(algorithm, data, max_rounds=7, engine=name, callback=look)
        for field in ("x", "W", "Z"):
            np.testing.assert_array_equal(getattr(plain, field), getattr(watched, field))
        assert plain.reasons == watched.reasons and plain.rounds == watched.rounds
        np.testing.assert_array_equal(plain.history["objective"], watched.history["objective"])
        assert [info[0] for info in infos] == list(range(plain.rounds + 1))
        seen[name] = infos
    for a, b in zip(*seen.values(), strict=True):
        assert a[2] == b[2] and a[5] == b[5] == 0.0
        np.testing.assert_allclose(a[1], b[1], rtol=1e-12, atol=1e-12)
        assert a[3] == pytest.approx(b[3], abs=1e-3)
        assert a[4] == (b[4] if b[4] is None else pytest.approx(b[4], abs=1e-9))


@pytest.mark.parametrize("stop", [{"max_rounds": 4}, {"max_iterations": 17}, {"max_rounds": 0}])
def test_callback_and_limits_stop_alike(stop):
    data = small_data()
    for when in (0, 3, 4, 99):
        results = both(FedEPM(mu0=20.0, local_steps=4), data, stopping="none",
                       callback=lambda info, when=when: info.tau >= when, **stop)  # fmt: skip
        assert_agree(*results)


@pytest.mark.parametrize("below", [0.0, 0.7, 0.68])
def test_own_rule(below):
    data = small_data()
    rule = SmallEnough(below)
    assert_agree(*both(FedEPM(mu0=5.0, noise="none"), data, stopping=rule, max_rounds=9))
    # Each of 108 steps of this rate, far beyond what is stable, multiplies what rounding left.
    assert_agree(*both(SFedAvg(learning_rate=1e3), data, stopping=rule, max_rounds=9), rtol=1e-8)


def test_target_rule():
    data = small_data()
    for algorithm in (FedEPM(mu0=5.0, noise="none"), SFedAvg(learning_rate=0.1), Scaffold()):
        whole = run(algorithm, data, rounds=9)
        f = whole.history["objective"] / whole.n_clients
        for tau in (0, 4, 9):
            target = float(f[tau]) + 1e-12  # the reference agrees to rounding
            rule, first = TargetRule(target), int(np.argmax(f <= target))
            for result in both(algorithm, data, stopping=rule, max_rounds=9):
                assert (result.rounds, result.reasons) == (first, ("target",)), algorithm.name
                assert result.message.startswith("the objective has come down to the target")
        never = run(algorithm, data, stopping=TargetRule(float(f.min()) - 1.0), max_rounds=9)
        assert never.reasons == ("max_rounds",)
        assert np.array_equal(never.x, whole.x)


def test_target_rule_in_sweeps(tmp_path):
    cells = Sweep(FedEPM(noise="none"), "adult", clients=20, stopping=TargetRule(0.6))
    table = sweep(cells, store=tmp_path / "s.sqlite", progress=False).table()
    assert table["reasons"] == ["target"] and table["target"] == [0.6]
    assert table["mean_objective"][0] <= 0.6
    given = {"algorithm": {"noise": "none"}, "data": {"clients": 20}}
    same = Sweep.from_dict({**given, "stopping": {"rule": "target", "target": 0.6}})
    assert same[0].run_id == cells[0].run_id
    with pytest.raises(ValueError, match="stopping must say which target"):
        Sweep.from_dict({**given, "stopping": "target"})


def test_reasons_of_an_own_rule(tmp_path, monkeypatch):
    data, reasons = small_data(), ("low enough", "gradient_norm")
    rule = SmallEnough(0.68, reasons)
    algorithm = FedEPM(mu0=5.0, noise="none")
    results = both(algorithm, data, stopping=rule, callback=lambda info: info.tau == 99)
    assert_agree(*results)
    for result in results:
        assert 0 < result.rounds < 99 and result.reasons == reasons
        assert result.settings["stopping"] == "SmallEnough"
        assert result.message == "low enough; the gradient is small"
        assert "low enough" in str(result) and "low enough" in repr(result)
        result.save(tmp_path / "r.npz")
        assert str(Result.load(tmp_path / "r.npz")) == str(result)
    monkeypatch.setitem(RULES, "SmallEnough", SmallEnough)
    table = sweep(Sweep(algorithm, data, stopping=rule)).table()
    assert table["reasons"] == ["low enough+gradient_norm"]
    assert (table["stopping"], table["below"]) == (["SmallEnough"], [0.68])


@pytest.mark.parametrize("found", [None, True, "low", 3, ("low", 3), {"low"}, ("",), ["a+b"]])
def test_what_a_rule_may_not_return_is_told(found):
    message = "fired of the stopping rule SmallEnough must return a tuple of strings, .*, got"
    for name in ("compiled", "reference"):
        with pytest.raises((TypeError, ValueError), match=message):
            run(FedEPM(), small_data(), stopping=SmallEnough(1e9, found), engine=name)


def test_what_callbacks_see_is_read_only_and_stays_true():
    names = ("objective", "grad_mean_sq", "accuracy", "elapsed", "local_time", "snr")
    for engine_name in ("compiled", "reference"):
        kept, copies = [], []

        def look(info, kept=kept, copies=copies):
            kept.append(info)
            copies.append((info.x.copy(), *(list(getattr(info, name)) for name in names)))
            for change in (
                lambda: info.x.fill(0.0),
                lambda: info.objective.append(0.0),
                lambda: info.objective.__setitem__(0, 0.0),
                lambda: setattr(info, "objective", []),
            ):
                with pytest.raises((ValueError, AttributeError)):
                    change()

        result = run(FedEPM(), small_data(), rounds=4, engine=engine_name, callback=look)
        for tau, (info, (x, *values)) in enumerate(zip(kept, copies, strict=True)):
            assert info.tau == tau
            np.testing.assert_array_equal(info.x, x)
            np.testing.assert_array_equal(x, result.history["x"][tau])
            assert [list(getattr(info, name)) for name in names] == values
            assert info.objective == result.history["objective"][: tau + 1].tolist()
            assert info.local_time[:-1] == result.history["local_time"][:tau].tolist()
            assert info.local_time[-1] == 0.0 and len(info.snr) == tau + 1
            with pytest.raises(IndexError, match="is outside of"):
                info.objective[tau + 1]


def test_accuracy_of_the_last_round_only():
    data = small_data()
    full = run(FedEPM(mu0=20.0), data, rounds=4)
    for result in both(FedEPM(mu0=20.0), data, rounds=4, every_accuracy=False):
        assert result.accuracy == full.accuracy
        assert np.isnan(result.history["accuracy"][:-1]).all()
    regression = small_data(task="regression")
    for result in both(FedEPM(mu0=20.0), regression, objective="least_squares", rounds=2,
                       every_accuracy=False):  # fmt: skip
        assert "accuracy" not in result.history and result.accuracy is None


@pytest.mark.skipif(JIT_DISABLED, reason="nothing is compiled")
@pytest.mark.parametrize("callback", ["None", "lambda info: False"])
def test_times_begin_when_everything_is_compiled(callback):
    """In a process that has compiled or loaded nothing before."""
    program = f"""
import gc, time
from numba.core.dispatcher import Dispatcher
from problems import small_data
from fedepm_fast import FedEPM, run
from fedepm_fast.engine import _run

known = []

def clock():
    found = [d for d in gc.get_objects() if isinstance(d, Dispatcher)]
    known.append(sum(len(d.overloads) for d in found))
    return time.perf_counter()

_run.perf_counter = clock
run(FedEPM(), small_data(), rounds=2, callback={callback})
assert len(known) > 2 and known[0] == known[-1] > 5, known
"""
    path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_what_has_no_kernels_is_left_to_the_reference():
    class Own(Logistic):
        pass

    data = small_data()
    assert run(FedEPM(), data, objective=Own(), rounds=1).engine == "reference"
    with pytest.raises(ValueError, match="no kernels for FedEPM with the objective 'logistic'"):
        run(FedEPM(), data, objective=Own(), rounds=1, engine="compiled")
    with pytest.raises(ValueError, match="engine must be one of"):
        run(FedEPM(), data, engine="fast")


# The same bits ------------------------------------------------------------------------------


def bits(result):
    return tuple(
        a.tobytes()
        for a in (result.x, result.W, result.Z, result.snr_clients,
                  *(result.history[k] for k in sorted(result.history)
                    if k not in ("elapsed", "local_time")))
    )  # fmt: skip


CASES = [
    (cls(local_steps=4), seed, trial) for cls in ALGORITHMS for seed, trial in ((0, 0), (1, 5))
]


def one(case):
    algorithm, seed, trial = case
    data = small_data(9, 14, seed)
    return bits(run(algorithm, data, seed=seed, trial=trial, max_rounds=20))


def test_same_bits_in_threads_and_in_any_order():
    want = [one(case) for case in CASES]
    assert len(set(want)) == len(want)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, CASES * 3)) == want * 3
        assert list(pool.map(one, CASES[::-1])) == want[::-1]


@pytest.mark.parametrize("piece", [1, 3])
def test_same_bits_for_any_length_of_a_piece(piece, monkeypatch):
    want = [one(case) for case in CASES]
    monkeypatch.setattr(_run, "_PIECE", piece)
    assert [one(case) for case in CASES] == want
    monkeypatch.setattr(_run, "_PIECE", 512)
    monkeypatch.setattr(_run, "_PIECE_NUMBERS", 20)
    assert [one(case) for case in CASES] == want


@pytest.mark.filterwarnings("ignore::fedepm_fast.DivergenceWarning")
def test_a_run_that_breaks_is_done_again_up_to_there_whatever_a_piece_holds(monkeypatch):
    breaking, lengths, new = FedEPM(alpha=1e10, local_steps=4), [], _run.arrays.new_history
    want = run(breaking, small_data(), rounds=60)
    assert want.diverged and want.rounds == 7
    monkeypatch.setattr(_run, "_PIECE", 3)
    monkeypatch.setattr(
        _run.arrays, "new_history", lambda rounds, n: lengths.append(rounds) or new(rounds, n)
    )
    assert bits(run(breaking, small_data(), rounds=60)) == bits(want)
    assert lengths[-1] == 8  # not in the memory of a piece


def test_a_run_within_another_has_memory_of_its_own():
    data = small_data()
    alone, other = (run(FedEPM(), data, rounds=4, seed=seed) for seed in (1, 2))
    within = []

    def again(info):
        within.append(run(FedEPM(), data, rounds=4, seed=2))

    assert bits(run(FedEPM(), data, rounds=4, seed=1, callback=again)) == bits(alone)
    assert len(within) == 5 and {bits(result) for result in within} == {bits(other)}


def test_results_are_their_own_before_another_run_can_have_the_memory(monkeypatch):
    data, give_back = small_data(), _memory.give_back

    def at_once(memory):  # a run in a signal's handler, say
        monkeypatch.undo()
        give_back(memory)
        run(FedEPM(), data, rounds=4, seed=2)

    want = bits(run(FedEPM(), data, rounds=4, seed=1))
    monkeypatch.setattr(_memory, "give_back", at_once)
    assert bits(run(FedEPM(), data, rounds=4, seed=1)) == want


def test_memory_is_that_of_a_run_that_has_ended():
    first, second = (_memory.take(3, 2, 1, 0, 5, 0, lambda: None) for _ in range(2))
    assert first.state.W is not second.state.W
    assert first.state.kept.shape == (1, 3, 2) and len(first.history.objective) == 5
    _memory.give_back(second)
    assert _memory.take(3, 2, 1, 0, 5, 0, lambda: None).state.W is second.state.W
    assert _memory.take(3, 2, 1, 0, 4, 0, lambda: None).state.W is not second.state.W
    large = _memory.take(KEPT, 2, 0, 0, KEPT, 0, lambda: None)
    _memory.give_back(large)
    assert len(large.history.objective) == 0 and not _memory.is_kept(large.state)
    assert _memory.take(KEPT, 2, 0, 0, KEPT, 0, lambda: None).state.W is not large.state.W
