"""What a result holds, prints and stores."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from problems import small_data

from fedepm_fast import DivergenceWarning, FedEPM, FederatedData, Result, SFedAvg, datasets, run
from fedepm_fast._words import advice_on
from fedepm_fast.algorithms import CurvatureFedEPM, FedAvg, FedProx
from fedepm_fast.data import standardised
from fedepm_fast.data.partition import EqualParts
from fedepm_fast.privacy import LaplaceMechanism, plan
from fedepm_fast.runner import make_problem


@pytest.fixture(scope="module")
def result() -> Result:
    return run(FedEPM(mu0=100.0), small_data(), seed=2, rounds=6)


def test_measures_follow_from_the_arrays(result):
    assert result.mean_objective == result.history["objective"][-1] / 6
    assert result.iterations == 72
    took_part = ~np.isnan(result.snr_clients)
    noise = np.linalg.norm(result.Z - result.W, axis=1)[took_part]
    signal = np.linalg.norm(result.W, axis=1)[took_part]
    np.testing.assert_allclose(result.snr_clients[took_part], np.log10(signal / noise), rtol=1e-9)
    assert result.snr == result.snr_clients[took_part].min() == result.history["snr"][-1]
    assert result.local_time == result.history["local_time"][:6].mean()
    assert (np.diff(result.history["elapsed"]) > 0).all()
    assert result.total_time >= result.history["elapsed"][-1]
    np.testing.assert_array_equal(result.history["x"][-1], result.x)


def test_prints_on_one_screen(result):
    lines = str(result).splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    text = " ".join(str(result).split())
    assert lines[0] == "FedEPM on 6 clients, 5 features"
    assert f"{result.mean_objective:.6f}" in text
    assert "not differentially private" in text
    assert "6 (72 local iterations)" in text
    assert "seed 2" in text


@pytest.mark.parametrize("share", [0.03, 0.97])
def test_a_rare_class_is_seen(share, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), np.arange(200) < 200 * share
    data = FederatedData.split(X, np.where(y, "b", "a"), EqualParts(5))
    found = run(FedEPM(mu0=10.0), data, rounds=2)
    assert found.largest_class == found.summary()["largest_class"] == data.largest_class == 0.97
    text = " ".join(str(found).split())
    assert f"accuracy {found.accuracy:.4f} (of the training rows; largest class 0.9700)" in text
    assert "objective logistic, no intercept added, beta 0.001 (weight beta/d per client)" in text
    assert found.to_dict()["intercept"] is False
    # An intercept that was added is said, of whatever was run.
    ones = standardised(data)
    for found in (
        run(FedEPM(mu0=10.0), ones, rounds=2), run(CurvatureFedEPM(), ones, rounds=2),
        plan(1.0, data.client_sizes, 4).run(ones, public_scaling=True),
    ):  # fmt: skip
        text = " ".join(str(found).split())
        assert "logistic, an intercept added as the last feature, beta" in text
        assert "no intercept" not in text and found.summary()["intercept"] is True
        found.save(tmp_path / "ones.npz")
        assert Result.load(tmp_path / "ones.npz").to_dict()["intercept"] is True
    found = run(FedEPM(mu0=10.0), data, rounds=2)
    # A file of before does not say it.
    del found.data["largest_class"]
    found.save(tmp_path / "before.npz")
    before = Result.load(tmp_path / "before.npz")
    assert before.largest_class is None and "(of the training rows)" in str(before)


def test_three_classes_and_numbers():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 5 // 2  # 8, 8 and 4 of each
    data = FederatedData.split(X, y, EqualParts(2), task="multiclass")
    found = run(FedEPM(mu0=10.0), data, objective="multinomial", rounds=1)
    assert found.largest_class == 0.4 and "multinomial, no intercept added, beta" in str(found)
    data = FederatedData.split(X, y, EqualParts(2), task="regression")
    found = run(FedEPM(mu0=10.0), data, objective="least_squares", rounds=1)
    assert found.largest_class is None and "largest class" not in str(found)


def test_save_and_load(result, tmp_path):
    path = tmp_path / "result.npz"
    result.save(path)
    again = Result.load(path)
    for name in ("x", "W", "Z", "snr_clients"):
        np.testing.assert_array_equal(getattr(again, name), getattr(result, name))
    assert again.history.keys() == result.history.keys()
    for name, values in result.history.items():
        np.testing.assert_array_equal(again.history[name], values)
    assert str(again) == str(result)
    assert again.to_dict() == result.to_dict()
    assert [p.name for p in tmp_path.iterdir()] == ["result.npz"]


@pytest.mark.parametrize("write", [Result.save, Result.to_csv])
def test_where_nothing_can_be_written_is_told(result, tmp_path, write):
    for path, message in (
        (tmp_path / "a" / "b" / "r.npz", f"r.npz cannot be written: there is no folder {tmp_path}"),
        (tmp_path, "is a folder, not a file to write to"),
        ("/proc/r.npz", "/proc/r.npz cannot be written: No such file or directory"),
    ):
        with pytest.raises(OSError, match=message):
            write(result, path)
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_are_named(result, tmp_path):
    path = tmp_path / "result.npz"
    result.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"result\.npz is not a complete result file"):
        Result.load(path)
    path.write_text("nothing")
    with pytest.raises(ValueError, match="not a complete result file"):
        Result.load(path)
    with pytest.raises(FileNotFoundError, match="no result at"):
        Result.load(tmp_path / "other.npz")


def test_any_damage_is_told_or_harmless(result, tmp_path, rng):
    path = tmp_path / "result.npz"
    result.save(path)
    content = path.read_bytes()
    want = json.dumps(result.to_dict())
    told = 0
    for k in range(400):
        damaged = bytearray(content)
        if k % 4:
            # Names and sizes are at the end, one bit in two of which is to be hit.
            low = rng.choice([0, len(content) - 1500])
            damaged[rng.integers(low, len(content))] ^= 1 << rng.integers(8)
        else:
            del damaged[rng.integers(len(content)) :]
        path.write_bytes(damaged)
        try:
            assert json.dumps(Result.load(path).to_dict()) == want  # dates, and the like
        except ValueError as error:
            told += 1
            assert str(error) == f"{path} is not a complete result file, as Result.save writes it"
    assert told > 300


def test_a_newer_format_is_refused(result, tmp_path):
    path = tmp_path / "result.npz"
    result.save(path)
    with np.load(path) as archive:
        files = dict(archive)
    meta = json.loads(str(files["meta"]))
    files["meta"] = np.array(json.dumps({**meta, "format": 99}))
    np.savez(path, **files)
    with pytest.raises(ValueError, match="has format 99, this version"):
        Result.load(path)


def test_json_and_csv(result, tmp_path):
    record = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert record["rounds"] == 6
    assert record["parameters"]["local_steps"] == 12
    np.testing.assert_array_equal(record["x"], result.x)
    path = tmp_path / "history.csv"
    result.to_csv(path)
    table = np.genfromtxt(path, delimiter=",", names=True)
    np.testing.assert_array_equal(table["objective"], result.history["objective"])
    np.testing.assert_array_equal(table["round"], np.arange(7))
    np.testing.assert_array_equal(table["mean_objective"], result.history["objective"] / 6)
    assert np.isnan(table["snr"][0])


def test_to_pandas(result):
    table = result.to_pandas()
    assert list(table.index) == list(range(7))
    np.testing.assert_array_equal(table["objective"], result.history["objective"])
    np.testing.assert_array_equal(table["mean_objective"], result.history["objective"] / 6)


def test_regression_has_no_accuracy(tmp_path):
    result = run(
        SFedAvg(learning_rate=0.01, noise="none"),
        small_data(task="regression"),
        objective="least_squares",
        rounds=2,
    )
    assert result.accuracy is None
    assert "accuracy" not in result.history
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["accuracy"] is None
    result.save(tmp_path / "r.npz")
    assert Result.load(tmp_path / "r.npz").accuracy is None


def test_before_any_round():
    result = run(FedEPM(), small_data(), rounds=0)
    assert result.rounds == 0 and math.isnan(result.snr) and result.local_time == 0
    json.dumps(result.to_dict(), allow_nan=False)
    assert "0 (0 local iterations)" in str(result)


def test_repr(result):
    assert repr(result).startswith(f"<Result fedepm: f/m={result.mean_objective:.6g}, rounds=6")


# Where a run ended -------------------------------------------------------------------------


def ending(result: Result, means, start, slack=0.0) -> Result:
    """`result` with other values of f/m."""
    history = {**result.history, "objective": 6 * np.array(means)}
    return dataclasses.replace(
        result, history=history, rounds=len(means) - 1, start_objective=6 * start, slack=6 * slack
    )


@pytest.mark.parametrize(
    ("means", "start", "slack", "end"),
    [
        ([0.70, 0.60, 0.55], 0.69, 0.0, ""),
        ([0.67, 0.56, 1.547], 0.69, 0.0, "above its start"),
        ([0.70, 0.66, 0.697], 0.69, 0.0, "above its start"),
        # Noise made the first point worse than the end is, which is still above the start.
        ([900.0, 90.0, 9.0], 0.69, 0.0, "above its start"),
        ([0.70, math.inf], 0.69, 0.0, "above its start"),
        ([0.70, 0.30, 0.55], 0.69, 0.0, "far above its best"),
        ([0.70, 0.55, 0.62], 0.69, 0.0, ""),
        # More than half of a fall that is nothing beside f is given back.
        ([0.70, 0.63, 0.68], 0.69, 0.0, ""),
        # From a start near the optimum noise leads away.
        ([0.57, 0.55, 0.57], 0.55, 0.03, ""),
        ([0.57, 0.55, 0.59], 0.55, 0.03, "above its start"),
        ([0.70], 0.69, 0.0, ""),
    ],
)
def test_where_a_run_ended_is_told(result, means, start, slack, end):
    found = ending(result, means, start, slack)
    assert found.diverged == (end == "above its start")
    assert (f"the run ended {end}: " in found.warning) == bool(end) == bool(found.warning)
    assert found.warning in found.message
    summary = found.summary()
    assert summary["warning"] == found.warning and summary["diverged"] == found.diverged
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_little_above_the_start_is_told_and_not_diverged(result):
    found = ending(result, [0.70, 0.66, 0.695], 0.69)
    assert found.ended_above_start and not found.diverged
    assert "the run ended above its start: f(x)/m = 0.695 after round 2, 0.69 at" in found.warning


def test_the_first_round_is_not_taken_for_the_start(result):
    found = ending(result, [0.589, 0.66, 0.70], 0.6931)
    assert "0.6931 at the start, 0.589 at its best, after its first round; " in found.warning
    later = ending(result, [0.66, 0.589, 0.70], 0.6931)
    assert "0.6931 at the start, 0.589 at its best (round 1)" in later.warning


def test_numbers_of_a_run_that_ended_above_its_start(tmp_path):
    data = datasets.adult(clients=3, seed=0)
    for engine in ("compiled", "reference"):
        with pytest.warns(DivergenceWarning, match="the run ended above its start") as caught:
            found = run(FedEPM(), data, seed=0, engine=engine)
        assert len(caught) == 1 and caught[0].filename == __file__
        assert found.diverged and found.ended_above_best
        assert found.reasons == ("objective_and_gradient_rise",)
        told = "f(x)/m = 1.547 after round 3, 0.6931 at the start, 0.5617 at its best (round 2)"
        assert told in found.warning and told in " ".join(str(found).split())
        assert "mu0 of 11 or more" in found.warning  # which helps
        assert found.start_objective == pytest.approx(3 * math.log(2), rel=1e-14)
    assert run(FedEPM(mu0=11.0), data, seed=0).mean_objective < 0.5
    found.save(tmp_path / "r.npz")
    assert Result.load(tmp_path / "r.npz").warning == found.warning


def test_a_run_from_the_optimum_may_end_a_little_above_it():
    data = datasets.adult(clients=100, seed=0)
    best = run(FedEPM(), data, seed=0)
    again = run(FedEPM(), data, seed=1, start=best.x)
    assert again.mean_objective > best.mean_objective and again.warning == ""
    assert again.start_objective == pytest.approx(100 * best.mean_objective, rel=1e-12)
    assert again.slack == pytest.approx(5 * math.log(2), rel=1e-14)


def test_private_runs_are_told_to_the_experimenter_and_not_changed():
    mechanism = LaplaceMechanism(total_epsilon=0.1, public_scaling=True)
    settings, rounds = {"local_steps": 1, "mu0": 0.01, "aggregation": "inverse_variance"}, 3
    data = datasets.adult(clients=3, seed=0)
    with pytest.warns(DivergenceWarning, match="ended above its start.*a larger total_epsilon"):
        found = run(FedEPM(mechanism=mechanism, **settings), data, seed=1, rounds=rounds)
    assert found.rounds == rounds and found.reasons == ("max_rounds",) and found.diverged
    assert "stable" not in found.warning  # bounds of the curvature depend on the rows


def test_a_run_without_noise_says_that_there_is_none():
    result = run(FedEPM(noise="none"), datasets.adult(clients=10, seed=0), rounds=1)
    assert result.guarantee == "none: nothing is added to the uploads"
    assert "epsilon" not in str(result) and "not differentially private" not in str(result)


def test_where_the_data_are_others_than_the_papers_eta_the_curvature_is_named():
    rows = np.random.default_rng(0).normal(size=(60, 3)) * [1, 10, 100]
    theirs = FederatedData.split(rows, (rows[:, 0] > 0).astype(float), EqualParts(3))
    named = "or try CurvatureFedEPM, which has no step to choose"
    with pytest.warns(DivergenceWarning, match=named):
        run(FedEPM(), theirs, seed=0)
    with pytest.warns(DivergenceWarning) as caught:
        run(FedEPM(), datasets.adult(clients=5, seed=3), seed=3)
    assert named not in str(caught[0].message)


def test_what_can_help_is_said_whether_a_parameter_is_proposed_or_not():
    stable = FedEPM(preset="text", mu0=100.0)
    problem = make_problem(stable, datasets.adult(clients=50, seed=0))
    assert advice_on(stable, problem).startswith("the local steps are stable with this mu0; ")
    assert advice_on(FedEPM(mu0=1e-3), problem).startswith("a penalty parameter mu0 of ")
    for algorithm in (stable, FedEPM(mu0=1e-3)):
        assert advice_on(algorithm, problem).endswith("fewer local_steps can help")


def test_batches_rates_and_weights_are_in_the_words():
    data = small_data()
    text = str(run(FedAvg(batch_size=3, rate_scale=0.5), data, rounds=2, client_weight="size"))
    assert "local epochs 5 of batches of 3 rows, learning rate lipschitz x 0.5" in " ".join(
        text.split()
    )
    assert "2 (10 local epochs)" in text and "clients weighed by size" in " ".join(text.split())
    whole = " ".join(str(run(FedProx(learning_rate=0.1), data, rounds=1)).split())
    assert "local epochs 5 of all rows, learning rate 0.1, prox" in whole
