"""What a cell of the comparison is: one algorithm, tuned on a problem and then run on it.

A cell is a problem, its number of clients, its coordinates, the participation and a contender. Its
parameter is tuned on splits of other seeds than those that are reported: each of 15 values runs
on both, and the best has the fewest rounds, of the worse one, to 0.01 % (then to 1 %, then the
smallest gap). A value is given up once it has taken more rounds than the best so far needed, and
no run takes more than `ROUNDS`. Then come the runs that are reported, and some with the parameter
ten times too small and too large.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from comparison_problems import COORDINATES, PROBLEMS, Posed, posed

from fedepm_fast import engine
from fedepm_fast._common.files import replacing
from fedepm_fast._common.parameters import Around, parameters
from fedepm_fast.algorithms import ALGORITHMS, Algorithm
from fedepm_fast.algorithms._averaging import Averaging
from fedepm_fast.algorithms._work import work_of
from fedepm_fast.participation import clients_per_round
from fedepm_fast.randomness import CounterRandomness
from fedepm_fast.stopping import DIVERGED, TargetRule

CLIENTS = (10, 100)
PARTICIPATION = (0.1, 0.5, 1.0)
#: Shares of the way from f(0) to the optimum that are left when a run is there.
SHARES = (1e-2, 1e-4)
ROUNDS = 200
VALUES = 15
SEEDS = tuple(range(20))
TUNING_SEEDS = (1000, 1001)
#: Of the runs with a parameter that is wrong by a factor 10: participation, seeds.
WRONG_PARTICIPATION, WRONG_SEEDS = 0.5, SEEDS[:5]
#: Local steps of an algorithm that takes a gradient in each.
LOCAL_STEPS = 5
#: FedProx's proximal weight as a share of the largest curvature of a client.
PROX_SHARE = 0.1
#: Part of a cell's name: what is above, and more below, cannot be told from its name.
PLAN = 3


@dataclass(frozen=True)
class Contender:
    """An algorithm of the comparison, and what of it is tuned."""

    name: str
    label: str
    algorithm: Algorithm
    tunes: str | None = None


@cache
def contenders() -> dict[str, Contender]:
    """Every algorithm of the package, without noise; of FedEPM the paper's parameters as well."""
    found: dict[str, Contender] = {}
    for name, cls in sorted(ALGORITHMS.items()):
        if not cls.__module__.startswith("fedepm_fast."):
            continue
        known = parameters(cls)
        given: dict[str, Any] = {"noise": "none"} if "noise" in known else {}
        if name == "fedepm":
            paper = cls(**given)
            found["paper"] = Contender("paper", "FedEPM (paper's parameters)", paper)
            found[name] = Contender(name, "FedEPM (tuned)", paper, "mu0")
            continue
        if "local_steps" in known:
            given["local_steps"] = LOCAL_STEPS
        tunes = next(iter(cls.tuned), None)
        if "rate_scale" in known:
            given["learning_rate"] = "lipschitz"  # what the scale is of, on any data
            tunes = "rate_scale"
        if name == "fedprox":  # whose step is tuned, as FedAvg's is
            given["prox_scale"] = PROX_SHARE
        found[name] = Contender(name, cls.label, cls(**given), tunes)
    return found


class Setting(NamedTuple):
    """All of a cell but the contender."""

    problem: str
    clients: int
    coordinates: str
    participation: float


def settings() -> Iterator[Setting]:
    """Every one, those of a problem, its clients and its coordinates side by side."""
    for name in PROBLEMS:
        for clients in CLIENTS:
            for coordinates in COORDINATES:
                for participation in PARTICIPATION:
                    yield Setting(name, clients, coordinates, participation)


# A run ----------------------------------------------------------------------------------------


