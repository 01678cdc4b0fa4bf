"""The figures of the documentation, drawn by the package itself, for light and dark pages.

``python docs/figures.py [FOLDER]`` writes ``NAME-light.svg`` and ``NAME-dark.svg`` of each; the
documentation's build does so too.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from fedepm_fast import (
    FedEPM,
    FederatedData,
    LeastSquares,
    Problem,
    SFedAvg,
    SFedProx,
    datasets,
    evaluate,
    fit,
    make_problem,
    participation,
    plots,
    randomness,
    reference,
    run,
    theory,
)
from fedepm_fast.algorithms import Algorithm
from fedepm_fast.preparation import Preparation, PreparationWarning, read_table
from fedepm_fast.result import DivergenceWarning

HERE = Path(__file__).parent

# Text and axes, then colours that can be told apart on white and on near-black.
LIGHT = SimpleNamespace(
    ink="#323232", soft="#8a8a8a", blue="#0072B2", orange="#C77700", green="#00805C", red="#C0392B"
)
DARK = SimpleNamespace(
    ink="#d8dee4", soft="#8b949e", blue="#56B4E9", orange="#F0B64A", green="#3CC9A0", red="#FF7F6E"
)


@functools.cache
def over_optimum(algorithm: Algorithm, rounds: int) -> Any:
    """f over its optimum, round by round, on Adult with 50 clients."""
    data = datasets.adult(clients=50, seed=0)
    best = make_problem(algorithm, data).optimum(method="newton").value
    with warnings.catch_warnings():
        # A run that ends above its start is drawn as it is, and its caption says so.
        warnings.simplefilter("ignore", DivergenceWarning)
        # NumPy takes seconds; to compile the engine for this alone would take half a minute.
        result = run(algorithm, data, rounds=rounds, every_accuracy=False, engine="reference")
    return result.history["objective"] / best


def exact_penalty(colour: Any) -> Figure:
    """The clients' disagreement against the weight of the penalty, absolute and squared."""
    rows = [([[1.0]], [-1.0]), ([[np.sqrt(2)]], [np.sqrt(2)])]  # (w + 1)^2/2 and (w - 1)^2
    problem = Problem(FederatedData.from_clients(rows), LeastSquares(beta=0.0))
    optimum = np.array([1 / 3])
    threshold = theory.lam_star(problem, optimum)

    def solve(lam: Any, eta: Any) -> tuple[Any, Any]:
        """Both clients' points of the penalty model: pulled together with the same force."""
        force = np.minimum((lam + eta) / (1 + 0.75 * eta), threshold)
        return -1 + force, 1 - force / 2

    weight = np.linspace(0, 3, 301)
    curves = {"absolute, lam": solve(weight, 1e-9), "squared, eta": solve(0.0, weight)}
    for lam in (0.3, 1.0):  # the closed form solves the penalty model
        W = np.array(solve(lam, 0.5))[:, None]
        x = W.mean(axis=0)
        assert theory.penalty_residual(problem, x, W, lam=lam, eta=0.5) < 1e-12

    figure, axes = plots.new_grid(1, 2, 6.4, 2.9)
    for (label, (low, high)), shade, line in zip(
        curves.items(), (colour.blue, colour.orange), ("-", "--"), strict=True
    ):
        axes[0, 0].plot(weight, high - low, line, color=shade, label=label)
        axes[0, 1].plot(weight, low, line, color=shade)
        axes[0, 1].plot(weight, high, line, color=shade)
    for ax in axes.flat:
        ax.axvline(threshold, color=colour.soft, linestyle=":", linewidth=1)
        ax.set_xlabel("weight of the penalty")
    axes[0, 0].set_ylabel("distance between the clients")
    axes[0, 0].annotate("lam*", (threshold, 0.1), xytext=(5, 0), textcoords="offset points")
    axes[0, 0].legend(frameon=False, loc="upper right")
    axes[0, 1].set_ylabel("the two clients' points")
    axes[0, 1].axhline(optimum[0], color=colour.soft, linewidth=1, zorder=0)
    words = dict(xytext=(0, -14), textcoords="offset points", ha="right")
    axes[0, 1].annotate("optimum of the sum", (3, optimum[0]), **words)
    return figure


UPLOADS = np.array([0.0, 0.2, 0.3, 0.5, 1.0, 1.6, 5.0])
MEAN, MEDIAN = UPLOADS.mean(), np.median(UPLOADS)


