"""What a run with a mechanism may do, and what it says about privacy."""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import guarantees
from ._common.validation import MAX_SEED, check_int
from ._private_checks import check_objective, check_run
from .algorithms import Algorithm
from .callbacks import Callback, RoundInfo, Rounds
from .data import FederatedData
from .guarantees import (
    GUESSABLE,
    NOT_PRIVATE,
    OWN_MECHANISM,
    SIMULATED,
    no_guarantee,
    why_known,
    withdrawn,
)
from .mechanisms import Mechanism, PrivacyPlan, clipped_data, in_coordinates
from .objectives import Problem
from .participation import clients_per_round, select
from .randomness import CounterRandomness, Randomness
from .stopping import NoRule

Array = NDArray[np.float64]

#: What every guarantee takes as public; of records also the clients' sizes.
_PUBLIC = (
    "the clip",
    "the parameters and the number of rounds",
    "the selections",
    "how columns and labels were encoded before the run",
)

#: What neighbours differ in, by `Mechanism.neighbours`.
_RELATIONS = {
    "record": "replace-one record of a client; the clients' sizes are public",
    "client": "replace-one client, all of its records, their number too",
}


def __getattr__(name: str) -> Any:
    """What runs say, which earlier versions had here."""
    return getattr(guarantees, name)


def fresh_seed() -> int:
    """A seed from the operating system's entropy, none that can be guessed."""
    return GUESSABLE + secrets.randbelow(MAX_SEED + 1 - GUESSABLE)


def private_problem(mechanism: Mechanism, problem: Problem) -> Problem:
    """The problem whose gradients the clients take: rows clipped to the mechanism's bound, and
    derivatives to the loss's. Of whole clients it bounds the moves, and these are as they are."""
    if mechanism.neighbours == "client":
        return problem
    return Problem(*clipped_data(problem.data, mechanism, problem.objective))


def problem_in(problem: Problem, matrix: Array) -> Problem:
    """The problem of points v, where ``w = matrix @ v`` are those of `problem`, one class's at a
    time: rows are ``a @ matrix``, and the penalty is the diagonal of that of w."""
    objective = problem.objective
    if objective.beta:
        weights = np.ones(len(matrix)) if objective.weights is None else objective.weights
        objective = objective.changed(weights=tuple(np.square(matrix).T @ weights))
    return Problem(in_coordinates(problem.data, matrix), objective, problem.client_weight)


def plan_of(
    algorithm: Algorithm, problem: Problem, randomness: Randomness, rounds: int
) -> PrivacyPlan | None:
    """The plan of a run of so many rounds; None unless the algorithm has a mechanism.

    Selections depend on no data, so how often each client will take part is known before.
    """
    if algorithm.mechanism is None:
        return None
    return algorithm.plan(problem, participations(algorithm, problem, randomness, rounds))


def participations(
    algorithm: Algorithm, problem: Problem | FederatedData, randomness: Randomness, rounds: int
) -> NDArray[np.int64]:
    """How often each client uploads in the first `rounds` rounds, shape (m,).

    What was released before, of second moments, counts as the uploads that it spends as much as.
    """
    *_, counts = uploads(algorithm, problem, randomness, rounds)
    return counts


def uploads(
    algorithm: Algorithm, problem: Problem | FederatedData, randomness: Randomness, rounds: int
) -> Iterator[NDArray[np.int64]]:
    """How often each client has uploaded before round 0, 1, ..., `rounds`, each shape (m,)."""
    assert algorithm.mechanism is not None
    m = problem.n_clients
    m0 = clients_per_round(algorithm.participation, m)
    counts = np.full(m, algorithm.mechanism.moments, dtype=np.int64)
    yield counts
    for tau in range(rounds):
        counts = counts.copy()
        counts[select(randomness, tau, m, m0, algorithm.coverage_rounds)] += 1
        yield counts


class Open:
    """A run without a mechanism: everything is as it is given, and nothing is guaranteed."""

    problem: Problem
    """Of the rows as they were given."""

    def fix(self, stopping: Any, rounds: int | None, max_rounds: int) -> tuple[Any, int | None]:
        """What ends the run: its stopping rule and its number of rounds."""
        return stopping, rounds

    def begin(self, algorithm: Algorithm, problem: Problem) -> Problem:
        """The problem of the clients of the resolved `algorithm`."""
        self.problem = problem
        return problem

    def watched(self, callback: Callback | None) -> Callback | None:
        """The callback as it is shown the run."""
        return callback

    def seed(self) -> int:
        """That of a run that is given none."""
        return 0

    def value_at_start(self, found: float, start: Any) -> float:
        """f at the start, `found` by the run."""
        return found

    def account(
        self, history: dict[str, Array], randomness: Any, rounds: int, *, every_accuracy: bool,
        start_given: bool,
    ) -> dict[str, Any]:  # fmt: skip
        """Complete the history of a run of so many planned rounds: what its settings say."""
        return {}


