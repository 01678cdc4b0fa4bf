"""Aggregation of clients' replies in Flower: ENS against FedMedian, FedTrimmedAvg and FedAvg.

Every strategy gets the same reply messages, as they come from the network, and each runs in a
process of its own, for the peak of its memory. Memory is counted beyond the replies.

    python bench/flower.py [--clients 100] [--parameters 1000000] [--layers 1] [--repeats 3]

Needs ``pip install '.[flower]'``.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

#: Names of the aggregations, and what makes each.
STRATEGIES = {
    "ENS, c 0.5": lambda f, e: e(f.FedAvg(), 0.5),
    "ENS, c 0.5, 2 threads": lambda f, e: e(f.FedAvg(), 0.5, threads=2),
    "ENS, c 0.5, weighted": lambda f, e: e(f.FedAvg(), 0.5, weights="examples"),
    "ENS, median (c 1e9)": lambda f, e: e(f.FedAvg(), 1e9),
    "Flower FedAvg": lambda f, e: f.FedAvg(),
    "Flower FedTrimmedAvg": lambda f, e: f.FedTrimmedAvg(beta=0.2),
    "Flower FedMedian": lambda f, e: f.FedMedian(),
}


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def identify() -> None:
    """Tell Flower which task this is; older versions need none."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1


def make_replies(clients: int, parameters: int, layers: int) -> tuple[Any, Any]:
    import numpy as np
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

    rng = np.random.default_rng(0)
    size = parameters // layers

    def record() -> Any:
        return ArrayRecord(
            {f"layer{k}": Array(rng.normal(size=size).astype(np.float32)) for k in range(layers)}
        )

    replies = []
    for i in range(clients):
        metrics = MetricRecord({"num-examples": 1 + i % 7})
        content = RecordDict({"arrays": record(), "metrics": metrics})
        replies.append(Message(content, reply_to=Message(RecordDict(), i + 1, "train")))
    return replies, record()


class Nodes:
    def get_node_ids(self) -> list[int]:
        return [1, 2]


def measure(name: str, clients: int, parameters: int, layers: int, repeats: int) -> dict[str, Any]:
    """Seconds of an aggregation (after one that compiles), and bytes beyond the replies."""
    import flwr.serverapp.strategy as strategies
    from flwr.app import ConfigRecord

    from fedepm_fast.flower import ElasticNetAggregate

    logging.getLogger("flwr").setLevel(logging.ERROR)
    identify()
    strategy = STRATEGIES[name](strategies, ElasticNetAggregate)
    few, start = make_replies(clients, 10_000 * layers, layers)
    strategy.configure_train(1, start, ConfigRecord(), Nodes())
    strategy.aggregate_train(1, few)  # compiles
    seconds = []
    for k in range(repeats):
        # FedMedian and FedTrimmedAvg empty the replies, so each repeat has its own.
        replies, start = make_replies(clients, parameters, layers)
        strategy.configure_train(1, start, ConfigRecord(), Nodes())
        before = peak()
        began = time.perf_counter()
        arrays, _ = strategy.aggregate_train(1, replies)
        seconds.append(time.perf_counter() - began)
        if k == 0:
            beyond = peak() - before
        assert arrays is not None
        del replies, arrays
    return {"seconds": statistics.median(seconds), "bytes": beyond}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = (options.clients, options.parameters, options.layers, options.repeats)
    if options.one is not None:
        print(json.dumps(measure(options.one, *sizes)))
        return
    found = {}
    for name in STRATEGIES:
        command = [sys.executable, __file__, "--one", name]
        for option, value in zip(
            ("clients", "parameters", "layers", "repeats"), sizes, strict=True
        ):
            command += [f"--{option}", str(value)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
    size = options.clients * options.parameters * 4
    first = next(iter(found.values()))["seconds"]
    print(f"{options.clients} x {options.parameters:,} float32 in {options.layers} layers")
    print("| aggregation | s | to ENS | memory beyond the replies, to them |")
    print("|---|---|---|---|")
    for name, figures in found.items():
        seconds, memory = figures["seconds"], figures["bytes"] / size
        print(f"| {name} | {seconds:.3f} | {seconds / first:.1f} | {memory:.2f} |")


if __name__ == "__main__":
    main()
