"""What clients of `CurvatureFedEPM` answer, and what is wrong with an answer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.validation import check_int
from ..algorithms import CurvatureFedEPM, Size
from ..algorithms._coordinates import Coordinates
from ..algorithms.curvature import WHOLE
from ..objectives._curvature import unpacked

Array = NDArray[np.float64]

#: Beyond this in absolute value f_i counts as infinite: sums of such numbers overflow.
LARGEST = 1e200
#: Coordinates that a federation can have: the others ask for products with matrices of all rows.
COORDINATES = ("renewed", "secant", "whitened")
_FORMAT, _VERSION = "fedepm_fast answer", 1
#: Of the largest eigenvalue, with the diagonal brought to 1: an eigenvalue as little below 0 is
#: rounding, also that of Hessians that were found in float32.
_ROUNDING = 1e-6


class Answer(NamedTuple):
    """What a client says of a point: sums over its rows."""

    value: float
    """f_i there; infinite where it, or its gradient or Hessian, is beyond `LARGEST` in size."""
    gradient: Array
    """Of f_i, shape (n,); zeros where f_i is infinite."""
    curvature: Array | None = None
    """What was asked of its curvature: see `CurvatureClient`; None if nothing was."""

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON has it; its floats are exact."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "value": self.value if math.isfinite(self.value) else None,
            "gradient": np.asarray(self.gradient).tolist(),
            "curvature": None if self.curvature is None else np.asarray(self.curvature).tolist(),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Answer:
        """An answer as `to_dict` wrote it; its numbers are for the server to check.

        Raises
        ------
        ValueError, TypeError
            If it is none, or of another version.
        """
        if not isinstance(given, Mapping) or given.get("format") != _FORMAT:
            raise ValueError("answer must be one as to_dict writes it")
        if given.get("version") != _VERSION:
            raise ValueError(f"answer must have version {_VERSION}, got {given.get('version')!r}")
        value, curvature = given.get("value"), given.get("curvature")
        return cls(
            math.inf if value is None else float(value),
            np.asarray(given.get("gradient"), np.float64),
            None if curvature is None else np.asarray(curvature, np.float64),
        )


def resolve_curvature(
    algorithm: Any, clients: int, features: int, classes: int = 1
) -> CurvatureFedEPM:
    """`algorithm` with its coordinates chosen for so many clients and parameters.

    The rounds in which all take part stay open if they are: they depend on who is there.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, also for coordinates that need more than sums over clients.
    """
    if not isinstance(algorithm, CurvatureFedEPM):
        raise TypeError(
            f"algorithm must be CurvatureFedEPM(...) or FedNL(...), got {type(algorithm).__name__}"
        )
    chosen = algorithm.resolve(Size(clients, features, 0)).coordinates
    columns = features // classes
    if chosen not in COORDINATES:
        raise ValueError(
            f"coordinates must be one of {', '.join(COORDINATES)} in a federation, got {chosen!r}"
        )
    if chosen == "whitened" and columns > WHOLE:
        raise ValueError(
            f"coordinates must be 'renewed' or 'secant' in a federation of more than {WHOLE} "
            f"columns, got {chosen!r} with {columns}"
        )
    if chosen == algorithm.coordinates:
        return algorithm
    return dataclasses.replace(algorithm, coordinates=chosen)


def check_classes(classes: int, features: int) -> int:
    """The number of equal blocks of a curvature, which divides the number of parameters."""
    classes = check_int("classes", classes, low=1)
    if features % classes:
        raise ValueError(
            f"features must be a multiple of classes, {classes}, got {features}: one for each "
            "column and class"
        )
    return classes


def first_size(algorithm: CurvatureFedEPM, features: int, classes: int) -> int:
    """Numbers of a first answer's curvature."""
    if algorithm.coordinates == "secant":
        return features
    size = features // classes if algorithm.coordinates == "whitened" else features
    return size * (size + 1) // 2


