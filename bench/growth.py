"""Time per round and peak memory of FedEPM runs against clients, features and rows.

Every point is a process of its own. A decade is linear if time per round grows by its factor to
within a fifth; memory is the peak beyond that of the imported package, beside the data (features
and labels) with W and Z.

    python bench/growth.py [--plot FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys

#: What grows: name, its values, and (clients, rows, features) of a value.
SERIES = {
    "clients": ([10, 100, 1_000, 10_000, 100_000], lambda m: (m, 40 * m, 10)),
    "features": ([10, 100, 1_000, 10_000], lambda n: (50, 10_000, n)),
    "rows": ([10_000, 100_000, 1_000_000, 10_000_000], lambda d: (100, d, 10)),
}


def measure(clients: int, rows: int, features: int) -> dict[str, float]:
    """Seconds a round (median of rounds), and peak bytes to those of data, W and Z."""
    import numpy as np

    from fedepm_fast import FedEPM, run
    from fedepm_fast.data.synthetic import make_federated

    tiny = make_federated(clients=2, samples=20, features=features)
    run(FedEPM(mu0=1.0), tiny, rounds=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    data = make_federated(
        clients=clients, samples=rows, features=features, scale="unit-norm", seed=1
    )
    work = rows * features
    rounds = int(np.clip(2e9 / (work + 100 * clients * features), 5, 300))
    result = run(FedEPM(), data, rounds=rounds, every_accuracy=False)
    peak = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    size = data.features.nbytes + data.labels.nbytes + result.W.nbytes + result.Z.nbytes
    times = np.diff(result.history["elapsed"])
    return {"seconds": float(statistics.median(times)), "memory": peak / size, "bytes": size}


def plot(found: dict[str, list[dict[str, float]]], path: str) -> None:
    from fedepm_fast import plots

    figure, grid = plots.new_grid(1, len(found), 10, 3.4)
    for k, (name, points) in enumerate(found.items()):
        axes = grid[0, k]
        x = [point["value"] for point in points]
        y = [1e3 * point["seconds"] for point in points]
        axes.loglog(x, y, "o-", color="C0", label="measured")
        axes.loglog(x, [y[-1] * v / x[-1] for v in x], ":", color="0.4", label="linear")
        axes.set_xlabel(name)
        axes.set_ylabel("ms a round" if k == 0 else "")
    axes.legend(frameon=False)
    plots.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="leave out the last decade")
    parser.add_argument("--point", type=int, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        print(json.dumps(measure(*arguments.point)))
        return
    found: dict[str, list[dict[str, float]]] = {}
    for name, (values, shape) in SERIES.items():
        print(f"{name:>10}{'ms a round':>14}{'growth / 10':>14}{'memory / data':>16}")
        points = found.setdefault(name, [])
        for value in values[:-1] if arguments.quick else values:
            point = map(str, shape(value))
            output = subprocess.run(
                [sys.executable, __file__, "--point", *point],
                check=True, capture_output=True, text=True,
            ).stdout  # fmt: skip
            points.append({"value": value, **json.loads(output)})
            now = points[-1]
            growth = now["seconds"] / points[-2]["seconds"] / 10 if len(points) > 1 else None
            print(
                f"{value:>10,}{1e3 * now['seconds']:>14.4g}"
                f"{'' if growth is None else format(growth, '.2f'):>14}{now['memory']:>16.2f}"
            )
    if arguments.plot:
        plot(found, arguments.plot)


if __name__ == "__main__":
    main()
