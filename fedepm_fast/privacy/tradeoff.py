"""What privacy costs: the objective and accuracy against the total epsilon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.validation import MAX_SEED, check_int, check_real
from ..algorithms import FedEPM
from ..data import FederatedData
from ..guarantees import share_a_seed
from ..losses import Logistic
from ..runner import make_problem
from .planning import plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILONS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
#: What is minimised: no penalty.
LOSS = Logistic(beta=0.0)


@dataclass(frozen=True)
class Tradeoff:
    """Runs at several budgets, and what they are compared with.

    Attributes
    ----------
    rows : list of dict
        One for each run: ``total_epsilon``, ``trial``, ``seed``, ``mean_objective`` f(x)/m,
        ``accuracy``, ``closed`` (the share of the way from w = 0 to the optimum of its split),
        ``optimum`` and ``optimum_accuracy``, ``majority`` (accuracy of the larger class), the
        settings, and the ``guarantee``: none, for the runs of a trial share their seed, which
        pairs what is compared, and with it their noise.
    """

    rows: list[dict[str, Any]]

    def column(self, name: str, epsilon: float) -> np.ndarray:
        """A measure of all runs with this total epsilon."""
        return np.array([row[name] for row in self.rows if row["total_epsilon"] == epsilon])

    @property
    def epsilons(self) -> list[float]:
        """The budgets, in increasing order."""
        return sorted({row["total_epsilon"] for row in self.rows})

    def __str__(self) -> str:
        heads = ("epsilon", "f(x)/m", "closed", "worst tenth", "accuracy")
        table = [heads, *map(self._row, self.epsilons)]
        least = zip((8, 8, 7, 11, 8), zip(*table, strict=True), strict=True)
        widths = [max(width, *map(len, column)) for width, column in least]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in table]
        optimum, accuracy = (
            np.median([row[name] for row in self.rows]) for name in ("optimum", "optimum_accuracy")
        )
        lines.append(
            f"without privacy {_number(optimum)} (optimum), accuracy {accuracy:.4f}; "
            f"majority class {self.rows[0]['majority']:.4f}"
        )
        return "\n".join(lines)

    def _row(self, epsilon: float) -> tuple[str, ...]:
        closed = self.column("closed", epsilon)
        shares = np.median(closed), np.quantile(closed, 0.1)
        return (
            f"{epsilon:g}",
            _number(np.median(self.column("mean_objective", epsilon))),
            *(f"{v:.1%}" if abs(v) < 1e4 else f"{100 * v:.3g}%" for v in shares),
            f"{np.median(self.column('accuracy', epsilon)):.4f}",
        )

    def plot(self) -> Figure:
        """f(x)/m and accuracy against the total epsilon."""
        from .. import plots
        from ..plots._style import ink, note

        figure, axes = plots.new_grid(2, 1, 6.4, 6.4, sharex=True)
        epsilons = self.epsilons
        for ax, name, label, reference, least, nothing in (
            (axes[0, 0], "mean_objective", "f(x) / m", "optimum", "start, w = 0", np.log(2)),
            (
                axes[1, 0], "accuracy", "accuracy", "optimum_accuracy", "majority class",
                self.rows[0]["majority"],
            ),
        ):  # fmt: skip
            low, middle, high = (
                [np.quantile(self.column(name, e), q) for e in epsilons] for q in (0.25, 0.5, 0.75)
            )
            ax.fill_between(epsilons, low, high, color="#0072B2", alpha=0.18, linewidth=0)
            ax.plot(epsilons, middle, "o-", color="#0072B2", label="private FedEPM")
            without = np.median([row[reference] for row in self.rows])
            ax.axhline(without, color=ink(0.85), linestyle="--", label="optimum, not private")
            # Far from the runs it would only squash them: then the legend alone has it.
            ends = [*low, *high, without]
            if min(abs(nothing - end) for end in ends) > np.ptp(ends):
                ax.plot([], [], " ", label=f"{least}: {nothing:.3f}, beyond the axis")
            else:
                ax.axhline(nothing, color=ink(0.5), linestyle=":", label=least)
            ax.set_xscale("log")
            ax.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
            ax.minorticks_off()
            ax.set_ylabel(label)
            ax.legend(frameon=False, fontsize=9)
        axes[1, 0].set_xlabel("total epsilon of each client")
        trials = len({row["trial"] for row in self.rows})
        splits = f"{trials} split{'' if trials == 1 else 's'}"
        note(figure, f"median and quartiles of {splits}, one run of each at each epsilon")
        return figure


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.6g}"


def tradeoff(
    split: Callable[[int], FederatedData],
    *,
    epsilons: Sequence[float] = EPSILONS,
    trials: int = 20,
    seed: int = 0,
    delta: float = 1e-6,
    trust: str = "clients",
    honest: float = 0.5,
    neighbours: str = "record",
    public_scaling: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Tradeoff:
    """Run private logistic regressions, as `plan` plans them, at several budgets.

    Parameters
    ----------
    split : callable
        ``split(seed)`` gives the federated data of a trial, labels 0 and 1, columns of a mean
        square of about 1.
    epsilons : sequence of float
        Total epsilons of each client, above 0.
    trials : int
        At least 1; every one has its own split, selections and noise.
    seed : int
        Of the first trial; the following ones count on.
    delta : float
        In [0, 1): Gaussian noise, or Laplace noise where it is 0.
    trust, honest, neighbours : str, float, str
        As of `plan`.
    public_scaling : bool
        As in `Mechanism`.
    progress : callable, optional
        Called with runs done and runs in all.

    Returns
    -------
    Tradeoff
        The optimum and accuracies are computed from the data: they are the experimenter's.
    """
    if not epsilons:
        raise ValueError("epsilons must hold at least one total epsilon, got none")
    budgets = [check_real("epsilons", e, low=0.0, open_low=True) for e in epsilons]
    trials = check_int("trials", trials, low=1)
    seed = check_int("seed", seed, high=MAX_SEED)
    rows: list[dict[str, Any]] = []
    for trial in range(trials):
        data = split(seed + trial)
        of_split, start = _of_split(data)
        for epsilon in budgets:
            made = plan(
                epsilon, data.client_sizes, data.n_features, delta=delta, objective=LOSS,
                trust=trust, honest=honest, neighbours=neighbours,
            )  # fmt: skip
            result = share_a_seed(
                made.run(
                    data, seed=seed + trial, public_scaling=public_scaling, every_accuracy=False
                )
            )
            f = result.mean_objective
            rows.append(
                {
                    "total_epsilon": epsilon, "delta": delta, "trust": trust,
                    "neighbours": neighbours, "trial": trial, "seed": seed + trial,
                    "mean_objective": f, "accuracy": result.accuracy,
                    "closed": (start - f) / (start - of_split["optimum"]), **of_split,
                    "expected_rise": made.rise, "expected_short": made.short,
                    "rounds": made.rounds, "kept": made.kept,
                    "moments": made.mechanism.moments, "clip": made.mechanism.clip,
                    "guarantee": result.guarantee,
                }
            )  # fmt: skip
            if progress is not None:
                progress(len(rows), trials * len(budgets))
    return Tradeoff(rows)


def _of_split(data: FederatedData) -> tuple[dict[str, Any], float]:
    """What runs on these data are compared with, and f(0)/m."""
    problem = make_problem(FedEPM(), data, LOSS)
    best, m = problem.optimum(method="newton"), data.n_clients
    share = float(data.labels.mean())
    found = {
        "optimum": best.value / m,
        "optimum_accuracy": problem.accuracy(best.x),
        "majority": max(share, 1 - share),
    }
    return found, float(problem.total_value(np.zeros(problem.n_parameters))) / m
