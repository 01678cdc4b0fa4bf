"""Scores of parameters by cross-validation."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.threads import ThreadPool
from ..algorithms import Algorithm
from ..data import FederatedData
from ..objectives import Objective
from ..runner import make_problem, run
from ._folds import Fold
from ._search import Unusable
from ._space import with_values

Array = NDArray[np.float64]


def loss_score(fold: Fold, x: Array) -> float:
    """The loss of the held-out rows at `x`."""
    with np.errstate(over="ignore", invalid="ignore"):
        return fold.average(fold.held_out.values(x))


def accuracy_score(fold: Fold, x: Array) -> float:
    """The share of the held-out rows whose label is predicted at `x`."""
    problem = fold.held_out
    data = problem.data
    predicted = problem.objective.predict(problem.margins(data.features, x))
    right = np.add.reduceat((predicted == data.labels).astype(np.float64), data.offsets[:-1])
    return fold.average(right / data.client_sizes)


#: What can be scored: the function, and whether more is better.
SCORES = {"loss": (loss_score, False), "accuracy": (accuracy_score, True)}


def mean_and_error(scores: ArrayLike, weights: ArrayLike) -> tuple[float, float]:
    """The weighted mean of the folds' scores, and its standard error.

    With shares M_k of the weights, ``sqrt(K / (K - 1) * sum_k M_k^2 (s_k - s)^2)``: for folds of
    equal weight the standard deviation (ddof 1) over sqrt(K).
    """
    s, share = np.asarray(scores, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    share = share / share.sum()
    mean = float(share @ s)
    if len(s) < 2:
        return mean, math.nan
    return mean, math.sqrt(len(s) / (len(s) - 1) * float(((share * (s - mean)) ** 2).sum()))


@dataclass(eq=False)
class CrossValidation:
    """Scores of parameters on folds whose data are packed once.

    Parameters
    ----------
    algorithm, objective, data
        As in `tune`.
    folds : sequence of Fold
    measure : callable
        From a fold and a point to the score.
    seed : int
    jobs : int
        Threads.
    pruning : bool
        Whether anybody asks after each fold.
    settings : mapping
        Of `run`.
    """

    algorithm: Algorithm
    objective: Objective
    data: FederatedData
    folds: Sequence[Fold]
    measure: Callable[[Fold, Any], float]
    seed: int
    jobs: int
    pruning: bool
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.weights = np.array([fold.weight for fold in self.folds])
        self.pool = ThreadPool(self.jobs)

    def close(self) -> None:
        """Let go of the threads."""
        self.pool.close()

    def evaluate(
        self, values: Mapping[str, Any], give_up: Callable[[int, float], bool]
    ) -> dict[str, Any]:
        """What is kept of a trial: ``score``, ``fold_scores``, ``fold_rounds``, ``seconds``.

        Raises
        ------
        Unusable
            If a fold has no score, the first of those; or if `give_up` says so. What it was
            raised from is its cause.
        """
        began = perf_counter()
        scores: list[float] = []
        lengths: list[int] = []
        futures: list[Any] = []

        def found() -> dict[str, Any]:
            seconds = perf_counter() - began
            return {"fold_scores": scores, "fold_rounds": lengths, "seconds": seconds}

        try:
            algorithm, objective = with_values(values, self.algorithm, self.objective)
            algorithm = algorithm.resolve(make_problem(algorithm, self.data, objective))
            futures = [
                self.pool.submit(partial(self._fold, k, algorithm, objective))
                for k in range(len(self.folds))
            ]
            for k, future in enumerate(futures):
                score, rounds = future.result()
                scores.append(score)
                lengths.append(rounds)
                if self.pruning and k + 1 < len(futures):
                    so_far, _ = mean_and_error(scores, self.weights[: k + 1])
                    if give_up(k, so_far):
                        raise Unusable("pruned", f"given up after fold {k}")
        except Unusable as unusable:
            unusable.found |= found()
            raise
        except Exception as error:
            failed = Unusable("failed", f"{type(error).__name__}: {error}")
            failed.found |= found()
            raise failed from error
        finally:
            for future in futures:
                future.cancel()
            if not isinstance(sys.exception(), KeyboardInterrupt):
                wait(futures)  # they would warn of divergence when nobody holds that back
        score, _ = mean_and_error(scores, self.weights)
        return {"score": score, **found()}

    def _fold(self, k: int, algorithm: Algorithm, objective: Objective) -> tuple[float, int]:
        """The score on a fold, and the rounds of the run."""
        fold = self.folds[k]
        result = run(
            algorithm,
            fold.train,
            objective=objective,
            seed=self.seed,
            trial=k,
            every_accuracy=False,
            **self.settings,
        )
        if result.diverged:
            raise Unusable("diverged", f"fold {k}: {result.message}")
        score = self.measure(fold, result.x)
        if not np.isfinite(score):
            raise Unusable("diverged", f"fold {k}: the score is {score}")
        return score, result.rounds
