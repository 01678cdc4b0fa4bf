"""The server: FedEPM's rounds, and what they came to.

Without privacy the run is the same as without Flower, which is checked. The noise of private
clients is their own.
"""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from fedepm_fast import Problem, make_problem, run
from fedepm_fast.flower import FedEPMStrategy, PrivateStrategy
from fedepm_fast.kernels import losses
from flower_adult.task import algorithm, private, problem, table

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    m, seed, path = int(config["clients"]), int(config["seed"]), config["checkpoint"] or None
    if epsilon := float(config["total-epsilon"]):
        return planned(grid, m, epsilon, path, seed)
    p, rounds = problem(m), int(config["rounds"])
    strategy = FedEPMStrategy(algorithm(m), m, min_clients=m, seed=seed, path=path)
    x = rounds_of(strategy, grid, p, rounds)
    expected = run(algorithm(m), p.data, seed=seed, rounds=rounds).x
    error = np.abs(x - expected).max() / np.abs(expected).max()
    print(f"x after {rounds} rounds, to that of fedepm_fast.run: {error:.1e} relative", flush=True)
    assert error < 1e-10


def planned(grid: Grid, m: int, epsilon: float, path: str | None, seed: int) -> None:
    """A private run, as it is planned."""
    plan = private(m, epsilon)
    print(plan, flush=True)
    p = make_problem(plan.algorithm, table(m), plan.objective)
    rounds_of(PrivateStrategy(plan, seed=seed, path=path), grid, p, plan.rounds)


def rounds_of(strategy: FedEPMStrategy, grid: Grid, p: Problem, rounds: int) -> NDArray[np.float64]:
    """What the rounds that are left come to; said, too."""

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        x = arrays["w"].numpy()
        return MetricRecord({"f(x)/m": objective(p, x), "accuracy": p.accuracy(x)})

    start = ArrayRecord({"w": Array(np.zeros(p.n_parameters))})
    done = strategy.restore(start).tau
    found = strategy.start(grid, start, num_rounds=rounds - done, evaluate_fn=evaluate)
    x = found.arrays["w"].numpy()
    best = min(record["f(x)/m"] for record in found.evaluate_metrics_serverapp.values())
    optimum = p.optimum(method="newton")
    majority = float(max(np.mean(p.data.labels), 1 - np.mean(p.data.labels)))
    print(
        f"{p.n_clients} clients, {rounds} rounds: f/m {objective(p, x):.4f} (best round "
        f"{best:.4f}, optimum {optimum.value / p.n_clients:.4f}), accuracy {p.accuracy(x):.4f} (at "
        f"the optimum {p.accuracy(optimum.x):.4f}, all in the larger class {majority:.4f})",
        flush=True,
    )
    return x


def objective(p: Problem, x: NDArray[np.float64]) -> float:
    return float(losses.values(p.rows, x, reg=p.reg).mean())
