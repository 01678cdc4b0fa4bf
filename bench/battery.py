"""FedEPM with eta the curvature, one set of defaults on 50 problems, beside tuned averaging.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS=1 python bench/battery.py

prints a row for each problem and the goals; `--quick` takes every tenth problem, `--table FILE`
writes the rows between the marks of that page, `--plot FILE` a figure. What is measured, all
without noise: the rounds until no more than 1 %, 0.1 %, 0.01 % of the way from f(0) to the optimum
is left. The first round is 1; in round 0 the clients say f_i and its gradient at the start.

The optimum is that of BFGS and Newton's method on all rows, polished, or the least f of these runs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path as File
from time import perf_counter
from typing import Any

import numpy as np
from battery_problems import PROBLEMS, problem
from battery_rivals import Path, averaging, paper
from scipy.optimize import minimize

from fedepm_fast import CurvatureFedEPM, SFedAvg, SFedProx, run
from fedepm_fast.objectives import Problem

PARTICIPATION = (1.0, 0.5, 0.2)
SHARES = (1e-2, 1e-3, 1e-4)
ROUNDS = 200
#: Seeds of the selections; the worst counts.
SEEDS = (0, 1, 2)
BEGIN, END = "<!-- battery -->", "<!-- end of the battery -->"


@dataclass(frozen=True)
class Ours:
    """Runs of one participation: the path of the worst seed, and what came of all."""

    path: Path
    end: float
    above_start: bool
    seconds: float
    gradients: float
    """That a client computed until 0.01 %, with the first."""
    sent: float
    """Numbers that a client sent until then."""


@dataclass(frozen=True)
class Row:
    """All that was measured of a problem."""

    name: str
    shape: str
    coordinates: str
    ours: dict[float, Ours]
    rivals: dict[str, dict[float, Path]]
    early: float
    """How far above the least f of a run Newton's method and BFGS ended, to the way."""


def optimum(posed: Problem) -> float:
    """The least f/m that BFGS, Newton's method and a trust region find."""
    m, found = posed.n_clients, posed.optimum(method="newton")
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        polished = minimize(
            lambda x: posed.total_value(x) / m, found.x, method="trust-ncg",
            jac=lambda x: posed.total_gradient(x) / m,
            hessp=lambda x, v: posed.hessian_product(x, v) / m,
            options={"gtol": 1e-13, "maxiter": 100},
        )  # fmt: skip
    return min(found.value / m, float(polished.fun))


def runs(posed: Problem, participation: float) -> list[tuple[Any, float]]:
    """Results and their seconds, by seed."""
    algorithm, done = CurvatureFedEPM(participation=participation), []
    for seed in SEEDS if participation < 1 and posed.n_clients > 1 else SEEDS[:1]:
        began = perf_counter()
        result = run(
            algorithm, posed.data, objective=posed.objective, seed=seed, max_rounds=ROUNDS,
            client_weight=posed.client_weight, engine="reference", every_accuracy=False,
        )  # fmt: skip
        done.append((result, perf_counter() - began))
    return done


def summed_up(posed: Problem, done: list[tuple[Any, float]], rho: float, best: float) -> Ours:
    """The worst of the seeds."""
    m, n = posed.n_clients, posed.n_parameters
    paths, ends, above = [], [], False
    for result, _ in done:
        values = result.history["objective"] / m
        gaps = (values - best) / (values[0] - best)
        paths.append(Path(gaps, rho, rho * (n + 1)))
        ends.append(float(gaps[-1]))
        above |= bool(values[-1] > values[0])
    worst = max(paths, key=lambda path: (path.to(1e-3), path.to(1e-4)))
    rounds = worst.to(1e-4)
    taken = math.ceil(rho * rounds) if math.isfinite(rounds) else ROUNDS
    algorithm = CurvatureFedEPM(participation=rho).resolve(posed)
    sent = algorithm.numbers_sent(n, taken)
    seconds = statistics.median(seconds for _, seconds in done)
    return Ours(worst, max(ends), above, seconds, 1 + taken, sent)


def measure(name: str, rivals: bool = True) -> Row:
    """Everything about one problem."""
    posed = problem(name)
    m, n = posed.n_clients, posed.n_parameters
    done = {rho: runs(posed, rho) for rho in PARTICIPATION}
    least = min(
        float(r.history["objective"].min()) / m for every in done.values() for r, _ in every
    )
    found = optimum(posed)
    best = min(found, least)
    start = posed.total_value(np.zeros(n)) / m
    ours = {rho: summed_up(posed, every, rho, best) for rho, every in done.items()}
    layout = "CSR" if posed.data.is_sparse else "dense"
    shape = f"{posed.objective.name}, {posed.n_samples} x {posed.data.n_features} {layout}"
    others = {}
    if rivals:
        others["paper"] = {rho: paper(posed, best, rho) for rho in PARTICIPATION[:2]}
        for cls in (SFedAvg, SFedProx):
            for coordinates in ("raw",) if posed.data.is_sparse else ("raw", "whitened"):
                full, setting = averaging(cls, posed, coordinates, best)
                half, _ = averaging(cls, posed, coordinates, best, 0.5, (setting,))
                others[f"{cls.name} {coordinates}"] = {1.0: full, 0.5: half}
    chosen = CurvatureFedEPM().resolve(posed).coordinates
    return Row(name, shape, chosen, ours, others, (found - best) / (start - best))


