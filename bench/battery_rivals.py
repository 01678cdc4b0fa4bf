"""What others do on a problem of the battery: averaging with tuned steps, and the paper's FedEPM.

SFedAvg and SFedProx step by ``learning_rate * d_i / sqrt(2*k0 + tau)`` times the gradient of a
client's mean loss and average without weights: that aims at the pooled objective, which is how they
are run here, and f is measured as the problem has it.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedepm_fast import FedEPM, ScalarLoss, SFedAvg, SFedProx, run
from fedepm_fast.objectives import Problem

ROUNDS = 200
#: Learning rates that are tried first, in units of the largest stable one by the clients' bounds;
#: then those half and twice the best.
_RATES = (4.0, 1.0, 16.0, 0.25, 64.0, 0.0625)
#: Local steps, and how many gradients one takes.
_AVERAGING = {SFedAvg: ((1, 5), 1), SFedProx: ((1, 4), 3)}
#: Directions whose curvature is this part of the largest are left out of whitened columns.
_FLAT = 1e-12


@dataclass(frozen=True)
class Path:
    """How f went in a run: shares of the way to the optimum that were left, round by round."""

    gaps: Any
    gradients: float
    """That a client computed a round."""
    sent: float
    """Numbers that a client sent a round."""
    setting: str = ""

    def to(self, share: float) -> float:
        """The first round in which no more than that share is left, or inf."""
        reached = self.gaps <= share
        return float(np.argmax(reached)) if reached.any() else math.inf

    @property
    def rank(self) -> tuple[float, float]:
        return self.to(1e-3), float(np.nanmin(self.gaps))


def whitened(problem: Problem) -> tuple[Problem, Any]:
    """The problem in columns whose second moments are the identity, and the way back."""
    data = problem.data
    scale = np.sqrt((data.features**2).mean(axis=0))
    even = data.features / np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(even.T @ even / len(even))
    kept = values > _FLAT * values[-1]
    back = vectors[:, kept] / np.sqrt(values[kept]) / np.where(scale > 0, scale, 1.0)[:, None]
    objective = problem.objective.changed(weights=None, beta=0.0)
    return Problem(replace(data, features=data.features @ back), objective), back


def averaging(
    cls: Any, problem: Problem, coordinates: str, optimum: float, participation: float = 1.0,
    settings: tuple[tuple[float, int], ...] | None = None,
) -> tuple[Path, tuple[float, int]]:  # fmt: skip
    """The best of a small search over learning rates and local steps, and its setting."""
    posed, back = whitened(problem) if coordinates == "whitened" else (problem, None)
    unit = _largest_rate(posed)
    steps, each = _AVERAGING[cls]
    n = posed.n_parameters

    def path(rate: float, k0: int, most: float) -> Path:
        algorithm = cls(
            learning_rate=rate * unit * math.sqrt(2 * k0), local_steps=k0, noise="none",
            participation=participation,
        )  # fmt: skip
        gaps = _gaps(algorithm, posed, problem, back, optimum, int(min(most, ROUNDS)))
        label = f"{coordinates}, rate {rate:g}, k0 {k0}"
        return Path(gaps, participation * k0 * each, participation * n, label)

    tried: dict[tuple[float, int], Path] = {}

    def best() -> tuple[float, int]:
        return min(tried, key=lambda s: tried[s].rank)

    def search(settings: Any) -> None:
        for setting in settings:  # one that takes more rounds than the best needs no end
            tried[setting] = path(*setting, tried[best()].to(1e-3) if tried else math.inf)

    if settings is None:
        search((rate, k0) for k0 in steps for rate in _RATES)
        rate, k0 = best()
        settings = ((rate / 2, k0), (rate * 2, k0))
    search(settings)
    return tried[best()], best()


def paper(problem: Problem, optimum: float, participation: float) -> Path:
    """FedEPM with the paper's parameters, without noise."""
    algorithm = FedEPM(noise="none", participation=participation)
    gaps = _gaps(algorithm, problem, problem, None, optimum)
    return Path(gaps, participation, participation * problem.n_parameters)


def _largest_rate(problem: Problem) -> float:
    """1 over the largest curvature of a client's summed loss."""
    equal = Problem(problem.data, problem.objective)
    start = np.zeros(problem.n_parameters)
    diagonal = None if problem.has_lipschitz else equal.column_bounds(start).sum(axis=1)
    curvature = equal.lipschitz() if diagonal is None else diagonal
    return float(1 / (curvature * problem.data.client_sizes).max())


def _engine(problem: Problem) -> str:
    # Few rows are sooner done in NumPy than a loss of one's own is compiled.
    return "reference" if isinstance(problem.objective, ScalarLoss) else "compiled"


def _gaps(
    algorithm: Any, posed: Problem, measured: Problem, back: Any, optimum: float, most: int = ROUNDS
) -> Any:
    m = measured.n_clients
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it diverged is what is measured
        result = run(
            algorithm, posed.data, objective=posed.objective, stopping="none", seed=0,
            max_rounds=most, every_accuracy=False, engine=_engine(posed),
        )  # fmt: skip
    points = result.history["x"]
    if back is not None:
        outputs = measured.objective.n_outputs
        points = (points.reshape(len(points), outputs, -1) @ back.T).reshape(len(points), -1)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.array([measured.total_value(x) for x in points]) / m
    start = measured.total_value(np.zeros(measured.n_parameters)) / m
    return np.nan_to_num((values - optimum) / (start - optimum), nan=np.inf)
