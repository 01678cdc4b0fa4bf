"""What callbacks and stopping rules see of a run that goes on."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
T = TypeVar("T")


class Rounds(Sequence[T]):
    """The values of a run's rounds so far, one for each: a read-only sequence.

    It is a view of a history that grows, and costs no copy of it; what comes later does not
    show, so one that is kept stays as it was.

    Parameters
    ----------
    values : list
        The history, to which values are only appended.
    length : int
        Values of it that show.
    *then
        Values after those, in place of what the history will hold there.
    """

    __slots__ = ("_length", "_then", "_values")

    def __init__(self, values: list[T], length: int, *then: T) -> None:
        self._values, self._length, self._then = values, length, then

    def __len__(self) -> int:
        return self._length + len(self._then)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        k = operator.index(index)
        k += len(self) if k < 0 else 0
        if not 0 <= k < len(self):
            raise IndexError(f"index {index} is outside of {len(self)} rounds")
        return self._values[k] if k < self._length else self._then[k - self._length]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Rounds, list, tuple)):
            return list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


@dataclass(frozen=True, eq=False)
class RoundInfo:
    """What a callback sees after the server has a new point.

    Nothing in it can be written to, and one that is kept stays as it was.

    Attributes
    ----------
    tau : int
        The round.
    x : ndarray of shape (n,)
        The point of this round, read-only.
    n_clients : int
        m.
    objective, grad_mean_sq, accuracy, elapsed, local_time, snr : Rounds
        As in `Result.history`, of the rounds 0 to `tau`: sequences of ``tau + 1`` numbers, or
        None where there is none. The last `local_time` is 0, for that work is still to come.
        With a mechanism, too, they are of the rows as given, not of clipped ones.
    """

    tau: int
    x: Array
    n_clients: int
    objective: Rounds[float]
    grad_mean_sq: Rounds[float]
    accuracy: Rounds[float | None]
    elapsed: Rounds[float]
    local_time: Rounds[float]
    snr: Rounds[float | None]

    @classmethod
    def of(cls, x: Array, n_clients: int, history: Mapping[str, list[Any]]) -> RoundInfo:
        """Of the last round of a history; `x`, which is copied, is its point."""
        tau = len(history["objective"]) - 1
        x = x.copy()
        x.flags.writeable = False
        seen = {
            name: Rounds(values, tau, 0.0) if name == "local_time" else Rounds(values, tau + 1)
            for name, values in history.items()
            if name != "x"
        }
        return cls(tau, x, n_clients, **seen)


Callback = Callable[[RoundInfo], Any]
