"""Seconds a round in Flower's simulation: FedEPM beside FedAvg and FedMedian on the same clients.

Each strategy runs on Adult, split over the clients, half of whom take part in a round. Clients of
FedEPM take one gradient and 12 soft-threshold steps, those of FedAvg and FedMedian 12 gradient
steps; gradients are this package's kernels for all. The strategies take turns, in a simulation of
its own for each repeat.

    python bench/flower_app.py [--clients 20] [--rounds 20] [--repeats 3]

Needs ``pip install '.[flower]' 'flwr[simulation]'``.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LOCAL_STEPS = 12


@functools.cache
def problem(clients: int) -> Any:
    from fedepm_fast import FedEPM, datasets, make_problem

    return make_problem(FedEPM(), datasets.adult(clients=clients, seed=0))


def fedepm_client(clients: int) -> Any:
    from fedepm_fast import FedEPM
    from fedepm_fast.federation.client import Client
    from fedepm_fast.flower import client_app
    from fedepm_fast.kernels import losses

    def make(context: Any) -> Client:
        i, p = int(context.node_config["partition-id"]), problem(clients)
        return Client(
            FedEPM(local_steps=LOCAL_STEPS),
            lambda x: losses.gradients(p.rows, x, clients=[i], reg=p.reg)[0],
            index=i, clients=clients, features=p.n_parameters,
            samples=int(p.data.client_sizes[i]), seed=0,
        )  # fmt: skip

    return client_app(make)


def plain_client(clients: int) -> Any:
    from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    from fedepm_fast.kernels import losses

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        i, p = int(context.node_config["partition-id"]), problem(clients)
        x = message.content["arrays"]["w"].numpy()
        size = int(p.data.client_sizes[i])
        for _ in range(LOCAL_STEPS):
            x = x - 0.5 * size * losses.gradients(p.rows, x, clients=[i], reg=p.reg)[0]
        reply = RecordDict({
            "arrays": ArrayRecord({"w": Array(x)}), "metrics": MetricRecord({"num-examples": size}),
        })  # fmt: skip
        return Message(reply, reply_to=message)

    return app


def one(name: str, clients: int, rounds: int) -> None:
    """Print the seconds a round of one simulation."""
    import numpy as np
    from flwr.app import Array, ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg, FedMedian
    from flwr.simulation import run_simulation

    from fedepm_fast import FedEPM
    from fedepm_fast.flower import FedEPMStrategy

    logging.disable(logging.INFO)
    app, taken = ServerApp(), []

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        start = ArrayRecord({"w": Array(np.zeros(problem(clients).n_parameters))})
        if name == "FedEPM":
            strategy: Any = FedEPMStrategy(
                FedEPM(local_steps=LOCAL_STEPS), clients, min_clients=clients
            )
        else:
            made = {"FedAvg": FedAvg, "FedMedian": FedMedian}[name]
            strategy = made(fraction_train=0.5, fraction_evaluate=0.0, min_available_nodes=clients)
        # A round first, which starts the workers and compiles, or loads, the kernels.
        strategy.start(grid, start, num_rounds=1)
        began = time.perf_counter()
        strategy.start(grid, start, num_rounds=rounds)
        taken.append((time.perf_counter() - began) / rounds)

    client = fedepm_client(clients) if name == "FedEPM" else plain_client(clients)
    run_simulation(app, client, num_supernodes=clients)
    print(json.dumps(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    a = parser.parse_args()
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": here}
    found: dict[str, list[float]] = {"FedEPM": [], "FedAvg": [], "FedMedian": []}
    for _ in range(a.repeats):
        for name, seconds in found.items():
            # Imported by name, as the workers of the simulation import it.
            call = f"import flower_app; flower_app.one({name!r}, {a.clients}, {a.rounds})"
            command = [sys.executable, "-c", call]
            output = subprocess.run(
                command, check=True, capture_output=True, text=True, env=environment
            ).stdout
            seconds += json.loads(output.strip().splitlines()[-1])
    base = statistics.median(found["FedAvg"])
    print("| strategy | s a round | rounds a second | to FedAvg |\n|---|---|---|---|")
    for name, seconds in found.items():
        value = statistics.median(seconds)
        print(f"| {name} | {value:.3f} | {1 / value:.1f} | {value / base:.2f} |")


if __name__ == "__main__":
    main()