class Course(NamedTuple):
    """How a run went."""

    gaps: Any
    """Shares of the way that were left, round by round."""
    local: Any
    """Seconds that clients worked in each round."""
    kept: Any
    """What clients kept at the end."""

    def to(self, share: float) -> float:
        """The first round in which no more than that share is left, or inf."""
        reached = self.gaps <= share
        return float(np.argmax(reached)) if reached.any() else math.inf

    @property
    def end(self) -> float:
        return float(self.gaps[-1]) if np.isfinite(self.gaps[-1]) else math.inf


def run(algorithm: Algorithm, on: Posed, seed: int, most: int = ROUNDS) -> Course:
    """A run until 0.01 % are left, or `most` rounds, or it diverges."""
    resolved = algorithm.resolve(on.problem)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = engine.simulate(
            resolved, on.problem, CounterRandomness(seed), TargetRule(on.below(SHARES[-1])),
            max_rounds=most, every_accuracy=False,
            compiled=engine.supports(resolved, on.problem),
        )  # fmt: skip
        values = np.asarray(outcome.history["objective"]) / on.problem.n_clients
        gaps = (values - on.best) / (on.start - on.best)
    if DIVERGED in outcome.reasons:
        gaps = np.append(gaps, np.inf)
    return Course(gaps, np.asarray(outcome.history["local_time"]), outcome.kept)


# Tuning ---------------------------------------------------------------------------------------


def centre(algorithm: Algorithm, name: str, on: Posed) -> float:
    """The value of a parameter that the curvature of the problem suggests, or the algorithm's."""
    sizes, k0 = on.problem.data.client_sizes, algorithm.local_steps
    if name == "mu0":  # a round moves the mean of all by about rho * k0 * d_i / mu0 gradients
        curvature = on.problem.mean_curvature() * float(sizes.mean())
        return 0.5 * algorithm.participation * k0 * curvature
    if name == "learning_rate" and isinstance(algorithm, Averaging):  # of steps gamma * d_i
        return 2 * math.sqrt(2 * k0) / float((on.problem.lipschitz() * sizes).max())
    return float(getattr(algorithm.resolve(on.problem), name))


