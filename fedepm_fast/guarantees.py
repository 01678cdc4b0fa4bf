"""What runs say about privacy, and what a private run released."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._common.json_files import read_json, write_json
from ._common.text import counted
from ._common.validation import check_array

if TYPE_CHECKING:
    from .result import Result

Array = NDArray[np.float64]

NO_NOISE = "none: nothing is added to the uploads"
NO_GUARANTEE = "none: this noise is not differentially private, see fedepm_fast.privacy"
#: Why no run of a store has a guarantee.
SHARED_SEED = (
    "none: runs that are compared share their seed, and with it their noise, which two uploads "
    "then cancel; they are the experimenter's"
)

#: What the experimenter sees and nobody else may.
NOT_PRIVATE = (
    "objective values, gradients, accuracy, SNR, times, warnings and exit codes that follow from "
    "these, and the clients' parameters W, which are computed from the records; the seed, which "
    "tells the noise; and hashes of the data, such as a sweep's content and run_id, which tell a "
    "guess of the records from the records; x and Z are what is released, see Result.release"
)


#: What every guarantee of a simulation assumes.
SIMULATED = (
    " (simulated: in exact arithmetic, the generator's numbers taken as random, for a seed that is "
    "secret and of this run only)"
)

#: The same as earlier versions put it, some of which said nothing.
_ONCE_SIMULATED = " (simulated, for a seed that is secret and of this run only)"

#: Seeds below it are few enough to try them all: what is released tells which one it was.
GUESSABLE = 2**32

GUESSED = (
    "none: the seed is below 2^32, and found by trying them all, and with it the noise; without "
    "one a run draws its own"
)

OF_THE_SPLIT = (
    "none: the seed is that of the split as well, which is no secret and of which the clients' "
    "sizes are a function; without one a run draws its own"
)

OWN_MECHANISM = "none: the mechanism is one of your own, whose account nobody has checked"


def why_known(seed: int, description: Mapping[str, Any]) -> str:
    """Why a seed is no secret, be it given or drawn; empty if it can be one."""
    if seed < GUESSABLE:
        return GUESSED
    return OF_THE_SPLIT if seed == description.get("split_seed") else ""


def as_true(result: Result) -> Result:
    """A saved run with the guarantee that it has, of which earlier versions said too much."""
    privacy = result.settings.get("privacy")
    if privacy is None or str(privacy["guarantee"]).startswith("none"):
        return result
    if result.seed is not None and (why := why_known(result.seed, result.data)):
        return _stating(result, no_guarantee(why))
    text = str(privacy["guarantee"])
    if text.endswith(SIMULATED):
        return result
    guarantee = text.removesuffix(_ONCE_SIMULATED) + SIMULATED
    return _stating(result, {"guarantee": guarantee, "not_private": NOT_PRIVATE})


def _stating(result: Result, said: dict[str, Any]) -> Result:
    """A private run whose report says something else."""
    privacy = result.settings["privacy"] | said
    return dataclasses.replace(result, settings=result.settings | {"privacy": privacy})


def no_guarantee(why: str) -> dict[str, Any]:
    """What a report says without a guarantee."""
    return {"guarantee": why, "epsilon": None, "epsilon_clients": None}


def withdrawn(report: dict[str, Any], spent: Array, why: str) -> tuple[dict[str, Any], Array]:
    """A report and spending without their guarantee: what was spent at all has no bound."""
    return report | no_guarantee(why), np.where(spent > 0, np.inf, 0.0)


def share_a_seed(result: Result) -> Result:
    """`result` as one of several runs of its seed, which takes any guarantee from it."""
    if "privacy" not in result.settings:
        return result
    spent = result.history["epsilon_clients"]
    found, spent = withdrawn(result.settings["privacy"], spent, SHARED_SEED)
    return dataclasses.replace(
        _stating(result, found),
        history=result.history | {"epsilon": spent.max(axis=1), "epsilon_clients": spent},
    )


_FORMAT = 1


@dataclass(frozen=True, eq=False)
class ReleasedRun:
    """What a private run released, and nothing else: no seed, no measures, no hashes.

    `Result.release` makes one. `guarantee` says what sharing it is covered by, and on what
    conditions; they go with it.

    Attributes
    ----------
    x : ndarray of shape (rounds + 1, n)
        The server's point of every round; the last one is the model.
    client_sizes : tuple of int
        Records of each client, where they are public: none where whole clients are hidden.
    parameters, objective : dict
        Of the algorithm with its mechanism, resolved, and of the objective, as plain values.
    guarantee : str
        In words.
    privacy : dict
        The guarantee in numbers (``epsilon``, ``delta``, ``epsilon_clients``, each client's
        ``uploads`` and noise ``multipliers``, ``clip``), and what it takes as ``public``.
    """

    x: NDArray[np.float64]
    client_sizes: tuple[int, ...]
    parameters: dict[str, Any]
    objective: dict[str, Any]
    guarantee: str
    privacy: dict[str, Any]

    @property
    def rounds(self) -> int:
        """Communication rounds."""
        return len(self.x) - 1

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file of JSON, in which every float is exact.

        The file appears complete or not at all.
        """
        write_json(path, {"format": _FORMAT, **asdict(self), "x": self.x.tolist()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ReleasedRun:
        """Read what `save` wrote.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is something else, is damaged, or was written by a newer version.
        """
        return read_json(path, _FORMAT, cls._made, "a released run")

    @classmethod
    def _made(cls, found: dict[str, Any]) -> ReleasedRun:
        found["x"] = check_array("x", found["x"], ndim=2)
        found["client_sizes"] = tuple(int(size) for size in found["client_sizes"])
        kinds = {"parameters": dict, "objective": dict, "guarantee": str, "privacy": dict}
        if not all(isinstance(found[name], kind) for name, kind in kinds.items()):
            raise TypeError
        return cls(**found)

    def __repr__(self) -> str:
        return f"<ReleasedRun: {counted(self.rounds, 'round')}, {self.guarantee}>"


def released(result: Result) -> ReleasedRun:
    """What `result` released.

    Raises
    ------
    ValueError
        If no guarantee covers it, or it was saved before guarantees said what they assume.
    """
    if result.guarantee.startswith("none"):
        raise ValueError(
            f"a run must have a privacy guarantee to be released, this one has {result.guarantee}"
        )
    privacy = dict(result.settings["privacy"])
    if "client_sizes" not in privacy:
        raise ValueError("a run to be released must be one of this version: run it again")
    sizes, guarantee = privacy.pop("client_sizes"), privacy.pop("guarantee")
    del privacy["not_private"]  # none of it is in here
    parameters, objective = dict(result.algorithm), dict(result.objective)
    x = np.array(result.history["x"])
    return ReleasedRun(x, tuple(sizes), parameters, objective, guarantee, privacy)
