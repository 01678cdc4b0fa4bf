"""The figure of a model: its coefficients, and its calibration client by client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ._evaluation import Evaluation
    from ._model import Model

#: What a coefficient of a loss is of.
_OF = {
    "logistic": "log-odds",
    "multinomial": "log-odds",
    "poisson": "logarithm of the mean",
}


def draw(model: Model, evaluation: Evaluation | None, level: float) -> Figure:
    """One or two panels."""
    if evaluation is None and model.comparison is not None:
        evaluation = model.comparison.federated
    features = [(j, f) for j, f in enumerate(model.prepared.features)]
    told = model.told
    p, several = len(model.feature_names), len(told) > 1
    names, places, scales = [], [], []
    for k in range(len(told)):
        for j, feature in features:
            against = f", {model.classes[k + 1]}" if several and model.classes else ""
            names.append(feature.name + against)
            places.append(k * p + j)
            is_number = feature.part == "value" and not _is_boolean(model, feature.column)
            scales.append(feature.scale if is_number else 1.0)
    scale = np.array(scales)
    known = {"coefficient": told.ravel()}
    if model.inference.default is not None:
        known = model.statistics(level=level)
    values = {name: known[name][places] * scale for name in known.keys() & _DRAWN}
    height = min(max(3.8, 1.2 + 0.28 * len(names)), 8.5)
    panels = 1 if evaluation is None else 2
    figure, axes = plots.new_grid(1, panels, 5.2 * panels, height)
    what = _OF.get(model.objective.name, model.label)
    if several and model.classes:
        what += f" against {model.classes[0]}"
    ends = f", {100 * level:g} % interval" if "low" in values else ""
    plots.coefficients(
        names, values["coefficient"], values.get("low"), values.get("high"), axes[0, 0],
        label=f"{what}{ends}\n(numbers: per standard deviation)",
    )  # fmt: skip
    if evaluation is not None:
        unit = model.has_probabilities
        labels = _axes_of(model)
        plots.calibration(
            evaluation.curves, axes[0, 1], predicted=labels[0], seen=labels[1], unit=unit
        )
    return figure


#: What of the statistics is drawn.
_DRAWN = {"coefficient", "low", "high"}


def _is_boolean(model: Model, column: str) -> bool:
    return any(rule.name == column and rule.kind == "boolean" for rule in model.prepared.columns)


def _axes_of(model: Model) -> tuple[str, str]:
    if model.classes is None:
        return f"predicted {model.label} (mean of a bin)", f"{model.label} (mean of a bin)"
    if not model.has_probabilities:
        return "margin (mean of a bin)", f"share of {model.classes[-1]}"
    if len(model.classes) == 2:
        return f"predicted probability of {model.classes[1]}", f"share of {model.classes[1]}"
    return "probability of the most probable class", "share of rows of which it is the label"
