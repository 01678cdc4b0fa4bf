"""The search of a tuning: Optuna's samplers, and the storage that a killed one goes on from.

Proposals come from a study in memory. A resumed search replays it: the sampler proposes all
finished trials again, is told what is stored of them, and is then where it was, whatever state
it has. Where its proposals are others (a sampler of the user's own without a seed, another
version of Optuna), it is given the stored trials as history and goes on from there.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .._common.extras import require
from .._common.validation import check_choice
from ..result import DivergenceWarning
from ._space import Space
from ._storage import KeptTrials

#: Optuna's samplers by name.
SAMPLERS = ("tpe", "random", "grid", "qmc", "cmaes")

#: What decides between folds whether a trial is given up.
PRUNERS = ("median",)


class Unusable(Exception):
    """A trial without a score.

    Parameters
    ----------
    state : {"diverged", "failed", "pruned"}
    reason : str
    """

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        #: What is kept of the trial.
        self.found: dict[str, Any] = {"state": state, "reason": reason}


def load_optuna() -> Any:
    """Optuna, with the modules that are used."""
    require("optuna.samplers", "tune", "tuning")
    return require("optuna", "tune", "tuning")


@contextmanager
def quiet(optuna: Any) -> Iterator[None]:
    """No messages of Optuna's, and no warnings of experimental parts or of runs that diverge."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.simplefilter("ignore", DivergenceWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def make_sampler(optuna: Any, sampler: Any, space: Space, seed: int) -> Any:
    """The sampler of that name, seeded; a copy of one of the user's own.

    Raises
    ------
    TypeError, ValueError, ImportError
        Naming ``sampler``.
    """
    samplers = optuna.samplers
    if isinstance(sampler, samplers.BaseSampler):
        return copy.deepcopy(sampler)
    if not isinstance(sampler, str):
        raise TypeError(
            f"sampler must be one of {', '.join(map(repr, SAMPLERS))} or a sampler of Optuna, "
            f"got {type(sampler).__name__}"
        )
    check_choice("sampler", sampler, SAMPLERS)
    seed %= 2**32  # NumPy's old generators take no more
    if sampler == "cmaes":
        require("cmaes", "tune", "sampler='cmaes'")
    made: dict[str, Callable[[], Any]] = {
        "tpe": lambda: samplers.TPESampler(seed=seed, multivariate=True),
        "random": lambda: samplers.RandomSampler(seed=seed),
        "grid": lambda: samplers.GridSampler({n: a.points() for n, a in space.items()}, seed),
        "qmc": lambda: samplers.QMCSampler(
            seed=seed, scramble=True, warn_independent_sampling=False
        ),
        "cmaes": lambda: samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False),
    }
    return made[sampler]()


def make_pruner(optuna: Any, pruner: Any) -> Any:
    """The pruner of that name, or one of the user's own."""
    if pruner is None:
        return optuna.pruners.NopPruner()
    if isinstance(pruner, optuna.pruners.BasePruner):
        return pruner
    check_choice("pruner", pruner, PRUNERS)
    return optuna.pruners.MedianPruner()


class _Differs(Exception):
    """A sampler proposes something else than what is stored."""


Evaluate = Callable[[Mapping[str, Any], Callable[[int, float], bool]], Mapping[str, Any]]


@dataclass(eq=False)
class Search:
    """Evaluates the default, then what the sampler proposes.

    Parameters
    ----------
    kept : KeptTrials
        What there is already, and where finished trials go.
    space : dict
    sampler : callable
        Makes the sampler.
    pruner : optuna.pruners.BasePruner
    maximize : bool
    evaluate : callable
        From parameters, and a function that takes the fold and the score so far and says whether
        to give up, to what is kept of a trial, its ``score`` among it; raises `Unusable`.
    report : callable
        Told the number of every trial once it is kept.
    """

    optuna: Any
    kept: KeptTrials
    space: Space
    sampler: Callable[[], Any]
    pruner: Any
    maximize: bool
    evaluate: Evaluate
    report: Callable[[int], Any]
    #: Finished trials that are still to be replayed.
    again: list[Any] = field(default_factory=list, init=False)
    #: Whether the trial under way is a new one.
    fresh: bool = field(default=False, init=False)

    def run(self, default: Mapping[str, Any], trials: int) -> None:
        """Go on until there are `trials`, the `default` the first of them."""
        trials_kept = self.kept.trials
        if not trials_kept:
            self._keep(self._first(default))
        try:
            self.again = trials_kept[1:trials]
            self._study(trials_kept[:1]).optimize(n_trials=trials - 1, **self._options)
        except _Differs:
            self.again = []
            left = trials - len(trials_kept)
            self._study(trials_kept).optimize(n_trials=left, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        def keep(study: Any, trial: Any) -> None:
            if self.fresh:
                self._keep(trial)

        return {"func": self._trial, "catch": (Unusable,), "callbacks": [keep]}

    def _study(self, known: list[Any]) -> Any:
        """A study in memory that knows these trials, but those outside the space."""
        made = self.optuna.create_study(
            sampler=self.sampler(),
            pruner=self.pruner,
            direction="maximize" if self.maximize else "minimize",
        )
        made.add_trials(trial for trial in known if trial.params)
        return made

    def _keep(self, trial: Any) -> None:
        self.kept.append(trial)
        self.report(len(self.kept.trials) - 1)

    def _first(self, default: Mapping[str, Any]) -> Any:
        given: dict[str, Any] = {}
        if all(default[name] in axis for name, axis in self.space.items()):
            kinds = {name: a.distribution(self.optuna) for name, a in self.space.items()}
            given = {"params": dict(default), "distributions": kinds}
        try:
            found = dict(self.evaluate(default, lambda fold, score: False))
            given["value"] = found.pop("score")
        except Unusable as unusable:
            if unusable.__cause__ is not None:  # what is given does not run at all
                raise unusable.__cause__ from None
            found = unusable.found
            given["state"] = self.optuna.trial.TrialState.PRUNED
        found["parameters"] = dict(default)
        return self.optuna.trial.create_trial(user_attrs=found, **given)

    def _trial(self, trial: Any) -> float:
        values = {name: axis.suggest(trial, name) for name, axis in self.space.items()}
        self.fresh = not self.again
        if self.again:
            return self._replay(trial, values, self.again.pop(0))

        def give_up(fold: int, score: float) -> bool:
            trial.report(score, fold)
            return trial.should_prune()

        found: dict[str, Any] = {}
        try:
            found = dict(self.evaluate(values, give_up))
            score = found.pop("score")
        except Unusable as unusable:
            found = unusable.found
            if unusable.state == "failed":
                raise
            # The sampler learns from it as from the worst, which it would not from a failed one.
            raise self.optuna.TrialPruned from None
        finally:
            for key, value in found.items():
                trial.set_user_attr(key, value)
        return score

    def _replay(self, trial: Any, values: Mapping[str, Any], known: Any) -> float:
        """Tell the study in memory what came of a trial."""
        states = self.optuna.trial.TrialState
        if known.params != values:
            raise _Differs
        for step, value in known.intermediate_values.items():
            trial.report(value, step)
        if known.state == states.COMPLETE:
            return known.value
        if known.state == states.PRUNED:
            raise self.optuna.TrialPruned
        raise Unusable(known.user_attrs["state"], known.user_attrs["reason"])
