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


@stage
def average_uploaded(rows, problem, settings, key, given, state, tau):
    """The mean of the uploads of the round before; at first that of all clients' starts."""
    x, count, m = state.x, state.n_uploaded[0], state.Z.shape[0]
    fill(x, 0.0)
    for r in range(count if count > 0 else m):
        _add(x, state.Z[state.uploaded[r] if count > 0 else r])
    for j in range(x.size):
        x[j] /= count if count > 0 else m
    return True
