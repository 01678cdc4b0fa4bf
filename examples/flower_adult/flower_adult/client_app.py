"""The clients: each has its share of Adult."""

from __future__ import annotations

from flwr.app import Context

from fedepm_fast.federation.client import Client, PrivateClient
from fedepm_fast.flower import client_app
from fedepm_fast.kernels import losses
from flower_adult.task import algorithm, private, problem, table


def make_client(context: Context) -> Client | PrivateClient:
    i, config = int(context.node_config["partition-id"]), context.run_config
    m, folder, epsilon = (
        int(config["clients"]),
        config["checkpoint"],
        float(config["total-epsilon"]),
    )
    if epsilon:
        if not folder:
            raise ValueError("a private run needs a checkpoint folder, for the clients' ledgers")
        plan = private(m, epsilon)
        features, labels = table(m).client(i)
        return PrivateClient(
            plan.algorithm,
            features,
            labels,
            objective=plan.objective,
            index=i,
            clients=m,
            uploads=plan.rounds,
            path=f"{folder}/ledger-{i}",
        )
    p = problem(m)
    return Client(
        algorithm(m),
        lambda x: losses.gradients(p.rows, x, clients=[i], reg=p.reg)[0],
        index=i,
        clients=m,
        features=p.n_parameters,
        samples=int(p.data.client_sizes[i]),
        seed=int(config["seed"]),  # a simulation's; in earnest a secret
        path=f"{folder}/client-{i}.npz" if folder else None,
    )


app = client_app(make_client)
