"""Every loss's gradient against central differences, in NumPy and compiled, dense and CSR."""

from __future__ import annotations

import numpy as np
import pytest
from problems import LOSSES, a_problem, by_kernels

#: The step that balances truncation, of order step^2, and rounding, of order eps / step: both are
#: some 1e-11 of values and derivatives, which are of order one here. A kink between the two points
#: adds the step over the number of rows.
STEP = 6e-6


@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_match_central_differences(name, is_sparse, rng):
    problem = a_problem(name, is_sparse=is_sparse)
    assert problem.rows.layout == ("csr" if is_sparse else "blocks")
    w = rng.normal(size=problem.n_parameters)
    for i in range(problem.n_clients):
        faces = {
            "NumPy": (lambda w, i=i: problem.value(i, w), problem.gradient(i, w)),
            "kernel": (lambda w, i=i: by_kernels(problem, i, w)[0], by_kernels(problem, i, w)[1]),
        }
        for face, (value, gradient) in faces.items():
            numeric = [
                (value(w + STEP * e) - value(w - STEP * e)) / (2 * STEP) for e in np.eye(len(w))
            ]
            np.testing.assert_allclose(gradient, numeric, rtol=1e-9, atol=1e-9, err_msg=face)
        np.testing.assert_allclose(faces["kernel"][1], faces["NumPy"][1], rtol=1e-12, atol=1e-14)
