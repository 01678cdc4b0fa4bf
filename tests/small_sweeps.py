"""Small sweeps, and what of their results can be compared."""

from __future__ import annotations

from fedepm_fast import FedEPM, SFedAvg, Sweep, grid
from fedepm_fast.data import sources

SMALL = sources.Synthetic(clients=4, samples=40, features=3)
TIMES = ("total_time", "local_time", "elapsed")

#: Another one, as a file says it: 24 runs in 8 cells.
SPECIFICATION = """
trials = 3
max_rounds = 2

[data]
source = "synthetic"
clients = [4, 5]
samples = 60
features = 3

[[algorithm]]
name = "fedepm"
local_steps = [2, 4]

[[algorithm]]
name = ["sfedavg", "sfedprox"]
"""


def small_sweep(**changed) -> Sweep:
    algorithms = grid(FedEPM, local_steps=[2, 4]) + grid(SFedAvg, local_steps=3)
    return Sweep(algorithms, SMALL, **{"trials": 6, "max_rounds": 5, **changed})


def timeless(result) -> tuple:
    """Everything of the runs, to the last bit, but times and places."""
    apart = (*TIMES, "machine", "created")
    table = {name: column for name, column in result.table().items() if name not in apart}
    histories = {
        run_id: {name: v.tobytes() for name, v in history.items() if name not in TIMES}
        for run_id, history in result.histories().items()
    }
    return table, histories


def ids(sweep: Sweep) -> list[str]:
    """The names of its runs."""
    return sorted(run.run_id for run in sweep)
