"""What a private run refuses: what depends on the data and would be taken as public."""

from __future__ import annotations

from typing import Any

import numpy as np

from .algorithms import Algorithm, FedEPM
from .data import FederatedData, column_norms
from .losses import OBJECTIVES, Objective, as_objective
from .losses.multinomial import Multinomial
from .losses.scalar import ScalarLoss
from .objectives import Problem


def check_objective(objective: Any) -> None:
    """Raise ValueError where the number of coordinates would come from the labels."""
    objective = as_objective(objective)
    if isinstance(objective, Multinomial) and objective.classes is None:
        raise ValueError(
            "classes must be given for a private run, Multinomial(classes=...): the largest "
            "label is a record's"
        )


def check_run(algorithm: Algorithm, problem: Problem) -> None:
    """Raise ValueError where something that depends on the data would be taken as public."""
    mechanism = algorithm.mechanism
    assert mechanism is not None
    if type(algorithm) is not FedEPM:
        raise ValueError(
            "algorithm must be FedEPM itself for a private run: what a subclass does, as "
            f"{type(algorithm).__name__}, is not accounted for"
        )
    if problem.client_weight != "equal" or problem.data.sample_weight is not None:
        raise ValueError(
            "client_weight must be 'equal', and data without sample_weight, for a private run: "
            "how far a record moves an upload is accounted for without weights"
        )
    scaling = problem.data.description.get("scale") or _looks_scaled(problem.data)
    if scaling and not mechanism.public_scaling:
        raise ValueError(
            f"the columns were divided by numbers that depend on the data ({scaling}): divide by "
            "public bounds instead, or declare that public, with public_scaling"
        )
    if mechanism.neighbours == "client":
        return  # whatever the loss makes of a client's rows, its move is clipped
    check_bounds(problem.objective)


def check_bounds(objective: Objective) -> None:
    """Raise ValueError unless it is known how far a record moves gradients of the loss."""
    # What subclasses do is not accounted for: their functions see all rows at once.
    checked = [OBJECTIVES[name] for name in OBJECTIVES.built_in()]
    if type(objective) not in [*checked, ScalarLoss]:
        raise ValueError(
            f"the objective {objective.name!r} is a loss of your own, "
            f"{type(objective).__name__}, whose gradients nothing bounds: private runs take the "
            "built-in losses, and ScalarLoss with a slope, to which they clip its gradient"
        )
    if objective.slope is None:
        raise ValueError(
            f"the objective {objective.name!r} has no bound on a record's gradient: "
            "private runs need a loss with a bounded derivative, such as 'logistic', "
            "'multinomial', SquaredHinge(slope=...), Poisson(slope=...), or Huber(delta), which is "
            "least squares with each record's derivative clipped to delta"
        )
    if objective.curvature is None:
        raise ValueError(
            f"the objective {objective.name!r} must be given its curvature for a private run, by "
            "which the rounding of margins is accounted for"
        )


def _looks_scaled(data: FederatedData) -> str:
    """How half of the columns or more were scaled by their own numbers, as far as that can be
    told; else "". Constant columns and indicators do not count."""
    d = data.n_samples
    if d < 3:
        return ""
    norms, sizes = column_norms(data.features), abs(data.features)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        means = np.asarray(data.features.sum(axis=0)).ravel() / d
        deviations = np.sqrt(np.maximum(norms**2 / d - means**2, 0.0))
        peaks = sizes.max(axis=0)
        peaks = np.ravel(peaks.toarray() if data.is_sparse else peaks)
        # Entries are 0 and one other size where the sums of squares and sizes agree.
        sums = np.asarray(sizes.sum(axis=0)).ravel()
        two_valued = np.isclose(norms * (norms / peaks), sums, rtol=1e-6, atol=0)
    counts = (deviations > 1e-6 * np.abs(means)) & ~two_valued
    if not counts.any():
        return ""
    wanted = {
        "unit norm": (norms, 1.0),
        "unit deviation": (deviations, 1.0),
        "unit deviation, one degree of freedom less": (deviations, np.sqrt((d - 1) / d)),
    }
    for name, (values, one) in wanted.items():
        if np.isclose(values[counts], one, rtol=1e-6, atol=0).mean() >= 0.5:
            return name
    return ""
