"""Settings by budget, the tradeoff, and the commands."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import numpy as np
import pytest
from commands import fedepm

from fedepm_fast import FedEPM, Result, datasets, run
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism
from fedepm_fast.privacy.audit import audit
from fedepm_fast.privacy.defaults import SETTINGS, private_settings
from fedepm_fast.privacy.tradeoff import Tradeoff, tradeoff

#: A seed of runs that have a guarantee.
SECRET = 987654321987


@pytest.mark.parametrize("epsilon", [1e-3, 0.25, 0.5, 1, 2, 5, 20, 1e3])
def test_settings_are_those_of_the_nearest_budget(epsilon):
    settings = private_settings(epsilon)
    nearest = min(SETTINGS, key=lambda tried: abs(np.log(tried / epsilon)))
    assert settings == SETTINGS[nearest]
    rounds = settings.pop("rounds")
    FedEPM(mechanism=LaplaceMechanism(total_epsilon=epsilon), **settings)
    settings["local_steps"] = 0
    assert SETTINGS[nearest]["local_steps"] > 0 and rounds > 0
    with pytest.raises(ValueError, match="total_epsilon must be"):
        private_settings(0)


def test_private_run_on_adult_closes_most_of_the_way(capsys, tmp_path):
    code, out, err = fedepm(
        capsys,
        "run",
        "--private",
        "--total-epsilon",
        5,
        "--clients",
        100,
        "--noise-seed",
        SECRET,
        "--stopping",
        "none",
        "--out",
        tmp_path,
    )
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    assert "each client: epsilon <= 5 (pure)" in text and "scaling taken as public" in text
    result = Result.load(tmp_path / "result.npz")
    settings = private_settings(5)
    data = datasets.adult(clients=100, seed=0)
    mechanism = LaplaceMechanism(total_epsilon=5.0, public_scaling=True)
    rounds = settings.pop("rounds")
    want = run(FedEPM(mechanism=mechanism, **settings), data, rounds=rounds, seed=SECRET)
    np.testing.assert_array_equal(result.Z, want.Z)
    # The optimum is about 0.566, the start 0.693.
    assert result.mean_objective < 0.58
    record = json.loads((tmp_path / "summary.json").read_text())
    assert record["guarantee"].startswith("each client: epsilon <= 5")
    assert out.endswith("\nof these only released.json may be shared, under its guarantee\n")


def test_what_is_released_does_not_tell_the_seed_of_the_noise(capsys, tmp_path):
    def private(*options):
        # Where the run ends is not asked: noise may lead it above its start.
        return fedepm(
            capsys,
            "run",
            "--private",
            "--total-epsilon",
            1,
            "--clients",
            5,
            "--rounds",
            1,
            *options,
        )[1]

    # The split is the given seed's, or that of 0: its clients' sizes are public.
    for options, split in ((["--seed", 5], 5), ([], 0)):
        first, second = (json.loads(private(*options, "--json")) for _ in range(2))
        sizes = datasets.adult(clients=5, seed=split).client_sizes.tolist()
        for record in (first, second):
            assert record["data"]["split_seed"] == split and record["seed"] >= 2**32
            assert record["settings"]["privacy"]["client_sizes"] == sizes
            assert record["guarantee"].startswith("each client: epsilon <= 1 (pure)")
        assert first["seed"] != second["seed"] and first["x"] != second["x"]
    given = ["--seed", SECRET, "--noise-seed"]
    for known, why in ((7, "below 2^32"), (SECRET, "that of the split as well")):
        out = " ".join(private(*given, known, "--out", tmp_path).split())
        assert "privacy guarantee none: the seed is " + why in out
        assert out.endswith("none of these may be shared: the run has no guarantee")
        assert not (tmp_path / "released.json").exists()


def test_the_help_says_which_seed_is_which(capsys):
    text = " ".join(re.sub("[│|]", " ", fedepm(capsys, "run", "--help")[1]).split())
    assert "Of the split and of the run; with --private of the split only." in text
    assert "[default: (fresh from the operating system)]" in text


def test_own_options_override_the_settings(capsys):
    code, out, _ = fedepm(
        capsys, "run", "--private", "--total-epsilon", 1, "--delta", 1e-6, "--clients", 50,
        "--rounds", 2, "--local-steps", 3, "--clip", 0.05, "--json",
    )  # fmt: skip
    record = json.loads(out)
    assert code == 0 and record["rounds"] == 2 and record["parameters"]["local_steps"] == 3
    assert record["parameters"]["mechanism"] == {
        "name": "gaussian", "total_epsilon": 1.0, "clip": 0.05, "public_scaling": True,
        "delta": 1e-6,
    }  # fmt: skip
    assert record["guarantee"].startswith("each client: epsilon <= 1 at delta 1e-06")
    assert record["seed"] != 0  # two runs must not share their noise


@pytest.mark.parametrize("options, law, delta, words", [
    ([], "laplace", None, "epsilon <= 2 (pure)"),
    (["--delta", 1e-5], "gaussian", 1e-5, "epsilon <= 2 at delta 1e-05"),
    (["--mechanism", "gaussian"], "gaussian", 1e-6, "epsilon <= 2 at delta 1e-06"),
    (["--mechanism", "laplace"], "laplace", None, "epsilon <= 2 (pure)"),
    (["--mechanism", "laplace", "--delta", 1e-5], "laplace", 1e-5, "epsilon <= 2 at delta 1e-05"),
])  # fmt: skip
def test_the_law_of_the_noise_is_named(capsys, options, law, delta, words):
    code, out, _ = fedepm(
        capsys,
        "run",
        "--private",
        "--total-epsilon",
        2,
        "--clients",
        50,
        "--noise-seed",
        SECRET,
        "--json",
        *options,
    )
    record = json.loads(out)
    assert code == 0 and words in record["guarantee"]
    made = record["parameters"]["mechanism"]
    assert (made["name"], made.get("delta")) == (law, delta)
    assert record["settings"]["privacy"]["epsilon"] == 2.0


@pytest.mark.parametrize("options, message", [
    (["--private"], "--total-epsilon must be given"),
    (["--total-epsilon", 1], "--total-epsilon needs --private"),
    (["--delta", 1e-6], "--delta needs --private"),
    (["--clip", 1], "--clip needs --private"),
    (["--mechanism", "laplace"], "--mechanism needs --private"),
    (["--private", "--total-epsilon", 1, "--mechanism", "none"], "--mechanism must be one of"),
    (["--noise-seed", 1], "--noise-seed needs --private"),
    (["--private", "--total-epsilon", 1, "--noise-seed", -1], "--noise-seed must be an integer"),
    (["--private", "--total-epsilon", 0], "--total-epsilon must be"),
    (["--private", "--total-epsilon", 1, "--delta", 1], "--delta must be"),
    (["--private", "--total-epsilon", 1, "--clip", 0], "--clip must be"),
    (["--private", "--total-epsilon", 1, "--epsilon", 1], "--private: give --total-epsilon"),
    (["--private", "--total-epsilon", 1, "--max-rounds", 9], "--private: give --rounds"),
    (["--private", "--total-epsilon", 1, "--noise", "none"], "brings its own preset"),
    (["--private", "--total-epsilon", 1, "--algorithm", "sfedavg"], "must be fedepm with"),
    (["--private", "--total-epsilon", 1, "--stopping", "released"], "--stopping must be None"),
    (["--private", "--total-epsilon", 1, "--data", "synthetic"], "depend on the data"),
    (["--private", "--total-epsilon", 1, "--objective", "least_squares", "--data", "synthetic",
      "--no-scale"], "no bound on a record's gradient"),
])  # fmt: skip
def test_bad_input_is_one_line_and_code_2(capsys, options, message):
    code, out, err = fedepm(capsys, "run", *options)
    assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1


def test_public_bounds_need_no_word(capsys):
    code, out, err = fedepm(
        capsys, "run", "--private", "--total-epsilon", 1, "--data", "synthetic", "--no-scale",
        "--clip", 1, "-q", "--clients", 4, "--noise-seed", SECRET,
    )  # fmt: skip
    # It runs, and four clients do not make up for the noise.
    assert out.startswith("<Result fedepm: ") and "rounds=4" in out and "private" not in out
    assert code == 1 and "the run ended above its start" in err


def test_tradeoff(capsys, tmp_path):
    code, out, err = fedepm(
        capsys, "tradeoff", "--epsilons", "1,20", "--trials", 2, "--clients", 20, "--out", tmp_path
    )
    assert (code, err) == (0, "") and "majority class 0.7522" in out
    rows = json.loads((tmp_path / "tradeoff.json").read_text())
    assert [(row["total_epsilon"], row["trial"]) for row in rows] == [
        (1.0, 0), (20.0, 0), (1.0, 1), (20.0, 1),
    ]  # fmt: skip
    for row in rows:
        start, end = np.log(2), row["mean_objective"]
        assert row["closed"] == pytest.approx((start - end) / (start - row["optimum"]))
    assert (tmp_path / "tradeoff.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "tradeoff.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize("options, message", [
    (["--epsilons", "1,x"], "--epsilons must be numbers"),
    (["--epsilons", "1,-2"], "--epsilons must be"),
    (["--trials", 0], "--trials must be"),
])  # fmt: skip
def test_bad_tradeoff(capsys, options, message):
    code, _, err = fedepm(capsys, "tradeoff", *options)
    assert code == 2 and message in err and len(err.splitlines()) == 1


def test_tradeoff_of_ones_own_data():
    found = tradeoff(
        lambda seed: datasets.adult(clients=5, seed=seed), epsilons=[2], trials=1, seed=7,
        public_scaling=True,
    )  # fmt: skip
    (row,) = found.rows
    assert row["seed"] == 7 and row["guarantee"].startswith("none: runs that are compared share")
    with pytest.raises(ValueError, match="epsilons must hold"):
        tradeoff(lambda seed: None, epsilons=[])


@pytest.mark.parametrize("size", [1.0, 1e5, 1e9, 1e300, -1e12])
def test_columns_of_a_tradeoff_stay_apart(size):
    row = {
        "total_epsilon": 1.2345678e-5, "mean_objective": size, "closed": -size, "accuracy": 0.5,
        "optimum": 0.25, "optimum_accuracy": 0.75, "majority": 0.5,
    }  # fmt: skip
    header, first, second, _ = str(Tradeoff([row, row | {"total_epsilon": 2}])).splitlines()
    assert len(header) == len(first) == len(second)
    names = re.split(r" {2,}", header.strip())
    assert names == ["epsilon", "f(x)/m", "closed", "worst tenth", "accuracy"]
    epsilon, mean, *shares, accuracy = first.split()
    assert (epsilon, accuracy) == ("1.23457e-05", "0.5000") and float(mean) == size
    assert all(float(share[:-1]) == -100 * size for share in shares)


def test_audit_command(capsys):
    code, out, err = fedepm(capsys, "audit", "--runs", 40, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and found["released"]["lower_bound"] > 0.1
    assert all(a["lower_bound"] <= a["stated"] for name, a in found.items() if "private" in name)
    assert fedepm(capsys, "audit", "--runs", 1)[0] == 2


@pytest.mark.parametrize("options, mechanism, own", [
    (["--total-epsilon", 2], LaplaceMechanism(total_epsilon=2.0), {}),
    (["--total-epsilon", 1, "--delta", 1e-5, "--clip", 2, "--local-steps", 3, "--mu0", 0.1],
     GaussianMechanism(total_epsilon=1.0, delta=1e-5, clip=2.0), {"local_steps": 3, "mu0": 0.1}),
    (["--total-epsilon", 1, "--mechanism", "laplace", "--delta", 1e-5],
     LaplaceMechanism(total_epsilon=1.0, delta=1e-5), {}),
])  # fmt: skip
def test_a_plan_of_ones_own_is_audited(capsys, options, mechanism, own):
    code, out, err = fedepm(
        capsys, "audit", *options, "--runs", 500, "--rounds", 2, "--features", 3, "--records", 4,
        "--confidence", 0.9, "--seed", 7, "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    settings = private_settings(mechanism.total_epsilon)
    del settings["rounds"]
    algorithm = FedEPM(mechanism=mechanism, **{**settings, **own})
    want = audit(algorithm, runs=500, rounds=2, features=3, records=4, confidence=0.9, seed=7)
    found = json.loads(out)
    assert found == {"parameters": algorithm.describe(), **asdict(want), "broken": False}
    assert 0 < found["shortfall"] < 1


def test_an_audit_says_which_lack_of_noise_it_would_refute(capsys):
    code, out, _ = fedepm(capsys, "audit", "--total-epsilon", 2)
    assert code == 0 and out.startswith("private, laplace noise, 3 uploads, 8 local steps\n")
    assert "not refuted (noise that lacks 14% would be, with a power of 90 %)" in out
    code, out, _ = fedepm(capsys, "audit", "--preset", "text", "--rounds", 1, "--runs", 600)
    assert code == 0 and "preset text, laplace noise, 1 upload" in out and "REFUTED" in out


def test_uploads_of_a_private_client_are_audited(capsys):
    pytest.importorskip("opendp")
    code, out, err = fedepm(
        capsys, "audit", "--total-epsilon", 2, "--mechanism", "gaussian", "--client", "--runs", 10,
        "--rounds", 2,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out.startswith("private, gaussian noise, PrivateClient, 2 uploads") and "1e-06" in out


@pytest.mark.parametrize("options, message", [
    (["--mechanism", "laplace"], "--total-epsilon must be given"),
    (["--delta", 1e-5], "--total-epsilon must be given"),
    (["--rounds", 2], "--rounds is of a plan: give --total-epsilon for a private one, or"),
    (["--total-epsilon", 1, "--mechanism", "cauchy"], "--mechanism must be one of"),
    (["--total-epsilon", 1, "--epsilon", 1], "--epsilon has no meaning with --total-epsilon"),
    (["--total-epsilon", 1, "--preset", "text"], "brings its own preset"),
    (["--total-epsilon", 1, "--client", "--seed", 1], "--seed has no meaning with --client"),
    (["--preset", "text", "--records", 3], "--records is of a private plan"),
    (["--preset", "text", "--client"], "--client must be False"),
    (["--noise", "none"], "--noise must not be none"),
    (["--total-epsilon", 1, "--features", 1], "--features must be"),
    (["--total-epsilon", 1, "--confidence", 1], "--confidence must be"),
])  # fmt: skip
def test_plans_that_cannot_be_audited(capsys, options, message):
    code, out, err = fedepm(capsys, "audit", *options)
    assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1
