"""The server: FedEPM's rounds, then a comparison with the same run without Flower.

The noise of private clients is their own, and there is nothing to compare with.
"""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedepm_fast import run
from fedepm_fast.flower import FedEPMStrategy
from fedepm_fast.kernels import losses
from flower_adult.task import plan, problem

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    m, seed = int(config["clients"]), int(config["seed"])
    p, (algorithm, rounds, _) = problem(m), plan(config)
    strategy = FedEPMStrategy(
        algorithm, m, min_clients=m, seed=seed, path=config["checkpoint"] or None
    )
    start = ArrayRecord({"w": Array(np.zeros(p.n_parameters))})
    done = strategy.restore(start).tau

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        x = arrays["w"].numpy()
        values = losses.values(p.rows, x, reg=p.reg)
        return MetricRecord(
            {"f(x)/m": float(values.mean()), "accuracy": float(p.accuracies(x[None])[0])}
        )

    strategy.start(grid, start, num_rounds=rounds - done, evaluate_fn=evaluate)
    x = strategy.restore(start).x
    if (mechanism := algorithm.mechanism) is not None:
        print(f"after {rounds} rounds accuracy {p.accuracy(x):.4f}", flush=True)
        print(mechanism.guarantee(float(config["total-epsilon"])), flush=True)
        return
    expected = run(algorithm, p.data, seed=seed, rounds=rounds).x
    error = np.abs(x - expected).max() / np.abs(expected).max()
    print(f"x after {rounds} rounds, to that of fedepm_fast.run: {error:.1e} relative", flush=True)
    assert error < 1e-10
