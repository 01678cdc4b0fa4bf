"""``fedepm runs``: looking into a store."""

from __future__ import annotations

import json as json_module
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._common.text import counted, pairs, terminal_width
from .._words import number, stopped_by
from . import _options as options

if TYPE_CHECKING:
    from .._common.measures import Measure
    from ..store import Record, Store
    from ..store._cells_table import Summary

app = typer.Typer(help="List, show, compare, export and prune the runs of a store.")

StorePath = Annotated[
    Path, typer.Argument(metavar="STORE", help="As fedepm sweep made it.", show_default=False)
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="Such as local_steps=12, algorithm=fedepm,sfedavg or epsilon>=0.3; all must hold.",
        metavar="CONDITION",
    ),
]

SHORT = 12  # characters of a run's id
#: Columns of a pipe, whose reader wants one line for each row.
LINE = 1000


@app.command("list")
def list_(
    store: StorePath,
    where: Where = None,
    limit: Annotated[int, typer.Option(help="Show so many at most; 0 for all.")] = 50,
    json: options.Json = False,
) -> None:
    """List runs: the parameters that vary, and what came out."""
    from .._common.validation import check_int
    from ..store import Store
    from ..store._cells_table import varying

    check_int("limit", limit, low=0)
    with Store(store, readonly=True) as opened:
        table = opened.table(where)
        _tell_absent(opened, where, len(table["run_id"]))
    total = len(table["run_id"])
    shown = min(limit, total) if limit else total
    if json:
        found = [{name: _plain(column[i]) for name, column in table.items()} for i in range(shown)]
        print(json_module.dumps(found, allow_nan=False))
        return
    names = varying(table)
    rows = [
        [
            table["run_id"][i][:SHORT],
            *(_text(table[name][i]) for name in names),
            str(table["trial"][i]),
            *_outcome(table, i),
        ]
        for i in range(shown)
    ]
    header = ["run", *names, "trial", "f(x)/m", "rounds", "time", "stopped by"]
    if rows:
        _print_table(header, rows)
    more = f", the first {shown} of them shown" if shown < total else ""
    print(f"{total} run{'s' * (total != 1)}{more}")


@app.command()
def show(
    store: StorePath,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The beginning of its id.")],
    history: Annotated[bool, typer.Option("--history", help="Round by round.")] = False,
    json: options.Json = False,
) -> None:
    """Show one run: parameters, measures, and where it was done."""
    from ..store import Store

    with Store(store, readonly=True) as opened:
        try:
            record = opened.get(run)
        except KeyError as error:
            raise ValueError(error.args[0]) from None
        rounds = opened.history(record.run_id) if history else {}
    if "objective" in rounds and "clients" in record.parameters:
        mean = rounds["objective"] / record.parameters["clients"]
        rounds = {"mean_objective": mean, **rounds}
    if json:
        print(json_module.dumps(_as_json(record, rounds), allow_nan=False))
        return
    rows = {
        "run": record.run_id,
        "": "",
        **{name: _text(value) for name, value in record.parameters.items() if value is not None},
        "seed": str(record.seed),
        "trial": str(record.trial),
        " ": "",
        **{name: _text(value, digits=10) for name, value in record.measures.items()},
        **({} if record.error is None else {"failed": record.error}),
        "  ": "",
        "done": f"{record.created} on {record.machine or 'a machine that was lost'}",
        "versions": ", ".join(f"{name} {v}" for name, v in record.versions.items()),
    }
    print("\n".join(pairs(rows.items(), width=terminal_width() or LINE)))
    if rounds:
        print()
        length = len(next(iter(rounds.values())))
        names = [n for n, values in rounds.items() if values.ndim == 1]
        if "mean_objective" in names:
            names.remove("objective")
        _print_table(
            ["round", *("f(x)/m" if name == "mean_objective" else name for name in names)],
            [[str(t), *(_text(float(rounds[n][t])) for n in names)] for t in range(length)],
        )


