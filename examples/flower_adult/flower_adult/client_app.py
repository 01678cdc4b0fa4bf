"""The clients: each has its share of Adult."""

from __future__ import annotations

from flwr.app import Context

from fedepm_fast.client import Client
from fedepm_fast.flower import client_app
from fedepm_fast.kernels import losses
from flower_adult.task import ALGORITHM, problem


def make_client(context: Context) -> Client:
    i, m = int(context.node_config["partition-id"]), int(context.run_config["clients"])
    p, folder = problem(m), context.run_config["checkpoint"]
    return Client(
        ALGORITHM,
        lambda x: losses.gradients(p.rows, x, clients=[i], reg=p.reg)[0],
        index=i,
        clients=m,
        features=p.n_parameters,
        samples=int(p.data.client_sizes[i]),
        seed=int(context.run_config["seed"]),  # a simulation's; in earnest a secret
        path=f"{folder}/client-{i}.npz" if folder else None,
    )


app = client_app(make_client)
