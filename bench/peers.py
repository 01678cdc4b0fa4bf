"""The kernels beside their peers, on this machine.

    export OPENBLAS_NUM_THREADS=1; unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
    python bench/peers.py
    python bench/peers.py --only "ens 10" --only noise
    python bench/peers.py --table bench/README.md                     # a column of this processor
    python bench/peers.py --limit haswell --table bench/README.md     # and one limited to AVX2

Every figure is a ratio of medians of interleaved runs in one process. A part that fails is named
on standard error, with its reason, beside what the others found; then the status is 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

import numpy as np
from machine_code import TARGETS
from peers_measure import Part, Row
from peers_page import draw, merge, read

#: Modules that have parts of the table, in its order.
MODULES = ("peers_kernels", "peers_losses", "peers_waiting")
#: What LLVM's names of processors stand for.
PROCESSORS = {"znver4": "Zen 4", "znver5": "Zen 5", "haswell": "AVX2", "x86-64-v2": "SSE4.2"}


def processor() -> str:
    """The name of this processor, and what the kernels are limited to."""
    from llvmlite.binding import get_host_cpu_name

    host, limit = get_host_cpu_name(), os.environ.get("NUMBA_CPU_NAME")
    name = PROCESSORS.get(host, host)
    return f"{PROCESSORS.get(limit, limit)} on {name}" if limit else name


def parts(only: list[str], failed: dict[str, str]) -> dict[str, Part]:
    """The parts whose names contain one of these, or all."""
    found: dict[str, Part] = {}
    for name in MODULES:
        try:
            found |= importlib.import_module(name).PARTS
        except Exception:
            failed[name] = traceback.format_exc()
    return {k: part for k, part in found.items() if not only or any(o in k for o in only)}


def measure(chosen: dict[str, Part], failed: dict[str, str]) -> list[Row]:
    """The rows of these parts; why a part ended before its end goes to `failed`."""
    rows: list[Row] = []
    for name, part in chosen.items():
        try:
            for row in part():
                rows.append(row)
                print(f"{row.kernel} / {row.peer}: {row.ratio:.2f}", file=sys.stderr, flush=True)
        except Exception:
            failed[name] = traceback.format_exc()
    return rows


def show(rows: list[Row], title: str) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in ("kernel", "to", "ratio", "goal", "beyond", "", "note"):
        table.add_column(column, justify="right" if column == "ratio" else "left")
    for row in rows:
        verdict = "met" if row.met else "missed"
        table.add_row(
            row.kernel, row.peer, f"{row.ratio:.2f}", row.goal, row.beyond, verdict, row.note
        )
    Console(width=170 if not sys.stdout.isatty() else None).print(table)


def limit(target: str) -> None:
    """Start this again where Numba makes code for that target, whose features it must be told."""
    if os.environ.get("NUMBA_CPU_NAME") != target:
        os.environ.update(NUMBA_CPU_NAME=target, NUMBA_CPU_FEATURES=TARGETS[target][1])
        os.execv(sys.executable, [sys.executable, *sys.argv])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="parts whose name contains this")
    parser.add_argument("--memmap", action="store_true", help="add 8 GiB on disk")
    parser.add_argument("--limit", choices=("haswell", "x86-64-v2"), help="make code for this")
    parser.add_argument("--table", type=Path, help="put the figures into the table of this page")
    parser.add_argument("--column", help="whose figures: by default those of this processor")
    parser.add_argument("--again", action="store_true", help="take the page's, measure nothing")
    parser.add_argument("--plot", type=Path, help="draw to this PNG or SVG")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    given = parser.parse_args()
    if given.limit:
        limit(given.limit)
    column, failed, rows = given.column or processor(), {}, []
    if given.again:
        rows = read(given.table, column)
    else:
        if given.memmap:  # first: the peak memory is the process's
            from peers_waiting import memory_mapped

            rows += measure({"8 GiB on disk": memory_mapped}, failed)
        rows += measure(parts(given.only or [], failed), failed)
        if given.table:
            merge(given.table, column, rows, notes=" on " not in column)
    if given.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "failed": failed}))
    else:
        show(rows, f"{column}, NumPy {np.__version__}")
    if given.plot:
        draw(rows, given.plot)
    for name, reason in failed.items():
        print(f"\nfailed: {name}\n{reason}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
