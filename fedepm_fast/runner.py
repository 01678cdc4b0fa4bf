"""Running an algorithm on federated data."""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import engine as engines
from ._common.validation import check_array, check_choice, check_int
from ._common.warned import warn
from ._words import advice_on, why_it_overflows
from .algorithms import PRESETS, Algorithm
from .algorithms._work import work_of
from .callbacks import Callback
from .data import FederatedData
from .objectives import Objective, Problem, as_objective
from .participation import clients_per_round
from .private_runs import rules_for
from .randomness import CounterRandomness, GivenRandomness
from .result import DivergenceWarning, Result
from .stopping import NEAR, PRECISION, ROUNDING, ConvergedRule, NoRule, StoppingRule, as_rule

ENGINES = ("compiled", "reference")


class Limits(NamedTuple):
    """What ends a run."""

    rule: StoppingRule
    max_rounds: int
    max_iterations: int | None


def make_problem(
    algorithm: Algorithm,
    data: FederatedData,
    objective: str | Objective = "logistic",
    client_weight: str = "equal",
) -> Problem:
    """The clients' objectives f_i that `algorithm` minimises on `data`.

    The preset of the algorithm decides the regulariser where `objective` leaves it open.

    Parameters
    ----------
    algorithm : Algorithm
    data : FederatedData
    objective : str or Objective
    client_weight : {"equal", "size"}
        As of `run`.

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    check_algorithm(algorithm)
    found = algorithm.objective(as_objective(objective))
    if isinstance(data, FederatedData):
        return Problem(data, found, client_weight)
    if bind := getattr(data, "bind", None):  # rows that are elsewhere
        problem: Problem = bind(algorithm, found, client_weight)
        return problem
    raise TypeError(f"data must be FederatedData, got {type(data).__name__}")


def run(
    algorithm: Algorithm,
    data: FederatedData,
    *,
    objective: str | Objective = "logistic",
    seed: int | None = None,
    trial: int = 0,
    stopping: str | StoppingRule | None = None,
    rounds: int | None = None,
    max_rounds: int = 500,
    max_iterations: int | None = None,
    callback: Callback | None = None,
    start: ArrayLike | None = None,
    randomness: GivenRandomness | None = None,
    every_accuracy: bool = True,
    engine: str | None = None,
    client_weight: str = "equal",
) -> Result:
    """Run an algorithm on federated data.

    Parameters
    ----------
    algorithm : Algorithm
        What to run, with its parameters: `FedEPM`, or another of `fedepm_fast.algorithms`, or one
        of your own.
    data : FederatedData
        The clients' rows.
    objective : str or Objective
        ``"logistic"``, ``"squared_hinge"``, ``"multinomial"``, ``"least_squares"``,
        ``"huber"``, ``"poisson"``, the name of one of your own, or an object with its own
        ``beta``.
    seed, trial : int
        The result is a pure function of these two and the other arguments. The seed is 0 by
        default; with a mechanism it is drawn from the operating system, for runs that share one
        share their noise, and is in the result. A private run of a given seed has no guarantee
        if that is below 2**32, where all can be tried, or the seed of the split of `data`; that
        any other one is secret, and used once, is the user's word.
    stopping : str or StoppingRule, optional
        ``"released"``, ``"text"``, ``"none"`` or a rule, such as ``TargetRule(0.57)`` or one of a
        class of your own (see `stopping`); by default the preset's.
    rounds : int, optional
        Run exactly so many rounds, whatever the objective does (unless it diverges). With a
        mechanism they, or ``stopping="none"`` and `max_rounds`, must be given.
    max_rounds, max_iterations : int
        Caps on the communication rounds and the local iterations.
    callback : callable, optional
        Called after every aggregation with a `callbacks.RoundInfo`, which it may keep; a true
        value stops the run. With a mechanism it only watches: what it returns is ignored. What
        it sees are the measures of the history: of the rows as given, not as they are clipped.
    start : array_like of shape (n,) or (m, n), optional
        The clients' parameters at the start, zero by default.
    randomness : GivenRandomness, optional
        Selections and unit noise from outside, to replay a recorded run; `seed` is not used.
        A run that ends after round T needs T + 1 selections and the noise of T rounds.
    every_accuracy : bool
        Whether the history holds the accuracy of every round, or of the last one only, which
        saves a good part of the time, and NaN before.
    engine : {"compiled", "reference"}, optional
        What computes the run: the compiled kernels, or NumPy, equation by equation. They draw
        the same random numbers and agree to rounding. By default "compiled", or "reference" for
        an algorithm or objective of your own without kernels, and where rows have weights, of
        which kernels know nothing.
    client_weight : {"equal", "size"}
        How clients weigh in the objective, see `objectives.Problem`: alike, as in the paper, or by
        their rows (or sample weights). Private runs take "equal", and rows without weights, only.

    Returns
    -------
    Result

    Raises
    ------
    ValueError, TypeError
        Naming the argument, before any work.

    Warns
    -----
    DivergenceWarning
        If the run diverges, which stops it (the result holds the last finite state), ends above
        its start or far above its best, or swings without end: see `Result.diverged`,
        `Result.ended_above_best`, `Result.swings`.

    Examples
    --------
    >>> from fedepm_fast import FedEPM, datasets, run
    >>> result = run(FedEPM(local_steps=12), datasets.adult(clients=50, seed=1), seed=1)
    >>> result.rounds
    9
    """
    rules = rules_for(algorithm, objective)
    problem = make_problem(algorithm, data, objective, client_weight)
    m, n = problem.n_clients, problem.n_parameters
    resolved = algorithm.resolve(problem)
    resolved.check_coverage(m)
    stopping, rounds = rules.fix(stopping, rounds, max_rounds)
    problem = rules.begin(resolved, problem)
    engine = engine_for(engine, resolved, problem)
    limits = check_limits(algorithm, stopping, rounds, max_rounds, max_iterations, callback)
    callback = rules.watched(callback)
    start = None if start is None else check_start(start, m, n)
    if randomness is None:
        source: Any = CounterRandomness(rules.seed() if seed is None else seed, trial)
    else:
        source = _given(randomness, resolved, m, n, limits)
    outcome = simulate(
        resolved, problem, source, limits, callback=callback, start=start,
        every_accuracy=every_accuracy, compiled=engine == ENGINES[0],
    )  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):
        outcome.at_start = rules.value_at_start(outcome.at_start, start)
        near = outcome.at_start if start is None else rules.problem.value_at_start(None)
    check_begun(outcome, resolved, problem, start)
    history, settings = record(outcome, limits)
    settings |= rules.account(
        history, source, limits.max_rounds, every_accuracy=every_accuracy,
        start_given=start is not None,
    )  # fmt: skip
    description = {"description": data.summary(), **data.description}
    if problem.objective.task != "regression":
        description["largest_class"] = data.largest_class
    slack = ROUNDING * abs(outcome.at_start) if start is None else NEAR * abs(near)
    return make_result(
        resolved, problem, description, source, engine, outcome, history, settings, slack
    )


def simulate(
    algorithm: Algorithm, problem: Problem, source: Any, limits: Limits, **options: Any
) -> engines.Outcome:
    """`engine.simulate` with these limits; overflows end a run, and are no warnings."""
    with np.errstate(over="ignore", invalid="ignore"):
        return engines.simulate(
            algorithm, problem, source, limits.rule, max_rounds=limits.max_rounds,
            max_iterations=limits.max_iterations, **options,
        )  # fmt: skip


def _given(
    randomness: Any, algorithm: Algorithm, m: int, n: int, limits: Limits
) -> GivenRandomness:
    """Randomness from outside, which must be enough for the run."""
    if not isinstance(randomness, GivenRandomness):
        raise TypeError(
            "randomness must be GivenRandomness, or None to draw it from the seed, "
            f"got {randomness!r} of type {type(randomness).__name__}"
        )
    if algorithm.draws_batches:
        raise ValueError(
            f"randomness must be None for {algorithm.label} with batches: it has no orders of rows"
        )
    last = limits.max_rounds
    if limits.max_iterations is not None:
        last = min(last, limits.max_iterations // algorithm.local_steps)
    # A stopping rule may end the run earlier than that.
    last = last if isinstance(limits.rule, NoRule) else 0
    randomness.check(m, n, last, noisy=algorithm.noise_model.noisy)
    return randomness


def check_begun(
    outcome: engines.Outcome, algorithm: Algorithm, problem: Problem, start: Any
) -> None:
    """Raise ValueError where not even the first round could be done."""
    rounds = len(outcome.history["objective"])
    if rounds == 0:
        raise ValueError(why_it_overflows(algorithm, problem, start))
    if PRECISION in outcome.reasons and rounds == 1:
        raise ValueError(
            "start, mu0, epsilon and clip must be such that the noise of the first uploads is well "
            f"above the rounding of points of the size {np.abs(outcome.x).max():.3g}, and finite"
        )


def check_algorithm(algorithm: Any) -> None:
    """Raise TypeError unless it is an algorithm."""
    if not isinstance(algorithm, Algorithm):
        raise TypeError(
            "algorithm must be FedEPM(...) or another of fedepm_fast.algorithms, "
            f"got {type(algorithm).__name__}"
        )


def check_limits(
    algorithm: Algorithm,
    stopping: str | StoppingRule | None,
    rounds: int | None,
    max_rounds: int,
    max_iterations: int | None,
    callback: Callback | None,
) -> Limits:
    """What ends a run, from the arguments of `run`."""
    if rounds is not None and stopping is not None:
        raise ValueError("rounds and stopping exclude each other: give one of them")
    if rounds is not None:
        rule: StoppingRule = NoRule()
        max_rounds = check_int("rounds", rounds, low=0)
    else:
        rule = as_rule(PRESETS[algorithm.preset].stopping if stopping is None else stopping)
        if isinstance(rule, ConvergedRule) and not algorithm.keeps_models:
            raise ValueError(
                "stopping must be another than 'converged': only CurvatureFedEPM and FedNL know "
                "when they have"
            )
        max_rounds = check_int("max_rounds", max_rounds, low=0)
    if max_iterations is not None:
        max_iterations = check_int("max_iterations", max_iterations, low=0)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {type(callback).__name__}")
    return Limits(rule, max_rounds, max_iterations)


def check_start(start: ArrayLike, m: int, n: int) -> NDArray[np.float64]:
    """The clients' parameters at the start, shape (n,) or (m, n)."""
    array = np.asarray(start, dtype=np.float64)
    return check_array("start", array, shape=(n,) if array.ndim == 1 else (m, n))


