"""What a run with a mechanism may do, and what it says about privacy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ..objectives import Problem
from ..reference import participations, uploads
from ..stopping import CALLBACK, DIVERGED, NoRule
from .mechanisms import Mechanism, clipped_data

NOT_PRIVATE = "objective values and accuracy are the experimenter's and not private"


def check_run(algorithm: Algorithm, problem: Problem, stopping: Any, rounds: int | None) -> None:
    """Raise ValueError where something that depends on the data would decide in public."""
    mechanism = algorithm.mechanism
    assert mechanism is not None
    fixed = stopping == "none" or isinstance(stopping, NoRule)
    if stopping is not None and not fixed:
        raise ValueError(
            "stopping must be None for a private run: objective values and gradients are not "
            "released; give rounds"
        )
    if rounds is None and not fixed:
        raise ValueError("rounds must be given: a private run fixes their number in advance")
    scaling = problem.data.description.get("scale")
    if scaling is not None and not mechanism.public_scaling:
        raise ValueError(
            f"the columns were divided by numbers that depend on the data ({scaling}): divide by "
            "public bounds instead, or declare that public, public_scaling=True"
        )
    if problem.objective.slope is None:
        raise ValueError(
            f"the objective {problem.objective.name!r} has no bound on a record's gradient: "
            "private runs need a loss with a bounded derivative, such as 'logistic'"
        )


def private_problem(mechanism: Mechanism, problem: Problem) -> Problem:
    """The problem whose gradients the clients take: rows clipped to the mechanism's bound."""
    slope = problem.objective.slope
    assert slope is not None
    return Problem(clipped_data(problem.data, mechanism, slope), problem.objective)


def measure(problem: Problem, history: dict[str, Any]) -> None:
    """Replace the objective, gradients and accuracy of clipped rows by those of the data."""
    points = np.asarray(history["x"])
    gradients = [problem.total_gradient(x) / problem.n_clients for x in points]
    history["objective"] = np.array([problem.total_value(x) for x in points])
    history["grad_mean_sq"] = np.array([g @ g for g in gradients])
    if "accuracy" in history:
        history["accuracy"] = np.array([problem.accuracy(x) for x in points])


def report(
    algorithm: Algorithm,
    problem: Problem,
    randomness: Any,
    rounds: int,
    completed: int,
    reasons: tuple[str, ...],
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """The privacy of a finished run, and the largest epsilon spent after each round.

    `rounds` is what was planned, `completed` what came of it.
    """
    mechanism = algorithm.mechanism
    assert mechanism is not None
    planned = participations(algorithm, problem, randomness, rounds)
    multipliers = mechanism.noise_multipliers(planned)
    spent = [
        mechanism.spent(multipliers, counts)
        for counts in uploads(algorithm, problem, randomness, completed)
    ]
    epsilon = float(spent[-1].max())
    guarantee = mechanism.guarantee(epsilon)
    if DIVERGED in reasons or CALLBACK in reasons:
        guarantee = "none: the run was stopped by what is not released"
    found = {
        "guarantee": guarantee,
        "epsilon": epsilon,
        "delta": getattr(mechanism, "delta", 0.0),
        "epsilon_clients": spent[-1].tolist(),
        "relation": "replace-one record of a client; the clients' sizes are public",
        "clip": mechanism.clip,
        "public": ["the clients' sizes", "the clip", "the selections"],
        "note": NOT_PRIVATE,
    }
    if mechanism.public_scaling:
        found["public"].append("the scaling of the columns, by the user's word")
    return found, np.array([values.max() for values in spent])
