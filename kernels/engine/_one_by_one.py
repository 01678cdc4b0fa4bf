"""The stages of a run one at a time, called from Python: where a run's clients lie apart."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from .._jit import JIT_DISABLED, kernel
from ..losses import ClientRows
from ..losses._pointed import ROWS, Rows, evaluate_at, objective, objective_of, pointed
from ..philox import wrapping
from ._upload import draw_address


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
        self._at = numbers.client, numbers.arrays, numbers.weights
        self._views = (ROWS.packed(numbers), *self._words)
        self._addresses = tuple(words.ctypes.data for words in self._views)

    def __call__(self, stage: Any, tau: int) -> bool:
        """Whether a stage of round `tau` went well."""
        if JIT_DISABLED:
            arrays = () if self._rows is None else self._rows.arrays
            with wrapping():
                return bool(stage(arrays, *self._arguments, tau))
        return bool(_caller()(_address(stage), *self._addresses, tau))

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
        evaluate_at(
            *self._at, np.array([i]), state.x[None], self._arguments[0].reg, True,
            state.values[i : i + 1], gradient[None], state.work,
        )  # fmt: skip


def _address(stage: Any) -> int:
    from . import _pointer

    return _pointer(stage)


@functools.cache
def _caller() -> Any:
    """Calls the stage at an address."""
    from . import _STAGE, _call

    @kernel
    def call_stage(stage, rows, problem, settings, key, given, state, tau):
        return _call(stage, rows, problem, settings, key, given, state, tau)

    return call_stage.get_compile_result(types.boolean(types.int64, *_STAGE.args)).entry_point


def nobody() -> Any:
    """For the stages of a server alone: the objective of no client."""
    return SimpleNamespace(batch=None) if JIT_DISABLED else objective
