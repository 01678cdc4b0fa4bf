"""The server's ENS under Laplace noise, by its c: of docs/privacy_why.md.

Left of the figure what theory says, for many clients; in the middle simulated noise, for few; right
Adult, by the plan's settings, with common random numbers for every c, beside what the plan says of
the noise. `liars` has a share of the clients send something else.

    python bench/private_ens.py measure ens.json --trials 20
    python bench/private_ens.py draw ens.json docs/images/private-ens.png
    python bench/private_ens.py liars --trials 20
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib import style
from private import LOGISTIC, Trial, dealt, judged
from private_report import DARK
from scipy.special import expit

from fedepm_fast import datasets, plots
from fedepm_fast.data import standardised
from fedepm_fast.kernels.ens import ens
from fedepm_fast.mechanisms import clip_rows
from fedepm_fast.privacy import (
    LaplaceMechanism,
    PrivatePlan,
    ens_variance,
    noise_l1_for,
    noise_left,
    plan,
)

Array = np.ndarray

#: c in scales of the noise; the first is the mean, the last as good as the median.
GRID = (0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 4.0, 8.0, 16.0, 1e4)
MEAN, MEDIAN = 0.15, 32.0  # where they are drawn
CASES = ((0.25, 100), (0.5, 100), (1.0, 100), (1.0, 1000), (1.0, 20))
BLUE, ORANGE, GREEN, VERMILION, PINK = "#3B8EC2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PINK)


def adult(m: int, seed: int) -> Trial:
    return dealt(standardised(datasets.adult(clients=1)), m, seed, LOGISTIC)


def planned(trial: Trial, epsilon: float) -> PrivatePlan:
    data = trial.data
    return plan(epsilon, data.client_sizes, data.n_features, delta=0.0, objective=LOGISTIC)


def with_c(made: PrivatePlan, c: float) -> PrivatePlan:
    return dataclasses.replace(made, algorithm=dataclasses.replace(made.algorithm, noise_l1=c))


def measure(path: Path, trials: int) -> None:
    """Mean losses and accuracies of every case, trial and c, and what the plan says of the noise in
    the mean; cases in the file stay as they are."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    for epsilon, m in CASES[len(found) :]:
        losses = []
        for seed in range(trials):
            trial = adult(m, seed)
            made = planned(trial, epsilon)
            runs = [
                with_c(made, c).run(
                    trial.data, seed=2**40 + seed, public_scaling=True, every_accuracy=False
                )
                for c in GRID
            ]
            losses.append([judged(trial, run.x) for run in runs])
        loss = np.array([[one["loss"] for one in row] for row in losses])
        accuracy = np.array([[one["accuracy"] for one in row] for row in losses])
        sizes = made.client_sizes
        found.append({
            "epsilon": epsilon, "m": m, "loss": loss.tolist(), "accuracy": accuracy.tolist(),
            "noise": made.rise / noise_left(made.mechanism, sizes, 1 / sizes) ** 2,
        })  # fmt: skip
        path.write_text(json.dumps(found))
        print(f"epsilon {epsilon:g}, {m} clients, {made.rounds} rounds, {made.settings}")
        for c, f, a in zip(GRID, loss.T, accuracy.T, strict=True):
            less = loss[:, 0] - f
            print(
                f"  c {c:7g}: loss mean {f.mean():.4f} median {median(f):.4f}, below that of the "
                f"mean by {less.mean():.4f} +- {less.std() / trials**0.5:.4f}, in "
                f"{(less > 0).sum()} of {trials}; accuracy median {median(a):.4f} "
                f"worst {a.min():.4f}", flush=True,
            )  # fmt: skip


def draw(found: list[dict[str, Any]], path: Path) -> None:
    figure, grid = plots.new_grid(1, 3, 10.5, 3.8)
    theory(grid[0, 0])
    few(grid[0, 1])
    measured(grid[0, 2], found)
    for ax in grid.flat:
        ax.set_xscale("log")
        ax.set_xticks([MEAN, 0.5, 1, 2.5, 8, MEDIAN], ["mean", "0.5", "1", "2.5", "8", "median"])
        ax.minorticks_off()
        ax.set_xlabel("c in scales of the noise")
        ax.legend(fontsize=8, frameon=False, loc="lower right" if ax is grid[0, 2] else "best")
    figure.savefig(path, dpi=110)


def at(c: Any) -> Array:
    """Where c is drawn: the mean and the median have places at the ends."""
    return np.clip(c, MEAN, MEDIAN)


def theory(ax: Any) -> None:
    every = np.geomspace(1e-6, 1e5, 2000)
    c = np.r_[0.0, np.geomspace(0.25, MEDIAN / 2, 200), 1e4]
    for spread, colour in zip((0.0, 0.3, 1.0, 2.0), COLOURS, strict=False):
        best = ens_variance(every, spread).min()
        loss = 100 * (ens_variance(c, spread) / best - 1)
        ax.plot(at(c), loss, color=colour, label=f"clients' spread {spread:g}")
    ax.axhline(8.2, linestyle=":", linewidth=1, color="0.5")
    ax.set_ylim(-2, 60)
    ax.set_ylabel("variance above the least, %")
    ax.set_title("many clients, by theory", fontsize=10)


