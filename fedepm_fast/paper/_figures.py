"""The figures of the paper, as sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..plots._style import optimum_line
from ..plots._sweep import sweep
from ..plots._tables import ROUND

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from . import Evaluation


def _fig2(evaluation: Evaluation) -> Figure:
    experiment = evaluation.experiments["fig2"]
    rows = experiment.of(evaluation.table)
    figure = sweep(
        rows,
        "mean_objective",
        against=ROUND,
        facet=("clients", "local_steps"),
        histories=evaluation.histories,
    )
    axes = iter(figure.axes)
    for clients in sorted(experiment.clients):
        optimum = rows.loc[rows["clients"] == clients, "optimum"].median()
        for _ in experiment.local_steps:
            optimum_line(next(axes), optimum)
    return figure


def _fig3(evaluation: Evaluation) -> Figure:
    rows = evaluation.experiments["fig3"].of(evaluation.table)
    return sweep(rows, ["rounds", "total_time"], against="local_steps", facet="clients")


def _fig4(evaluation: Evaluation) -> Figure:
    rows = evaluation.experiments["fig4"].of(evaluation.table)
    return sweep(rows, ["rounds", "total_time"], against="participation", kind="box")


def _fig5(evaluation: Evaluation) -> Figure:
    rows = evaluation.experiments["fig5"].of(evaluation.table)
    return sweep(rows, ["rounds", "total_time", "snr"], against="epsilon", kind="box")


DRAWINGS: dict[str, Any] = {"fig2": _fig2, "fig3": _fig3, "fig4": _fig4, "fig5": _fig5}