@app.command()
def compare(
    store: StorePath,
    where: Where = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Parameters to group by, separated by commas.",
            metavar="NAMES",
            show_default="all that vary",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Compare cells: median and quartiles of their runs."""
    from ..store import Store
    from ..store._cells_table import summarize, varying

    with Store(store, readonly=True) as opened:
        table = opened.table(where)
        _tell_absent(opened, where, len(table["run_id"]))
        names = varying(table) if by is None else [name.strip() for name in by.split(",")]
        table |= _columns_of_others(opened, [name for name in names if name not in table], table)
    if not json:
        print_cells(table, names, quartiles=True)
        return
    cells = [
        {
            **dict(zip(names, map(_plain, cell.of), strict=True)),
            "runs": cell.runs,
            "failed": cell.failed,
            "diverged": cell.diverged,
            **{name: [_plain(v) for v in values] for name, values in cell.quartiles.items()},
        }
        for cell in summarize(table, names)
    ]
    print(json_module.dumps(cells, allow_nan=False))


@app.command()
def export(
    store: StorePath,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A .csv or .parquet file.")],
    where: Where = None,
) -> None:
    """Export runs as one tidy table."""
    from .._common.files import check_writable_file
    from .._common.validation import check_choice
    from ..store import Store

    check_choice("suffix of the file", out.suffix.lower(), (".csv", ".parquet"))
    check_writable_file("FILE", out)
    with Store(store, readonly=True) as opened:
        count = len(opened.ids(where))
        _tell_absent(opened, where, count)
        if out.suffix.lower() == ".csv":
            opened.to_csv(out, where)
        else:
            opened.to_parquet(out, where)
    print(f"wrote {counted(count, 'run')} to {out}")


@app.command()
def prune(
    store: StorePath,
    where: Where = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete them without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")
    ] = False,
) -> None:
    """Delete the runs for which the conditions hold, such as --where failed=true.

    On a terminal it says which these are and asks; elsewhere it needs --yes.
    """
    from ..store import Store

    if not where:
        raise ValueError("--where must say which runs to delete; --where 'trial>=0' means all")
    if not store.exists():
        raise FileNotFoundError(f"no store at {store}")
    with Store(store, readonly=True) as opened:
        table, total = opened.table(where), len(opened)
        chosen = table["run_id"]
        _tell_absent(opened, where, len(chosen))
    if dry_run or not yes:
        if chosen:
            print_cells(table)
        print(f"{len(chosen)} of {total} runs would be deleted", flush=True)
        if dry_run or not chosen:
            return
        if not _agreed(f"delete {len(chosen)} run{'s' * (len(chosen) != 1)} of {store}?"):
            print("nothing was deleted")
            return
    with Store(store) as opened:  # whose runs since then nobody was told of
        print(f"deleted {opened.prune(ids=chosen)} of {total} runs")


def _agreed(question: str) -> bool:
    """What who sits at the terminal answers; ValueError where nobody does."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ValueError("yes must be given where there is no terminal to ask at")
    # Typer's own question leaves a blank on standard output.
    print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
    answer = ""
    try:
        answer = sys.stdin.readline()
    finally:
        if not answer.endswith("\n"):  # Ctrl-D, Ctrl-C: what follows begins a line
            print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")


def _tell_absent(store: Store, where: list[str] | None, count: int) -> None:
    """Say on standard error which values the conditions ask for that no run has; or, if they hold
    for `count` runs and that is none, so much."""
    texts = store.absent(where)
    if where and not count and not texts:
        texts = [f"no run has {' and '.join(where)}"]
    for text in texts:
        print(f"note: {text}", file=sys.stderr)


def _columns_of_others(
    store: Store, names: Sequence[str], table: Mapping[str, Sequence[Any]]
) -> dict[str, list[None]]:
    """Columns that only other runs of the store have than those of the table."""
    everything = store.table() if names else {}
    for name in names:
        if name not in everything and everything["run_id"]:
            raise ValueError(
                f"by must name columns of {store.path}, got {name!r}: {', '.join(everything)}"
            )
    return {name: [None] * len(table["run_id"]) for name in names}


# Printing ------------------------------------------------------------------------------


def print_cells(
    table: Mapping[str, Sequence[Any]], by: Sequence[str] | None = None, quartiles: bool = False
) -> None:
    """The cells of a table of runs: medians, with quartiles if asked for."""
    from .._common.measures import MEASURES
    from ..store._cells_table import summarize, varying

    names = varying(table) if by is None else list(by)
    cells = summarize(table, names)
    if not cells:
        print("0 runs")
        return
    measures = [measure for measure in MEASURES.values() if measure.heading]
    header = [*names, "runs", *(measure.heading for measure in measures)]
    rows = [
        [
            *map(_text, cell.of),
            str(cell.runs),
            *(_spread(cell, measure, quartiles) for measure in measures),
        ]
        for cell in cells
    ]
    for column in ("failed", "diverged"):
        if any(getattr(cell, column) for cell in cells):
            header.append(column)
            for row, cell in zip(rows, cells, strict=True):
                row.append(str(getattr(cell, column)))
    _print_table(header, rows)
    print("medians" + ", with the quartiles in brackets" * quartiles)


def _spread(cell: Summary, of: Measure, quartiles: bool) -> str:
    """The median of a measure, and its quartiles if asked for."""
    low, median, high = (of.scale * value for value in cell.quartiles[of.name])
    if math.isnan(median):
        return "-"
    spread = f" [{low:{of.form}}, {high:{of.form}}]" if quartiles else ""
    return f"{median:{of.form}}{spread}{of.suffix}"


def _outcome(table: Mapping[str, Sequence[Any]], i: int) -> list[str]:
    if table["error"][i] is not None:
        return ["-", "-", "-", f"failed: {table['error'][i]}"]
    return [
        number(table["mean_objective"][i]),
        str(table["rounds"][i]),
        f"{table['total_time'][i]:.3g} s",
        ", ".join(stopped_by(table["reasons"][i].split("+"), table["diverged"][i])),
    ]


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    columns = terminal_width()
    wide = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    if columns is not None and sum(wide) + 3 * (len(wide) - 1) > columns:
        for row in rows:
            print("\n".join(pairs(zip(header, row, strict=True))), end="\n\n")
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, name in enumerate(header):
        number = all(row[i][:1] in "-.0123456789in" for row in rows)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(text.replace("[", r"\[") for text in row))
    console = Console() if columns else Console(width=LINE, color_system=None)
    console.print(table)


def _text(value: Any, digits: int = 6) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """A value that JSON has: None for NaN and infinities."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _as_json(record: Record, rounds: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "parameters": dict(record.parameters),
        "seed": record.seed,
        "trial": record.trial,
        "error": record.error,
        "measures": {name: _plain(value) for name, value in record.measures.items()},
        "versions": dict(record.versions),
        "machine": record.machine,
        "created": record.created,
        **(
            {"history": {n: [_plain(x) for x in v.tolist()] for n, v in rounds.items() if n != "x"}}
            if rounds
            else {}
        ),
    }