@functools.cache
def left(m: int, c: float) -> float:
    """Variance of noise alone in ENS, over that in the mean."""
    noise = np.random.default_rng(m).laplace(size=(m, 2_000_000 // m + 20_000))
    return float((ens(noise, c) ** 2).mean() / (noise.mean(axis=0) ** 2).mean())


def few(ax: Any) -> None:
    for m, colour in zip((3, 5, 20, 100, 1000), COLOURS, strict=True):
        ax.plot(at(GRID), [left(m, c) for c in GRID], color=colour, label=f"{m} clients")
        rule = noise_l1_for(LaplaceMechanism(total_epsilon=1.0), np.ones(m))
        ax.plot(rule, left(m, rule), "o", color=colour, markersize=5)
    ax.set_ylim(0.5, 1.05)
    ax.set_ylabel("variance over that of the mean")
    ax.set_title("noise alone; the dots are the rule's c", fontsize=10)


def measured(ax: Any, found: list[dict[str, Any]]) -> None:
    for case, colour in zip(found, COLOURS, strict=False):
        epsilon, m = case["epsilon"], case["m"]
        loss = np.array(case["loss"]).mean(axis=0)
        label = f"epsilon {epsilon:g}, m = {m}"
        ax.plot(at(GRID), loss - loss[0], "o", color=colour, markersize=4, label=label)
        less = [case["noise"] * (left(m, c) - 1) for c in GRID]
        ax.plot(at(GRID), less, color=colour, linewidth=1)
    ax.axhline(0, linestyle=":", linewidth=1, color="0.5")
    ax.set_ylim(bottom=1.55 * ax.get_ylim()[0])  # room for the legend
    ax.set_ylabel("mean loss, less that with the mean")
    ax.set_title("Adult; lines: theory, by the plan", fontsize=10)


# Clients that lie -----------------------------------------------------------------------

Attack = Callable[[Array, Array, float, Array], Array]
ATTACKS: dict[str, Attack] = {
    "moves reversed, ten times as long": lambda x, z, b, uphill: x - 10 * (z - x),
    "all at one point, 1,000 scales away": lambda x, z, b, uphill: x + 1000 * b * np.ones_like(z),
    "3 scales from x, uphill": lambda x, z, b, uphill: x + 3 * b * np.sign(uphill) + 0 * z,
}


def attacked(
    trial: Trial, made: PrivatePlan, c: float, share: float, attack: Attack, seed: int
) -> dict[str, float]:
    """The plan's rounds in NumPy, where a share of the clients send what `attack` says.

    They know x, the noise's scale, which way the loss rises at x, and what they would have sent.
    """
    data, clip, eta = trial.data, made.mechanism.clip, made.algorithm.eta
    assert clip is not None and eta is not None and not made.settings.moments
    rng = np.random.default_rng(seed)
    A, y, m = np.asarray(data.features), data.labels, data.n_clients
    clipped = np.asarray(clip_rows(A, clip, 1))
    clients = [slice(*ends) for ends in zip(data.offsets[:-1], data.offsets[1:], strict=True)]
    z1 = made.mechanism.noise_multiplier(made.mechanism.total_epsilon or 0.0, made.rounds)
    scale = z1 * 2 * clip / (data.client_sizes * eta)
    weights, b = 1 / scale, float(len(scale) / (1 / scale).sum())
    liars = rng.permutation(m)[: round(share * m)]
    x, points = np.zeros(A.shape[1]), []
    for _ in range(made.rounds):
        G = np.array([clipped[i].T @ (expit(A[i] @ x) - y[i]) / len(y[i]) for i in clients])
        Z = x - G / eta + scale[:, None] * rng.laplace(size=G.shape)
        Z[liars] = attack(x, Z[liars], b, G.mean(axis=0))
        x = ens(Z, c * b, weights=weights)
        points.append(x)
    return judged(trial, made.average(points))


def liars(trials: int, epsilon: float) -> None:
    """Median accuracy over the trials by attack, share of the clients and c."""
    splits = [adult(100, seed) for seed in range(trials)]
    made = planned(splits[0], epsilon)
    servers = {"mean": 0.0, "rule": made.algorithm.noise_l1, "10": 10.0, "median": 1e4}
    print(f"Adult, 100 clients, pure epsilon {epsilon:g}, {made.rounds} rounds")
    print("| " + " | ".join(["clients that lie", *servers]) + " |")
    print("|" + "---|" * (len(servers) + 1))
    cases = [("none", 0.0), *((name, share) for name in ATTACKS for share in (0.05, 0.1, 0.2))]
    for name, share in cases:
        cells = []
        for c in servers.values():
            attack = ATTACKS.get(name, next(iter(ATTACKS.values())))
            got = [
                attacked(trial, planned(trial, epsilon), c, share, attack, seed)["accuracy"]
                for seed, trial in enumerate(splits)
            ]
            cells.append(f"{median(got):.3f}")
        print(f"| {share:.0%}: {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("results", type=Path)
    drawing = commands.add_parser("draw")
    drawing.add_argument("results", type=Path)
    drawing.add_argument("figure", type=Path)
    lying = commands.add_parser("liars")
    lying.add_argument("--epsilon", type=float, default=0.5)
    for command in (measuring, lying):
        command.add_argument("--trials", type=int, default=20)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.command == "measure":
        measure(arguments.results, arguments.trials)
    elif arguments.command == "liars":
        liars(arguments.trials, arguments.epsilon)
    else:
        found = json.loads(arguments.results.read_text())
        draw(found, arguments.figure)
        with style.context(str(DARK)):
            draw(found, arguments.figure.with_stem(f"{arguments.figure.stem}-dark"))


if __name__ == "__main__":
    main()
