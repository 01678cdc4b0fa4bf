"""``fedepm compare --all``: every algorithm on the same data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import fedepm

from fedepm_fast.algorithms import ALGORITHMS, label_of

WHERE = ("compare", "--all", "--clients", 10, "--max-rounds", 6)


def test_every_algorithm_is_a_row_without_noise(capsys, tmp_path):
    code, out, err = fedepm(capsys, *WHERE, "--seed", 1, "--out", tmp_path)
    assert code == 0, err  # though some end above their start, which is what it shows
    lines = out.splitlines()
    assert max(len(line) for line in lines if not line.startswith("wrote")) <= 80
    assert "\nno noise\n" in out and "noise, epsilon" not in out
    assert "\ngradients and what is sent (uploads): of one client, in the mean of all\n" in out
    rows = [line for line in lines if line.rstrip().endswith(" s") and " kB " in line]
    record = json.loads((tmp_path / "summary.json").read_text())
    known = {run["algorithm"]: run for run in record["runs"]}
    assert {*known} | {*record["skipped"]} == {*ALGORITHMS}
    assert {"fedepm", "curvature", "scaffold", "sfedavg", "sfedprox"} <= {*known}
    assert len(rows) == len(known)
    ranked = sorted(known, key=lambda name: known[name]["mean_objective"])
    for row, name in zip(rows, ranked, strict=True):
        label, numbers = label_of(name), row.removeprefix(label_of(name)).split()
        assert row.startswith(f"{label} "), row
        sent = f"{known[name]['bytes_up'] / 10 / 1e3:.3g}"
        assert numbers[-4:-2] == [sent, "kB"], row
        assert str(known[name]["rounds"]) in numbers
    for name in known:
        assert (tmp_path / f"{name}.npz").exists()


def test_all_is_the_default_for_other_data_than_the_papers(capsys):
    options = ("--data", "synthetic", "--clients", 3, "--features", 4, "--rounds", 1)
    code, out, err = fedepm(capsys, "compare", *options)
    assert code == 0 and out.splitlines()[-1] == "  default for data other than Adult: --all"
    of_all = fedepm(capsys, "compare", "--all", *options, "--json")
    record = json.loads(of_all[1])
    assert {run["algorithm"] for run in record["runs"]} | {*record["skipped"]} == {*ALGORITHMS}
    by_default = json.loads(fedepm(capsys, "compare", *options, "--json")[1])
    assert [run["x"] for run in by_default["runs"]] == [run["x"] for run in record["runs"]]
    assert err == of_all[2]
    papers = ("--clients", 50, "--rounds", 1, "--json")
    names = [run["algorithm"] for run in json.loads(fedepm(capsys, "compare", *papers)[1])["runs"]]
    assert names == ["fedepm", "sfedprox", "sfedavg"]


def test_those_that_the_data_are_not_for_are_named(capsys, tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},{k % 4}" for k, (a, b) in enumerate(rng.normal(size=(60, 2)))]
    (tmp_path / "counts.csv").write_text("a,b,visits\n" + "\n".join(lines))
    options = ("--data", tmp_path / "counts.csv", "--objective", "poisson", "--clients", 3)
    code, out, err = fedepm(capsys, "compare", "--all", *options, "--rounds", 1, "--json")
    record = json.loads(out)
    assert code == 0 and "fedadmm" in record["skipped"]  # it needs a bound of the curvature
    for name in record["skipped"]:
        assert f"{name} was not run: " in err
    assert "fedavg was not run: --learning-rate must be a number" in err  # as it is typed
    assert {"fedepm", "curvature"} <= {run["algorithm"] for run in record["runs"]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--private", "--total-epsilon", 1), "--all and --private exclude each other"),
        (("--algorithms", "fedepm"), "--all and --algorithms exclude each other, got fedepm"),
        (("--lam", -1), "lam must be"),
        (("--memory", "x"), "a valid integer"),
    ],
)
def test_what_is_refused(capsys, options, message):
    code, _, err = fedepm(capsys, *WHERE, *options)
    assert code != 0 and message in err


@pytest.mark.parametrize(
    ("gap", "text"),
    [(None, "-"), (-1e-9, "0.000 %"), (0.0, "0.000 %"), (-0.2, "-0.200 %"), (3e4, "3.00e+04 %")],
)
def test_gaps_for_people(gap, text):
    from fedepm_fast.cli._common import percent

    assert percent(gap) == text
