"""What a tuning reports."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.extras import require
from .._common.files import write_csv
from ..algorithms import Algorithm
from ..objectives import Objective
from ._scores import mean_and_error
from ._space import Range, Space, with_values
from ._text import as_code, as_toml, short, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True)
class TuneTrial:
    """One choice of parameters, and what came of it.

    Attributes
    ----------
    number : int
        0 is the algorithm as it was given.
    parameters : dict
    state : {"complete", "diverged", "failed", "pruned"}
    score : float or None
        Mean over the folds, weighted by what they hold out; None unless complete.
    standard_error : float or None
        Of the score, over the folds.
    fold_scores : tuple of float
        Those of all folds, or of the ones before what ended the trial.
    fold_rounds : tuple of int
        Communication rounds of their runs.
    error : str or None
        Why there is no score.
    seconds : float
        That the trial took.
    """

    number: int
    parameters: dict[str, Any]
    state: str
    score: float | None
    standard_error: float | None
    fold_scores: tuple[float, ...]
    fold_rounds: tuple[int, ...]
    error: str | None
    seconds: float

    @classmethod
    def of(cls, number: int, trial: Any, weights: NDArray[np.float64]) -> TuneTrial:
        """From one of Optuna's."""
        kept = trial.user_attrs
        state = kept.get("state", "complete")
        scores = tuple(kept["fold_scores"])
        complete = state == "complete"
        return cls(
            number=number,
            parameters=kept.get("parameters") or dict(trial.params),
            state=state,
            score=trial.value if complete else None,
            standard_error=mean_and_error(scores, weights)[1] if complete else None,
            fold_scores=scores,
            fold_rounds=tuple(kept["fold_rounds"]),
            error=kept.get("reason"),
            seconds=kept["seconds"],
        )

    @property
    def rounds(self) -> float | None:
        """Mean communication rounds of the runs; None unless complete."""
        return float(np.mean(self.fold_rounds)) if self.state == "complete" else None


