"""What a run with a mechanism may do, and what it says about privacy."""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._validation import MAX_SEED, check_int
from ..algorithms import Algorithm, FedEPM
from ..callbacks import Callback, RoundInfo, Rounds
from ..data import FederatedData, column_norms
from ..losses import Huber, LeastSquares, Logistic, Multinomial, SquaredHinge, as_objective
from ..objectives import Problem
from ..randomness import CounterRandomness
from ..reference import participations, uploads
from ..result import SHARED_SEED, Result
from ..stopping import NoRule
from .mechanisms import Mechanism, clipped_data

Array = NDArray[np.float64]

#: What subclasses do is not accounted for, nor what functions of a user's do at any margin.
_BUILT_IN = (Logistic, LeastSquares, Huber, SquaredHinge, Multinomial)

#: What the experimenter sees and nobody else may.
NOT_PRIVATE = (
    "objective values, gradients, accuracy, SNR, times, warnings and exit codes that follow from "
    "these, and the clients' parameters W, which are computed from the records; the seed, which "
    "tells the noise; and hashes of the data, such as a sweep's content and run_id, which tell a "
    "guess of the records from the records; x and Z are what is released, see Result.release"
)


#: What every guarantee of a simulation assumes.
SIMULATED = (
    " (simulated: in exact arithmetic, the generator's numbers taken as random, for a seed that is "
    "secret and of this run only)"
)

#: The same as earlier versions put it, some of which said nothing.
_ONCE_SIMULATED = " (simulated, for a seed that is secret and of this run only)"

#: Seeds below it are few enough to try them all: what is released tells which one it was.
GUESSABLE = 2**32

GUESSED = (
    "none: the seed is below 2^32, and found by trying them all, and with it the noise; without "
    "one a run draws its own"
)

OF_THE_SPLIT = (
    "none: the seed is that of the split as well, which is no secret and of which the clients' "
    "sizes are a function; without one a run draws its own"
)


def fresh_seed() -> int:
    """A seed from the operating system's entropy, none that can be guessed."""
    return GUESSABLE + secrets.randbelow(MAX_SEED + 1 - GUESSABLE)


def _why_known(seed: int, description: Mapping[str, Any]) -> str:
    """Why a seed is no secret, be it given or drawn; empty if it can be one."""
    if seed < GUESSABLE:
        return GUESSED
    return OF_THE_SPLIT if seed == description.get("split_seed") else ""


def as_true(result: Result) -> Result:
    """A saved run with the guarantee that it has, of which earlier versions said too much."""
    privacy = result.settings.get("privacy")
    if privacy is None or str(privacy["guarantee"]).startswith("none"):
        return result
    if result.seed is not None and (why := _why_known(result.seed, result.data)):
        return _stating(result, _none(why))
    text = str(privacy["guarantee"])
    if text.endswith(SIMULATED):
        return result
    guarantee = text.removesuffix(_ONCE_SIMULATED) + SIMULATED
    return _stating(result, {"guarantee": guarantee, "not_private": NOT_PRIVATE})


def _stating(result: Result, said: dict[str, Any]) -> Result:
    """A private run whose report says something else."""
    privacy = result.settings["privacy"] | said
    return dataclasses.replace(result, settings=result.settings | {"privacy": privacy})


def _none(why: str) -> dict[str, Any]:
    """What a report says without a guarantee."""
    return {"guarantee": why, "epsilon": None, "epsilon_clients": None}


def fixed_rounds(stopping: Any, rounds: int | None, max_rounds: int) -> int:
    """The number of rounds of a private run, which nothing else may decide.

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
        return check_int("rounds", rounds, low=0)
    if not fixed:
        raise ValueError("rounds must be given: a private run fixes their number in advance")
    return check_int("max_rounds", max_rounds, low=0)


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
    scaling = problem.data.description.get("scale") or _looks_scaled(problem.data)
    if scaling and not mechanism.public_scaling:
        raise ValueError(
            f"the columns were divided by numbers that depend on the data ({scaling}): divide by "
            "public bounds instead, or declare that public, with public_scaling"
        )
    objective = problem.objective
    if type(objective) not in _BUILT_IN:
        raise ValueError(
            f"the objective {objective.name!r} is a loss of your own, "
            f"{type(objective).__name__}, whose gradients nothing bounds: private runs take the "
            "built-in losses"
        )
    if objective.slope is None:
        raise ValueError(
            f"the objective {objective.name!r} has no bound on a record's gradient: "
            "private runs need a loss with a bounded derivative, such as 'logistic', "
            "'multinomial', or Huber(delta), which is least squares with each record's derivative "
            "clipped to delta"
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


def private_problem(mechanism: Mechanism, problem: Problem) -> Problem:
    """The problem whose gradients the clients take: rows clipped to the mechanism's bound."""
    slope = problem.objective.slope_in(mechanism.order)
    assert slope is not None
    return Problem(clipped_data(problem.data, mechanism, slope), problem.objective)


