"""The table of peers on a page, a column a processor, and the figure of a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers_measure import Row

MARK = "<!-- peers -->"
HEAD = ["kernel", "to", "goal", "beyond"]
FASTER = ", times faster"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").replace("`", "").split("|")]


def _table(page: Path) -> tuple[list[str], list[str], list[list[str]], list[str]]:
    """The lines before the table, its columns of processors, its rows, and the lines after it."""
    lines = page.read_text(encoding="utf-8").splitlines()
    if MARK not in lines:
        raise ValueError(f"{page} has no line {MARK}, which is followed by the table")
    first = lines.index(MARK) + 1
    last = first
    while last < len(lines) and lines[last].startswith("|"):
        last += 1
    rows = [_cells(line) for line in lines[first:last]]
    columns = rows[0][len(HEAD) : -1] if rows else []
    return lines[:first], columns, rows[2:], lines[last:]


def read(page: Path, column: str) -> list[Row]:
    """What a column says; ratios that are not one number are left out."""
    _, columns, rows, _ = _table(page)
    place, found = len(HEAD) + columns.index(column), []
    for cells in rows:
        try:
            ratio = float(cells[place].strip("*"))
        except ValueError:
            continue
        kernel, peer, goal, beyond = cells[: len(HEAD)]
        found.append(Row(kernel, peer, ratio, goal, beyond, cells[-1]))
    return found


def merge(page: Path, column: str, measured: list[Row], notes: bool = True) -> None:
    """Write a column of the table, or what of it was measured; missed goals are bold.

    Rows that are not there yet come last. With `notes` the rows' remarks are those of this column.
    """
    before, columns, table, after = _table(page)
    columns = [*columns, *({column} - {*columns})]
    rows = {}
    for cells in table:
        known = cells[len(HEAD) : -1]
        rows[cells[0], cells[1]] = [
            *cells[: len(HEAD)], *known, *[""] * (len(columns) - len(known)), cells[-1],
        ]  # fmt: skip
    for row in measured:
        blank = ["", "", "", "", *[""] * len(columns), ""]
        cells = rows.setdefault((row.kernel, row.peer), blank)
        cells[: len(HEAD)] = [row.kernel, row.peer, row.goal, row.beyond]
        shown = f"{row.ratio:.2f}"
        cells[len(HEAD) + columns.index(column)] = shown if row.met else f"**{shown}**"
        if notes or not cells[-1]:
            cells[-1] = row.note.strip()
    head = [*HEAD, *columns, "note"]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows.values())]
    lines.insert(1, f"|{'---|' * len(head)}")
    page.write_text("\n".join([*before, *lines, *after]) + "\n", encoding="utf-8")


def draw(rows: list[Row], path: Path) -> None:
    """Bars as long as what was measured, by what is measured, with the goals as marks."""
    from fedepm_fast import plots
    from fedepm_fast.plots._style import ink

    panels: dict[str, list[Row]] = {
        "times faster than the peer: longer is better": [],
        "time or memory over the peer's: shorter is better": [],
        "seconds: shorter is better": [],
    }
    for row in rows:
        kind = 0 if FASTER in row.peer else 2 if row.peer.startswith("seconds") else 1
        list(panels.values())[kind].append(row)
    panels = {name: part for name, part in panels.items() if part}
    sizes = [len(part) + 1 for part in panels.values()]
    figure, axes = plots.new_grid(len(panels), 1, 5.6, 0.42 * sum(sizes) + 0.6, height_ratios=sizes)
    for ax, (name, part) in zip(axes.flat, panels.items(), strict=True):
        _bars(ax, name, part, ink())
    axes[0, 0].legend(frameon=False, loc="lower right")
    plots.save(figure, path)


def _bars(ax: Any, name: str, part: list[Row], ink: str) -> None:
    places = range(len(part))
    colours = ["#0072B2" if r.met else "#D55E00" for r in part]
    ax.barh(places, [r.ratio for r in part], height=0.34, color=colours)
    goals = [float(r.goal[3:]) for r in part]
    ax.plot(goals, places, "|", color=ink, markersize=11, markeredgewidth=2, label="goal")
    for k, row in enumerate(part):
        peer = "" if row.peer == "seconds" else f" / {row.peer.removesuffix(FASTER)}"
        missed = "" if row.met else ", goal missed"
        text = f"{row.kernel}{peer}: {row.ratio:.3g}{missed}"
        ax.annotate(text, (0, k - 0.24), xytext=(2, 0), textcoords="offset points", fontsize=8)
    ax.set_title(name, fontsize=10, loc="left")
    ax.set_yticks([])
    ax.set_ylim(len(part) - 0.6, -0.75)
    ax.set_xlim(0, 1.03 * max(*goals, *(r.ratio for r in part)))
    ax.grid(False, axis="y")