# What comes of it -------------------------------------------------------------------------


def of(rounds: float) -> str:
    return f"{rounds:.0f}" if math.isfinite(rounds) else "-"


def short(number: float) -> str:
    """At most three digits, with k or M."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:.3g}"


RIVALS = ("sfedavg raw", "sfedavg whitened", "sfedprox raw", "sfedprox whitened", "paper")
HEADER = (
    "problem", "loss, rows x columns", "rho 1", "rho 0.5", "rho 0.2", "end", "gradients", "sent",
    "s", "SFedAvg", "whitened", "SFedProx", "whitened", "paper's",
)  # fmt: skip


def cells(row: Row) -> list[str]:
    """A line of the table."""
    rounds = ["/".join(of(row.ours[rho].path.to(s)) for s in SHARES) for rho in PARTICIPATION]
    end = max(ours.end for ours in row.ours.values())
    full = row.ours[1.0]
    found = [row.name, row.shape, *rounds, f"{max(end, 0.0):.0e}", of(full.gradients)]
    found += [short(full.sent), f"{full.seconds:.2f}"]
    for rival in RIVALS:
        paths = row.rivals.get(rival)
        found.append("" if paths is None else rival_cell(paths[1.0]))
    return found


def rival_cell(path: Path) -> str:
    rounds = path.to(1e-3)
    if not math.isfinite(rounds):
        return "-"
    return f"{rounds:.0f} ({short(rounds * path.gradients)}; {short(rounds * path.sent)})"


def goals(rows: list[Row]) -> list[str]:
    """What the runs were to reach, and whether they did, as lines of a list."""
    full, half, fifth = ([row.ours[rho] for row in rows] for rho in PARTICIPATION)
    every = [*full, *half, *fifth]
    lines = []

    def goal(text: str, met: bool) -> None:
        lines.append(f"* {text}: {'met' if met else 'missed'}")

    above = sum(ours.above_start for ours in every)
    goal(f"runs that ended above their start: {above}", above == 0)
    missed = sum(not math.isfinite(ours.path.to(1e-4)) for ours in every)
    goal(f"runs that did not reach 0.01 % in {ROUNDS} rounds: {missed}", missed == 0)
    for name, group, most in (("full", full, 8), ("half", half, 15)):
        median = statistics.median(ours.path.to(1e-3) for ours in group)
        goal(
            f"rounds to 0.1 % at {name} participation: median {of(median)} (at most {most})",
            median <= most,
        )
    worst = max(ours.path.to(1e-3) for ours in every)
    goal(f"rounds to 0.1 %: worst {of(worst)} (at most 60)", worst <= 60)
    for row in rows:
        if row.name.startswith("Adult") and row.name.endswith("m 100"):
            a, b = (row.ours[rho].path.to(1e-4) for rho in PARTICIPATION[:2])
            text = f"{row.name}: 0.01 % in {of(a)} rounds at full and {of(b)} at half participation"
            goal(f"{text} (at most 4 and 8)", a <= 4 and b <= 8)
    return lines + beside(rows)


def beside(rows: list[Row]) -> list[str]:
    """What the others reached on the same problems."""
    lines = []
    for rival in RIVALS:
        paths = [row.rivals[rival] for row in rows if rival in row.rivals]
        for rho in PARTICIPATION[:2] if paths else ():
            rounds = [path[rho].to(1e-3) for path in paths]
            reached = sum(math.isfinite(r) for r in rounds)
            up = sum(not path[rho].gaps[-1] <= 1 for path in paths)
            text = f"* {rival}, participation {rho:g}: 0.1 % on {reached} of {len(paths)}"
            lines.append(
                f"{text}, median {of(statistics.median(rounds))} rounds; {up} end above their start"
            )
    return lines


def table(rows: list[Row]) -> str:
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    return "\n".join(lines + ["| " + " | ".join(cells(row)) + " |" for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="every tenth problem")
    parser.add_argument("--only", default="", help="problems whose name has this")
    parser.add_argument("--ours", action="store_true", help="without the others")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", type=File, help="a page to write the table into")
    parser.add_argument("--plot", type=File)
    options = parser.parse_args()
    names = [name for name in PROBLEMS if options.only in name]
    names = names[::10] if options.quick else names
    began, rows = perf_counter(), []
    from joblib import Parallel, delayed

    tasks = (delayed(measure)(name, not options.ours) for name in names)
    for row in Parallel(options.jobs, return_as="generator")(tasks):
        rows.append(row)
        print(" | ".join(cells(row)), flush=True)
    print(f"\n{len(rows)} problems, {perf_counter() - began:.0f} s\n")
    print("\n".join(goals(rows)))
    if options.plot:
        from battery_figure import draw

        draw(rows, options.plot)
    if options.table:
        page = options.table.read_text(encoding="utf-8")
        head, rest = page.split(BEGIN)
        tail = rest.split(END)[1]
        text = f"{head}{BEGIN}\n{table(rows)}\n{END}{tail}"
        options.table.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
