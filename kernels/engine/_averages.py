"""Servers that average uploads."""

from __future__ import annotations

from .._jit import stage
from .._parts import fill
from ..losses._clients import _add


@stage
def average_selected(rows, problem, settings, key, given, state, tau):
    """The mean of the newly selected clients' last uploads."""
    x, count = state.x, state.n_selected[0]
    fill(x, 0.0)
    for r in range(count):
        _add(x, state.Z[state.selected[r]])
    for j in range(x.size):
        x[j] /= count
    return True