def grid(algorithm: Algorithm, name: str, on: Posed) -> list[float]:
    """The values that are tried, those nearest to the centre first."""
    how = parameters(type(algorithm))[name].search
    below, above = how if isinstance(how, Around) else (30.0, 30.0)
    middle = centre(algorithm, name, on)
    values = np.geomspace(middle / below, middle * above, VALUES)
    order = sorted(range(VALUES), key=lambda k: (abs(k - VALUES // 2), k))
    return [float(values[k]) for k in order]


def rank(paths: list[Course]) -> tuple[float, float, float]:
    """Smaller is better."""
    few, many = (max(path.to(share) for path in paths) for share in SHARES)
    return many, few, max(path.end for path in paths)


def tune(contender: Contender, rho: float, problems: dict[int, Posed]) -> tuple[Algorithm, Any]:
    """The algorithm with its best value, and what was tried."""
    algorithm = dataclasses.replace(contender.algorithm, participation=rho)
    if contender.tunes is None:
        return algorithm, None
    best: tuple[Any, float] = ((math.inf,) * 3, math.nan)
    values = grid(algorithm, contender.tunes, problems[TUNING_SEEDS[0]])
    for value in values:
        tried = dataclasses.replace(algorithm, **{contender.tunes: value})
        most = int(min(best[0][0], ROUNDS))
        paths = []
        for seed in TUNING_SEEDS:
            paths.append(run(tried, problems[seed], seed, most))
            if rank(paths) > best[0]:  # the other one cannot mend that
                break
        best = min(best, (rank(paths), value))
    found = best[1] if best[1] == best[1] else values[0]
    at_end = found in (min(values), max(values))
    chosen = dataclasses.replace(algorithm, **{contender.tunes: found})
    return chosen, {"value": found, "centre": values[0], "at_end": at_end}


# A cell ---------------------------------------------------------------------------------------


def cell(setting: Setting, contender: Contender, problems: dict[int, Posed]) -> dict[str, Any]:
    """Everything that is known of a cell, as plain values."""
    algorithm, tuned = tune(contender, setting.participation, problems)
    runs = [of_run(algorithm, problems[seed], seed) for seed in SEEDS]
    wrong: dict[str, Any] = {}
    if tuned and setting.participation == WRONG_PARTICIPATION:
        for factor in (0.1, 10.0):
            value = factor * tuned["value"]
            other = dataclasses.replace(algorithm, **{str(contender.tunes): value})
            wrong[f"{factor:g}"] = [of_run(other, problems[s], s)["rounds"] for s in WRONG_SEEDS]
    return {**setting._asdict(), "contender": contender.name, "label": contender.label,
            "tunes": contender.tunes, "tuned": tuned, "runs": runs, "wrong": wrong}  # fmt: skip


def of_run(algorithm: Algorithm, on: Posed, seed: int) -> dict[str, Any]:
    """What is kept of a run: to each of `SHARES` what it took, None where it did not get there.

    Gradients and bytes are those of a client, the mean of all.
    """
    path, problem = run(algorithm, on, seed), on.problem
    m, resolved = problem.n_clients, algorithm.resolve(problem)
    m0 = clients_per_round(algorithm.participation, m)
    found: dict[str, Any] = {name: [] for name in ("rounds", "gradients", "seconds", "bytes")}
    for share in SHARES:
        rounds = path.to(share)
        if math.isinf(rounds):
            for values in found.values():
                values.append(None)
            continue
        sizes, n, kept = problem.data.client_sizes, problem.n_parameters, path.kept
        if "gradients" in kept and rounds < len(path.gaps) - 1:  # what had been counted by then
            kept = run(algorithm, on, seed, int(rounds)).kept
        work = work_of(resolved, sizes, n, m0 * rounds, kept)
        found["rounds"].append(int(rounds))
        found["gradients"].append(work.gradients / m)
        found["seconds"].append(float(path.local[: int(rounds)].sum()) / m)
        found["bytes"].append((work.bytes_up + work.bytes_down) / m)
    end = path.end
    return {**found, "end": end if math.isfinite(end) else None}


def file_of(setting: Setting, contender: Contender, folder: Path) -> Path:
    """Where a cell is kept. Another plan or other parameters are another cell."""
    known = [PLAN, setting, contender.algorithm.describe(), contender.tunes, SHARES, ROUNDS,
             VALUES, SEEDS, TUNING_SEEDS]  # fmt: skip
    key = hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()[:12]
    return folder / f"{contender.name}-{key}.json"


def missing(setting: Setting, folder: Path, names: tuple[str, ...]) -> list[Contender]:
    """The contenders of which the folder has no cell of this setting."""
    every = contenders()
    return [every[n] for n in names if not file_of(setting, every[n], folder).exists()]


def do(group: list[Setting], folder: Path, names: tuple[str, ...]) -> int:
    """The cells of settings that share their splits; how many there were to do."""
    todo = [(setting, who) for setting in group for who in missing(setting, folder, names)]
    if not todo:
        return 0
    one = group[0]
    problems = {
        seed: posed(one.problem, one.clients, one.coordinates, seed)
        for seed in (*TUNING_SEEDS, *SEEDS)
    }
    for setting, contender in todo:
        began = process_time()
        found = {**cell(setting, contender, problems), "processor": process_time() - began}
        with replacing(file_of(setting, contender, folder)) as temporary:
            Path(temporary).write_text(json.dumps(found, allow_nan=False), encoding="utf-8")
    return len(todo)


def load(folder: Path, names: tuple[str, ...], chosen: list[Setting]) -> list[dict[str, Any]]:
    """The cells of these settings that the folder has."""
    files = [file_of(setting, contenders()[n], folder) for setting in chosen for n in names]
    return [_read(file) for file in files if file.exists()]


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SystemExit(f"{file} is damaged, remove it to run its cell again: {error}") from None
    return found