class Measures:
    """What a private run reports of its points, of the rows as they were given.

    The clients take gradients of clipped rows. Of those nothing is reported: an objective, a
    gradient and an accuracy are those of `problem`, in history, summary and callbacks alike.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.seen: dict[str, list[Any]] = {
            name: [] for name in ("objective", "grad_mean_sq", "accuracy")
        }

    def add(self, x: Array, accuracy: bool = True) -> None:
        """Measure the point of the next round, without the accuracy if that is not asked for."""
        with np.errstate(over="ignore", invalid="ignore"):
            g = self.problem.total_gradient(x) / self.problem.n_clients
            self.seen["objective"].append(self.problem.total_value(x))
            self.seen["grad_mean_sq"].append(float(g @ g))
            self.seen["accuracy"].append(self.problem.accuracy(x) if accuracy else math.nan)

    def watched_by(self, callback: Callback) -> Callback:
        """`callback`, shown these measures and without a say: what it sees is not released, so
        it may not stop the run."""

        def watch(info: RoundInfo) -> None:
            self.add(info.x)
            shown: dict[str, Any] = {
                name: Rounds(found, info.tau + 1) for name, found in self.seen.items()
            }
            callback(dataclasses.replace(info, **shown))

        return watch

    def into(self, history: dict[str, Array], every_accuracy: bool) -> None:
        """Replace those of clipped rows in a history."""
        points = history["x"]
        last = len(points) - 1
        for tau in range(len(self.seen["objective"]), len(points)):
            self.add(points[tau], accuracy=every_accuracy or tau == last)
        for name in history.keys() & self.seen.keys():
            history[name] = np.array(self.seen[name], dtype=np.float64)
        if "accuracy" in history and not every_accuracy:
            history["accuracy"][:-1] = np.nan


def report(
    algorithm: Algorithm,
    problem: Problem,
    randomness: Any,
    rounds: int,
    completed: int,
    *,
    start_given: bool,
) -> tuple[dict[str, Any], Array]:
    """The privacy of a finished run, and what each client has spent before every round.

    `rounds` is what was planned, `completed` what came of it: a private run ends early only by
    what is released. The spending has the shape (completed + 1, m).
    """
    mechanism = algorithm.mechanism
    assert mechanism is not None
    planned = participations(algorithm, problem, randomness, rounds)
    multipliers = mechanism.noise_multipliers(planned)
    spent = np.array(
        [
            mechanism.spent(multipliers, counts)
            for counts in uploads(algorithm, problem, randomness, completed)
        ]
    )
    guarantee = mechanism.guarantee(float(spent[-1].max())) + SIMULATED
    public = [
        "the clients' sizes",
        "the clip",
        "the parameters and the number of rounds",
        "the selections",
        "how columns and labels were encoded before the run",
    ]
    if mechanism.public_scaling:
        public.append("the scaling of the columns, by the user's word")
    if start_given:
        public.append("the starting point, by the user's word")
    found = {
        "guarantee": guarantee,
        "epsilon": float(spent[-1].max()),
        "delta": getattr(mechanism, "delta", 0.0),
        "epsilon_clients": spent[-1].tolist(),
        "relation": "replace-one record of a client; the clients' sizes are public",
        "client_sizes": problem.data.client_sizes.tolist(),
        "clip": mechanism.clip,
        "public": public,
        "not_private": NOT_PRIVATE,
    }
    if type(randomness) is not CounterRandomness:
        return _withdrawn(found, spent, "none: selections and noise were given from outside")
    if why := _why_known(randomness.seed, problem.data.description):
        return found | _none(why), spent  # in the history the account, were the seed secret
    return found, spent


def _withdrawn(report: dict[str, Any], spent: Array, why: str) -> tuple[dict[str, Any], Array]:
    """A report and spending without their guarantee: what was spent at all has no bound."""
    return report | _none(why), np.where(spent > 0, np.inf, 0.0)


def share_a_seed(result: Result) -> Result:
    """`result` as one of several runs of its seed, which takes any guarantee from it."""
    if "privacy" not in result.settings:
        return result
    spent = result.history["epsilon_clients"]
    found, spent = _withdrawn(result.settings["privacy"], spent, SHARED_SEED)
    return dataclasses.replace(
        _stating(result, found),
        history=result.history | {"epsilon": spent.max(axis=1), "epsilon_clients": spent},
    )
