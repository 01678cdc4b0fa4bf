"""What the comparison found, as tables and sentences: all of them computed from its cells."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from comparison_costs import (
    COSTS,
    OURS,
    PERCENT,
    Cell,
    costs,
    key,
    median,
    medians,
    order,
    profile,
    wrong,
)
from comparison_runs import (
    LOCAL_STEPS,
    ROUNDS,
    SEEDS,
    SHARES,
    TUNING_SEEDS,
    VALUES,
    contenders,
    settings,
)

from fedepm_fast.algorithms import Size

BEGIN, END = "<!-- comparison -->", "<!-- end of the comparison -->"
MARKED = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.S)
#: The style of the documentation's figures on dark pages.
DARK = Path(__file__).parents[1] / "docs" / "dark.mplstyle"


# Tables ---------------------------------------------------------------------------------------


def spread(values: Any, factor: float = 1.0) -> str:
    """Median and quartiles, a dash where these runs did not get there."""
    q = np.quantile(values, (0.25, 0.5, 0.75), method="inverted_cdf") * factor
    low, middle, high = (f"{v:.3g}" if math.isfinite(v) else "-" for v in q)
    return middle if middle == "-" and low == "-" else f"{middle} ({low} to {high})"


def percent(share: float) -> str:
    """A share in per cent; no run is lost, or there, by rounding."""
    shown = f"{100 * share:.0f}"
    if (shown == "100" and share < 1) or (shown == "0" and share > 0):
        return f"{100 * share:.1f} %"
    return f"{shown} %"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---|" + "--:|" * (len(header) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def overall(cells: Sequence[Cell]) -> str:
    """One line for each contender, over everything."""
    header = ["", *(f"reach {p}" for p in PERCENT), *(f"rounds to {p}" for p in PERCENT)]
    header += [f"{COSTS[c][0]} to 0.01 %" for c in ("gradients", "seconds", "bytes")]
    rows = []
    for name, label in order(cells).items():
        mine = [cell for cell in cells if cell["contender"] == name]
        rounds = [costs(mine, "rounds", k) for k in range(len(SHARES))]
        row = [label, *(percent(np.isfinite(r).mean()) for r in rounds), *map(spread, rounds)]
        for cost in ("gradients", "seconds", "bytes"):
            _, factor, unit = COSTS[cost]
            shown = spread(costs(mine, cost, 1), factor)
            row.append(shown + unit * (shown != "-"))
        rows.append(row)
    return markdown(header, rows)


def by(cells: Sequence[Cell], field: str, share: int = 1) -> str:
    """Shares that get there, and the median of rounds, by a field of the settings."""
    values = list(dict.fromkeys(cell[field] for cell in cells))
    rows = []
    for name, label in order(cells).items():
        row = [label]
        for value in values:
            mine = [c for c in cells if c["contender"] == name and c[field] == value]
            rounds = costs(mine, "rounds", share)
            middle = median(rounds)
            text = percent(np.isfinite(rounds).mean())
            row.append(text + (f", {middle:.0f}" if math.isfinite(middle) else ""))
        rows.append(row)
    named = {"participation": "participation {:g}", "clients": "{} clients"}
    return markdown(["", *(named.get(field, "{}").format(value) for value in values)], rows)


def write_csv(cells: Sequence[Cell], path: Path) -> None:
    """Every cell with medians and quartiles."""
    names = ["problem", "clients", "coordinates", "participation", "algorithm", "parameter",
             "value", "value_over_centre"]  # fmt: skip
    for p in ("1_percent", "0.01_percent"):
        names.append(f"reach_{p}")
        names += [f"{cost}_{p}_{q}" for cost in COSTS for q in ("q25", "median", "q75")]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for cell in sorted(cells, key=lambda cell: (*key(cell), cell["contender"])):
            tuned = cell["tuned"] or {"value": None, "centre": 1.0}
            value = tuned["value"]
            ratio = None if value is None else value / tuned["centre"]
            row = [*key(cell), cell["contender"], cell["tunes"], value, ratio]
            for k in range(len(SHARES)):
                row.append(np.isfinite(costs([cell], "rounds", k)).mean())
                for cost in COSTS:
                    found = costs([cell], cost, k)
                    q = np.quantile(found, (0.25, 0.5, 0.75), method="inverted_cdf")
                    row += [v if math.isfinite(v) else None for v in q.tolist()]
            writer.writerow(row)


# Sentences ------------------------------------------------------------------------------------


def winners(cells: Sequence[Cell], cost: str, share: int) -> dict[tuple[Any, ...], list[str]]:
    """By setting, those with the least median cost; nobody where no median is finite."""
    return {
        setting: [n for n, v in of.items() if v == min(of.values()) < math.inf]
        for setting, of in medians(cells, cost, share).items()
    }


def best_in(cells: Sequence[Cell]) -> str:
    """In how many settings each has the least median, for each cost."""
    labels, rows = order(cells), []
    chosen = [(cost, share) for share in (0, 1) for cost in ("rounds", "gradients", "bytes")]
    found = {c: winners(cells, *c) for c in chosen}
    for name, label in labels.items():
        rows.append([label, *(str(sum(name in w for w in found[c].values())) for c in chosen)])
    none = [str(sum(not w for w in found[c].values())) for c in chosen]
    header = ["", *(f"{COSTS[cost][0]} to {PERCENT[share]}" for cost, share in chosen)]
    return markdown(header, [*rows, ["nobody gets there", *none]])


def losses(cells: Sequence[Cell]) -> list[str]:
    """Where FedEPM with eta the curvature is not the best, by how much, and who is."""
    name, lines = "curvature", []
    labels = order(cells)
    cells = [cell for cell in cells if cell["contender"] not in OURS[1:]]
    for share in (0, 1):
        for cost in COSTS:
            text = f"{COSTS[cost][0]} to {PERCENT[share]}"
            of = medians(cells, cost, share)
            behind = {s: v for s, v in of.items() if v[name] > min(v.values())}
            if not behind:
                lines.append(f"* {text}: none has less in any of the {len(of)} settings.")
                continue
            who: dict[str, int] = defaultdict(int)
            for v in behind.values():
                for other, value in v.items():
                    who[other] += value == min(v.values())
            first = sorted(who.items(), key=lambda item: -item[1])
            named = ", ".join(f"{labels[n]} in {k}" for n, k in first if k)
            line = f"* {text}: others have less in {len(behind)} of {len(of)} settings ({named})"
            ratios = {s: v[name] / min(v.values()) for s, v in behind.items()}
            there = {s: ratio for s, ratio in ratios.items() if math.isfinite(ratio)}
            if there:
                worst = max(there, key=lambda s: there[s])
                line += (
                    f", by a factor of {sorted(there.values())[len(there) // 2]:.3g} in the median "
                    f"and {there[worst]:.3g} at worst ({said(worst)})"
                )
            if len(there) < len(ratios):
                line += f"; in {len(ratios) - len(there)} of these it does not get there"
                line += ", which the factors leave out" if there else ""
            lines.append(f"{line}.")
    return lines


def said(setting: tuple[Any, ...]) -> str:
    problem, clients, coordinates, participation = setting
    return f"{problem}, {clients} clients, {coordinates} columns, participation {participation:g}"


def advice(cells: Sequence[Cell]) -> str:
    """For each participation who gets to 0.01 % most often, and who most often at least costs.

    Of all contenders, and of those alone whose clients send no Hessians.
    """
    labels, rows = order(cells), []
    light = [n for n in labels if not contenders()[n].algorithm.keeps_models]
    chosen = [c for c in COSTS if c != "seconds"]
    for rho in sorted({cell["participation"] for cell in cells}):
        for among, names in (("all", list(labels)), ("those that send no Hessians", light)):
            if not names:
                continue
            here = [c for c in cells if c["participation"] == rho and c["contender"] in names]
            reach = {n: np.isfinite(costs(_of(here, n), "rounds", 1)).mean() for n in names}
            sure = [n for n in names if reach[n] >= max(reach.values()) - 0.005]
            row = [f"{rho:g}, {among}", "; ".join(f"{labels[n]} {percent(reach[n])}" for n in sure)]
            for cost in chosen:
                found = profile(here, cost, 1)
                share = {n: found.at(n, 1.0) for n in names}
                first = max(share, key=lambda n: share[n])
                row.append(f"{labels[first]} ({percent(share[first])})")
            rows.append(row)
    header = ["participation, of", "reach 0.01 % most often"]
    return markdown([*header, *(f"fewest {COSTS[cost][0]}" for cost in chosen)], rows)


def described(cells: Sequence[Cell]) -> str:
    """What each contender is, and what its clients do in a round."""
    rows, n = [], 100
    for name, label in order(cells).items():
        contender = contenders()[name]
        algorithm = contender.algorithm
        resolved = algorithm.resolve(Size(10, n, 10_000))
        each = float(algorithm.gradients_per_round(np.array([100]))[0])
        counted = "at most " * ("gradients" in algorithm.keeps)
        numbers = resolved.numbers_sent(n, 2) - resolved.numbers_sent(n, 1)
        sent = "a vector like x" if numbers < 1.5 * n else "its gradient and Hessian"
        more = f"; keeps {', '.join(algorithm.keeps)}" if algorithm.keeps else ""
        tunes = f"`{contender.tunes}`" if contender.tunes else "nothing"
        of = f"{label}: `{type(algorithm).__name__}`"
        rows.append([of, f"{counted}{each:g}", sent + more, tunes])
    return markdown(["", "gradients a round", "a client sends; keeps", "tuned"], rows)


def _of(cells: Sequence[Cell], name: str) -> list[Cell]:
    return [cell for cell in cells if cell["contender"] == name]


def sensitivity(cells: Sequence[Cell]) -> str:
    """Shares that still reach 1 %, and the factor in rounds, where the parameter is wrong."""
    rows, found, labels = [], wrong(cells), order(cells)
    for name, label in labels.items():
        if name not in found:
            rows.append([label, "nothing to tune", "", "", "", ""])
            continue
        of = found[name]
        row = [label, f"`{_of(cells, name)[0]['tunes']}`"]
        row += [percent(np.isfinite(of[f]).mean()) for f in ("1", "0.1", "10")]
        slower = []
        for factor in ("0.1", "10"):
            kept = np.isfinite(of["1"])
            ratio = np.maximum(of[factor][kept], 1) / np.maximum(of["1"][kept], 1)
            middle = median(ratio) if len(ratio) else math.inf
            slower.append(f"{middle:.3g}" if math.isfinite(middle) else "-")
        rows.append([*row, " and ".join(slower)])
    header = ["", "parameter", "reach 1 %, tuned", "a tenth", "ten times",
              "times the rounds, a tenth and ten times"]  # fmt: skip
    return markdown(header, rows)


def edges(cells: Sequence[Cell]) -> str:
    """Whether the grids were wide enough."""
    tuned = [cell["tuned"]["at_end"] for cell in cells if cell["tuned"]]
    if not tuned:
        return "none of these has one"
    return f"{percent(float(np.mean(tuned)))} of the tuned values are at an end of their grid"


def spent(cells: Sequence[Cell]) -> str:
    """What all of these runs took, where every cell says it."""
    seconds = [cell.get("processor") for cell in cells]
    if None in seconds:
        return ""
    return f" All of these runs took {sum(seconds) / 60:.0f} minutes of one core."


def text(cells: Sequence[Cell], images: Callable[[str], str]) -> str:
    """The part of the page that follows from the runs."""
    chosen, runs = {key(cell) for cell in cells}, sum(len(cell["runs"]) for cell in cells)
    every = list(settings())
    parts = [
        f"{runs:,} runs are reported: {len(order(cells))} contenders, {len(chosen)} settings"
        + ("" if len(chosen) == len(every) else f" of {len(every)} (the others have not been run)")
        + f", {len(SEEDS)} seeds. Each tunes one parameter, over {VALUES} values and on "
        f"{len(TUNING_SEEDS)} splits of other seeds; {edges(cells)}. Algorithms with a gradient in "
        f"each local step take {LOCAL_STEPS} of these, FedEPM the paper's 12. A run counts as "
        f"failed where it is not there after {ROUNDS} rounds; medians and quartiles (in brackets) "
        "are over all runs, a dash stands for those that failed. Gradients, bytes (both ways) and "
        "local time are those of a client, the mean of all; times are of the machine that made "
        "this page, beside whatever else it did. Clients that send Hessians form them with NumPy, "
        "called from Python; what all others do in a round is compiled as a whole." + spent(cells),
        described(cells),
        "## What to choose",
        "Who gets to 0.01 % most often, and who costs least on most of the instances (a setting "
        "and a seed; in brackets on how many):",
        advice(cells),
        "## Over everything",
        overall(cells),
        "Settings in which each has the least median, of "
        f"{len(chosen)} (several may share the least):",
        best_in(cells),
        images("profiles"),
        *_beside_the_best(cells),
        "## By participation, coordinates, clients and problem",
        "Share of the runs that reach 0.01 %, and the median of their rounds over all runs.",
        *(by(cells, field) for field in ("participation", "coordinates", "clients", "problem")),
        "The same for 1 %:",
        by(cells, "problem", 0),
        "## What it costs to be wrong",
        "At participation 0.5, with the tuned parameter, a tenth of it and ten times it:",
        sensitivity(cells),
        images("sensitivity"),
    ]
    return "\n\n".join(parts)


def _beside_the_best(cells: Sequence[Cell]) -> list[str]:
    """The section about FedEPM with eta the curvature, where it and another one were run."""
    if not {"curvature"} < {*order(cells)} - {*OURS[1:]}:
        return []
    return [
        "## Where FedEPM loses",
        "FedEPM (curvature) beside the best of the other algorithms, by the medians of a setting:",
        "\n".join(losses(cells)),
    ]


def complete(cells: Sequence[Cell], names: Sequence[str]) -> list[Cell]:
    """Those of settings that all of the contenders have finished."""
    found: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for cell in cells:
        found[key(cell)].add(cell["contender"])
    return [cell for cell in cells if found[key(cell)] >= set(names)]


# Where it goes --------------------------------------------------------------------------------


def report(cells: Sequence[Cell], folder: Path) -> str:
    """All of it for a terminal; the table and the figures into the folder."""
    from comparison_figures import FIGURES

    write_csv(cells, folder / "table.csv")
    for name, draw in FIGURES.items():
        draw(cells, folder / f"{name}.png")
    return text(cells, lambda name: f"({folder / f'{name}.png'})")


def has_marks(page: Path) -> bool:
    """Whether there is such a page, with a place for the text."""
    return page.is_file() and MARKED.search(page.read_text(encoding="utf-8")) is not None


def write_page(cells: Sequence[Cell], page: Path) -> None:
    """The text between the marks of a page, and its figures beside the page's others."""
    from comparison_figures import FIGURES, WORDS
    from matplotlib import style

    def image(name: str) -> str:
        path = page.parent / "images" / f"which-{name}.png"
        path.parent.mkdir(exist_ok=True)
        FIGURES[name](cells, path)
        with style.context(str(DARK)):
            FIGURES[name](cells, path.with_stem(f"{path.stem}-dark"))
        return f"![{WORDS[name]}](images/{path.name})"

    before = page.read_text(encoding="utf-8")
    found = f"{BEGIN}\n\n{text(cells, image)}\n\n{END}"
    page.write_text(MARKED.sub(lambda _: found, before), encoding="utf-8")
