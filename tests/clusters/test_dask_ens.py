"""ENS of Dask arrays: any chunks, any scheduler, the numbers of the kernel."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

from fedepm_fast.dask import ens
from fedepm_fast.kernels.ens import ens as kernel

M, N = 37, 70
TOLERANCE = {np.float64: 1e-12, np.float32: 1e-5}
#: Blocks of coordinates, of clients, of both, of one client each, and some that are empty.
CHUNKS = [(M, 20), (10, N), ((30, 1, 0, 6), (33, 0, 37)), (1, 64)]

RNG = np.random.default_rng(5)
WEIGHTS = RNG.uniform(0.01, 3.0, M)
DATA = {
    "heavy tails": RNG.standard_cauchy((M, N)),
    "ties": RNG.integers(-1, 2, (M, N)).astype(float),
    "two groups": np.where(np.arange(M)[:, None] % 2, 1e-300, 1e8) * RNG.random((M, N)),
}


def close(found, expected):
    size = np.maximum(np.abs(expected), np.abs(expected).max() * 1e-3)
    return np.max(np.abs(found - expected) / size) <= TOLERANCE[expected.dtype.type]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("data", DATA)
def test_any_chunks_give_what_the_kernel_gives(data, dtype):
    z = DATA[data].astype(dtype)
    for c, weights in ((0.0, None), (0.5, WEIGHTS), (0.5, None), (1e9, WEIGHTS)):
        expected = kernel(z, c, weights=weights)
        lazy = [ens(da.from_array(z, chunks=chunks), c, weights=weights) for chunks in CHUNKS]
        assert [w.chunks for w in lazy[1:3]] == [((N,),), ((33, 37),)]
        for w in dask.compute(*lazy, scheduler="synchronous"):
            assert w.dtype == dtype
            assert close(w, expected)


def test_threads_and_sliced_arrays_and_numbers_that_are_not_floats():
    whole = RNG.integers(-9, 9, (M, 2 * N))
    lazy = ens(da.from_array(whole, chunks=(8, 16))[:, ::2], 0.5, weights=da.from_array(WEIGHTS))
    assert close(lazy.compute(scheduler="threads"), kernel(whole[:, ::2], 0.5, weights=WEIGHTS))
    assert ens(da.zeros((3, 0)), 1.0).compute().shape == (0,)
    one = da.from_array(RNG.normal(size=(1, 5)))
    assert (ens(one, 1.0) == one[0]).all().compute()


@pytest.mark.parametrize("c", [0.5, 1e308])
def test_sums_that_overflow(c):
    z = np.array([[1.6e308, 3.0], [1.7e308, 2.0], [1.7e308, -5.0]])
    found = ens(da.from_array(z, chunks=(1, 2)), c).compute(scheduler="synchronous")
    assert np.allclose(found, kernel(z, c), rtol=1e-12, atol=0)


@pytest.mark.parametrize("chunks", [(4, 3), (2, 3)])
def test_what_is_not_finite_is_named_when_it_is_computed(chunks):
    z = np.ones((4, 6))
    z[3, 4] = np.nan
    lazy = ens(da.from_array(z, chunks=chunks), 1.0)
    with pytest.raises(ValueError, match=r"z must be finite, got nan at index \(3, 4\)"):
        lazy.compute(scheduler="synchronous")


def test_numbers_that_change_between_passes_are_noticed():
    state = iter(range(10**6))
    moving = da.ones((4, 3), chunks=(2, 3)).map_blocks(
        lambda b: np.arange(6.0).reshape(2, 3) + 100.0 * next(state), dtype=float, meta=np.ones(())
    )
    with pytest.raises(ValueError, match="z must have the same numbers each time"):
        ens(moving, 1e9).compute(scheduler="synchronous")


@pytest.mark.parametrize(
    ("z", "arguments", "error", "message"),
    [
        (np.ones((2, 3)), {}, TypeError, "z must be a dask.array, got ndarray"),
        (
            da.ones((2, 3), chunks=2, dtype=object),
            {},
            TypeError,
            "z must be float64 or float32",
        ),
        (da.ones(3), {}, ValueError, r"z must have 2 dimensions, got shape \(3,\)"),
        (da.ones((0, 3)), {}, ValueError, "z must hold at least one client"),
        (da.ones(4)[da.ones(4) > 0][:, None], {}, ValueError, "z must have chunks of known sizes"),
        (da.ones((2, 3)), {"c": -1.0}, ValueError, "c must be a finite number"),
        (da.ones((2, 3)), {"weights": [1.0]}, ValueError, r"weights must have shape \(2,\)"),
        (da.ones((2, 3)), {"weights": [1.0, 0.0]}, ValueError, "weights must be positive"),
    ],
)
def test_errors_come_at_once(z, arguments, error, message):
    with pytest.raises(error, match=message):
        ens(z, **{"c": 1.0, **arguments})
