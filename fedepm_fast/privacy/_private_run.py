"""A planned private run in one process: moments, coordinates, rounds, mean, and back."""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.validation import ArgumentValueError
from .._private_checks import check_run
from ..callbacks import Callback, RoundInfo
from ..data import FederatedData
from ..mechanisms import in_coordinates, simulate_moments
from ..participation import clients_per_round
from ..private_runs import fresh_seed, participations, problem_in
from ..randomness import CounterRandomness
from ..result import DivergenceWarning, Result
from ..runner import make_problem, run
from ._sum_run import columns_of_sum, moments_of_sum, sum_run

if TYPE_CHECKING:
    from ..objectives import Problem
    from .private_plan import PrivatePlan

Array = NDArray[np.float64]


def private_run(
    plan: PrivatePlan,
    data: FederatedData,
    *,
    seed: int | None,
    engine: str | None,
    callback: Callback | None,
    public_scaling: bool,
    every_accuracy: bool,
) -> Result:
    """`PrivatePlan.run`."""
    algorithm = _check(plan, data, public_scaling)
    # The seed of the noise of the moments as well, whose counter is another.
    seed = fresh_seed() if seed is None else seed
    back = coordinates_of(plan, data, seed)
    problem = make_problem(algorithm, data, plan.objective)
    moved = problem_in(problem, back)
    runner: Any = run if plan.trust == "clients" else partial(sum_run, honest=plan.honest)
    with warnings.catch_warnings():
        # That noise leads above the start is said from what is public, by the plan.
        warnings.simplefilter("ignore", DivergenceWarning)
        result = runner(
            algorithm, moved.data, objective=moved.objective, rounds=plan.rounds, seed=seed,
            engine=engine, callback=None if callback is None else _watch(callback, plan, back),
            every_accuracy=every_accuracy,
        )  # fmt: skip
    return _in_columns(result, plan, problem, back, public_scaling)


def coordinates_of(plan: PrivatePlan, data: FederatedData, seed: int) -> Array:
    """What turns columns into those of the rounds, shape (p, p), from what is released before."""
    mechanism, source = plan.mechanism, CounterRandomness(seed)
    if not mechanism.moments:
        return plan.coordinates()
    # Each client's budget is split over its own rounds, which the selections tell, and these.
    releases = participations(plan.algorithm, data, source, plan.rounds)
    upload = mechanism.noise_multipliers(releases)
    m0 = clients_per_round(plan.algorithm.participation, data.n_clients)
    summed: Any = {"clients": m0, "honest": plan.honest}
    first = None
    if plan.columns is not None:  # which spend as an upload
        if plan.trust == "clients":
            found = plan.columns.simulate(data, mechanism, upload, source)
        else:
            found = columns_of_sum(data, mechanism, plan.columns, upload.max(), source, **summed)
        first = plan.standardising(*found)
        data = in_coordinates(data, first)
    if plan.radius is None:
        return plan.coordinates(first=first)
    each = [mechanism.one_release(z, plan.settings.moments) for z in upload]
    if plan.trust == "clients":
        found = simulate_moments(data, mechanism, plan.radius, each, source)
    else:
        found = moments_of_sum(data, mechanism, plan.radius, max(each), source, **summed)
    return plan.coordinates(*found, first)


def _check(plan: PrivatePlan, data: FederatedData, public_scaling: bool) -> Any:
    """The algorithm, if it may run on these data."""
    sizes = plan.mechanism.units(data.client_sizes), plan.mechanism.units(plan.client_sizes)
    if not np.array_equal(*sizes):
        raise ArgumentValueError(
            "data", f"must have the plan's {len(plan.client_sizes)} clients of as many rows"
        )
    if data.n_features != plan.n_features:
        raise ArgumentValueError(
            "data", f"must have {plan.n_features} columns as planned, got {data.n_features}"
        )
    mechanism = dataclasses.replace(plan.mechanism, public_scaling=public_scaling)
    asked = dataclasses.replace(plan.algorithm, mechanism=mechanism)
    check_run(asked, make_problem(asked, data, plan.objective))
    # Coordinates that were released are public whatever they look like.
    mechanism = dataclasses.replace(mechanism, public_scaling=True)
    return dataclasses.replace(plan.algorithm, mechanism=mechanism)


def _watch(callback: Callback, plan: PrivatePlan, back: Array) -> Callback:
    """`callback`, shown points of the columns."""

    def watch(info: RoundInfo) -> Any:
        x = plan.in_columns(info.x, back)
        x.flags.writeable = False
        return callback(dataclasses.replace(info, x=x))

    return watch


def _in_columns(
    result: Result, plan: PrivatePlan, problem: Problem, back: Array, public_scaling: bool
) -> Result:
    """The result of the rounds in the columns, with the mean in place of the last point."""
    history = dict(result.history)
    points = history["x"]
    if len(points) > 1:
        points = np.concatenate([points[:-1], plan.average(points[1:])[None]])
    history["x"] = points = plan.in_columns(points, back)
    m = problem.n_clients
    with np.errstate(over="ignore", invalid="ignore"):
        found = [problem.total_value_and_gradient(x) for x in points]
    history["objective"] = np.array([value for value, _ in found])
    history["grad_mean_sq"] = np.array([(g / m) @ (g / m) for _, g in found])
    if "accuracy" in history:
        history["accuracy"] = history["accuracy"].copy()
        history["accuracy"][-1] = problem.accuracy(points[-1])
    privacy = dict(result.settings["privacy"])
    public = [text for text in privacy["public"] if not text.startswith("the scaling")]
    if public_scaling:
        public.append("the scaling of the columns, by the user's word")
    privacy |= {
        "public": public, "kept": plan.kept, "expected_rise": plan.rise,
        "coordinates": back.tolist(),
    }  # fmt: skip
    return dataclasses.replace(
        result, x=points[-1], W=plan.in_columns(result.W, back),
        Z=plan.in_columns(result.Z, back), history=history,
        data=result.data | {"description": problem.data.summary()},
        settings=result.settings | {"privacy": privacy},
    )  # fmt: skip
