"""What is as large as floats go: how it is brought where sums do not overflow."""

from __future__ import annotations

from typing import Any

import numpy as np

#: By item size: the largest c that the kernels take, so that no u overflows.
LARGEST_C = {4: float(np.finfo(np.float32).max) / 4, 8: float(np.finfo(np.float64).max) / 4}


def overflow_scale(m: int) -> float:
    """A power of two by which m numbers of any size can be added and told apart."""
    return 2.0 ** -(m.bit_length() + 6)


def c_matters(m: int, weights: Any) -> float:
    """The share of c from which on data are so large that a larger c has another solution.

    Halves of the weight differ by one client's at least, or by the rounding of their sum.
    """
    return 1.0 / (8 * m) if weights is None else 2.0**-60