class Checker:
    """What is wrong with answers, in words; nothing is converted or repaired."""

    def __init__(
        self, algorithm: CurvatureFedEPM, features: int, classes: int, *, bounded: bool
    ) -> None:
        self.algorithm, self.features, self.classes = algorithm, features, classes
        self.bounded = bounded
        self.first_size = first_size(algorithm, features, classes)

    def fault(self, answer: Any, *, asked: bool) -> str:
        """Of an answer in a round, of which curvature was `asked` or not."""
        fault = self._of_value_and_gradient(answer)
        if fault:
            return fault
        if not asked:
            return "" if answer.curvature is None else "curvature must be None: none was asked for"
        size = self.features * (self.features + 1) // 2
        if not math.isfinite(answer.value) and answer.curvature is None:
            return ""
        return self._of_array("curvature", answer.curvature, size) or _of_hessian(
            answer.curvature, self.features
        )

    def first_fault(self, answer: Any) -> str:
        """Of a first answer."""
        fault = self._of_value_and_gradient(answer)
        if fault:
            return fault
        if not math.isfinite(answer.value):
            return "value must be finite in a first answer, got inf"
        curvature = answer.curvature
        fault = self._of_array("curvature", curvature, self.first_size)
        return fault or self._of_first(curvature)

    def _of_value_and_gradient(self, answer: Any) -> str:
        if not isinstance(answer, Answer):
            return f"answer must be an Answer, got {type(answer).__name__}"
        value = answer.value
        if isinstance(value, bool) or not isinstance(value, (float, int, np.floating)):
            return f"value must be a number, got {type(value).__name__}"
        if not (-LARGEST <= value <= LARGEST or value == math.inf):
            return f"value must be at most {LARGEST:g} in size, or inf, got {value!r}"
        return self._of_array("gradient", answer.gradient, self.features)

    def _of_array(self, name: str, array: Any, size: int) -> str:
        if np.ma.isMaskedArray(array) or not isinstance(array, np.ndarray):
            return f"{name} must be an array, got {type(array).__name__}"
        if array.dtype != np.float64:
            return f"{name} must have dtype float64, got {array.dtype}"
        if array.shape != (size,):
            return f"{name} must have shape ({size},), got {array.shape}"
        most = float(np.abs(array).max())
        if not most <= LARGEST:
            return f"{name} must be finite and at most {LARGEST:g} in size, got {most:g}"
        return ""

    def _of_first(self, curvature: Array) -> str:
        """What bounds a curvature, or is one, is no negative matrix."""
        if self.algorithm.coordinates == "secant":
            return "" if (curvature >= 0).all() else "curvature must be at least 0"
        size = self.features
        if self.algorithm.coordinates == "whitened":
            size //= self.classes
        if not self.bounded:
            return _of_hessian(curvature, size)
        try:
            Coordinates.dense(unpacked(curvature, size))
        except ValueError as error:
            return f"curvature must be that of a bound: {error}"
        return ""


def _of_hessian(curvature: Array, size: int) -> str:
    """The Hessian of a convex function has no eigenvalue below 0, but for rounding."""
    from scipy.linalg import LinAlgError, cholesky

    matrix = unpacked(curvature, size)
    diagonal = np.diagonal(matrix)
    if diagonal.min() < 0:
        return (
            "curvature must be that of a convex function, with a diagonal of at least 0, "
            f"got {diagonal.min():g}"
        )
    # Beside an entry of 0 there is nothing, but for what underflows in the one and not in others.
    scale = np.sqrt(np.maximum(diagonal, np.finfo(np.float64).tiny))
    with np.errstate(over="ignore"):
        even = matrix / scale / scale[:, None]
        # As in `Coordinates.dense`.
        even[np.diag_indices(size)] += _ROUNDING * np.clip(np.abs(even).sum(axis=1).max(), 1, size)
    try:
        if np.isfinite(even).all():
            cholesky(even, lower=False, overwrite_a=True, check_finite=False)
            return ""
    except LinAlgError:
        pass
    return "curvature must be that of a convex function, got a matrix with a negative eigenvalue"