def ens_objective(colour: Any) -> Figure:
    """What ENS minimises in one coordinate: both parts, their sum, and its lowest point."""
    figure, axes = plots.new_grid(1, 3, 6.4, 2.9, sharex=True)
    w = np.linspace(-0.5, 5.3, 1161)
    gaps = w[:, None] - UPLOADS
    panels = (("c = 0: the mean", 0.0), ("c = 1", 1.0), ("c = 6: the median", 6.0))
    for ax, (title, c) in zip(
        axes.flat,
        panels,
        strict=True,
    ):
        absolute = c * np.abs(gaps).sum(axis=1)
        squared = (gaps**2).sum(axis=1) / 2
        total = absolute + squared
        best = float(reference.ens(UPLOADS[:, None], c)[0])
        assert abs(best - w[np.argmin(total)]) < 0.01
        if c:
            ax.plot(w, absolute, color=colour.orange, linestyle="--", label="absolute")
        ax.plot(w, squared, color=colour.green, linestyle="-.", label="squared")
        ax.plot(w, total, color=colour.blue, label="sum")
        ax.plot(UPLOADS, np.zeros(len(UPLOADS)), "|", color=colour.ink, markersize=9, clip_on=False)
        ax.plot([best], [total.min()], "o", color=colour.red, zorder=3)
        ax.axvline(best, color=colour.red, linewidth=1, linestyle=":")
        ax.set_title(f"{title}\nw* = {best:.3g}", fontsize=10)
        ax.set_ylim(0, None)
        ax.set_yticks([])
        ax.set_xlabel("w")
    axes[0, 1].legend(frameon=False, fontsize=8, loc="upper center")
    return figure


def ens_path(colour: Any) -> Figure:
    """The solution of ENS as c grows: from the mean to the median, resting at uploads."""
    figure, axes = plots.new_grid(1, 1, 6.4, 2.9)
    ax = axes[0, 0]
    c = np.linspace(0, 6, 1201)
    path = [float(reference.ens(UPLOADS[:, None], value)[0]) for value in c]
    for z in UPLOADS[:-1]:
        ax.axhline(z, color=colour.soft, linewidth=0.8, linestyle=":")
    for s in range(len(UPLOADS) + 1):
        u = MEAN + c * (2 * s / len(UPLOADS) - 1)
        inside = np.flatnonzero((u > -0.1) & (u < 2.2))
        ax.plot(c[inside], u[inside], color=colour.green, linewidth=0.9, linestyle="--")
        end = c[inside[-1]], u[inside[-1]]
        ax.annotate(f"$u_{s}$", end, xytext=(2, 1), textcoords="offset points", color=colour.green)
    ax.plot(c, path, color=colour.blue, linewidth=2.4)
    ax.annotate("median", (6, MEDIAN), xytext=(-4, 5), textcoords="offset points", ha="right")
    ax.set_xlabel("c = lam / eta")
    ax.set_ylabel("w, and the uploads (dotted)")
    ax.set_xlim(0, 6.4)
    ax.set_ylim(-0.15, 2.3)
    return figure


def local_steps(colour: Any) -> Figure:
    """One coordinate of a client's distance to the server during the local steps of a round."""
    algorithm = FedEPM(local_steps=12, lam=0.5, eta=1.0, mu0=5.0, c=0.0, alpha=1.001, step="1")
    gradients = np.array([-1.5, -0.8, 0.3, 1.2])
    W, x = np.full((4, 1), 0.6), np.zeros(1)
    iterates = reference.fedepm_iterates(algorithm, W, x, gradients[:, None], np.ones(4), 0)
    path = np.array([W[:, 0], *(w[:, 0] for w, _ in iterates)])
    goal = -np.sign(gradients) * np.maximum(np.abs(gradients) - 0.5, 0)

    figure, axes = plots.new_grid(1, 1, 6.4, 3.0)
    ax = axes[0, 0]
    shades = (colour.blue, colour.green, colour.red, colour.orange)
    for i, (shade, marker) in enumerate(zip(shades, "o^sD", strict=True)):
        ax.axhline(goal[i], color=shade, linewidth=1, linestyle=":")
        ax.plot(path[:, i], color=shade, marker=marker, markersize=4, label=f"g = {gradients[i]:g}")
    ax.set_xlabel("local step")
    ax.set_ylabel("w_i - x, one coordinate")
    ax.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.16))
    return figure


