"""Tuning: the parameters of an algorithm by cross-validation, found by Optuna's samplers.

The folds hold out whole clients, or records of every client; `tune` tells when to take which.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from .._common.progress import counting
from .._common.threads import cpus
from .._common.validation import MAX_SEED, check_choice, check_int
from ..algorithms import PRESETS, Algorithm
from ..data import FederatedData
from ..objectives import Objective, as_objective
from ..runner import check_limits, make_problem
from ..stopping import StoppingRule, as_rule
from ..sweeps._cells import RESULTS_VERSION
from ._folds import OVER, default_folds, make_folds
from ._result import TuneResult, TuneTrial
from ._scores import SCORES, CrossValidation
from ._search import Search, load_optuna, make_pruner, make_sampler, quiet
from ._space import Space, as_space, default_space, values_of
from ._storage import KeptTrials

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

__all__ = ["TuneResult", "TuneTrial", "tune"]


def tune(
    algorithm: Algorithm,
    data: FederatedData,
    *,
    space: Mapping[str, Any] | None = None,
    over: str = "clients",
    folds: int | None = None,
    trials: int = 50,
    score: str = "loss",
    objective: str | Objective = "logistic",
    sampler: str | BaseSampler = "tpe",
    pruner: str | BasePruner | None = None,
    seed: int = 0,
    storage: str | os.PathLike[str] | BaseStorage | None = None,
    study: str = "tune",
    jobs: int | None = None,
    stopping: str | StoppingRule | None = None,
    rounds: int | None = None,
    max_rounds: int = 500,
    max_iterations: int | None = None,
    engine: str | None = None,
    progress: bool | str | Callable[[int, int, int], Any] = True,
) -> TuneResult:
    """Tune parameters of an algorithm by K-fold cross-validation.

    A trial is one choice of parameters: K runs, each on the data without one fold, scored on
    that fold. The first trial is the algorithm as it is given, so the result is never worse than
    that on these folds.

    Parameters
    ----------
    algorithm : Algorithm
        Parameters that are not tuned, and the values to start from. What follows from the data
        (FedEPM's `lam` and `eta`) does so from all of them, in every fold alike.
    data : FederatedData
    space : mapping, optional
        ``{"lam": (1e-6, 1.0, "log"), "local_steps": [4, 8, 12]}``: by parameter a range
        ``(low, high)`` or ``(low, high, "log")``, both ends included, or a list of values. Any
        parameter of the algorithm but its mechanism, and ``beta`` of the objective. By default,
        about the values given: FedEPM's ``lam``, ``eta`` (factors of 100) and ``mu0`` (of 20);
        the baselines' ``learning_rate`` (factors of 30), ``prox`` (of 1000) and ``local_steps``
        (4 to 20); and ``beta``, from a ten-thousandth to ten times its value.
    over : {"clients", "records"}
        What a fold holds out. Whole clients: the score says how the model serves clients that it
        has never seen, such as hospitals that join later. Or a part of every client's records:
        how it serves the future records of the clients there are. In the second case a client
        with fewer records than folds is scored in some folds only, and one with a single record
        trains in all and is scored in none. Folds are stratified by label (clients by the mean
        of theirs), as large as each other up to one, and a pure function of the data and `seed`.
    folds : int, optional
        K, at least 2; by default 5, or the number of clients if that is less and whole clients
        are held out: then each is a fold of its own, however few records it has.
    trials : int
        How many, the first one included; with `storage`, also those that are stored.
    score : {"loss", "accuracy"}
        The mean loss of the held-out records, without regulariser, or the share of them that is
        classified correctly. Every record of a client with d_i of them counts ``1 / d_i`` and
        every client alike, as in f(x)/m.
    objective : str or Objective
    sampler : {"tpe", "random", "grid", "qmc", "cmaes"} or optuna.samplers.BaseSampler
        Who proposes. A grid takes 5 values of a range. One of your own is copied; give it a
        seed.
    pruner : {"median"} or optuna.pruners.BasePruner, optional
        Asked after each fold whether to give the trial up, in the order of the folds.
    seed : int
        Of the folds, the runs and the sampler. Fold k is
        ``run(algorithm, training_data, seed=seed, trial=k)``.
    storage : str, path or optuna.storages.BaseStorage, optional
        The path of an SQLite file, or a URL such as ``sqlite:///tune.db``: each trial is kept as
        it finishes, and the same call goes on from there, with the results of one that was never
        interrupted.
    study : str
        The name in the storage. One that has been made with other settings is refused.
    jobs : int, optional
        Threads, over the folds of a trial; the CPUs by default. They change no result.
    stopping, rounds, max_rounds, max_iterations, engine
        As in `run`.
    progress : bool, str or callable
        Show progress on standard error: a bar, or a line now and then where that is no terminal;
        after a sentence if it is one. Or call ``progress(done, total, failed)``.

    Returns
    -------
    TuneResult
        The best parameters, and every trial. Trials of runs that diverge or raise are kept with
        the reason, and are never the best.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, before any work; what the algorithm as given raises. An algorithm
        with a mechanism is refused: each run on private data spends budget.
    RuntimeError
        If no trial has a score.
    StoreError
        If the storage cannot be used.
    ImportError
        Without Optuna.

    Notes
    -----
    Results are a pure function of the arguments and the data. The best of many scores is
    optimistic, as the smallest of many noisy numbers; judge the choice on other data.

    Examples
    --------
    >>> from fedepm_fast import FedEPM, datasets, tune
    >>> found = tune(FedEPM(), datasets.adult(clients=50, seed=1), trials=3, folds=3)
    >>> found.score <= found.default.score
    True
    """
    goal, axes, default = _asked(algorithm, data, objective, over, score, space)
    trials = check_int("trials", trials, low=1)
    seed = check_int("seed", seed, high=MAX_SEED)
    folds = default_folds(data, over) if folds is None else folds
    jobs = cpus() if jobs is None else check_int("jobs", jobs, low=1)
    intercept = bool(data.description.get("intercept"))
    settings: dict[str, Any] = {
        "stopping": stopping, "rounds": rounds, "max_rounds": max_rounds,
        "max_iterations": max_iterations,
    }  # fmt: skip
    check_limits(algorithm, callback=None, **settings)  # before any trial
    described = {"over": over, "folds": folds, "score": score, "seed": seed}
    measure, maximize = SCORES[score]
    optuna = load_optuna()
    with quiet(optuna), ExitStack() as opened:
        proposer, judge = make_sampler(optuna, sampler, axes, seed), make_pruner(optuna, pruner)
        if not isinstance(study, str) or not study:
            raise ValueError(f"study must be a name, got {study!r}")
        validation = CrossValidation(
            algorithm, goal, data, make_folds(data, goal, over, folds, seed), measure, seed,
            min(jobs, folds), pruning=pruner is not None, settings={**settings, "engine": engine},
        )  # fmt: skip
        opened.callback(validation.close)
        record = {} if storage is None else {
            **described, **_determines(algorithm, goal, data, axes, settings),
            "sampler": _name(sampler), "pruner": _name(pruner), "engine": engine,
        }  # fmt: skip
        kept = KeptTrials(optuna, storage, study, record, maximize)
        opened.callback(kept.close)

        def found(number: int) -> TuneTrial:
            return TuneTrial.of(number, kept.trials[number], validation.weights)

        shown = opened.enter_context(
            counting(progress, min(len(kept.trials), trials), trials, "trials")
        )
        Search(
            optuna, kept, axes, lambda: make_sampler(optuna, proposer, axes, seed), judge,
            maximize, validation.evaluate, lambda number: shown.update([found(number).error]),
        ).run(default, trials)  # fmt: skip
        made = [found(number) for number in range(min(trials, len(kept.trials)))]
        return TuneResult.of(
            algorithm, as_objective(objective), made, space=axes, fold_weights=validation.weights,
            maximize=maximize,
            settings={**described, "intercept": intercept, **settings},
        )  # fmt: skip


def _asked(
    algorithm: Algorithm,
    data: FederatedData,
    objective: str | Objective,
    over: str,
    score: str,
    space: Mapping[str, Any] | None,
) -> tuple[Objective, Space, dict[str, Any]]:
    """The objective on the data, what is searched, and the values that are given of that."""
    problem = make_problem(algorithm, data, objective)
    if algorithm.mechanism is not None:
        raise ValueError(
            "algorithm must not have a mechanism: every run on private data spends budget, so "
            "choosing among runs would spend that of all; settings chosen without the data are "
            "those of fedepm_fast.privacy.plan"
        )
    resolved, goal = algorithm.resolve(problem), as_objective(objective).fit_to(data)
    check_choice("over", over, OVER)
    check_choice("score", score, SCORES)
    if score == "accuracy" and goal.task == "regression":
        raise ValueError(f"score must be 'loss' for the {goal.name} objective, got 'accuracy'")
    axes = default_space(resolved, goal) if space is None else as_space(space, algorithm, goal)
    return goal, axes, values_of(axes, resolved, goal)


def _name(given: Any) -> Any:
    return given if given is None or isinstance(given, str) else type(given).__name__


def _determines(
    algorithm: Algorithm,
    objective: Objective,
    data: FederatedData,
    space: Space,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """What else decides the trials, as plain values."""
    given = settings["stopping"]
    rule = as_rule(PRESETS[algorithm.preset].stopping if given is None else given)
    return {
        "results": RESULTS_VERSION,
        "algorithm": algorithm.describe(),
        "objective": objective.describe(),
        "data": data.content_hash(),
        "space": {name: axis.describe() for name, axis in space.items()},
        **settings,
        "stopping": {"name": rule.name, **dataclasses.asdict(rule)},
    }
