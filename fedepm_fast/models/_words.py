"""A model and its measures in words: for a terminal of 80 columns, and for notebooks."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from .._common import html
from .._common.text import (
    WIDTH,
    aligned,
    counted,
    fill,
    pairs,
    plural,
    shortened,
    span,
    terminal_width,
)

if TYPE_CHECKING:
    from ._comparison import Comparison
    from ._evaluation import Evaluation
    from ._model import Model

_TITLES = {
    "logistic": "Logistic regression",
    "multinomial": "Multinomial logistic regression",
    "least_squares": "Linear regression",
    "poisson": "Poisson regression",
    "huber": "Huber regression",
    "squared_hinge": "Support vector classification",
}
_KINDS = {"wald": "Wald", "robust": "robust (HC1)", "clustered": "clustered by client"}
#: Clients below which errors that are clustered by client are known to be too small.
_MANY = 30
_NAME, _CLIENT, _COMPARED = 12, 12, 16
#: Names of clients that a sentence has at most.
_ABSENT = 5


# Numbers -----------------------------------------------------------------------------------


def figure(value: float | None, digits: int = 4) -> str:
    """A number in a table, in so many significant digits; a dash where there is none."""
    if value is None or math.isnan(value):
        return "-"
    if not value:
        return "0"
    power = math.floor(math.log10(abs(value)))
    if not -4 <= power < digits + 2:
        return f"{value:.{digits - 2}e}"
    return f"{value:,.{max(digits - 1 - power, 0)}f}"


def p_text(p: float) -> str:
    """A p-value; what rounding makes 0 is not 0."""
    if math.isnan(p):
        return "-"
    return "<1e-16" if p < 1e-16 else f"{p:.1e}" if p < 1e-4 else f"{p:.4f}"


# A model -----------------------------------------------------------------------------------


def title_of(model: Model) -> str:
    name = model.objective.name
    kind = _TITLES.get(name, f"Model with the loss {name}")
    what = model.label
    if model.classes is not None and len(model.classes) == 2:
        what += f" = {model.classes[1]}"
    return f"{kind} of {what}"


def facts(model: Model) -> list[tuple[str, str]]:
    """What there is to know of a model beside its coefficients."""
    known, how = model.inference, model.training
    found = [("rows", _rows(model)), ("objective", _objective(model)), ("fit", _fit(model))]
    if known.deviance is not None and known.null_deviance is not None:
        text = f"{known.deviance:,.2f}, {known.null_deviance:,.2f} without columns"
        if known.aic is not None:
            text += f"; AIC {known.aic:,.2f}"
        found.append(("deviance", text))
    if known.dispersion is not None:
        spread = f"{math.sqrt(known.dispersion):.5g} on {known.df_residual:g} degrees of freedom"
        found.append(("residual sd", spread))
    if (sent := how.get("sent")) is None:  # nobody sent anything
        return found
    if (privacy := how.get("privacy")) is not None:
        told = f"{sent['rounds']:,} numbers in the rounds, all with noise, and nothing else"
        if sent["preparation"]:
            told = f"{sent['preparation']:,} numbers of means and second moments, {told}"
        return [*found, ("sent by a client", told), ("privacy", privacy["guarantee"])]
    single = sum(client["rows"] == 1 for client in model.clients)
    bare = f"no row but of the {single:,} with one, whose sums are that row" if single else "no row"
    found.append((
        "sent by a client",
        f"{sent['preparation']:,} numbers for the columns, {sent['rounds']:,} in the rounds, "
        f"{sent['inference']:,} for standard errors; {bare}, no noise",
    ))  # fmt: skip
    return found


def _rows(model: Model) -> str:
    told = model.clients
    rows = [client["rows"] for client in told]
    if not sum(rows):  # hidden with all there is of a client
        return f"of {counted(len(rows), 'client')}, whose sizes are private"
    text = f"{sum(rows):,} of {len(rows)} client{'s' * (len(rows) != 1)}"
    if len(rows) > 1:
        text += f", {span(min(rows), max(rows))} each"
    for name, words in (("held_out", "held out"), ("left_out", "without a label left out")):
        count = sum(client.get(name, 0) for client in told)
        text += f"; {count:,} {words}" * bool(count)
    return text


def _objective(model: Model) -> str:
    how = model.training
    alike = "all rows count alike" if how["client_weight"] == "size" else "all clients count alike"
    if how["weighted"]:
        alike += ", but for their weights"
    if how["class_weight"] is not None:
        alike += ", weighted by class"
    beta = how["beta"]
    of = how.get("penalised", "standardised" if "privacy" in how else "prepared")
    penalty = f"penalty beta {beta:g} on {of} columns" if beta else "no penalty"
    loss = model.objective.name
    if (delta := model.objective.describe().get("delta")) is not None:
        loss += f" with delta {delta:.4g}"
    if "asked" in how:
        loss += f", instead of {how['asked']}, whose slope has no bound: the delta is the plan's"
    return f"{loss}; {alike}; {penalty}"


def _fit(model: Model) -> str:
    how = model.training
    if "privacy" in how:
        return f"{counted(how['rounds'], 'round')}, which public numbers gave"
    done = "converged" if how["converged"] else "not converged"
    if how["unbounded"]:
        done = "no finite optimum, ended"
    rounds = f"{how['rounds']} round{'s' * (how['rounds'] != 1)}"
    part = how["participation"]
    some = f" of {100 * part:g} % of the clients" if part < 1 else ""
    return f"{done} in {rounds}{some}, gradient {how['gradient_norm']:.1e}"


def coefficient_rows(model: Model, kind: str | None, level: float) -> list[list[str]]:
    """The table of coefficients, its headings first; the intercept before the others."""
    p, told = len(model.feature_names), model.told
    order = [p - 1, *range(p - 1)] if model.has_intercept else list(range(p))
    kind = model.inference.default if kind is None else kind
    known = None if kind is None else model.statistics(kind, level)
    letter = "z" if kind is None or math.isinf(model.inference.df(kind)) else "t"
    head = ["", "estimate"]
    if known is not None:
        head += ["std.err", letter, "p", f"{100 * level:g} % interval"]
    noise = model.training.get("privacy", {}).get("noise")
    if noise is not None:
        head.append("noise (sd)")
    rows = [head]
    for k, values in enumerate(told):
        if len(model.coef) > 1:
            assert model.classes is not None
            name = f"{model.classes[k + 1]} against {model.classes[0]}"
            rows.append([name, *[""] * (len(head) - 1)])
        for j in order:
            row = [model.feature_names[j], figure(values[j])]
            if known is not None:
                at = k * p + j
                row += [
                    figure(known["standard_error"][at], 3), f"{known['statistic'][at]:.2f}",
                    p_text(known["p_value"][at]),
                    f"{figure(known['low'][at], 3)} to {figure(known['high'][at], 3)}",
                ]  # fmt: skip
            if noise is not None:
                row.append(figure(noise[model.feature_names[j]], 2))
            rows.append(row)
    return rows


def remarks(model: Model, kind: str | None) -> list[str]:
    """Sentences below a table of coefficients."""
    known = model.inference
    used = known.default if kind is None else kind
    found = []
    if "privacy" in model.training:
        found.append(
            "noise (sd): about what it leaves in a coefficient, if columns vary as declared, "
            "numbers within bounds by a quarter of their range"
        )
    if used is None:
        others = " or ".join(f"kind={name!r}" for name in known.covariances)
        hint = f"; {others} has errors that hold without one" if others else ""
        found.append(f"no standard errors: {known.missing.get('wald', '')}{hint}")
    else:
        text = f"standard errors: {_KINDS[used]}"
        if used == "clustered" and known.clusters < _MANY:
            text += f", of {known.clusters} clients only, fewer than these need to be reliable"
        if used != "wald" and "wald" in known.missing:
            text += f"; not Wald's, because {known.missing['wald']}"
        found.append(text)
        if model.training["beta"]:
            found.append("the penalty draws coefficients to zero, of which errors say nothing")
    if model.prepared.aliased:
        left = ", ".join(model.prepared.aliased)
        found.append(f"left out, as sums of other columns: {left}")
    if model.prepared.dropped:
        left = ", ".join(f"{name} ({why})" for name, why in model.prepared.dropped)
        found.append(f"columns without a coefficient: {left}")
    return [*found, *(f"warning: {note}" for note in model.notes)]


def summary_of(model: Model, kind: str | None, level: float) -> str:
    """What printing a model says."""
    rows = coefficient_rows(model, kind, level)
    # Names have what the numbers leave of a line.
    others = sum(2 + max(map(len, column)) for column in list(zip(*rows, strict=True))[1:])
    room = max((terminal_width() or WIDTH) - 2 - others, _NAME)
    table = aligned([[shortened(name, room), *rest] for name, *rest in rows], margin="  ")
    below = [fill(f"  {text}", "    ") for text in remarks(model, kind)]
    lines = [title_of(model), *pairs(facts(model), margin="  "), "", *table, "", *below]
    if model.comparison is not None:
        lines += ["", comparison_text(model.comparison)]
    return "\n".join(lines)


def html_of(model: Model) -> str:
    head, *rows = coefficient_rows(model, None, 0.95)
    below = "".join(f"<p>{escape(text)}</p>" for text in remarks(model, None))
    shown = html.pairs(facts(model), title_of(model)) + html.table(head, rows) + below
    return shown if model.comparison is None else shown + comparison_html(model.comparison)


# Measures ----------------------------------------------------------------------------------

#: Columns of a table of measures: what they are called, the measure, and how it is written.
_OF_TWO = (
    ("rows", "rows"), ("pos.", "positives"), ("loss", "log_loss"), ("null", "log_loss_null"),
    ("AUC", "auc"), ("Brier", "brier"), ("slope", "calibration_slope"), ("acc.", "accuracy"),
    ("major", "accuracy_null"),
)  # fmt: skip
_OF_CLASSES = (
    ("rows", "rows"), ("loss", "log_loss"), ("null", "log_loss_null"), ("AUC", "auc"),
    ("Brier", "brier"), ("acc.", "accuracy"), ("major", "accuracy_null"),
)  # fmt: skip
_OF_NUMBERS = (
    ("rows", "rows"), ("mean", "mean"), ("RMSE", "rmse"), ("null", "rmse_null"), ("MAE", "mae"),
    ("R2", "r2"), ("slope", "calibration_slope"), ("deviance", "deviance"),
)  # fmt: skip


def measure_rows(found: Evaluation) -> list[list[str]]:
    """A table of measures, its headings first: a row for each client, and one for all."""
    model = found.model
    known: tuple[tuple[str, str], ...] = _OF_NUMBERS
    if model.classes is not None:
        known = _OF_TWO if len(model.classes) == 2 else _OF_CLASSES
    shown = [(head, name) for head, name in known if name in found.overall]
    rows = [["client", *(head for head, _ in shown)]]
    of = {**found.clients, "all": found.overall} if len(found.clients) > 1 else {
        "all": found.overall
    }  # fmt: skip
    for name, values in of.items():
        cells = [_cell(measure, values[measure]) for _, measure in shown]
        rows.append([shortened(name, _CLIENT), *cells])
    return rows


def _cell(name: str, value: Any) -> str:
    if name == "rows":
        return f"{value:,}"
    return "-" if value is None else f"{value:.3f}" if abs(value) < 1e3 else figure(value)


def _explained(found: Evaluation) -> str:
    model = found.model
    told = ["all but rows by their weights"] if found.weighted else []
    if model.classes is None:
        told.append("null: always the mean of the training")
        return "; ".join([*told, "slope: of the calibration, 1 is right"])
    if "positives" in found.overall:
        told.append(f"pos.: share of {model.classes[1]}")
    if "log_loss" in found.overall:
        told.append("loss: log-loss; null: that of the shares of the classes in training")
    if "calibration_slope" in found.overall:
        told.append("slope: of the calibration, 1 is right")
    told.append("acc.: accuracy; major: that of always naming the largest class of the training")
    return "; ".join(told)


def evaluation_text(found: Evaluation, margin: str = "") -> str:
    """What printing an evaluation says."""
    lines = aligned(measure_rows(found), margin)
    if found.left_out:
        what = "a label or of weight 0" if found.weighted else "a label"
        rows = plural("row", found.left_out)
        lines.append(f"{margin}{found.left_out:,} {rows} without {what} left out")
    return "\n".join([*lines, fill(margin + _explained(found), margin)])


def evaluation_html(found: Evaluation) -> str:
    head, *rows = measure_rows(found)
    return html.table(head, rows) + f"<p>{escape(_explained(found))}</p>"


def comparison_rows(found: Comparison) -> list[list[str]]:
    """The models of one client, of all, and of one table side by side, headings first."""
    compared = _compared(found.federated.model)
    rows = [["client", "rows", *(len(compared) * ("own", "federated", "pooled"))]]
    mine, ours = found.federated.clients, found.pooled.clients
    every = {**mine, "all": found.federated.overall} if len(mine) > 1 else mine
    for name, known in every.items():
        row = [shortened(name, _COMPARED), f"{known['rows']:,}"]
        for _, measure in compared:
            alone = found.local.get(name, {}).get(measure)
            pooled = ours.get(name, found.pooled.overall)[measure]
            row += [_cell(measure, value) for value in (alone, known[measure], pooled)]
        rows.append(row)
    return rows


def _compared(model: Model) -> list[tuple[str, str]]:
    if model.classes is None:
        return [("RMSE", "rmse"), ("R2", "r2")]
    if not model.has_probabilities:
        return [("accuracy", "accuracy")]
    return [("log-loss", "log_loss"), ("AUC", "auc")]


def _without_rows(found: Comparison) -> str:
    """A sentence on the clients that no row was held out of, if there are such."""
    fitted = [c["name"] for c in found.federated.model.clients if c["rows"]]
    absent = [name for name in fitted if name not in found.federated.clients]
    if not absent:
        return ""
    more = f" and {len(absent) - _ABSENT:,} others" if len(absent) > _ABSENT else ""
    return (
        "not in these tables, with so few rows that none was held out: "
        f"{', '.join(absent[:_ABSENT])}{more}"
    )


def comparison_text(found: Comparison) -> str:
    """What federation brings, for a terminal of 80 columns."""
    model = found.federated.model
    lines = ["Rows that were held out, and that no model was fitted to", ""]
    lines.append(evaluation_text(found.federated, margin="  "))
    if absent := _without_rows(found):
        lines.append(fill(f"  {absent}", "  "))
    if len(found.federated.clients) < 2:
        return "\n".join(lines)
    lines += ["", "What federation brings on these rows", ""]
    table = aligned(comparison_rows(found), margin="  ")
    places = [at for at in range(len(table[0])) if table[0].startswith("own", at)]
    above = ""
    for (head, _), at in zip(_compared(model), places, strict=True):
        above = above.ljust(at) + head
    lines += [above, *table]
    lines.append(fill(
        "  own: the client's own model; federated: this one; pooled: that of one table of all "
        "rows", "  ",
    ))  # fmt: skip
    lines += [
        fill(f"  {name} has no model of its own: {why}", "    ")
        for name, why in found.without.items()
    ]
    lines += [
        fill(f"  the model of {name} alone has {what}", "    ")
        for name, what in found.notes.items()
    ]
    return "\n".join(lines)


def comparison_html(found: Comparison) -> str:
    """The same tables for a notebook."""
    head, *rows = comparison_rows(found)
    kinds = [name for name, _ in _compared(found.federated.model) for _ in range(3)]
    head = head[:2] + [f"{name}, {side}" for name, side in zip(kinds, head[2:], strict=True)]
    return evaluation_html(found.federated) + html.table(head, rows)
