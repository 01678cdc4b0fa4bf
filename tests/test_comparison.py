"""A small part of bench/comparison.py: what a cell holds, and that its tables say what it holds."""

from __future__ import annotations

import csv
import importlib
import math
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from fedepm_fast import run
from fedepm_fast.stopping import TargetRule

pytest.importorskip("sklearn")
BENCH = Path(__file__).parents[1] / "bench"
NAMES = ("paper", "curvature", "scaffold", "sfedavg")


@pytest.fixture(scope="module")
def bench():
    """The modules of the comparison, by name, with fewer seeds and values."""
    sys.path.insert(0, str(BENCH))
    before = {*sys.modules}
    found = {
        name: importlib.import_module(f"comparison_{name}")
        for name in ("problems", "runs", "costs", "report", "figures")
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(found["runs"], "SEEDS", (0, 1, 2))
        patch.setattr(found["runs"], "VALUES", 5)
        patch.setattr(found["runs"], "WRONG_SEEDS", (0, 1))
        patch.setattr(found["report"], "SEEDS", found["runs"].SEEDS)
        patch.setattr(found["costs"], "WRONG_SEEDS", found["runs"].WRONG_SEEDS)
        yield found
    sys.path.remove(str(BENCH))
    for name in {*sys.modules} - before:
        if name.startswith(("comparison", "battery")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def folder(bench, tmp_path_factory):
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(scope="module")
def chosen(bench):
    return [s for s in bench["runs"].settings() if s[:3] == ("label skew 1", 10, "raw")]


@pytest.fixture(scope="module")
def cells(bench, folder, chosen):
    runs = bench["runs"]
    assert runs.do(chosen[:2], folder, NAMES) == 8
    assert runs.do(chosen, folder, NAMES) == 4  # what was finished is not done again
    return runs.load(folder, NAMES, chosen)


def test_what_it_compares(bench):
    from fedepm_fast.algorithms import ALGORITHMS

    every = bench["runs"].contenders()
    own = {n for n, cls in ALGORITHMS.items() if cls.__module__.startswith("fedepm_fast.")}
    assert {*every} == own | {"paper"}
    assert all(who.algorithm.describe()["noise"] == "none" for who in every.values())
    assert len(list(bench["runs"].settings())) == 7 * 2 * 2 * 3


@pytest.mark.parametrize("coordinates", ["raw", "whitened"])
@pytest.mark.parametrize("name", ["sparse CSR", "label skew 0.1", "covariate shift"])
def test_problems_are_functions_of_their_seed(bench, name, coordinates):
    a, b, c = (bench["problems"].posed(name, 10, coordinates, seed) for seed in (3, 3, 4))
    assert (a.start, a.best) == (b.start, b.best) != (c.start, c.best)
    assert a.problem.n_clients == 10 and len({*a.problem.data.client_sizes}) == 1
    assert a.start == pytest.approx(math.log(2)) and a.below(1.0) == pytest.approx(a.start)
    optimum = a.problem.optimum()
    assert a.best == pytest.approx(optimum.value / 10, rel=1e-10)
    if coordinates == "whitened":
        X = a.problem.data.features
        moments = X.T @ X / len(X)
        assert moments == pytest.approx(np.eye(len(moments)), abs=1e-6)


def test_label_skew_is_what_its_law_says(bench):
    shares = [
        y.mean()
        for seed in range(20)
        for data in [bench["problems"].posed("label skew 0.1", 100, "raw", seed).problem.data]
        for y in np.split(data.labels, 100)
    ]
    # Of a symmetric Dirichlet law of two shares: mean 1/2, variance 1/(4*(2a + 1)), and the
    # binomial one of 20 rows.
    assert np.mean(shares) == pytest.approx(0.5, abs=0.03)
    assert np.var(shares) == pytest.approx(1 / (4 * 1.2) * (1 + 0.2 / 20), rel=0.05)


def test_cells_hold_what_runs_say(bench, cells):
    assert len(cells) == 12
    for cell in cells:
        on = bench["problems"].posed(cell["problem"], cell["clients"], cell["coordinates"], 1)
        who = bench["runs"].contenders()[cell["contender"]]
        changed = {"participation": cell["participation"]}
        if cell["tuned"]:
            changed[who.tunes] = cell["tuned"]["value"]
        algorithm = bench["runs"].dataclasses.replace(who.algorithm, **changed)
        kept = cell["runs"][1]
        for k, share in enumerate(bench["runs"].SHARES):
            result = run(
                algorithm, on.problem.data, objective=on.problem.objective, seed=1,
                stopping=TargetRule(on.below(share)), max_rounds=200,
            )  # fmt: skip
            if kept["rounds"][k] is None:
                assert result.reasons != ("target",)
                continue
            assert result.reasons == ("target",) and result.rounds == kept["rounds"][k]
            assert kept["gradients"][k] == pytest.approx(result.work["gradients"] / 10)
            sent = result.work["bytes_up"] + result.work["bytes_down"]
            assert kept["bytes"][k] == pytest.approx(sent / 10)


def test_tables_and_figures(bench, cells, folder, tmp_path):
    report = bench["report"]
    said = report.report(cells, folder)
    assert "36 runs are reported: 4 contenders, 3 settings of 84" in said
    curvature = [c for c in cells if c["contender"] == "curvature"]
    assert all(r["rounds"][1] is not None for c in curvature for r in c["runs"])
    assert "| FedEPM (curvature) | 100 % | 100 % |" in said
    for name in bench["figures"].FIGURES:
        assert (folder / f"{name}.png").stat().st_size > 10_000
    with open(folder / "table.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    for row in rows:
        (cell,) = [
            c for c in cells
            if c["contender"] == row["algorithm"]
            and c["participation"] == float(row["participation"])
        ]  # fmt: skip
        reach = np.mean([r["rounds"][1] is not None for r in cell["runs"]])
        assert float(row["reach_0.01_percent"]) == pytest.approx(reach)
    page = tmp_path / "page.md"
    (tmp_path / "dark.mplstyle").write_text((BENCH.parent / "docs" / "dark.mplstyle").read_text())
    page.write_text(f"before\n{report.BEGIN}\nwhat was here\n{report.END}\nafter\n")
    report.write_page(cells, page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "what was here" not in text
    assert {p.name for p in (tmp_path / "images").iterdir()} == {
        f"which-{name}{dark}.png" for name in bench["figures"].FIGURES for dark in ("", "-dark")
    }


def test_profiles_by_hand(bench):
    def cell(name, rounds):
        runs = [{"rounds": [r, r]} for r in rounds]
        return {"problem": "p", "clients": 1, "coordinates": "raw", "participation": 1.0,
                "contender": name, "label": name, "runs": runs}  # fmt: skip

    cells = [cell("a", [10, 20, None, None]), cell("b", [20, 10, 7, None])]
    found = bench["report"].profile(cells, "rounds", 0)
    assert [found.at("a", f) for f in (1, 2, 1e9)] == [0.25, 0.5, 0.5]
    assert [found.at("b", f) for f in (1, 2, 1e9)] == [0.5, 0.75, 0.75]
    wins = bench["report"].winners(cells, "rounds", 0)
    assert wins == {("p", 1, "raw", 1.0): ["b"]}
    assert bench["report"].complete([*cells, {**cells[0], "clients": 2}], ("a", "b")) == cells
    assert bench["report"].percent(0.999) == "99.9 %" and bench["report"].percent(0.0) == "0 %"


def test_where_it_loses_by_hand(bench):
    def cell(name, rounds, clients):
        runs = [{key: [rounds, None] for key in bench["costs"].COSTS}]
        return {"problem": "p", "clients": clients, "coordinates": "raw", "participation": 1.0,
                "contender": name, "label": name, "runs": runs}  # fmt: skip

    cells = [cell("curvature", 6, 10), cell("a", 4, 10), cell("curvature", None, 100)]
    lines = bench["report"].losses([*cells, cell("a", 2, 100)])
    assert lines[0] == (
        "* rounds to 1 %: others have less in 2 of 2 settings (a in 2), by a factor of 1.5 in the "
        "median and 1.5 at worst (p, 10 clients, raw columns, participation 1); in 1 of these it "
        "does not get there, which the factors leave out."
    )
    assert lines[4] == "* rounds to 0.01 %: none has less in any of the 2 settings."
    lost = bench["report"].losses([cells[2], cell("a", 2, 100)])[0]
    assert lost == (
        "* rounds to 1 %: others have less in 1 of 1 settings (a in 1); in 1 of these it does not "
        "get there."
    )


def test_a_few_contenders_are_reported_too(bench, cells, tmp_path):
    for names in (("scaffold",), ("curvature",), ("paper", "sfedavg")):
        some = [cell for cell in cells if cell["contender"] in names]
        found = bench["report"].report(some, tmp_path)
        assert "## Where FedEPM loses" not in found and "## What to choose" in found
        assert f"{len(names)} contenders" in found


def test_a_page_anywhere_is_written_between_its_marks(bench, cells, tmp_path):
    report = bench["report"]
    page = tmp_path / "page.md"
    assert not report.has_marks(page)
    page.write_text("before\n")
    assert not report.has_marks(page)
    page.write_text(f"before\n{report.BEGIN}\n{report.END}\nafter\n")
    assert report.has_marks(page)
    report.write_page(cells, page)
    found = page.read_text()
    assert found.startswith("before\n") and found.endswith("after\n") and "4 contenders" in found
    assert {p.name for p in (tmp_path / "images").iterdir()} == {
        f"which-{name}{dark}.png" for name in ("profiles", "sensitivity") for dark in ("", "-dark")
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--algorithms", "fedavgg"], "^--algorithms must be of .*, paper, .*, got fedavgg$"),
        (["--only", "mnist"], "^--only names none of Adult, breast cancer, .*sparse CSR$"),
        (["--page", "no.md"], "^--page must be a file with the marks .*, got no.md$"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_any_work(bench, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["comparison.py", str(tmp_path / "cells"), *options])
    with pytest.raises(SystemExit, match=message):
        runpy.run_path(str(BENCH / "comparison.py"), run_name="__main__")
    assert not (tmp_path / "cells").exists()
