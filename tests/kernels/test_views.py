"""Arguments of stages by address, and a client's objective behind a pointer."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core import types
from numpy.testing import assert_array_equal
from problems import a_problem

from fedepm_fast import FedEPM, SFedAvg, SFedProx, run
from fedepm_fast.algorithms import Scaffold
from fedepm_fast.kernels import engine, losses
from fedepm_fast.kernels._jit import JIT_DISABLED, kernel
from fedepm_fast.kernels._views import vector, view_of, whole
from fedepm_fast.kernels.engine import evaluate_kernel, objective_of
from fedepm_fast.kernels.losses._pointed import ROWS, objective, pointed

pytestmark = pytest.mark.skipif(JIT_DISABLED, reason="compiled code takes addresses")


class Several(NamedTuple):
    count: int
    key: np.uint64
    share: float
    on: bool
    row: np.ndarray
    cube: np.ndarray


SEVERAL = Several(
    -3, np.uint64(2**64 - 1), -0.1, True, np.arange(3), np.arange(24.0).reshape(2, 3, 4)
)


def test_fields_are_read_and_arrays_are_those_of_the_caller():
    view = view_of(SEVERAL)
    out = np.zeros(8)

    @numba.njit
    def read(given, address):
        to = vector(address, 8)
        to[0], to[1], to[2] = given.count, given.share, given.on
        to[3], to[4], to[5] = given.key == np.uint64(2**64 - 1), given.row.sum(), given.cube.size
        given.cube[1, 2] += 1.0
        everything = whole(given)
        to[6], to[7] = everything[0], everything[5][1, 2, 3]

    called = read.get_compile_result(types.none(view, types.int64)).entry_point
    called(view.packed(SEVERAL).ctypes.data, out.ctypes.data)
    assert_array_equal(out, [-3, -0.1, 1, 1, 3, 24, -3, 24])
    assert_array_equal(SEVERAL.cube[1, 2], [21, 22, 23, 24])


@pytest.mark.parametrize(
    "wrong",
    [
        {"row": np.arange(3.0)},
        {"row": np.arange(6)[::2]},
        {"cube": np.zeros((2, 3))},
        {"cube": np.asfortranarray(np.zeros((2, 3, 4)))},
    ],
)
def test_arrays_of_another_kind_are_refused(wrong):
    with pytest.raises(TypeError, match=f"{next(iter(wrong))} must be C-contiguous"):
        view_of(SEVERAL).packed(SEVERAL._replace(**wrong))


def test_a_client_alone_and_all_together_have_the_same_bits(any_problem, rng):
    rows = any_problem.rows
    x, reg = rng.normal(size=rows.n_parameters), 0.3
    f, g = losses.values_and_gradients(rows, x, reg=np.full(rows.n_clients, reg))
    found, work = np.empty_like(g), losses.workspace(rows)
    words = pointed(rows)[0]

    @kernel
    def all_clients(rows, x, n, m, gradients, values, work, size):
        at, to, spare, out = (
            vector(x, n),
            vector(gradients, n * m),
            vector(work, size),
            vector(values, m),
        )
        for i in range(m):
            out[i] = objective(rows, i, at, 0.3, True, to[i * n : (i + 1) * n], spare)

    values = np.empty_like(f)
    compiled = all_clients.get_compile_result(types.none(ROWS, *[types.int64] * 7))
    compiled.entry_point(
        words.ctypes.data, x.ctypes.data, len(x), len(f), found.ctypes.data, values.ctypes.data,
        work.ctypes.data, work.size,
    )  # fmt: skip
    assert_array_equal(values, f)
    assert_array_equal(found, g)


@pytest.mark.parametrize("algorithm", [FedEPM(), SFedAvg(), SFedProx(), Scaffold()])
def test_a_stage_is_compiled_once_for_all_losses_and_layouts(algorithm):
    one, other = (objective_of(a_problem(name).rows) for name in ("logistic", "huber"))
    assert algorithm.stages(one) == algorithm.stages(other)
    assert evaluate_kernel(one) is evaluate_kernel(other)


def test_runs_without_noise_compile_no_law(monkeypatch):
    def drawn(law):
        raise AssertionError(f"{law} is compiled")

    data = a_problem("logistic").data
    monkeypatch.setattr(engine, "draw_address", drawn)
    assert run(FedEPM(noise="none"), data, rounds=2, seed=0).rounds == 2
    with pytest.raises(AssertionError, match="is compiled"):
        run(FedEPM(epsilon=7.0), data, rounds=2, seed=0)
