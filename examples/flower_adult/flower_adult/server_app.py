"""The server: FedEPM's rounds, and what they came to.

Without privacy the run is the same as without Flower, which is checked. The noise of private
clients is their own.
"""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from fedepm_fast import Problem, run
from fedepm_fast.flower import FedEPMStrategy
from fedepm_fast.kernels import losses
from flower_adult.task import plan, problem

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    m, seed = int(config["clients"]), int(config["seed"])
    p, (algorithm, rounds) = problem(m), plan(config)
    strategy = FedEPMStrategy(
        algorithm, m, min_clients=m, seed=seed, path=config["checkpoint"] or None
    )
    start = ArrayRecord({"w": Array(np.zeros(p.n_parameters))})
    done = strategy.restore(start).tau

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        x = arrays["w"].numpy()
        return MetricRecord({"f(x)/m": objective(p, x), "accuracy": p.accuracy(x)})

    found = strategy.start(grid, start, num_rounds=rounds - done, evaluate_fn=evaluate)
    x = strategy.restore(start).x
    best = min(record["f(x)/m"] for record in found.evaluate_metrics_serverapp.values())
    optimum = p.optimum(method="newton")
    majority = float(max(np.mean(p.data.labels), 1 - np.mean(p.data.labels)))
    print(
        f"{m} clients, {rounds} rounds: f/m {objective(p, x):.4f} (best round {best:.4f}, optimum "
        f"{optimum.value / m:.4f}), accuracy {p.accuracy(x):.4f} (at the optimum "
        f"{p.accuracy(optimum.x):.4f}, all in the larger class {majority:.4f})",
        flush=True,
    )
    if (mechanism := algorithm.mechanism) is not None:
        print(mechanism.guarantee(float(config["total-epsilon"])), flush=True)
        return
    expected = run(algorithm, p.data, seed=seed, rounds=rounds).x
    error = np.abs(x - expected).max() / np.abs(expected).max()
    print(f"x after {rounds} rounds, to that of fedepm_fast.run: {error:.1e} relative", flush=True)
    assert error < 1e-10


def objective(p: Problem, x: NDArray[np.float64]) -> float:
    return float(losses.values(p.rows, x, reg=p.reg).mean())