class Private(Open):
    """A run with a mechanism: its rounds are fixed, its callback only watches.

    The clients take gradients of clipped rows. Of those nothing is reported: an objective, a
    gradient and an accuracy are those of `problem`, in history, summary and callbacks alike.
    """

    #: Whom the guarantee is against, if not against all who see what is ever sent.
    against = ""

    def __init__(self) -> None:
        self._seen: dict[str, list[Any]] = {
            name: [] for name in ("objective", "grad_mean_sq", "accuracy")
        }

    def fix(self, stopping: Any, rounds: int | None, max_rounds: int) -> tuple[Any, int | None]:
        """The number of rounds, which nothing else may decide.

        Raises
        ------
        ValueError
            If a rule could stop the run by what is not released.
        """
        # A subclass of NoRule, or what only claims to equal "none", may look at the objective.
        fixed = type(stopping) is NoRule or (type(stopping) is str and stopping == "none")
        if stopping is not None and not fixed:
            raise ValueError(
                "stopping must be None for a private run: objective values and gradients are not "
                "released; give rounds"
            )
        if rounds is not None:
            check_int("rounds", rounds, low=0)
            return stopping, rounds
        if not fixed:
            raise ValueError("rounds must be given: a private run fixes their number in advance")
        return None, check_int("max_rounds", max_rounds, low=0)

    def begin(self, algorithm: Algorithm, problem: Problem) -> Problem:
        self.algorithm, self.problem = algorithm, problem
        check_run(algorithm, problem)
        assert algorithm.mechanism is not None
        self.clipped = private_problem(algorithm.mechanism, problem)
        return self.clipped

    def watched(self, callback: Callback | None) -> Callback | None:
        """`callback`, shown these measures and without a say: what it sees is not released, so
        it may not stop the run."""
        if callback is None:
            return None
        told = callback

        def watch(info: RoundInfo) -> None:
            self._measure(info.x)
            shown: dict[str, Any] = {
                name: Rounds(found, info.tau + 1) for name, found in self._seen.items()
            }
            told(dataclasses.replace(info, **shown))

        return watch

    def seed(self) -> int:
        return fresh_seed()

    def value_at_start(self, found: float, start: Any) -> float:
        return self.problem.value_at_start(start)

    def account(
        self, history: dict[str, Array], randomness: Any, rounds: int, *, every_accuracy: bool,
        start_given: bool,
    ) -> dict[str, Any]:  # fmt: skip
        self._measure_all(history, every_accuracy)
        found, spent = self._report(randomness, rounds, len(history["x"]) - 1)
        if start_given:
            found["public"].append("the starting point, by the user's word")
        history |= {"epsilon": spent.max(axis=1), "epsilon_clients": spent}
        return {"privacy": found}

    def multipliers(self, mechanism: Mechanism, planned: NDArray[np.int64]) -> Array:
        """Scale of the noise over the sensitivity, for clients that upload so often, shape (m,)."""
        return mechanism.noise_multipliers(planned)

    def _report(self, randomness: Any, rounds: int, completed: int) -> tuple[dict[str, Any], Array]:
        """The privacy of a finished run, and what each client has spent before every round.

        `rounds` were planned and so many `completed`: a private run ends early only by what is
        released. The spending has the shape (completed + 1, m).
        """
        algorithm, problem = self.algorithm, self.clipped
        mechanism = algorithm.mechanism
        assert mechanism is not None
        planned = participations(algorithm, problem, randomness, rounds)
        multipliers = self.multipliers(mechanism, planned)
        made = list(uploads(algorithm, problem, randomness, completed))
        spent = np.array([mechanism.spent(multipliers, counts) for counts in made])
        most = float(spent[-1].max())
        whole = mechanism.neighbours == "client"
        sizes = [] if whole else ["the clients' sizes"]
        scaling = ["the scaling of the columns, by the user's word"] * mechanism.public_scaling
        found = {
            "guarantee": mechanism.guarantee(most) + self.against + SIMULATED,
            "epsilon": most,
            "delta": getattr(mechanism, "delta", 0.0),
            "epsilon_clients": spent[-1].tolist(),
            "uploads": made[-1].tolist(),
            "multipliers": multipliers.tolist(),
            "relation": _RELATIONS[mechanism.neighbours],
            "client_sizes": [] if whole else problem.data.client_sizes.tolist(),
            "clip": mechanism.clip,
            "public": [*sizes, *_PUBLIC, *scaling],
            "not_private": NOT_PRIVATE,
        }
        if type(randomness) is not CounterRandomness:
            return withdrawn(found, spent, "none: selections and noise were given from outside")
        if not mechanism.is_checked():
            return withdrawn(found, spent, OWN_MECHANISM)
        if why := why_known(randomness.seed, problem.data.description):
            # In the history is the account, were the seed secret.
            return found | no_guarantee(why), spent
        return found, spent

    def _measure(self, x: Array, accuracy: bool = True) -> None:
        """Measure the point of the next round, without the accuracy if that is not asked for."""
        with np.errstate(over="ignore", invalid="ignore"):
            value, gradient = self.problem.total_value_and_gradient(x)
            g = gradient / self.problem.n_clients
            self._seen["objective"].append(value)
            self._seen["grad_mean_sq"].append(float(g @ g))
            self._seen["accuracy"].append(self.problem.accuracy(x) if accuracy else math.nan)

    def _measure_all(self, history: dict[str, Array], every_accuracy: bool) -> None:
        """Replace the measures of clipped rows in a history."""
        points = history["x"]
        last = len(points) - 1
        for tau in range(len(self._seen["objective"]), len(points)):
            self._measure(points[tau], accuracy=every_accuracy or tau == last)
        for name in history.keys() & self._seen.keys():
            history[name] = np.array(self._seen[name], dtype=np.float64)
        if "accuracy" in history and not every_accuracy:
            history["accuracy"][:-1] = np.nan


def rules_for(algorithm: Any, objective: Any) -> Open:
    """What a run of `algorithm` may do; ValueError if not even begin with this objective."""
    if not isinstance(algorithm, Algorithm) or algorithm.mechanism is None:
        return Open()
    check_objective(objective)
    return Private()
