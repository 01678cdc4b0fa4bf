"""The stages of a run one at a time, called from Python: where a run's clients lie apart."""

from __future__ import annotations

import ctypes
import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._jit import JIT_DISABLED
from ..losses import ClientRows
from ..losses._pointed import ROWS, Rows, objective, objective_of, pointed
from ..philox import wrapping
from ._upload import draw_address

_WORD = ctypes.c_uint64
_OBJECTIVES = ctypes.CFUNCTYPE(ctypes.c_bool, *[_WORD] * 7, ctypes.c_bool, *[_WORD] * 5)


class OneByOne:
    """Calls stages, and clients' objectives, as the compiled loop does: with the same bits.

    Parameters
    ----------
    rows : losses.ClientRows, optional
        None for stages that look at no rows.
    arguments : tuple
        Problem, settings, key, given and state, as of `Engine.rounds`.
    batches, weights, law
        As of `Engine`; without a law no stage may draw noise.
    """

    def __init__(
        self,
        rows: ClientRows | None,
        arguments: tuple[Any, ...],
        *,
        batches: bool = False,
        weights: NDArray[np.float64] | None = None,
        law: Any = None,
    ) -> None:
        from . import _VIEWS

        self._rows, self._arguments = rows, arguments
        self.state = arguments[-1]
        if JIT_DISABLED:
            self._plain = None if rows is None else objective_of(rows, weights)
            return
        self._words = [view.packed(value) for view, value in zip(_VIEWS, arguments, strict=True)]
        self._pointed: Any = (ROWS.packed(Rows(0, 0)),)
        if rows is not None:
            self._pointed = pointed(rows, batches=batches, weights=weights)
        numbers = Rows(*self._pointed[0].tolist())
        if law is not None:
            numbers = numbers._replace(draw=draw_address(law))
        self._at = numbers.arrays, numbers.weights
        self._client = _OBJECTIVES(numbers.client) if rows is not None else None
        self._views = (ROWS.packed(numbers), *self._words)
        self._addresses = tuple(words.ctypes.data for words in self._views)

    def __call__(self, stage: Any, tau: int) -> bool:
        """Whether a stage of round `tau` went well."""
        if JIT_DISABLED:
            arrays = () if self._rows is None else self._rows.arrays
            with wrapping():
                return bool(stage(arrays, *self._arguments, tau))
        return bool(_callable(stage)(*self._addresses, tau))

    def evaluate(self, i: int) -> None:
        """f_i and its gradient at the server's point, into ``values`` and ``G`` of the state."""
        state, gradient = self.state, self.state.G[i]
        if JIT_DISABLED:
            reg = self._arguments[0].reg[i]
            assert self._rows is not None and self._plain is not None
            at = self._rows.arrays, i, state.x, reg, True, gradient, state.work
            with wrapping():
                state.values[i] = self._plain(*at)
            return
        assert self._client is not None
        (arrays, weights), x, work, number = self._at, state.x, state.work, np.array([i])
        problem, value = self._arguments[0], state.values[i : i + 1]
        self._client(
            arrays, number.ctypes.data, 1, x.ctypes.data, 0, x.size, problem.reg.ctypes.data, True,
            value.ctypes.data, gradient.ctypes.data, work.ctypes.data, work.size, weights,
        )  # fmt: skip


@functools.cache
def _callable(stage: Any) -> Any:
    """The machine code of a stage, as Python calls it."""
    from . import _STAGE, _pointer

    kind = ctypes.CFUNCTYPE(ctypes.c_bool, *[_WORD] * (len(_STAGE.args) - 1), ctypes.c_int64)
    return kind(_pointer(stage).__wrapper_address__())


def nobody() -> Any:
    """For the stages of a server alone: the objective of no client."""
    return SimpleNamespace(batch=None) if JIT_DISABLED else objective
