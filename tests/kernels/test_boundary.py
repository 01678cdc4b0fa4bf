"""One rule for what an array may be, for every function of the kernels and of aggregation."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fedepm_fast.federation.aggregation import aggregate
from fedepm_fast.kernels import _boundary, _jit, losses
from fedepm_fast.kernels import ens as ens_module
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.kernels.ens import ens
from fedepm_fast.kernels.ens_blocks import EnsSearch, ens_blocks
from fedepm_fast.kernels.local_steps import fedepm_local_steps
from fedepm_fast.kernels.noise import laplace
from fedepm_fast.kernels.philox import philox4x64
from fedepm_fast.kernels.prox import prox_elastic_net, soft_threshold
from fedepm_fast.kernels.sampling import sample
from fedepm_fast.kernels.vecmath import exp

#: More than a block or a thread takes; plain Python takes minutes for so many.
FEATURES = 204 if JIT_DISABLED else 5000
Z = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
ONES = np.ones(4)


def _rows(**changes):
    given = {"features": Z, "labels": np.array([0.0, 1.0, 0.0, 1.0]), "client_sizes": [2, 2]}
    return losses.pack(**given | changes)


def _packed(**changes):
    return losses.values(_rows(**changes), np.full(3, 0.5))


def _steps(**changes):
    given = {"W": Z, "x": np.zeros(3), "G": Z, "step": ONES} | changes
    parameters = dict(lam=0.1, eta=1.0, mu0=1.0, c=0.1, alpha=1.0, local_steps=2, first_iteration=0)
    return fedepm_local_steps(**given, **parameters)[0]


#: By the name of the argument: a call, and an array of zeros and ones for it.
FLOATS = {
    "z": (lambda v: ens(v, 0.5), Z),
    "z, columns": (lambda v: ens(v, 0.5, axis=1), Z.T),
    "weights": (lambda v: ens(Z, 0.5, weights=v), ONES),
    "source": (lambda v: ens_blocks([v], 0.5), Z),
    "weights, blocks": (lambda v: ens_blocks(Z, 0.5, weights=v), ONES),
    "sums": (lambda v: EnsSearch(v, 4, 0.5).point, Z[0]),
    "uploads[1]": (lambda v: aggregate([Z[0], v, Z[2]], 0.5), Z[1]),
    "weights, aggregate": (lambda v: aggregate(Z, 0.5, weights=v), ONES),
    "t": (lambda v: soft_threshold(v, 0.25), Z),
    "t, elastic net": (lambda v: prox_elastic_net(v, 0.25, 1.0), Z),
    "a": (lambda v: soft_threshold(Z, v), Z),
    "x": (lambda v: losses.values(_rows(), v), Z[0]),
    "reg": (lambda v: losses.values(_rows(), Z[0], reg=v), np.array([0.0, 1.0])),
    "features": (lambda v: _packed(features=v), Z),
    "labels": (lambda v: _packed(labels=v), np.array([0.0, 1.0, 1.0, 0.0])),
    "weights, columns": (lambda v: _packed(weights=v), Z[0]),
    "W": (lambda v: _steps(W=v), Z),
    "G": (lambda v: _steps(G=v), Z),
    "x, steps": (lambda v: _steps(x=v), Z[0]),
    "step": (lambda v: _steps(step=v), ONES),
    "scale": (lambda v: laplace(0, 0, 0, 0, [0, 1, 2, 3], 3, scale=v), ONES),
    "x, exp": (exp, Z),
}
INTEGERS = {
    "clients": (lambda v: losses.values(_rows(), Z[0], clients=v), [1, 0]),
    "client_sizes": (lambda v: _packed(client_sizes=v), [1, 3]),
    "clients, noise": (lambda v: laplace(0, 0, 0, 0, v, 3), [2, 5]),
    "pool": (lambda v: sample(0, 0, 0, 0, v, 2), [3, 4, 5]),
    "counter": (lambda v: philox4x64(v, (1, 2)), [1, 2, 3, 4]),
}
CASES = FLOATS | INTEGERS


def _name(case: str) -> str:
    return case.partition(",")[0].replace("[", r"\[").replace("]", r"\]")


@pytest.mark.parametrize("case", FLOATS)
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, ">i4", ">f8", "list"])
def test_numbers_of_other_kinds_are_the_same_numbers(case, dtype):
    call, value = FLOATS[case]
    given = value.tolist() if dtype == "list" else value.astype(dtype)
    np.testing.assert_array_equal(call(given), call(value))


@pytest.mark.parametrize("case", FLOATS)
@pytest.mark.parametrize("dtype", [complex, object, str, np.float16, np.longdouble, "M8[s]"])
def test_other_dtypes_are_refused_by_name(case, dtype):
    call, value = FLOATS[case]
    given = value.astype(int).astype(dtype)
    with pytest.raises(TypeError, match=f"^{_name(case)} must be float64 or float32, got dtype "):
        call(given)


@pytest.mark.parametrize("case", INTEGERS)
def test_integers_of_other_kinds_are_the_same_integers(case):
    call, value = INTEGERS[case]
    for dtype in (np.uint8, np.int64, ">i8", np.uint64):
        np.testing.assert_array_equal(call(np.array(value, dtype)), call(value))
    for wrong in (np.array(value, float), np.array(value, object)):
        with pytest.raises(TypeError, match=f"^{_name(case)} must be integers, got dtype "):
            call(wrong)


@pytest.mark.parametrize("case", CASES)
def test_masked_entries_and_what_is_no_array_are_refused_by_name(case):
    call, value = CASES[case]
    value = np.array(value)
    masked = np.ma.array(value, mask=np.arange(value.size).reshape(value.shape) == 1)
    for given in (masked, [masked] if value.ndim == 2 else masked):
        with pytest.raises(ValueError, match=f"^{_name(case)} must not have masked entries"):
            call(given)
    np.testing.assert_array_equal(call(np.ma.array(value)), call(value))
    for wrong in ((v for v in value), {1, 2}, [[1, 2], [3]]):
        with pytest.raises(TypeError, match=f"^{_name(case)} must be "):
            call(wrong)


def test_integers_that_do_not_fit_are_refused():
    class Rows:
        shape = (1, 3)
        data = np.ones(1)
        indices = np.array([2**32 + 1])
        indptr = np.array([0, 1])

    with pytest.raises(ValueError, match=r"features.indices must be from .* got 4294967297"):
        losses.pack(Rows(), [1], [1])
    with pytest.raises(ValueError, match=r"clients must be from .* got 18446744073709551615"):
        laplace(0, 0, 0, 0, np.array([2**64 - 1], np.uint64), 3)


def test_numbers_beyond_float32_are_refused_or_right():
    single = Z.astype(np.float32)
    rows = _rows(dtype=np.float32)
    with pytest.raises(ValueError, match=r"reg must be at most 3.4e\+38 in float32"):
        losses.values(rows, single[0], reg=1e300)
    with pytest.raises(ValueError, match=r"weights must be at most 3.4e\+38 in float32"):
        _packed(features=single, weights=[1e300, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"features must be at most 3.4e\+38 in float32"):
        _rows(features=1e300 * Z, dtype=np.float32)
    with pytest.raises(ValueError, match=r"step must be at most 3.4e\+38 in float32"):
        _steps(W=single, G=single, x=single[0], step=1e300 * ONES)
    for a in (1e300, np.full(3, 1e300)):
        np.testing.assert_array_equal(soft_threshold(single, a), np.zeros((4, 3)))


@pytest.mark.parametrize("value", ["0.5", b"1", True, np.bool_(False), [0.5], np.ones(1), None, 1j])
def test_a_number_is_a_number(value):
    with pytest.raises(TypeError, match=r"^c must be a finite number in \[0, inf\), got "):
        ens(Z, value)


def test_integers_beyond_floats_are_refused():
    for huge in (10**400, 10**6000):
        with pytest.raises(ValueError, match=r"c must be a finite number in .*, got an integer"):
            ens(Z, huge)
        with pytest.raises(ValueError, match=r"seed must be .* got an integer of .* bits"):
            laplace(huge, 0, 0, 0, [0], 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("m", [4, 40])
def test_the_index_is_the_callers(bad, m, monkeypatch):
    """Of any layout, thread or block: the first in the order of rows."""
    monkeypatch.setattr(ens_module, "PARALLEL_FROM", 0)
    uploads = np.ones((m, FEATURES))
    uploads[1, FEATURES - 200] = uploads[2, 3] = bad
    single = uploads.astype(np.float32)
    weights = np.arange(1.0, m + 1)
    where = rf"must be finite, got {bad} at index \(1, {FEATURES - 200}\)"
    monkeypatch.setattr("fedepm_fast.federation.aggregation.BLOCK_BYTES", 1)
    for threads in (1, 2):
        for z in (uploads, single, np.asfortranarray(uploads), uploads.astype(">f8")):
            for p in (None, weights):
                with pytest.raises(ValueError, match=f"z {where}"):
                    ens(z, 0.5, weights=p, threads=threads)
                with pytest.raises(ValueError, match=f"uploads {where}"):
                    aggregate(list(z), 0.5, weights=p, threads=threads)
        with pytest.raises(ValueError, match=r"z must be finite, got .* at index \(3, 2\)"):
            ens(np.ascontiguousarray(uploads.T), 0.5, axis=1, threads=threads)
    for rows in (1, 3, m):
        with pytest.raises(ValueError, match=f"source {where}"):
            ens_blocks(uploads, 0.5, block_rows=rows)
    with pytest.raises(ValueError, match=f"source {where}"):
        ens_blocks([uploads[:1], uploads[1:]], 0.5, weights=weights)


def test_the_index_in_sparse_features_is_of_row_and_column():
    sparse = pytest.importorskip("scipy.sparse")
    table = np.where(np.arange(12).reshape(4, 3) == 7, np.nan, Z)
    with pytest.raises(ValueError, match=r"features must be finite, got nan at index \(2, 1\)"):
        _rows(features=sparse.csr_array(table))


def test_a_mean_of_zero_and_one_is_a_half():
    for dtype in (bool, np.int8, np.uint64):
        uploads = [np.array([0, 1], dtype), np.array([1, 1], dtype)]
        for found in (aggregate(uploads, 0.0), ens(np.stack(uploads), 0.0)):
            assert found.dtype == np.float64
            np.testing.assert_array_equal(found, [0.5, 1.0])


def test_uploads_are_a_list_of_arrays_of_one_kind():
    vectors = {"a": Z[0], "b": Z[1]}
    for wrong in ((row for row in Z), vectors.values(), vectors, "ab"):
        with pytest.raises(TypeError, match="uploads must be a list of arrays, got "):
            aggregate(wrong, 0.5)
    np.testing.assert_array_equal(aggregate(Z.tolist(), 0.5), ens(Z, 0.5))
    np.testing.assert_array_equal(aggregate([Z[0], Z[1].astype(int)], 0.5), ens(Z[:2], 0.5))
    with pytest.raises(ValueError, match="3 numbers of float64 at first, 3 of float32 at index 1"):
        aggregate([Z[0], Z[1].astype(np.float32)], 0.5)
    for wrong, message in (
        ([1.0, 2.0], "must be vectors, got shape () at index 0"),
        ([Z[0], Z], "must be vectors, got shape (4, 3) at index 1"),
        (Z[0], "must be vectors: an array of shape (m, n), got shape (3,)"),
        (Z[None], "must be vectors: an array of shape (m, n), got shape (1, 4, 3)"),
        (np.array(1.0), "must be vectors: an array of shape (m, n), got shape ()"),
        ([Z[0], Z[0, :2]], "must be of one length and dtype: 3 numbers of float64 at first, 2 of"),
    ):
        with pytest.raises(ValueError, match=f"^uploads {re.escape(message)}"):
            aggregate(wrong, 0.5)
    with pytest.raises(ValueError, match="c must be a finite number"):
        aggregate([np.empty(0)] * 2, -1.0)


@pytest.mark.parametrize("n", [3, 100_000])
@pytest.mark.parametrize("threads", [0, -1, 1.0, True, "2"])
def test_threads_are_checked_at_any_size(n, threads):
    big = np.ones((5, n))
    calls = [
        lambda: ens(big, 0.5, threads=threads),
        lambda: aggregate(list(big), 0.5, threads=threads),
        lambda: soft_threshold(big, 0.5, threads=threads),
        lambda: laplace(0, 0, 0, 0, [1], n, threads=threads),
        lambda: losses.values(_rows(), Z[0], threads=threads),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError), match="threads must be an integer >= 1"):
            call()


@pytest.mark.parametrize("n", [3, 300 if JIT_DISABLED else 100_000])
def test_more_threads_than_there_are_mean_as_many_as_there_are(n, rng):
    big = rng.normal(size=(5, n))
    for threads in (64, 2**70, np.int64(3)):
        np.testing.assert_array_equal(ens(big, 0.5, threads=threads), ens(big, 0.5))
        np.testing.assert_array_equal(aggregate(big, 0.5, threads=threads), ens(big, 0.5))
        np.testing.assert_array_equal(
            laplace(0, 0, 0, 0, [1], n, threads=threads), laplace(0, 0, 0, 0, [1], n)
        )
    assert _boundary.thread_count(2**70) == _jit.most_threads()


def test_errors_that_begin_with_an_argument_are_of_one_kind():
    plain = re.compile(r"raise (?:Value|Type)Error\(\s*f?\"(?:[a-zA-Z_.]+|\{name\}) must ")
    found = {
        path.name
        for path in Path(_boundary.__file__).parent.rglob("*.py")
        if plain.search(path.read_text(encoding="utf-8"))
    }
    # Labels are data; the boundary knows of threads by the other.
    assert found == {"_labels.py", "_jit.py"}
