"""Runs in words: what was run and came of it, and what to change where it went wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._common.text import counted, pairs

if TYPE_CHECKING:
    from .algorithms import Algorithm
    from .objectives import Problem
    from .result import Result


def in_words(result: Result, *, brief: bool = False) -> str:
    """What printing a result says; what is wrong with its end in `brief` where its warning
    follows."""
    return "\n".join([title_of(result), *pairs(facts_of(result, brief=brief), margin="  ")])


def title_of(result: Result) -> str:
    """What ran, on what."""
    from .algorithms import label_of

    classes = result.objective.get("classes", 1)
    size = counted(len(result.x) // classes, "feature") + (f", {classes} classes" * (classes > 1))
    clients = counted(result.n_clients, "client")
    return f"{label_of(result.algorithm['name'])} on {clients}, {size}"


def facts_of(result: Result, *, brief: bool = False) -> list[tuple[str, str]]:
    """Rows of what was run, and of what came of it."""
    a, o, accuracy = result.algorithm, result.objective, result.accuracy
    seed = "given from outside" if result.seed is None else str(result.seed)
    if result.trial:
        seed += f", trial {result.trial}"
    if "privacy" in result.settings and not result.guarantee.startswith("none"):
        seed += " (to be kept secret: it tells the noise)"
    return [
        ("data", f"{result.data['description']}"),
        ("run", f"{manner_of(a)}, seed {seed}"),
        ("objective", objective_text(o, result.data)),
        ("f(x)/m", number(result.mean_objective)),
        ("communication rounds", _rounds(result)),
        ("total time", f"{result.total_time:.3f} s"),
        ("local time per round", f"{1e3 * result.local_time:.3g} ms"),
        ("accuracy", "-" if accuracy is None else f"{accuracy:.4f} ({result.beside})"),
        ("SNR (log10)", snr_text(result.snr)),
        ("noise", _noise(a)),
        ("privacy guarantee", result.guarantee),
        ("stopped", why_stopped(result, verdict_on(result) if brief else result.warning)),
    ]


def why_stopped(result: Result, end: str) -> str:
    """Why a run stopped, and what is wrong with where it did, in words."""
    from .stopping import DIVERGED, REASONS

    why = [REASONS.get(name, name) for name in result.reasons if name != DIVERGED]
    return "; ".join(dict.fromkeys(text for text in (*why, end) if text))


def verdict_on(result: Result) -> str:
    """What is wrong with where a run ended, in a few words; empty if nothing is."""
    from .stopping import DIVERGED, PRECISION, REASONS

    if DIVERGED in result.reasons:
        return f"the run diverged after round {result.rounds}"
    if result.ended_above_start:
        return "the run ended above its start"
    if result.ended_above_best:
        return "the run ended far above its best"
    if result.swings:
        return "the run swings"
    return REASONS[PRECISION] if PRECISION in result.reasons else ""


def warning_of(result: Result) -> str:
    """What is wrong with where a run ended, and what to change; empty if nothing is."""
    from .stopping import DIVERGED

    verdict, f = verdict_on(result), f"f(x)/m = {result.mean_objective:.4g}"
    if not verdict.startswith("the run "):
        return verdict
    (start, best), m = result.start_and_best, result.n_clients
    course = f"{start / m:.4g} at the start, where it was lowest"
    if best < start:
        # Rounds are counted from 0, and the first is not the start.
        which = f" (round {result.best_round})" if result.best_round else ", after its first round"
        course = f"{start / m:.4g} at the start, {best / m:.4g} at its best{which}"
    advice = result.settings.get("advice", "")
    if DIVERGED in result.reasons:
        return (
            f"{verdict}, {f}, {course}: the parameters do not fit the data or each other; {advice}"
        )
    if not (result.ended_above_start or result.ended_above_best):
        high = result.history["objective"][result.rounds // 2 :].max() / m
        verdict += f", up to f(x)/m = {high:.4g} in the second half of its rounds"
    return f"{verdict}: {f} after round {result.rounds}, {course}; {advice}"


def _rounds(result: Result) -> str:
    if "local_steps" not in result.algorithm:
        return str(result.rounds)
    unit = "epochs" if "batch_size" in result.algorithm else "iterations"
    return f"{result.rounds} ({result.iterations} local {unit})"


def manner_of(a: Mapping[str, Any]) -> str:
    """What kind of run it was, of a described algorithm."""
    if "coordinates" in a:
        kind = f"eta the curvature, {a['coordinates']} coordinates"
    elif "local_steps" not in a:
        kind = "Hessians of all clients at the server"
    else:
        kind = f"{a['preset']} preset, {_local_work(a)}"
    return f"{kind}, participation {a['participation']:g}"


def _local_work(a: Mapping[str, Any]) -> str:
    """What a described algorithm does at a client, with the parameters that decide it."""
    if "batch_size" in a:
        rows = "of all rows" if a["batch_size"] is None else f"of batches of {a['batch_size']} rows"
        work = f"local epochs {a['local_steps']} {rows}"
    else:
        work = f"local steps {a['local_steps']}"
    for name, scale, word in (
        ("learning_rate", "rate_scale", "learning rate"), ("prox", "prox_scale", "prox"),
    ):  # fmt: skip
        if scale in a:
            times = "" if a[scale] == 1 else f" x {a[scale]:g}"
            value = a[name] if isinstance(a[name], str) else f"{a[name]:g}"
            work += f", {word} {value}{times}"
    return work


def number(value: float) -> str:
    """f(x)/m for people: six decimals, unless a run diverged."""
    return f"{value:.6f}" if abs(value) < 1e6 else f"{value:.6g}"


def stopped_by(reasons: Iterable[str], diverged: bool) -> list[str]:
    """Reasons for stopping in short; first of them that the run diverged, whichever of them, or
    only its end, said so."""
    from .stopping import DIVERGED

    names = dict.fromkeys([DIVERGED] * diverged + list(reasons))
    return [name.replace("_", " ") for name in names]


def snr_text(snr: float) -> str:
    """A signal-to-noise ratio for people."""
    return f"{snr:.3f}" if math.isfinite(snr) else "-"


def objective_text(o: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """A described objective for people, of described data; those of margins are of the columns and
    nothing else."""
    text = str(o["name"])
    if "beta" in o:
        added = "an intercept added as the last feature" if data.get("intercept") else ""
        text += f", {added or 'no intercept added'}, beta {o['beta']:g}"
        if o["regularizer"] is not None:
            text += f" (weight {o['regularizer']} per client)"
    text += f", delta {o['delta']:g}" if "delta" in o else ""
    # Where it is not said, all clients weigh alike.
    return text + (", clients weighed by size" if o.get("client_weight") == "size" else "")


def _noise(a: Mapping[str, Any]) -> str:
    mechanism = a.get("mechanism")
    if mechanism is None:
        if a["noise"] == "none":  # which epsilon does not change
            return "none"
        return f"{a['noise']}, epsilon {a['epsilon']:g}"
    whole = mechanism.get("neighbours") == "client"
    clipped = "clients' moves" if whole else "gradients"
    text = f"{mechanism['name']} mechanism, {clipped} clipped to {mechanism['clip']:.3g}"
    public = "; scaling taken as public" if mechanism["public_scaling"] else ""
    rows = "" if whole else "of the rows as given, not as clipped, and "
    return f"{text}{public}; objective and accuracy are {rows}not private, nor is the SNR"


def advice_on(algorithm: Algorithm, problem: Problem) -> str:
    """What to change when a run went wrong."""
    if algorithm.noise_model.private:
        # Bounds of the curvature would be computed from private rows.
        return (
            "more clients, more of them in a round or a larger total_epsilon make up for the "
            "noise, and rows scaled by public bounds make less of it"
        )
    if algorithm.keeps_models:  # which knows scales, and has neither noise nor local steps
        return algorithm.advice(problem)
    less_noise = "" if not algorithm.noise_model.noisy else ", less noise (a larger epsilon)"
    text = (
        f"{algorithm.advice(problem)}; columns of one scale, more clients{less_noise} and fewer "
        "local_steps can help"
    )
    # The paper's parameters are made for its data; callables do not say what theirs are.
    if getattr(problem.data, "description", {}).get("source", "Adult") != "Adult":
        text += "; or try CurvatureFedEPM, which has no step to choose, and no noise"
    return text


def why_it_overflows(algorithm: Algorithm, problem: Problem, start: Any) -> str:
    """Which argument to blame for an objective that overflows at the first point: the one
    that is furthest beyond ordinary numbers."""
    import numpy as np  # the command's help needs these words without it

    objective, data = problem.objective, problem.data
    largest_number = getattr(data, "largest", None)  # of rows that are elsewhere
    if largest_number is None:
        values = data.features.data if data.is_sparse else data.features
        largest_number = max(
            float(np.abs(values).max(initial=0.0)), float(np.abs(data.labels).max())
        )
    sizes = {"beta": objective.beta, "data": largest_number}
    words = {
        "beta": f"beta must be smaller, got {objective.beta:g}",
        "data": f"data must be brought to scale, got numbers up to {sizes['data']:g}",
    }
    if objective.weights is not None:
        sizes["weights"] = float(np.max(objective.weights))
        words["weights"] = f"weights must be smaller, got {sizes['weights']:g}"
    if start is not None:
        sizes["start"] = float(np.abs(start).max())
        words["start"] = f"start must be smaller, got numbers up to {sizes['start']:g}"
    if algorithm.noise_model.factor > 0:
        sizes["mu0"] = 1.0 / algorithm.mu0
        words["mu0"] = (
            f"mu0 must be larger, got {algorithm.mu0:g}, which divides the noise of the first "
            "uploads"
        )
    largest = max(sizes, key=lambda name: sizes[name])
    return f"{words[largest]}: the objective, or its gradient, overflows at the first point"
