"""The report on the evaluation of the paper: one HTML page that needs nothing beside itself."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from string import Template
from typing import TYPE_CHECKING

from ..algorithms import label_of
from ._claims import FAILS, HOLDS, PARTLY, UNMEASURED, Finding
from ._experiments import ALGORITHM_NAMES, PARAMETERS, PRINTED_LCT, Experiment, read_part

if TYPE_CHECKING:
    from pandas import DataFrame

    from . import Evaluation

MARKS = {HOLDS: "✓", PARTLY: "◐", FAILS: "✗", UNMEASURED: "-"}
_SEVERAL = {HOLDS: "hold", PARTLY: "hold partly", FAILS: "do not hold"}

#: Below so many trials medians are said to be uncertain.
FEW = 20

#: Measures of a cell: column head, scale, format.
_SHOWN: dict[str, tuple[str, float, str]] = {
    "mean_objective": ("f/m", 1, ".4f"),
    "gap_percent": ("above optimum, %", 1, ".3f"),
    "rounds": ("CR", 1, "g"),
    "total_time": ("TCT, ms", 1e3, ".3g"),
    "local_time": ("LCT, ms", 1e3, ".3g"),
    "snr": ("SNR", 1, ".2f"),
    "accuracy": ("accuracy", 1, ".4f"),
}


def report(evaluation: Evaluation, drawings: Mapping[str, str]) -> str:
    """The page.

    Parameters
    ----------
    evaluation : Evaluation
    drawings : mapping of str to str
        SVG of every figure, by the name of its experiment.

    Returns
    -------
    str
        HTML with its style and figures inside.
    """
    environment, findings = evaluation.environment, evaluation.findings
    trials, seed = environment["trials"], environment["seed"]
    versions = ", ".join(f"{name} {v}" for name, v in environment["versions"].items())
    plain = {
        **environment,
        "trials": f"{trials} trial{'' if trials == 1 else 's'}",
        "runs": f"{environment['runs']:,}",
        "versions": versions,
        "computing_time": f"{environment['computing_time']:.1f}",
        "wall_time": f"{environment['wall_time']:.1f}",
        "command": f"fedepm paper --trials {trials} --seed {seed}",
        "claims": len(findings),
        "verdicts": _verdicts(findings),
        "uncertain": " With so few trials medians are uncertain." if trials < FEW else "",
    }
    figures = [
        _section(f"{experiment.source}: {experiment.title}", _figure(experiment, drawings[name]))
        for name, experiment in evaluation.experiments.items()
        if name in drawings
    ]
    table1 = ""
    if "table1" in evaluation.experiments:
        table1 = _section("Table 1: local time of a round", _table1(evaluation.table1()))
    return Template(read_part("page.html")).substitute(
        {name: escape(str(value)) for name, value in plain.items()},
        style=read_part("style.css"),
        findings="\n".join(map(_finding, findings)),
        figures="\n".join(figures),
        table1=table1,
        medians=_medians(evaluation.summary),
    )


def _verdicts(findings: Iterable[Finding]) -> str:
    counts = Counter(finding.verdict for finding in findings)
    words = {v: v if counts[v] == 1 else _SEVERAL.get(v, v) for v in MARKS}
    return ", ".join(f"{counts[v]} {words[v]}" for v in MARKS if counts[v] or v == HOLDS)


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"


def _finding(finding: Finding) -> str:
    claim, kind = finding.claim, finding.verdict.replace(" ", "-")
    machine = ' <span class="tag">machine</span>' if claim.timing else ""
    compared = "\n".join(
        f'<li class="{"yes" if t.holds else "no"}">{"✓" if t.holds else "✗"} '
        f"{escape(t.where)}: {escape(t.shown)}</li>"
        for t in sorted(finding.tests, key=lambda test: test.holds)
    )
    details = f"<details><summary>comparisons</summary><ul>{compared}</ul></details>"
    return (
        f'<tr><td data-label="Where">{escape(claim.source)}{machine}</td>'
        f'<td data-label="Claim">{escape(claim.text)}</td>'
        f'<td data-label="Measured">{escape(finding.measured)}'
        f'<p class="criterion">True if {escape(claim.criterion)}.</p>{details * bool(compared)}'
        f'</td><td data-label="Verdict"><span class="verdict {kind}">{MARKS[finding.verdict]} '
        f"{finding.verdict}</span></td></tr>"
    )


def _figure(experiment: Experiment, svg: str) -> str:
    data, caption = base64.b64encode(svg.encode()).decode(), escape(experiment.caption)
    return (
        f'<figure><img alt="{escape(experiment.source)}: {caption}" '
        f'src="data:image/svg+xml;base64,{data}"/>\n'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of finished cells that scrolls on its own where it is too wide."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="numbers"><thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _beside(text: str) -> str:
    return f' <span class="paper">{text}</span>'


def _table1(measured: DataFrame) -> str:
    names = [label_of(name) for name in ALGORITHM_NAMES]
    head = ["k0", *(f"{n}, ms" for n in names), *(f"{n} / FedEPM" for n in names[1:])]
    parts = []
    for clients in measured.columns.unique("clients"):
        rows = []
        for local_steps, lct in measured[clients].dropna().iterrows():
            printed = PRINTED_LCT.get((int(clients), int(local_steps)), {})

            def with_printed(values: Mapping[str, float], name: str, form: str) -> str:
                return _beside(f"({values[name]:{form}})") if values else ""

            row = [f"{local_steps}"]
            in_ms = {name: 1e3 * seconds for name, seconds in printed.items()}
            for name in ALGORITHM_NAMES:
                row.append(f"{1e3 * lct[name]:.3g}" + with_printed(in_ms, name, ".3g"))
            ratios = {name: seconds / printed["fedepm"] for name, seconds in printed.items()}
            for name in ALGORITHM_NAMES[1:]:
                row.append(f"{lct[name] / lct['fedepm']:.1f}" + with_printed(ratios, name, ".1f"))
            rows.append(row)
        parts.append(f"<h3>{clients} clients</h3>\n{_table(head, rows)}")
    return (
        "<p>Median LCT over the trials in milliseconds, and in parentheses what the paper prints. "
        "Times are those of this machine and this implementation; the ratios are what "
        "compares.</p>\n" + "\n".join(parts)
    )


def _medians(summary: DataFrame) -> str:
    rows = []
    for (*cell, name), group in summary.groupby([*PARAMETERS, "algorithm"]):
        by_measure = group.set_index("measure")

        def shown(measure: str, found: DataFrame = by_measure) -> str:
            if measure not in found.index:
                return "-"
            _, scale, form = _SHOWN[measure]
            ends = ("median", "lower", "upper")
            median, low, high = (f"{scale * found.at[measure, end]:{form}}" for end in ends)
            return median + _beside(f"{low} to {high}")

        rows.append([*(f"{v:g}" for v in cell), label_of(name), *map(shown, _SHOWN)])
    return _table(["m", "k0", "rho", "eps", "algorithm", *(s[0] for s in _SHOWN.values())], rows)
