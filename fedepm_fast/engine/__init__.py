"""A run from beginning to end.

The loop itself is that of `fedepm_fast.kernels._loop`, over compiled stages or over those of
`reference`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ..callbacks import Callback
from ..objectives import Problem
from ..private_runs import plan_of
from ..randomness import CounterRandomness, GivenRandomness
from ..reference import ModelStages, Reference
from ..stopping import BUILT_IN, CALLBACK, MAX_ITERATIONS, MAX_ROUNDS, StoppingRule
from ._repeatable import Ended, Repeatable
from ._run import NEVER, Outcome, Run, has_diverged
from ._stages import CompiledStages, Stages

__all__ = ["Ended", "Outcome", "Repeatable", "has_diverged", "simulate", "supports"]

Array = NDArray[np.float64]


def supports(algorithm: Algorithm, problem: Problem) -> bool:
    """Whether there are compiled stages for this algorithm and objective."""
    if algorithm.keeps_models:  # which weighs clients itself
        return problem.objective.has_kernels and problem.data.sample_weight is None
    return algorithm.compiled and problem.has_kernels


def simulate(
    algorithm: Algorithm,
    problem: Problem,
    randomness: CounterRandomness | GivenRandomness,
    stopping: StoppingRule,
    *,
    max_rounds: int,
    max_iterations: int | None = None,
    callback: Callback | None = None,
    start: Array | None = None,
    every_accuracy: bool = True,
    keep_x: bool = True,
    compiled: bool = True,
) -> Outcome:
    """Run an algorithm.

    `algorithm` is resolved for the problem (see `Algorithm.resolve`); arguments are checked by
    `fedepm_fast.run`, which is what most callers want. Without `every_accuracy` the accuracy
    is that of the last round only, and NaN before; without `keep_x` the history has no points;
    without `compiled` NumPy does it, equation by equation.
    """
    stopping = stopping.resolve(problem)
    # Users' callbacks and stopping rules are asked after every round, in Python.
    own_rule = type(stopping) not in BUILT_IN
    stepwise = callback is not None or own_rule or not keep_x
    never = NEVER if max_iterations is None else max_iterations
    limits = (NEVER, NEVER) if stepwise else (max_rounds, never)
    algorithm.check_coverage(problem.n_clients)
    plan = plan_of(algorithm, problem, randomness, max_rounds)
    stages: Stages
    if algorithm.keeps_models:
        last = min(max_rounds, never)  # a round is an iteration
        stages = ModelStages(algorithm, problem, randomness, last, compiled=compiled)
    elif compiled:
        stages = (problem.stages or CompiledStages)(algorithm, problem, plan)
    else:
        stages = Reference(algorithm, problem, randomness, plan)
    run = Run(stages, algorithm, problem, stopping, *limits, start, stepwise=stepwise)
    run.begin(randomness)
    if not stepwise:
        return run.outcome(run.to_the_end(), every_accuracy, keep_x)
    tau = 0
    names: tuple[str, ...] = ()
    while not names:
        tau, names = run.advance(tau, 1)
        if not run.broken:
            found = run.record(stopping if own_rule else None)
            names = names or found
            if callback is not None and callback(run.info()):
                names = (*names, CALLBACK)
            if not names and tau - 1 >= max_rounds:
                names = (MAX_ROUNDS,)
            if not names and tau * algorithm.local_steps > never:
                names = (MAX_ITERATIONS,)
            if not keep_x and not names:
                run.forget_points()
    return run.outcome(names, every_accuracy, keep_x)
