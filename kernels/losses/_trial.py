"""A loss's step tried on single rows, each alone in a vector beside places without a row."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._aligned import aligned
from .._jit import kernel
from .._simd import first_lanes, horizontal_sum, lanes, load, splat, store
from ._loss import Loss
from ._steps import hide, steps_of


def try_step(
    loss: Loss, margins: NDArray[np.float64], targets: NDArray[np.float64], parameter: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses (d,) of rows with these margins (d, K), and their derivatives in them (d, K).

    After them comes one more, which is what the step gives where there is no row.
    """
    outputs = margins.shape[1]
    given = np.zeros((len(margins) + 1, outputs))
    given[:-1] = margins
    labels = np.append(targets, loss.no_target)
    if loss.folds:
        labels = np.append(1 - 2 * targets, 1.0)
    values = np.empty(len(given))
    constants, work = np.array([parameter]), aligned((64 * (outputs + 1),), np.float64)
    _trial(loss)(given, labels, constants, values, work)
    return values, given


@functools.cache
def _trial(loss: Loss) -> Any:
    step, settle, _ = steps_of(loss)
    folds, no_margin, no_target = loss.folds, loss.no_margin, loss.no_target

    @kernel
    def trial(margins, targets, constants, values, work):
        outputs, width = margins.shape[1], lanes(work)
        zero, parameter = splat(work, 0.0), splat(work, constants[0])
        for r in range(values.size):
            held = first_lanes(work, 1 if r < values.size - 1 else 0)
            sign = targets[r] if folds else 1.0
            for k in range(outputs):
                store(work, k * width, splat(work, sign * margins[r, k]))
            hide(work, 0, width, outputs, held, no_margin)
            store(work, outputs * width, splat(work, no_target))
            if r < values.size - 1:
                work[outputs * width] = targets[r]
            target = load(work, outputs * width)
            total, product = step(work, 0, width, outputs, target, parameter, zero, zero)
            values[r] = horizontal_sum(settle(total, product))
            if r == values.size - 1:
                values[r] /= width
            for k in range(outputs):
                margins[r, k] = sign * work[k * width]

    return trial
