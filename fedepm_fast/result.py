"""What a run reports."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._common import html
from ._common.archives import read_arrays
from ._common.extras import require
from ._common.files import replacing
from ._common.measures import Measure, add_measure, summary_of
from ._judged import Judged
from ._words import facts_of, in_words, title_of, warning_of, why_stopped
from .guarantees import NO_GUARANTEE, NO_NOISE, ReleasedRun, as_true, released

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["DivergenceWarning", "Measure", "Result", "add_measure"]

Array = NDArray[np.float64]

_FORMAT = 1
_ARRAYS = ("x", "W", "Z", "snr_clients")


class DivergenceWarning(RuntimeWarning):
    """A run diverged, ended above its start or far above its best, or swings.

    One that diverges beyond recovery is stopped, and its result holds the last finite state.
    """


@dataclass(frozen=True, eq=False)
class Result(Judged):
    """The outcome of one run, with everything that reproduces it.

    Attributes
    ----------
    algorithm, objective, data : dict
        Resolved parameters, the objective, and where the data came from, as plain values.
    seed, trial : int or None
        Of the randomness; None where it was given from outside.
    engine : str
        What computed it.
    x : ndarray of shape (n,)
        The server's final point.
    W, Z : ndarray of shape (m, n)
        The clients' parameters and last uploads.
    rounds : int
        Communication rounds, CR: the round at which the run stopped; the first point is
        round 0.
    reasons : tuple of str
        Every stopping condition that held, see `fedepm_fast.stopping`; those of a rule of your
        own by the names that it gives them.
    history : dict of ndarray
        Per round, of length ``rounds + 1``: ``objective`` (f, summed over clients),
        ``grad_mean_sq``, ``x``, ``accuracy`` (classification), ``elapsed`` and ``local_time``
        (seconds), ``snr`` (NaN until a client has taken part). They are of the rows as given,
        also with a mechanism, whose clients clip theirs; then there are ``epsilon``,
        the most that a client has spent, and ``epsilon_clients``, what each has, of shape
        ``(rounds + 1, m)``; of a seed that is no secret, what it would be if it were.
    snr_clients : ndarray of shape (m,)
        ``log10(|w_i| / |noise_i|)`` of each client's last upload; NaN for a client that never
        took part, inf without noise.
    total_time : float
        TCT, seconds; like all times without what the kernels took to compile or to load.
    settings : dict
        What ended the run, with a mechanism what each client spent, of secure sums what clients
        agreed on (`privacy.secure_sum.SecureSum`), and the clients' ``work``.
    versions : dict
        Of this package, Python and the libraries that matter.
    start_objective : float
        f, summed over clients, at the start, before any noise. NaN in files of versions that did
        not record it: round 0 stands for it then.
    slack : float
        By how much f may end above that before a run counts as ended above its start.
    kept : dict of ndarray
        What the clients keep beside w_i, by the algorithm's names, each of shape (m, n).
    """

    algorithm: dict[str, Any]
    objective: dict[str, Any]
    data: dict[str, Any]
    seed: int | None
    trial: int | None
    engine: str
    x: Array
    W: Array
    Z: Array
    rounds: int
    reasons: tuple[str, ...]
    history: dict[str, Array]
    snr_clients: Array
    total_time: float
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    start_objective: float = math.nan
    slack: float = 0.0
    kept: dict[str, Array] = field(default_factory=dict)

    @property
    def n_clients(self) -> int:
        """Number of clients, m."""
        return len(self.W)

    @property
    def iterations(self) -> int:
        """Local iterations, ``rounds * local_steps``; of an algorithm without such, one a round."""
        return self.rounds * int(self.algorithm.get("local_steps", 1))

    @property
    def mean_objective(self) -> float:
        """``f(x) / m`` at the final point."""
        return float(self.history["objective"][-1]) / self.n_clients

    @property
    def accuracy(self) -> float | None:
        """Share of rows classified correctly by the final point; None for regression."""
        return float(self.history["accuracy"][-1]) if "accuracy" in self.history else None

    @property
    def largest_class(self) -> float | None:
        """Share of the rows that are in the largest class, which naming it always gets right.

        None for regression, and in files of versions that did not record it.
        """
        return self.data.get("largest_class")

    @property
    def beside(self) -> str:
        """What to read an accuracy with."""
        share = self.largest_class
        return "of the training rows" + ("" if share is None else f"; largest class {share:.4f}")

    @property
    def local_time(self) -> float:
        """LCT: mean over the rounds of the selected clients' computing time, seconds."""
        worked = self.history["local_time"][: self.rounds]
        return float(worked.mean()) if len(worked) else 0.0

    @property
    def work(self) -> dict[str, float]:
        """What the clients computed and sent, all rounds and clients together.

        ``gradients``: how often they went through their rows, a gradient of half of them counts
        0.5. ``bytes_up`` to the server and ``bytes_down`` from it, numbers as float64: vectors,
        what clients tell when they join, and rates agreed on; not what else a message has.
        Counted by what the algorithm says of a round; empty in files of versions that did not
        record it.
        """
        return dict(self.settings.get("work", {}))

    @property
    def snr(self) -> float:
        """Smallest signal-to-noise ratio of the clients that took part; NaN if none did."""
        took_part = self.snr_clients[~np.isnan(self.snr_clients)]
        return float(took_part.min()) if len(took_part) else math.nan

    @property
    def guarantee(self) -> str:
        """The privacy guarantee of the run, in words."""
        of_noise = NO_NOISE if self.algorithm["noise"] == "none" else NO_GUARANTEE
        return str(self.settings.get("privacy", {}).get("guarantee", of_noise))

    @property
    def warning(self) -> str:
        """What is wrong with the point where the run ended, in words; empty if nothing is."""
        return warning_of(self)

    @property
    def message(self) -> str:
        """Why the run stopped, and what is wrong with where it did, in words."""
        return why_stopped(self, self.warning)

    def summary(self) -> dict[str, Any]:
        """The measures of the run as plain values; None where a measure does not exist.

        ``start_objective`` and ``best_objective`` are f/m at the start and at the best of start
        and rounds, and ``intercept`` is whether one was added to the columns of the data. Measures
        of one's own, see `add_measure`, follow.
        """
        return summary_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Summary and everything that reproduces the run, JSON-able."""
        return {**self.summary(), "x": self.x.tolist(), **self._record()}

    def _record(self) -> dict[str, Any]:
        return {
            "parameters": self.algorithm,
            "objective": self.objective,
            "data": self.data,
            "settings": self.settings,
            "seed": self.seed,
            "trial": self.trial,
            "engine": self.engine,
            "versions": self.versions,
        }

    def __str__(self) -> str:
        return in_words(self)

    def _repr_html_(self) -> str:
        return html.pairs(facts_of(self), title_of(self))

    def __repr__(self) -> str:
        return (
            f"<Result {self.algorithm['name']}: f/m={self.mean_objective:.6g}, "
            f"rounds={self.rounds}, stopped={'+'.join(self.reasons)}>"
        )

    def _columns(self) -> dict[str, Array]:
        """What the history holds one number of per round."""
        return {name: values for name, values in self.history.items() if values.ndim == 1}

    def to_pandas(self) -> DataFrame:
        """The history as a table, one row per round, without the points."""
        pandas = require("pandas", "tables", "Result.to_pandas")
        columns = self._columns()
        table = pandas.DataFrame({"round": np.arange(self.rounds + 1), **columns})
        table.insert(2, "mean_objective", table["objective"] / self.n_clients)
        return table.set_index("round")

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the history as CSV, one row per round, without the points."""
        columns = self._columns()
        names = ["round", "mean_objective", *columns]
        mean = self.history["objective"] / self.n_clients
        with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(",".join(names) + "\n")
            for tau, values in enumerate(zip(mean, *columns.values(), strict=True)):
                # repr of a float is its shortest exact decimal; an absent value is left empty.
                cells = ["" if math.isnan(v) else repr(float(v)) for v in values]
                file.write(",".join([str(tau), *cells]) + "\n")

    def plot(self, ax: Any = None) -> Figure:
        """Draw f(x)/m against communication rounds; see `fedepm_fast.plots.history`."""
        from . import plots

        return plots.history([self], ax=ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file, without pickle.

        The file appears complete or not at all.
        """
        meta = {
            "format": _FORMAT,
            **self._record(),
            "rounds": self.rounds,
            "reasons": list(self.reasons),
            "total_time": self.total_time,
            "start_objective": self.start_objective,
            "slack": self.slack,
            "history": list(self.history),
            "kept": list(self.kept),
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"history_{name}": values for name, values in self.history.items()}
        arrays |= {f"kept_{name}": values for name, values in self.kept.items()}
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)

    def release(self) -> ReleasedRun:
        """What a private run released and nothing else: what may leave the experimenter's hands.

        Returns
        -------
        ReleasedRun
            The points of the rounds, sizes, parameters and the guarantee with its conditions; it
            is saved and loaded on its own. A saved `Result` holds the seed and measures of the
            records.

        Raises
        ------
        ValueError
            If the run has no guarantee.
        """
        return released(self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read a result written by `save`.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is not a result, is damaged, or was written by a newer version.
        """
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"no result at {path}")
        try:
            files = read_arrays(path)
            meta = json.loads(str(files["meta"]))
            if (version := meta["format"]) <= _FORMAT:
                return cls._from_files(files, meta)
        except (OSError, KeyError, ValueError, TypeError, RecursionError):
            raise ValueError(
                f"{path} is not a complete result file, as Result.save writes it"
            ) from None
        raise ValueError(
            f"{path} has format {version}, this version of fedepm_fast reads up to {_FORMAT}"
        )

    @classmethod
    def _from_files(cls, files: Mapping[str, Any], meta: Mapping[str, Any]) -> Result:
        result = cls(
            algorithm=meta["parameters"],
            objective=meta["objective"],
            data=meta["data"],
            seed=meta["seed"],
            trial=meta["trial"],
            engine=meta["engine"],
            rounds=meta["rounds"],
            reasons=tuple(meta["reasons"]),
            history={name: files[f"history_{name}"] for name in meta["history"]},
            total_time=meta["total_time"],
            start_objective=meta.get("start_objective", math.nan),
            slack=meta.get("slack", 0.0),
            settings=meta["settings"],
            versions=meta["versions"],
            kept={name: files[f"kept_{name}"] for name in meta.get("kept", ())},
            **{name: files[name] for name in _ARRAYS},
        )
        return as_true(result)
