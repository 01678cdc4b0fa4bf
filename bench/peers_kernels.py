"""ENS, local steps and noise beside their peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from peers_measure import Part, Row, medians, often

DATA: dict[str, Callable[[Any, tuple[int, int]], np.ndarray]] = {
    "cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "lognormal(3)": lambda rng, shape: rng.lognormal(0, 3, shape),
    "bimodal": lambda rng, shape: rng.normal(size=shape) + 10 * rng.integers(0, 2, shape),
    "ties": lambda rng, shape: rng.integers(0, 4, shape).astype(float),
}
SPREADS = (1e-3, 0.5, 1e3)  # c over the spread: much smaller, alike, much larger
LARGE = (100, 200_000)
NAME = f"ens {LARGE[0]} x {LARGE[1]:,}"


def _uploads(shape: tuple[int, int] = LARGE) -> tuple[np.ndarray, np.ndarray]:
    """Normal numbers, and a place for the result."""
    return np.random.default_rng(0).normal(size=shape), np.empty(shape[1])


def _aggregation(shape: tuple[int, int], goal: float, beyond: float) -> Iterator[Row]:
    from fedepm_fast.kernels.ens import ens

    Z, out = _uploads(shape)
    single, out32 = Z.astype(np.float32), np.empty(shape[1], np.float32)
    works = [lambda: Z.mean(axis=0)]
    works += [lambda c=c: ens(Z, c, out=out) for c in SPREADS]
    works += [lambda c=c: ens(single, c, out=out32) for c in SPREADS]
    mean, *t = medians(works)
    name = f"ens {shape[0]} x {shape[1]:,}"
    note = "c " + ", ".join(f"{c:g}: {x / mean:.2f}" for c, x in zip(SPREADS, t[:3], strict=True))
    yield Row(name, "np.mean(axis=0)", max(t[:3]) / mean, f"<= {goal}", str(beyond), note)
    worst = max(b / a for a, b in zip(t[:3], t[3:], strict=True))
    yield Row(f"{name} float32", "its float64", worst, "<= 0.65", "0.5")


def _threads() -> Iterator[Row]:
    from fedepm_fast.kernels.ens import ens

    Z, out = _uploads()
    works = [lambda: Z.mean(axis=0), lambda: ens(Z, 0.5, out=out)]
    mean, one, two = medians([*works, lambda: ens(Z, 0.5, out=out, threads=2)])
    note = f"one thread {one / mean:.2f}"
    yield Row(f"{NAME}, 2 threads", "np.mean(axis=0)", two / mean, "<= 1.4", "1.1", note)


def _medians_and_sorts() -> Iterator[Row]:
    from fedepm_fast.kernels.ens import ens

    Z, out = _uploads()
    ours, median, sort = medians(
        [
            lambda: ens(Z, 1e3, out=out),
            lambda: np.median(Z, axis=0),
            lambda: np.sort(Z, axis=0),
        ],
        least=5,
    )
    yield Row(NAME, "np.median, times faster", median / ours, ">= 15", "25")
    yield Row(NAME, "bare np.sort, times faster", sort / ours, ">= 4", "6")


def _torch_median() -> Iterator[Row]:
    try:
        import torch
    except ImportError:
        return
    from fedepm_fast.kernels.ens import ens

    torch.set_num_threads(1)
    Z, out = _uploads()
    T = torch.from_numpy(Z)
    ours, theirs = medians([lambda: ens(Z, 1e3, out=out), lambda: T.median(dim=0)], least=3)
    yield Row(NAME, "torch.median, times faster", theirs / ours, ">= 15", "25")


def _small() -> Iterator[Row]:
    from fedepm_fast.kernels.ens import ens

    Z, _ = _uploads((100, 14))
    mean, ours = medians([often(lambda: np.mean(Z, axis=0), 500), often(lambda: ens(Z, 0.5), 500)])
    yield Row("ens 100 x 14", "np.mean(axis=0)", ours / mean, "<= 0.6", "0.4")


def _hard_data() -> Iterator[Row]:
    from fedepm_fast.kernels.ens import ens

    rng, worst, note = np.random.default_rng(0), 0.0, ""
    out = np.empty(LARGE[1])
    for name, make in DATA.items():
        Z = make(rng, LARGE)
        c = 1e3 * float(np.median(np.abs(Z[:, :1000])))
        mean, ours = medians([lambda Z=Z: Z.mean(axis=0), lambda Z=Z, c=c: ens(Z, c, out=out)])
        note += f"{name} {ours / mean:.2f}  "
        worst = max(worst, ours / mean)
    yield Row(f"{NAME}, hard data", "np.mean(axis=0)", worst, "<= 5", "3", note)


def _local_steps(s: int, n: int, goal: int, beyond: str) -> Iterator[Row]:
    from fedepm_fast import FedEPM
    from fedepm_fast.kernels.local_steps import fedepm_local_steps, fedepm_local_steps_raw
    from fedepm_fast.reference import fedepm_iterates

    algorithm = FedEPM(local_steps=12, lam=1e-5, eta=2e-5)
    rng = np.random.default_rng(0)
    W, G = rng.normal(size=(2, s, n))
    x, step, out = rng.normal(size=n), np.full(s, 1 / 450), np.empty((s, n))
    parameters = {
        "lam": 1e-5, "eta": 2e-5, "mu0": 0.05, "c": 1e-8, "alpha": 1.001, "local_steps": 12,
        "first_iteration": 0,
    }  # fmt: skip

    def by_numpy() -> None:
        # Small problems whole, large ones client by client, which stays in the cache.
        for part in [slice(0, s)] if n < 1000 else [slice(i, i + 1) for i in range(s)]:
            for _ in fedepm_iterates(algorithm, W[part], x, G[part], step[part], 0):
                pass

    def checked() -> None:
        fedepm_local_steps(W, x, G, step, out=out, **parameters)

    singles, out32 = [a.astype(np.float32) for a in (W, x, G, step)], np.empty((s, n), np.float32)

    def single() -> None:
        fedepm_local_steps(*singles, out=out32, **parameters)

    rows, mu = np.arange(s), np.empty(s)

    def compiled() -> None:
        fedepm_local_steps_raw(W, x, G, step, rows, *parameters.values(), out, mu)

    times = 50 if n < 1000 else 1
    ours, ours32, theirs, inner = medians(
        [often(work, times) for work in (checked, single, by_numpy, compiled)], least=3
    )
    name = f"local steps k0 = 12, {s} x {n:,}"
    note = f"{1e6 * inner / times:.1f} us; checked call {1e6 * ours / times:.1f} us, "
    note += f"{theirs / ours:.1f} times"
    yield Row(name, "NumPy, times faster", theirs / inner, f">= {goal}", beyond, note)
    if n > 1000:
        yield Row(f"{name}, float32", "its float64", ours32 / ours, "<= 0.65", "0.5")


def _noise() -> Iterator[Row]:
    from fedepm_fast.kernels.noise import laplace
    from fedepm_fast.randomness import NOISE

    rng, clients = np.random.default_rng(0), np.arange(100)
    out, out32 = np.empty((100, 200_000)), np.empty((100, 200_000), np.float32)
    ours, ours32, theirs = medians(
        [
            lambda: laplace(0, 0, NOISE, 0, clients, 200_000, out=out),
            lambda: laplace(0, 0, NOISE, 0, clients, 200_000, dtype=np.float32, out=out32),
            lambda: rng.laplace(size=(100, 200_000)),
        ],
        least=3,
    )
    faster = "Generator.laplace, times faster"
    yield Row("Laplace noise 100 x 200,000", faster, theirs / ours, ">= 8", "12")
    yield Row("Laplace noise, float32", "its float64", ours32 / ours, "<= 0.65", "0.5")


PARTS: dict[str, Part] = {
    "ens 10": partial(_aggregation, (10, 1_000_000), 0.9, 0.7),
    "ens 100": partial(_aggregation, LARGE, 2.75, 1.8),
    "ens on 2 threads": _threads,
    "ens beside medians": _medians_and_sorts,
    "ens beside torch": _torch_median,
    "ens 1000": partial(_aggregation, (1000, 20_000), 2.1, 1.6),
    "ens, small": _small,
    "ens, hard data": _hard_data,
    "local steps, small": partial(_local_steps, 100, 14, 40, "60"),
    "local steps, large": partial(_local_steps, 100, 200_000, 6, "8"),
    "noise": _noise,
}
