"""``fedepm compare``: one table of several runs, and what it writes."""

from __future__ import annotations

import json

from commands import fedepm

from fedepm_fast import FedEPM, Result, datasets, make_problem, run


def test_compare(capsys):
    code, out, err = fedepm(capsys, "compare", "--clients", 50, "--seed", 0, "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    runs = {r["algorithm"]: r for r in record["runs"]}
    data = datasets.adult(clients=50, seed=0)
    alone = run(FedEPM(), data, seed=0)
    assert runs["fedepm"]["x"] == alone.x.tolist()
    assert record["optimum"] == make_problem(FedEPM(), data).optimum().value / 50
    assert all(0 <= r["gap_percent"] < 1.5 for r in runs.values())
    assert runs["fedepm"]["rounds"] < runs["sfedprox"]["rounds"] < runs["sfedavg"]["rounds"]


def test_compare_prints_one_table_within_80_columns_and_writes(capsys, tmp_path):
    (tmp_path / "plot").mkdir()
    code, out, _ = fedepm(
        capsys, "compare", "--clients", 10, "--rounds", 2, "--trial", 3, "--lam", 1e-5,
        "--learning-rate", 1.5, "--out", tmp_path, "--plot", tmp_path / "plot" / "one.svg",
    )  # fmt: skip
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines[:-2])) <= 80 and "\x1b" not in out and "…" not in out
    cells = {line[:15].strip(): line[15:].split() for line in lines}
    results = [Result.load(tmp_path / f"{name}.npz") for name in ("fedepm", "sfedprox", "sfedavg")]
    assert ["FedEPM", "SFedProx", "SFedAvg"] in [line.split() for line in lines]
    assert "logistic, no intercept added, beta 0.001 (weight beta/d per client)" in lines
    assert "accuracy of the training rows; largest class 0.7522" in lines
    assert cells["f(x)/m"] == [f"{r.mean_objective:.6f}" for r in results]
    assert cells["rounds (CR)"] == ["2", "2", "2"]
    assert cells["accuracy"] == [f"{r.accuracy:.4f}" for r in results]
    optimum = make_problem(FedEPM(), datasets.adult(clients=10)).optimum(method="newton").value / 10
    gaps = [100 * (r.mean_objective / optimum - 1) for r in results]
    assert cells["above optimum"] == [c for gap in gaps for c in (f"{gap:.3f}", "%")]
    assert f"f*/m = {optimum:.6f}" in out
    assert [r.trial for r in results] == [3, 3, 3]
    assert results[0].algorithm["lam"] == 1e-5
    assert [r.algorithm["learning_rate"] for r in results[1:]] == [1.5, 1.5]
    written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    names = {f"{r.algorithm['name']}.{s}" for r in results for s in ("npz", "csv")}
    names |= {"summary.json"}
    assert written == names | {"compare.png", "compare.svg", "plot/one.svg"}
    assert lines[-2:] == [
        "wrote summary.json, fedepm.npz, fedepm.csv, sfedprox.npz, sfedprox.csv, sfedavg.npz, "
        f"sfedavg.csv, compare.png, compare.svg in {tmp_path}",
        f"wrote one.svg in {tmp_path / 'plot'}",
    ]


def test_compare_quiet_is_one_line_per_run(capsys):
    code, out, err = fedepm(capsys, "compare", "--clients", 50, "--rounds", 2, "--quiet")
    assert (code, err) == (0, "")
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "<Result fedepm", "<Result sfedprox", "<Result sfedavg",
    ]  # fmt: skip
    assert all(line.endswith("% above the optimum") for line in out.splitlines())


def test_compare_names_its_own_option(capsys):
    code, _, err = fedepm(capsys, "compare", "--algorithms", "foo")
    assert code == 2 and err.startswith(
        "error: --algorithms must be one of 'curvature', 'fedadmm', "
    )


def test_compare_takes_each_algorithm_once(capsys):
    code, out, err = fedepm(capsys, "compare", "--algorithms", "fedepm,sfedavg, fedepm")
    assert (code, out) == (2, "")
    assert err == "error: --algorithms must be different ones, got fedepm more than once\n"
