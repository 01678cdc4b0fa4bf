"""Every algorithm of the package on the same problems, each tuned alike: docs/which.md.

    python bench/comparison.py comparison --page docs/which.md

needs ``pip install '.[plots,sklearn]'`` and joblib, which comes with scikit-learn. What is run says
`comparison_runs`, on what `comparison_problems`. Every finished cell is a file of the folder (here
``comparison``): killed, the same command goes on with what is missing, and so it does when the
package has further algorithms. At the end it writes ``table.csv`` and the figures beside them, and
with `--page` the text between the marks of that page, and its figures. ``--quick`` is a small part
of all, ``--report`` runs nothing and reports what is there.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: all cores are in use

import argparse
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any

import comparison_runs as runs
from comparison_report import BEGIN, END, complete, has_marks, report, write_page

#: What `--quick` does.
QUICK = ("label skew 1", "breast cancer"), (10,)


def groups(quick: bool, only: str) -> list[list[runs.Setting]]:
    """The settings, those that share their splits together."""
    chosen = [
        setting
        for setting in runs.settings()
        if any(name in setting.problem for name in only.split(","))
        and not (quick and (setting.problem not in QUICK[0] or setting.clients not in QUICK[1]))
    ]
    return [list(found) for _, found in groupby(chosen, key=lambda setting: setting[:3])]


def warm_up(names: tuple[str, ...], half: int) -> None:
    """Compile what the runs of half of the contenders need, for all processes."""
    for problem in ("covariate shift", "sparse CSR", "digits"):
        on = runs.posed(problem, 10, "raw", 0)
        for name in names[half::2]:
            runs.run(runs.contenders()[name].algorithm, on, 0, most=1)


def chosen_among(known: Iterable[str], given: str, option: str) -> tuple[str, ...]:
    """The names that were given, separated by commas; all of them where none was."""
    names, every = tuple(filter(None, given.split(","))), tuple(known)
    for name in names:
        if name not in every:
            sys.exit(f"{option} must be of {', '.join(every)}, got {name}")
    return names or every


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where finished cells are kept")
    parser.add_argument("--page", type=Path, help="write the text and figures of this page")
    parser.add_argument("--partial", action="store_true", help="the page of what is there")
    parser.add_argument("--quick", action="store_true", help="two problems, 10 clients")
    parser.add_argument("--report", action="store_true", help="of what is there; no runs")
    parser.add_argument(
        "--only", default="", help="problems whose names have one of these, by commas"
    )
    parser.add_argument("--algorithms", default="", help="names, separated by commas")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names = chosen_among(runs.contenders(), options.algorithms, "--algorithms")
    todo = groups(options.quick, options.only)
    if not todo:
        sys.exit(f"--only names none of {', '.join(sorted({s.problem for s in runs.settings()}))}")
    if options.page and not has_marks(options.page):
        sys.exit(f"--page must be a file with the marks {BEGIN} and {END}, got {options.page}")
    options.folder.mkdir(parents=True, exist_ok=True)
    if not options.report:
        work(todo, options.folder, names, options.jobs)
    loaded = runs.load(options.folder, names, [setting for group in todo for setting in group])
    cells = complete(loaded, names)
    if not cells:
        sys.exit(f"{options.folder} has no setting that all of these have finished")
    print(report(cells, options.folder))
    expected = len(names) * sum(map(len, todo))
    if len(cells) < expected:
        print(f"\nof {len(cells)} cells, {expected - len(cells)} are not there")
        if options.page and not options.partial:
            sys.exit("the page stays as it is: --partial writes it of what is there")
    if options.page:
        write_page(cells, options.page)


def work(todo: list[list[runs.Setting]], folder: Path, names: tuple[str, ...], jobs: int) -> None:
    """Do what is missing, in processes."""
    from joblib import Parallel, delayed

    left = [g for g in todo if any(runs.missing(setting, folder, names) for setting in g)]
    if not left:
        return
    began = perf_counter()
    workers: Any = Parallel(jobs, return_as="generator_unordered")
    with workers:
        for _ in workers(delayed(warm_up)(names, half) for half in range(2)):
            pass
        print(f"warm after {perf_counter() - began:.0f} s", flush=True)
        for k, done in enumerate(workers(delayed(runs.do)(g, folder, names) for g in left), 1):
            spent = perf_counter() - began
            print(f"{k} of {len(left)} groups, {done} cells, {spent:.0f} s", flush=True)


if __name__ == "__main__":
    main()
