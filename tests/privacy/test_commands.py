"""Plans, private runs, the tradeoff and audits, by their commands."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from commands import fedepm

from fedepm_fast import Multinomial, Result, datasets
from fedepm_fast.data import standardised
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism, plan
from fedepm_fast.privacy._settings import left_of, settings_for
from fedepm_fast.privacy.audit import audit
from fedepm_fast.privacy.tradeoff import Tradeoff, tradeoff

#: A seed of runs that have a guarantee.
SECRET = 987654321987


def test_a_private_run_is_the_plan_of_adult(capsys, tmp_path):
    code, out, err = fedepm(
        capsys, "run", "--private", "--total-epsilon", 1, "--noise-seed", SECRET, "--stopping",
        "none", "--out", tmp_path,
    )  # fmt: skip
    assert (code, err) == (0, "")
    data = standardised(datasets.adult(clients=100, seed=0))
    made = plan(1.0, data.client_sizes, 15)
    # The plan comes first, the guarantee of the run last.
    assert out.startswith(f"{made}\n\nFedEPM on 100 clients, 15 features\n")
    text = " ".join(out.split())
    assert text.count("each client: epsilon <= 1 at delta 1e-06") == 2
    assert "an intercept added as the last feature" in text and "no intercept" not in text
    assert "scaling taken as public" in text
    result = Result.load(tmp_path / "result.npz")
    want = made.run(data, seed=SECRET, public_scaling=True)
    np.testing.assert_array_equal(result.Z, want.Z)
    np.testing.assert_array_equal(result.x, want.x)
    assert result.rounds == made.rounds and result.accuracy > 0.8
    record = json.loads((tmp_path / "summary.json").read_text())
    assert record["guarantee"].startswith("each client: epsilon <= 1 at delta 1e-06")
    assert record["intercept"] is True
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
            *options,
        )[1]

    # The split is the given seed's, or that of 0: its clients' sizes are public.
    for options, split in ((["--seed", 5], 5), ([], 0)):
        first, second = (json.loads(private(*options, "--json")) for _ in range(2))
        sizes = datasets.adult(clients=5, seed=split).client_sizes.tolist()
        for record in (first, second):
            assert record["data"]["split_seed"] == split and record["seed"] >= 2**32
            assert record["settings"]["privacy"]["client_sizes"] == sizes
            assert record["guarantee"].startswith("each client: epsilon <= 1 at delta 1e-06")
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


def test_what_a_plan_leaves_open_is_taken(capsys):
    code, out, _ = fedepm(
        capsys, "run", "--private", "--total-epsilon", 1, "--clients", 50, "--clip", 5,
        "--participation", 0.5, "--engine", "reference", "--beta", 0.01, "--json",
    )  # fmt: skip
    record = json.loads(out)
    made = record["parameters"]
    assert code == 0 and record["engine"] == "reference" and made["participation"] == 0.5
    assert made["mechanism"]["clip"] == 5.0 and record["objective"]["beta"] == 0.01
    assert record["guarantee"].startswith("each client: epsilon <= 1 at delta 1e-06")
    assert record["intercept"] is True
    assert record["seed"] != 0  # two runs must not share their noise


@pytest.mark.parametrize("options, law, delta, words", [
    ([], "gaussian", 1e-6, "epsilon <= 2 at delta 1e-06"),
    (["--delta", 0], "laplace", None, "epsilon <= 2 (pure)"),
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
    (["--trust", "clients"], "--trust needs --private"),
    (["--private", "--total-epsilon", 1, "--trust", "none"], "--trust must be one of"),
    (["--private", "--total-epsilon", 1, "--noise-seed", -1], "--noise-seed must be an integer"),
    (["--private", "--total-epsilon", 0], "--total-epsilon must be"),
    (["--private", "--total-epsilon", 1, "--delta", 1], "--delta must be"),
    (["--private", "--total-epsilon", 1, "--clip", 0], "--clip must be"),
    (["--private", "--total-epsilon", 1, "--epsilon", 1], "--epsilon has no meaning with"),
    (["--private", "--total-epsilon", 1, "--rounds", 9], "--rounds has no meaning with --private"),
    (["--private", "--total-epsilon", 1, "--mu0", 1], "whose settings the plan makes"),
    (["--private", "--total-epsilon", 1, "--noise", "none"], "--noise has no meaning"),
    (["--private", "--total-epsilon", 1, "--moments", 1], "--moments has no meaning"),
    (["--private", "--total-epsilon", 1, "--epsilon-per-round", 1], "--epsilon-per-round has no"),
    (["--private", "--total-epsilon", 1, "--trial", 1], "--trial has no meaning with --private"),
    (["--private", "--total-epsilon", 1, "--algorithm", "sfedavg"], "must be fedepm with"),
    (["--private", "--total-epsilon", 1, "--stopping", "released"], "--stopping has no meaning"),
    (["--private", "--total-epsilon", 1, "--data", "synthetic"], "depend on the data"),
    (["--private", "--total-epsilon", 1, "--objective", "squared_hinge", "--data", "synthetic",
      "--no-scale"], "no bound on a record's gradient"),
])  # fmt: skip
def test_bad_input_is_one_line_and_code_2(capsys, options, message):
    code, out, err = fedepm(capsys, "run", *options)
    assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1


def test_public_bounds_need_no_word(capsys):
    code, out, err = fedepm(
        capsys, "run", "--private", "--total-epsilon", 1, "--data", "synthetic", "--no-scale",
        "-q", "--clients", 4, "--noise-seed", SECRET,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert f"rounds={plan(1.0, [200] * 4, 20).rounds}" in out and "Private plan" not in out


# Plans --------------------------------------------------------------------------------------


def test_a_plan_touches_no_data(capsys, monkeypatch):
    monkeypatch.setattr("fedepm_fast.cli._common.load_data", None)
    asked = ["plan", "--clients", 100, "--rows", 45222, "--columns", 15, "--total-epsilon", 1]
    code, out, err = fedepm(capsys, *asked)
    sizes = np.diff(np.arange(101) * 45222 // 100)
    made = plan(1.0, sizes, 15)
    assert (code, err, out) == (0, "", f"{made}\n") and sizes.sum() == 45222
    code, out, _ = fedepm(capsys, *asked, "--json", "--delta", 0, "--client-weight", "equal")
    record = json.loads(out)
    pure = plan(1.0, sizes, 15, delta=0, client_weight="equal")
    assert code == 0 and record["rise"] == pure.rise and record["rounds"] == pure.rounds
    assert record["short"] == pure.short > pure.rise
    assert record["algorithm"] == pure.algorithm.describe()
    code, out, _ = fedepm(capsys, *asked, "--neighbours", "client")
    assert code == 0 and out == f"{plan(1.0, sizes, 15, neighbours='client')}\n"
    assert "45,222" not in out  # sizes are hidden


def said(made):
    """The clients, rows and epsilon of a remedy, and what is said of the mean loss, as printed."""
    text = " ".join(made.split())
    found = re.search(
        r"(?:(\S+) clients(?: of as many rows each)?)?(?:, or )?(?:(\S+) rows at these clients)?"
        r"(?:, or )?(?:epsilon (\S+))?: the (mean loss is expected to end within|noise is expected "
        r"to raise the mean loss by no more than) (\S+)", text,
    )  # fmt: skip
    numbers = [text and float(text.replace(",", "")) for text in found.groups()[:3]]
    return *numbers, found[4].startswith("mean"), float(found[5])


KINDS = [
    {}, {"delta": 0.0}, {"objective": "huber"}, {"objective": "least_squares"},
    {"neighbours": "client"}, {"neighbours": "client", "delta": 0.0}, {"trust": "secure-sum"},
    {"trust": "secure-sum", "participation": 0.3}, {"neighbours": "client", "trust": "secure-sum"},
    {"client_weight": "equal", "delta": 0.0}, {"objective": Multinomial(0.0, classes=4)},
    {"objective": Multinomial(0.0, classes=4), "delta": 0.0},
    {"bounds": [[0.0], [4.0]]},
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("m, d, n, epsilon", [(3, 800, 101, 1), (40, 9000, 30, 0.2)])
def test_what_would_make_a_plan_affordable_does(kind, m, d, n, epsilon):
    def dealt(d, m):  # as the command deals rows
        return np.diff(np.arange(m + 1) * d // m)

    if "bounds" in kind:
        kind = {"bounds": np.repeat(kind["bounds"], n, axis=1)}
    made = plan(epsilon, dealt(d, m), n, **kind)
    clients, rows, larger, ends, to = said(str(made))
    assert ends and clients and larger and (rows is None) == ("neighbours" in kind)
    tried = [plan(larger, dealt(d, m), n, **kind)]
    if clients < 1e6:
        clients = int(clients)
        tried.append(plan(epsilon, dealt(clients * d // m, clients), n, **kind))
    if rows:
        tried.append(plan(epsilon, dealt(int(rows), m), n, **kind))
    # As far as Laplace noise lets runs of whole clients go.
    pure = kind == {"neighbours": "client", "delta": 0.0}
    assert to == (0.011 if pure else 0.01)
    for new in tried:
        assert new.rise <= new.short <= to < made.short
        assert new.rise < 1e-4 or new.warning == ""
    if made.warning:  # which says the same
        assert said(made.warning)[0] == said(str(made))[0]


def test_a_remedy_of_settings_and_budgets_of_ones_own():
    sizes = np.array([500, 100, 900])
    one = settings_for(2, 10.0)
    few = plan(0.1, sizes, 10, settings=one)
    clients, rows, epsilon, ends, to = said(str(few))
    assert not ends  # whose one short step leaves most of the way, whatever the noise
    assert plan(0.1, np.resize(sizes, int(clients)), 10, settings=one).rise <= to
    assert plan(epsilon, sizes, 10, settings=one).rise <= to < few.rise
    assert plan(0.1, sizes * int(rows) // 1500, 10, settings=one).rise <= to
    many = plan(100.0, sizes * 1000, 10, settings=one)
    assert "it drowns most signals" in " ".join(str(many).split())
    assert "affordable" not in str(many) and many.warning.endswith("above the optimum")
    budgets = plan([0.1, 0.2, 0.5], sizes, 10)
    clients, rows, epsilon, ends, to = said(str(budgets))
    assert ends and plan(epsilon, sizes, 10).short <= to
    # Clients of which there are more have the same budgets in turn.
    clients = int(clients)
    more = np.resize([0.1, 0.2, 0.5], clients), np.resize(sizes, clients)
    assert plan(*more, 10).short <= to < budgets.short


def test_a_plan_says_how_far_such_runs_went_on_synthetic_tables():
    sizes = np.full(20, 5000)
    for epsilon, far in ((10.0, "100%"), (0.0003, "0%")):
        made = plan(epsilon, sizes, 10)
        mean, worst = made.left
        assert 0 <= mean <= worst <= 1 and f"{1 - mean:.0%}" == far
        text = " ".join(str(made).split())
        assert f"such runs went {far} of the way to the optimum in the mean" in text
        assert ("accuracy" in text) == (epsilon == 10)
    levels = np.geomspace(1e-4, 10, 40)
    for order in (1, 2):
        assert (np.diff([left_of(order, level) for level in levels], axis=0) >= 0).all()
    own = made.settings._replace(rounds=7)
    assert plan(2.0, sizes, 10, settings=own).left is None
    assert plan(2.0, sizes, 10, objective="huber").left is None
    assert plan(2.0, sizes, 10, participation=0.5).left is None
    assert plan(2.0, sizes, 10, objective=Multinomial(0.0, classes=3), delta=0.0).left is None


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_more_noise_ends_further_above_the_optimum_whatever_the_rounds(delta):
    made = [plan(e, np.full(100, 300), 14, delta=delta) for e in np.geomspace(0.02, 30, 16)]
    short, rise = (np.array([getattr(each, name) for each in made]) for name in ("short", "rise"))
    # Settings change at levels: three steps on, at 4.3 times the budget, it is always less.
    assert (short[1:] < 1.1 * short[:-1]).all() and (short[3:] < short[:-3]).all()
    assert (rise[1:] > 1.2 * rise[:-1]).any()  # fewer rounds have less noise, and end too soon
    # About what such runs left on tables, of the same signal.
    left = np.array([each.left[0] for each in made])
    tried = left > 0.005
    assert tried.sum() >= 10
    assert (np.abs(np.log2(short[tried] / (0.15 * left[tried]))) < 1.3).all()
    own = plan(1.0, np.full(100, 300), 14, settings=made[0].settings._replace(rounds=3, kept=1))
    assert "with what its rounds leave of the way it ends" in " ".join(str(own).split())


def test_whom_a_plan_trusts():
    alone, summed = plan(0.5, [200] * 20, 10), plan(0.5, [200] * 20, 10, trust="secure-sum")
    assert "trusted            nobody: every client adds all of the noise" in str(alone)
    assert "trusted            secure sums, and 50 % of the clients" in str(summed)
    some = plan(0.5, [200] * 20, 10, trust="secure-sum", participation=0.5)
    assert "trusted            secure sums, and 50 % of the clients of each" in str(some)
    assert " server that sees secure sums only" in " ".join(str(summed).split())
    few = plan(0.1, [200] * 20, 10, trust="secure-sum")
    more = plan(0.1, [200] * int(said(str(few))[0]), 10, trust="secure-sum")
    assert more.rise <= 0.01 < few.rise


@pytest.mark.parametrize("options, message", [
    (["--clients", 10, "--rows", 5, "--columns", 2], "--rows must be"),
    (["--clients", 0, "--rows", 5, "--columns", 2], "--clients must be"),
    (["--clients", 1, "--rows", 5, "--columns", 0], "--columns must be"),
    (["--clients", 1, "--rows", 5, "--columns", 2, "--objective", "poisson"], "no bound on a"),
    (["--clients", 1, "--rows", 5, "--columns", 2, "--objective", "multinomial"],
     "--classes must be given for a private run"),
])  # fmt: skip
def test_bad_plans(capsys, options, message):
    code, out, err = fedepm(capsys, "plan", "--total-epsilon", 1, *options)
    assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1


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


def test_a_tradeoff_takes_what_a_plan_leaves_open(capsys):
    code, out, _ = fedepm(
        capsys, "tradeoff", "--epsilons", 2, "--trials", 1, "--clients", 10, "--trust",
        "secure-sum", "--honest", 1, "--neighbours", "client", "--json",
    )  # fmt: skip
    (row,) = json.loads(out)
    sizes = datasets.adult(clients=10, seed=0).client_sizes
    made = plan(2.0, sizes, 15, trust="secure-sum", honest=1.0, neighbours="client")
    assert code == 0 and (row["trust"], row["neighbours"]) == ("secure-sum", "client")
    assert (row["rounds"], row["expected_rise"]) == (made.rounds, made.rise)


def test_tradeoff_of_ones_own_data():
    found = tradeoff(
        lambda seed: standardised(datasets.adult(clients=5, seed=seed)), epsilons=[2], trials=1,
        seed=7, public_scaling=True, delta=0,
    )  # fmt: skip
    (row,) = found.rows
    made = plan(2.0, datasets.adult(clients=5, seed=7).client_sizes, 15, delta=0)
    assert (row["rounds"], row["expected_rise"], row["delta"]) == (made.rounds, made.rise, 0)
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
    (["--total-epsilon", 2, "--delta", 0], LaplaceMechanism(total_epsilon=2.0), {}),
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
    made = plan(mechanism=mechanism, client_sizes=[4], n_features=3).algorithm
    algorithm = replace(made, mechanism=mechanism, noise_l1=0.0, aggregation=None, **own)
    want = audit(algorithm, runs=500, rounds=2, features=3, records=4, confidence=0.9, seed=7)
    found = json.loads(out)
    assert found == {"parameters": algorithm.describe(), **asdict(want), "broken": False}
    assert 0 < found["shortfall"] < 1


def test_an_audit_says_which_lack_of_noise_it_would_refute(capsys):
    code, out, _ = fedepm(capsys, "audit", "--total-epsilon", 2, "--mechanism", "laplace")
    assert code == 0 and out.startswith("private, laplace noise, 3 uploads, 1 local steps\n")
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
