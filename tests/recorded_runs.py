"""Runs whose results must not change: every kind of run there is, on small data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from fedepm_fast import (
    FedEPM,
    FederatedData,
    Huber,
    Multinomial,
    Result,
    SFedAvg,
    SFedProx,
    Sweep,
    grid,
)
from fedepm_fast.data import sources
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism

OBJECTIVES = {
    "logistic": "classification",
    "squared_hinge": "classification",
    "multinomial": "multiclass",
    "least_squares": "regression",
    "huber": "regression",
}
ALGORITHMS = (FedEPM, SFedAvg, SFedProx)
TIMES = ("elapsed", "local_time")


def data(task: str, kind: str = "dense") -> FederatedData:
    """Nine clients of 1 to 40 rows and five features; drawn with nothing of the package."""
    rng = np.random.default_rng(7)
    sizes = np.array([1, 40, 7, 12, 8, 23, 2, 16, 31])
    X = rng.normal(size=(sizes.sum(), 5))
    X[np.abs(X) < 0.4] = 0.0
    margin = X @ rng.normal(size=5)
    y = margin + 0.3 * rng.normal(size=len(X))
    if task == "classification":
        y = (y > 0).astype(float)
    elif task == "multiclass":
        y = np.digitize(y, [-1.0, 1.0]).astype(float)
    layouts = {
        "dense": np.ascontiguousarray,
        "csr": sparse.csr_array,
        "fortran": np.asfortranarray,
        "float32": lambda a: a.astype(np.float32),
    }
    return FederatedData(layouts[kind](X), y, sizes)


def configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and arguments of `run` of each; ``data`` is (task, kind)."""
    common: dict[str, Any] = {"seed": 3, "rounds": 12}
    for objective, task in OBJECTIVES.items():
        for kind in ("dense", "csr"):
            for cls in ALGORITHMS:
                # Whose longer run is chaotic: a last place of the data moves the third digit.
                short = {"rounds": 3} if (cls, objective) == (SFedProx, "huber") else {}
                yield (
                    f"{cls.name}-{objective}-{kind}",
                    {
                        **common,
                        **short,
                        "algorithm": cls(local_steps=4, mu0=0.5),
                        "data": (task, kind),
                        "objective": objective,
                    },
                )
    for cls in ALGORITHMS:
        for preset in ("released", "text"):
            for noise in ("standardized", "laplace", "none"):
                yield (
                    f"{cls.name}-{preset}-{noise}",
                    {
                        "algorithm": cls(local_steps=3, preset=preset, noise=noise, mu0=0.3),
                        "data": ("classification", "dense"),
                        "seed": 2**64 - 1,
                        "trial": 5,
                        "max_rounds": 40,
                    },
                )
    for kind in ("fortran", "float32"):
        yield (
            f"fedepm-logistic-{kind}",
            {**common, "algorithm": FedEPM(), "data": ("classification", kind)},
        )
    special = {
        "step-1": FedEPM(step="1", mu0=0.2, eta=0.1, lam=1e-3, noise="none"),
        "released-start": FedEPM(start="released"),
        "broadcast": FedEPM(start="broadcast", aggregation="uploaded"),
        "coverage": FedEPM(participation=0.4, coverage_rounds=3),
        "all-clients": FedEPM(participation=1.0, local_steps=1, c=0.5, alpha=1.2),
        "prox": SFedProx(prox=0.3, inner_steps=2, learning_rate=0.5),
        "rate": SFedAvg(learning_rate=0.1),
    }
    for name, algorithm in special.items():
        yield name, {**common, "algorithm": algorithm, "data": ("classification", "dense")}
    mechanisms = {
        "laplace": LaplaceMechanism(total_epsilon=4.0, clip=2.0, public_scaling=True),
        "gaussian": GaussianMechanism(total_epsilon=4.0, delta=1e-5, clip=2.0, public_scaling=True),
    }
    for law, mechanism in mechanisms.items():
        for start in ("released", "broadcast"):
            for aggregation in ("equal", "uploaded", "inverse_variance"):
                yield (
                    f"private-{law}-{start}-{aggregation}",
                    {
                        "algorithm": FedEPM(
                            local_steps=5,
                            mu0=0.5,
                            mechanism=mechanism,
                            start=start,
                            aggregation=aggregation,
                        ),
                        "data": ("classification", "dense"),
                        "seed": 11,
                        "rounds": 8,
                    },
                )
    yield (
        "private-huber",
        {
            "algorithm": FedEPM(local_steps=5, mu0=0.5, mechanism=mechanisms["laplace"]),
            "data": ("regression", "dense"),
            "objective": Huber(beta=1e-2, delta=0.5),
            "seed": 11,
            "rounds": 8,
        },
    )
    yield (
        "private-multinomial",
        {
            "algorithm": FedEPM(local_steps=5, mu0=0.5, mechanism=mechanisms["laplace"]),
            "data": ("multiclass", "csr"),
            "objective": Multinomial(beta=1e-2, classes=3),
            "seed": 11,
            "rounds": 8,
        },
    )


def sweeps() -> Iterator[Sweep]:
    """Sweeps whose runs have names that must not change."""
    algorithms = (
        grid(FedEPM, local_steps=[2, 4], preset=["released", "text"])
        + grid(SFedAvg, local_steps=3)
        + grid(SFedProx, prox=[1e-5, 0.1])
    )
    small = sources.Synthetic(clients=4, samples=40, features=3)
    yield Sweep(algorithms, small, trials=3, max_rounds=5)
    yield Sweep(
        FedEPM(), data("regression"), objective=["least_squares", "huber"], seed=[0, 2**64 - 1]
    )
    partitions = ["random", "equal", "dirichlet"]
    yield Sweep(FedEPM(), clients=50, partition=partitions, stopping=["released", "text"])


def arrays(result: Result) -> dict[str, np.ndarray]:
    """What of a result is a function of its arguments."""
    history = {f"history/{k}": v for k, v in result.history.items() if k not in TIMES}
    return {"x": result.x, "W": result.W, "Z": result.Z, "snr": result.snr_clients, **history}