class Improvement(NamedTuple):
    """How much better than the default, positive is better, from fold to fold."""

    mean: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class TuneResult:
    """The best parameters, and every trial.

    Attributes
    ----------
    algorithm : Algorithm
        With the best parameters, ready to run.
    objective : Objective
        With the best ``beta``.
    trials : tuple of TuneTrial
        In the order in which they were made.
    best : TuneTrial
        The one with the best score; the first of those.
    space : dict
        By parameter a `Range` or `Choices`.
    fold_weights : ndarray of shape (K,)
        What the folds count.
    maximize : bool
        Whether more is better: for the accuracy.
    settings : dict
        ``over``, ``folds``, ``score``, ``seed``, whether the data have an ``intercept`` that was
        added, and how runs are stopped.
    """

    algorithm: Algorithm
    objective: Objective
    trials: tuple[TuneTrial, ...]
    best: TuneTrial
    space: Space
    fold_weights: NDArray[np.float64]
    maximize: bool
    settings: dict[str, Any]

    @classmethod
    def of(
        cls, algorithm: Algorithm, objective: Objective, trials: Sequence[TuneTrial], **known: Any
    ) -> TuneResult:
        """From what was tuned and the trials of it; the best one and what it makes follow.

        Raises
        ------
        RuntimeError
            If none has a score.
        """
        complete = [t for t in trials if t.score is not None]
        if not complete:
            raise RuntimeError(
                f"none of {len(trials)} trials has a score; the first: {trials[0].error}"
            )
        sign = -1 if known["maximize"] else 1
        best = min(complete, key=lambda t: (sign * (t.score or 0.0), t.number))
        if best.number:  # the first is what was given, and stays as open as that
            algorithm, objective = with_values(best.parameters, algorithm, objective)
        return cls(algorithm, objective, tuple(trials), best, **known)

    @property
    def parameters(self) -> dict[str, Any]:
        """The best parameters."""
        return self.best.parameters

    @property
    def score(self) -> float:
        """The best score."""
        assert self.best.score is not None
        return self.best.score

    @property
    def standard_error(self) -> float:
        """Of the best score, over the folds."""
        assert self.best.standard_error is not None
        return self.best.standard_error

    @property
    def default(self) -> TuneTrial:
        """The trial of the algorithm as it was given."""
        return self.trials[0]

    @property
    def improvement(self) -> Improvement | None:
        """The best score against the default's, fold by fold; None where that has none.

        Both are measured on the same folds, so the difference is known better than either.
        """
        if self.default.score is None:
            return None
        gain = np.subtract(self.best.fold_scores, self.default.fold_scores)
        return Improvement(*mean_and_error(gain if self.maximize else -gain, self.fold_weights))

    @property
    def at_the_end(self) -> list[str]:
        """Parameters whose best value is in the outer twentieth of its range, on its scale."""
        return [
            name
            for name, axis in self.space.items()
            if isinstance(axis, Range)
            and self.parameters[name] in axis
            and not 0.05 < axis.position(self.parameters[name]) < 0.95
        ]

    def importance(self) -> dict[str, float]:
        """How much of the score's variation among the best trials each parameter explains.

        By PED-ANOVA (Watanabe, Bansal and Hutter 2023), as Optuna computes it; shares that add up
        to 1, the most important first. All alike where there are too few trials to tell.
        """
        from ._search import load_optuna, quiet

        optuna = load_optuna()
        with quiet(optuna):
            study = optuna.create_study(direction="maximize" if self.maximize else "minimize")
            for t in self.trials:
                if t.score is not None and all(t.parameters[n] in a for n, a in self.space.items()):
                    kinds = {name: axis.distribution(optuna) for name, axis in self.space.items()}
                    study.add_trial(
                        optuna.trial.create_trial(
                            value=t.score, params=t.parameters, distributions=kinds
                        )
                    )
            shares: dict[str, float] = {}
            if len(study.trials) >= 4:
                warnings.simplefilter("ignore", UserWarning)  # shares that are all alike
                evaluator = optuna.importance.PedAnovaImportanceEvaluator()
                shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
        if not sum(shares.values()) > 0:
            return dict.fromkeys(self.space, 1 / len(self.space))
        found = {name: float(shares.get(name, 0.0)) for name in self.space}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    # For people ---------------------------------------------------------------------------

    def __str__(self) -> str:
        return summary(self)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={short(value)}" for name, value in self.parameters.items())
        return (
            f"<TuneResult {self.algorithm.name}: {self.settings['score']}={self.score:.6g} with "
            f"{values}, {len(self.trials)} trials>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, JSON-able."""
        gain, rule = self.improvement, self.settings["stopping"]
        return {
            "parameters": self.parameters,
            "score": self.score,
            "standard_error": self.standard_error,
            "default_score": self.default.score,
            "improvement": None if gain is None else gain._asdict(),
            "algorithm": self.algorithm.describe(),
            "objective": self.objective.describe(),
            "settings": {**self.settings, "stopping": getattr(rule, "name", rule)},
            "space": {name: axis.describe() for name, axis in self.space.items()},
            "trials": [dataclasses.asdict(t) for t in self.trials],
        }

    # Tables -------------------------------------------------------------------------------

    def table(self) -> dict[str, list[Any]]:
        """The trials as columns; None where there is no value.

        They are ``number``, the parameters, ``score``, ``standard_error``, ``rounds``, ``state``,
        ``error``, ``seconds``, ``fold_0``, ``fold_1``, ...
        """
        trials = self.trials
        found: dict[str, list[Any]] = {"number": [t.number for t in trials]}
        found |= {name: [t.parameters[name] for t in trials] for name in self.space}
        for name in ("score", "standard_error", "rounds", "state", "error", "seconds"):
            found[name] = [getattr(t, name) for t in trials]
        for k in range(len(self.fold_weights)):
            found[f"fold_{k}"] = [(*t.fold_scores, *[None] * (k + 1))[k] for t in trials]
        return found

    def to_pandas(self) -> DataFrame:
        """`table` as a data frame, one row for each trial."""
        pandas = require("pandas", "tables", "TuneResult.to_pandas")
        frame = pandas.DataFrame(self.table())
        for name in frame.columns:
            if name in ("score", "standard_error", "rounds") or name.startswith("fold_"):
                frame[name] = frame[name].astype(float)
        return frame

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `table` as CSV, numbers to the last bit."""
        write_csv(path, self.table())

    # To go on with ------------------------------------------------------------------------

    def code(self) -> str:
        """Python that makes the tuned algorithm and runs it on ``data``."""
        return as_code(self)

    def toml(self, data: Mapping[str, Any] | None = None) -> str:
        """A specification for `sweep` and ``fedepm sweep`` with the tuned algorithm.

        Parameters
        ----------
        data : mapping, optional
            The table ``[data]`` of the specification, such as ``{"source": "adult", "clients":
            50}``; without it that table is left to be written.

        Raises
        ------
        ValueError
            If the objective has weights, for which a specification has no word.
        """
        return as_toml(self, data)

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        parameters: Sequence[str] | None = None,
    ) -> Figure:
        """Draw the score over two parameters; see `fedepm_fast.plots.tuning`.

        Parameters
        ----------
        path : path-like, optional
            Where to write it, as PNG, SVG or PDF by the suffix.
        parameters : sequence of one or two str, optional
            The most important ones by default.
        """
        from .. import plots

        figure = plots.tuning(self, parameters)
        if path is not None:
            plots.save(figure, path)
        return figure