def gradients(colour: Any) -> Figure:
    """f/m of the three algorithms against rounds and against gradients a client computes."""
    kinds = (
        (FedEPM(), "FedEPM", 1, colour.blue, "-"),
        (SFedProx(), "SFedProx", 36, colour.orange, "--"),
        (SFedAvg(), "SFedAvg", 12, colour.green, "-."),
    )
    figure, axes = plots.new_grid(1, 2, 6.4, 3.0, sharey=True)
    for algorithm, name, each, shade, line in kinds:
        above = over_optimum(algorithm, rounds=30) - 1
        tau = np.arange(len(above))
        axes[0, 0].plot(tau, above, line, color=shade, label=name)
        axes[0, 1].plot(np.maximum(tau * each, 0.5), above, line, color=shade)
    axes[0, 0].set_ylabel("f above its optimum, relative")
    axes[0, 0].set_xlabel("communication rounds")
    axes[0, 0].legend(frameon=False)
    axes[0, 1].set_xlabel("gradients of a client that takes part")
    axes[0, 1].set_xscale("log")
    for ax in axes.flat:
        ax.set_yscale("log")
    return figure


def selections(colour: Any) -> Figure:
    """Who takes part in which round, and how soon everybody has."""
    m, rounds, share = 20, 24, 0.3
    source = randomness.CounterRandomness(seed=4)
    count = participation.clients_per_round(share, m)
    figure, axes = plots.new_grid(1, 2, 6.4, 3.0)
    chance, curve = axes[0]
    for tau in range(rounds):
        chosen = participation.select(source, tau, m, count)
        chance.scatter([tau] * count, chosen, marker="s", s=14, color=colour.blue)
    chance.grid(False)
    chance.set_xlabel("round")
    chance.set_ylabel("client")
    chance.set_title("drawn uniformly, rho = 0.3", fontsize=10)
    s = np.arange(1, 31)
    for rho, shade, line in ((0.2, colour.orange, "--"), (0.5, colour.blue, "-")):
        one = [theory.client_coverage_probability(rho, m, int(k)) for k in s]
        everyone = [theory.coverage_probability(rho, m, int(k)) for k in s]
        curve.plot(s, one, line, color=shade, linewidth=1, label=f"one client, rho = {rho}")
        curve.plot(s, everyone, line, color=shade, linewidth=2.4, label=f"all 20, rho = {rho}")
    curve.set_xlabel("rounds")
    curve.set_title("probability to have taken part", fontsize=10)
    curve.legend(frameon=False, fontsize=8)
    return figure


def presets(colour: Any) -> Figure:
    """The text's noise as printed, standardised, and none: f/m of its own objective."""
    figure, axes = plots.new_grid(1, 1, 6.4, 3.0)
    ax = axes[0, 0]
    for noise, label, shade, line in (
        ("laplace", "i.i.d. Laplace, as printed", colour.orange, "--"),
        ("standardized", "standardised, the program's", colour.blue, "-"),
        ("none", "none", colour.green, "-."),
    ):
        above = over_optimum(FedEPM(preset="text", noise=noise), rounds=250) - 1
        ax.plot(above, line, color=shade, label=label)
    ax.set_yscale("log")
    ax.set_xlabel("communication rounds")
    ax.set_ylabel("f above its optimum, relative")
    ax.legend(frameon=False)
    return figure


def hospitals(colour: Any) -> Figure:
    """The tutorial's model, and its calibration a year later."""
    how: dict[str, Any] = {"decimal": ",", "na": ["n. d.", "-99"]}
    first, later = (read_table(HERE / "hospitals" / f"{year}.csv", **how) for year in (2023, 2024))
    choices = Preparation(drop=["patient", "admitted"], ignore_case=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PreparationWarning)  # of the ward that is new
        model = fit(first, "outcome", "hospital", preparation=choices, holdout=0.25, seed=1)
        return model.plot(evaluate(model, later))


FIGURES: tuple[Callable[[Any], Figure], ...] = (
    exact_penalty,
    ens_objective,
    ens_path,
    local_steps,
    gradients,
    selections,
    presets,
    hospitals,
)


def write(draw: Callable[[Any], Figure], folder: Path) -> None:
    """Write a figure for light and for dark pages."""
    for name, colour in (("light", LIGHT), ("dark", DARK)):
        inked = ("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor")
        inked += ("xtick.color", "ytick.color", "legend.labelcolor")
        with matplotlib.rc_context(
            {**dict.fromkeys(inked, colour.ink), "savefig.transparent": True}
        ):
            plots.save(draw(colour), folder / f"{draw.__name__}-{name}.svg")


def main(folder: Path) -> None:
    """Write all figures into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for draw in FIGURES:
        write(draw, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "_figures")
