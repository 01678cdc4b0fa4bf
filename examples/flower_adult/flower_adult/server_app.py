"""The server: FedEPM's rounds, then a comparison with the same run without Flower."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedepm_fast import run
from fedepm_fast.flower import FedEPMStrategy
from fedepm_fast.kernels import losses
from flower_adult.task import ALGORITHM, problem

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    m, rounds, seed = int(config["clients"]), int(config["rounds"]), int(config["seed"])
    p = problem(m)
    strategy = FedEPMStrategy(
        ALGORITHM, m, min_clients=m, seed=seed, path=config["checkpoint"] or None
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
    expected = run(ALGORITHM, p.data, seed=seed, rounds=rounds).x
    error = np.abs(x - expected).max() / np.abs(expected).max()
    print(f"x after {rounds} rounds, to that of fedepm_fast.run: {error:.1e} relative", flush=True)
    assert error < 1e-10
