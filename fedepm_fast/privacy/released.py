"""What a private run released, apart from what its experimenter knows."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._files import replacing
from .._validation import check_array
from ..result import Result

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
        Records of each client, which are public.
    parameters, objective : dict
        Of the algorithm with its mechanism, resolved, and of the objective, as plain values.
    guarantee : str
        In words.
    privacy : dict
        The guarantee in numbers (``epsilon``, ``delta``, ``epsilon_clients``, ``clip``), and
        what it takes as ``public``.
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
        text = json.dumps(
            {"format": _FORMAT, **asdict(self), "x": self.x.tolist()}, indent=1, allow_nan=False
        )
        with replacing(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

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
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"no released run at {path}")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            version = found.pop("format")
            if type(version) is not int:
                raise TypeError
            if version <= _FORMAT:
                found["x"] = check_array("x", found["x"], ndim=2)
                found["client_sizes"] = tuple(int(size) for size in found["client_sizes"])
                kinds = {"parameters": dict, "objective": dict, "guarantee": str, "privacy": dict}
                if not all(isinstance(found[name], kind) for name, kind in kinds.items()):
                    raise TypeError
                return cls(**found)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            raise ValueError(
                f"{path} is not a complete file of a released run, as ReleasedRun.save writes it"
            ) from None
        raise ValueError(
            f"{path} has format {version}, this version of fedepm_fast reads up to {_FORMAT}"
        )

    def __repr__(self) -> str:
        return f"<ReleasedRun: {self.rounds} rounds, {self.guarantee}>"


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