def record(outcome: engines.Outcome, limits: Limits) -> tuple[dict[str, Any], dict[str, Any]]:
    """The history of a finished run as arrays, and the settings that ended it."""
    if len(outcome.history["objective"]) == 0:
        raise ValueError("start must have a finite objective, it overflows at the first point")
    history = {
        name: np.array(values, dtype=np.float64)
        for name, values in outcome.history.items()
        if len(values) and (name != "accuracy" or values[0] is not None)
    }
    settings = {**limits._asdict(), "stopping": limits.rule.name}
    del settings["rule"]
    return history, settings


def make_result(
    algorithm: Algorithm,
    problem: Problem,
    data: dict[str, Any],
    source: Any,
    engine: str,
    outcome: engines.Outcome,
    history: dict[str, Any],
    settings: dict[str, Any],
    slack: float,
) -> Result:
    """The result of a finished run of the resolved `algorithm`; a warning if it went wrong."""
    given, rounds = isinstance(source, GivenRandomness), len(history["objective"]) - 1
    m0 = clients_per_round(algorithm.participation, problem.n_clients)
    took_part = sum(map(len, source.selected[:rounds])) if given else m0 * rounds
    sizes = problem.data.client_sizes
    work = work_of(algorithm, sizes, problem.n_parameters, took_part, outcome.kept)
    settings["work"] = work._asdict()
    result = Result(
        algorithm=algorithm.describe(),
        objective=problem.describe(),
        data=data,
        seed=None if given else source.seed,
        trial=None if given else source.trial,
        engine=engine,
        x=outcome.x,
        W=outcome.W,
        Z=outcome.Z,
        rounds=rounds,
        reasons=outcome.reasons,
        history=history,
        snr_clients=outcome.snr_clients,
        total_time=outcome.total_time,
        settings=settings,
        versions=dict(versions()),
        start_objective=outcome.at_start,
        slack=slack,
        kept=outcome.kept,
    )
    if result.warning:
        settings["advice"] = settings.get("advice", "") + advice_on(algorithm, problem)
        warn(result.warning, DivergenceWarning)
    return result


def engine_for(name: str | None, algorithm: Algorithm, problem: Problem) -> str:
    """What computes the run."""
    if name is not None:
        check_choice("engine", name, ENGINES)
    if name == "reference" or engines.supports(algorithm, problem):
        return name or "compiled"
    if name is None:
        return "reference"
    if problem.data.sample_weight is not None:
        raise ValueError(
            "engine 'compiled' knows nothing of weights of rows; engine='reference' runs them"
        )
    raise ValueError(
        f"engine 'compiled' has no kernels for {type(algorithm).__name__} with the objective "
        f"{problem.objective.name!r}; engine='reference' runs it"
    )


@functools.cache
def versions() -> Mapping[str, str]:
    """Of this package, Python, the libraries that matter, and the kind of machine."""
    from . import __version__

    return {
        "fedepm_fast": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": version("numba"),
        "machine": platform.machine(),
    }
