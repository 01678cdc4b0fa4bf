"""The server's aggregation: in blocks, and of uploads that weigh by the scale of their noise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from adult_federation import ALGORITHM, GOOD, PRIVATE, SEED, M, N

from fedepm_fast import FedEPM
from fedepm_fast.algorithms import AGGREGATIONS, AtServer
from fedepm_fast.federation import aggregation
from fedepm_fast.federation.aggregation import aggregate
from fedepm_fast.federation.server import Server
from fedepm_fast.kernels.ens import ens


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("m", [5, 40])
@pytest.mark.parametrize("n", [3, 16, 100, 101])
def test_blocks_have_the_bits_of_one_piece(m, n, dtype, monkeypatch):
    rng = np.random.default_rng(m + n)
    Z = rng.normal(size=(m, n)).astype(dtype)
    weights = rng.uniform(1, 2, m)
    monkeypatch.setattr(aggregation, "LEAST_WIDTH", 16)
    for size in (1, 40 * m * 16 * 8):
        monkeypatch.setattr(aggregation, "BLOCK_BYTES", size)
        found = aggregate(list(Z), 0.3)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, ens(Z, 0.3))
        np.testing.assert_array_equal(aggregate(list(Z), 0.3, threads=3), found)
        found = aggregate(list(Z), 0.3, weights=weights)
        np.testing.assert_array_equal(found, ens(Z, 0.3, weights=weights))


def test_uploads_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="at least one client's"):
        aggregate([], 0.5)
    for other, fault in (
        (GOOD[:-1], "5 numbers of float64 at first, 4 of float64"),
        (GOOD.astype(np.float32), "5 numbers of float64 at first, 5 of float32"),
        (GOOD[None], r"must be vectors, got shape \(1, 5\)"),
    ):
        with pytest.raises(ValueError, match=f"{fault} at index 1"):
            aggregate([GOOD, other], 0.5)


def reference_point(server, Z, scales):
    nobody, sizes = np.empty(0, np.intp), np.empty(0, np.int64)
    return server.algorithm.aggregate(AtServer(0, Z, nobody, nobody, sizes, scales, Z[0]))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_uploads_weigh_as_in_the_reference(aggregation, on_disk, tmp_path):
    algorithm = dataclasses.replace(PRIVATE, aggregation=aggregation, noise_l1=2.0)
    path = tmp_path if on_disk else None
    server = Server(algorithm, M, N, seed=SEED, path=path)
    scales, rng = np.full(M, np.nan), np.random.default_rng(2)
    Z = rng.normal(size=(M, N))
    for i in range(M):  # client 7 was a member before
        scales[i] = 0.5 if i == 7 else np.nan
        assert server.join(i, Z[i], scale=0.5 if i == 7 else None)
    for _ in range(3):
        expected = reference_point(server, Z, scales)
        tau, x, chosen = server.open_round()
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-14)
        for i in chosen[1:].tolist():
            Z[i], scales[i] = rng.normal(size=N), rng.uniform(1, 2)
            assert server.receive(tau, i, Z[i].copy(), scale=scales[i])
        server.close_round()
        if on_disk:
            server.close()
            server = Server(algorithm, M, N, seed=SEED, path=path)
    np.testing.assert_array_equal(server.scales, scales)
    server.leave(7)
    assert server.join(7, Z[7])
    scales[7] = np.nan
    np.testing.assert_allclose(server.x, reference_point(server, Z, scales), rtol=0, atol=1e-14)


@pytest.mark.parametrize("scale", [None, np.nan, np.inf, 0.0, -1.0, "1", [1.0], True])
def test_a_malformed_scale_is_rejected_and_named(scale, caplog):
    server = Server(PRIVATE, 1, N, seed=SEED)
    if scale is not None:
        assert not server.join(0, GOOD, scale=scale)
        assert "client 0 rejected: scale must be a finite number in [1e-150, 1e+150]" in caplog.text
    assert server.join(0, GOOD)
    server.open_round()
    caplog.clear()
    assert not server.receive(0, 0, GOOD, scale=scale)
    assert "client 0 rejected: scale must be a finite number in [1e-150, 1e+150]" in caplog.text
    assert server.receive(0, 0, GOOD, scale=1.0)
    plain = Server(ALGORITHM, 1, N)
    assert not plain.join(0, GOOD, scale=1.0)
    assert "scale must be None without a mechanism, got 1.0" in caplog.text


def test_uploads_weigh_without_a_mechanism(tmp_path):
    algorithm = FedEPM(participation=0.5, lam=1e-3, eta=2e-3, aggregation="uploaded")
    server = Server(algorithm, 4, N, path=tmp_path)
    Z = np.random.default_rng(3).normal(size=(4, N))
    for i in range(4):
        assert server.join(i, Z[i])
    tau, _, chosen = server.open_round()
    for i in chosen:
        Z[i] += 1
        assert server.receive(tau, i, Z[i].copy())
    server.close_round()
    scales = np.full(4, np.nan)
    scales[chosen] = 1.0
    expected = reference_point(server, Z, scales)
    server.close()
    for found in (server, Server(algorithm, 4, N, path=tmp_path)):
        np.testing.assert_allclose(found.x, expected, rtol=0, atol=1e-14)
