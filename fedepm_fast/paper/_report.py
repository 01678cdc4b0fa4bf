"""The report on the evaluation of the paper: one HTML page that needs nothing beside itself."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from ..result import LABELS
from ._claims import FAILS, HOLDS, PARTLY, UNMEASURED, Finding
from ._experiments import ALGORITHM_NAMES, PARAMETERS, PRINTED_LCT
from ._style import CSS

if TYPE_CHECKING:
    from pandas import DataFrame

    from . import Evaluation

MARKS = {HOLDS: "✓", PARTLY: "◐", FAILS: "✗", UNMEASURED: "-"}

CAPTIONS = {
    "fig2": "f(x)/m along the communication rounds, for m clients and k0 local steps. Lines are "
    "medians over the trials and bands reach from quartile to quartile, whose width is mostly "
    "that of the splits, which differ in their optima. A run that has stopped keeps its last "
    "value, and a line ends at the median of the rounds at which its runs stopped. Dashed: the "
    "median optimum of the splits. At round 0 stands the aggregate of the first uploads, noise "
    "about w = 0: ENS takes all of them, the others the mean of the selected.",
    "fig3": "Communication rounds (above) and total time (below) against the local steps: medians "
    "and quartiles over the trials.",
    "fig4": "Communication rounds and total time against the participation, with 50 clients and 12 "
    "local steps. Boxes reach from quartile to quartile with the median; crosses lie beyond 1.5 "
    "box lengths.",
    "fig5": "Communication rounds, total time and SNR against epsilon, with 50 clients, 12 local "
    "steps and participation 0.5. Boxes as before. Epsilon is no privacy guarantee here.",
}

#: Where the paper as printed, the authors' program and this evaluation differ.
DIFFERENCES = (
    "<b>Program, not text.</b> The paper's figures come from the authors' program, which differs "
    "from the printed equations; all runs here follow the program (preset <code>released</code>). "
    "Client i's regulariser weighs beta/d<sub>i</sub> (printed: beta), its penalty parameter is "
    "multiplied by 1/d<sub>i</sub> (printed: 1), its noise is a Laplace vector standardised to "
    "mean 0 and deviation 1 (printed: independent Laplace values), and the stopping rule is the "
    "program's. With the equations as printed (preset <code>text</code>) the regulariser dominates "
    "and f/m ends near 0.69 at its own optimum, far above what the paper plots.",
    "<b>The printed noise.</b> The paper's Laplace density does not integrate to one as printed; "
    "it plays no part here.",
    "<b>Medians.</b> The paper prints averages of its trials in Fig. 3 and table 1; here they are "
    "medians with quartiles, and the averages are in <code>summary.csv</code>.",
    "<b>Splits.</b> Every trial has its own shuffle, split, selections and noise. The algorithms, "
    "and the cells with equally many clients, meet on the same splits, which makes comparisons "
    "between them sharper.",
    "<b>Optimum.</b> The paper compares end values with each other; here they are also compared "
    "with the optimum of the same split, found by Newton's method to a vanishing gradient.",
    "<b>SNR.</b> Clients that were never selected have no noise yet and are left out; the program "
    "counts them as 0. One sentence of the paper says that SNR increases with rho, where its "
    "figure varies epsilon.",
    "<b>Times.</b> The paper's were taken in MATLAB on a laptop. Claims on times, marked "
    "<i>machine</i>, depend on the machine, on the implementation and on what else runs: several "
    "runs are computed at once here, one on each processor. Ratios between algorithms "
    "carry over better than seconds do.",
)


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
    environment = evaluation.environment
    body = [
        "<header>",
        "<h1>FedEPM: the paper's evaluation, run again</h1>",
        f"<p>{_abstract(evaluation)}</p>",
        "</header>",
        _section("Claims and verdicts", _claims(evaluation.findings)),
        *(
            _section(
                f"{experiment.source}: {experiment.title}",
                _figure(experiment.source, CAPTIONS[name], drawings[name]),
            )
            for name, experiment in evaluation.experiments.items()
            if name in drawings
        ),
    ]
    if "table1" in evaluation.experiments:
        body.append(_section("Table 1: local time of a round", _table1(evaluation.table1())))
    body += [
        _section("What differs from the paper", _list(DIFFERENCES)),
        _section("Privacy", f"<p>{PRIVACY}</p>"),
        _section("Every cell", _cells(evaluation.summary)),
        _section("Environment", _environment(environment)),
    ]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>',
            '<meta charset="utf-8"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            '<meta name="color-scheme" content="light dark"/>',
            "<title>FedEPM: the paper's evaluation, run again</title>",
            f"<style>{CSS}</style>",
            "</head>\n<body>\n<main>",
            *body,
            "</main>\n</body>\n</html>\n",
        ]
    )


PRIVACY = (
    "Epsilon in these runs divides the noise as the paper has it, and is <b>no privacy "
    "guarantee</b>: the paper's analysis treats a client's parameters as public though they "
    "depend on its rows, its noise is scaled by the data instead of a bound over neighbouring "
    "data, and the program's noise is smaller still and standardised. A smaller SNR means more "
    "noise, not privacy."
)


def _abstract(evaluation: Evaluation) -> str:
    environment = evaluation.environment
    counts = Counter(finding.verdict for finding in evaluation.findings)
    verdicts = ", ".join(
        f"{counts[v]} {_plural(v, counts[v])}" for v in MARKS if counts[v] or v == HOLDS
    )
    return (
        f"{environment['runs']:,} runs of FedEPM, SFedProx and SFedAvg on the Adult data, "
        f"{environment['trials']} trial{'' if environment['trials'] == 1 else 's'} in each of "
        f"{environment['cells']} cells. Of {len(evaluation.findings)} claims {verdicts}. Verdicts "
        "are computed from the runs, comparison by comparison: a claim <i>holds</i> if every "
        "comparison is true, <i>holds partly</i> if some are, and <i>does not hold</i> if none is."
        + (" With so few trials medians are uncertain." if environment["trials"] < 20 else "")
    )


def _plural(verdict: str, count: int) -> str:
    if count == 1:
        return verdict
    return {HOLDS: "hold", PARTLY: "hold partly", FAILS: "do not hold"}.get(verdict, verdict)


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"


def _list(items: Iterable[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{item}</li>" for item in items) + "\n</ul>"


def _claims(findings: list[Finding]) -> str:
    rows = []
    for finding in findings:
        claim, kind = finding.claim, finding.verdict.replace(" ", "-")
        machine = ' <span class="tag">machine</span>' if claim.timing else ""
        tests = sorted(finding.tests, key=lambda test: test.holds)
        compared = "\n".join(
            f'<li class="{"yes" if t.holds else "no"}">{"✓" if t.holds else "✗"} '
            f"{escape(t.where)}: {escape(t.shown)}</li>"
            for t in tests
        )
        details = (
            f"<details><summary>comparisons</summary><ul>{compared}</ul></details>" if tests else ""
        )
        rows.append(
            f'<tr><td data-label="Where">{escape(claim.source)}{machine}</td>'
            f'<td data-label="Claim">{escape(claim.text)}</td>'
            f'<td data-label="Measured">{escape(finding.measured)}'
            f'<p class="criterion">True if {escape(claim.criterion)}.</p>{details}</td>'
            f'<td data-label="Verdict"><span class="verdict {kind}">{MARKS[finding.verdict]} '
            f"{finding.verdict}</span></td></tr>"
        )
    head = "".join(f"<th>{name}</th>" for name in ("Where", "Claim", "Measured", "Verdict"))
    return (
        "<p>Claims are paraphrased. <i>Expected</i> marks what this package adds to the paper's; "
        "<i>machine</i> marks claims on times, which depend on the machine.</p>\n"
        f'<table class="claims"><thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table>"
    )


def _figure(source: str, caption: str, svg: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<figure><img alt="{escape(source)}: {escape(caption)}" '
        f'src="data:image/svg+xml;base64,{data}"/>\n'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of finished cells that scrolls on its own where it is too wide."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="numbers"><thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _table1(measured: DataFrame) -> str:
    parts = []
    for clients in measured.columns.unique("clients"):
        rows = []
        for local_steps, lct in measured[clients].dropna().iterrows():
            printed = PRINTED_LCT.get((int(clients), int(local_steps)))
            of_paper = dict(zip(ALGORITHM_NAMES, printed, strict=True)) if printed else {}
            row = [f"{local_steps}"]
            for name in ALGORITHM_NAMES:
                row.append(f"{1e3 * lct[name]:.3g}" + _paper(of_paper, name, 1e3, "{:.3g}"))
            for name in ALGORITHM_NAMES[1:]:
                ratios = {name: of_paper[name] / of_paper["fedepm"]} if of_paper else {}
                ratio = lct[name] / lct["fedepm"]
                row.append(f"{ratio:.1f}" + _paper(ratios, name, 1, "{:.1f}"))
            rows.append(row)
        names = [LABELS[name] for name in ALGORITHM_NAMES]
        head = ["k0", *(f"{n}, ms" for n in names), *(f"{n} / FedEPM" for n in names[1:])]
        parts.append(f"<h3>{clients} clients</h3>\n{_table(head, rows)}")
    return (
        "<p>Median LCT over the trials in milliseconds, and in parentheses what the paper prints. "
        "Times are those of this machine and this implementation; the ratios are what "
        "compares.</p>\n" + "\n".join(parts)
    )


def _paper(values: Mapping[str, float], name: str, scale: float, form: str) -> str:
    if name not in values:
        return ""
    return f' <span class="paper">({form.format(scale * values[name])})</span>'


_SHOWN: dict[str, tuple[str, Any]] = {
    "mean_objective": ("f/m", lambda v: f"{v:.4f}"),
    "gap_percent": ("above optimum, %", lambda v: f"{v:.3f}"),
    "rounds": ("CR", lambda v: f"{v:g}"),
    "total_time": ("TCT, ms", lambda v: f"{1e3 * v:.3g}"),
    "local_time": ("LCT, ms", lambda v: f"{1e3 * v:.3g}"),
    "snr": ("SNR", lambda v: f"{v:.2f}"),
    "accuracy": ("accuracy", lambda v: f"{v:.4f}"),
}


def _cells(summary: DataFrame) -> str:
    keys = [*PARAMETERS, "algorithm"]
    rows = []
    for (*cell, name), group in summary.groupby(keys):
        by_measure = group.set_index("measure")
        row = [*(f"{v:g}" for v in cell), LABELS[name]]
        for measure, (_, show) in _SHOWN.items():
            if measure not in by_measure.index:
                row.append("-")
                continue
            m = by_measure.loc[measure]
            quartiles = f"{show(m['lower'])} to {show(m['upper'])}"
            row.append(f'{show(m["median"])} <span class="paper">{quartiles}</span>')
        rows.append(row)
    head = ["m", "k0", "rho", "eps", "algorithm", *(title for title, _ in _SHOWN.values())]
    return (
        "<details><summary>Medians, and quartiles beside them, of every cell and "
        f"algorithm</summary>\n{_table(head, rows)}</details>\n"
        "<p>The same as files beside this page: <code>runs.csv</code>, one row a run, "
        "<code>summary.csv</code>, <code>table1.csv</code>, the figures as PNG and SVG, and "
        "<code>findings.json</code>, every comparison behind a verdict.</p>"
    )


def _environment(environment: Mapping[str, Any]) -> str:
    seed, trials = environment["seed"], environment["trials"]
    versions = ", ".join(f"{name} {v}" for name, v in environment["versions"].items())
    entries = {
        "Date": environment["date"],
        "Machine": environment["machine"],
        "Versions": versions,
        "Seed": seed,
        "Runs": f"{environment['runs']:,}: {environment['cells']} cells, 3 algorithms, "
        f"{trials} trial{'' if trials == 1 else 's'}",
        "Engine": environment["engine"],
        "Jobs at a time": environment["jobs"],
        "Computing time": f"{environment['computing_time']:.1f} s, TCT of all runs added up",
        "Wall time": f"{environment['wall_time']:.1f} s, runs and optima; runs that a store held "
        "already were not done again",
        "Again": f"fedepm paper --trials {trials} --seed {seed}",
    }
    rows = "\n".join(f"<dt>{k}</dt><dd>{escape(str(v))}</dd>" for k, v in entries.items())
    return f"<dl>\n{rows}\n</dl>"
